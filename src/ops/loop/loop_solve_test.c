/* Solves against a scalar loop in double (tests/equilibrium.h): states, steps of each sample, residuals, the estimates of
 * lambda and the signal, for both solvers and both ways to stop. */
#include "equilibrium.h"

static const int in_order[EQ_B] = { 0, 1, 2, 3, 4, 5, 6 };

static void near(const char *what, int sample, const float *a, const double *b, double tolerance)
{
    double most = 0;
    for (int i = 0; i < EQ_WIDTH; i++) most = fmax(most, fabs(b[i]));
    for (int i = 0; i < EQ_WIDTH; i++)
        if (!(fabs((double)a[i] - b[i]) <= tolerance * most))
            fail_msg("%s of sample %d, number %d: %.9g, and %.9g in double", what, sample, i, (double)a[i], b[i]);
}

static void start_of(tn_bound *b, int sample, double *x)
{
    for (int i = 0; i < EQ_WIDTH; i++) x[i] = (double)((float *)tn_world_data(b, "h0"))[sample * EQ_WIDTH + i];
}

/* What ep should give for one sample: lambda, and the steps and the signal of its nudged phases. */
static void nudged(const eq_sample *p, const eq_options *o, const eq_answer *h, double *lambda, int *steps,
                   double *signal)
{
    const double beta = (double)0.2f, samples = EQ_B, eta = o->proxy ? beta / samples : beta;
    const double weight = o->mean ? 1 / samples : 0.5;
    double f[EQ_WIDTH];
    const eq_answer up = eq_solve(p, eta, NULL, h->x), down = eq_solve(p, -eta, NULL, h->x);
    eq_apply(p, h->x, NULL, f);
    for (int i = 0; i < EQ_WIDTH; i++) {
        if (o->proxy) lambda[i] = 2 / (beta * samples * EQ_WIDTH) * (f[i] - up.x[i]);
        else if (o->centred) lambda[i] = weight * (down.x[i] - up.x[i]) / (2 * beta);
        else lambda[i] = weight * (h->x[i] - up.x[i]) / beta;
    }
    *steps = up.steps + (o->centred ? down.steps : 0);
    *signal = eq_norm(up.x, h->x) / eq_norm(f, h->x);
}

/* What bptt should give for one sample alone, back through each of its own steps: the gradient by a, and that by W added to dW. */
static void through_time(const eq_sample *p, const double *x0, double *da, double *dW)
{
    static double x[201][EQ_WIDTH];
    double carried[EQ_WIDTH], f[EQ_WIDTH], lambda[EQ_WIDTH];
    int taken = 0;
    memcpy(x[0], x0, sizeof x[0]);
    for (double r = 1; taken < p->most && !(r < p->limit); taken++) {
        eq_apply(p, x[taken], NULL, f);
        r = eq_norm(f, x[taken]) / fmax(eq_norm(f, NULL), 1e-6);
        for (int i = 0; i < EQ_WIDTH; i++) x[taken + 1][i] = (1 - p->damping) * x[taken][i] + p->damping * f[i];
    }
    for (int i = 0; i < EQ_WIDTH; i++) carried[i] = (double)p->g[i], da[i] = 0;
    while (taken-- > 0) {
        for (int i = 0; i < EQ_WIDTH; i++) da[i] += lambda[i] = p->damping * carried[i];
        eq_weigh(p, x[taken], lambda, dW);
        eq_apply(p, x[taken], lambda, f); /* the Jacobian is its own transpose */
        for (int i = 0; i < EQ_WIDTH; i++) carried[i] = (1 - p->damping) * carried[i] + f[i];
    }
}

