/* loop: a gated cell over a sequence (dim = T, B, X, D) with two float states and an integer one, against a double
 * oracle; the diagonal recurrence against tn_scan; solves with known answers; what is refused.
 *
 *     [z|n] = Wh h + b + Wx x_t      h' = h + s(z) (tanh(n) - h)      m' = m/2 + h'      k' = k[turn]      y_t = h'[k] m' */
#include "optest.h"
#include "plan/graph.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const tn_case cases[] = {
    { "one step", { 1, 2, 3, 4 }, 0, 1e-5f, 2e-2f },
    { "7 steps", { 7, 3, 2, 5 }, 0, 1e-5f, 2e-2f },
    { "33 steps", { 33, 2, 3, 4 }, 0, 2e-5f, 2e-2f },
    { "no samples", { 3, 0, 3, 4 }, 0, 1e-5f, 0 },
};

enum { IN_X, IN_H, IN_M, IN_WX, IN_WH, IN_B, IN_K, IN_TURN };

static void cell(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref h = io->state[0], m = io->state[1], k = io->state[2];
    const tn_ref wx = io->consts[0], wh = io->consts[1], b = io->consts[2], turn = io->consts[3];
    const tn_ref a = tn_linear(g, h, wh, .bias = b, .residual = tn_linear(g, io->xs[0], wx));
    const tn_ref move = tn_mul_sigmoid(g, tn_sub(g, tn_tanh(g, tn_part(g, a, 1, 2)), h), tn_part(g, a, 0, 2));
    io->next[0] = tn_add(g, h, move);
    io->next[1] = tn_add(g, tn_scale(g, m, 0.5f), io->next[0]);
    io->next[2] = tn_gather_rows(g, k, turn);
    io->ys[0] = tn_mul(g, tn_gather_rows(g, io->next[0], k), io->next[1]);
}

static void build(tn_op_io *io, const tn_case *c)
{
    const int64_t T = c->dim[0], B = c->dim[1], X = c->dim[2], D = c->dim[3];
    const tn_fill_spec weight = { .kind = TN_FILL_UNIFORM, .lo = -0.7, .hi = 0.7 },
                       order = { .kind = TN_FILL_INT, .hi = 1 };
    tn_ref in[8], final[3], ys;
    in[IN_X] = tn_test_input(io, tn_shape(T, B, X), (tn_fill_spec){ 0 });
    in[IN_H] = tn_test_input(io, tn_shape(B, D), (tn_fill_spec){ 0 });
    in[IN_M] = tn_test_input(io, tn_shape(B, D), (tn_fill_spec){ 0 });
    in[IN_WX] = tn_test_input(io, tn_shape(2 * D, X), weight);
    in[IN_WH] = tn_test_input(io, tn_shape(2 * D, D), weight);
    in[IN_B] = tn_test_input(io, tn_shape(2 * D), weight);
    in[IN_K] = tn_test_input(io, tn_shape(B), order);
    in[IN_TURN] = tn_test_input(io, tn_shape(B), order);
    tn_loop(tn_test_graph(io), ((tn_body){ cell, NULL }), .state = (const tn_ref[]){ in[IN_H], in[IN_M], in[IN_K] },
            .n_state = 3, .xs = &in[IN_X], .n_xs = 1, .n_consts = 4,
            .consts = (const tn_ref[]){ in[IN_WX], in[IN_WH], in[IN_B], in[IN_TURN] }, .n_ys = 1, .steps = T,
            .final = final, .ys = &ys);
    tn_test_output(io, ys);
    for (int i = 0; i < 3; i++) tn_test_output(io, final[i]);
}

