/* The table of samplers, random search, and what several samplers share. */
#include "lab/search/samplers.h"

#include "base/alloc.h"
#include "lab/search/pareto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tn_prior_draw(const tn_space *s, tn_draws *draws, double *x)
{
    for (size_t i = 0; i < s->n; i++) x[i] = tn_dim_at(&s->dims[i], tn_draws_uniform(draws));
    tn_space_apply_when(s, x);
}

static bool is_finite(const double *y, size_t m)
{
    for (size_t k = 0; k < m; k++)
        if (!isfinite(y[k])) return false;
    return true;
}

/* Ranks of one class of trials, from *next on: those with `pruned`, finite, into the places they have among `which`. */
static tn_status rank_class(const tn_observed *seen, const size_t *which, size_t n, bool pruned, int *next, int *rank,
                            double *crowding)
{
    tn_status s = TN_OK;
    tn_arena a = { 0 };
    const size_t m = seen->objectives;
    if (pruned && !seen->pruned) return TN_OK;
    double *y = tn_arena_alloc(&a, (n * m + 1) * sizeof *y), *c = tn_arena_alloc(&a, (n + 1) * sizeof *c);
    size_t *place = tn_arena_alloc(&a, (n + 1) * sizeof *place), count = 0;
    int *r = tn_arena_alloc(&a, (n + 1) * sizeof *r), top = *next;
    if (!y || !c || !place || !r) TN_TRY(TN_MEMORY);
    for (size_t i = 0; i < n; i++) {
        const double *from = seen->y + which[i] * m;
        if ((seen->pruned && seen->pruned[which[i]]) != pruned || !is_finite(from, m)) continue;
        memcpy(y + count * m, from, m * sizeof *y);
        place[count++] = i;
    }
    TN_TRY(tn_pareto_ranks(y, count, m, r));
    TN_TRY(tn_crowding(y, count, m, r, c));
    for (size_t i = 0; i < count; i++) {
        rank[place[i]] = *next + r[i];
        crowding[place[i]] = c[i];
        if (*next + r[i] >= top) top = *next + r[i] + 1;
    }
    *next = top;
done:
    tn_arena_free(&a);
    return s;
}

tn_status tn_observed_ranks(const tn_observed *seen, const size_t *which, size_t n, int *rank, double *crowding)
{
    int next = 0;
    for (size_t i = 0; i < n; i++) rank[i] = -1, crowding[i] = 0;
    TN_RETURN_IF(rank_class(seen, which, n, false, &next, rank, crowding));
    TN_RETURN_IF(rank_class(seen, which, n, true, &next, rank, crowding));
    for (size_t i = 0; i < n; i++)
        if (rank[i] < 0) rank[i] = next;
    return TN_OK;
}

typedef struct ranked {
    int rank;
    double crowding;
    size_t at;
} ranked;

static int ranked_compare(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    if (p->rank != q->rank) return p->rank < q->rank ? -1 : 1;
    if (p->crowding != q->crowding) return p->crowding > q->crowding ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

tn_status tn_rank_order(const int *rank, const double *crowding, size_t n, size_t *order)
{
    ranked *v = tn_alloc((n + 1) * sizeof *v);
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < n; i++) v[i] = (ranked){ rank[i], crowding[i], i };
    qsort(v, n, sizeof *v, ranked_compare);
    for (size_t i = 0; i < n; i++) order[i] = v[i].at;
    tn_free(v);
    return TN_OK;
}

static bool same_point(const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

bool tn_observed_has(const tn_observed *seen, const double *x, size_t dims)
{
    for (size_t i = 0; i < seen->n; i++)
        if (same_point(seen->x + i * dims, x, dims)) return true;
    return false;
}

int64_t tn_sampler_needs_none(const tn_sampler_options *o, int64_t number)
{
    (void)o;
    (void)number;
    return 0;
}

int64_t tn_sampler_endless(const tn_space *s)
{
    (void)s;
    return 0;
}

static tn_status takes_all(const tn_sampler_options *o, const tn_space *s)
{
    (void)o;
    return tn_space_check(s);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Random search: every trial from the prior, whatever the others found. */
static tn_status random_draw(const tn_sampler_options *o, const tn_space *s, const tn_observed *seen, int64_t number,
                             double *x)
{
    (void)seen;
    tn_draws draws = tn_draws_open(o->seed, "lab.random", (uint64_t)number);
    tn_prior_draw(s, &draws, x);
    return TN_OK;
}

static const tn_sampler sampler_random = {
    .name = "random",
    .needs = tn_sampler_needs_none,
    .count = tn_sampler_endless,
    .check = takes_all,
    .draw = random_draw,
};

static const tn_sampler *const samplers[] = { &sampler_random, &tn_sampler_grid, &tn_sampler_tpe, &tn_sampler_nsga2 };

enum { COUNT = sizeof samplers / sizeof *samplers };

const char *tn_sampler_name(size_t i) { return i < COUNT ? samplers[i]->name : NULL; }

const tn_sampler *tn_sampler_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(samplers[i]->name, name) == 0) return samplers[i];
    return NULL;
}
