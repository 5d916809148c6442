/* Every op with a switch against the twin that the switch builds: a small graph is made with the switch on and off, the
 * op must be in the first and not in the second, and loss and every gradient must agree. A new op with a switch fails
 * here until it has a row. */
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>

enum { B = 2, T = 9, D = 8, H = 2, V = 11 };

static tn_ref weights(tn_graph *g, const char *name, tn_dims dims) { return tn_param(g, name, dims, tn_normal(0.5f)); }

static tn_ref between(tn_graph *g, const char *name, tn_dims dims, float lo, float hi)
{
    return tn_param(g, name, dims, tn_uniform(lo, hi));
}

static tn_ref numbers(tn_graph *g, const char *name, tn_dims dims) { return tn_input(g, name, dims, TN_I32); }

/* Different weights for every element, so that a wrong order is noticed. */
static tn_ref loss_of(tn_graph *g, tn_ref y)
{
    return tn_sum_all(g, tn_mul(g, y, weights(g, "mix", tn_ref_dims(g, y))));
}

static tn_ref with_linear(tn_graph *g)
{
    const tn_ref x = weights(g, "x", tn_shape(B, T, D));
    return loss_of(g, tn_linear(g, x, weights(g, "w", tn_shape(V, D)), .bias = weights(g, "b", tn_shape(V)),
                                .act = TN_ACT_GELU, .residual = weights(g, "r", tn_shape(B, T, V))));
}

static tn_ref with_gate(tn_graph *g)
{
    return loss_of(g, tn_mul_silu(g, weights(g, "x", tn_shape(B, T, D)), weights(g, "z", tn_shape(B, T, D))));
}

static tn_ref with_readout(tn_graph *g)
{
    const tn_dims dims = tn_shape(B, T, D), row = tn_shape(D);
    const tn_ref c = weights(g, "c", dims), z = weights(g, "z", dims), x = weights(g, "x", dims),
                 skip = weights(g, "skip", row);
    const tn_ref y =
        tn_readout(g, c, z, .x = x, .skip = skip, .gain = weights(g, "gain", row), .scale = 0.7f, .group = D / 2);
    return loss_of(g, tn_add(g, y, tn_readout(g, x, c, .x = z, .skip = skip)));
}

static tn_ref with_norm(tn_graph *g)
{
    tn_ref sum;
    const tn_ref x = weights(g, "x", tn_shape(B, T, D)), r = weights(g, "r", tn_shape(B, T, D));
    const tn_ref y =
        tn_layernorm(g, x, weights(g, "w", tn_shape(D)), weights(g, "b", tn_shape(D)), .residual = r, .sum = &sum);
    return loss_of(g, tn_add(g, tn_rmsnorm(g, sum, weights(g, "w2", tn_shape(D))), y));
}

static tn_ref with_attention(tn_graph *g)
{
    const tn_ref q = weights(g, "q", tn_shape(B, T, 2 * H, D)), k = weights(g, "k", tn_shape(B, T, H, D));
    return loss_of(g, tn_attention(g, q, k, weights(g, "v", tn_shape(B, T, H, D)), .causal = true, .window = 5));
}

static tn_ref with_outer(tn_graph *g)
{
    tn_ref last;
    const tn_ref q = weights(g, "q", tn_shape(B, T, H, D)), k = weights(g, "k", tn_shape(B, T, H, D));
    const tn_ref v = weights(g, "v", tn_shape(B, T, H, 3)), alpha = between(g, "alpha", tn_shape(B, T, H), -1, -0.01f);
    const tn_ref o =
        tn_outer(g, q, k, v, alpha, .reset = numbers(g, "flags", tn_shape(B, T)), .chunk = 4, .final = &last);
    return tn_add(g, loss_of(g, o), tn_sum_all(g, last));
}

