/* sumsq: rows (dim = lengths of three inputs), NaN and Inf, and sums f32 would lose. */
#include "optest.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>

static const tn_case cases[] = {
    { "short", { 1, 5, 17 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "tiles", { 16384, 16385, 50003 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "part empty", { 0, 33, 0 }, TN_NO_GRAD, 1e-7f, 1e-7f },
    { "empty", { 0, 0, 0 }, TN_NO_GRAD, 1e-7f, 1e-7f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_ref x[3];
    for (int i = 0; i < 3; i++) x[i] = tn_test_input(io, tn_shape(c->dim[i]), (tn_fill_spec){ .constant = true });
    tn_test_output(io, tn_sumsq(tn_test_graph(io), x, 3));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    (void)c;
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0; j < o->n_in[i]; j++) o->out[0][0] += o->in[i][j] * o->in[i][j];
}

static const tn_op_test plain = {
    .op = "sumsq", .cases = cases, .n_cases = TN_COUNT(cases), .build = build, .oracle = oracle
};

enum { N = 40000 };

static float sum_of(float *x)
{
    static const tn_case c = { "one", { N, 0, 0 }, TN_NO_GRAD, 1, 0 };
    float y = -1, none = 0;
    const void *const in[] = { x, &none, &none };
    void *const out[] = { &y };
    tn_optest_run(&plain, &c, 2, in, out, NULL, NULL);
    return y;
}

static float *filled(float value)
{
    float *x = malloc(sizeof *x * N);
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = value;
    return x;
}

/* Wherever it lies (in a vector, in a tail, in the last tile), a number that is not finite shows. */
static void not_finite_shows(void)
{
    static const int at[] = { 0, 15, 16383, 16384, N - 1 };
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    float *x = filled(1);
    for (size_t i = 0; i < TN_COUNT(at); i++)
        for (size_t k = 0; k < TN_COUNT(bad); k++) {
            x[at[i]] = bad[k];
            const float y = sum_of(x);
            assert_true(k == 0 ? isnan(y) : isinf(y) && y > 0);
            x[at[i]] = 1;
        }
    free(x);
}

/* One large number and many small ones: f32 would drop every small one. */
static void small_numbers_count(void)
{
    float *x = filled(1);
    x[0] = 8192; /* 2^26: the spacing of f32 there is 8 */
    assert_float_equal(sum_of(x), 67108864.f + N - 1, 4);
    free(x);
}

static void too_large_is_infinite(void)
{
    float *x = filled(1e18f);
    assert_true(isinf(sum_of(x)));
    free(x);
}

static const tn_property properties[] = { { "NaN and Inf show wherever they lie", not_finite_shows },
                                          { "small numbers beside large ones count", small_numbers_count },
                                          { "beyond f32 it is Inf", too_large_is_infinite } };

static const tn_op_test test = { .op = "sumsq",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_sumsq(tn_test_list *l) { tn_optest_add(l, &test); }
