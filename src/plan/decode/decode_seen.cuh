/* Attention of one query in a token's kernel. Keys are cut into as many parts as there are blocks for each head. A key is read by as many lanes as
 * have 8 of its numbers each, a warp reads several keys at once and several of those before it looks at any: what limits is memory.
 * Each group of lanes keeps its own maximum, sum and values, which are joined at the end: in the warp, in the block, and, after blocks have met,
 * of all parts. The order is fixed. A query that sees nothing gives zeros. */
#ifndef TN_PLAN_DECODE_SEEN_CUH
#define TN_PLAN_DECODE_SEEN_CUH

#include "plan/decode/decode_steps.cuh"

__device__ __forceinline__ int tn_decode_parts(const tn_decode_step &s) { return max(1, (int)gridDim.x / s.n); }

/* e^(x - most) of a maximum x, 0 where nothing was seen. */
__device__ __forceinline__ float tn_decode_share(float x, float most) { return x == -INFINITY ? 0.f : expf(x - most); }

/* 8 numbers as they lie in memory. */
template <int TYPE>
struct tn_decode_eight {
    uint4 raw[TYPE == TN_F32 ? 2 : 1];

    __device__ __forceinline__ void ask(const void *p, int64_t i)
    {
        const uint4 *from = (const uint4 *)((const char *)p + i * (TYPE == TN_F32 ? 4 : 2));
        raw[0] = __ldcg(from);
        if (TYPE == TN_F32) raw[sizeof raw / 16 - 1] = __ldcg(from + 1);
    }
    __device__ __forceinline__ tn_f8 value() const { return tn_load8(raw, (tn_dtype)TYPE, 0); }
};

/* Asks the L2 cache for the keys and values of the attention that comes after products step[i] .. and before any others, each block for its share:
 * else what it reads comes when all weights have come that were asked for before. Long caches would only drive out each other and weights. A hint:
 * nothing depends on it. */
__device__ __forceinline__ void tn_decode_seen_ahead(const tn_decode_step *step, int i, int n)
{
#if __CUDA_ARCH__ >= 900
    enum { MOST = 8 << 20 }; /* bytes of keys and values */
    while (i < n && step[i].op == TN_DECODE_LINEAR) i++;
    while (i < n && step[i].op != TN_DECODE_LINEAR && step[i].op != TN_DECODE_SEEN) i++;
    if (i == n || step[i].op != TN_DECODE_SEEN) return;
    const tn_decode_step &s = step[i];
    const int lane = threadIdx.x & 31, keys = s.in[3] ? max(0, min(tn_decode_integer(s, 3), s.k)) : s.k;
    const int begin = s.b > 0 ? max(0, keys - (int)s.b) : 0, count = keys - begin;
    const int64_t row = (int64_t)s.m * (s.in_type[1] == TN_F32 ? 4 : 2);
    const int pieces = max(1, (int)gridDim.x / s.j), each = (count + pieces - 1) / pieces; /* of a head */
    if (lane > 1 || 2 * row * s.j * count > MOST) return;
    for (int u = blockIdx.x; u < s.j * pieces; u += gridDim.x) {
        const int first = begin + u % pieces * each, rows = min(each, keys - first);
        const char *from = (const char *)s.in[1 + lane] + ((int64_t)(u / pieces) * s.k + first) * row;
        if (rows > 0)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"((int)(rows * row)) : "memory");
    }
#else
    (void)step, (void)i, (void)n;
#endif
}

/* What has been seen: the largest logit, the sum of shares, and the values by their shares. */
struct tn_decode_view {
    float most, sum, y[8];
};

/* Of keys first .. end - 1 of a head whose keys and values begin at `base`; the whole warp calls it. */
template <int TYPE>
__device__ __forceinline__ tn_decode_view tn_decode_look(const tn_decode_step &s, int64_t base, int first, int end,
                                                         const float (&q)[8])
{
    const int lane = threadIdx.x & 31, lanes = s.m / 8, at = lane % lanes * 8, each = 32 / lanes,
              step = TN_DECODE_WARPS * each;
    enum { AHEAD = TYPE == TN_F32 ? 2 : 4 };
    tn_decode_view v = { -INFINITY, 0, { 0 } };
    for (int from = first + (threadIdx.x >> 5) * each; from < end; from += AHEAD * step) {
        tn_decode_eight<TYPE> key[AHEAD], value[AHEAD];
        float x[AHEAD], most = v.most;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int j = from + u * step + lane / lanes;
            const int64_t place = base + (int64_t)(j < end ? j : first) * s.m + at;
            key[u].ask(s.in[1], place);
            value[u].ask(s.in[2], place);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const tn_f8 k = key[u].value();
            x[u] = 0;
#pragma unroll
            for (int e = 0; e < 8; e++) x[u] = fmaf(q[e], k.v[e], x[u]);
            for (int d = lanes / 2; d; d >>= 1) x[u] += __shfl_xor_sync(0xffffffffu, x[u], d);
            if (from + u * step + lane / lanes >= end) x[u] = -INFINITY;
            most = x[u] > most || x[u] != x[u] ? x[u] : most;
        }
        const float old = tn_decode_share(v.most, most);
        v.sum *= old;
#pragma unroll
        for (int e = 0; e < 8; e++) v.y[e] *= old;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const float p = tn_decode_share(x[u], most);
            const tn_f8 w = value[u].value();
            v.sum += p;
#pragma unroll
            for (int e = 0; e < 8; e++) v.y[e] = p ? fmaf(p, w.v[e], v.y[e]) : v.y[e];
        }
        v.most = most;
    }
    return v;
}

