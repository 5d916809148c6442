/* relax: rows (dim = B, d, f, C, T, count) against the oracle in double, and properties of the oracle and of the op. */
#include "relax_case.h"

#include "base/rng.h"

static const tn_case cases[] = {
    { "bptt", { 5, 7, 11, 4, 6 }, RC_FIXED, 2e-5f, 2e-2f },
    { "bptt until each is there", { 9, 5, 9, 4, 40, 7 }, RC_H0, 2e-5f, 0 },
    { "bptt of many", { 150, 5, 9, 4, 40, 141 }, 0, 5e-5f, 0 },
    { "bptt of many, whole vectors", { 150, 16, 32, 4, 12 }, TN_FEW, 5e-5f, 0 },
    { "ep of many, whole vectors", { 300, 16, 32, 4, 6 }, RC_EP | RC_CENTRED | TN_FEW, 3e-4f, 0 },
    { "bptt together", { 17, 6, 12, 4, 30, 15 }, RC_TOL, 5e-5f, 0 },
    { "implicit", { 5, 7, 11, 4, 30 }, RC_IMPLICIT, 1e-4f, 2e-2f },
    { "one step", { 5, 7, 11, 4, 12 }, RC_ONE_STEP, 2e-5f, 2e-2f },
    { "ep", { 5, 7, 11, 4, 12 }, RC_EP | RC_FIXED, 1e-4f, 3e-2f },
    { "ep, counted", { 21, 6, 10, 3, 30, 19 }, RC_EP | RC_MEAN | RC_WEIGHTS | RC_UNLABELLED | RC_H0, 2e-4f, 3e-2f },
    { "ep centred", { 18, 13, 27, 5, 30 }, RC_EP | RC_CENTRED | RC_UNLABELLED | TN_FEW, 2e-4f, 0 },
    { "ep at rest", { 21, 6, 10, 3, 30, 19 }, RC_EP | RC_REST | RC_MEAN | RC_WEIGHTS | RC_H0, 2e-4f, 3e-2f },
    { "ep by its move", { 21, 6, 10, 3, 30, 19 }, RC_EP | RC_REST | RC_MOVE, 2e-4f, 0 },
    { "ep centred by its move", { 18, 13, 27, 5, 30 }, RC_EP | RC_CENTRED | RC_MOVE, 2e-4f, 0 },
    { "ep at rest together", { 17, 6, 12, 4, 30 }, RC_EP | RC_REST | RC_TOL, 2e-4f, 0 },
    { "ep at rest anderson", { 18, 9, 20, 5, 20 }, RC_EP | RC_REST | RC_MOVE | RC_ANDERSON, 1e-3f, 0 },
    { "energy ep at rest", { 19, 8, 13, 4, 40, 17 }, RC_ENERGY | RC_EP | RC_REST | RC_MOVE, 2e-4f, 3e-2f },
    { "ep in one step", { 5, 6, 10, 3, 1 }, RC_EP | RC_CENTRED, 1e-4f, 0 },
    { "ep anderson", { 18, 9, 20, 5, 20 }, RC_EP | RC_ANDERSON, 1e-3f, 0 },
    { "ep bare", { 4, 5, 9, 4, 8 }, RC_EP | RC_BARE | RC_FIXED, 1e-4f, 3e-2f },
    { "proxy", { 10, 6, 12, 4, 30, 8 }, RC_EP | RC_PROXY | RC_TOL, 2e-4f, 3e-2f },
    { "proxy anderson", { 10, 6, 12, 4, 10, 8 }, RC_EP | RC_PROXY | RC_TOL | RC_ANDERSON, 1e-3f, 0 },
    { "implicit together", { 17, 6, 12, 4, 30 }, RC_IMPLICIT | RC_TOL, 1e-4f, 0 },
    { "implicit anderson", { 17, 9, 20, 5, 20 }, RC_IMPLICIT | RC_ANDERSON, 1e-3f, 0 },
    { "bare", { 3, 4, 5, 2, 5 }, RC_ONE_STEP | RC_BARE, 2e-5f, 2e-2f },
    { "one feature", { 3, 1, 1, 2, 3 }, RC_ENERGY | RC_ONE_STEP, 2e-5f, 0 },
    { "wide", { 35, 40, 80, 12, 4 }, RC_IMPLICIT | RC_FIXED, 1e-4f, 0 },
    { "energy bptt", { 5, 7, 11, 4, 6 }, RC_ENERGY | RC_FIXED, 2e-5f, 2e-2f },
    { "energy bptt until each is there", { 19, 8, 13, 4, 40, 18 }, RC_ENERGY | RC_H0, 5e-5f, 0 },
    { "energy implicit", { 19, 8, 13, 4, 40 }, RC_ENERGY | RC_IMPLICIT, 1e-4f, 2e-2f },
    { "energy one step", { 5, 7, 11, 4, 12 }, RC_ENERGY | RC_ONE_STEP | RC_H0, 2e-5f, 2e-2f },
    { "energy ep centred",
      { 19, 8, 13, 4, 40, 17 },
      RC_ENERGY | RC_EP | RC_CENTRED | RC_MEAN | RC_WEIGHTS,
      2e-4f,
      3e-2f },
    { "energy proxy", { 9, 8, 13, 4, 40 }, RC_ENERGY | RC_EP | RC_PROXY | RC_TOL, 2e-4f, 0 },
    { "energy bare", { 3, 4, 5, 2, 5 }, RC_ENERGY | RC_EP | RC_BARE | RC_ANDERSON, 1e-3f, 0 },
    { "hopfield bptt", { 19, 11, 11, 4, 40, 18 }, RC_HOPFIELD | RC_H0, 5e-5f, 0 },
    { "hopfield implicit", { 19, 11, 11, 4, 40, 18 }, RC_HOPFIELD | RC_IMPLICIT, 1e-4f, 2e-2f },
    { "hopfield one step", { 5, 7, 7, 4, 12 }, RC_HOPFIELD | RC_ONE_STEP, 2e-5f, 2e-2f },
    { "hopfield ep", { 19, 11, 11, 4, 40, 17 }, RC_HOPFIELD | RC_EP | RC_REST | RC_MEAN | RC_WEIGHTS, 2e-4f, 3e-2f },
    { "hopfield ep centred",
      { 35, 40, 40, 12, 30 },
      RC_HOPFIELD | RC_EP | RC_CENTRED | RC_MOVE | RC_UNLABELLED | TN_FEW,
      2e-4f,
      0 },
    { "hopfield anderson", { 18, 9, 9, 5, 20 }, RC_HOPFIELD | RC_EP | RC_ANDERSON, 1e-3f, 0 },
    { "no samples", { 0, 4, 5, 2, 5 }, RC_EP, 2e-5f, 0 },
};