/* Keys short enough for the state to stay small. */
static tn_ref with_delta(tn_graph *g)
{
    tn_ref last;
    const tn_dims keys = tn_shape(B, T, H, D), one = tn_shape(B, T, H);
    const tn_ref q = weights(g, "q", keys), v = weights(g, "v", tn_shape(B, T, H, 3));
    const tn_ref k = between(g, "k", keys, -0.6f, 0.6f), beta = between(g, "beta", one, 0.1f, 1);
    const tn_ref o = tn_delta(g, q, k, v, between(g, "alpha", keys, -1, -0.01f), beta,
                              .reset = numbers(g, "flags", tn_shape(B, T)), .chunk = 4, .final = &last);
    const tn_ref by_head = tn_delta(g, q, k, v, between(g, "alpha_h", one, -1, -0.01f), beta);
    return tn_add(g, tn_add(g, loss_of(g, o), tn_sum_all(g, by_head)), tn_sum_all(g, last));
}

static tn_ref with_scan(tn_graph *g)
{
    tn_ref last;
    const tn_ref x = weights(g, "x", tn_shape(B, T, 2 * D)), rho = between(g, "rho", tn_shape(D), 0.6f, 0.99f);
    const tn_ref c = tn_scan(g, x, rho, weights(g, "omega", tn_shape(D)), .gamma = weights(g, "gamma", tn_shape(D)),
                             .reset = numbers(g, "flags", tn_shape(B, T)), .chunk = 4, .final = &last);
    return tn_add(g, loss_of(g, c), tn_sum_all(g, last));
}

static tn_ref with_scan_gated(tn_graph *g)
{
    const tn_ref x = weights(g, "x", tn_shape(B, T, 2 * D)), ri = between(g, "ri", tn_shape(B, T, 2 * D), 0.1f, 0.9f);
    const tn_ref nu = weights(g, "nu", tn_shape(D)), omega = weights(g, "omega", tn_shape(D));
    return loss_of(g, tn_scan_gated(g, x, ri, nu, omega, .reset = numbers(g, "flags", tn_shape(B, T))));
}

static tn_ref with_linear_xent(tn_graph *g)
{
    return tn_linear_xent(g, weights(g, "x", tn_shape(B, T, D)), weights(g, "w", tn_shape(V, D)),
                          numbers(g, "labels", tn_shape(B, T)), .bias = weights(g, "b", tn_shape(V)), .z_loss = 0.1f);
}

static tn_ref with_linear_kl(tn_graph *g)
{
    const tn_ref x = weights(g, "x", tn_shape(B, T, D)), m = between(g, "m", tn_shape(B, T), 0.5f, 1.5f);
    const tn_ref labels = numbers(g, "labels", tn_shape(B, T)), w = weights(g, "w", tn_shape(V, D));
    const tn_ref t = tn_frozen(g, "t", tn_shape(B, T, D), TN_F32, tn_normal(1.f));
    return tn_linear_kl(g, x, t, w, .labels = labels, .weights = m, .temperature = 2);
}

static tn_ref with_relax(tn_graph *g)
{
    const tn_ref h =
        tn_relax(g, weights(g, "a", tn_shape(B * T, D)), .w1 = weights(g, "w1", tn_shape(V, D)),
                 .b1 = weights(g, "b1", tn_shape(V)), .w2 = weights(g, "w2", tn_shape(D, V)),
                 .b2 = weights(g, "b2", tn_shape(D)), .norm2_gain = weights(g, "g2", tn_shape(D)),
                 .norm_bias = weights(g, "c", tn_shape(D)), .steps = 6, .rtol = tn_scalar(g, "rtol", 1e-2f),
                 .damping = tn_scalar(g, "damping", 0.7f), .grad = TN_LOOP_IMPLICIT);
    return loss_of(g, h);
}

