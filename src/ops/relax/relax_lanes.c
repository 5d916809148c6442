/* Products of tiles: out (n,width) = w (n,k) in (k,width), samples along the lanes of vectors.
 *
 * A weight is one lane of a register (or a broadcast), a row of `in` a few vectors; the sums of a panel of rows of w stay in
 * registers for all of k. Both operands are read one after the other, `in` from the nearest cache, each panel once for a
 * tile: with 16 lanes a weight that comes from the next cache is used four times by vectors of four.
 * An element's sum is one chain of fused multiply-adds in the order of k, from 0, whatever the width and the panels. Where
 * operands are rounded (compute=bf16) the product is tn_gemm's, which has the instructions for it. */
#include "backend/cpu/gemm_load.h"
#include "backend/cpu/level.h"
#include "backend/cpu/vec.h"
#include "ops/relax/relax_cpu.h"

/* Rows of a panel: with TN_VECS vectors of samples, so many sums fit the registers. */
#if defined(__AVX512F__)
enum { PANEL = 24 };
#elif defined(__aarch64__) || defined(__AVX__)
enum { PANEL = 6 };
#else
enum { PANEL = 2 };
#endif

TN_LEVELED(int, tn_relax_width, (int samples), (samples))
{
    return samples <= TN_VEC ? TN_VEC : (samples + TN_VEC - 1) / TN_VEC * TN_VEC;
}

/* TN_UNROLL is for 16 at most. */
#if defined(__clang__)
#define UNROLL_ROWS _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ROWS _Pragma("GCC unroll 24")
#endif

/* --- the micro-kernel --------------------------------------------------------------------------------------------- */

/* All loops over constants unroll; the sums must end up in registers. */
TN_INLINE void micro(int rows, int vecs, int64_t k, const float *restrict w, const float *restrict in,
                     float *restrict out)
{
    tn_vec sum[PANEL][TN_VECS];
    UNROLL_ROWS for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] = (tn_vec){ 0 };
    for (int64_t p = 0; p < k; p++, w += rows, in += vecs * TN_VEC) {
        tn_vec b[TN_VECS];
        TN_UNROLL for (int v = 0; v < vecs; v++) b[v] = tn_vec_get(in + v * TN_VEC);
#if defined(__aarch64__) /* multiplies by a lane of a register */
        tn_vec a[(PANEL + 3) / 4];
        TN_UNROLL for (int q = 0; q < (rows + 3) / 4; q++) a[q] = tn_vec_get(w + 4 * q);
        UNROLL_ROWS for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
            (tn_vec)vfmaq_f32((float32x4_t)sum[r][v], (float32x4_t)b[v], vdupq_n_f32(a[r / 4][r % 4]));
#else
        UNROLL_ROWS for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++) sum[r][v] =
            tn_vec_fma(tn_vec_all(w[r]), b[v], sum[r][v]);
#endif
    }
    UNROLL_ROWS for (int r = 0; r < rows; r++) TN_UNROLL for (int v = 0; v < vecs; v++)
        tn_vec_put(out + (r * vecs + v) * TN_VEC, sum[r][v]);
}

typedef void kernel(int64_t k, const float *restrict w, const float *restrict in, float *restrict out);

#define MICRO(rows, vecs)                                                                                              \
    static void micro_##rows##_##vecs(int64_t k, const float *restrict w, const float *restrict in,                    \
                                      float *restrict out)                                                             \
    {                                                                                                                  \
        micro(rows, vecs, k, w, in, out);                                                                              \
    }
#define MICRO_ROWS(vecs) MICRO(1, vecs) MICRO(2, vecs) MICRO_ROWS_6(vecs) MICRO_ROWS_24(vecs)
#define TABLE_ROWS(vecs)                                                                                               \
    {                                                                                                                  \
        NULL, micro_1_##vecs, micro_2_##vecs TABLE_ROWS_6(vecs) TABLE_ROWS_24(vecs)                                    \
    }