static void build(tn_op_io *io, const tn_case *c)
{
    tn_ref in[RC_INPUTS] = { { 0 } };
    for (int i = 0; i < RC_INPUTS; i++)
        if (rc_has(c, i)) in[i] = tn_test_input(io, rc_dims(c, i), rc_fill(c, i));
    const rc_outputs o = rc_node(tn_test_graph(io), c, in);
    tn_test_output(io, o.h);
    tn_test_output(io, o.free_steps);
    if (c->flags & RC_EP) tn_test_output(io, o.nudged_steps);
}

/* Inputs by the node's places. */
static void place(const tn_case *c, const tn_oracle *o, const double **in)
{
    for (int i = 0, k = 0; i < RC_INPUTS; i++) in[i] = rc_has(c, i) ? o->in[k++] : NULL;
}

static void oracle(const tn_case *c, tn_oracle *o)
{
    const double *in[RC_INPUTS];
    place(c, o, in);
    const ro_net m = rc_net(c, in);
    ro_sample *s = ro_free(&m, NULL), *up = c->flags & RC_EP ? ro_nudged(&m, s, 1) : NULL;
    ro_sample *down = c->flags & RC_CENTRED ? ro_nudged(&m, s, -1) : NULL;
    for (int64_t b = 0; b < m.B; b++) {
        memcpy(o->out[0] + b * m.d, s[b].h, sizeof(double) * (size_t)m.d);
        if (b >= m.count) continue;
        o->out[1][b] = (double)s[b].steps;
        if (up) o->out[2][b] = (double)(up[b].steps + (down ? down[b].steps : 0));
    }
    free(s);
    free(up);
    free(down);
}

static void oracle_grad(const tn_case *c, const tn_oracle *o, double *const *dout, double *const *din)
{
    const double *in[RC_INPUTS];
    double *g[RO_PARAMS] = { 0 };
    place(c, o, in);
    for (int i = 0, k = 0; i < RO_PARAMS; i++)
        if (rc_has(c, i)) g[i] = din[k++];
    const ro_net m = rc_net(c, in);
    ro_gradients(&m, dout[0], g);
}

static void adjust(const tn_case *c, int input, double *x, int64_t n)
{
    int labels = 0;
    for (int i = 0; i < TN_RELAX_LABELS; i++) labels += rc_has(c, i);
    if (rc_has(c, TN_RELAX_LABELS) && input == labels) rc_unlabel(c, x, n);
}

/* --- the oracle itself -------------------------------------------------------------------------------------------- */

/* A net with random numbers of a case; free_net gives them back. */
typedef struct net {
    double *x[RC_INPUTS];
    ro_net m;
} net;

