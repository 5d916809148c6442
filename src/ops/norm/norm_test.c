/* norm: rows (dim = rows as A, B, then d), the formulas in double, and properties. */
#include "optest.h"

#include "base/rng.h"
#include "plan/graph.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER = 1, RESIDUAL = 2, WEIGHT = 4, BIAS = 8, FAR = 16, LIVE = 32, PLAIN = 64, AFFINE = WEIGHT | BIAS };

static const char *const switches_off[] = { "opt.norm", NULL };

static const tn_case cases[] = {
    { "rms", { 3, 2, 7 }, WEIGHT, 1e-5f, 2e-2f },
    { "rms, bare", { 1, 3, 40 }, 0, 1e-5f, 2e-2f },
    { "rms, residual", { 3, 2, 33 }, WEIGHT | RESIDUAL, 1e-5f, 2e-2f },
    { "rms, many rows", { 70, 30, 48 }, WEIGHT | RESIDUAL | TN_FEW, 1e-5f, 2e-2f },
    { "rms, long rows", { 1, 4, 20000 }, WEIGHT | TN_FEW, 1e-5f, 0 },
    { "layer", { 3, 2, 7 }, LAYER | AFFINE, 1e-5f, 2e-2f },
    { "layer, bare", { 1, 3, 40 }, LAYER, 1e-5f, 2e-2f },
    { "layer, weight only", { 2, 3, 19 }, LAYER | WEIGHT, 1e-5f, 2e-2f },
    { "layer, bias only", { 2, 3, 19 }, LAYER | BIAS, 1e-5f, 2e-2f },
    { "layer, residual", { 3, 2, 33 }, LAYER | AFFINE | RESIDUAL, 1e-5f, 2e-2f },
    { "layer, many rows", { 70, 30, 48 }, LAYER | AFFINE | RESIDUAL | TN_FEW, 1e-5f, 2e-2f },
    { "layer, mean 1e3", { 3, 4, 100 }, LAYER | AFFINE | FAR, 1e-5f, 0 },
    { "layer, long rows", { 1, 4, 20000 }, LAYER | AFFINE | TN_FEW, 1e-5f, 0 },
    { "rms, 1024 long", { 3, 3, 1024 }, WEIGHT | RESIDUAL | TN_FEW, 1e-5f, 2e-2f },
    { "rms, 512 long", { 3, 7, 512 }, WEIGHT | TN_FEW, 1e-5f, 2e-2f },
    { "layer, 1000 long", { 3, 3, 1000 }, LAYER | AFFINE | RESIDUAL | TN_FEW, 1e-5f, 2e-2f },
    { "layer, 520 long", { 3, 7, 520 }, LAYER | AFFINE | TN_FEW, 1e-5f, 2e-2f },
    { "layer, 1992 long", { 1, 3, 1992 }, LAYER | AFFINE | RESIDUAL | TN_FEW, 1e-5f, 2e-2f },
    { "no rows", { 0, 2, 7 }, LAYER | AFFINE | RESIDUAL, 1e-5f, 2e-2f },
    { "rms, plain", { 3, 2, 33 }, WEIGHT | RESIDUAL | PLAIN, 1e-5f, 5e-2f },
    { "rms, bare, plain", { 3, 2, 33 }, PLAIN, 1e-5f, 5e-2f },
    { "layer, plain", { 3, 2, 33 }, LAYER | AFFINE | RESIDUAL | PLAIN, 1e-5f, 5e-2f },
    { "no columns", { 3, 2, 0 }, LAYER | AFFINE | RESIDUAL, 1e-5f, 2e-2f },
};

static double eps_of(const tn_case *c) { return c->flags & LAYER ? 1e-5 : 1e-6; }

static void build(tn_op_io *io, const tn_case *c)
{
    tn_graph *g = tn_test_graph(io);
    const tn_dims dims = tn_shape(c->dim[0], c->dim[1], c->dim[2]), vector = tn_shape(c->dim[2]);
    const tn_fill_spec far = { .kind = TN_FILL_UNIFORM, .lo = 998, .hi = 1002 }, near = { 0 };
    tn_ref x = tn_test_input(io, dims, c->flags & FAR ? far : near), r = TN_NONE, w = TN_NONE, b = TN_NONE, sum;
    if (c->flags & PLAIN) g->options.off = switches_off;
    if (c->flags & RESIDUAL) r = tn_test_input(io, dims, near);
    if (c->flags & WEIGHT) w = tn_test_input(io, vector, near);
    if (c->flags & BIAS) b = tn_test_input(io, vector, near);
    if (c->flags & LIVE)
        x = tn_live(g, x, tn_test_input(io, tn_shape(1), (tn_fill_spec){ .kind = TN_FILL_INT, .hi = 1 }));
    tn_test_output(io, c->flags & LAYER ? tn_layernorm(g, x, w, b, .residual = r, .sum = &sum)
                                        : tn_rmsnorm(g, x, w, .residual = r, .sum = &sum));
    if (c->flags & RESIDUAL) tn_test_output(io, sum);
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t d = c->dim[2];
    int next = 1;
    const double *r = c->flags & RESIDUAL ? o->in[next++] : NULL, *w = c->flags & WEIGHT ? o->in[next++] : NULL;
    const double *b = c->flags & BIAS ? o->in[next++] : NULL;
    for (int64_t i = 0; i < c->dim[0] * c->dim[1]; i++) {
        double mean = 0, square = 0;
        for (int64_t j = 0; j < d; j++) mean += (o->in[0][i * d + j] + (r ? r[i * d + j] : 0)) / (double)d;
        if (!(c->flags & LAYER)) mean = 0;
        for (int64_t j = 0; j < d; j++) {
            const double s = o->in[0][i * d + j] + (r ? r[i * d + j] : 0);
            if (r) o->out[1][i * d + j] = s;
            square += (s - mean) * (s - mean) / (double)d;
        }
        for (int64_t j = 0; j < d; j++) {
            const double s = o->in[0][i * d + j] + (r ? r[i * d + j] : 0);
            o->out[0][i * d + j] = (s - mean) / sqrt(square + eps_of(c)) * (w ? w[j] : 1) + (b ? b[j] : 0);
        }
    }
}

