/* dropout on the GPU: forward and backward are the same walk (elem.cuh), from x to y or from dy to dx. Draws the
 * numbers of base/rng.c: the mask is the CPU's, bit for bit. Seed and step are read on the device, so that a recorded
 * step can be replayed with others. Two Philox blocks to 8 neighbours. */
#include "ops/dropout/dropout.h"
#include "ops/elem.cuh"

#include <cmath>

/* Philox 4x32-10, block `index` of a stream (tn_rng_block). */
__device__ __forceinline__ void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t (&c)[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    c[0] = (uint32_t)index, c[1] = (uint32_t)(index >> 32), c[2] = (uint32_t)stream, c[3] = (uint32_t)(stream >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint32_t high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
        const uint32_t high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
        c[0] = high1 ^ c[1] ^ k0;
        c[2] = high0 ^ c[3] ^ k1;
        c[1] = low1;
        c[3] = low0;
    }
}

struct keep_map {
    const int64_t *seed; /* (2): seed, step */
    uint64_t stream;
    uint32_t threshold; /* kept: 24 random bits at least this */
    float scale;

    __device__ __forceinline__ float keep(uint32_t bits, float x) const
    {
        return bits >> 8 >= threshold ? x * scale : 0.f;
    }

    /* index is a multiple of N. */
    template <int N>
    __device__ __forceinline__ void operator()(int64_t index, const float (&x)[1][N], float (&y)[1][N]) const
    {
        const uint64_t key = (uint64_t)__ldg(seed) + (uint64_t)__ldg(seed + 1) * 0x9E3779B97F4A7C15u; /* read once */
        uint32_t bits[4];
        if constexpr (N == 1) {
            philox(key, stream, (uint64_t)index / 4, bits);
            const int word = (int)(index & 3);
            y[0][0] = keep(word == 0 ? bits[0] : word == 1 ? bits[1] : word == 2 ? bits[2] : bits[3], x[0][0]);
        } else {
#pragma unroll
            for (int e = 0; e < N; e++) {
                if (e % 4 == 0) philox(key, stream, (uint64_t)(index + e) / 4, bits);
                y[0][e] = keep(bits[e % 4], x[0][e]);
            }
        }
    }
};

static tn_status run(const tn_call *c, const tn_arg *from, const tn_arg *to, unsigned add)
{
    const tn_dropout_attr *a = (const tn_dropout_attr *)c->attr;
    const tn_arg *args[] = { from, to };
    const uint32_t threshold = (uint32_t)ceil((double)a->p * 16777216.0);
    const keep_map f = { (const int64_t *)c->in[1].data, a->stream, threshold, 1 / (1 - a->p) };
    return tn_d_map<1, 1>(c, tn_d_space_make(from->dims, from->live, 2, args), add, f);
}

extern "C" tn_status tn_dropout_forward_cuda(const tn_call *c) { return run(c, &c->in[0], &c->out[0], 0); }

extern "C" tn_status tn_dropout_backward_cuda(const tn_call *c)
{
    return run(c, &c->dout[0], &c->din[0], c->accumulate & 1);
}