#if defined(__aarch64__) || defined(__AVX__)
#define MICRO_ROWS_6(vecs) MICRO(3, vecs) MICRO(4, vecs) MICRO(5, vecs) MICRO(6, vecs)
#define TABLE_ROWS_6(vecs) , micro_3_##vecs, micro_4_##vecs, micro_5_##vecs, micro_6_##vecs
#else
#define MICRO_ROWS_6(vecs)
#define TABLE_ROWS_6(vecs)
#endif
#if defined(__AVX512F__)
/* clang-format off */
#define MICRO_ROWS_24(vecs)                                                                                            \
    MICRO(7, vecs) MICRO(8, vecs) MICRO(9, vecs) MICRO(10, vecs) MICRO(11, vecs) MICRO(12, vecs) MICRO(13, vecs)       \
    MICRO(14, vecs) MICRO(15, vecs) MICRO(16, vecs) MICRO(17, vecs) MICRO(18, vecs) MICRO(19, vecs) MICRO(20, vecs)    \
    MICRO(21, vecs) MICRO(22, vecs) MICRO(23, vecs) MICRO(24, vecs)
/* clang-format on */
#define TABLE_ROWS_24(vecs)                                                                                            \
    , micro_7_##vecs, micro_8_##vecs, micro_9_##vecs, micro_10_##vecs, micro_11_##vecs, micro_12_##vecs,               \
        micro_13_##vecs, micro_14_##vecs, micro_15_##vecs, micro_16_##vecs, micro_17_##vecs, micro_18_##vecs,          \
        micro_19_##vecs, micro_20_##vecs, micro_21_##vecs, micro_22_##vecs, micro_23_##vecs, micro_24_##vecs
#else
#define MICRO_ROWS_24(vecs)
#define TABLE_ROWS_24(vecs)
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
    { NULL },      TABLE_ROWS(1),
#if !defined(__AVX512F__)
    TABLE_ROWS(2),
#endif
#if !defined(__AVX__)
    TABLE_ROWS(3), TABLE_ROWS(4),
#endif
};

/* --- rows and columns --------------------------------------------------------------------------------------------- */

#if defined(__AVX__)
typedef __m256 eight;

TN_INLINE eight two_quads(const float *low, const float *high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}

/* transpose4 in both halves. Two quads that lie apart come together as they are loaded, which takes no shuffle. */
TN_INLINE void transpose_halves(eight x[4])
{
    const eight low = _mm256_unpacklo_ps(x[0], x[1]), high = _mm256_unpackhi_ps(x[0], x[1]);
    const eight low2 = _mm256_unpacklo_ps(x[2], x[3]), high2 = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(low, low2, 0x44), x[1] = _mm256_shuffle_ps(low, low2, 0xee);
    x[2] = _mm256_shuffle_ps(high, high2, 0x44), x[3] = _mm256_shuffle_ps(high, high2, 0xee);
}

/* Columns l to l+7 of four rows of a each time, as far as k has fours; returns how far that is. */
TN_INLINE int64_t gather_eight(int width, float *a, const float *const *rows, int64_t k)
{
    const float *const from[8] = { rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7] };
    int64_t i = 0;
    for (; i + 4 <= k; i += 4) {
        eight x[4];
        TN_UNROLL for (int q = 0; q < 4; q++) x[q] = two_quads(from[q] + i, from[q + 4] + i);
        transpose_halves(x);
        TN_UNROLL for (int q = 0; q < 4; q++) _mm256_storeu_ps(a + (i + q) * width, x[q]);
    }
    return i;
}

/* Four rows from four columns of a, as far as k has eights. */
TN_INLINE int64_t scatter_eights(int width, const float *a, float *const *rows, int64_t k)
{
    float *const to[4] = { rows[0], rows[1], rows[2], rows[3] };
    int64_t i = 0;
    for (; i + 8 <= k; i += 8) {
        eight x[4];
        TN_UNROLL for (int q = 0; q < 4; q++) x[q] = two_quads(a + (i + q) * width, a + (i + q + 4) * width);
        transpose_halves(x);
        TN_UNROLL for (int q = 0; q < 4; q++) _mm256_storeu_ps(to[q] + i, x[q]);
    }
    return i;
}
#endif