/* Groups of lanes of a warp become one. */
__device__ __forceinline__ void tn_decode_join_warp(tn_decode_view &v, int lanes)
{
    for (int d = lanes; d < 32; d <<= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, v.most, d),
                    most = other > v.most || other != other ? other : v.most;
        const float mine = tn_decode_share(v.most, most), theirs = tn_decode_share(other, most);
        v.sum = v.sum * mine + __shfl_xor_sync(0xffffffffu, v.sum, d) * theirs;
#pragma unroll
        for (int e = 0; e < 8; e++) v.y[e] = v.y[e] * mine + __shfl_xor_sync(0xffffffffu, v.y[e], d) * theirs;
        v.most = most;
    }
}

/* Of the warps of a block: the largest logit, the sum, and what a lane's warp counts for. */
struct tn_decode_joined {
    float most, sum, share;

    __device__ __forceinline__ tn_decode_joined(const float *sums, int size)
    {
        const int w = (threadIdx.x & 31) % TN_DECODE_WARPS;
        const float own = sums[w * size];
        most = own;
#pragma unroll
        for (int d = 1; d < TN_DECODE_WARPS; d <<= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, most, d);
            most = other > most || other != other ? other : most;
        }
        share = tn_decode_share(own, most);
        sum = share * sums[w * size + 1];
#pragma unroll
        for (int d = 1; d < TN_DECODE_WARPS; d <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    }
};
static_assert(TN_DECODE_WARPS == 16, "warps that lanes of half a warp can be");

template <int TYPE>
__device__ __forceinline__ void tn_decode_seen(const tn_decode_step &s, const tn_decode_room &r, float *scratch)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, D = s.m, lanes = D / 8, parts = tn_decode_parts(s),
              size = D + 2;
    const int given = s.in[3] ? tn_decode_integer_known(s, 3, r.known->seen) : s.k,
              keys = given < 0 ? 0 : min(given, s.k);
    const int begin = s.b > 0 ? max(0, keys - (int)s.b) : 0, count = keys - begin;
    const tn_decode_in query(s, r, 0);
#pragma unroll 1
    for (int u = blockIdx.x; u < s.n * parts; u += gridDim.x) {
        const int h = u / parts, c = u - h * parts, each = count / parts, more = count - each * parts,
                  first = begin + each * c + min(c, more);
        float q[8];
#pragma unroll
        for (int e = 0; e < 8; e++) q[e] = s.a * query.get(h * D + lane % lanes * 8 + e);
        tn_decode_view v =
            tn_decode_look<TYPE>(s, (int64_t)(h * s.j / s.n) * s.k * D, first, first + each + (c < more), q);
        tn_decode_join_warp(v, lanes);
        float *mine = r.sums + warp * size;
        if (lane == 0) mine[0] = v.most, mine[1] = v.sum;
        if (lane < lanes)
#pragma unroll
            for (int e = 0; e < 8; e++) mine[2 + lane * 8 + e] = v.y[e];
        tn_decode_sync();
        for (int i = threadIdx.x; (i & ~31) < D; i += TN_DECODE_THREADS) { /* whole warps */
            const tn_decode_joined j(r.sums, size);
            float y = 0;
#pragma unroll 4
            for (int w = 0; w < TN_DECODE_WARPS; w++)
                y = fmaf(__shfl_sync(0xffffffffu, j.share, w), r.sums[w * size + 2 + i], y);
            float *to = scratch + (int64_t)u * size;
            if (i == 0) to[0] = j.most, to[1] = j.sum;
            if (i < D) to[2 + i] = y;
        }
        tn_decode_sync();
    }
}

