/* Segments on the GPU: one sweep over the parts of flat f32 arrays that an optimizer treats alike (see segments.h).
 *
 * The list of segments lies in host memory and never changes, so it travels in the kernel's parameters, as many of them
 * as fit; a block takes one tile of one segment. What lies between segments is never touched. Numbers that live in
 * device memory (lr, ok, ...) are prepared by a kernel of one thread before: no block has to compute powers again. */
#ifndef TN_OPS_SEGMENTS_CUH
#define TN_OPS_SEGMENTS_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "ops/segments.h"
}

enum { TN_SWEEP_THREADS = 256, TN_SWEEP_TILE = TN_SWEEP_THREADS * 4 * 4, TN_SWEEP_SEGMENTS = 128 };

struct tn_sweep {
    int n;
    bool aligned; /* every array begins at 16 bytes */
    struct {
        int64_t offset, count;
        float lr;
        int32_t decay;
    } at[TN_SWEEP_SEGMENTS];
    int32_t first_tile[TN_SWEEP_SEGMENTS + 1]; /* of each segment; then the number of tiles */
};

/* Fills `w` with segments from s.at[i] on; returns the next one. */
static inline int64_t tn_sweep_fill(tn_sweep *w, tn_segments s, int64_t i)
{
    int64_t tiles = 0;
    for (w->n = 0; i < s.n && w->n < TN_SWEEP_SEGMENTS; i++) {
        const int64_t more = (s.at[i].count + TN_SWEEP_TILE - 1) / TN_SWEEP_TILE;
        if (!more) continue;
        if (w->n && tiles + more > INT32_MAX) break;
        w->at[w->n].offset = s.at[i].offset, w->at[w->n].count = s.at[i].count;
        w->at[w->n].lr = s.at[i].lr, w->at[w->n].decay = s.at[i].decay;
        w->first_tile[w->n++] = (int32_t)tiles;
        tiles += more;
    }
    w->first_tile[w->n] = (int32_t)tiles;
    return i;
}

/* The last segment whose first tile is not behind this one. */
__device__ __forceinline__ int tn_sweep_find(const tn_sweep &w, int tile)
{
    int lo = 0, hi = w.n - 1;
    while (lo < hi) {
        const int mid = (lo + hi + 1) / 2;
        if (w.first_tile[mid] <= tile) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

/* Rule: begin(lr factor, decay) once a thread; then four(i) for elements i .. i+3, all four or, at a segment's end or where
 * it does not begin at 16 bytes, one(i) each. */
template <class Rule>
__global__ void __launch_bounds__(TN_SWEEP_THREADS) tn_sweep_run(const __grid_constant__ tn_sweep w, Rule rule)
{
    const int k = tn_sweep_find(w, blockIdx.x);
    const int64_t first = (int64_t)((int)blockIdx.x - w.first_tile[k]) * TN_SWEEP_TILE, count = w.at[k].count;
    const int64_t base = w.at[k].offset, end = first + TN_SWEEP_TILE < count ? first + TN_SWEEP_TILE : count;
    const bool aligned = w.aligned && base % 4 == 0;
    rule.begin(w.at[k].lr, w.at[k].decay != 0);
#pragma unroll 2
    for (int64_t i = first + threadIdx.x * 4; i < end; i += TN_SWEEP_THREADS * 4) {
        if (aligned && i + 4 <= end) rule.four(base + i);
        else
            for (int64_t m = i; m < end && m < i + 4; m++) rule.one(base + m);
    }
}

template <class Rule>
static tn_status tn_sweep_all(const tn_call *c, tn_segments s, const Rule &rule)
{
    tn_sweep w;
    w.aligned = true;
    for (int i = 0; i < c->n_out; i++) w.aligned &= (uintptr_t)c->out[i].data % 16 == 0;
    for (int64_t i = 0; i < s.n;) {
        i = tn_sweep_fill(&w, s, i);
        if (!w.n) continue;
        tn_sweep_run<<<(unsigned)w.first_tile[w.n], TN_SWEEP_THREADS, 0, tn_cuda_stream(c)>>>(w, rule);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}

#endif