static void check_sample(tn_bound *b, const eq_options *o, int s)
{
    eq_sample p = eq_sample_of(b, s);
    double x0[EQ_WIDTH], lambda[EQ_WIDTH], signal = 0;
    int nudged_steps = 0, adjoint_steps = 0;
    p.memory = o->anderson ? (o->memory ? o->memory : 5) : 0;
    start_of(b, s, x0);
    const eq_answer h = eq_solve(&p, 0, NULL, x0);
    for (int i = 0; i < EQ_WIDTH; i++) lambda[i] = x0[i] = (double)p.g[i];
    if (o->grad == TN_LOOP_EP) nudged(&p, o, &h, lambda, &nudged_steps, &signal);
    if (o->grad == TN_LOOP_BPTT) {
        double dW[EQ_M * EQ_H];
        start_of(b, s, x0);
        through_time(&p, x0, lambda, dW);
    }
    if (o->grad == TN_LOOP_IMPLICIT) {
        const eq_answer l = eq_solve(&p, 0, h.x, x0);
        memcpy(lambda, l.x, sizeof lambda);
        adjoint_steps = l.steps;
    }
    near("h", s, (float *)tn_world_data(b, "h") + s * EQ_WIDTH, h.x, o->anderson ? 1e-3 : 1e-5);
    assert_int_equal(((int32_t *)tn_world_data(b, "steps"))[s], h.steps);
    assert_int_equal(((int32_t *)tn_world_data(b, "nudged"))[s], nudged_steps);
    assert_int_equal(((int32_t *)tn_world_data(b, "adjoint"))[s], adjoint_steps);
    const double r = (double)((float *)tn_world_data(b, "residuals"))[s],
                 q = (double)((float *)tn_world_data(b, "signal"))[s];
    if (!(fabs(r - h.residual) <= 0.02 * h.residual)) fail_msg("residual %g, and %g in double", r, h.residual);
    if (!(fabs(q - signal) <= 0.05 * signal)) fail_msg("signal %g, and %g in double", q, signal);
    near("lambda", s, (float *)tn_world_data(b, "d.a") + s * EQ_WIDTH, lambda, 2e-4);
}

static const eq_options of_each_sample[] = {
    { .grad = TN_LOOP_EP },
    { .grad = TN_LOOP_EP, .centred = true },
    { .grad = TN_LOOP_EP, .mean = true },
    { .grad = TN_LOOP_EP, .proxy = true },
    { .grad = TN_LOOP_EP, .centred = true, .anderson = true },
    { .grad = TN_LOOP_IMPLICIT },
    { .grad = TN_LOOP_IMPLICIT, .anderson = true },
    { .grad = TN_LOOP_IMPLICIT, .anderson = true, .memory = 2 },
    { .grad = TN_LOOP_ONE_STEP },
    { .grad = TN_LOOP_ONE_STEP, .unmarked = true },
    { .grad = TN_LOOP_BPTT },
    { .grad = TN_LOOP_BPTT, .unmarked = true },
    { .grad = TN_LOOP_BPTT, .off = "opt.compact" },
};

static void equals_scalar_loop(void **state)
{
    const eq_options *o = *state;
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_bound *b = eq_plan(&w, o);
    eq_fill(b, in_order, EQ_B);
    for (int run = 0; run < 2; run++) { /* nothing is left over from the run before */
        assert_ok(tn_run(b));
        const int32_t *steps = tn_world_data(b, "steps");
        int32_t least = steps[0], most = steps[0];
        for (int s = 0; s < EQ_B; s++) {
            check_sample(b, o, s);
            least = steps[s] < least ? steps[s] : least;
            most = steps[s] > most ? steps[s] : most;
        }
        assert_true(least >= 2 && least < most); /* the samples are not alike */
        assert_int_equal(*(int32_t *)tn_world_data(b, "taken"), most);
    }
    tn_world_close(&w);
}

/* --- one stop for all --------------------------------------------------------------------------------------------------- */

/* h <- (1-d) h + d f(h) for the whole batch until |h_next - h| < tol. */
static int iterate_together(tn_bound *b, double x[][EQ_WIDTH], double eta, double at[][EQ_WIDTH])
{
    for (int t = 1; t <= 200; t++) {
        double moved = 0;
        for (int s = 0; s < EQ_B; s++) {
            const eq_sample p = eq_sample_of(b, s);
            double f[EQ_WIDTH];
            eq_target(&p, eta, at ? at[s] : NULL, x[s], f);
            for (int i = 0; i < EQ_WIDTH; i++) {
                const double next = (1 - p.damping) * x[s][i] + p.damping * f[i];
                moved += pow(next - x[s][i], 2);
                x[s][i] = next;
            }
        }
        if (sqrt(moved) < (double)2e-4f) return t;
    }
    return 200;
}

