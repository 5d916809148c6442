/* fANOVA: 64 regression trees; for each, the fraction of its variance that one dimension explains alone; averaged over
 * trees.
 *
 * A node of a tree takes the split, over all dimensions and values, that leaves the least squared error. Depth is
 * bounded, so recursion is. */
#include "lab/statistics/importance.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* --- trees -------------------------------------------------------------------------------------------------------- */

enum { DEEPEST = 64 };

tn_status tn_tree_maker_open(const double *u, const double *y, size_t points, size_t dims, tn_arena *arena,
                             tn_tree_maker *out)
{
    tn_tree_maker m = { .points = points, .dims = dims, .u = u, .y = y };
    size_t cells;
    if (!tn_mul_ok(points, dims, &cells) || cells > SIZE_MAX / 16 - 1)
        return tn_error(TN_MEMORY, "%zu trials are too many", points);
    m.at = tn_arena_alloc(arena, (points + 1) * sizeof *m.at);
    m.order = tn_arena_alloc(arena, (2 * points + 1) * sizeof *m.order);
    m.lo = tn_arena_alloc(arena, (dims + 1) * sizeof *m.lo);
    m.hi = tn_arena_alloc(arena, (dims + 1) * sizeof *m.hi);
    m.leaves.dims = dims;
    m.leaves.value = tn_arena_alloc(arena, (points + 1) * sizeof *m.leaves.value);
    m.leaves.lo = tn_arena_alloc(arena, (cells + 1) * sizeof *m.leaves.lo);
    m.leaves.hi = tn_arena_alloc(arena, (cells + 1) * sizeof *m.leaves.hi);
    if (!m.at || !m.order || !m.lo || !m.hi || !m.leaves.value || !m.leaves.lo || !m.leaves.hi) return TN_MEMORY;
    *out = m;
    return TN_OK;
}

typedef struct cut {
    size_t dim;
    double at, gain; /* gain: sum^2 / count of both sides, together */
} cut;

/* The best cut of the points [first, first + n) along one dimension, if it beats *best. */
static void best_along(const tn_tree_maker *m, size_t first, size_t n, size_t d, double total, cut *best)
{
    tn_keyed *o = m->order;
    for (size_t i = 0; i < n; i++) o[i] = (tn_keyed){ m->u[m->at[first + i] * m->dims + d], m->at[first + i] };
    tn_keyed_sort(o, n);
    double left = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        left += m->y[o[i].at];
        if (o[i].key == o[i + 1].key) continue;
        const double right = total - left, gain = left * left / (double)(i + 1) + right * right / (double)(n - i - 1);
        if (gain > best->gain) *best = (cut){ .dim = d, .at = (o[i].key + o[i + 1].key) / 2, .gain = gain };
    }
}

static void leaf(tn_tree_maker *m, double value)
{
    tn_leaves *l = &m->leaves;
    l->value[l->n] = value;
    memcpy(l->lo + l->n * m->dims, m->lo, m->dims * sizeof *m->lo);
    memcpy(l->hi + l->n * m->dims, m->hi, m->dims * sizeof *m->hi);
    l->n++;
}

/* Points below the cut first; how many they are. */
static size_t part(const tn_tree_maker *m, size_t first, size_t n, cut c)
{
    size_t below = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t p = m->at[first + i];
        if (m->u[p * m->dims + c.dim] > c.at) continue;
        m->at[first + i] = m->at[first + below];
        m->at[first + below++] = p;
    }
    return below;
}