static net draw_net(const tn_case *c)
{
    net n = { 0 };
    for (int i = 0; i < RC_INPUTS; i++) {
        if (!rc_has(c, i)) continue;
        const int64_t count = tn_dims_count(rc_dims(c, i));
        const tn_fill_spec s = rc_fill(c, i);
        const tn_rng rng = { 77, (uint64_t)i };
        n.x[i] = calloc((size_t)count + 1, sizeof(double));
        assert_non_null(n.x[i]);
        for (int64_t k = 0; k < count; k++) {
            const double u = tn_rng_uniform(rng, (uint64_t)k);
            n.x[i][k] = s.kind == TN_FILL_NORMAL     ? (double)tn_rng_normal(rng, (uint64_t)k)
                        : s.kind == TN_FILL_CONSTANT ? s.lo
                        : s.kind == TN_FILL_INT      ? floor(s.lo + (s.hi - s.lo) * u)
                                                     : s.lo + (s.hi - s.lo) * u;
        }
        if (i == TN_RELAX_LABELS) rc_unlabel(c, n.x[i], count);
    }
    n.m = rc_net(c, (const double *const *)n.x);
    return n;
}

static void free_net(net *n)
{
    for (int i = 0; i < RC_INPUTS; i++) free(n->x[i]);
}

/* sum_b dout_b f(h_b), at fixed states or at the equilibrium. */
static double value(const ro_net *m, const double *h, const double *dout)
{
    double sum = 0;
    ro_sample *s = h ? NULL : ro_free(m, NULL);
    for (int64_t b = 0; b < m->B; b++) {
        ro_trace t;
        if (h) ro_apply(m, m->p[RO_A] + b * m->d, h + b * m->d, &t);
        sum += ro_dot(dout + b * m->d, h ? t.y : s[b].h, m->d);
    }
    free(s);
    return sum;
}

static void differs(const ro_net *m, const double *h, const double *dout, double *x, const double *grad, int64_t n,
                    const char *what)
{
    double most = 0;
    for (int64_t k = 0; k < n; k++) most = fmax(most, fabs(grad[k]));
    assert_true(most > 1e-6);
    for (int64_t k = 0; k < n; k++) {
        const double keep = x[k], step = 1e-5;
        x[k] = keep + step;
        const double up = value(m, h, dout);
        x[k] = keep - step;
        const double down = value(m, h, dout);
        x[k] = keep;
        if (!(fabs((up - down) / (2 * step) - grad[k]) <= 1e-6 * most))
            fail_msg("%s %d: %.9g, by differences %.9g", what, (int)k, grad[k], (up - down) / (2 * step));
    }
}

/* The gradients of f by the state and all parameters (at: one evaluation), or of the equilibrium. */
static void check_oracle(const tn_case *c, bool equilibrium)
{
    net n = draw_net(c);
    ro_net *m = &n.m;
    const int64_t size = m->B * m->d;
    double *dout = calloc((size_t)size, sizeof *dout), *h = calloc((size_t)size, sizeof *h),
           *dh = calloc((size_t)size, sizeof *dh);
    double *g[RO_PARAMS] = { 0 };
    assert_true(dout && h && dh);
    for (int64_t k = 0; k < size; k++) dout[k] = sin(1 + 1.7 * (double)k), h[k] = cos(2.3 * (double)k);
    for (int i = 0; i < RO_PARAMS; i++)
        if (m->p[i]) g[i] = calloc((size_t)tn_dims_count(rc_dims(c, i)), sizeof(double));
    m->rtol = 1e-13;
    m->steps = 4000;
    if (equilibrium) ro_gradients(m, dout, g);
    for (int64_t b = 0; !equilibrium && b < m->B; b++)
        ro_pull_at(m, b, h + b * m->d, dout + b * m->d, dh + b * m->d, g);
    for (int i = 0; i < RO_PARAMS; i++) {
        if (!g[i]) continue;
        differs(m, equilibrium ? NULL : h, dout, n.x[i], g[i], tn_dims_count(rc_dims(c, i)), "parameter");
        free(g[i]);
    }
    if (!equilibrium) differs(m, h, dout, h, dh, size, "state");
    free(dout), free(h), free(dh);
    free_net(&n);
}

static void differences_of_the_map(void)
{
    check_oracle(&(tn_case){ "", { 3, 7, 12, 4, 5 }, RC_ONE_STEP, 0, 0 }, false);
    check_oracle(&(tn_case){ "", { 3, 7, 12, 4, 5 }, RC_ONE_STEP | RC_ENERGY, 0, 0 }, false);
    check_oracle(&(tn_case){ "", { 3, 7, 7, 4, 5 }, RC_ONE_STEP | RC_HOPFIELD, 0, 0 }, false);
}

