/* For tests of the matrix product: products with random operands, and the check of one against a plain loop in double. */
#ifndef TN_BACKEND_CPU_GEMM_PROBLEM_H
#define TN_BACKEND_CPU_GEMM_PROBLEM_H

#include "backend/cpu/gemm_kernel.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

/* A product and the memory it points at. */
typedef struct problem {
    tn_gemm g;
    void *a, *b;
    float *c, *start, *bias, *pre, *residual; /* start: C before */
    size_t c_count;
} problem;

enum { T_A = 1, T_B = 2, GAP = 4 }; /* layout: A stored (k,m), B stored (n,k), rows with gaps */

static inline void *random_numbers(tn_dtype type, int64_t count, uint64_t stream)
{
    const tn_rng r = { 11, stream };
    void *p = tn_alloc((size_t)(count + 1) * 4);
    assert_non_null(p);
    for (int64_t i = 0; i < count; i++) {
        const float x = tn_rng_normal(r, (uint64_t)i);
        if (type == TN_F32) ((float *)p)[i] = x;
        else ((uint16_t *)p)[i] = type == TN_BF16 ? tn_f32_to_bf16(x) : tn_f32_to_f16(x);
    }
    return p;
}

static inline problem problem_new(int64_t m, int64_t n, int64_t k, int64_t batch, int layout, tn_dtype a_type,
                                  tn_dtype b_type)
{
    const int64_t gap = layout & GAP ? 3 : 0;
    const int64_t a_line = (layout & T_A ? m : k) + gap, a_lines = layout & T_A ? k : m;
    const int64_t b_line = (layout & T_B ? k : n) + gap, b_lines = layout & T_B ? n : k;
    problem p = { .g = { .m = m, .n = n, .k = k, .a_type = a_type, .b_type = b_type, .batch = batch, .alpha = 1 } };
    tn_gemm *g = &p.g;
    g->a_row = layout & T_A ? 1 : a_line;
    g->a_col = layout & T_A ? a_line : 1;
    g->b_row = layout & T_B ? 1 : b_line;
    g->b_col = layout & T_B ? b_line : 1;
    g->a_batch = a_line * a_lines;
    g->b_batch = b_line * b_lines;
    g->c_row = g->residual_row = n + gap;
    g->c_batch = g->residual_batch = m * g->c_row;
    g->a = p.a = random_numbers(a_type, batch * g->a_batch, 1);
    g->b = p.b = random_numbers(b_type, batch * g->b_batch, 2);
    p.c_count = (size_t)(batch * g->c_batch);
    g->c = p.c = random_numbers(TN_F32, (int64_t)p.c_count, 3);
    p.start = random_numbers(TN_F32, (int64_t)p.c_count, 3);
    p.bias = random_numbers(TN_F32, n, 4);
    p.pre = random_numbers(TN_F32, batch * m * n, 5);
    p.residual = random_numbers(TN_F32, (int64_t)p.c_count, 6);
    return p;
}

static inline void problem_free(problem *p)
{
    void *all[] = { p->a, p->b, p->c, p->start, p->bias, p->pre, p->residual };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tn_free(all[i]);
}

static inline void run(int threads, const tn_gemm *g)
{
    tn_pool *pool = NULL;
    assert_ok(tn_pool_new(threads, &pool));
    const size_t bytes = tn_gemm_work_bytes(g, threads);
    unsigned char *work = tn_alloc(bytes + 64);
    assert_non_null(work);
    memset(work, 0xff, bytes + 64); /* NaN: nothing may rely on the workspace */
    const uint64_t before = tn_alloc_count();
    tn_gemm_run(pool, g, work);
    assert_true(tn_alloc_count() == before);
    for (int i = 0; i < 64; i++) assert_int_equal(work[bytes + (size_t)i], 0xff);
    tn_free(work);
    tn_pool_free(pool);
}

static inline float rounded(float x, tn_dtype to)
{
    return to == TN_BF16 ? tn_bf16_to_f32(tn_f32_to_bf16(x)) : to == TN_F16 ? tn_f16_to_f32(tn_f32_to_f16(x)) : x;
}

static inline double operand(const void *p, tn_dtype type, tn_dtype round, int64_t i)
{
    const float x = type == TN_F32    ? ((const float *)p)[i]
                    : type == TN_BF16 ? tn_bf16_to_f32(((const uint16_t *)p)[i])
                                      : tn_f16_to_f32(((const uint16_t *)p)[i]);
    return (double)rounded(x, round);
}

static inline double act_double(tn_gemm_act act, double x)
{
    switch (act) {
    case TN_GEMM_ACT_RELU: return x < 0 ? 0 : x;
    case TN_GEMM_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TN_GEMM_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case TN_GEMM_ACT_SILU: return x / (1 + exp(-x));
    case TN_GEMM_ACT_TANH: return tanh(x);
    case TN_GEMM_ACT_SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

static inline void check_close(const char *what, double want, double got, double scale, const tn_gemm *g, int64_t i,
                               int64_t j)
{
    if (fabs(want - got) <= 1e-6 * scale + 1e-6) return;
    fail_msg("%s(%lld,%lld) of m=%lld n=%lld k=%lld: %.9g instead of %.9g", what, (long long)i, (long long)j,
             (long long)g->m, (long long)g->n, (long long)g->k, got, want);
}

/* C and pre after the run against the definition; what lies between rows must be as it was. */
static inline void check(const problem *p)
{
    const tn_gemm *g = &p->g;
    for (int64_t t = 0; t < g->batch; t++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                double sum = 0, size = 0;
                for (int64_t q = 0; q < g->k; q++) {
                    const double x = operand(g->a, g->a_type, g->round, t * g->a_batch + i * g->a_row + q * g->a_col) *
                                     operand(g->b, g->b_type, g->round, t * g->b_batch + q * g->b_row + j * g->b_col);
                    sum += x;
                    size += fabs(x);
                }
                const int64_t at = t * g->c_batch + i * g->c_row + j;
                const double pre = (double)g->alpha * sum + (g->bias ? (double)g->bias[j] : 0);
                double want = act_double(g->act, pre);
                if (g->residual) want += (double)p->residual[at];
                if (g->accumulate) want += (double)p->start[at];
                const double scale = fabs((double)g->alpha) * size + fabs(pre) + fabs(want);
                check_close("C", want, (double)p->c[at], scale, g, i, j);
                if (g->pre) check_close("pre", pre, (double)p->pre[(t * g->m + i) * g->n + j], scale, g, i, j);
            }
    for (int64_t r = 0; r < g->batch * g->m; r++)
        for (int64_t j = g->n; j < g->c_row; j++) assert_true(p->c[r * g->c_row + j] == p->start[r * g->c_row + j]);
}

#endif