static void grow(tn_tree_maker *m, size_t first, size_t n, int depth)
{
    double total = 0, lowest = INFINITY, highest = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double y = m->y[m->at[first + i]];
        total += y;
        lowest = fmin(lowest, y);
        highest = fmax(highest, y);
    }
    cut best = { .gain = -INFINITY };
    if (highest > lowest && depth < DEEPEST)
        for (size_t d = 0; d < m->dims; d++) best_along(m, first, n, d, total, &best);
    const size_t below = best.gain > -INFINITY ? part(m, first, n, best) : 0;
    if (below == 0 || below == n) { /* n: a middle that was rounded up to the higher of two neighbours */
        leaf(m, total / (double)n);
        return;
    }
    const double lo = m->lo[best.dim], hi = m->hi[best.dim];
    m->hi[best.dim] = best.at;
    grow(m, first, below, depth + 1);
    m->hi[best.dim] = hi;
    m->lo[best.dim] = best.at;
    grow(m, first + below, n - below, depth + 1);
    m->lo[best.dim] = lo;
}

void tn_tree_make(tn_tree_maker *m, tn_draws *draws)
{
    for (size_t d = 0; d < m->dims; d++) m->lo[d] = 0, m->hi[d] = 1;
    for (size_t i = 0; i < m->points; i++) m->at[i] = tn_draws_below(draws, m->points);
    m->leaves.n = 0;
    grow(m, 0, m->points, 0);
}

static double volume(const tn_leaves *l, size_t i, size_t without)
{
    double v = 1;
    for (size_t d = 0; d < l->dims; d++)
        if (d != without) v *= l->hi[i * l->dims + d] - l->lo[i * l->dims + d];
    return v;
}

double tn_leaves_variance(const tn_leaves *l, double *mean)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < l->n; i++) sum += volume(l, i, SIZE_MAX) * l->value[i];
    for (size_t i = 0; i < l->n; i++) square += volume(l, i, SIZE_MAX) * (l->value[i] - sum) * (l->value[i] - sum);
    *mean = sum;
    return square;
}

/* Averaged over the other dimensions a tree is a step function: a leaf adds its value times its extent in the others
 * where it begins, and removes it where it ends. Edges 2i and 2i + 1 are those of leaf i. */
double tn_leaves_main_variance(const tn_leaves *l, size_t d, double mean, tn_keyed *edges)
{
    for (size_t i = 0; i < l->n; i++) {
        edges[2 * i] = (tn_keyed){ l->lo[i * l->dims + d], 2 * i };
        edges[2 * i + 1] = (tn_keyed){ l->hi[i * l->dims + d], 2 * i + 1 };
    }
    tn_keyed_sort(edges, 2 * l->n);
    double height = 0, sum = 0, before = 0;
    for (size_t k = 0; k < 2 * l->n; k++) {
        const size_t i = edges[k].at / 2;
        const double width = edges[k].key - before;
        if (width > 0) sum += width * (height - mean) * (height - mean);
        before = edges[k].key;
        height += (edges[k].at % 2 ? -1 : 1) * volume(l, i, d) * l->value[i];
    }
    return sum;
}

/* --- importance --------------------------------------------------------------------------------------------------- */

enum { TREES = 64, LEAST = 20, MOST = 1000 };

static bool counts(const tn_observed *seen, size_t i, size_t objective)
{
    return isfinite(seen->y[i * seen->objectives + objective]) && !(seen->pruned && seen->pruned[i]);
}

/* u (n, dims) and y (n) of `n` of the `usable` trials, evenly chosen. */
static void gather(const tn_space *s, const tn_observed *seen, size_t objective, size_t usable, size_t n, double *u,
                   double *y)
{
    size_t k = 0, passed = 0;
    for (size_t i = 0; i < seen->n && k < n; i++) {
        if (!counts(seen, i, objective) || passed++ * n / usable < k) continue;
        for (size_t d = 0; d < s->n; d++) u[k * s->n + d] = tn_dim_place(&s->dims[d], seen->x[i * s->n + d]);
        y[k++] = seen->y[i * seen->objectives + objective];
    }
}

/* Choices have no order, and a split separates neighbours: sorted by their mean objective, one split can separate the
 * best or the worst. u (n, dims): places of dimension d; order (choices) and sums (2, choices): work space. */
