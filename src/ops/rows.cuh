/* For CUDA kernels over rows: tensors as rows of the last axis, and teams of threads that share a row.
 *
 * A thread works on 8 neighbours at a time, whether they are loaded as a vector (FAST) or one by one, so that a strided
 * tensor gives the bits of a contiguous one. For that, sums of products are written with fmaf, and products that are
 * summed with __fmul_rn: the compiler must have no choice that could fall differently in the two. A block holds several
 * teams of whole warps; each has a barrier of its own, so that teams never wait for each other. */
#ifndef TN_OPS_ROWS_CUH
#define TN_OPS_ROWS_CUH

#include "backend/cuda/device.cuh"

/* 8 bf16 as they lie in memory. */
__device__ __forceinline__ tn_f8 tn_open8(const uint4 &q)
{
    const uint32_t w[4] = { q.x, q.y, q.z, q.w };
    tn_f8 r;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        r.v[2 * k] = __uint_as_float(w[k] << 16);
        r.v[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
    }
    return r;
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

struct tn_rowset {
    tn_arg a;
    bool even; /* rows lie at equal distances, as nearly always: finding one needs no divisions */
    bool fast; /* and 8 neighbours are one or two 16-byte accesses; also a set without data */
    int64_t distance, step;
};

/* A tensor without data, or NULL: a set without data. */
static inline tn_rowset tn_rows_of(const tn_arg *a)
{
    tn_rowset s = {};
    s.even = s.fast = true;
    if (!a || !a->data) return s;
    const int rank = a->dims.rank;
    s.a = *a;
    for (int i = rank - 3; i >= 0; i--) s.even &= a->stride[i] == a->stride[i + 1] * a->dims.dim[i + 1];
    s.fast = s.even && tn_vector_rows(a);
    s.distance = rank > 1 ? a->stride[rank - 2] : 0;
    s.step = rank ? a->stride[rank - 1] : 1;
    return s;
}

template <bool FAST>
__device__ __forceinline__ int64_t tn_row_at(const tn_rowset &s, int64_t r)
{
    return FAST || s.even ? r * s.distance : tn_d_row_offset(s.a, r);
}

/* Elements i .. i+7 of the row at `row`; 0 from element n on. */
template <bool FAST>
__device__ __forceinline__ tn_f8 tn_row_load8(const tn_rowset &s, int64_t row, int i, int n)
{
    tn_f8 x = {};
    if constexpr (FAST) {
        if (i < n) x = tn_load8(s.a.data, s.a.dtype, row + i);
    } else {
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (i + k < n) x.v[k] = tn_load(s.a.data, s.a.dtype, row + (i + k) * s.step);
    }
    return x;
}

template <bool FAST>
__device__ __forceinline__ void tn_row_put8(const tn_rowset &s, int64_t row, int i, int n, const tn_f8 &x, bool add)
{
    if (i >= n) return;
    if constexpr (FAST) {
        tn_put8(s.a.data, s.a.dtype, row + i, x, add);
    } else {
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (i + k < n) tn_put(s.a.data, s.a.dtype, row + (i + k) * s.step, x.v[k], add);
    }
}

/* --- teams ---------------------------------------------------------------------------------------------------------- */

enum { TN_TEAM_BLOCK = 512 }; /* threads of a block of teams, at most; a team has 32 .. TN_TEAM_BLOCK */

/* Two numbers a warp, in two sets that take turns: one barrier a sum is then enough. */
struct tn_team_memory {
    float2 of_warp[2][TN_TEAM_BLOCK / 32];
};

struct tn_team {
    int threads; /* of a team, a multiple of 32 */
    int index;   /* of this one in the block */
    int thread;  /* in the team */
    int turn;
    tn_team_memory *memory;
};

__device__ __forceinline__ tn_team tn_team_of(int threads, tn_team_memory *memory)
{
    const int index = threadIdx.x / threads;
    return { threads, index, (int)threadIdx.x - index * threads, 0, memory };
}

__device__ __forceinline__ void tn_team_wait(const tn_team &t)
{
    asm volatile("bar.sync %0, %1;" ::"r"(t.index + 1), "r"(t.threads) : "memory");
}

/* Sums of x and y over the team, in every thread: within warps, then warps in order. All threads of the team call it. */
__device__ __forceinline__ float2 tn_team_sum2(tn_team &t, float x, float y)
{
    float2 s = make_float2(tn_warp_sum(x), tn_warp_sum(y));
    if (t.threads == 32) return s;
    float2 *part = t.memory->of_warp[t.turn] + (threadIdx.x - t.thread) / 32;
    t.turn ^= 1;
    if ((t.thread & 31) == 0) part[t.thread / 32] = s;
    tn_team_wait(t);
    s = part[0];
    for (int w = 1; w < t.threads / 32; w++) s.x += part[w].x, s.y += part[w].y;
    return s;
}

/* x of all warps, joined in their order. */
template <typename Join>
__device__ __forceinline__ float tn_team_join(tn_team &t, float x, Join join)
{
    if (t.threads == 32) return x;
    float2 *part = t.memory->of_warp[t.turn] + (threadIdx.x - t.thread) / 32;
    t.turn ^= 1;
    if ((t.thread & 31) == 0) part[t.thread / 32].x = x;
    tn_team_wait(t);
    x = part[0].x;
    for (int w = 1; w < t.threads / 32; w++) x = join(x, part[w].x);
    return x;
}

__device__ __forceinline__ float tn_team_sum(tn_team &t, float x)
{
    return tn_team_join(t, tn_warp_sum(x), [](float a, float b) { return a + b; });
}

/* NaNs are passed over. */
__device__ __forceinline__ float tn_team_max(tn_team &t, float x)
{
    return tn_team_join(t, tn_warp_max(x), [](float a, float b) { return fmaxf(a, b); });
}

#endif
