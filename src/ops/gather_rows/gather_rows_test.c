/* gather_rows: rows (dim = R, n, width, live), and how it fits together with scatter_rows. With LIVE the last input
 * counts entries that are alive; the rest of the index is -1, which would be an error. */
#include "optest.h"

#include <tenon/ops.h>

#include <string.h>

enum { LIVE = 1, ROUND_TRIP = 2, CUBES = 4, INTEGERS = 8 };
enum { X, INDEX, COUNT };

static const tn_case gather_cases[] = {
    { "small", { 6, 9, 5 }, 0, 1e-6f, 2e-2f },
    { "cubes", { 6, 9, 5 }, CUBES, 1e-6f, 2e-2f },
    { "integers", { 6, 9, 5 }, INTEGERS | TN_NO_GRAD, 1e-30f, 0 },
    { "large", { 300, 500, 150 }, TN_FEW, 1e-6f, 2e-2f },
    { "no entries", { 6, 0, 5 }, 0, 1e-6f, 2e-2f },
    { "no columns", { 6, 4, 0 }, 0, 1e-6f, 2e-2f },
    { "live, and back", { 6, 9, 5, 4 }, LIVE | ROUND_TRIP, 1e-6f, 2e-2f },
    { "nothing alive, and back", { 6, 9, 5, 0 }, LIVE | ROUND_TRIP, 1e-6f, 2e-2f },
};

static tn_dims row_dims(const tn_case *c, int64_t rows)
{
    return c->flags & CUBES ? tn_shape(rows, c->dim[2], 2, 3) : tn_shape(rows, c->dim[2]);
}

static tn_ref build_index(tn_op_io *io, const tn_case *c)
{
    const tn_ref index =
        tn_test_input(io, tn_shape(c->dim[1]), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = (double)c->dim[0] });
    if (!(c->flags & LIVE)) return index;
    return tn_live(tn_test_graph(io), index,
                   tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
}

static void build_gather(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_fill_spec wide = { .kind = TN_FILL_INT, .lo = -2e9, .hi = 2e9 };
    const tn_ref x = tn_test_input(io, row_dims(c, c->dim[0]), c->flags & INTEGERS ? wide : (tn_fill_spec){ 0 });
    const tn_ref index = build_index(io, c), y = tn_gather_rows(g, x, index);
    tn_test_output(io, c->flags & ROUND_TRIP ? tn_scatter_rows(g, y, index, c->dim[0]) : y);
}

/* For properties: the op whose gradient it is. */
static void build_scatter(tn_op_io *io, const tn_case *c)
{
    const tn_ref rows = tn_test_input(io, row_dims(c, c->dim[1]), (tn_fill_spec){ 0 }), index = build_index(io, c);
    tn_test_output(io, tn_scatter_rows(tn_test_graph(io), rows, index, c->dim[0]));
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input == COUNT) x[0] = (double)c->dim[3];
    for (int64_t i = c->dim[3]; input == INDEX && (c->flags & LIVE) && i < n; i++) x[i] = -1;
}

static int64_t entries(const tn_case *c, const tn_oracle *o) { return c->flags & LIVE ? c->dim[3] : o->n_in[INDEX]; }

static int64_t width(const tn_case *c) { return c->dim[2] * (c->flags & CUBES ? 6 : 1); }

static void oracle_gather(const tn_case *c, tn_oracle *o)
{
    const int64_t w = width(c);
    for (int64_t i = 0; i < entries(c, o); i++)
        for (int64_t j = 0; j < w; j++) {
            const int64_t r = (int64_t)o->in[INDEX][i];
            if (c->flags & ROUND_TRIP) o->out[0][r * w + j] += o->in[X][r * w + j];
            else o->out[0][i * w + j] = o->in[X][r * w + j];
        }
}

static const tn_op_test gather_test;
static const tn_op_test scatter_test = { .op = "scatter_rows", .build = build_scatter };

/* The gradient of gather is scatter, bit for bit, and the other way round. */
static void adjoint(void)
{
    enum { R = 5, N = 12, W = 70 };
    const tn_case c = { "property", { R, N, W }, 0, 1, 0 };
    static float x[R * W], rows[N * W], y[N * W], dx[R * W], s[R * W], drows[N * W];
    int32_t index[N];
    for (int i = 0; i < N; i++) index[i] = (7 * i + 3) % R;
    for (int i = 0; i < R * W; i++) x[i] = 1.f / (float)(i + 1);
    for (int i = 0; i < N * W; i++) rows[i] = 1.f / (float)(3 * i + 2);
    const void *in_g[] = { x, index }, *in_s[] = { rows, index };
    void *out_g[] = { y }, *out_s[] = { s }, *grad_g[] = { dx, NULL }, *grad_s[] = { drows, NULL };
    const float *cot_g[] = { rows }, *cot_s[] = { x };
    tn_optest_run(&gather_test, &c, 2, in_g, out_g, grad_g, cot_g);
    tn_optest_run(&scatter_test, &c, 1, in_s, out_s, grad_s, cot_s);
    assert_memory_equal(dx, s, sizeof s);
    assert_memory_equal(drows, y, sizeof y);
}

/* Scattering to a permutation and gathering back changes nothing: gather undoes what scatter's gradient undoes. */
static void permutation(void)
{
    enum { N = 12, W = 3 };
    const tn_case c = { "property", { N, N, W }, 0, 1, 0 };
    float x[N * W], y[N * W], back[N * W];
    int32_t index[N];
    for (int i = 0; i < N; i++) index[i] = (5 * i + 1) % N;
    for (int i = 0; i < N * W; i++) x[i] = (float)i + 0.1f;
    const void *in[] = { x, index }, *again[] = { y, index };
    void *out[] = { y }, *out_back[] = { back };
    tn_optest_run(&gather_test, &c, 1, in, out, NULL, NULL);
    tn_optest_run(&scatter_test, &c, 1, again, out_back, NULL, NULL);
    assert_memory_equal(back, x, sizeof x);
}

static const tn_property properties[] = { { "gather and scatter are adjoint", adjoint },
                                          { "a permutation and back", permutation } };

static const tn_op_test gather_test = {
    .op = "gather_rows",
    .cases = gather_cases,
    .n_cases = TN_COUNT(gather_cases),
    .build = build_gather,
    .oracle = oracle_gather,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_gather_rows(tn_test_list *l) { tn_optest_add(l, &gather_test); }