/* a (k,width) from n rows of k: four or eight rows at a time, four numbers of each, go through registers; what is left, one by one. */
TN_INLINE void gather(int width, float *a, const float *const *rows, int n, int64_t k)
{
    int l = 0;
#if defined(__AVX__)
    for (; l + 8 <= n; l += 8)
        for (int64_t i = gather_eight(width, a + l, rows + l, k); i < k; i++)
            for (int q = 0; q < 8; q++) a[i * width + l + q] = rows[l + q][i];
#endif
    for (; l + 4 <= n; l += 4) {
        const float *const from[4] = { rows[l], rows[l + 1], rows[l + 2], rows[l + 3] };
        int64_t i = 0;
        for (; i + 4 <= k; i += 4) {
            quad x[4];
            TN_UNROLL for (int q = 0; q < 4; q++) memcpy(&x[q], from[q] + i, sizeof x[q]);
            transpose4(x);
            TN_UNROLL for (int q = 0; q < 4; q++) memcpy(a + (i + q) * width + l, &x[q], sizeof x[q]);
        }
        for (; i < k; i++)
            for (int q = 0; q < 4; q++) a[i * width + l + q] = from[q][i];
    }
    for (; l < width; l++)
        for (int64_t i = 0; i < k; i++) a[i * width + l] = l < n ? rows[l][i] : 0;
}

/* A panel of a matrix whose columns lie one after the other. */
TN_INLINE void copy_runs(int rows, const tn_relax_matrix *m, float *restrict dst, const float *restrict from)
{
    for (int64_t p = 0; p < m->k; p++)
        for (int r = 0; r < rows; r++) dst[p * rows + r] = from[p * m->col + r * m->row];
}

/* --- panels -------------------------------------------------------------------------------------------------------- */

/* Panels of a matrix of n rows, as even as can be, so that none leaves most registers empty: the first `longer` of them have a
 * row more than the others. */
typedef struct cut {
    int64_t panels, rows, longer;
} cut;

static cut cut_rows(int64_t n)
{
    const int64_t panels = (n + PANEL - 1) / PANEL, rows = panels ? n / panels : 0;
    return (cut){ panels, rows, n - rows * panels };
}

TN_LEVELED(int64_t, tn__relax_panels, (const tn_relax_matrix *m), (m)) { return cut_rows(m->n).panels; }

TN_LEVELED(void, tn__relax_panel, (const tn_relax_matrix *m, int64_t i), (m, i))
{
    const cut c = cut_rows(m->n);
    const int64_t first = i * c.rows + (i < c.longer ? i : c.longer), rows = c.rows + (i < c.longer);
    const float *from = m->w + first * m->row, *row[PANEL > 8 ? PANEL : 8]; /* gather looks at eight at a time */
    float *dst = (float *)m->packed + first * m->k;
    for (int64_t r = 0; r < rows; r++) row[r] = from + r * m->row;
    if (m->col == 1) gather((int)rows, dst, row, (int)rows, m->k);
    else if (rows == PANEL) copy_runs(PANEL, m, dst, from);
    else copy_runs((int)rows, m, dst, from);
}

TN_LEVELED(void, tn__relax_product, (const tn_relax_matrix *m, int width, const float *in, float *out),
           (m, width, in, out))
{
    const cut c = cut_rows(m->n);
    kernel *const *run = kernels[width / TN_VEC];
    const float *w = m->packed;
    for (int64_t i = 0; i < c.panels; i++) {
        const int64_t rows = c.rows + (i < c.longer);
        run[rows](m->k, w, in, out);
        w += rows * m->k;
        out += rows * width;
    }
}

TN_LEVELED(void, tn_relax_gather, (float *a, int width, const float *const *rows, int n, int64_t k),
           (a, width, rows, n, k))
{
    gather(width, a, rows, n, k);
}

TN_LEVELED(void, tn_relax_scatter, (const float *a, int width, float *const *rows, int n, int64_t k),
           (a, width, rows, n, k))
{
    int l = 0;
    for (; l + 4 <= n; l += 4) {
        float *const to[4] = { rows[l], rows[l + 1], rows[l + 2], rows[l + 3] };
        int64_t i = 0;
#if defined(__AVX__)
        i = scatter_eights(width, a + l, to, k);
#endif
        for (; i + 4 <= k; i += 4) {
            quad x[4];
            TN_UNROLL for (int q = 0; q < 4; q++) memcpy(&x[q], a + (i + q) * width + l, sizeof x[q]);
            transpose4(x);
            TN_UNROLL for (int q = 0; q < 4; q++) memcpy(to[q] + i, &x[q], sizeof x[q]);
        }
        for (; i < k; i++)
            for (int q = 0; q < 4; q++) to[q][i] = a[i * width + l + q];
    }
    for (; l < n; l++)
        for (int64_t i = 0; i < k; i++) rows[l][i] = a[i * width + l];
}
