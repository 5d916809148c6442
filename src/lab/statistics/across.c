/* Sides across studies. */
#include "lab/statistics/across.h"

#include <math.h>

/* Of side i among all sides of one study; equal ones have the mean of their places. */
static double rank_of(const tn_across_value *row, size_t sides, size_t i, bool maximise)
{
    size_t ahead = 0, equal = 0;
    for (size_t k = 0; k < sides; k++) {
        equal += row[k].mean == row[i].mean;
        ahead += maximise ? row[k].mean > row[i].mean : row[k].mean < row[i].mean;
    }
    return (double)ahead + 0.5 * (double)(equal + 1);
}

/* +1: shown to be better, -1: shown to be worse. */
static int shown(const tn_across_value *v, bool maximise)
{
    if (v->hi < 0) return maximise ? -1 : 1;
    if (v->lo > 0) return maximise ? 1 : -1;
    return 0;
}

static tn_status compare(const tn_across_value *v, size_t studies, size_t sides, size_t i, size_t against, double *room,
                         tn_paired *out)
{
    for (size_t s = 0; s < studies; s++) {
        room[s] = v[s * sides + i].mean;
        room[studies + s] = v[s * sides + against].mean;
    }
    return tn_paired_compare(room, room + studies, studies, out);
}

static tn_status correct(tn_across_side *out, size_t sides, double *p)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < sides; i++)
        if (out[i].paired.n) p[n++] = out[i].paired.p;
    TN_RETURN_IF(tn_holm(p, n, p + sides));
    for (size_t i = 0; i < sides; i++)
        if (out[i].paired.n) out[i].p_adjusted = p[sides + at++];
    return TN_OK;
}

tn_status tn_across(const tn_across_value *v, size_t studies, size_t sides, size_t against, bool maximise,
                    tn_arena *arena, tn_across_side *out)
{
    double *room = tn_arena_alloc(arena, 2 * sizeof *room * (studies + sides));
    if (!room) return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < studies * sides; i++)
        if (!isfinite(v[i].mean)) return tn_error(TN_USAGE, "a result is not a finite number");
    for (size_t i = 0; i < sides; i++) {
        out[i] = (tn_across_side){ .p_adjusted = NAN };
        for (size_t s = 0; s < studies; s++) {
            const int word = i == against ? 0 : shown(&v[s * sides + i], maximise);
            out[i].rank += rank_of(v + s * sides, sides, i, maximise) / (double)studies;
            out[i].better += word > 0;
            out[i].worse += word < 0;
        }
        if (i != against) TN_RETURN_IF(compare(v, studies, sides, i, against, room, &out[i].paired));
    }
    return correct(out, sides, room);
}