static void differences_of_the_equilibrium(void)
{
    check_oracle(&(tn_case){ "", { 2, 5, 8, 4, 5 }, RC_IMPLICIT, 0, 0 }, true);
    check_oracle(&(tn_case){ "", { 2, 5, 8, 4, 5 }, RC_IMPLICIT | RC_ENERGY, 0, 0 }, true);
    check_oracle(&(tn_case){ "", { 2, 5, 5, 4, 5 }, RC_IMPLICIT | RC_HOPFIELD, 0, 0 }, true);
}

/* lambda by centred nudging and by the adjoint, as da of the energy. */
static void nudging_finds_the_adjoint(void)
{
    const tn_case c = { "", { 6, 8, 13, 4, 5 }, RC_EP | RC_ENERGY | RC_CENTRED, 0, 0 };
    net n = draw_net(&c);
    n.m.rtol = 1e-3, n.m.steps = 200, n.m.beta = 0.05, n.m.weight = 1;
    double ep[6 * 8] = { 0 }, exact[6 * 8] = { 0 }, dout[6 * 8];
    double *by_ep[RO_PARAMS] = { ep }, *by_adjoint[RO_PARAMS] = { exact };
    ro_sample *s = ro_free(&n.m, NULL);
    for (int64_t b = 0; b < 6; b++) ro_force(&n.m, b, s[b].h, dout + b * 8);
    ro_gradients(&n.m, dout, by_ep);
    n.m.grad = TN_LOOP_IMPLICIT, n.m.rtol = 1e-10;
    ro_gradients(&n.m, dout, by_adjoint);
    const double cosine = ro_dot(ep, exact, 48) / sqrt(ro_dot(ep, ep, 48) * ro_dot(exact, exact, 48));
    if (!(cosine >= 0.999)) fail_msg("cosine %.6f", cosine);
    free(s);
    free_net(&n);
}

/* |lambda by one nudge - lambda|^2 over |lambda|^2 for the energy, whose lambda is da, after solves that stop at rtol. */
static double nudged_error(double rtol, bool at_rest, double move)
{
    const tn_case c = { "", { 6, 8, 13, 4, 5 }, RC_EP | RC_ENERGY, 0, 0 };
    net n = draw_net(&c);
    double ep[6 * 8] = { 0 }, exact[6 * 8] = { 0 }, dout[6 * 8], far = 0;
    double *by_ep[RO_PARAMS] = { ep }, *by_adjoint[RO_PARAMS] = { exact };
    n.m.steps = 400, n.m.beta = 0.02, n.m.weight = 1, n.m.at_rest = at_rest, n.m.move = move;
    n.m.rtol = 1e-12;
    ro_sample *s = ro_free(&n.m, NULL);
    for (int64_t b = 0; b < 6; b++) ro_force(&n.m, b, s[b].h, dout + b * 8);
    n.m.grad = TN_LOOP_IMPLICIT;
    ro_gradients(&n.m, dout, by_adjoint);
    n.m.grad = TN_LOOP_EP, n.m.rtol = rtol;
    ro_gradients(&n.m, dout, by_ep);
    for (int i = 0; i < 48; i++) far += (ep[i] - exact[i]) * (ep[i] - exact[i]);
    free(s);
    free_net(&n);
    return far / ro_dot(exact, exact, 48);
}

/* With a loose rtol, what the free solve leaves over is divided by beta in a nudge from the state; from rest it is not, and a nudge
 * stopped by its move is nearly exact. */
static void nudging_from_rest(void)
{
    const double tight = nudged_error(1e-10, false, 0), state = nudged_error(1e-2, false, 0),
                 rest = nudged_error(1e-2, true, 0), move = nudged_error(1e-2, true, 0.01);
    if (!(tight < 1e-2 && rest < 0.5 * state && move < 0.1 * rest && move < 1e-2))
        fail_msg("errors: tight %.3g, from the state %.3g, from rest %.3g, by its move %.3g", tight, state, rest, move);
}

static const tn_property properties[] = {
    { "the oracle's gradients of f are its differences", differences_of_the_map },
    { "the oracle's gradients of the equilibrium are its differences", differences_of_the_equilibrium },
    { "centred nudging of the energy finds the adjoint", nudging_finds_the_adjoint },
    { "nudging from rest survives a loose solve", nudging_from_rest },
};

static const tn_op_test test = {
    .op = "relax",
    .cases = cases,
    .n_cases = TN_COUNT(cases),
    .build = build,
    .oracle = oracle,
    .oracle_grad = oracle_grad,
    .adjust = adjust,
    .properties = properties,
    .n_properties = TN_COUNT(properties),
};

void tn_tests_relax(tn_test_list *l) { tn_optest_add(l, &test); }
