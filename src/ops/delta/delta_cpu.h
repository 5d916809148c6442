/* Between delta.c and the CPU kernels: kernels and workspace; and, between the kernel files, one sequence of one head with
 * its scratch memory. delta_cpu.c walks over sequences and chunks, delta_chunk.c computes a chunk forwards, delta_back.c its
 * gradients. With Gamma_i the product of decays from the chunk's beginning up to and with token i (a number for each row of
 * the state), S0 and S1 the states before and behind the chunk, and for j <= i
 *
 *     A_ij = k_i . (Gamma_i/Gamma_j k_j) for j < i, else 0        M_ij = q_i . (Gamma_i/Gamma_j k_j)
 *     U = V - (Gamma K) S0 - A W,   W = diag(beta) U        O = (Gamma Q) S0 + M W
 *     S1 = Gamma_C S0 + (Gamma_C/Gamma K)^T W
 *
 * Quotients are running products of e^{alpha} from j to i: no overflow, and row i knows nothing of tokens after i. */
#ifndef TN_OPS_DELTA_CPU_H
#define TN_OPS_DELTA_CPU_H

#include "ops/matrix_state.h"

tn_kernel tn_delta_forward_cpu, tn_delta_backward_cpu;
size_t tn_delta_work_cpu(const tn_sig *s, bool backward);

/* Rows of keys come before those of queries where both are in one array. */
typedef struct tn_delta_seq {
    int64_t N, P, C;
    tn_strided_products how;
    bool by_row;                               /* alpha has a number for each row of the state */
    tn_strided q, k, v, alpha, beta, o;        /* (T,N) (T,N) (T,P) (T,N) or (T,1), (T,1) (T,P) */
    tn_strided dq, dk, dv, dalpha, dbeta, d_o; /* their gradients */
    float *s;                                  /* (N,P) the state, carried from chunk to chunk */
    float *raw, *led;                          /* (2C,N) keys and queries; times Gamma */
    float *decay, *lead;                       /* (C,N) e^{alpha}; Gamma */
    float *out;      /* (C,N) keys on their way: Gamma_i/Gamma_j k_j, at last Gamma_C/Gamma_j k_j */
    float *a, *m;    /* (C,C) */
    float *read;     /* (2C,P) what rows of `led` read in the state */
    float *beta_row; /* (C) */
    float *u, *w;    /* (C,P), backward (T,P) */
    float *g;        /* (N,P) backward, like all below: dL/dS behind the chunk at hand */
    float *held;     /* (2C,P) dL/d of `read`: of what keys read, then of outputs */
    float *pairs;    /* (2C,C) dL/dA, dL/dM */
    float *d_led;    /* (2C,N) */
    float *d_out;    /* (C,N) dL/d of `out` */
    float *between;  /* (C,N) Gamma_i/Gamma_j */
    float *sums;     /* (3C,N) pairs' part of a token's key, of its query, and of its key as the earlier one */
    double *run;     /* (N) */
} tn_delta_seq;

/* A chunk of c tokens from t0 on. No reset lies inside. */
typedef struct tn_delta_chunk {
    int64_t t0, c;
    bool fresh;      /* the state before it is zero */
    const float *s0; /* (N,P) backward: the state before it, where it is not zero */
    float *u, *w;    /* (c,P) */
} tn_delta_chunk;

/* From inputs to `out`, a and m; what tokens write (u, w), and the state behind the chunk; outputs. */
void tn_delta_chunk_prepare(const tn_delta_seq *s, const tn_delta_chunk *k);
void tn_delta_chunk_forward(const tn_delta_seq *s, const tn_delta_chunk *k, bool outputs);
void tn_delta_chunk_backward(const tn_delta_seq *s, const tn_delta_chunk *k);

#endif
