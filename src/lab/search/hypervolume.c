/* The exact hypervolume, by slices (While, Bradstreet and Barone 2012): from the worst point in the last objective
 * to the best, each adds its box minus what better points, clipped to it, cover: a volume in one objective less,
 * down to a sweep over two. */
#include "lab/search/pareto.h"

#include "base/alloc.h"
#include "lab/search/sorted.h"

#include <math.h>
#include <string.h>

/* Work space of level d, which holds points of d objectives. */
typedef struct level {
    double *p;       /* (n, m) */
    tn_keyed *order; /* (n) */
    double *sorted;  /* (n, m) */
} level;

typedef struct volume {
    size_t m; /* objectives of a row, whatever the level: the stride */
    const double *reference;
    level *levels; /* (m + 1) */
} volume;

static bool weakly_dominates(const double *a, const double *b, size_t d)
{
    for (size_t k = 0; k < d; k++)
        if (a[k] > b[k]) return false;
    return true;
}

/* No point covers another here but equal ones, so the second objective falls as the first rises. */
static double sweep_two(const volume *v, level *l, size_t n)
{
    double sum = 0, floor_y = v->reference[1];
    for (size_t i = 0; i < n; i++) l->order[i] = (tn_keyed){ l->p[i * v->m], i };
    tn_keyed_sort(l->order, n);
    for (size_t i = 0; i < n; i++) {
        const double *a = l->p + l->order[i].at * v->m;
        sum += (v->reference[0] - a[0]) * (floor_y - a[1]);
        floor_y = a[1];
    }
    return sum;
}

/* Into the level of d - 1 objectives: the later points clipped to the box of `worst`, without those that another
 * covers. */
static size_t clip(const volume *v, const double *worst, const double *later, size_t n, size_t d)
{
    const size_t m = v->m, e = d - 1;
    double *out = v->levels[e].p;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        double q[16];
        bool covered = false;
        for (size_t k = 0; k < e; k++) q[k] = fmax(worst[k], later[i * m + k]);
        for (size_t j = 0; j < kept && !covered; j++) covered = weakly_dominates(out + j * m, q, e);
        if (covered) continue;
        size_t w = 0; /* those that q covers leave */
        for (size_t j = 0; j < kept; j++) {
            if (weakly_dominates(q, out + j * m, e)) continue;
            if (w != j) memcpy(out + w * m, out + j * m, e * sizeof *out);
            w++;
        }
        memcpy(out + w * m, q, e * sizeof *q);
        kept = w + 1;
    }
    return kept;
}

/* The volume of the n points that level d holds, in the first d objectives. */
static double measure(const volume *v, size_t n, size_t d)
{
    level *l = &v->levels[d];
    const size_t m = v->m;
    if (d == 2) return sweep_two(v, l, n);
    for (size_t i = 0; i < n; i++) l->order[i] = (tn_keyed){ -l->p[i * m + d - 1], i };
    tn_keyed_sort(l->order, n);
    for (size_t i = 0; i < n; i++) memcpy(l->sorted + i * m, l->p + l->order[i].at * m, d * sizeof *l->p);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double *a = l->sorted + i * m;
        double box = 1;
        for (size_t k = 0; k + 1 < d; k++) box *= v->reference[k] - a[k];
        const size_t kept = clip(v, a, a + m, n - i - 1, d);
        sum += (v->reference[d - 1] - a[d - 1]) * (box - (kept ? measure(v, kept, d - 1) : 0));
    }
    return sum;
}

static double one_objective(const double *y, size_t n, double reference)
{
    double best = reference;
    for (size_t i = 0; i < n; i++)
        if (isfinite(y[i]) && y[i] < best) best = y[i];
    return reference - best;
}

/* The points strictly below the reference that are on their front, into the first level. */
static tn_status gather(const double *y, size_t n, size_t m, const double *reference, bool *on, double *out,
                        size_t *count)
{
    size_t c = 0;
    TN_RETURN_IF(tn_pareto_front(y, n, m, on));
    for (size_t i = 0; i < n; i++) {
        bool below = on[i];
        for (size_t k = 0; k < m && below; k++) below = isfinite(y[i * m + k]) && y[i * m + k] < reference[k];
        if (below) memcpy(out + c++ * m, y + i * m, m * sizeof *y);
    }
    *count = c;
    return TN_OK;
}

