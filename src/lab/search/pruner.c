/* The pruners: none, median, asha. A decision is a pure function of the values at one rung; the caller chooses the
 * trials. */
#include "lab/search/pruner.h"

#include "base/alloc.h"
#include "lab/search/pareto.h"

#include <math.h>
#include <string.h>

static double worst_if_nan(double v) { return isnan(v) ? INFINITY : v; }

static size_t count_below(double value, const double *others, size_t n)
{
    size_t below = 0;
    for (size_t i = 0; i < n; i++) below += worst_if_nan(others[i]) < value;
    return below;
}

static bool no_rung(const tn_pruner_options *o, int64_t rung)
{
    (void)o, (void)rung;
    return false;
}

static bool never_prunes(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n,
                         size_t ended)
{
    (void)o, (void)rung, (void)value, (void)others, (void)n, (void)ended;
    return false;
}

static int64_t first_rung(const tn_pruner_options *o) { return o->min_rung > 0 ? o->min_rung : 1; }

static bool median_rung(const tn_pruner_options *o, int64_t rung) { return rung >= first_rung(o); }

/* Worse than the median of the others, found by counting. Of an even number the median is the mean of the middle
 * two. */
static bool median_prunes(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n,
                          size_t ended)
{
    (void)rung;
    const size_t warmup = o->warmup_trials > 0 ? (size_t)o->warmup_trials : 5;
    if (n == 0 || ended < warmup) return false;
    value = worst_if_nan(value);
    const size_t below = count_below(value, others, n);
    if (2 * below != n) return 2 * below > n;
    double lower = -INFINITY, upper = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double v = worst_if_nan(others[i]);
        if (v < value) lower = fmax(lower, v);
        else upper = fmin(upper, v);
    }
    return value > lower + (upper - lower) / 2;
}

static int64_t eta_of(const tn_pruner_options *o) { return o->eta > 1 ? o->eta : 3; }

static bool asha_rung(const tn_pruner_options *o, int64_t rung)
{
    int64_t at = first_rung(o);
    while (at < rung && at <= INT64_MAX / eta_of(o)) at *= eta_of(o);
    return at == rung;
}

/* Continues if it is among the best 1/eta that reached this rung, itself included; of fewer than eta only the best. */
static bool asha_prunes(const tn_pruner_options *o, int64_t rung, double value, const double *others, size_t n,
                        size_t ended)
{
    (void)rung, (void)ended;
    const size_t places = (n + 1) / (size_t)eta_of(o);
    return count_below(worst_if_nan(value), others, n) >= (places > 0 ? places : 1);
}

static const tn_pruner pruners[] = {
    { .name = "none", .is_rung = no_rung, .prune = never_prunes },
    { .name = "median", .is_rung = median_rung, .prune = median_prunes },
    { .name = "asha", .is_rung = asha_rung, .prune = asha_prunes },
};

enum { COUNT = sizeof pruners / sizeof *pruners };

const char *tn_pruner_name(size_t i) { return i < COUNT ? pruners[i].name : NULL; }

const tn_pruner *tn_pruner_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(pruners[i].name, name) == 0) return &pruners[i];
    return NULL;
}

tn_status tn_pruner_check(const tn_pruner_options *o)
{
    if (o->warmup_trials < 0 || o->min_rung < 0 || o->lag < 0)
        return tn_error(TN_USAGE, "pruner: warmup, min and lag must be 0 or more");
    if (o->eta != 0 && o->eta < 2) return tn_error(TN_USAGE, "pruner: eta must be 2 or more: one trial in eta goes on");
    return TN_OK;
}

tn_status tn_pruner_values(const double *y, const double *others, size_t n, size_t m, double *value, double *values)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    if (m == 1) {
        *value = y[0];
        if (n) memcpy(values, others, n * sizeof *values);
        return TN_OK;
    }
    double *all = tn_arena_alloc(&a, (n + 1) * m * sizeof *all),
           *crowding = tn_arena_alloc(&a, (n + 1) * sizeof *crowding);
    int *rank = tn_arena_alloc(&a, (n + 1) * sizeof *rank);
    if (!all || !crowding || !rank) TN_TRY(TN_MEMORY);
    if (n) memcpy(all, others, n * m * sizeof *all);
    memcpy(all + n * m, y, m * sizeof *y);
    TN_TRY(tn_pareto_ranks(all, n + 1, m, rank));
    TN_TRY(tn_crowding(all, n + 1, m, rank, crowding));
    for (size_t i = 0; i <= n; i++) *(i < n ? &values[i] : value) = rank[i] + 1 / (2 + crowding[i]);
done:
    tn_arena_free(&a);
    return s;
}
