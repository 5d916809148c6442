/* Sums over samples: gradients of weights and vectors from rows (rows,n) that the samples left.
 *
 * A weight's gradient is a sum of outer products. Both factors lie as such a sum wants them, one row after the other, so that nothing is
 * packed: a block of TALL rows of the result by MOST vectors stays in registers for RUN samples, of which it reads few enough numbers
 * for the nearest cache to hold them until the next block. An element is one chain of fused multiply-adds for each RUN samples, added
 * in order. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"

enum { RUN = 128, ROWS = 4 };
#if defined(__AVX512F__)
enum { TALL = 8, MOST = 2 };
#elif defined(__AVX__)
enum { TALL = 4, MOST = 2 }; /* 16 registers */
#else
enum { TALL = 4, MOST = 4 };
#endif

/* c (rows,vecs) of rows n apart = or += factor sum_b x_b (rows) y_b^T (vecs). */
TN_INLINE void block(int rows, int vecs, const tn_relax_outer *o, int64_t b, int64_t i, int64_t j, bool add)
{
    const int64_t end = b + RUN < o->rows ? b + RUN : o->rows;
    const float *x = o->x + b * o->x_row + i, *y = o->y + b * o->y_row + j;
    tn_vec sum[TALL][MOST];
    TN_UNROLL for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (tn_vec){ 0 };
    for (; b < end; b++, x += o->x_row, y += o->y_row) {
        tn_vec at[MOST];
        TN_UNROLL for (int v = 0; v < vecs; v++) at[v] = tn_vec_get(y + v * TN_VEC);
#if defined(__aarch64__) /* multiplies by a lane of a register */
        const tn_vec few = tn_vec_get(x);
#else
        const float *few = x;
#endif
        TN_UNROLL for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
            tn_vec_fma(at[v], tn_vec_all(few[r]), sum[r][v]);
    }
    TN_UNROLL for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++)
    {
        float *c = o->c + (i + r) * o->n + j + v * TN_VEC;
        tn_vec_put(c, add ? tn_vec_fma(sum[r][v], tn_vec_all(o->factor), tn_vec_get(c)) : sum[r][v] * o->factor);
    }
}

/* The blocks of rows first to last. */
TN_INLINE void strip(int vecs, const tn_relax_outer *o, int64_t b, int64_t first, int64_t last, int64_t j)
{
    const bool add = o->add || b > 0;
    int64_t i = first;
    for (; i + TALL <= last; i += TALL) block(TALL, vecs, o, b, i, j, add);
    if (i < last) block(ROWS, vecs, o, b, i, j, add);
}

TN_LEVELED(bool, tn__relax_outer_fits, (int64_t m, int64_t n), (m, n)) { return m % ROWS == 0 && n % TN_VEC == 0; }

TN_LEVELED(void, tn__relax_outer_rows, (const tn_relax_outer *o, int64_t first, int64_t last), (o, first, last))
{
    for (int64_t b = 0; b < o->rows; b += RUN)
        for (int64_t j = 0; j < o->n;) {
            const int64_t left = (o->n - j) / TN_VEC, vecs = left >= MOST ? MOST : left >= 2 ? 2 : 1;
            if (vecs == MOST) strip(MOST, o, b, first, last, j);
            else if (vecs == 2) strip(2, o, b, first, last, j);
            else strip(1, o, b, first, last, j);
            j += vecs * TN_VEC;
        }
}

/* Sums of columns in double: HALF numbers of a row become a vector of doubles, and AT_ONCE of these stay in registers down all rows. */
enum { HALF = TN_VEC / 2, AT_ONCE = 8 };
typedef double doubles __attribute__((vector_size(HALF * 8)));
typedef double doubles_at __attribute__((vector_size(HALF * 8), aligned(8), may_alias));

/* By name: compilers make of the plain conversion what they can, which is not one instruction. */
TN_INLINE doubles widen(const float *p)
{
#if defined(__aarch64__)
    return (doubles)vcvt_f64_f32(vld1_f32(p));
#elif defined(__AVX512F__)
    return (doubles)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif defined(__FMA__)
    return (doubles)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    return (doubles){ (double)p[0], (double)p[1] };
#endif
}

TN_INLINE void columns(const float *x, const float *y, int64_t rows, int64_t n, double *to)
{
    doubles sum[AT_ONCE];
    TN_UNROLL for (int k = 0; k < AT_ONCE; k++) sum[k] = (doubles){ 0 };
    for (int64_t b = 0; b < rows; b++) TN_UNROLL for (int k = 0; k < AT_ONCE; k++)
        {
            const doubles at = widen(x + b * n + k * HALF);
            sum[k] += y ? at * widen(y + b * n + k * HALF) : at;
        }
    TN_UNROLL for (int k = 0; k < AT_ONCE; k++) * (doubles_at *)(to + k * HALF) = sum[k];
}

/* sum (count) = sum_b x_b y_b of the first columns of (rows,n), in double, in the order of the rows; y NULL: 1. A product of two floats
 * is exact in double, so fused or not, it is the same. */
TN_LEVELED(void, tn__relax_columns,
           (const float *restrict x, const float *restrict y, int64_t rows, int64_t n, int64_t count,
            double *restrict sum),
           (x, y, rows, n, count, sum))
{
    int64_t i = 0;
    for (; i + AT_ONCE * HALF <= count; i += AT_ONCE * HALF) {
        if (y) columns(x + i, y + i, rows, n, sum + i);
        else columns(x + i, NULL, rows, n, sum + i);
    }
    for (; i < count; i++) {
        sum[i] = 0;
        for (int64_t b = 0; b < rows; b++) sum[i] += (double)x[b * n + i] * (y ? (double)y[b * n + i] : 1);
    }
}