/* k counts backwards, turn is a rotation. */
static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++) {
        if (input == IN_K) x[i] = (double)(n - 1 - i);
        if (input == IN_TURN) x[i] = (double)((i + 1) % n);
    }
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* h and m (B,D) of one step, in place. */
static void step(const tn_case *c, const tn_oracle *o, int64_t t, const double *before, double *h, double *m)
{
    const int64_t B = c->dim[1], X = c->dim[2], D = c->dim[3];
    for (int64_t b = 0; b < B; b++)
        for (int64_t d = 0; d < D; d++) {
            double a[2];
            for (int64_t half = 0; half < 2; half++) {
                const int64_t row = half * D + d;
                a[half] = o->in[IN_B][row];
                for (int64_t i = 0; i < X; i++) a[half] += o->in[IN_WX][row * X + i] * o->in[IN_X][(t * B + b) * X + i];
                for (int64_t i = 0; i < D; i++) a[half] += o->in[IN_WH][row * D + i] * before[b * D + i];
            }
            h[b * D + d] = before[b * D + d] + sigmoid(a[0]) * (tanh(a[1]) - before[b * D + d]);
            m[b * D + d] = 0.5 * m[b * D + d] + h[b * D + d];
        }
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const int64_t T = c->dim[0], B = c->dim[1], D = c->dim[3], n = B * D;
    double *before = calloc((size_t)(n + B + 1), sizeof *before), *turned = before + n;
    double *h = o->out[1], *m = o->out[2], *k = o->out[3];
    assert_non_null(before);
    for (int64_t i = 0; i < n; i++) h[i] = o->in[IN_H][i], m[i] = o->in[IN_M][i];
    for (int64_t b = 0; b < B; b++) k[b] = o->in[IN_K][b];
    for (int64_t t = 0; t < T; t++) {
        for (int64_t i = 0; i < n; i++) before[i] = h[i];
        step(c, o, t, before, h, m);
        for (int64_t i = 0; i < n; i++) o->out[0][t * n + i] = h[(int64_t)k[i / D] * D + i % D] * m[i];
        for (int64_t b = 0; b < B; b++) turned[b] = k[(int64_t)o->in[IN_TURN][b]];
        for (int64_t b = 0; b < B; b++) k[b] = turned[b];
    }
    free(before);
}

/* --- the diagonal recurrence, two ways ------------------------------------------------------------------------------------ */

enum { SB = 2, ST = 33, SK = 5 };

/* c' = lambda c + x, with lambda = re + i im and c = [real | imaginary]. */
static void diagonal(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref re = io->consts[0], im = io->consts[1], a = tn_part(g, io->state[0], 0, 2),
                 b = tn_part(g, io->state[0], 1, 2);
    const tn_ref parts[] = { tn_sub(g, tn_mul(g, a, re), tn_mul(g, b, im)),
                             tn_add(g, tn_mul(g, b, re), tn_mul(g, a, im)) };
    io->next[0] = io->ys[0] = tn_add(g, tn_concat(g, parts, 2, -1), io->xs[0]);
}

static tn_ref by_loop(tn_graph *g, tn_ref x, tn_ref rho, tn_ref omega, tn_ref state, tn_ref *last)
{
    const tn_ref xs = tn_transpose(g, x, 1, 0, 2);
    const tn_ref lambda[] = { tn_mul(g, rho, tn_cos(g, omega)), tn_mul(g, rho, tn_sin(g, omega)) };
    tn_ref ys;
    tn_loop(g, ((tn_body){ diagonal, NULL }), .state = &state, .n_state = 1, .xs = &xs, .n_xs = 1, .consts = lambda,
            .n_consts = 2, .n_ys = 1, .steps = ST, .final = last, .ys = &ys);
    return tn_transpose(g, ys, 1, 0, 2);
}

static const char *const scan_in[] = { "x", "rho", "omega", "state" };
static const int64_t scan_count[] = { SB * ST * 2 * SK, SK, SK, SB * 2 * SK };

static void equals_scan(void)
{
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_bound *bound[2];
    for (int k = 0; k < 2; k++) {
        tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
        const tn_dims dims[] = { tn_shape(SB, ST, 2 * SK), tn_shape(SK), tn_shape(SK), tn_shape(SB, 2 * SK) };
        tn_ref in[4], last;
        for (int i = 0; i < 4; i++) in[i] = tn_want_gradient(g, tn_input(g, scan_in[i], dims[i], TN_F32));
        const tn_ref y = k ? tn_scan(g, in[0], in[1], in[2], .state = in[3], .final = &last)
                           : by_loop(g, in[0], in[1], in[2], in[3], &last);
        const tn_ref flat = tn_copy(g, y);
        tn_output(g, "y", flat);
        const tn_ref loss = tn_add(g, tn_mean_all(g, tn_square(g, flat)), tn_sum_all(g, last));
        bound[k] = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
        for (int i = 0; i < 4; i++)
            for (int64_t j = 0; j < scan_count[i]; j++)
                ((float *)tn_world_data(bound[k], scan_in[i]))[j] =
                    i == 1 ? 0.85f + 0.03f * (float)j : sinf(0.7f * (float)j + (float)i);
    }
    float y[SB * ST * 2 * SK], grad[SB * ST * 2 * SK];
    for (int i = -1; i < 4; i++) { /* outputs are valid until the next run on the context */
        char name[16] = "y";
        if (i >= 0) snprintf(name, sizeof name, "d.%s", scan_in[i]);
        float *first = i < 0 ? y : grad, largest = 0;
        const int64_t n = i < 0 ? scan_count[0] : scan_count[i];
        assert_ok(tn_run(bound[0]));
        memcpy(first, tn_world_data(bound[0], name), sizeof *first * (size_t)n);
        assert_ok(tn_run(bound[1]));
        const float *second = tn_world_data(bound[1], name);
        for (int64_t j = 0; j < n; j++) largest = fmaxf(largest, fabsf(second[j]));
        assert_true(largest > 0.1f);
        for (int64_t j = 0; j < n; j++)
            if (!(fabsf(first[j] - second[j]) <= 2e-5f * largest))
                fail_msg("%s %d: %.9g by loop, %.9g by scan", name, (int)j, (double)first[j], (double)second[j]);
    }
    tn_world_close(&w);
}

