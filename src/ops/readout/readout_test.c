/* readout: dim = rows as A, B, then W and group; the formula in double, and properties. */
#include "optest.h"

#include "plan/graph.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { SKIP = 1, GAIN = 2, SIGMOID = 4, GELU = 8, PARTS = 16, PLAIN = 32, SCALED = 64, LIVE = 128, ALL = SKIP | GAIN };

static const char *const switches_off[] = { "opt.readout", NULL };

static const tn_case cases[] = {
    { "norm", { 3, 2, 24, 8 }, ALL, 1e-5f, 2e-2f },
    { "norm, odd group", { 3, 2, 21, 7 }, ALL, 1e-5f, 2e-2f },
    { "norm, no gain", { 2, 3, 32, 16 }, SKIP | SCALED, 1e-5f, 2e-2f },
    { "norm, no skip", { 2, 3, 32, 16 }, GAIN | GELU, 1e-5f, 2e-2f },
    { "norm, whole row", { 3, 3, 512, 512 }, ALL | TN_FEW, 1e-5f, 2e-2f },
    { "norm, 256", { 3, 3, 512, 256 }, ALL | TN_FEW, 1e-5f, 2e-2f },
    { "norm, 64", { 5, 31, 512, 64 }, ALL | SCALED | TN_FEW, 1e-5f, 2e-2f },
    { "norm, wide rows", { 1, 5, 4160, 64 }, ALL | TN_FEW, 1e-5f, 2e-2f },
    { "norm, many rows", { 70, 30, 48, 16 }, ALL | SIGMOID | TN_FEW, 1e-5f, 2e-2f },
    { "norm, parts", { 3, 7, 64, 32 }, ALL | PARTS, 1e-5f, 2e-2f },
    { "skip", { 3, 5, 37, 0 }, SKIP, 1e-5f, 2e-2f },
    { "skip, vectors", { 9, 5, 64, 0 }, SKIP | SCALED, 1e-5f, 2e-2f },
    { "skip, parts", { 9, 5, 40, 0 }, SKIP | PARTS, 1e-5f, 2e-2f },
    { "skip, wide rows", { 1, 3, 2600, 0 }, SKIP | TN_FEW, 1e-5f, 2e-2f },
    { "bare", { 2, 3, 19, 0 }, 0, 1e-5f, 2e-2f },
    { "norm, plain", { 3, 2, 24, 8 }, ALL | SCALED | PLAIN, 1e-5f, 5e-2f },
    { "skip, plain", { 3, 5, 37, 0 }, SKIP | PLAIN, 1e-5f, 5e-2f },
    { "no rows", { 0, 2, 24, 8 }, ALL, 1e-5f, 2e-2f },
    { "no columns", { 2, 2, 0, 0 }, SKIP, 1e-5f, 2e-2f },
};

static float scale_of(const tn_case *c) { return c->flags & SCALED ? 0.3f : 1; }

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_dims dims = tn_shape(c->dim[0], c->dim[1], c->dim[2]), vector = tn_shape(c->dim[2]);
    const tn_fill_spec normal = { 0 };
    tn_ref s = tn_test_input(io, dims, normal), z = TN_NONE, x = TN_NONE, skip = TN_NONE, gain = TN_NONE;
    if (c->flags & PLAIN) g->options.off = switches_off;
    if (c->flags & PARTS) {
        const tn_ref both = tn_scale(g, tn_test_input(io, tn_shape(c->dim[0], c->dim[1], 2 * c->dim[2]), normal), 1);
        z = tn_part(g, both, 0, 2);
        x = tn_part(g, both, 1, 2);
    } else {
        z = tn_test_input(io, dims, normal);
        if (c->flags & SKIP) x = tn_test_input(io, dims, normal);
    }
    if (c->flags & SKIP) skip = tn_test_input(io, vector, normal);
    if (c->flags & GAIN) gain = tn_test_input(io, vector, normal);
    if (c->flags & LIVE)
        s = tn_live(g, s, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    tn_test_output(io, tn_readout(g, s, z, .x = x, .skip = skip, .gain = gain, .scale = scale_of(c), .group = c->dim[3],
                                  .act = c->flags & SIGMOID ? TN_GATE_SIGMOID
                                         : c->flags & GELU  ? TN_GATE_GELU
                                                            : TN_GATE_SILU));
}

