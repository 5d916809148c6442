/* clipnorm: rows (dim = index into `numbers`), and what NaN and Inf do in each place. */
#include "optest.h"

#include <tenon/ops.h>

#include <float.h>
#include <math.h>
#include <string.h>

enum { NO_LOSS = 1, THREE_LOSSES = 2 };

static const struct {
    float sumsq, clip, scale, loss;
} numbers[] = {
    { 9, 1, 1, 2 },       /* norm 3 is cut to 1 */
    { 0.25f, 1, 1, 2 },   /* below the limit */
    { 1, 1, 1, 2 },       /* at the limit */
    { 9, 0, 1, 2 },       /* no limit */
    { 6400, 1, 0.1f, 2 }, /* norm 80 * 0.1 */
    { 0, 1, 0.5f, 0 },    /* no gradient at all */
};

static const tn_case cases[] = {
    { "cut", { 0 }, TN_NO_GRAD, 1e-7f, 0 },          { "below", { 1 }, TN_NO_GRAD, 1e-7f, 0 },
    { "at the limit", { 2 }, TN_NO_GRAD, 1e-7f, 0 }, { "no limit", { 3 }, TN_NO_GRAD, 1e-7f, 0 },
    { "scaled", { 4 }, TN_NO_GRAD, 2e-7f, 0 },       { "no loss", { 4 }, TN_NO_GRAD | NO_LOSS, 2e-7f, 0 },
    { "zero", { 5 }, TN_NO_GRAD, 1e-7f, 0 },         { "three losses", { 4 }, TN_NO_GRAD | THREE_LOSSES, 2e-7f, 0 },
};

static tn_ref some(tn_op_io *io, float x, int64_t n)
{
    return tn_test_input(io, tn_shape(n),
                         (tn_fill_spec){ .kind = TN_FILL_CONSTANT, .lo = (double)x, .constant = true });
}

static tn_ref one(tn_op_io *io, float x) { return some(io, x, 1); }

static void build(tn_op_io *io, const tn_case *c)
{
    const int i = (int)c->dim[0];
    const tn_ref sumsq = one(io, numbers[i].sumsq), clip = one(io, numbers[i].clip), scale = one(io, numbers[i].scale);
    const tn_ref loss = c->flags & NO_LOSS ? TN_NONE : some(io, numbers[i].loss, c->flags & THREE_LOSSES ? 3 : 1);
    const tn_clipnorm_result r = tn_clipnorm(tn_test_graph(io), sumsq, clip, scale, .loss = loss);
    tn_test_output(io, r.coefficient);
    tn_test_output(io, r.ok);
    tn_test_output(io, r.norm);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    (void)c;
    const double clip = o->in[1][0], scale = o->in[2][0], norm = sqrt(o->in[0][0]) * scale;
    o->out[0][0] = scale * (clip > 0 && norm > 0 ? fmin(1, clip / norm) : 1);
    o->out[1][0] = 1;
    o->out[2][0] = norm;
}

static const tn_op_test plain = {
    .op = "clipnorm", .cases = cases, .n_cases = TN_COUNT(cases), .build = build, .oracle = oracle
};

typedef struct result {
    float coefficient, norm;
    int32_t ok;
} result;

static result run(float sumsq, float clip, float scale, float loss)
{
    result r = { -1, -1, -1 };
    const void *const in[] = { &sumsq, &clip, &scale, &loss };
    void *const out[] = { &r.coefficient, &r.ok, &r.norm };
    tn_optest_run(&plain, &cases[0], 1, in, out, NULL, NULL);
    return r;
}

static void not_finite_is_refused(void)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < TN_COUNT(bad); i++)
        for (int place = 0; place < 3; place++) {
            const result r = run(place == 0 ? bad[i] : 4, 1, place == 1 ? bad[i] : 1, place == 2 ? bad[i] : 1);
            assert_int_equal(r.ok, 0);
            assert_true(r.coefficient == 0);
        }
    assert_int_equal(run(0, 1, INFINITY, 1).ok, 0);      /* Inf * 0 */
    assert_int_equal(run(FLT_MAX, 1, FLT_MAX, 1).ok, 0); /* the product overflows */
    assert_int_equal(run(FLT_MAX, 1, 1, FLT_MAX).ok, 1); /* the largest numbers are numbers */
    assert_int_equal(run(4, NAN, 1, 1).ok, 1);           /* the limit says nothing about the gradient */
}

/* One bad loss among several is enough, wherever it stands. */
static void each_loss_counts(void)
{
    const tn_case *three = &cases[TN_COUNT(cases) - 1];
    const float sumsq = 4, clip = 1, scale = 1;
    for (int at = 0; at <= 3; at++) {
        float loss[3] = { 1, 2, 3 };
        result r = { -1, -1, -1 };
        const void *const in[] = { &sumsq, &clip, &scale, loss };
        void *const out[] = { &r.coefficient, &r.ok, &r.norm };
        if (at < 3) loss[at] = INFINITY;
        tn_optest_run(&plain, three, 1, in, out, NULL, NULL);
        assert_int_equal(r.ok, at == 3);
    }
}

/* The norm is reported although the loss alone is bad. */
static void norm_is_reported(void)
{
    const result r = run(16, 1, 0.5f, NAN);
    assert_int_equal(r.ok, 0);
    assert_true(r.norm == 2);
    assert_true(isnan(run(NAN, 1, 1, 1).norm));
}

/* Below or at the limit the coefficient is the scale itself, bit for bit; above, norm * coefficient is the limit. */
static void exact(void)
{
    const float scale = 1.f / 3;
    assert_true(run(9, 1, scale, 1).coefficient == scale);
    assert_true(run(4, 1, scale, 1).coefficient == scale);
    for (float sumsq = 1.5f; sumsq < 1e9f; sumsq *= 7.3f) {
        const result r = run(sumsq, 0.7f, 1, 1);
        assert_float_equal(sqrtf(sumsq) * r.coefficient, 0.7f, 2e-7f);
    }
}

static const tn_property properties[] = { { "NaN and Inf are refused in each place", not_finite_is_refused },
                                          { "each of several losses counts", each_loss_counts },
                                          { "the norm is reported when only the loss is bad", norm_is_reported },
                                          { "scale untouched below the limit, exact above", exact } };

static const tn_op_test test = { .op = "clipnorm",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_clipnorm(tn_test_list *l) { tn_optest_add(l, &test); }
