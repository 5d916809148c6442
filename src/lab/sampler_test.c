/* Samplers as a table, the random one and the grid: same bits for the same number, the prior's shares, every point of a grid once. */
#include "lab/sampler.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

static const char *const act[] = { "relu", "gelu" };
static const tn_dim dims[] = {
    { .key = "lr", .kind = TN_DIM_FLOAT, .lo = 1e-4, .hi = 1e-1, .log = true, .when = -1 },
    { .key = "act", .kind = TN_DIM_CHOICE, .choices = act, .n_choices = 2, .when = -1 },
    { .key = "width", .kind = TN_DIM_INT, .lo = 4, .hi = 512, .log = true, .when = -1 },
    { .key = "slope", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = 1, .when_choice = 1 },
};
static const tn_space space = { dims, 4 };

static void table(void **state)
{
    (void)state;
    size_t n = 0;
    for (; tn_sampler_name(n); n++) {
        const tn_sampler *s = tn_sampler_find(tn_sampler_name(n));
        assert_non_null(s);
        assert_string_equal(s->name, tn_sampler_name(n));
        assert_true(s->needs && s->count && s->check && s->draw);
    }
    assert_true(n >= 1);
    assert_null(tn_sampler_find("annealing"));
}

static void random_draws(void **state)
{
    (void)state;
    const tn_sampler *s = tn_sampler_find("random");
    const tn_sampler_options o = { .seed = 42, .objectives = 1 }, other = { .seed = 43, .objectives = 1 };
    const tn_seen none = { 0 };
    enum { N = 20000 };
    double mean[3] = { 0 }, gelu = 0, x[4], again[4];
    assert_ok(s->check(&o, &space));
    for (int64_t i = 0; i < N; i++) {
        assert_int_equal(s->needs(&o, i), 0);
        assert_ok(s->draw(&o, &space, &none, i, x));
        assert_ok(s->draw(&o, &space, &none, i, again));
        assert_memory_equal(x, again, sizeof x);
        assert_true(isnan(x[3]) == (x[1] == 0));
        for (size_t d = 0; d < 3; d++) mean[d] += tn_dim_place(&dims[d], x[d]) / N;
        gelu += x[1] / N;
        assert_ok(s->draw(&other, &space, &none, i, again));
        assert_true(x[0] != again[0]);
    }
    for (size_t d = 0; d < 3; d++) assert_true(fabs(mean[d] - 0.5) < 0.01);
    assert_true(fabs(gelu - 0.5) < 0.012);
}

void tn_tests_sampler(tn_test_list *l)
{
    tn_test_add(l, table, NULL, "lab/sampler: the table");
    tn_test_add(l, random_draws, NULL, "lab/sampler: random, same bits and even shares");
}
