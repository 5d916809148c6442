/* norm on the GPU, short rows that lie well (16-byte vectors, activations of one type T): a warp a row, V vectors of 8
 * numbers a lane, V = ceil(d / 256), so that only the last vector may be beyond the row's end (it is then zeros).
 *
 * All loads of a row are issued before the first is used, and, where registers allow, those of the warp's next row
 * before this one is worked on: that many bytes on their way are what keeps memory busy. Backward, vectors stay packed
 * and are opened twice. Warps meet at barriers only before their first row and after their last.
 *
 * Row r goes to warp r modulo the grid's warps, so that dead rows leave no trace in the bits; the grid depends on
 * shapes and the number of multiprocessors alone. */
#ifndef TN_OPS_NORM_WARP_CUH
#define TN_OPS_NORM_WARP_CUH

#include "ops/norm/norm_cuda.cuh"

namespace tn_norm
{

enum { WARPS = 8, WARP_BLOCK = WARPS * 32 };

/* --- 8 numbers as they lie in memory ------------------------------------------------------------------------------ */

template <class T>
struct packed;

template <>
struct packed<__nv_bfloat16> {
    uint4 q;
};

template <>
struct packed<float> {
    float4 a, b;
};

__device__ __forceinline__ tn_f8 opened(const packed<__nv_bfloat16> &p)
{
    const uint32_t w[4] = { p.q.x, p.q.y, p.q.z, p.q.w };
    tn_f8 r;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        r.v[2 * k] = __uint_as_float(w[k] << 16);
        r.v[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
    }
    return r;
}

__device__ __forceinline__ tn_f8 opened(const packed<float> &p)
{
    return { { p.a.x, p.a.y, p.a.z, p.a.w, p.b.x, p.b.y, p.b.z, p.b.w } };
}

/* The numbers stay, but what the compiler made of them it makes again rather than keep it in registers. */
__device__ __forceinline__ void forget(packed<__nv_bfloat16> &p)
{
    asm volatile("" : "+r"(p.q.x), "+r"(p.q.y), "+r"(p.q.z), "+r"(p.q.w)::"memory");
}

__device__ __forceinline__ void forget(packed<float> &p)
{
    asm volatile("" : "+f"(p.a.x), "+f"(p.a.y), "+f"(p.a.z), "+f"(p.a.w)::"memory");
    asm volatile("" : "+f"(p.b.x), "+f"(p.b.y), "+f"(p.b.z), "+f"(p.b.w)::"memory");
}

/* No weights are read ahead past this point. */
__device__ __forceinline__ void one_by_one() { asm volatile("" ::: "memory"); }

template <class T>
struct dtype_of;
template <>
struct dtype_of<__nv_bfloat16> {
    static const tn_dtype is = TN_BF16;
};
template <>
struct dtype_of<float> {
    static const tn_dtype is = TN_F32;
};

/* --- a lane's part of a row --------------------------------------------------------------------------------------- */

/* Vector v of a lane: numbers 8 (32 v + lane) and on. */
__device__ __forceinline__ int place(int v) { return (v * 32 + (int)(threadIdx.x & 31)) * 8; }

template <int V>
__device__ __forceinline__ bool there(int v, int d)
{
    return v < V - 1 || place(v) < d;
}

template <class T, int V>
__device__ __forceinline__ void fetch(packed<T> (&to)[V], const tn_rowset &s, int64_t row, int d)
{
    const T *p = (const T *)s.a.data + tn_row_at<true>(s, row);
#pragma unroll
    for (int v = 0; v < V; v++) {
        to[v] = {};
        if (there<V>(v, d)) to[v] = *(const packed<T> *)(p + place(v));
    }
}

template <class T>
__device__ __forceinline__ void put(const tn_rowset &s, int64_t row, int v, const tn_f8 &x, bool add)
{
    tn_put8(s.a.data, dtype_of<T>::is, tn_row_at<true>(s, row) + place(v), x, add);
}

/* Numbers for every column, so laid out that a warp reads them without conflicts. */
template <int V>
struct columns {
    float4 at[V][2][32];
};

template <int V>
__device__ __forceinline__ void columns_fill(columns<V> &to, const tn_rowset &from, int d, float otherwise)
{
    for (int i = threadIdx.x; i < V * 32; i += WARP_BLOCK) {
        const tn_f8 x = load_all<true>(from, i * 8, d, otherwise);
        to.at[i / 32][0][i % 32] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
        to.at[i / 32][1][i % 32] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
    }
}

template <int V>
__device__ __forceinline__ tn_f8 columns_get(const columns<V> &c, int v)
{
    const float4 a = c.at[v][0][threadIdx.x & 31], b = c.at[v][1][threadIdx.x & 31];
    return { { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w } };
}

template <int V>
__device__ __forceinline__ void columns_put(columns<V> &c, int v, const tn_f8 &x)
{
    c.at[v][0][threadIdx.x & 31] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    c.at[v][1][threadIdx.x & 31] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

template <int V>
__device__ __forceinline__ void columns_add(columns<V> &c, int v, const tn_f8 &x)
{
    tn_f8 sum = columns_get<V>(c, v);
#pragma unroll
    for (int k = 0; k < 8; k++) sum.v[k] += x.v[k];
    columns_put<V>(c, v, sum);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <bool LAYER, int V>
__device__ __forceinline__ statistic measured(const tn_f8 (&s)[V], int d, float eps)
{
    const float n = (float)d;
    statistic r = { 0, 0, 0 };
    float first = 0, second = 0;
    if (LAYER) {
        float sum = 0;
#pragma unroll
        for (int v = 0; v < V; v++) sum += sum_of(s[v]);
        r.m0 = tn_warp_sum(sum) / n;
    }
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float x = !LAYER ? s[v].v[k] : there<V>(v, d) ? s[v].v[k] - r.m0 : 0.f;
            if (LAYER) first += x;
            second = fmaf(x, x, second);
        }
    second = tn_warp_sum(second);
    if (LAYER) r.m1 = tn_warp_sum(first) / n;
    r.scale = 1 / sqrtf(LAYER ? fmaf(-r.m1, r.m1, second / n) + eps : second / n + eps);
    return r;
}

/* Blocks a multiprocessor has room for: as many as the registers allow that a lane needs. */
template <class T>
__host__ __device__ constexpr int forward_blocks(int V)
{
    return V * (int)sizeof(packed<T>) <= 32 ? 4 : V * (int)sizeof(packed<T>) <= 64 ? 3 : 2;
}

template <bool LAYER, class T, int V>
static __global__ void __launch_bounds__(WARP_BLOCK, forward_blocks<T>(V)) forward_warp(const __grid_constant__ job j)
{
    constexpr bool AHEAD = V * sizeof(packed<T>) <= 48;
    __shared__ columns<V> w, b;
    const int d = j.d;
    const bool summed = j.r.a.data, biased = j.b.a.data;
    const int64_t rows = tn_d_rows(j.x.a), step = (int64_t)gridDim.x * WARPS;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    packed<T> x[V], r[V];
    if (AHEAD && row < rows) {
        fetch<T, V>(x, j.x, row, d);
        if (summed) fetch<T, V>(r, j.r, row, d);
    }
    columns_fill<V>(w, j.w, d, 1);
    columns_fill<V>(b, j.b, d, 0);
    __syncthreads();
    for (; row < rows; row += step) {
        if (!AHEAD) {
            fetch<T, V>(x, j.x, row, d);
            if (summed) fetch<T, V>(r, j.r, row, d);
        }
        tn_f8 s[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            s[v] = opened(x[v]);
            if (!summed) continue;
            const tn_f8 more = opened(r[v]);
#pragma unroll
            for (int k = 0; k < 8; k++) s[v].v[k] += more.v[k];
        }
        if (AHEAD && row + step < rows) {
            fetch<T, V>(x, j.x, row + step, d);
            if (summed) fetch<T, V>(r, j.r, row + step, d);
        }
        if (j.s.a.data) {
#pragma unroll
            for (int v = 0; v < V; v++)
                if (there<V>(v, d)) put<T>(j.s, row, v, s[v], false);
        }
        const statistic m = measured<LAYER, V>(s, d, j.eps);
        if ((threadIdx.x & 31) == 0) write_statistic<LAYER, true>(j, row, m);
#pragma unroll
        for (int v = 0; v < V; v++) {
            one_by_one();
            tn_f8 y = normalised<LAYER>(s[v], m);
            tn_f8 bias = {};
            const tn_f8 weight = columns_get<V>(w, v);
            if (biased) bias = columns_get<V>(b, v);
#pragma unroll
            for (int k = 0; k < 8; k++) y.v[k] = fmaf(y.v[k], weight.v[k], bias.v[k]);
            if (there<V>(v, d)) put<T>(j.y, row, v, y, false);
        }
    }
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Layernorm's sums for 4 vectors leave too few of 128 registers: one block then, with the next row on its way. */
template <bool LAYER, class T>
__host__ __device__ constexpr int backward_blocks(int V)
{
    return V * (int)sizeof(packed<T>) <= 16 ? 3 : LAYER && V == 4 ? 1 : 2;
}

/* What a row's gradient is made of. */
template <class T, int V>
struct at_hand {
    packed<T> s[V], dy[V];
    statistic m;
};

template <bool LAYER, class T, int V>
__device__ __forceinline__ void gather(at_hand<T, V> &h, const job &j, int64_t row)
{
    fetch<T, V>(h.dy, j.dy, row, j.d);
    fetch<T, V>(h.s, j.s, row, j.d);
    h.m = read_statistic<LAYER, true>(j, row);
}

/* Adds the row to dw and db; returns its slopes. */
template <bool LAYER, class T, int V>
__device__ __forceinline__ slope learn(const at_hand<T, V> &h, const columns<V> &w, int d, tn_f8 (&dw)[V],
                                       tn_f8 (&db)[V])
{
    float first = 0, second = 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const tn_f8 n = normalised<LAYER>(opened(h.s[v]), h.m);
        tn_f8 dy = opened(h.dy[v]);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            dw[v].v[k] = fmaf(dy.v[k], n.v[k], dw[v].v[k]);
            if (LAYER) db[v].v[k] += dy.v[k];
        }
        weigh(&dy, columns_get<V>(w, v));
        add_slopes(n, dy, &first, &second);
        one_by_one();
    }
    second = tn_warp_sum(second);
    return { LAYER ? h.m.scale * (tn_warp_sum(first) / (float)d) : 0.f, h.m.scale * (second / (float)d) };
}

/* The warps' sums, in order, into the block's partial sums. All threads of the block; `fold` may have been in use. */
template <int V>
__device__ __forceinline__ void fold_warps(const job &j, const tn_f8 (&mine)[V], int which, columns<V> &fold)
{
    float *to = j.partial + ((int64_t)blockIdx.x * SUMS + which) * j.d;
    for (int turn = 0; turn < WARPS; turn++) {
        __syncthreads();
        if ((int)threadIdx.x / 32 != turn) continue;
#pragma unroll
        for (int v = 0; v < V; v++) {
            tn_f8 sum = mine[v];
            if (turn) {
                const tn_f8 before = columns_get<V>(fold, v);
#pragma unroll
                for (int k = 0; k < 8; k++) sum.v[k] = before.v[k] + sum.v[k];
            }
            if (turn < WARPS - 1) columns_put<V>(fold, v, sum);
            else if (there<V>(v, j.d)) tn_store8(to, TN_F32, place(v), sum);
        }
    }
}

/* s and dy are there. */
template <bool LAYER, class T, int V>
static __global__ void __launch_bounds__(WARP_BLOCK, backward_blocks<LAYER, T>(V))
    backward_warp(const __grid_constant__ job j)
{
    constexpr bool AHEAD = backward_blocks<LAYER, T>(V) == 1 || V * sizeof(packed<T>) <= (LAYER ? 32 : 48);
    __shared__ columns<V> w;              /* at last: sums of a block */
    __shared__ columns<V> of_warp[WARPS]; /* sums of dx: a lane reads and writes its own numbers only */
    columns<V> &dc = of_warp[threadIdx.x / 32];
    const int d = j.d;
    const bool turns = j.dx.a.data || j.dr.a.data, summed = j.dsum.a.data;
    const int64_t rows = tn_d_rows(j.dy.a), step = (int64_t)gridDim.x * WARPS;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    tn_f8 dw[V] = {}, db[V] = {};
    at_hand<T, V> next;
    if (AHEAD && row < rows) gather<LAYER>(next, j, row);
    columns_fill<V>(w, j.w, d, 1);
#pragma unroll
    for (int v = 0; v < V; v++) columns_put<V>(dc, v, {});
    __syncthreads();
    for (; row < rows; row += step) {
        packed<T> more[V] = {};
        if (!AHEAD) gather<LAYER>(next, j, row);
        at_hand<T, V> h = next;
        if (turns && summed) fetch<T, V>(more, j.dsum, row, d);
        if (AHEAD && row + step < rows) gather<LAYER>(next, j, row + step);
        const slope c = learn<LAYER>(h, w, d, dw, db);
        if (!turns) continue;
#pragma unroll
        for (int v = 0; v < V; v++) {
            forget(h.s[v]);
            forget(h.dy[v]);
            tn_f8 dn = opened(h.dy[v]);
            weigh(&dn, columns_get<V>(w, v));
            tn_f8 ds = turned<LAYER>(normalised<LAYER>(opened(h.s[v]), h.m), dn, h.m, c);
            if (summed) {
                const tn_f8 plus = opened(more[v]);
#pragma unroll
                for (int k = 0; k < 8; k++) ds.v[k] += plus.v[k];
            }
            if (!there<V>(v, d)) continue;
            if (j.want_c) columns_add<V>(dc, v, ds);
            if (j.dx.a.data) put<T>(j.dx, row, v, ds, j.add_x);
            if (j.dr.a.data) put<T>(j.dr, row, v, ds, j.add_r);
        }
    }
    if (j.want_w) fold_warps<V>(j, dw, 0, w);
    if (LAYER && j.want_b) fold_warps<V>(j, db, 1, w);
    if (!j.want_c) return;
#pragma unroll
    for (int v = 0; v < V; v++) dw[v] = columns_get<V>(dc, v);
    fold_warps<V>(j, dw, 2, w);
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* Numbers of a row that a warp can hold, by type. */
enum { FORWARD_BF16 = 2048, FORWARD_F32 = 1024, BACKWARD_BF16 = 1024, BACKWARD_F32 = 512 };

typedef void kernel(const job j);

struct warp_kernel {
    kernel *run; /* NULL: rows are not for warps */
    int blocks;  /* a multiprocessor */
};

static bool of_type(const tn_rowset &s, tn_dtype t) { return !s.a.data || s.a.dtype == t; }

static bool all_of_type(const job &j, tn_dtype t)
{
    return of_type(j.x, t) && of_type(j.r, t) && of_type(j.y, t) && of_type(j.s, t) && of_type(j.dy, t) &&
           of_type(j.dsum, t) && of_type(j.dx, t) && of_type(j.dr, t);
}

/* The kernel for rows of d numbers, d at most 256 V. */
template <class T, int V>
static warp_kernel forward_for(bool layer, int d)
{
    if constexpr (V > 1)
        if (d <= 256 * (V - 1)) return forward_for<T, V - 1>(layer, d);
    return { layer ? forward_warp<true, T, V> : forward_warp<false, T, V>, forward_blocks<T>(V) };
}

template <class T, int V>
static warp_kernel backward_for(bool layer, int d)
{
    if constexpr (V > 1)
        if (d <= 256 * (V - 1)) return backward_for<T, V - 1>(layer, d);
    return { layer ? backward_warp<true, T, V> : backward_warp<false, T, V>,
             layer ? backward_blocks<true, T>(V) : backward_blocks<false, T>(V) };
}

/* For rows that are all fast. */
static warp_kernel forward_warp_of(const job &j, bool layer)
{
    if (j.d <= FORWARD_BF16 && all_of_type(j, TN_BF16))
        return forward_for<__nv_bfloat16, FORWARD_BF16 / 256>(layer, j.d);
    if (j.d <= FORWARD_F32 && all_of_type(j, TN_F32)) return forward_for<float, FORWARD_F32 / 256>(layer, j.d);
    return {};
}

static warp_kernel backward_warp_of(const job &j, bool layer)
{
    if (j.d <= BACKWARD_BF16 && all_of_type(j, TN_BF16))
        return backward_for<__nv_bfloat16, BACKWARD_BF16 / 256>(layer, j.d);
    if (j.d <= BACKWARD_F32 && all_of_type(j, TN_F32)) return backward_for<float, BACKWARD_F32 / 256>(layer, j.d);
    return {};
}

} // namespace tn_norm

#endif
