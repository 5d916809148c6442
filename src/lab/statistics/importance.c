/* fANOVA: 64 trees, for each the share of its variance that a dimension makes alone, averaged over trees. */
#include "lab/statistics/importance.h"

#include "base/alloc.h"
#include "lab/statistics/forest.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

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

/* Choices have no order of their own, and cuts along a line part neighbours: in the order of their mean objective one cut can set the best or the
 * worst choice apart. u (n, dims) has the places of dimension d; order (choices) and sums (2, choices) are work space. */
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

static tn_status order_all(const tn_space *space, const double *y, size_t n, double *u)
{
    for (size_t d = 0; d < space->n; d++) {
        const size_t choices = space->dims[d].n_choices;
        if (space->dims[d].kind != TN_DIM_CHOICE) continue;
        tn_keyed *order = tn_alloc(choices * sizeof *order);
        double *sums = tn_alloc(2 * choices * sizeof *sums);
        if (order && sums) order_choices(y, n, space->n, d, choices, order, sums, u);
        tn_free(order);
        tn_free(sums);
        if (!order || !sums) return tn_error(TN_MEMORY, "no memory to order %zu choices", choices);
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
    tn_tree_maker m = { 0 };
    const size_t dims = space->n;
    size_t usable = 0;
    for (size_t i = 0; i < seen->n; i++) usable += counts(seen, i, objective);
    if (usable < LEAST)
        return tn_error(TN_USAGE, "importance needs %d finished trials, and there are %zu: run more", LEAST, usable);
    const size_t n = usable < MOST ? usable : MOST;
    double *u = tn_alloc(n * dims * sizeof *u), *y = tn_alloc(n * sizeof *y), *sum = tn_alloc(2 * dims * sizeof *sum);
    tn_keyed *edges = tn_alloc(2 * n * sizeof *edges);
    if (!u || !y || !sum || !edges) TN_FAIL(TN_MEMORY, "no memory for the importance of %zu dimensions", dims);
    gather(space, seen, objective, usable, n, u, y);
    TN_TRY(order_all(space, y, n, u));
    TN_TRY(tn_tree_maker_open(u, y, n, dims, &m));
    const size_t trees = grow_all(&m, seed, edges, sum);
    if (trees == 0)
        TN_FAIL(TN_USAGE, "objective %zu is the same in all trials: nothing can be important for it", objective + 1);
    for (size_t d = 0; d < dims; d++) {
        const double mean = sum[d] / (double)trees;
        part[d] = mean;
        if (spread) spread[d] = sqrt(fmax(sum[dims + d] / (double)trees - mean * mean, 0));
    }
done:
    tn_tree_maker_close(&m);
    tn_free(u);
    tn_free(y);
    tn_free(sum);
    tn_free(edges);
    return s;
}
