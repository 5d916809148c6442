/* rollout on the GPU: a move, its noise, and the corners of the field around a place. */
#ifndef TN_OPS_ROLLOUT_MOVE_CUH
#define TN_OPS_ROLLOUT_MOVE_CUH

#include "ops/act.cuh"
#include "ops/rollout/rollout_cuda.cuh"
#include "ops/rollout/rollout_move.h"

namespace tn_rollout
{

struct move {
    float want[3], length, cut;
    int32_t clamped; /* bits */
};

__device__ __forceinline__ float scalar(const float *x, float none) { return x ? *x : none; }

/* Towards +1? Of a flow in the middle its cell of birth says it. */
__device__ __forceinline__ bool rises(const net &m, float zeta, int32_t origin)
{
    return zeta != 0.f ? zeta > 0.f : tn_rollout_even(origin, m.a.width);
}

/* N(0,1) for each axis. slot: b N + its own. */
__device__ __forceinline__ void noise_of(const net &m, int32_t slot, int t, float *x)
{
    const int32_t b = slot / m.N;
    uint32_t word[4];
    tn_rollout_words(tn_rollout_seed(m.seed), (uint32_t)(m.number ? m.number[b] : b), (uint32_t)(slot - b * m.N),
                     (uint32_t)t, word);
    const float size = sqrtf(-2.f * logf(tn_rollout_share(word[0]))), angle = tn_rollout_angle(word[1]);
    x[0] = size * cosf(angle), x[1] = size * sinf(angle);
    x[2] = m.a.noise_z ? sqrtf(-2.f * logf(tn_rollout_share(word[2]))) * cosf(tn_rollout_angle(word[3])) : 0.f;
}

/* What a flow wants, and how much of it it gets. up: where it drifts. */
__device__ __forceinline__ move decide(const net &m, const float *delta, bool up, int32_t slot, int t)
{
    const float kappa = scalar(m.kappa, 1.f), sigma = m.seed ? scalar(m.sigma, 0.f) : 0.f, limit = m.a.limit;
    move v = {};
    float square = 0, noise[3] = { 0, 0, 0 };
    if (sigma > 0.f) noise_of(m, slot, t, noise);
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const float x = kappa * delta[i];
        if (!(fabsf(x) < limit)) v.clamped |= TN_ROLLOUT_CLAMPED << i;
        v.want[i] = x > limit ? limit : x < -limit ? -limit : x;
        if (i == 2) v.want[i] += (up ? 1.f : -1.f) * scalar(m.drift, 0.f);
        v.want[i] += sigma * noise[i];
        square += v.want[i] * v.want[i];
    }
    v.length = sqrtf(square);
    v.cut = m.a.spawn && m.a.shorten && v.length > m.a.rho ? m.a.rho / v.length : 1.f;
    return v;
}

/* p moves; x and y are folded back, twice, which is enough for moves below 4, and what is further out stops at the wall; the
 * planes hold zeta. Returns the bits. */
__device__ __forceinline__ int32_t walk(const move &v, float *p)
{
    int32_t bits = v.clamped;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        p[i] += v.cut * v.want[i];
#pragma unroll
        for (int turn = 0; turn < 2 && i < 2; turn++)
            if (fabsf(p[i]) > 1.f) p[i] = copysignf(2.f, p[i]) - p[i], bits ^= TN_ROLLOUT_FOLDED << i;
        if (i < 2) p[i] = tn_d_at_most(tn_d_at_least(p[i], -1.f), 1.f);
    }
    if (!(fabsf(p[2]) >= 1.f)) return bits;
    bits |= TN_ROLLOUT_LEFT | (p[2] > 0.f ? TN_ROLLOUT_UPPER : 0);
    p[2] = p[2] > 0.f ? 1.f : -1.f;
    return bits;
}

/* The corners of the field's grid around a place: the first, and how far along each axis the place is. */
struct corners {
    int32_t first;
    float part[3];
};

__device__ __forceinline__ corners corners_of(const net &m, const float *p, bool nearest)
{
    corners c;
    int32_t from[3];
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const float x = (p[i] + 1.f) / 2.f * (float)(m.a.grid[i] - 1);
        from[i] = (int32_t)fminf(fmaxf(nearest ? rintf(x) : floorf(x), 0.f), (float)(m.a.grid[i] - (nearest ? 1 : 2)));
        c.part[i] = nearest ? 0.f : x - (float)from[i];
    }
    c.first = (from[2] * m.a.grid[1] + from[1]) * m.a.grid[0] + from[0];
    return c;
}

__device__ __forceinline__ int32_t corner_offset(const net &m, int k)
{
    return ((k >> 2 & 1) * m.a.grid[1] + (k >> 1 & 1)) * m.a.grid[0] + (k & 1);
}

__device__ __forceinline__ float corner_weight(const corners &c, int k)
{
    return (k & 1 ? c.part[0] : 1.f - c.part[0]) * (k & 2 ? c.part[1] : 1.f - c.part[1]) *
           (k & 4 ? c.part[2] : 1.f - c.part[2]);
}

/* Of the weight, along axis i. */
__device__ __forceinline__ float corner_slope(const net &m, const corners &c, int k, int i)
{
    const int a = (i + 1) % 3, b = (i + 2) % 3;
    return (k >> i & 1 ? .5f : -.5f) * (float)(m.a.grid[i] - 1) * (k >> a & 1 ? c.part[a] : 1.f - c.part[a]) *
           (k >> b & 1 ? c.part[b] : 1.f - c.part[b]);
}

/* Channel f of the field at a place, by trilinear weights. */
__device__ __forceinline__ float read_field(const net &m, const float *field, const corners &c, int f)
{
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += corner_weight(c, k) * field[(int64_t)(c.first + corner_offset(m, k)) * m.F + f];
    return sum;
}

} // namespace tn_rollout

#endif
