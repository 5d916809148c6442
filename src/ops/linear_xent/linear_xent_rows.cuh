/* The pass of linear_xent that turns rows of logits into losses and gradients. */
#ifndef TN_OPS_LINEAR_XENT_ROWS_CUH
#define TN_OPS_LINEAR_XENT_ROWS_CUH

#include "ops/head_tokens.cuh"

/* What a row's pass reads and leaves. */
struct tn_xent_rows {
    void *logits; /* (rows,row): becomes their gradient; columns from V on are 0 there. 256-byte aligned */
    tn_dtype type;
    int64_t rows, row, first; /* row: a multiple of 64; first: the token of row 0 */
    tn_head_tokens t;
    tn_arg bias; /* (V), data NULL: none */
    float z;
    double *term;     /* (n) or NULL: weight (nll + z lse^2) */
    float *nll, *lse; /* (n) or NULL */
    const double *scale;
    const float *dy; /* of the loss */
    bool gradient;   /* false: the logits stay */
};

tn_status tn_xent_rows_run(const tn_call *c, const tn_xent_rows *j);

#endif
