/* The pass of linear_kl that turns rows of logits into divergences and gradients. */
#ifndef TN_OPS_LINEAR_KL_ROWS_CUH
#define TN_OPS_LINEAR_KL_ROWS_CUH

#include "ops/head_tokens.cuh"

enum { TN_KL_STUDENT, TN_KL_TEACHER, TN_KL_SIDES };

/* What a row's pass reads and leaves. */
struct tn_kl_rows {
    /* (rows,row), 256-byte aligned. A row of the student's becomes its gradient in `type`, from the row's first byte on, with
     * 0 in columns from V on. */
    float *logits[TN_KL_SIDES];
    tn_dtype type;
    int64_t rows, row, first; /* row: a multiple of 64; first: the token of row 0 */
    tn_head_tokens t;
    float temperature;
    double *term;    /* (n) or NULL: weight KL */
    float *kl, *lse; /* (n), (n,2) or NULL */
    const double *scale;
    const float *dy; /* of the loss */
    bool gradient;   /* false: the logits stay */
};

tn_status tn_kl_rows_run(const tn_call *c, const tn_kl_rows *j);

#endif
