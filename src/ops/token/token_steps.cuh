/* The steps of a token's kernel (token_cuda.cu): what a block does of each. Numbers that other blocks may have made are read past the
 * L1 cache, which does not see their writes. */
#ifndef TN_OPS_TOKEN_STEPS_CUH
#define TN_OPS_TOKEN_STEPS_CUH

#include "backend/cuda/device.cuh"
#include "ops/argmax/argmax_best.cuh"
#include "ops/binary/binary_value.cuh"
#include "ops/gate/gate_value.cuh"
#include "ops/norm/norm.h"
#include "ops/token/token.h"
#include "ops/unary/unary_value.cuh"

#include <climits>

enum { TN_TOKEN_THREADS = 512, TN_TOKEN_WARPS = TN_TOKEN_THREADS / 32, TN_TOKEN_EACH = TN_TOKEN_LONGEST / TN_TOKEN_THREADS };
enum { TN_TOKEN_SUMS = TN_TOKEN_WARPS * (256 + 2) /* of attention, 256 wide */ };

/* What a block knows while it works on a step. */
struct tn_token_room {
    float *slots;
    float *sums;  /* (TN_TOKEN_SUMS) */
    char *stage;  /* of this step's weights */
    int stage_bytes;
    bool writes;  /* this block writes to memory what all make */
};

__device__ __forceinline__ float tn_token_far(const void *p, int type, int64_t i)
{
    if (type == TN_F32) return __ldcg((const float *)p + i);
    const unsigned short u = __ldcg((const unsigned short *)p + i);
    return type == TN_BF16 ? __uint_as_float((unsigned)u << 16) : __half2float(__ushort_as_half(u));
}

__device__ __forceinline__ float tn_token_get(const tn_token_step &s, const tn_token_room &r, int k, int i)
{
    const int slot = s.in_slot[k];
    return slot >= 0 ? r.slots[slot + i] : tn_token_far(s.in[k], s.in_type[k], i);
}

__device__ __forceinline__ float tn_token_or(const tn_token_step &s, const tn_token_room &r, int k, int i, float otherwise)
{
    return s.in[k] ? tn_token_get(s, r, k, i) : otherwise;
}

__device__ __forceinline__ int tn_token_integer(const tn_token_step &s, int k) { return __ldcg((const int *)s.in[k]); }

__device__ __forceinline__ float tn_token_rounded(int type, float x)
{
    return type == TN_F32 ? x : type == TN_BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : __half2float(__float2half_rn(x));
}

__device__ __forceinline__ void tn_token_put(const tn_token_step &s, const tn_token_room &r, int k, int i, float x)
{
    if (!s.out[k]) return;
    if (s.out_slot[k] >= 0) r.slots[s.out_slot[k] + i] = tn_token_rounded(s.out_type[k], x);
    if (r.writes) tn_store(s.out[k], (tn_dtype)s.out_type[k], i, x);
}

