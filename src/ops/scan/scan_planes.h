/* Tokens of a block of channels where they lie in a tensor, or, where the channels are no whole units, in a padded copy. */
#ifndef TN_OPS_SCAN_PLANES_H
#define TN_OPS_SCAN_PLANES_H

#include "ops/scan/scan_loops.h"

typedef struct tn_scan_copy {
    float x[TN_SCAN_N][2 * TN_SCAN_W];
} tn_scan_copy;

static inline tn_scan_planes tn_scan_planes_of(tn_scan_tensor p, const tn_scan_job *j, const tn_scan_at *a)
{
    if (!p.at) return (tn_scan_planes){ 0 };
    return (tn_scan_planes){ p.at + a->b * p.b + a->t * p.t + a->k, p.t, j->K };
}

static inline tn_scan_planes tn_scan_planes_in(tn_scan_copy *room)
{
    return (tn_scan_planes){ room->x[0], 2 * TN_SCAN_W, TN_SCAN_W };
}

static inline bool tn_scan_ragged(const tn_scan_at *a) { return a->w % TN_SCAN_UNIT != 0; }

/* n tokens of w channels, zeros up to the next unit. */
static inline tn_scan_planes tn_scan_copy_padded(tn_scan_planes from, int64_t n, int64_t w, tn_scan_copy *room)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < tn_scan_padded(w); k++) {
            room->x[i][k] = k < w ? from.at[i * from.step + k] : 0;
            room->x[i][TN_SCAN_W + k] = k < w ? from.at[i * from.step + from.im + k] : 0;
        }
    return tn_scan_planes_in(room);
}

/* Whole units are read where they lie. */
static inline tn_scan_planes tn_scan_read(tn_scan_tensor p, const tn_scan_job *j, const tn_scan_at *a,
                                          tn_scan_copy *room)
{
    const tn_scan_planes from = tn_scan_planes_of(p, j, a);
    return tn_scan_ragged(a) && p.at ? tn_scan_copy_padded(from, a->n, a->w, room) : from;
}

static inline void tn_scan_write_back(tn_scan_tensor p, const tn_scan_job *j, const tn_scan_at *a,
                                      const tn_scan_copy *room)
{
    const tn_scan_planes to = tn_scan_planes_of(p, j, a);
    for (int64_t i = 0; i < a->n; i++) {
        memcpy(to.at + i * to.step, room->x[i], sizeof(float) * (size_t)a->w);
        memcpy(to.at + i * to.step + to.im, room->x[i] + TN_SCAN_W, sizeof(float) * (size_t)a->w);
    }
}

#endif
