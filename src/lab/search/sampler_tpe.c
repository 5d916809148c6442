/* Tree-structured Parzen estimators (Bergstra, Bardenet, Bengio and Kegl 2011), multivariate: trials are split into
 * a few good ones and the rest, each part becomes a density, and of 24 draws from the good one the next trial
 * maximises the ratio. With several objectives the good ones are the best by non-domination rank, then by
 * hypervolume. */
#include "lab/search/samplers.h"

#include "base/alloc.h"
#include "lab/search/pareto.h"
#include "lab/search/parzen.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CANDIDATES = 24, MOST_GOOD = 25, RECENT = 25, MOST_REST = 2000 };

static int64_t startup_of(const tn_sampler_options *o) { return o->startup > 0 ? o->startup : 10; }

static int64_t needs(const tn_sampler_options *o, int64_t number)
{
    const int64_t before = number - (o->lag > 0 ? o->lag : 0);
    return before < startup_of(o) ? 0 : before;
}

static tn_status check(const tn_sampler_options *o, const tn_space *s)
{
    TN_RETURN_IF(tn_space_check(s));
    if (o->lag < 0 || o->startup < 0) return tn_error(TN_USAGE, "tpe: lag and startup must be 0 or more");
    return TN_OK;
}

static size_t good_count(size_t n)
{
    const size_t tenth = (n + 9) / 10;
    return tenth < MOST_GOOD ? tenth : MOST_GOOD;
}

/* Trials long ago count less: the last 25 fully, those before them rising evenly from 1/n. `at` is a place in the
 * order of numbers. */
static double age_weight(size_t at, size_t n)
{
    if (n <= RECENT || at + RECENT >= n) return 1;
    const double first = 1 / (double)n, ramp = (double)(n - RECENT);
    return ramp > 1 ? first + (1 - first) * (double)at / (ramp - 1) : first;
}

/* The estimator of those trials whose `good` is as asked; of very many an even choice, which bounds the time of a
 * draw. */
static tn_status estimate(const tn_space *space, const tn_observed *seen, const bool *is_good, bool good, tn_arena *a,
                          tn_parzen *out)
{
    const size_t dims = space->n;
    size_t n = 0, count = 0, passed = 0;
    double *x = tn_arena_alloc(a, (seen->n * dims + 1) * sizeof *x),
           *weight = tn_arena_alloc(a, (seen->n + 1) * sizeof *weight);
    if (!x || !weight) return TN_MEMORY;
    for (size_t i = 0; i < seen->n; i++) count += is_good[i] == good;
    const size_t most = count < MOST_REST ? count : MOST_REST;
    for (size_t i = 0; i < seen->n; i++) {
        if (is_good[i] != good || passed++ * most / count < n) continue;
        memcpy(x + n * dims, seen->x + i * dims, dims * sizeof *x);
        weight[n] = age_weight(n, most);
        n++;
    }
    return tn_parzen_make(space, x, weight, n, 1 / fmin(100, 1 + (double)seen->n), a, out);
}

/* The places [from, to) of the order share a rank of which `room` are good. With one objective, or where trials
 * failed, the order decides. */
static tn_status split_rank(const tn_observed *seen, const size_t *order, size_t from, size_t to, size_t room,
                            tn_arena *a, bool *is_good)
{
    const size_t m = seen->objectives, n = to - from;
    double *y = tn_arena_alloc(a, (n * m + 1) * sizeof *y);
    size_t *picked = tn_arena_alloc(a, (room + 1) * sizeof *picked);
    bool finite = true;
    if (!y || !picked) return TN_MEMORY;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++) finite &= isfinite(y[i * m + k] = seen->y[order[from + i] * m + k]) != 0;
    for (size_t i = 0; i < room; i++) picked[i] = i;
    if (m > 1 && finite && room < n) TN_RETURN_IF(tn_hypervolume_pick(y, n, m, room, picked));
    for (size_t i = 0; i < room; i++) is_good[order[from + picked[i]]] = true;
    return TN_OK;
}

static tn_status split(const tn_observed *seen, tn_arena *a, bool *is_good)
{
    const size_t n = seen->n, good = good_count(n);
    size_t *which = tn_arena_alloc(a, n * sizeof *which), *order = tn_arena_alloc(a, n * sizeof *order);
    int *rank = tn_arena_alloc(a, n * sizeof *rank);
    double *crowding = tn_arena_alloc(a, n * sizeof *crowding);
    if (!which || !order || !rank || !crowding) return TN_MEMORY;
    for (size_t i = 0; i < n; i++) which[i] = i;
    TN_RETURN_IF(tn_observed_ranks(seen, which, n, rank, crowding));
    TN_RETURN_IF(tn_rank_order(rank, crowding, n, order));
    for (size_t from = 0, to; from < good; from = to) {
        for (to = from; to < n && rank[order[to]] == rank[order[from]]; to++) {
        }
        TN_RETURN_IF(split_rank(seen, order, from, to, to < good ? to - from : good - from, a, is_good));
    }
    return TN_OK;
}

/* The best of the candidates that was not tried before, or the best of all where all were. */
static void choose(const tn_parzen *good, const tn_parzen *rest, const tn_observed *seen, tn_draws *draws,
                   double *candidate, double *x)
{
    const size_t dims = good->s->n;
    double best = -INFINITY;
    bool best_is_new = false;
    for (int c = 0; c < CANDIDATES; c++) {
        tn_parzen_draw(good, draws, candidate);
        const bool is_new = !tn_observed_has(seen, candidate, dims);
        const double gain = tn_parzen_log(good, candidate) - tn_parzen_log(rest, candidate);
        if (c > 0 && (is_new != best_is_new ? best_is_new : gain <= best)) continue;
        best = gain;
        best_is_new = is_new;
        memcpy(x, candidate, dims * sizeof *x);
    }
}

static tn_status draw(const tn_sampler_options *o, const tn_space *space, const tn_observed *seen, int64_t number,
                      double *x)
{
    tn_status s = TN_OK;
    tn_draws draws = tn_draws_open(o->seed, "lab.tpe", (uint64_t)number);
    tn_parzen good, rest;
    tn_arena a = { 0 };
    tn_observed before = *seen;
    before.n = (size_t)needs(o, number);
    if (seen->n < before.n) return tn_error(TN_INTERNAL, "tpe: trial %" PRId64 " was asked for too early", number);
    if (before.n == 0) {
        tn_prior_draw(space, &draws, x);
        return TN_OK;
    }
    bool *is_good = tn_arena_alloc(&a, before.n);
    double *candidate = tn_arena_alloc(&a, space->n * sizeof *candidate);
    if (!is_good || !candidate) TN_TRY(TN_MEMORY);
    TN_TRY(split(&before, &a, is_good));
    TN_TRY(estimate(space, &before, is_good, true, &a, &good));
    TN_TRY(estimate(space, &before, is_good, false, &a, &rest));
    choose(&good, &rest, &before, &draws, candidate, x);
done:
    tn_arena_free(&a);
    return s;
}

const tn_sampler tn_sampler_tpe = {
    .name = "tpe", .needs = needs, .count = tn_sampler_endless, .check = check, .draw = draw
};
