/* The epilogue of the product: scale, bias, activation, residual, store. One loop per step over a stretch of one row,
 * which is in the nearest cache: separate loops leave the compiler no multiply-add to fuse across steps, and tn_v_map
 * treats all elements alike, so the bits do not depend on where a stretch begins or ends. */
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/level.h"
#include "backend/cpu/vmath.h"

#define ACT_ROW(name, f)                                                                                               \
    static void row_##name(float *restrict x, int64_t n) { tn_v_map(x, x, n, f); }
ACT_ROW(relu, tn_v_relu)
ACT_ROW(gelu_tanh, tn_v_gelu)
ACT_ROW(gelu_erf, tn_v_gelu_erf)
ACT_ROW(silu, tn_v_silu)
ACT_ROW(tanh, tn_v_tanh)
ACT_ROW(sigmoid, tn_v_sigmoid)

static void (*const act_rows[TN_GEMM_ACTS])(float *restrict, int64_t) = {
    [TN_GEMM_ACT_NONE] = NULL,
    [TN_GEMM_ACT_RELU] = row_relu,
    [TN_GEMM_ACT_GELU_TANH] = row_gelu_tanh,
    [TN_GEMM_ACT_GELU_ERF] = row_gelu_erf,
    [TN_GEMM_ACT_SILU] = row_silu,
    [TN_GEMM_ACT_TANH] = row_tanh,
    [TN_GEMM_ACT_SIGMOID] = row_sigmoid,
};

static void scale(float *restrict x, float by, int64_t n)
{
    for (int64_t j = 0; j < n; j++) x[j] *= by;
}

static void add(float *restrict x, const float *restrict y, int64_t n)
{
    for (int64_t j = 0; j < n; j++) x[j] += y[j];
}

TN_LEVELED(void, tn__gemm_store_row,
           (const tn_gemm *g, int64_t batch, int64_t i, int64_t j, int64_t count, float *restrict acc),
           (g, batch, i, j, count, acc))
{
    float *c = g->c + batch * g->c_batch + i * g->c_row + j;
    if (g->alpha != 1.0f) scale(acc, g->alpha, count);
    if (g->bias) add(acc, g->bias + j, count);
    if (g->pre) memcpy(g->pre + (batch * g->m + i) * g->n + j, acc, (size_t)count * sizeof *acc);
    if (act_rows[g->act]) act_rows[g->act](acc, count);
    if (g->residual) add(acc, g->residual + batch * g->residual_batch + i * g->residual_row + j, count);
    if (g->accumulate) add(c, acc, count); /* acc is not C then */
    else if (c != acc) memcpy(c, acc, (size_t)count * sizeof *acc);
}