/* Over the block; `sums` is free again after the next barrier. */
__device__ __forceinline__ float tn_token_sum(float x, float *sums)
{
    const int lane = threadIdx.x & 31;
    x = tn_warp_sum(x);
    if (lane == 0) sums[threadIdx.x >> 5] = x;
    __syncthreads();
    x = sums[lane & (TN_TOKEN_WARPS - 1)];
#pragma unroll
    for (int d = TN_TOKEN_WARPS / 2; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ void tn_token_embed(const tn_token_step &s, const tn_token_room &r)
{
    const int token = tn_token_integer(s, 0);
    const bool in = token >= 0 && token < s.k;
    for (int i = threadIdx.x; i < s.n; i += TN_TOKEN_THREADS)
        tn_token_put(s, r, 0, i, in ? tn_token_far(s.in[1], s.in_type[1], (int64_t)token * s.n + i) : NAN);
}

__device__ __forceinline__ void tn_token_norm(const tn_token_step &s, const tn_token_room &r)
{
    float v[TN_TOKEN_EACH], sum = 0, mean = 0, squares = 0;
#pragma unroll
    for (int u = 0; u < TN_TOKEN_EACH; u++) {
        const int i = threadIdx.x + u * TN_TOKEN_THREADS;
        if (i >= s.n) break;
        v[u] = tn_token_get(s, r, 0, i) + tn_token_or(s, r, 1, i, 0.f);
        tn_token_put(s, r, 1, i, v[u]);
        sum += v[u];
    }
    if (s.kind == TN_NORM_LAYER) mean = tn_token_sum(sum, r.sums + 32) / (float)s.n;
#pragma unroll
    for (int u = 0; u < TN_TOKEN_EACH; u++) {
        const int i = threadIdx.x + u * TN_TOKEN_THREADS;
        if (i >= s.n) break;
        v[u] -= mean;
        squares += v[u] * v[u];
    }
    const float scale = rsqrtf(tn_token_sum(squares, r.sums) / (float)s.n + s.a);
#pragma unroll
    for (int u = 0; u < TN_TOKEN_EACH; u++) {
        const int i = threadIdx.x + u * TN_TOKEN_THREADS;
        if (i >= s.n) break;
        tn_token_put(s, r, 0, i, v[u] * scale * tn_token_or(s, r, 2, i, 1.f) + tn_token_or(s, r, 3, i, 0.f));
    }
}

__device__ __forceinline__ void tn_token_conv(const tn_token_step &s, const tn_token_room &r)
{
    const bool fresh = !s.in[3] || (s.in[4] && tn_token_integer(s, 4) != 0);
    for (int i = threadIdx.x; i < s.n; i += TN_TOKEN_THREADS) {
        const float x = tn_token_get(s, r, 0, i);
        float y = tn_token_or(s, r, 2, i, 0.f);
        for (int j = 0; j < s.k - 1; j++) {
            const float old = fresh ? 0.f : tn_token_get(s, r, 3, j * s.n + i);
            if (!fresh) y += tn_token_get(s, r, 1, j * s.n + i) * old;
            if (j) tn_token_put(s, r, 1, (j - 1) * s.n + i, old);
        }
        y += tn_token_get(s, r, 1, (s.k - 1) * s.n + i) * x;
        if (s.k > 1) tn_token_put(s, r, 1, (s.k - 2) * s.n + i, x);
        tn_token_put(s, r, 0, i, s.kind ? tn_d_silu(y) : y);
    }
}

__device__ __forceinline__ void tn_token_scan(const tn_token_step &s, const tn_token_room &r)
{
    const bool fresh = !s.in[4] || (s.in[5] && tn_token_integer(s, 5) != 0);
    for (int i = threadIdx.x; i < s.n; i += TN_TOKEN_THREADS) {
        const float l = -8.f * tn_token_get(s, r, 1, i) * tn_d_softplus(tn_token_get(s, r, 2, i));
        const float gain = sqrtf(tn_d_at_least(-expm1f(2.f * l), 1e-6f)) * tn_token_get(s, r, 1, s.n + i);
        float re = gain * tn_token_get(s, r, 0, i), im = gain * tn_token_get(s, r, 0, s.n + i), sn, cs;
        if (!fresh) {
            const float rho = expf(l), a = tn_token_get(s, r, 4, i), b = tn_token_get(s, r, 4, s.n + i);
            sincosf(tn_token_get(s, r, 3, i), &sn, &cs);
            re += rho * (cs * a - sn * b);
            im += rho * (cs * b + sn * a);
        }
        tn_token_put(s, r, 0, i, re);
        tn_token_put(s, r, 0, s.n + i, im);
        tn_token_put(s, r, 1, i, re);
        tn_token_put(s, r, 1, s.n + i, im);
    }
}

/* Squares are summed 32 by 32, then the sums of a group. */
__device__ __forceinline__ void tn_token_readout(const tn_token_step &s, const tn_token_room &r)
{
    float v[TN_TOKEN_EACH];
#pragma unroll
    for (int u = 0; u < TN_TOKEN_EACH; u++) {
        const int i = threadIdx.x + u * TN_TOKEN_THREADS, first = i & ~31;
        if (first >= s.n) break;
        v[u] = i < s.n ? s.a * tn_token_get(s, r, 0, i) : 0.f;
        if (i < s.n && s.in[2]) v[u] += tn_token_get(s, r, 3, i) * tn_token_get(s, r, 2, i);
        const float squares = tn_warp_sum(v[u] * v[u]);
        if ((i & 31) == 0) r.sums[i >> 5] = squares;
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < TN_TOKEN_EACH; u++) {
        const int i = threadIdx.x + u * TN_TOKEN_THREADS;
        if (i >= s.n) break;
        float y = v[u];
        if (s.k) {
            float sum = 0;
            for (int j = 0; j < s.k / 32; j++) sum += r.sums[i / s.k * (s.k / 32) + j];
            y *= rsqrtf(sum / (float)s.k + s.b) * tn_token_or(s, r, 4, i, 1.f);
        }
        tn_token_put(s, r, 0, i, y * tn_d_gate(s.kind, tn_token_get(s, r, 1, i)));
    }
}

__device__ __forceinline__ void tn_token_elementwise(const tn_token_step &s, const tn_token_room &r)
{
    for (int i = threadIdx.x; i < s.n; i += TN_TOKEN_THREADS) {
        const float x = tn_token_get(s, r, 0, i);
        float y;
        if (s.op == TN_TOKEN_GATE) y = x * tn_d_gate(s.kind, tn_token_get(s, r, 1, i));
        else if (s.op == TN_TOKEN_UNARY) y = tn_d_unary(s.kind, x, s.a, s.b);
        else y = tn_d_binary(s.kind, x, tn_token_get(s, r, 1, i / s.m % s.k));
        tn_token_put(s, r, 0, i, y);
    }
}

/* A block takes 32 columns of a head at a time: warps its rows, lanes its columns. */
__device__ __forceinline__ void tn_token_outer(const tn_token_step &s, const tn_token_room &r)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, N = s.k, P = s.m, parts = (P + 31) / 32;
    const bool fresh = !s.in[4] || (s.in[5] && tn_token_integer(s, 5) != 0);
    for (int u = blockIdx.x; u < s.n * parts; u += gridDim.x) {
        const int h = u / parts, p = u % parts * 32 + lane;
        float decay = fresh ? 0.f : tn_token_get(s, r, 3, h), write = tn_token_or(s, r, 6, h, 1.f), sum = 0;
        if (s.kind) {
            decay = -tn_d_softplus(decay);
            if (s.in[6]) write = tn_d_sigmoid(write);
        }
        decay = fresh ? 0.f : expf(decay);
        if (p < P) {
            const float v = tn_token_get(s, r, 2, h * P + p) * write;
            for (int n = warp; n < N; n += TN_TOKEN_WARPS) {
                const int64_t at = ((int64_t)h * N + n) * P + p;
                const float kv = tn_token_get(s, r, 1, h * N + n) * v;
                const float now = fresh ? kv : fmaf(decay, tn_token_far(s.in[4], s.in_type[4], at), kv);
                sum = fmaf(tn_token_get(s, r, 0, h * N + n), now, sum);
                if (s.out[1]) tn_store(s.out[1], (tn_dtype)s.out_type[1], at, now);
            }
        }
        r.sums[warp * 32 + lane] = sum;
        __syncthreads();
        if (warp == 0 && p < P && s.out[0]) {
            float o = 0;
            for (int w = 0; w < TN_TOKEN_WARPS; w++) o += r.sums[w * 32 + lane];
            tn_store(s.out[0], (tn_dtype)s.out_type[0], h * P + p, o);
        }
        __syncthreads();
    }
}

__device__ __forceinline__ void tn_token_copy(const tn_token_step &s, const tn_token_room &r)
{
    for (int64_t i = blockIdx.x * TN_TOKEN_THREADS + threadIdx.x; i < s.n; i += gridDim.x * TN_TOKEN_THREADS)
        tn_store(s.out[0], (tn_dtype)s.out_type[0], i, tn_token_get(s, r, 0, (int)i));
}

__device__ __forceinline__ void tn_token_rope(const tn_token_step &s, const tn_token_room &r)
{
    const int pairs = s.k / 2;
    const double position = s.in[1] ? tn_token_integer(s, 1) : 0, rate = -((double)s.a + (double)s.b) / pairs;
    for (int i = threadIdx.x; i < s.n * pairs; i += TN_TOKEN_THREADS) {
        const int h = i / pairs, j = i % pairs;
        const int p = h * s.k + (s.kind ? 2 * j : j), q = s.kind ? p + 1 : p + pairs;
        double sn, cs;
        sincos(position * exp2(rate * j), &sn, &cs);
        const float a = tn_token_get(s, r, 0, p), b = tn_token_get(s, r, 0, q), c = (float)cs, d = (float)sn;
        tn_token_put(s, r, 0, p, a * c - b * d);
        tn_token_put(s, r, 0, q, b * c + a * d);
    }
}

/* As cache_write does, NaN in the nearest row where there is none. */
__device__ __forceinline__ void tn_token_place(const tn_token_step &s, const tn_token_room &r)
{
    const int given = tn_token_integer(s, 1), row = given < 0 ? 0 : given < s.k ? given : s.k - 1;
    if (!r.writes) return;
    for (int i = threadIdx.x; i < s.n; i += TN_TOKEN_THREADS)
        tn_store(s.out[0], (tn_dtype)s.out_type[0], ((int64_t)(i / s.m) * s.k + row) * s.m + i % s.m, row == given ? tn_token_get(s, r, 0, i) : NAN);
}

/* --- the largest ----------------------------------------------------------------------------------------------------------- */

/* Of the block, for its first warp. */
__device__ __forceinline__ tn_d_best tn_token_best_of_all(tn_d_best a, float *sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    a = tn_d_best_of_warp(a);
    if (lane == 0) sums[2 * warp] = a.x, sums[2 * warp + 1] = __int_as_float(a.at);
    __syncthreads();
    const int w = lane & (TN_TOKEN_WARPS - 1);
    const tn_d_best b = { sums[2 * w], __float_as_int(sums[2 * w + 1]) };
    return tn_d_best_of_warp(b);
}

__device__ __forceinline__ void tn_token_best_parts(const tn_token_step &s, const tn_token_room &r, float *scratch)
{
    const int first = (int)((int64_t)s.n * blockIdx.x / gridDim.x), end = (int)((int64_t)s.n * (blockIdx.x + 1) / gridDim.x);
    tn_d_best mine = { -INFINITY, INT_MAX };
    for (int i = first + threadIdx.x; i < end; i += TN_TOKEN_THREADS) {
        const float x = tn_token_get(s, r, 0, i);
        const tn_d_best b = { x, x == x ? i : -1 };
        mine = tn_d_better(mine, b);
    }
    mine = tn_token_best_of_all(mine, r.sums);
    if (threadIdx.x == 0) scratch[2 * blockIdx.x] = mine.x, scratch[2 * blockIdx.x + 1] = __int_as_float(mine.at);
}

__device__ __forceinline__ void tn_token_best_whole(const tn_token_step &s, const tn_token_room &r, const float *scratch)
{
    tn_d_best mine = { -INFINITY, INT_MAX };
    for (int i = threadIdx.x; i < gridDim.x; i += TN_TOKEN_THREADS) {
        const tn_d_best b = { __ldcg(scratch + 2 * i), __float_as_int(__ldcg(scratch + 2 * i + 1)) };
        mine = tn_d_better(mine, b);
    }
    mine = tn_token_best_of_all(mine, r.sums);
    if (threadIdx.x == 0 && r.writes) *(int *)s.out[0] = mine.at;
}

#endif