static void order_choices(const double *y, size_t n, size_t dims, size_t d, size_t choices, tn_keyed *order,
                          double *sums, double *u)
{
    memset(sums, 0, 2 * choices * sizeof *sums);
    for (size_t i = 0; i < n; i++) {
        const size_t c = (size_t)(u[i * dims + d] * (double)choices);
        sums[c] += y[i];
        sums[choices + c]++;
    }
    for (size_t c = 0; c < choices; c++)
        order[c] = (tn_keyed){ sums[choices + c] > 0 ? sums[c] / sums[choices + c] : INFINITY, c };
    tn_keyed_sort(order, choices);
    for (size_t c = 0; c < choices; c++) sums[order[c].at] = ((double)c + 0.5) / (double)choices;
    for (size_t i = 0; i < n; i++) u[i * dims + d] = sums[(size_t)(u[i * dims + d] * (double)choices)];
}

static tn_status order_all(const tn_space *space, const double *y, size_t n, tn_arena *a, double *u)
{
    for (size_t d = 0; d < space->n; d++) {
        const size_t choices = space->dims[d].n_choices;
        if (space->dims[d].kind != TN_DIM_CHOICE) continue;
        tn_keyed *order = tn_arena_alloc(a, choices * sizeof *order);
        double *sums = tn_arena_alloc(a, 2 * choices * sizeof *sums);
        if (!order || !sums) return TN_MEMORY;
        order_choices(y, n, space->n, d, choices, order, sums, u);
    }
    return TN_OK;
}

/* Sums of shares and of their squares over trees, into sum (2, dims); how many trees had any variance. */
static size_t grow_all(tn_tree_maker *m, uint64_t seed, tn_keyed *edges, double *sum)
{
    size_t trees = 0;
    for (uint64_t t = 0; t < TREES; t++) {
        tn_draws draws = tn_draws_open(seed, "lab.importance.tree", t);
        double mean;
        tn_tree_make(m, &draws);
        const double all = tn_leaves_variance(&m->leaves, &mean);
        if (!(all > 0)) continue;
        trees++;
        for (size_t d = 0; d < m->dims; d++) {
            const double share = tn_leaves_main_variance(&m->leaves, d, mean, edges) / all;
            sum[d] += share;
            sum[m->dims + d] += share * share;
        }
    }
    return trees;
}

tn_status tn_importance(const tn_space *space, const tn_observed *seen, size_t objective, uint64_t seed, double *part,
                        double *spread)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    tn_tree_maker m;
    const size_t dims = space->n;
    size_t usable = 0;
    for (size_t i = 0; i < seen->n; i++) usable += counts(seen, i, objective);
    if (usable < LEAST)
        return tn_error(TN_USAGE, "importance needs %d finished trials, and there are %zu: run more", LEAST, usable);
    const size_t n = usable < MOST ? usable : MOST;
    double *u = tn_arena_alloc(&a, n * dims * sizeof *u), *y = tn_arena_alloc(&a, n * sizeof *y),
           *sum = tn_arena_alloc(&a, 2 * dims * sizeof *sum);
    tn_keyed *edges = tn_arena_alloc(&a, 2 * n * sizeof *edges);
    if (!u || !y || !sum || !edges) TN_TRY(TN_MEMORY);
    gather(space, seen, objective, usable, n, u, y);
    TN_TRY(order_all(space, y, n, &a, u));
    TN_TRY(tn_tree_maker_open(u, y, n, dims, &a, &m));
    const size_t trees = grow_all(&m, seed, edges, sum);
    if (trees == 0)
        TN_FAIL(TN_USAGE, "objective %zu is the same in all trials: importance cannot be computed", objective + 1);
    for (size_t d = 0; d < dims; d++) {
        const double mean = sum[d] / (double)trees;
        part[d] = mean;
        if (spread) spread[d] = sqrt(fmax(sum[dims + d] / (double)trees - mean * mean, 0));
    }
done:
    tn_arena_free(&a);
    return s;
}
