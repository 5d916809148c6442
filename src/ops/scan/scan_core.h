/* The recurrence c_t = lambda_t c_{t-1} + gain_t x_t and its reverse, for any way of making lambda and gain.
 *
 * An op gives two functions: `coef` makes lambda and gain of a few tokens of a block of channels, `sink` takes what
 * the reverse scan found there. The core owns the tiles, the carries, the resets and the order of all sums. Work is
 * cut by row b and block of channels, and along time too when there are few of them: three phases, local from zero,
 * carry, apply. Whether and where time is cut depends on shapes alone and channels do not mix, so bits do not depend
 * on threads; nothing a tile reads lies in its future, so bits do not depend on later tokens. What is
 * carried from piece to piece is double (scan_loops.h says what is not). */
#ifndef TN_OPS_SCAN_CORE_H
#define TN_OPS_SCAN_CORE_H

#include "backend/cpu/pool.h"

#include <tenon/op.h>

enum {
    TN_SCAN_W = 64,   /* most channels of a block, and the step between rows of the buffers below */
    TN_SCAN_N = 16,   /* most tokens of a piece: what coef and sink see at once, small enough for the L1 cache */
    TN_SCAN_UNIT = 4, /* kernels work on this many channels at a time; blocks are padded to it */
    TN_SCAN_SUMS = 3, /* sums over all rows and tokens that a sink may keep per channel */
    TN_SCAN_BUFFERS = 4
};

/* Below it a memory is no longer than some 250 tokens: rounding errors of f32 add up to a few units in the last place. It
 * is asked of all channels at once, so that bits do not depend on how they are cut into blocks. */
#define TN_SCAN_BRIEF (1 - 0x1p-8)

/* A tensor (B,T,2K) or (B,T,K) whose last axis is contiguous. */
typedef struct tn_scan_tensor {
    float *at;    /* NULL: not there */
    int64_t b, t; /* from row to row, from token to token */
} tn_scan_tensor;

/* Tokens t..t+n-1 of row b, channels k..k+w-1; n <= TN_SCAN_N, w <= TN_SCAN_W. */
typedef struct tn_scan_at {
    int64_t b, t, n, k, w;
} tn_scan_at;

/* Coefficients of a piece; number (i,k) of a field lies at [i*step + k], step 0 for one row for all tokens. Channels
 * from at->w up to its next multiple of TN_SCAN_UNIT must hold numbers too; nobody looks at what becomes of them. */
typedef struct tn_scan_coef {
    /* Either lambda per token, (n,W) each, and no powers; or powers m = 0..TN_SCAN_N of a fixed lambda, rows power_step
     * apart, in f32 and double, by (1 + u), (n,W) or NULL, per token. */
    const double *lr, *li;
    const float *power_re, *power_im, *u;
    const double *wide_re, *wide_im;
    int64_t power_step;
    bool brief;            /* powers without u, all of whose lambdas have modulus^2 <= TN_SCAN_BRIEF */
    const double *cs, *sn; /* cos and sin of its phase, for the op's own sink */
    const float *gain;     /* NULL: 1 */
    int64_t turn_step, gain_step;
    double wide[TN_SCAN_BUFFERS][TN_SCAN_N * TN_SCAN_W]; /* room for them, (n,W) each */
    float buf[TN_SCAN_BUFFERS][TN_SCAN_N * TN_SCAN_W];
} tn_scan_coef;

/* What the reverse scan found, each (n,W), only when wanted. With a_t = dL/dc_t through all later tokens:
 * m = a_t conj(c_{t-1}) = dL/dlambda_t, e = Re(a_t conj(x_t)) = dL/dgain_t. */
typedef struct tn_scan_found {
    float mr[TN_SCAN_N * TN_SCAN_W], mi[TN_SCAN_N * TN_SCAN_W];
    float e[TN_SCAN_N * TN_SCAN_W];
} tn_scan_found;