/* Of few parts, whose heads are as wide as warps or wider: all that a thread reads is under way at once, and nobody waits for others. In what
 * each part counts for, a lane is a part of one of the heads that its warp makes. */
enum { TN_DECODE_FEW = 4 };

__device__ __forceinline__ void tn_decode_join_few(const tn_decode_step &s, const tn_decode_room &r,
                                                   const float *scratch)
{
    enum { HEADS = 4 };
    const int lane = threadIdx.x & 31, part = lane % TN_DECODE_FEW, parts = tn_decode_parts(s), size = s.m + 2,
              shift = 31 - __clz(s.m), all = s.n * s.m;
    const tn_decode_out out(s, r, 0);
#pragma unroll 1
    for (int first = threadIdx.x; first < all; first += HEADS * TN_DECODE_THREADS) {
        const int head = (first - lane + lane / TN_DECODE_FEW % HEADS * TN_DECODE_THREADS) >> shift;
        const bool is = part < parts && head < s.n;
        const float *from = scratch + (head * parts + part) * size;
        const float most = is ? __ldcg(from) : -INFINITY, sum = is ? __ldcg(from + 1) : 0.f;
        float y[HEADS][TN_DECODE_FEW];
#pragma unroll
        for (int u = 0; u < HEADS; u++) {
            const int i = first + u * TN_DECODE_THREADS;
            const float *values = scratch + (i >> shift) * parts * size + 2 + (i & (s.m - 1));
#pragma unroll
            for (int c = 0; c < TN_DECODE_FEW; c++) y[u][c] = c < parts && i < all ? __ldcg(values + c * size) : 0.f;
        }
        float top = most;
#pragma unroll
        for (int d = 1; d < TN_DECODE_FEW; d <<= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, top, d);
            top = other > top || other != other ? other : top;
        }
        const float mine = tn_decode_share(most, top);
        float total = mine * sum;
#pragma unroll
        for (int d = 1; d < TN_DECODE_FEW; d <<= 1) total += __shfl_xor_sync(0xffffffffu, total, d);
        const float counts = total == 0.f ? 0.f : mine / total;
#pragma unroll
        for (int u = 0; u < HEADS; u++) {
            const int i = first + u * TN_DECODE_THREADS;
            float v = 0;
#pragma unroll
            for (int c = 0; c < TN_DECODE_FEW; c++)
                v = fmaf(__shfl_sync(0xffffffffu, counts, u * TN_DECODE_FEW + c), y[u][c], v);
            if (i < all) out.put(i, v);
        }
    }
}

/* Every block joins all parts for itself: first what each counts for, then the values. */
__device__ __forceinline__ void tn_decode_seen_all(const tn_decode_step &s, const tn_decode_room &r,
                                                   const float *scratch)
{
    const int parts = tn_decode_parts(s), size = s.m + 2, all = s.n * parts;
    if (parts <= TN_DECODE_FEW && s.m % 32 == 0) {
        tn_decode_join_few(s, r, scratch);
        return;
    }
    const tn_decode_out out(s, r, 0);
    float *most = r.sums, *share = r.sums + all;
    for (int u = threadIdx.x; u < all; u += TN_DECODE_THREADS) {
        most[u] = __ldcg(scratch + (int64_t)u * size);
        share[u] = __ldcg(scratch + (int64_t)u * size + 1);
    }
    tn_decode_sync();
    float mine[2] = { 0, 0 }; /* there are TN_DECODE_HEADS parts at most, or as many as blocks */
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int u = threadIdx.x + k * TN_DECODE_THREADS, first = u / parts * parts;
        if (u >= all) break;
        float top = most[first];
        for (int c = first + 1; c < first + parts; c++) top = most[c] > top || most[c] != most[c] ? most[c] : top;
        mine[k] = tn_decode_share(most[u], top);
        share[u] *= mine[k]; /* a thread's own until the barrier */
    }
    tn_decode_sync();
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int u = threadIdx.x + k * TN_DECODE_THREADS, first = u / parts * parts;
        if (u >= all) break;
        float sum = 0;
        for (int c = first; c < first + parts; c++) sum += share[c];
        most[u] = sum == 0.f ? 0.f : mine[k] / sum; /* what it counts for; nobody reads the largest logits any more */
    }
    tn_decode_sync();
    for (int i = threadIdx.x; i < s.n * s.m; i += TN_DECODE_THREADS) {
        const int first = i / s.m * parts, d = i % s.m;
        float y = 0;
#pragma unroll 16
        for (int c = 0; c < parts; c++)
            y = fmaf(most[first + c], __ldcg(scratch + (int64_t)(first + c) * size + 2 + d), y);
        out.put(i, y);
    }
}

#endif
