/* Loops over rows of numbers for the CPU kernels of delta, in sixteen lanes, so that a sum has one order on every machine. */
#ifndef TN_OPS_DELTA_ROWS_H
#define TN_OPS_DELTA_ROWS_H

#include "backend/cpu/vec.h"

/* Blocks of lanes side by side: more sums under way than one fused multiply-add takes cycles. */
enum { TN_DELTA_WIDE = 4 };

/* Decays whose numbers are denormal would be slow and mean nothing. NaN stays. */
TN_INLINE tn_vec tn_delta_damp(tn_vec x)
{
    const tn_vec least = tn_vec_all(1e-37f);
    return tn_vec_pick((x < least) & (x > -least), x - x, x);
}

TN_INLINE float tn_delta_damp_one(float x) { return x < 1e-37f && x > -1e-37f ? 0 : x; }

TN_INLINE float tn_delta_dot(const float *a, const float *b, int64_t n)
{
    tn_vec sum[TN_VECS] = { 0 };
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int v = 0; v < TN_VECS; v++)
            sum[v] = tn_vec_get(a + i + v * TN_VEC) * tn_vec_get(b + i + v * TN_VEC) + sum[v];
    float rest = tn_lanes_fold(sum);
    for (; i < n; i++) rest += a[i] * b[i];
    return rest;
}

TN_INLINE void tn_delta_add_block(float *x, float by, const float *coefficient, int64_t step, const float *rows,
                                  int64_t count, int64_t n, const int vectors)
{
    tn_vec sum[TN_DELTA_WIDE * TN_VECS];
    for (int v = 0; v < vectors; v++) sum[v] = tn_vec_get(x + v * TN_VEC);
    for (int64_t j = 0; j < count; j++) {
        const tn_vec c = tn_vec_all(by * coefficient[j * step]);
        for (int v = 0; v < vectors; v++) sum[v] = c * tn_vec_get(rows + j * n + v * TN_VEC) + sum[v];
    }
    for (int v = 0; v < vectors; v++) tn_vec_put(x + v * TN_VEC, sum[v]);
}

/* x (n) += by sum_j coefficient_j rows_j, j ascending. */
TN_INLINE void tn_delta_add_rows(float *x, float by, const float *coefficient, int64_t step, const float *rows,
                                 int64_t count, int64_t n)
{
    int64_t p = 0;
    for (; p + TN_DELTA_WIDE * TN_LANES <= n; p += TN_DELTA_WIDE * TN_LANES)
        tn_delta_add_block(x + p, by, coefficient, step, rows + p, count, n, TN_DELTA_WIDE * TN_VECS);
    for (; p + TN_LANES <= n; p += TN_LANES)
        tn_delta_add_block(x + p, by, coefficient, step, rows + p, count, n, TN_VECS);
    for (; p < n; p++) {
        float sum = x[p];
        for (int64_t j = 0; j < count; j++) sum += by * coefficient[j * step] * rows[j * n + p];
        x[p] = sum;
    }
}

#endif