static void stops_together(void **state)
{
    (void)state;
    static const eq_options options[] = { { .grad = TN_LOOP_EP, .tol = true, .proxy = true },
                                          { .grad = TN_LOOP_IMPLICIT, .tol = true },
                                          { .grad = TN_LOOP_BPTT, .tol = true } };
    for (int k = 0; k < 3; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        tn_bound *b = eq_plan(&w, &options[k]);
        double h[EQ_B][EQ_WIDTH], l[EQ_B][EQ_WIDTH];
        eq_fill(b, in_order, EQ_B);
        assert_ok(tn_bound_set(b, "limit", 2e-4f));
        assert_ok(tn_run(b));
        for (int s = 0; s < EQ_B; s++) start_of(b, s, h[s]);
        const int taken = iterate_together(b, h, 0, NULL);
        for (int s = 0; s < EQ_B; s++)
            for (int i = 0; i < EQ_WIDTH; i++) l[s][i] = k == 1 ? (double)eq_sample_of(b, s).g[i] : h[s][i];
        const int second = k == 2 ? 0 : iterate_together(b, l, k == 0 ? (double)0.2f / EQ_B : 0, k == 1 ? h : NULL);
        assert_int_equal(*(int32_t *)tn_world_data(b, "taken"), taken);
        for (int s = 0; s < EQ_B; s++) {
            assert_int_equal(((int32_t *)tn_world_data(b, "steps"))[s], taken);
            assert_int_equal(((int32_t *)tn_world_data(b, k == 1 ? "adjoint" : "nudged"))[s], second);
            near("h", s, (float *)tn_world_data(b, "h") + s * EQ_WIDTH, h[s], 1e-5);
            if (k == 1) near("lambda", s, (float *)tn_world_data(b, "d.a") + s * EQ_WIDTH, l[s], 1e-4);
        }
        tn_world_close(&w);
    }
}

/* --- bptt --------------------------------------------------------------------------------------------------------------- */

/* The gradient of the weights is the sum of what every sample alone would give. */
static void weights_through_time(void **state)
{
    (void)state;
    static const eq_options options[] = { { .grad = TN_LOOP_BPTT }, { .grad = TN_LOOP_BPTT, .unmarked = true } };
    for (int k = 0; k < 2; k++) {
        tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
        tn_bound *b = eq_plan(&w, &options[k]);
        double x0[EQ_WIDTH], da[EQ_WIDTH], dW[EQ_M * EQ_H] = { 0 }, most = 0;
        eq_fill(b, in_order, EQ_B);
        assert_ok(tn_run(b));
        for (int s = 0; s < EQ_B; s++) {
            const eq_sample p = eq_sample_of(b, s);
            start_of(b, s, x0);
            through_time(&p, x0, da, dW);
        }
        const float *got = tn_world_data(b, "d.W");
        for (int i = 0; i < EQ_M * EQ_H; i++) most = fmax(most, fabs(dW[i]));
        for (int i = 0; i < EQ_M * EQ_H; i++)
            if (!(fabs((double)got[i] - dW[i]) <= 1e-5 * most))
                fail_msg("W, number %d: %.9g, and %.9g in double", i, (double)got[i], dW[i]);
        tn_world_close(&w);
    }
}

static void bptt_of_some(void **state)
{
    (void)state;
    enum { SOME = 4 };
    tn_world w = tn_world_open_on(tn_test_device(), 1, 1);
    tn_bound *bptt = eq_plan(&w, &(eq_options){ .grad = TN_LOOP_BPTT }),
             *implicit = eq_plan(&w, &(eq_options){ .grad = TN_LOOP_IMPLICIT });
    float grad[EQ_N], W[EQ_M * EQ_H];
    for (int k = 0; k < 2; k++) {
        tn_bound *b = k ? implicit : bptt;
        eq_fill(b, in_order, SOME);
        assert_ok(tn_bound_set(b, "limit", 1e-6f));
        assert_ok(tn_run(b));
        const float *d = tn_world_data(b, "d.a"), *dW = tn_world_data(b, "d.W");
        const int32_t *steps = tn_world_data(b, "steps"), taken = *(int32_t *)tn_world_data(b, "taken");
        for (int s = 0; s < EQ_B; s++) assert_true(s < SOME ? steps[s] > 0 && steps[s] <= taken : steps[s] == 0);
        if (k) assert_true(tn_world_distance(grad, d, EQ_N) < 1e-3 && tn_world_distance(W, dW, EQ_M * EQ_H) < 1e-3);
        memcpy(grad, d, sizeof grad);
        memcpy(W, dW, sizeof W);
        for (int i = SOME * EQ_WIDTH; i < EQ_N; i++) assert_true(d[i] == 0);
    }
    tn_world_close(&w);
}

