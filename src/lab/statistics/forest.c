/* Growing a tree: each node takes the split, over all dimensions and all places between two values, after which squares around the two means are
 * smallest. Depth is bounded, so recursion is. */
#include "lab/statistics/forest.h"

#include "base/alloc.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { DEEPEST = 64 };

tn_status tn_tree_maker_open(const double *u, const double *y, size_t points, size_t dims, tn_tree_maker *out)
{
    tn_tree_maker m = { .points = points, .dims = dims, .u = u, .y = y };
    size_t cells;
    if (!tn_mul_ok(points, dims, &cells) || cells > SIZE_MAX / 16 - 1)
        return tn_error(TN_MEMORY, "%zu trials are too many", points);
    m.at = tn_alloc((points + 1) * sizeof *m.at);
    m.order = tn_alloc((2 * points + 1) * sizeof *m.order);
    m.lo = tn_alloc((dims + 1) * sizeof *m.lo);
    m.hi = tn_alloc((dims + 1) * sizeof *m.hi);
    m.leaves.dims = dims;
    m.leaves.value = tn_alloc((points + 1) * sizeof *m.leaves.value);
    m.leaves.lo = tn_alloc((cells + 1) * sizeof *m.leaves.lo);
    m.leaves.hi = tn_alloc((cells + 1) * sizeof *m.leaves.hi);
    if (!m.at || !m.order || !m.lo || !m.hi || !m.leaves.value || !m.leaves.lo || !m.leaves.hi) {
        tn_tree_maker_close(&m);
        return tn_error(TN_MEMORY, "no memory for trees of %zu trials", points);
    }
    *out = m;
    return TN_OK;
}

void tn_tree_maker_close(tn_tree_maker *m)
{
    tn_free(m->at);
    tn_free(m->order);
    tn_free(m->lo);
    tn_free(m->hi);
    tn_free(m->leaves.value);
    tn_free(m->leaves.lo);
    tn_free(m->leaves.hi);
    *m = (tn_tree_maker){ 0 };
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

/* The average over all other dimensions is a staircase in this one: a leaf adds value times its extent in the others where it begins, and takes it
 * away where it ends. Edges 2i and 2i + 1 are leaf i's. */
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
