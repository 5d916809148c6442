/* Parzen estimators: densities are ones (their mean over the prior is 1), and draws follow them (the mean of
 * 1/density over draws is 1), with all kinds of dimensions and some switched off; one kernel against numbers worked
 * out from the normal distribution. */
#include "lab/search/parzen.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

static const char *const three[] = { "a", "b", "c" };
static const tn_dim dims[] = {
    { .key = "lr", .kind = TN_DIM_FLOAT, .lo = 1e-4, .hi = 1e-1, .log = true, .when = -1 },
    { .key = "kind", .kind = TN_DIM_CHOICE, .choices = three, .n_choices = 3, .when = -1 },
    { .key = "width", .kind = TN_DIM_INT, .lo = 3, .hi = 40, .log = true, .when = -1 },
    { .key = "layers", .kind = TN_DIM_INT, .lo = 1, .hi = 4, .when = -1 },
    { .key = "slope", .kind = TN_DIM_FLOAT, .lo = -1, .hi = 1, .when = 1, .when_choice = 2 },
};
enum { DIMS = 5, POINTS = 6, DRAWS = 80000 };
static const tn_space space = { dims, DIMS };

static void prior(tn_draws *draws, double *x)
{
    for (size_t d = 0; d < DIMS; d++) x[d] = tn_dim_at(&dims[d], tn_draws_uniform(draws));
    tn_space_apply_when(&space, x);
}

static void is_a_density(void **state)
{
    (void)state;
    tn_draws draws = tn_draws_open(1, "parzen", 0);
    double x[POINTS * DIMS], weight[POINTS], at[DIMS], under = 0, over = 0;
    size_t kinds[3] = { 0 };
    for (size_t i = 0; i < POINTS; i++) {
        prior(&draws, x + i * DIMS);
        weight[i] = 0.5 + tn_draws_uniform(&draws);
    }
    tn_parzen p;
    tn_arena arena = { 0 };
    assert_ok(tn_parzen_make(&space, x, weight, POINTS, 0.05, &arena, &p));
    for (int t = 0; t < DRAWS; t++) {
        prior(&draws, at);
        under += exp(tn_parzen_log(&p, at)) / DRAWS;
        tn_parzen_draw(&p, &draws, at);
        over += exp(-tn_parzen_log(&p, at)) / DRAWS;
        assert_true(isnan(at[4]) == (at[1] != 2) && at[3] == floor(at[3]));
        kinds[(int)at[1]]++;
    }
    if (fabs(under - 1) > 0.03 || fabs(over - 1) > 0.03)
        fail_msg("mean density %.4f, mean of its inverse over draws %.4f", under, over);
    assert_true(kinds[0] && kinds[1] && kinds[2]);
    tn_arena_free(&arena);
}

/* One point at 1/2 of a line: the spread with the prior's point is sqrt(1/24), two points narrow it by 2^-1/5, and
 * the kernel loses what lies beyond both ends. The prior has half of the weight. */
static void one_kernel(void **state)
{
    (void)state;
    const tn_dim line = { .key = "v", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 10, .when = -1 };
    const tn_space s = { &line, 1 };
    const double x = 5, weight = 1, sigma = sqrt(1.0 / 24) * pow(2, -0.2), inside = erf(0.5 / sigma / sqrt(2));
    tn_parzen p;
    tn_arena arena = { 0 };
    assert_ok(tn_parzen_make(&s, &x, &weight, 1, 0.01, &arena, &p));
    for (int i = 0; i <= 10; i++) {
        const double at = i, z = (at / 10 - 0.5) / sigma;
        const double want = 0.5 + 0.5 * exp(-z * z / 2) / (sigma * sqrt(2 * 3.14159265358979) * inside);
        assert_true(fabs(exp(tn_parzen_log(&p, &at)) - want) < 1e-10);
    }
    tn_arena_free(&arena);
    /* A choice among three: one point and the prior give each choice a share of 1/2 beside the point's 1, so the
     * kernel keeps its own 0.4 of the time; the prior's half comes on top. */
    const tn_space choice = { &dims[1], 1 };
    const double own = 1, other = 0;
    assert_ok(tn_parzen_make(&choice, &own, &weight, 1, 0.01, &arena, &p));
    assert_true(fabs(exp(tn_parzen_log(&p, &own)) - (0.5 + 0.5 * (0.6 + 0.4 * 3))) < 1e-12);
    assert_true(fabs(exp(tn_parzen_log(&p, &other)) - (0.5 + 0.5 * 0.6)) < 1e-12);
    tn_arena_free(&arena);
    assert_ok(tn_parzen_make(&s, &x, &weight, 0, 0.01, &arena, &p)); /* no point: the prior alone */
    assert_true(fabs(tn_parzen_log(&p, &x)) < 1e-15);
    tn_arena_free(&arena);
}

void tn_tests_parzen(tn_test_list *l)
{
    tn_test_add(l, is_a_density, NULL, "lab/parzen: densities add up and draws follow them");
    tn_test_add(l, one_kernel, NULL, "lab/parzen: one kernel by hand");
}