/* --- what is refused --------------------------------------------------------------------------------------------------- */

/* constants: a (3,2), b (3,2); the sum starts with b */
static void b_first(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_add(g, io->consts[1], tn_sub(g, tn_scale(g, io->state[0], 0.5f), io->consts[0]));
}

static void refused(tn_loop_options o, const char *why)
{
    tn_graph *g = tn_world_graph_on(tn_test_device(), NULL);
    const tn_ref h = tn_input(g, "h", tn_shape(3, 2), TN_F32), scalar = tn_scalar(g, "limit", 1e-3f);
    const tn_ref consts[] = { tn_input(g, "a", tn_shape(3, 2), TN_F32), tn_input(g, "b", tn_shape(3, 2), TN_F32),
                              tn_input(g, "c", tn_shape(2), TN_F32) };
    const tn_body cost = { eq_cost, NULL };
    o.state = &h;
    o.n_state = 1;
    o.consts = consts;
    o.n_consts = 3;
    o.cost = &cost;
    o.cost_consts = consts;
    o.n_cost_consts = 1;
    o.steps = 9;
    if (o.rtol.id) o.rtol = scalar;
    if (o.tol.id) o.tol = scalar;
    if (o.count.id) o.count = o.count.id == 2 ? h : scalar;
    o.beta = scalar;
    tn_loop_(g, "model.c", 12, (tn_body){ b_first, NULL }, o);
    if (why) assert_fails(tn_graph_status(g), TN_USAGE, why);
    else assert_ok(tn_graph_status(g));
    tn_graph_free(g);
}

static void errors(void **state)
{
    (void)state;
    const tn_ref some = { 1 };
    tn_ref out;
    refused((tn_loop_options){ .rtol = some }, NULL);
    refused((tn_loop_options){ .rtol = some, .sample_consts = 3, .sample_cost_consts = 1, .grad = TN_LOOP_EP }, NULL);
    refused((tn_loop_options){ .rtol = some, .tol = some }, "rtol or by tol: give one");
    refused((tn_loop_options){ .free_steps = &out }, "belong to a solve: give rtol");
    refused((tn_loop_options){ .count = some }, "belong to a solve: give rtol");
    refused((tn_loop_options){ .rtol = some, .count = some }, "count is an i32 of shape (1)");
    refused((tn_loop_options){ .rtol = some, .count = { 2 } }, "count is an i32 of shape (1)");
    refused((tn_loop_options){ .rtol = some, .solver = TN_SOLVE_ANDERSON }, "bptt follows the damped iteration");
    refused((tn_loop_options){ .rtol = some, .memory = 17, .grad = TN_LOOP_IMPLICIT }, "2 to 16 pairs, not 17");
    refused((tn_loop_options){ .rtol = some, .proxy = true }, "leave centred out");
    refused((tn_loop_options){ .rtol = some, .grad = TN_LOOP_EP, .proxy = true, .centred = true }, "leave centred out");
    refused((tn_loop_options){ .rtol = some, .sample_consts = 8 }, "sample_consts has a bit above its 3 constants");
    refused((tn_loop_options){ .rtol = some, .sample_consts = 4 }, "constant 2, whose first axis is not the 3 samples");
    refused((tn_loop_options){ .rtol = some, .sample_consts = 3, .sample_cost_consts = 2, .grad = TN_LOOP_EP },
            "sample_cost_consts has a bit above its 1 constants");
    refused((tn_loop_options){ .rtol = some, .sample_consts = 3, .sample_cost_consts = 2 }, NULL); /* no cost is used */
    refused((tn_loop_options){ .rtol = some, .sample_consts = 1 }, "comes out without its live extent");
}

void tn_tests_loop_solve(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof of_each_sample / sizeof *of_each_sample; i++)
        tn_test_add(l, equals_scalar_loop, &of_each_sample[i], "loop: a solve equals a scalar loop, %d", (int)i);
    tn_test_add(l, stops_together, NULL, "loop: one stop for all, by tol");
    tn_test_add(l, errors, NULL, "loop: what a solve refuses");
    tn_test_add(l, weights_through_time, NULL, "loop: bptt by the weights equals a scalar loop");
    tn_test_add(l, bptt_of_some, NULL, "loop: bptt of some samples equals the implicit gradient");
}