tn_status tn_hypervolume(const double *y, size_t n, size_t m, const double *reference, double *out)
{
    enum { MOST = 16 };
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    level levels[MOST + 1] = { { 0 } };
    size_t c = 0, cells, bytes;
    if (m < 1 || m > MOST) return tn_error(TN_USAGE, "a hypervolume has 1 to %d objectives, not %zu", MOST, m);
    for (size_t k = 0; k < m; k++)
        if (!isfinite(reference[k]))
            return tn_error(TN_USAGE, "the reference of objective %zu is not a finite number", k + 1);
    if (m == 1) {
        *out = one_objective(y, n, reference[0]);
        return TN_OK;
    }
    if (!tn_mul_ok(n, m, &cells) || !tn_mul_ok(cells + 1, sizeof(double), &bytes))
        return tn_error(TN_MEMORY, "%zu points are too many", n);
    bool *on = tn_arena_alloc(&a, n + 1);
    if (!on || !(levels[m].p = tn_arena_alloc(&a, bytes))) TN_TRY(TN_MEMORY);
    TN_TRY(gather(y, n, m, reference, on, levels[m].p, &c));
    for (size_t d = 2; d <= m; d++) { /* only the front goes down the levels */
        if (d < m) levels[d].p = tn_arena_alloc(&a, (c * m + 1) * sizeof(double));
        levels[d].sorted = tn_arena_alloc(&a, (c * m + 1) * sizeof(double));
        levels[d].order = tn_arena_alloc(&a, (c + 1) * sizeof(tn_keyed));
        if (!levels[d].p || !levels[d].sorted || !levels[d].order) TN_TRY(TN_MEMORY);
    }
    *out = measure(&(volume){ .m = m, .reference = reference, .levels = levels }, c, m);
done:
    tn_arena_free(&a);
    return s;
}

/* --- a few points that stand for many ----------------------------------------------------------------------------- */

typedef struct picking {
    const double *y; /* (n, m) */
    size_t n, m;
    double *reference; /* (m) */
    double *clipped;   /* (k, m) */
    double *gain;      /* (n): what a point would add, or once would have added, which is no less */
    size_t *fresh;     /* (n): how many were picked when the gain was computed; SIZE_MAX: picked itself */
} picking;

/* What point i adds to those picked: its box without what they, clipped to it, cover of it. */
static tn_status gain_of(const picking *p, size_t i, const size_t *picked, size_t count, double *out)
{
    const double *a = p->y + i * p->m;
    double box = 1, covered = 0;
    for (size_t k = 0; k < p->m; k++) box *= p->reference[k] - a[k];
    for (size_t j = 0; j < count; j++)
        for (size_t k = 0; k < p->m; k++) p->clipped[j * p->m + k] = fmax(a[k], p->y[picked[j] * p->m + k]);
    if (count) TN_RETURN_IF(tn_hypervolume(p->clipped, count, p->m, p->reference, &covered));
    *out = box - covered;
    return TN_OK;
}

/* A gain only falls as more are picked, so one that is computed anew and still the largest is the largest. */
static tn_status pick_next(picking *p, const size_t *picked, size_t count, size_t *out)
{
    for (;;) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < p->n; i++)
            if (p->fresh[i] != SIZE_MAX && (best == SIZE_MAX || p->gain[i] > p->gain[best])) best = i;
        if (p->fresh[best] == count) {
            p->fresh[best] = SIZE_MAX;
            *out = best;
            return TN_OK;
        }
        TN_RETURN_IF(gain_of(p, best, picked, count, &p->gain[best]));
        p->fresh[best] = count;
    }
}

static void reference_of(const double *y, size_t n, size_t m, double *reference)
{
    for (size_t k = 0; k < m; k++) {
        double lo = INFINITY, hi = -INFINITY;
        for (size_t i = 0; i < n; i++) lo = fmin(lo, y[i * m + k]), hi = fmax(hi, y[i * m + k]);
        reference[k] = hi + (hi > lo ? 0.1 * (hi - lo) : fmax(fabs(hi), 1) * 0.1);
    }
}

tn_status tn_hypervolume_pick(const double *y, size_t n, size_t m, size_t k, size_t *picked)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    picking p = { .y = y, .n = n, .m = m };
    if (k > n) return tn_error(TN_INTERNAL, "%zu points cannot be picked from %zu", k, n);
    p.reference = tn_arena_alloc(&a, (m + 1) * sizeof *p.reference);
    p.clipped = tn_arena_alloc(&a, (k * m + 1) * sizeof *p.clipped);
    p.gain = tn_arena_alloc(&a, (n + 1) * sizeof *p.gain);
    p.fresh = tn_arena_alloc(&a, (n + 1) * sizeof *p.fresh);
    if (!p.reference || !p.clipped || !p.gain || !p.fresh) TN_TRY(TN_MEMORY);
    reference_of(y, n, m, p.reference);
    for (size_t i = 0; i < n; i++) TN_TRY(gain_of(&p, i, picked, 0, &p.gain[i]));
    for (size_t i = 0; i < k; i++) TN_TRY(pick_next(&p, picked, i, &picked[i]));
done:
    tn_arena_free(&a);
    return s;
}
