/* Shared by the CUDA kernels of norm: what they are told, and the formulas on 8 numbers of a row.
 *
 * Statistics as on the CPU: the scale, and for layernorm the mean as m0 + m1 (norm_cpu.c says why). Sums are f32. How
 * threads share a row is the kernels' business. */
#ifndef TN_OPS_NORM_CUDA_CUH
#define TN_OPS_NORM_CUDA_CUH

#include "ops/rows.cuh"

namespace tn_norm
{

enum { SUMS = 3 };

struct job {
    tn_rowset x, r, w, b, y, s,
        stat; /* s: the sum, to be written (forward) or read (backward: x where there is none) */
    tn_rowset dy, dsum, dx, dr;
    int d, threads; /* of a team */
    float eps;
    bool add_x, add_r, want_w, want_b, want_c;
    float *partial; /* (blocks,SUMS,d): weight, bias, columns of dx */
};

struct statistic {
    float scale, m0, m1;
};

/* --- forward -------------------------------------------------------------------------------------------------------- */

template <bool LAYER>
__device__ __forceinline__ tn_f8 normalised(tn_f8 s, const statistic &t)
{
#pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = __fmul_rn(LAYER ? (s.v[k] - t.m0) - t.m1 : s.v[k], t.scale);
    return s;
}

__device__ __forceinline__ float sum_of(const tn_f8 &s)
{
    return ((s.v[0] + s.v[1]) + (s.v[2] + s.v[3])) + ((s.v[4] + s.v[5]) + (s.v[6] + s.v[7]));
}

template <bool LAYER, bool FAST>
__device__ __forceinline__ void write_statistic(const job &j, int64_t row, const statistic &t)
{
    if (!j.stat.a.data) return;
    float *p = (float *)j.stat.a.data + tn_row_at<FAST>(j.stat, row);
    p[0] = t.scale;
    if (LAYER) p[j.stat.step] = t.m0, p[2 * j.stat.step] = t.m1;
}

template <bool FAST>
__device__ __forceinline__ tn_f8 load_all(const tn_rowset &w, int i, int d, float otherwise)
{
    tn_f8 x;
    if (w.a.data) return tn_row_load8<FAST>(w, 0, i, d);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = otherwise;
    return x;
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

/* One row's gradient: ds = scale dn - c0 - c1 (s - mean) + dsum. */
struct slope {
    float c0, c1;
};

template <bool LAYER, bool FAST>
__device__ __forceinline__ statistic read_statistic(const job &j, int64_t row)
{
    statistic t = { 0, 0, 0 };
    if (!j.stat.a.data) return t;
    const float *p = (const float *)j.stat.a.data + tn_row_at<FAST>(j.stat, row);
    t.scale = p[0];
    if (LAYER) t.m0 = p[j.stat.step], t.m1 = p[2 * j.stat.step];
    return t;
}

/* dy becomes dn = dy w. */
__device__ __forceinline__ void weigh(tn_f8 *dy, const tn_f8 &w)
{
#pragma unroll
    for (int k = 0; k < 8; k++) dy->v[k] = __fmul_rn(dy->v[k], w.v[k]);
}

/* Sums of dn and of dn n; beyond the row's end dn is 0. */
__device__ __forceinline__ void add_slopes(const tn_f8 &n, const tn_f8 &dn, float *first, float *second)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        *first += dn.v[k];
        *second = fmaf(dn.v[k], n.v[k], *second);
    }
}

/* The gradient of s but for dsum; n is normalised: c1 (s - mean) = (scale along) n. */
template <bool LAYER>
__device__ __forceinline__ tn_f8 turned(tn_f8 n, const tn_f8 &dn, const statistic &m, const slope &c)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float moved = LAYER ? fmaf(dn.v[k], m.scale, -c.c0) : __fmul_rn(dn.v[k], m.scale);
        n.v[k] = fmaf(n.v[k], -c.c1, moved);
    }
    return n;
}

} // namespace tn_norm

#endif
