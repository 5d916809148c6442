/* What the kernels of collect share: a landing's score, and the cells that it reaches. */
#ifndef TN_OPS_COLLECT_PLACE_H
#define TN_OPS_COLLECT_PLACE_H

#include "ops/collect/collect.h"

#include <math.h>

#ifndef __CUDACC__
/* tn_op.plain (collect_plain.c). */
tn_status tn_collect_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);
#endif

#ifdef __CUDACC__
#define TN_COLLECT_RULE static __host__ __device__ inline
#else
#define TN_COLLECT_RULE static inline
#endif

enum { TN_COLLECT_REACH = 4 }; /* cells, at most */

/* Cell `first` and, in splat, its neighbours to the right, below and both; k and its slopes in that order. */
typedef struct tn_collect_place {
    int32_t first;
    float k[TN_COLLECT_REACH], k_u[TN_COLLECT_REACH], k_v[TN_COLLECT_REACH];
} tn_collect_place;

TN_COLLECT_RULE int tn_collect_reach(const tn_collect_attr *a) { return a->nearest ? 1 : TN_COLLECT_REACH; }

TN_COLLECT_RULE int32_t tn_collect_offset(const tn_collect_attr *a, int n) { return (n & 1) + (n >> 1) * a->width; }

/* Cells of a sample. */
TN_COLLECT_RULE int64_t tn_collect_cells(const tn_collect_attr *a)
{
    return (int64_t)a->width * a->height * (a->beside ? 2 : 1);
}

/* x in [0, most] as a whole number; NaN is 0. */
TN_COLLECT_RULE int32_t tn_collect_clamp(float x, int32_t most) { return (int32_t)fminf(fmaxf(x, 0.f), (float)most); }

TN_COLLECT_RULE tn_collect_place tn_collect_find(const tn_collect_attr *a, float u, float v, int32_t plane)
{
    tn_collect_place p = { 0 };
    const float x = (u + 1) / 2 * (float)(a->width - 1), y = (v + 1) / 2 * (float)(a->height - 1);
    const int32_t base = a->beside && plane > 0 ? a->width * a->height : 0;
    if (a->nearest) {
        p.first =
            base + tn_collect_clamp(rintf(y), a->height - 1) * a->width + tn_collect_clamp(rintf(x), a->width - 1);
        p.k[0] = isnan(u + v) ? NAN : 1;
        return p;
    }
    const int32_t x0 = tn_collect_clamp(floorf(x), a->width - 2), y0 = tn_collect_clamp(floorf(y), a->height - 2);
    const float wx[2] = { 1 - (x - (float)x0), x - (float)x0 }, wy[2] = { 1 - (y - (float)y0), y - (float)y0 };
    const float sx = (float)(a->width - 1) / 2, sy = (float)(a->height - 1) / 2;
    p.first = base + y0 * a->width + x0;
    for (int n = 0; n < TN_COLLECT_REACH; n++) {
        p.k[n] = wx[n & 1] * wy[n >> 1];
        p.k_u[n] = (n & 1 ? sx : -sx) * wy[n >> 1];
        p.k_v[n] = (n >> 1 ? sy : -sy) * wx[n & 1];
    }
    return p;
}

TN_COLLECT_RULE float tn_collect_norm(const float *e, int64_t E)
{
    float sum = 0;
    if (E == 1) return fabsf(e[0]);
    for (int64_t j = 0; j < E; j++) sum += e[j] * e[j];
    return sqrtf(sum);
}

/* What |e| is multiplied with in a score. */
TN_COLLECT_RULE float tn_collect_factor(const tn_collect_attr *a, int32_t age, float d)
{
    return (1 + a->age_factor * (float)age) / (1 + d);
}

#endif