/* --- states that are handed on ---------------------------------------------------------------------------------------------- */

static void swap(tn_graph *g, tn_body_io *io, void *user)
{
    (void)g, (void)user;
    io->next[0] = io->state[1];
    io->next[1] = io->state[0];
    io->next[2] = io->state[2];
}

static void handed_on(void)
{
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    static const char *const before[] = { "a", "b", "c" }, *const after[] = { "a3", "b3", "c3" };
    tn_ref in[3], out[3];
    for (int i = 0; i < 3; i++) in[i] = tn_want_gradient(g, tn_input(g, before[i], tn_shape(2), TN_F32));
    tn_loop(g, ((tn_body){ swap, NULL }), .state = in, .n_state = 3, .steps = 3, .final = out);
    for (int i = 0; i < 3; i++) tn_output(g, after[i], out[i]);
    const tn_ref loss = tn_add(g, tn_sum_all(g, tn_scale(g, out[0], 5.f)), tn_sum_all(g, tn_scale(g, out[2], 7.f)));
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
    *(float *)tn_world_data(b, "a") = 1, *(float *)tn_world_data(b, "b") = 2, *(float *)tn_world_data(b, "c") = 3;
    assert_ok(tn_run(b));
    assert_float_equal(*(float *)tn_world_data(b, "a3"), 2, 0);
    assert_float_equal(*(float *)tn_world_data(b, "b3"), 1, 0);
    assert_float_equal(*(float *)tn_world_data(b, "c3"), 3, 0);
    assert_float_equal(*(float *)tn_world_data(b, "d.a"), 0, 0);
    assert_float_equal(*(float *)tn_world_data(b, "d.b"), 5, 0);
    assert_float_equal(*(float *)tn_world_data(b, "d.c"), 7, 0);
    tn_world_close(&w);
}

/* --- solves -------------------------------------------------------------------------------------------------------------------- */

static void half_plus(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_add(g, tn_scale(g, io->state[0], 0.5f), io->consts[0]);
}

/* sum(c h), c constant */
static void weighted_sum(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->ys[0] = tn_sum_all(g, tn_mul(g, io->state[0], io->consts[0]));
}

/* h = h/2 + x; the loss is sum(h), which ep knows as its cost. The same options whatever the gradient. */
static tn_bound *add_solve(tn_world *w, tn_loop_grad grad, bool trained)
{
    static const tn_body cost = { weighted_sum, NULL };
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(3, 2), TN_F32), one = tn_fill(g, tn_shape(3, 2), TN_F32, 1.f);
    const tn_ref h0 = tn_fill(g, tn_shape(3, 2), TN_F32, 0.f);
    tn_ref taken, residual;
    if (trained) tn_want_gradient(g, x);
    const tn_ref h =
        tn_loop(g, ((tn_body){ half_plus, NULL }), .state = &h0, .n_state = 1, .consts = &x, .n_consts = 1, .steps = 80,
                .grad = grad, .rtol = tn_scalar(g, "rtol", 1e-6f), .damping = tn_scalar(g, "damping", 0.8f),
                .cost = &cost, .cost_consts = &one, .n_cost_consts = 1, .beta = tn_scalar(g, "beta", 0.5f),
                .iterations = &taken, .residual = &residual);
    tn_output(g, "h", h);
    tn_output(g, "taken", taken);
    tn_output(g, "residual", residual);
    return tn_world_add(w, g, &(tn_compile_options){ .loss = tn_sum_all(g, h) });
}

/* The answer is 2x, and the gradient 2, which one step sees as 1. */
static void check_solve(tn_bound *b, bool trained, float slope)
{
    float *in = tn_world_data(b, "x");
    for (int i = 0; i < 6; i++) in[i] = (float)(i - 2);
    assert_ok(tn_run(b));
    const int32_t first = *(int32_t *)tn_world_data(b, "taken");
    assert_in_range(first, 20, 40); /* 0.6^n = 1e-6 */
    assert_true(*(float *)tn_world_data(b, "residual") < 1e-6f);
    for (int i = 0; i < 6; i++) {
        assert_float_equal(((float *)tn_world_data(b, "h"))[i], 2 * (i - 2), 1e-4f);
        if (trained) assert_float_equal(((float *)tn_world_data(b, "d.x"))[i], slope, 1e-4f);
    }
    assert_ok(tn_bound_set(b, "rtol", 1e-2f)); /* a number in memory, not in the plan */
    assert_ok(tn_run(b));
    assert_true(*(int32_t *)tn_world_data(b, "taken") < first);
    in[1] = NAN;
    assert_ok(tn_run(b));
    assert_int_equal(*(int32_t *)tn_world_data(b, "taken"), 80);
    assert_true(isnan(*(float *)tn_world_data(b, "residual")));
    assert_float_equal(((float *)tn_world_data(b, "h"))[5], 6, 0.1f); /* the other samples are not touched by it */
}