/* --- properties -------------------------------------------------------------------------------------------------- */

enum { R = 6, D = 50 };

static const tn_op_test test;

static void draw(float *x, int n, uint64_t stream)
{
    for (int i = 0; i < n; i++) x[i] = tn_rng_normal((tn_rng){ 8, stream }, (uint64_t)i);
}

static void run(uint32_t flags, const float *x, float *y)
{
    const tn_case c = { "property", { R, 1, D }, flags, 1, 0 };
    const void *in[] = { x };
    void *out[] = { y };
    tn_optest_run(&test, &c, 1, in, out, NULL, NULL);
}

static void close_to(const float *x, const float *ref, int n, float tolerance)
{
    float scale = 1e-20f;
    for (int i = 0; i < n; i++) scale = fmaxf(scale, fabsf(ref[i]));
    for (int i = 0; i < n; i++)
        if (!(fabsf(x[i] - ref[i]) <= tolerance * scale))
            fail_msg("element %d: %.9g instead of %.9g", i, (double)x[i], (double)ref[i]);
}

static void scale_free(void)
{
    float x[R * D], y[2][R * D];
    draw(x, R * D, 1);
    for (int k = 0; k < 2; k++) {
        run(0, x, y[k]);
        for (int i = 0; i < R * D; i++) x[i] *= 37;
    }
    close_to(y[1], y[0], R * D, 2e-6f); /* eps is 1e-6 of the mean square at first */
}

static void shift_free(void)
{
    float x[R * D], y[2][R * D];
    draw(x, R * D, 2);
    for (int i = 0; i < R * D; i++) x[i] = roundf(x[i] * 1024) / 1024; /* so that the shift is exact */
    for (int k = 0; k < 2; k++) {
        run(LAYER, x, y[k]);
        for (int i = 0; i < R * D; i++) x[i] += 500;
    }
    close_to(y[1], y[0], R * D, 2e-6f);
}

/* Other numbers in one row leave the bits of all other rows as they are. */
static void rows_apart(void)
{
    float x[R * D], y[2][R * D];
    for (uint32_t layer = 0; layer <= LAYER; layer++) {
        draw(x, R * D, 3);
        run(layer, x, y[0]);
        for (int j = 0; j < D; j++) x[2 * D + j] = j ? 5 : NAN;
        run(layer, x, y[1]);
        assert_memory_equal(y[1], y[0], sizeof(float) * 2 * D);
        assert_memory_equal(y[1] + 3 * D, y[0] + 3 * D, sizeof(float) * (R - 3) * D);
        assert_true(isnan(y[1][2 * D + 1]));
    }
}

/* Rows that are not alive, here NaN, reach neither weights nor bias; live ones give what a shorter tensor gives. */
static void live_rows_only(void)
{
    const int32_t live = 4;
    const tn_case part = { "property", { R, 1, D }, LAYER | AFFINE | RESIDUAL | LIVE, 1, 0 };
    const tn_case whole = { "property", { live, 1, D }, LAYER | AFFINE | RESIDUAL, 1, 0 };
    float x[R * D], r[R * D], w[D], b[D], y[2][R * D], s[2][R * D], dx[2][R * D], dr[2][R * D], dw[2][D], db[2][D];
    draw(x, R * D, 4), draw(r, R * D, 5), draw(w, D, 6), draw(b, D, 7);
    for (int i = live * D; i < R * D; i++) x[i] = r[i] = NAN;
    const void *in[] = { x, r, w, b, &live };
    for (int k = 0; k < 2; k++) {
        void *out[] = { y[k], s[k] }, *grad[] = { dx[k], dr[k], dw[k], db[k], NULL };
        tn_optest_run(&test, k ? &whole : &part, 2, in, out, grad, NULL);
    }
    assert_memory_equal(y[0], y[1], sizeof(float) * (size_t)live * D);
    assert_memory_equal(s[0], s[1], sizeof(float) * (size_t)live * D);
    assert_memory_equal(dx[0], dx[1], sizeof(float) * (size_t)live * D);
    assert_memory_equal(dr[0], dr[1], sizeof(float) * (size_t)live * D);
    assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
    assert_memory_equal(db[0], db[1], sizeof db[0]);
    for (int j = 0; j < D; j++) assert_false(isnan(dw[0][j]) || isnan(db[0][j]));
}

static const tn_property properties[] = {
    { "rms does not see the scale", scale_free },
    { "layer does not see a shift", shift_free },
    { "rows do not see each other", rows_apart },
    { "only live rows count", live_rows_only },
};

static const tn_op_test test = {
    .op = "norm",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_norm(tn_test_list *l) { tn_optest_add(l, &test); }