static tn_ref with_gru(tn_graph *g)
{
    const tn_ref x = weights(g, "x", tn_shape(T, V)), h = weights(g, "h", tn_shape(T, D));
    return loss_of(g, tn_gru(g, x, h, weights(g, "wi", tn_shape(3 * D, V)), weights(g, "wh", tn_shape(3 * D, D)),
                             weights(g, "bi", tn_shape(3 * D)), weights(g, "bh", tn_shape(3 * D))));
}

static tn_ref with_collect(tn_graph *g)
{
    const tn_dims slots = tn_shape(B, T);
    const tn_ref e = weights(g, "e", tn_shape(B, T, 2)), u = between(g, "u", slots, -1, 1),
                 v = between(g, "v", slots, -1, 1), d = between(g, "d", slots, 0, 1);
    const tn_ref plane = numbers(g, "plane", slots), age = numbers(g, "age", slots);
    return loss_of(g, tn_collect(g, e, u, v, d, plane, age, TN_NONE, .width = 3, .height = 4, .beside = true));
}

static tn_ref with_rollout(tn_graph *g)
{
    enum { W = 4, HEIGHT = 3, STATE = 6, NEURON = 32, WIDE = 64 };
    static const int64_t shape[][2] = {
        { 3, 3 },         { 3, 0 },           { NEURON, 4 }, { NEURON, 0 }, { NEURON, 0 },
        { NEURON, 0 },    { NEURON, NEURON }, { NEURON, 0 }, { NEURON, 0 }, { NEURON, 0 },
        { WIDE, NEURON }, { WIDE, 0 },        { 3, STATE },  { 3, 0 },      { 1, 3 },
        { 1, 0 },         { WIDE, STATE },    { WIDE, 0 },   { 3, WIDE },   { 3, 0 },
    };
    enum { N = sizeof shape / sizeof *shape };
    tn_rollout_params p = { .layers = 1 };
    tn_ref in[N], out[TN_ROLLOUT_OUTPUTS];
    for (int i = 0; i < N; i++) {
        char name[24];
        snprintf(name, sizeof name, "p%d", i);
        in[i] = weights(g, name, shape[i][1] ? tn_shape(shape[i][0], shape[i][1]) : tn_shape(shape[i][0]));
    }
    memcpy(&p, in, sizeof in);
    p.gru[0].w_i = weights(g, "wi", tn_shape(3 * STATE, WIDE + 1));
    p.gru[0].w_h = weights(g, "wh", tn_shape(3 * STATE, STATE));
    p.gru[0].b_i = weights(g, "bi", tn_shape(3 * STATE));
    p.gru[0].b_h = weights(g, "bh", tn_shape(3 * STATE));
    tn_rollout(g, weights(g, "e0", tn_shape(B, W * HEIGHT, 1)), &p,
               &(tn_rollout_options){ .width = W, .height = HEIGHT, .steps = 4, .kappa = tn_scalar(g, "kappa", 0.5f) },
               out);
    const tn_ref place = tn_add(g, out[TN_ROLLOUT_U], tn_mul(g, out[TN_ROLLOUT_V], out[TN_ROLLOUT_D]));
    return tn_add(g, loss_of(g, place), tn_sum_all(g, out[TN_ROLLOUT_E]));
}

static const struct {
    const tn_op *op;
    tn_ref (*build)(tn_graph *g);
} rows[] = {
    { &tn_op_linear, with_linear },
    { &tn_op_gate, with_gate },
    { &tn_op_norm, with_norm },
    { &tn_op_attention, with_attention },
    { &tn_op_outer, with_outer },
    { &tn_op_delta, with_delta },
    { &tn_op_scan, with_scan },
    { &tn_op_scan_gated, with_scan_gated },
    { &tn_op_linear_xent, with_linear_xent },
    { &tn_op_linear_kl, with_linear_kl },
    { &tn_op_relax, with_relax },
    { &tn_op_readout, with_readout },
    { &tn_op_gru, with_gru },
    { &tn_op_collect, with_collect },
    { &tn_op_rollout, with_rollout },
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static tn_ref build_of(const tn_op *op, tn_graph *g)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].op == op) return rows[i].build(g);
    fail_msg("%s has the switch %s and no row in %s", op->name, op->switch_name, __FILE__);
    return TN_NONE;
}