static void solves(void)
{
    for (int grad = TN_LOOP_BPTT; grad <= TN_LOOP_EP; grad++)
        for (int trained = 0; trained < 2; trained++) {
            tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
            check_solve(add_solve(&w, (tn_loop_grad)grad, trained), trained, grad == TN_LOOP_ONE_STEP ? 1 : 2);
            tn_world_close(&w);
        }
}

/* --- errors ------------------------------------------------------------------------------------------------------------------- */

static void wider(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref twice[] = { io->state[0], io->state[0] };
    io->next[0] = tn_concat(g, twice, 2, -1);
}

static void forgets(tn_graph *g, tn_body_io *io, void *user) { (void)g, (void)io, (void)user; }

static void own_param(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_mul(g, io->state[0], tn_param(g, "secret", tn_shape(3), tn_ones));
}

static void own_samples(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_mul(g, io->state[0], tn_graph_data(g, "samples", tn_shape(3), TN_F32));
}

static void refused(tn_body_build *f, tn_loop_options o, const char *why)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref x = tn_param(g, "x", tn_shape(2, 3), tn_ones), rtol = tn_scalar(g, "rtol", 1e-3f);
    o.state = &x;
    o.n_state = o.n_state ? o.n_state : 1;
    if (o.n_xs) o.xs = &x;
    if (o.n_consts) o.consts = &x;
    if (o.grad == TN_LOOP_EP) o.rtol = rtol;
    tn_loop_(g, "model.c", 12, (tn_body){ f, NULL }, o);
    assert_fails(tn_graph_status(g), TN_USAGE, why);
    assert_fails(tn_graph_status(g), TN_USAGE, "(model.c:12)");
    tn_graph_free(g);
}

static void errors(void)
{
    refused(wider, (tn_loop_options){ .steps = 2 }, "state 0 goes in as f32 (2,3) and comes out as f32 (2,6)");
    refused(forgets, (tn_loop_options){ .steps = 2 }, "state 0 goes in as f32 (2,3) and comes out as f32 nothing");
    refused(own_param, (tn_loop_options){ .steps = 2 },
            "secret inside a body: make it outside and pass it as a constant");
    refused(own_samples, (tn_loop_options){ .steps = 2 }, "samples inside a body");
    refused(half_plus, (tn_loop_options){ .steps = 2, .n_consts = 1, .grad = TN_LOOP_EP },
            "ep needs a cost body and beta");
    refused(half_plus, (tn_loop_options){ .steps = 2, .n_consts = 1, .grad = TN_LOOP_IMPLICIT }, "give rtol");
    refused(half_plus, (tn_loop_options){ .steps = 0, .n_consts = 1 }, "steps >= 1");
    refused(half_plus, (tn_loop_options){ .steps = 3, .n_consts = 1, .n_xs = 1 }, "number of steps, 3");
    refused(half_plus, (tn_loop_options){ .steps = 3, .n_consts = 1, .n_state = 17 }, "1 to 16 states");
}

/* A body is compiled for the device of its graph. */
static void of_another_device(void)
{
    tn_graph *g = tn_world_graph(NULL);
    tn_plan *p = NULL;
    const tn_ref h0 = tn_fill(g, tn_shape(3, 2), TN_F32, 0.f), x = tn_input(g, "x", tn_shape(3, 2), TN_F32);
    tn_output(g, "h",
              tn_loop(g, ((tn_body){ half_plus, NULL }), .state = &h0, .n_state = 1, .consts = &x, .n_consts = 1,
                      .steps = 2));
    assert_fails(tn_graph_compile(g, &(tn_compile_options){ .device = TN_CUDA }, &p), TN_USAGE,
                 "set tn_graph_options.device");
    assert_null(p);
}

static const tn_property properties[] = { { "the diagonal recurrence is tn_scan's", equals_scan },
                                          { "states handed on unchanged, and swapped", handed_on },
                                          { "damped solves and their gradients", solves },
                                          { "what is refused", errors },
                                          { "a graph for another device", of_another_device } };

static const tn_op_test test = {
    .op = "loop",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_loop(tn_test_list *l) { tn_optest_add(l, &test); }