typedef struct tn_scan_job {
    int64_t B, T, K, chunk; /* B: the capacity, which decides how work is cut */
    int64_t rows;           /* rows alive, <= B */
    tn_scan_tensor x;       /* (B,T,2K) */
    const float *state;     /* (B,2K) or NULL: zero */
    const int32_t *reset;   /* (B,T) or NULL */
    tn_scan_tensor c;       /* (B,T,2K): written forward, read backward when m is wanted */
    tn_scan_tensor dc, dx;  /* (B,T,2K): gradient of c, NULL: zero; gradient of x, to write, or NULL */
    float *final;           /* (B,2K) */
    const float *dfinal;    /* NULL: zero */
    float *dstate;          /* to write, or NULL */
    bool add_x, add_state;  /* add instead of overwriting */
    bool want_m, want_e;
    /* lambda and gain per channel: m (re, im) and e are summed into rows 0..2 of sums, and sink is not called */
    bool fixed;
    const void *self;
    void (*coef)(const void *self, const tn_scan_at *at, tn_scan_coef *q);
    void (*sink)(const void *self, const tn_scan_at *at, const tn_scan_coef *q, const tn_scan_found *f,
                 double *const *sums /* TN_SCAN_SUMS rows of at->w, to be added to */);
    void *work;   /* tn_scan_core_work bytes */
    double *sums; /* backward leaves (TN_SCAN_SUMS, padded K) here: totals over rows and tokens */
    /* the cut, set by the core */
    int64_t block;        /* channels of a tile */
    int64_t chunks, span; /* pieces of time of `span` tokens */
    double *edge;         /* (B, chunks, rows of scan_core.c, padded K) */
} tn_scan_job;

static inline int64_t tn_scan_padded(int64_t K) { return (K + TN_SCAN_UNIT - 1) / TN_SCAN_UNIT * TN_SCAN_UNIT; }

/* Powers of K fixed lambdas (wide_re and wide_im row 1 given: rows of padded K doubles), and their room. */
typedef struct tn_scan_powers {
    double *wide_re, *wide_im; /* (TN_SCAN_N + 1, padded K) */
    float *re, *im;
} tn_scan_powers;
size_t tn_scan_powers_bytes(int64_t padded_K);
tn_scan_powers tn_scan_powers_in(void *room, int64_t padded_K);
void tn_scan_powers_fill(const tn_scan_powers *p, int64_t padded_K);
/* The powers of channels k.. into q. */
void tn_scan_powers_use(const tn_scan_powers *p, int64_t padded_K, int64_t k, tn_scan_coef *q);

size_t tn_scan_core_work(int64_t B, int64_t T, int64_t K, int64_t chunk);
void tn_scan_core_forward(tn_pool *pool, tn_scan_job *j);
void tn_scan_core_backward(tn_pool *pool, tn_scan_job *j);

static inline tn_scan_tensor tn_scan_tensor_of(const tn_arg *a)
{
    return (tn_scan_tensor){ a->data, a->stride[0], a->stride[1] };
}

/* Rows alive of a call whose input 0 is (B, ...): whichever tensor is there carries the count. */
int64_t tn_scan_rows(const tn_call *c);

/* What scan and scan_gated have alike: x (B,T,2K) is input 0, `state` and `reset` are inputs, c and final the outputs. The
 * job of a call without its coefficients, forward or backward; work begins `own` bytes into the call's. */
tn_scan_job tn_scan_job_of(const tn_call *c, bool backward, int64_t chunk, int state, int reset, size_t own);
/* Checks them, and says what the outputs are. */
tn_status tn_scan_infer_frame(tn_sig *s, int64_t chunk, int state, int reset);

/* scan's kernels: in blocks, and its plain twin's, token by token. */
tn_kernel tn_scan_blocked_forward_cpu, tn_scan_blocked_backward_cpu;
tn_kernel tn_scan_step_forward_cpu, tn_scan_step_backward_cpu;
size_t tn_scan_cpu_work(int64_t B, int64_t T, int64_t K, int64_t chunk);
size_t tn_scan_step_work(int64_t B, int64_t K);

#endif
