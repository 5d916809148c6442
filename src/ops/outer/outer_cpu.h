/* Between outer.c and the CPU kernels: kernels and workspace; and, between the two kernel files, one
 * sequence of one head with its scratch memory. outer_cpu.c walks over sequences and chunks and computes chunks by
 * matrix products; outer_steps.c computes a chunk token by token. */
#ifndef TN_OPS_OUTER_CPU_H
#define TN_OPS_OUTER_CPU_H

#include "ops/matrix_state.h"

tn_kernel tn_outer_forward_cpu, tn_outer_backward_cpu;
size_t tn_outer_work_cpu(const tn_sig *s, bool backward);

typedef struct tn_outer_seq {
    int64_t N, P;
    tn_strided_products how;
    tn_strided q, k, v, alpha, o;       /* (T,N) (T,N) (T,P) (T,1) (T,P) */
    tn_strided dq, dk, dv, dalpha, d_o; /* their gradients */
    float *s;                           /* (N,P) forward: the state, carried from chunk to chunk */
    float *g;                           /* (N,P) backward: dL/dS behind the chunk at hand */
    float *m, *dp;                      /* (C,C) */
    float *x;                           /* (C,max(N,P)) rows on their way to a strided tensor */
    float *scaled;                      /* (C,N) */
    float *clean;                       /* (C,P) forward: v without NaN and Inf */
    float *token;                       /* (P+2N) backward, steps: gradients of one token */
    float *history;                     /* (C,N,P) backward, steps: S after every token of the chunk */
    double *decay;                      /* (C) e^{alpha} */
    double *lead;                       /* (C) decay from the chunk's beginning up to and with token i */
    double *tail;                       /* (C) decay after token j up to the chunk's end */
    double *row;                        /* (C) decay between tokens: one row of the mask */
    double *sum;                        /* (C) what alpha's gradient is added up from */
} tn_outer_seq;

/* A chunk of c tokens from t0 on. No reset lies inside. */
typedef struct tn_outer_chunk {
    int64_t t0, c;
    bool fresh;      /* the state before it is zero */
    const float *s0; /* (N,P) backward: the state before it, where it is not zero and is needed */
} tn_outer_chunk;

void tn_outer_steps_forward(const tn_outer_seq *s, const tn_outer_chunk *k);
void tn_outer_steps_backward(const tn_outer_seq *s, const tn_outer_chunk *k);

#endif