static double act(uint32_t flags, double z)
{
    if (flags & SIGMOID) return 1 / (1 + exp(-z));
    if (flags & GELU) return 0.5 * z * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    return z / (1 + exp(-z));
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t W = c->dim[2], N = c->dim[3] ? c->dim[3] : 1;
    const bool parts = c->flags & PARTS;
    int next = parts ? 2 : c->flags & SKIP ? 3 : 2;
    const double *x = c->flags & SKIP ? parts ? o->in[1] + W : o->in[2] : NULL;
    const double *skip = c->flags & SKIP ? o->in[next++] : NULL, *gain = c->flags & GAIN ? o->in[next++] : NULL;
    for (int64_t row = 0; row < c->dim[0] * c->dim[1]; row++)
        for (int64_t from = 0; from < W; from += N) {
            const int64_t at = row * (parts ? 2 * W : W);
            double s[4160], square = 0;
            for (int64_t i = 0; i < N; i++) {
                s[i] = (double)scale_of(c) * o->in[0][row * W + from + i] + (x ? skip[from + i] * x[at + from + i] : 0);
                square += s[i] * s[i] / (double)N;
            }
            for (int64_t i = 0; i < N; i++) {
                const double n = c->dim[3] ? s[i] / sqrt(square + 1e-6) * (gain ? gain[from + i] : 1) : s[i];
                o->out[0][row * W + from + i] = n * act(c->flags, o->in[1][at + from + i]);
            }
        }
}

/* --- properties -------------------------------------------------------------------------------------------------- */

enum { R = 6, W = 48, N = 16 };

static const tn_op_test test;

static void draw(float *x, int n, float phase)
{
    for (int i = 0; i < n; i++) x[i] = sinf((float)i * 1.7f + phase) * 2;
}

/* Other numbers in one group leave the bits of all others as they are. */
static void groups_apart(void)
{
    const tn_case c = { "property", { R, 1, W, N }, GAIN, 1, 0 };
    float s[R * W], z[R * W], gain[W], y[2][R * W];
    draw(s, R * W, 0), draw(z, R * W, 1), draw(gain, W, 2);
    for (int k = 0; k < 2; k++) {
        tn_optest_run(&test, &c, 1, (const void *[]){ s, z, gain }, (void *[]){ y[k] }, NULL, NULL);
        for (int i = 0; i < N; i++) s[2 * W + N + i] = i ? 5 : NAN;
    }
    for (int i = 0; i < R * W; i++) {
        const bool hit = i / N == (2 * W + N) / N;
        assert_true(hit ? isnan(y[1][i]) : memcmp(&y[0][i], &y[1][i], sizeof(float)) == 0);
    }
}

/* Rows that are not alive, here NaN, reach neither skip nor gain; live ones give what a shorter tensor gives. */
static void live_rows_only(void)
{
    const int32_t live = 4;
    const tn_case part = { "property", { R, 1, W, N }, ALL | LIVE, 1, 0 },
                  whole = { "property", { live, 1, W, N }, ALL, 1, 0 };
    float s[R * W], z[R * W], x[R * W], skip[W], gain[W], y[2][R * W], d[2][3][R * W], dskip[2][W], dgain[2][W];
    draw(s, R * W, 0), draw(z, R * W, 1), draw(x, R * W, 2), draw(skip, W, 3), draw(gain, W, 4);
    for (int i = live * W; i < R * W; i++) s[i] = z[i] = x[i] = NAN;
    const void *in[] = { s, z, x, skip, gain, &live };
    for (int k = 0; k < 2; k++) {
        void *out[] = { y[k] }, *grad[] = { d[k][0], d[k][1], d[k][2], dskip[k], dgain[k], NULL };
        tn_optest_run(&test, k ? &whole : &part, 2, in, out, grad, NULL);
    }
    assert_memory_equal(y[0], y[1], sizeof(float) * (size_t)live * W);
    for (int i = 0; i < 3; i++) assert_memory_equal(d[0][i], d[1][i], sizeof(float) * (size_t)live * W);
    assert_memory_equal(dskip[0], dskip[1], sizeof dskip[0]);
    assert_memory_equal(dgain[0], dgain[1], sizeof dgain[0]);
    for (int i = 0; i < W; i++) assert_false(isnan(dskip[0][i]) || isnan(dgain[0][i]));
}

static const tn_property properties[] = {
    { "groups do not see each other", groups_apart },
    { "only live rows count", live_rows_only },
};

static const tn_op_test test = {
    .op = "readout",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_readout(tn_test_list *l) { tn_optest_add(l, &test); }