static int nodes_of(const tn_graph *g, const tn_op *op)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->node[i].op == op;
    return n;
}

/* Builds and runs the op's graph; the loss comes back, the gradients are in the store. */
static float run(tn_world *w, const tn_op *op, const char *const *off, int *found)
{
    float loss;
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .off = off, .threads = 2 });
    const tn_ref y = build_of(op, g);
    tn_output(g, "loss", y);
    assert_ok(tn_graph_status(g));
    *found = nodes_of(g, op);
    tn_bound *b = tn_world_add(w, g, &(tn_compile_options){ .loss = y, .threads = 2 });
    int32_t *labels = tn_bound_data(b, "labels"), *flags = tn_bound_data(b, "flags");
    for (int i = 0; labels && i < B * T; i++) labels[i] = i % 4 == 3 ? -1 : i * 7 % V;
    for (int i = 0; flags && i < B * T; i++) flags[i] = i % 5 == 3;
    assert_ok(tn_run(b));
    memcpy(&loss, tn_world_data(b, "loss"), sizeof loss);
    return loss;
}

static void compare(const tn_entry *a, const tn_entry *b)
{
    float most = 0;
    const int64_t n = tn_dims_count(a->dims);
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(a->grad[i]));
    if (!(most > 0)) fail_msg("no gradient reaches %s: the row tests nothing of it", a->name);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a->grad[i] - b->grad[i]) <= 2e-5f * most))
            fail_msg("gradient of %s, element %lld: %.9g, the twin's %.9g", a->name, (long long)i, (double)a->grad[i],
                     (double)b->grad[i]);
}

static void agrees(void **state)
{
    const tn_op *op = *state;
    const char *const off[] = { op->switch_name, NULL };
    int fused, plain;
    tn_world on = tn_world_open(5, 2), twin = tn_world_open(5, 2);
    const float a = run(&on, op, NULL, &fused), b = run(&twin, op, off, &plain);
    assert_true(fused > 0);
    if (plain) fail_msg("%s is off and %s is still in the graph", op->switch_name, op->name);
    if (!(fabsf(a - b) <= 2e-5f * fmaxf(1, fabsf(a)))) fail_msg("loss %.9g, the twin's %.9g", (double)a, (double)b);
    for (size_t i = 0; i < tn_store_count(on.store); i++) {
        const tn_entry *e = tn_store_at(on.store, i);
        if (e->role == TN_ROLE_PARAM) compare(e, tn_world_entry(&twin, e->name));
    }
    tn_world_close(&on);
    tn_world_close(&twin);
}

/* Another op's switch changes nothing here, down to the last bit. */
static void others_change_nothing(void **state)
{
    (void)state;
    int fused;
    const char *off[64] = { 0 };
    for (size_t i = 0, n = 0; tn_op_at(i); i++)
        if (tn_op_at(i)->switch_name && tn_op_at(i) != &tn_op_attention && n < 63) off[n++] = tn_op_at(i)->switch_name;
    tn_world a = tn_world_open(5, 2), b = tn_world_open(5, 2);
    const float all = run(&a, &tn_op_attention, NULL, &fused), alone = run(&b, &tn_op_attention, off, &fused);
    assert_true(fused == 1 && all == alone);
    tn_world_close(&a);
    tn_world_close(&b);
}

void tn_tests_twins(tn_test_list *l)
{
    for (size_t i = 0; tn_op_at(i); i++)
        if (tn_op_at(i)->switch_name)
            tn_test_add(l, agrees, tn_op_at(i), "twins: %s=off of %s", tn_op_at(i)->switch_name, tn_op_at(i)->name);
    tn_test_add(l, others_change_nothing, NULL, "twins: other switches change nothing");
}
