/* Rehearsal: an equilibrium network, h = a + s W^T tanh(W h + b) with a = U x, whose Jacobian is symmetric (it descends an
 * energy). One body gives four gradients of L = |h - y|^2 / 2: implicit, back-propagation through the iterations, one
 * step, and equilibrium propagation. Only the second needs memory that grows with the iterations. */
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { B = 3, X = 4, H = 6, M = 5, N_U = H * X, N_W = M * H, N_B = M, N_ALL = N_U + N_W + N_B };
static const double SCALE = 0.6;
static const char *const names[] = { "U", "W", "b" };

/* state h (B,H); constants a (B,H), W (M,H), b (M) */
static void energy_step(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref t = tn_linear(g, io->state[0], io->consts[1], .bias = io->consts[2], .act = TN_ACT_TANH);
    io->next[0] = tn_add(g, io->consts[0], tn_matmul(g, t, io->consts[1], .scale = (float)SCALE));
}

/* |h - y|^2 / 2, summed over samples; constant y (B,H) */
static void cost_of(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->ys[0] = tn_scale(g, tn_sum_all(g, tn_square(g, tn_sub(g, io->state[0], io->consts[0]))), 0.5f);
}

static const tn_body body = { energy_step, NULL }, cost = { cost_of, NULL };

static tn_bound *add_plan(tn_world *w, tn_loop_grad grad, bool centred, int64_t steps)
{
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref U = tn_param(g, "U", tn_shape(H, X), tn_normal(0.6f)), x = tn_input(g, "x", tn_shape(B, X), TN_F32);
    const tn_ref consts[] = { tn_linear(g, x, U), tn_param(g, "W", tn_shape(M, H), tn_normal(0.35f)),
                              tn_param(g, "b", tn_shape(M), tn_normal(0.2f)) };
    const tn_ref h0 = tn_fill(g, tn_shape(B, H), TN_F32, 0.f), y = tn_input(g, "y", tn_shape(B, H), TN_F32);
    tn_ref taken;
    const tn_ref h =
        tn_loop(g, body, .state = &h0, .n_state = 1, .consts = consts, .n_consts = 3, .steps = steps, .grad = grad,
                .rtol = tn_scalar(g, "rtol", 1e-6f), .cost = &cost, .cost_consts = &y, .n_cost_consts = 1,
                .beta = tn_scalar(g, "beta", 0.1f), .centred = centred, .iterations = &taken);
    const tn_ref as_state[] = { h }, as_const[] = { y };
    tn_ref loss;
    cost_of(g, &(tn_body_io){ .state = as_state, .consts = as_const, .ys = &loss }, NULL);
    tn_output(g, "loss", loss);
    tn_output(g, "taken", taken);
    return tn_world_add(w, g, &(tn_compile_options){ .loss = loss });
}

static void fill(tn_bound *b, float *x, float *y)
{
    for (int i = 0; i < B * X; i++) x[i] = sinf(1.9f * (float)i);
    for (int i = 0; i < B * H; i++) y[i] = cosf(2.3f * (float)i);
    memcpy(tn_world_data(b, "x"), x, sizeof *x * B * X);
    memcpy(tn_world_data(b, "y"), y, sizeof *y * B * H);
}

/* L at the equilibrium in double; p = U, W, b. */
static double reference(const double *p, const float *x, const float *y)
{
    const double *U = p, *W = p + N_U, *bias = W + N_W;
    double loss = 0;
    for (int s = 0; s < B; s++) {
        double h[H] = { 0 }, t[M];
        for (int n = 0; n < 300; n++) {
            for (int m = 0; m < M; m++) {
                t[m] = bias[m];
                for (int i = 0; i < H; i++) t[m] += W[m * H + i] * h[i];
            }
            for (int i = 0; i < H; i++) {
                h[i] = 0;
                for (int k = 0; k < X; k++) h[i] += U[i * X + k] * (double)x[s * X + k];
                for (int m = 0; m < M; m++) h[i] += SCALE * W[m * H + i] * tanh(t[m]);
            }
        }
        for (int i = 0; i < H; i++) loss += 0.5 * pow(h[i] - (double)y[s * H + i], 2);
    }
    return loss;
}

/* Runs a plan and collects the gradients of U, W and b. */
static void gradients(const tn_world *w, tn_bound *b, double *out)
{
    tn_store_zero_grad(w->store);
    assert_ok(tn_run(b));
    assert_in_range(*(int32_t *)tn_world_data(b, "taken"), 5, 49); /* it converged, and not at once */
    for (int k = 0; k < 3; k++) {
        const tn_entry *e = tn_world_entry(w, names[k]);
        for (int64_t i = 0; i < tn_dims_count(e->dims); i++) *out++ = (double)e->grad[i];
    }
}

static double cosine(const double *a, const double *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < N_ALL; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    return ab / sqrt(aa * bb);
}

static void close_to(const char *what, const double *a, const double *b, double tolerance)
{
    double largest = 0;
    for (int i = 0; i < N_ALL; i++) largest = fabs(b[i]) > largest ? fabs(b[i]) : largest;
    for (int i = 0; i < N_ALL; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * largest)) fail_msg("%s, parameter %d: %g and %g", what, i, a[i], b[i]);
}

static void four_gradients(void **state)
{
    (void)state;
    enum { IMPLICIT, BPTT, ONE_STEP, EP, EP_CENTRED, KINDS };
    static const tn_loop_grad kind[] = { TN_LOOP_IMPLICIT, TN_LOOP_BPTT, TN_LOOP_ONE_STEP, TN_LOOP_EP, TN_LOOP_EP };
    tn_world w = tn_world_open(5, 1);
    double grad[KINDS][N_ALL], p[N_ALL], differences[N_ALL], *to = p;
    float x[B * X], y[B * H];
    for (int k = 0; k < KINDS; k++) {
        tn_bound *b = add_plan(&w, kind[k], k == EP_CENTRED, 50);
        fill(b, x, y);
        gradients(&w, b, grad[k]);
        add_plan(&w, kind[k], k == EP_CENTRED, 200);
        const size_t few = tn_plan_memory(w.plan[2 * k]).arena, many = tn_plan_memory(w.plan[2 * k + 1]).arena;
        if (k == BPTT) assert_true(many - few >= 149 * B * H * sizeof(float));
        else assert_int_equal(few, many);
    }
    for (int k = 0; k < 3; k++) {
        const tn_entry *e = tn_world_entry(&w, names[k]);
        for (int64_t i = 0; i < tn_dims_count(e->dims); i++) *to++ = (double)((const float *)e->data)[i];
    }
    for (int i = 0; i < N_ALL; i++) {
        const double keep = p[i], d = 1e-5;
        p[i] = keep + d;
        const double up = reference(p, x, y);
        p[i] = keep - d;
        differences[i] = (up - reference(p, x, y)) / (2 * d);
        p[i] = keep;
    }
    close_to("implicit and differences", grad[IMPLICIT], differences, 1e-3);
    close_to("implicit and bptt", grad[IMPLICIT], grad[BPTT], 1e-4);
    assert_true(cosine(grad[EP_CENTRED], grad[IMPLICIT]) >= 0.999);
    assert_true(cosine(grad[EP], grad[IMPLICIT]) >= 0.97);
    const double one_step = cosine(grad[ONE_STEP], grad[IMPLICIT]);
    assert_true(one_step > 0.8 && one_step < 0.9999); /* an approximation, and the network is not trivial */
    tn_world_close(&w);
}

void tn_tests_equilibrium(tn_test_list *l)
{
    tn_test_add(l, four_gradients, NULL, "families: one body, four gradients of an equilibrium");
}
