/* Every allocation of the lab's functions made to fail in turn: each call says TN_MEMORY or succeeds, and leaves
 * nothing behind (sanitizers look). */
#include "base/alloc.h"
#include "lab/statistics/importance.h"
#include "lab/search/draws.h"
#include "lab/search/pareto.h"
#include "lab/search/pruner.h"
#include "lab/search/sampler.h"
#include "lab/statistics/verdict.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

enum { N = 40, DIMS = 2, M = 3 };

static const char *const three[] = { "a", "b", "c" };
static const tn_dim dims[DIMS] = {
    { .key = "v", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = -1 },
    { .key = "k", .kind = TN_DIM_CHOICE, .choices = three, .n_choices = 3, .when = -1 },
};
static const tn_space space = { dims, DIMS };

typedef struct data {
    double x[N * DIMS], y[N * M];
} data;

static tn_status draw(const char *name, const data *d)
{
    const tn_sampler_options o = { .seed = 1, .population = 10, .objectives = M };
    const tn_observed seen = { .n = N, .objectives = M, .x = d->x, .y = d->y };
    double x[DIMS];
    return tn_sampler_find(name)->draw(&o, &space, &seen, N, x);
}

static tn_status do_tpe(const data *d) { return draw("tpe", d); }
static tn_status do_nsga2(const data *d) { return draw("nsga2", d); }

static tn_status do_ranks(const data *d)
{
    int rank[N];
    return tn_pareto_ranks(d->y, N, M, rank);
}

static tn_status do_front(const data *d)
{
    bool on[N];
    return tn_pareto_front(d->y, N, M, on);
}

static tn_status do_volume(const data *d)
{
    double v;
    return tn_hypervolume(d->y, N, M, (const double[]){ 1, 1, 1 }, &v);
}

static tn_status do_values(const data *d)
{
    double value, values[N];
    return tn_pruner_values(d->y, d->y + M, N - 1, M, &value, values);
}

static tn_status do_importance(const data *d)
{
    double part[DIMS];
    return tn_importance(&space, &(tn_observed){ .n = N, .objectives = M, .x = d->x, .y = d->y }, 0, 1, part, NULL);
}

static tn_status do_holm(const data *d)
{
    double adjusted[N];
    return tn_holm(d->y, N, adjusted);
}

static tn_status do_parse(const data *d)
{
    (void)d;
    tn_arena arena = { 0 };
    tn_dim dim = { .key = "k" };
    const tn_status s = tn_dim_parse("[a, b, c]", &arena, &dim);
    tn_arena_free(&arena);
    return s;
}

static const struct call {
    const char *name;
    tn_status (*run)(const data *d);
} calls[] = {
    { "tpe", do_tpe },
    { "nsga2", do_nsga2 },
    { "ranks", do_ranks },
    { "front", do_front },
    { "hypervolume", do_volume },
    { "values", do_values },
    { "importance", do_importance },
    { "holm", do_holm },
    { "a list of choices", do_parse },
};

static void every_allocation_fails(void **state)
{
    const struct call *c = *state;
    data d;
    tn_draws draws = tn_draws_open(1, "memory", 0);
    for (size_t i = 0; i < N * M; i++) d.y[i] = tn_draws_uniform(&draws);
    for (size_t i = 0; i < N * DIMS; i++) d.x[i] = i % 2 ? (double)tn_draws_below(&draws, 3) : tn_draws_uniform(&draws);
    uint64_t failed = 0;
    for (uint64_t nth = 1;; nth++) {
        tn_alloc_fail_at(nth);
        const tn_status s = c->run(&d);
        tn_alloc_fail_at(0);
        if (s == TN_OK) break;
        assert_int_equal(s, TN_MEMORY);
        assert_true(++failed < 10000);
    }
    assert_true(failed > 0);
}

void tn_tests_lab_memory(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        tn_test_add(l, every_allocation_fails, &calls[i], "lab/memory: %s without it", calls[i].name);
}
