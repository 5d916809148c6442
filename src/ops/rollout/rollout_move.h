/* A flow's step in the lattice, as CPU and CUDA kernels compute it: words and uniform numbers of its noise, its fold, the side that
 * it drifts to. Nothing here is a decision that another file makes again. */
#ifndef TN_OPS_ROLLOUT_MOVE_H
#define TN_OPS_ROLLOUT_MOVE_H

#include <stdint.h>

#ifdef __CUDACC__
#define TN_ROLLOUT_FN __host__ __device__ static __forceinline__
#else
#define TN_ROLLOUT_FN static inline __attribute__((always_inline))
#endif

/* Four words for (seed with optimizer step, sample's number, slot, lattice step): as tn_rng_block has them. */
TN_ROLLOUT_FN void tn_rollout_words(uint64_t seed, uint32_t number, uint32_t slot, uint32_t step, uint32_t out[4])
{
    uint32_t a = slot, b = step, c = number, d = 0, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * a, p1 = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(p1 >> 32) ^ b ^ k0;
        c = (uint32_t)(p0 >> 32) ^ d ^ k1;
        b = (uint32_t)p1;
        d = (uint32_t)p0;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}

/* (0,1], and an angle in [0, 2 pi): normals are sqrt(-2 log(share)) times cos or sin of the angle. Words 0 and 1 make the x and y
 * axis's (cos, sin), words 2 and 3 the third's (cos). */
TN_ROLLOUT_FN float tn_rollout_share(uint32_t word) { return (float)((word >> 8) + 1) * 0x1p-24f; }

TN_ROLLOUT_FN float tn_rollout_angle(uint32_t word) { return (float)(word >> 8) * (6.28318531f * 0x1p-24f); }

/* The seed that words are keyed with. */
TN_ROLLOUT_FN uint64_t tn_rollout_seed(const int64_t seed[2])
{
    return (uint64_t)seed[0] + (uint64_t)seed[1] * 0x9E3779B97F4A7C15u;
}

/* A flow in the middle drifts as its cell of birth says: up where x + y is even. */
TN_ROLLOUT_FN int32_t tn_rollout_even(int64_t cell, int64_t width) { return (cell % width + cell / width) % 2 == 0; }

#endif
