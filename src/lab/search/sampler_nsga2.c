/* NSGA-II (Deb, Pratap, Agarwal and Meyarivan 2002) with whole generations: trial i belongs to generation i / P.
 * Parents are the best P of all before; two winners of binary tournaments have a child.
 *
 * Numbers are crossed by simulated binary crossover and mutated by a polynomial (Deb and Agrawal 1995, Deb and Goyal
 * 1996), where the prior is uniform, so that children lie near their parents. Choices, and numbers with few values,
 * come from one parent and are mutated by a new draw; with `uniform` every gene is, as in the report. */
#include "lab/search/samplers.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int64_t population_of(const tn_sampler_options *o)
{
    if (o->population > 0) return o->population;
    const int64_t p = o->trials > 0 ? (int64_t)floor(2 * sqrt((double)o->trials)) : 50;
    return p < 10 ? 10 : p > 50 ? 50 : p;
}

static int64_t needs(const tn_sampler_options *o, int64_t number) { return number - number % population_of(o); }

static bool is_probability(double p) { return p >= 0 && p <= 1; }

static tn_status check(const tn_sampler_options *o, const tn_space *s)
{
    TN_RETURN_IF(tn_space_check(s));
    if (o->population != 0 && (o->population < 2 || o->population > 1000000))
        return tn_error(TN_USAGE, "nsga2: population %" PRId64 " must be 2 or more", o->population);
    if (!is_probability(o->crossover) || !is_probability(o->swap) || !is_probability(o->mutation))
        return tn_error(TN_USAGE, "nsga2: crossover, swap and mutation are probabilities between 0 and 1");
    if (!(o->eta >= 0 && o->eta <= 1000)) return tn_error(TN_USAGE, "nsga2: eta %g is outside 0..1000", o->eta);
    return TN_OK;
}

/* Parents and the children that challenge them, with room for both. */
typedef struct pool {
    size_t *trial;        /* (2 P), of seen */
    int *rank;            /* (2 P) */
    double *crowding;     /* (2 P) */
    size_t *order, *kept; /* (2 P) */
    size_t n;
} pool;

static tn_status pool_make(pool *p, size_t size, tn_arena *a)
{
    p->trial = tn_arena_alloc(a, 2 * size * sizeof *p->trial);
    p->rank = tn_arena_alloc(a, 2 * size * sizeof *p->rank);
    p->crowding = tn_arena_alloc(a, 2 * size * sizeof *p->crowding);
    p->order = tn_arena_alloc(a, 2 * size * sizeof *p->order);
    p->kept = tn_arena_alloc(a, 2 * size * sizeof *p->kept);
    return p->trial && p->rank && p->crowding && p->order && p->kept ? TN_OK : TN_MEMORY;
}

/* Keeps the best `size` of the pool, whose ranks are then to be made anew. */
static tn_status pool_select(pool *p, const tn_observed *seen, size_t size)
{
    TN_RETURN_IF(tn_observed_ranks(seen, p->trial, p->n, p->rank, p->crowding));
    TN_RETURN_IF(tn_rank_order(p->rank, p->crowding, p->n, p->order));
    const size_t n = p->n < size ? p->n : size;
    for (size_t i = 0; i < n; i++) p->kept[i] = p->trial[p->order[i]];
    memcpy(p->trial, p->kept, n * sizeof *p->trial);
    p->n = n;
    return TN_OK;
}

static tn_status parents_of(pool *p, const tn_observed *seen, size_t size)
{
    for (size_t first = 0; first + size <= seen->n; first += size) {
        for (size_t i = 0; i < size; i++) p->trial[p->n++] = first + i;
        TN_RETURN_IF(pool_select(p, seen, size));
    }
    return tn_observed_ranks(seen, p->trial, p->n, p->rank, p->crowding);
}

static const double *tournament(const pool *p, const tn_observed *seen, size_t dims, tn_draws *draws)
{
    const size_t a = tn_draws_below(draws, p->n), b = tn_draws_below(draws, p->n);
    const bool second = p->rank[b] != p->rank[a] ? p->rank[b] < p->rank[a] : p->crowding[b] > p->crowding[a];
    return seen->x + p->trial[second ? b : a] * dims;
}

static double eta_of(const tn_sampler_options *o) { return o->eta > 0 ? o->eta : 20; }

/* The spread factor: distance of a child from its parents' mean, in halves of their distance, so that it stays within
 * `room`, the distance from the nearer parent to the end of the range over the parents' distance. */
static double spread_of(double u, double room, double eta)
{
    const double alpha = 2 - pow(1 + 2 * room, -(eta + 1));
    return u <= 1 / alpha ? pow(u * alpha, 1 / (eta + 1)) : pow(1 / (2 - u * alpha), 1 / (eta + 1));
}

