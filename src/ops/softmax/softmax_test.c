/* softmax: dim = B, T, n, mask (0 none, else below); flag LOG. scale is 0.7 (log: 1). */
#include "optest.h"

#include <math.h>
#include <tenon/ops.h>

enum { LOG = 1 };
enum { NONE, FULL, LAST, ROWS, REAL }; /* masks (B,T,n), (n), (B,1,n), and (B,T,n) of floats */

static const tn_case cases[] = {
    { "rows", { 3, 5, 37 }, 0, 2e-6f, 2e-2f },
    { "one", { 3, 5, 1 }, 0, 2e-6f, 2e-2f },
    { "mask", { 3, 5, 37, FULL }, 0, 2e-6f, 2e-2f },
    { "mask last", { 3, 5, 37, LAST }, 0, 2e-6f, 2e-2f },
    { "mask rows", { 3, 5, 37, ROWS }, 0, 2e-6f, 2e-2f },
    { "mask real", { 3, 5, 37, REAL }, 0, 2e-6f, 2e-2f },
    { "log", { 3, 5, 37 }, LOG, 2e-6f, 2e-2f },
    { "large", { 2, 40, 1031 }, TN_FEW, 2e-6f, 2e-2f },
    { "large log", { 2, 40, 1031 }, LOG | TN_FEW, 2e-6f, 2e-2f },
    { "empty", { 3, 0, 7 }, 0, 2e-6f, 2e-2f },
    { "no columns", { 3, 2, 0 }, 0, 2e-6f, 2e-2f },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const int64_t B = c->dim[0], T = c->dim[1], n = c->dim[2];
    const tn_fill_spec bits = { .kind = TN_FILL_INT, .lo = 0, .hi = 2 };
    const tn_fill_spec real = { .kind = TN_FILL_UNIFORM, .lo = -1, .hi = 1, .constant = true };
    const tn_ref x = tn_test_input(io, tn_shape(B, T, n), (tn_fill_spec){ 0 });
    tn_ref m = TN_NONE;
    if (c->dim[3] == FULL) m = tn_test_input(io, tn_shape(B, T, n), bits);
    if (c->dim[3] == LAST) m = tn_test_input(io, tn_shape(n), bits);
    if (c->dim[3] == ROWS) m = tn_test_input(io, tn_shape(B, 1, n), bits);
    if (c->dim[3] == REAL) m = tn_test_input(io, tn_shape(B, T, n), real);
    tn_test_output(io, c->flags & LOG ? tn_log_softmax(g, x) : tn_softmax(g, x, .scale = 0.7f, .mask = m));
}

/* Every third float of a mask is 0; the first row of a full mask is all 0. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    if (input != 1) return;
    for (int64_t i = 0; i < n; i++)
        if ((c->dim[3] == REAL && i % 3 == 0) || (c->dim[3] == FULL && i < c->dim[2])) x[i] = 0;
}

static bool open_at(const tn_case *c, const tn_oracle *o, int64_t row, int64_t i)
{
    const int64_t T = c->dim[1], n = c->dim[2];
    switch (c->dim[3]) {
    case FULL:
    case REAL: return o->in[1][row * n + i] != 0;
    case LAST: return o->in[1][i] != 0;
    case ROWS: return o->in[1][row / T * n + i] != 0;
    default: return true;
    }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t rows = c->dim[0] * c->dim[1], n = c->dim[2];
    const double scale = c->flags & LOG ? 1 : (double)0.7f;
    for (int64_t r = 0; r < rows; r++) {
        double m = -INFINITY, s = 0;
        const double *x = o->in[0] + r * n;
        double *y = o->out[0] + r * n;
        for (int64_t i = 0; i < n; i++)
            if (open_at(c, o, r, i) && scale * x[i] > m) m = scale * x[i];
        for (int64_t i = 0; i < n; i++) s += y[i] = open_at(c, o, r, i) ? exp(scale * x[i] - m) : 0;
        for (int64_t i = 0; i < n; i++) {
            if (c->flags & LOG) y[i] = scale * x[i] - m - log(s);
            else y[i] = s == 0 ? 0 : y[i] / s;
        }
    }
}

static const tn_op_test test;

static void run_row(const tn_case *c, const float *x, float *y, float *dx, const float *dy)
{
    tn_optest_run(&test, c, 1, (const void *[]){ x }, (void *[]){ y }, (void *[]){ dx }, (const float *const[]){ dy });
}

static void extremes(void)
{
    const tn_case plain = { "", { 1, 1, 4 }, 0, 1, 0 }, logs = { "", { 1, 1, 4 }, LOG, 1, 0 };
    const float far[4] = { 1e30f, 1e30f, -1e30f, -INFINITY }, none[4] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY };
    float y[4], dx[4];
    run_row(&plain, far, y, dx, NULL);
    assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0 && y[3] == 0);
    run_row(&plain, none, y, dx, NULL);
    for (int i = 0; i < 4; i++) assert_true(y[i] == 0 && dx[i] == 0);
    run_row(&logs, none, y, dx, NULL);
    for (int i = 0; i < 4; i++) assert_true(y[i] == -INFINITY);
}

static void weights_and_gradients_sum(void)
{
    enum { N = 300 };
    const tn_case c = { "", { 1, 1, N }, 0, 1, 0 }, shifted = c;
    float x[N], y[N], z[N], dx[N], dy[N];
    double total = 0, slope = 0;
    for (int i = 0; i < N; i++) x[i] = 5 * sinf((float)i), dy[i] = cosf((float)(3 * i));
    run_row(&c, x, y, dx, dy);
    for (int i = 0; i < N; i++) total += (double)y[i], slope += (double)dx[i], x[i] += 8;
    assert_true(fabs(total - 1) < 1e-6 && fabs(slope) < 1e-6);
    run_row(&shifted, x, z, dx, dy);
    for (int i = 0; i < N; i++) assert_true(fabsf(y[i] - z[i]) <= 2e-6f * y[i] + 1e-9f);
}

static const tn_property properties[] = {
    { "extremes", extremes },
    { "weights sum to 1, gradients to 0, shifts do nothing", weights_and_gradients_sum },
};

static const tn_op_test test = { .op = "softmax",
                                 .cases = cases,
                                 .n_cases = TN_COUNT(cases),
                                 .build = build,
                                 .oracle = oracle,
                                 .adjust = adjust,
                                 .properties = properties,
                                 .n_properties = TN_COUNT(properties) };

void tn_tests_softmax(tn_test_list *l) { tn_optest_add(l, &test); }
