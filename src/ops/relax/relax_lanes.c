/* Products of tiles: out (n,width) = w (n,k) in (k,width), samples along the lanes of vectors.
 *
 * A weight is one lane of a register (or a broadcast), a row of `in` a few vectors; the sums of a panel of rows of w stay in
 * registers for all of k. Both operands are read one after the other, `in` from the nearest cache, each panel once for a
 * tile: with 16 lanes a weight that comes from the next cache is used four times by vectors of four.
 * An element's sum is one chain of fused multiply-adds in the order of k, from 0, whatever the width and the panels. Where
 * operands are rounded (compute=bf16) the product is tn_gemm's, which has the instructions for it. */
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"

/* Rows of a panel: with TN_VECS vectors of samples, so many sums fit the registers. */
#if defined(__AVX512F__)
enum { PANEL = 16 };
#elif defined(__aarch64__) || defined(__AVX__)
enum { PANEL = 6 };
#else
enum { PANEL = 2 };
#endif

TN_LEVELED(int, tn_relax_width, (int samples), (samples)) { return samples <= TN_VEC ? TN_VEC : (samples + TN_VEC - 1) / TN_VEC * TN_VEC; }

/* --- the micro-kernel ------------------------------------------------------------------------------------------------------ */

/* All loops over constants unroll; the sums must end up in registers. */
TN_INLINE void micro(int rows, int vecs, int64_t k, const float *restrict w, const float *restrict in, float *restrict out)
{
    tn_vec sum[PANEL][TN_VECS];
    TN_UNROLL for (int r = 0; r < rows; r++)
        TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (tn_vec){ 0 };
    for (int64_t p = 0; p < k; p++, w += rows, in += vecs * TN_VEC) {
        tn_vec b[TN_VECS];
        TN_UNROLL for (int v = 0; v < vecs; v++) b[v] = tn_vec_get(in + v * TN_VEC);
#if defined(__aarch64__) /* multiplies by a lane of a register */
        tn_vec a[(PANEL + 3) / 4];
        TN_UNROLL for (int q = 0; q < (rows + 3) / 4; q++) a[q] = tn_vec_get(w + 4 * q);
        TN_UNROLL for (int r = 0; r < rows; r++)
            TN_UNROLL for (int v = 0; v < vecs; v++)
                sum[r][v] = (tn_vec)vfmaq_f32((float32x4_t)sum[r][v], (float32x4_t)b[v], vdupq_n_f32(a[r / 4][r % 4]));
#else
        TN_UNROLL for (int r = 0; r < rows; r++)
            TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = tn_vec_fma(tn_vec_all(w[r]), b[v], sum[r][v]);
#endif
    }
    TN_UNROLL for (int r = 0; r < rows; r++)
        TN_UNROLL for (int v = 0; v < vecs; v++) tn_vec_put(out + (r * vecs + v) * TN_VEC, sum[r][v]);
}

typedef void kernel(int64_t k, const float *restrict w, const float *restrict in, float *restrict out);

#define MICRO(rows, vecs)                                                                                              \
    static void micro_##rows##_##vecs(int64_t k, const float *restrict w, const float *restrict in, float *restrict out) \
    {                                                                                                                  \
        micro(rows, vecs, k, w, in, out);                                                                              \
    }
#define MICRO_ROWS(vecs) MICRO(1, vecs) MICRO(2, vecs) MICRO_ROWS_6(vecs) MICRO_ROWS_16(vecs)
#define TABLE_ROWS(vecs)                                                                                               \
    { NULL, micro_1_##vecs, micro_2_##vecs TABLE_ROWS_6(vecs) TABLE_ROWS_16(vecs) }

#if defined(__aarch64__) || defined(__AVX__)
#define MICRO_ROWS_6(vecs) MICRO(3, vecs) MICRO(4, vecs) MICRO(5, vecs) MICRO(6, vecs)
#define TABLE_ROWS_6(vecs) , micro_3_##vecs, micro_4_##vecs, micro_5_##vecs, micro_6_##vecs
#else
#define MICRO_ROWS_6(vecs)
#define TABLE_ROWS_6(vecs)
#endif
#if defined(__AVX512F__)
#define MICRO_ROWS_16(vecs)                                                                                            \
    MICRO(7, vecs) MICRO(8, vecs) MICRO(9, vecs) MICRO(10, vecs) MICRO(11, vecs) MICRO(12, vecs) MICRO(13, vecs)       \
    MICRO(14, vecs) MICRO(15, vecs) MICRO(16, vecs)
#define TABLE_ROWS_16(vecs)                                                                                            \
    , micro_7_##vecs, micro_8_##vecs, micro_9_##vecs, micro_10_##vecs, micro_11_##vecs, micro_12_##vecs,               \
        micro_13_##vecs, micro_14_##vecs, micro_15_##vecs, micro_16_##vecs
#else
#define MICRO_ROWS_16(vecs)
#define TABLE_ROWS_16(vecs)
#endif

MICRO_ROWS(1)
#if !defined(__AVX512F__)
MICRO_ROWS(2)
#endif
#if !defined(__AVX__)
MICRO_ROWS(3)
MICRO_ROWS(4)
#endif

static kernel *const kernels[TN_VECS + 1][PANEL + 1] = {
    { NULL },
    TABLE_ROWS(1),
#if !defined(__AVX512F__)
    TABLE_ROWS(2),
#endif
#if !defined(__AVX__)
    TABLE_ROWS(3),
    TABLE_ROWS(4),
#endif
};

/* Rows of panel i: as even as can be, so that no panel leaves most registers empty. */
TN_INLINE int64_t first_row(int64_t n, int64_t panels, int64_t i) { return n * i / panels; }

TN_LEVELED(void, tn__relax_panels, (const tn_relax_matrix *m, float *dst), (m, dst))
{
    const int64_t panels = (m->n + PANEL - 1) / PANEL;
    for (int64_t i = 0; i < panels; i++) {
        const int64_t first = first_row(m->n, panels, i), rows = first_row(m->n, panels, i + 1) - first;
        const float *from = m->w + first * m->row;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t p = 0; p < m->k; p++) dst[p * rows + r] = from[r * m->row + p * m->col];
        dst += rows * m->k;
    }
}

TN_LEVELED(void, tn__relax_product, (const tn_relax_matrix *m, int width, const float *in, float *out), (m, width, in, out))
{
    const int64_t panels = (m->n + PANEL - 1) / PANEL;
    const float *w = m->packed;
    for (int64_t i = 0; i < panels; i++) {
        const int64_t first = first_row(m->n, panels, i), rows = first_row(m->n, panels, i + 1) - first;
        kernels[width / TN_VEC][rows](m->k, w + first * m->k, in, out + first * width);
    }
}

/* --- rows and columns -------------------------------------------------------------------------------------------------------- */

TN_LEVELED(void, tn_relax_load, (float *a, int width, const float *rows, int64_t step, int n, int64_t k), (a, width, rows, step, n, k))
{
    for (int l = 0; l < width; l++)
        for (int64_t i = 0; i < k; i++) a[i * width + l] = l < n ? rows[l * step + i] : 0;
}

TN_LEVELED(void, tn_relax_store, (const float *a, int width, float *rows, int64_t step, int n, int64_t k), (a, width, rows, step, n, k))
{
    for (int l = 0; l < n; l++)
        for (int64_t i = 0; i < k; i++) rows[l * step + i] = a[i * width + l];
}