/* Simulated binary crossover of two places: below their middle or above it, each as often. */
static double cross_places(double a, double b, double eta, double u, bool above)
{
    const double lo = fmin(a, b), hi = fmax(a, b), apart = hi - lo;
    if (!(apart > 1e-12)) return a;
    const double half = 0.5 * apart * spread_of(u, (above ? 1 - hi : lo) / apart, eta);
    return 0.5 * (lo + hi) + (above ? half : -half);
}

/* A place near the old one, within [0,1]. */
static double mutate_place(double x, double eta, double u)
{
    const double power = 1 / (eta + 1);
    if (u < 0.5) return x + pow(2 * u + (1 - 2 * u) * pow(1 - x, eta + 1), power) - 1;
    return x + 1 - pow(2 * (1 - u) + (2 * u - 1) * pow(x, eta + 1), power);
}

/* Whether near means something: a number with more values than a handful. */
static bool is_fine(const tn_dim *d)
{
    enum { FEW = 8 };
    return d->kind != TN_DIM_CHOICE && (tn_dim_count(d) == 0 || tn_dim_count(d) > FEW);
}

typedef struct gene_draws { /* what is drawn for a gene, whether it is used or not */
    double swap, mutate, fresh, near;
    bool above, far;
} gene_draws;

static gene_draws draw_gene(const tn_sampler_options *o, tn_draws *draws)
{
    gene_draws l = { .swap = tn_draws_uniform(draws),
                     .mutate = tn_draws_uniform(draws),
                     .fresh = tn_draws_uniform(draws) };
    if (o->uniform) return l;
    l.near = tn_draws_uniform(draws);
    l.above = tn_draws_uniform(draws) < 0.5;
    l.far = tn_draws_uniform(draws) < 0.1;
    return l;
}

/* A gene of a child of both parents (cross) or of the mother alone; NaN where a parent has it switched off. */
static double gene(const tn_sampler_options *o, const tn_dim *d, double mother, double father, bool cross,
                   double mutation, const gene_draws *l)
{
    const double swap = o->swap > 0 ? o->swap : 0.5, eta = eta_of(o), fresh = tn_dim_at(d, l->fresh);
    const bool from_father = cross && l->swap < swap, fine = !o->uniform && is_fine(d), mutates = l->mutate < mutation;
    const double first = from_father ? father : mother, other = from_father ? mother : father;
    double x = !isnan(first) ? first : cross ? other : first;
    if (isnan(x) || (mutates && (!fine || l->far))) return fresh;
    if (!fine) return x;
    double place = tn_dim_place(d, x);
    if (cross && !isnan(other) && !isnan(first))
        place = cross_places(place, tn_dim_place(d, other), eta, l->near, l->above);
    if (mutates) place = mutate_place(place, eta, l->fresh);
    return cross || mutates ? tn_dim_at(d, place) : x;
}

static void breed(const tn_sampler_options *o, const tn_space *s, const pool *p, const tn_observed *seen,
                  tn_draws *draws, double *x)
{
    const double *mother = tournament(p, seen, s->n, draws), *father = tournament(p, seen, s->n, draws);
    const bool cross = tn_draws_uniform(draws) < (o->crossover > 0 ? o->crossover : 0.9);
    const double mutation = o->mutation > 0 ? o->mutation : 1 / (double)s->n;
    for (size_t i = 0; i < s->n; i++) {
        const gene_draws l = draw_gene(o, draws);
        x[i] = tn_space_has(s, x, i) ? gene(o, &s->dims[i], mother[i], father[i], cross, mutation, &l) : NAN;
    }
}

static tn_status draw(const tn_sampler_options *o, const tn_space *space, const tn_observed *seen, int64_t number,
                      double *x)
{
    enum { TRIES = 20 }; /* a child that was tried already teaches nothing; in a small space there may be no other */
    tn_status s = TN_OK;
    pool p = { 0 };
    tn_arena a = { 0 };
    const size_t size = (size_t)population_of(o);
    tn_draws draws = tn_draws_open(o->seed, "lab.nsga2", (uint64_t)number);
    if ((size_t)number < size) {
        tn_prior_draw(space, &draws, x);
        return TN_OK;
    }
    if (seen->n < (size_t)needs(o, number))
        return tn_error(TN_INTERNAL, "nsga2: trial %" PRId64 " was asked for too early", number);
    tn_observed before = *seen;
    before.n = (size_t)needs(o, number);
    TN_TRY(pool_make(&p, size, &a));
    TN_TRY(parents_of(&p, &before, size));
    for (int t = 0; t < TRIES; t++) {
        breed(o, space, &p, &before, &draws, x);
        if (!tn_observed_has(&before, x, space->n)) break;
    }
done:
    tn_arena_free(&a);
    return s;
}

const tn_sampler tn_sampler_nsga2 = {
    .name = "nsga2", .needs = needs, .count = tn_sampler_endless, .check = check, .draw = draw
};
