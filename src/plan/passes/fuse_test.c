/* Sums of a residual stream: which op makes them, and that gradients which are passed on or partitioned take no copy and no
 * zeroing. That the numbers stay the same bits is random_graph_test.c's matter. */
#include "plan_check.h"
#include "world.h"

#include "ops/binary/binary.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"

#include <tenon/ops.h>

enum { R = 6, D = 12 };

typedef enum kind { STREAM, READ_TWICE, IS_OUTPUT, READ_BETWEEN, BROADCAST, ACROSS_LAYERS, KINDS } kind;

static const struct {
    const char *name;
    int in_norm, alone; /* how many sums are made where */
} rows[KINDS] = {
    [STREAM] = { "a residual stream", 2, 0 },
    [READ_TWICE] = { "a term is read twice", 2, 0 },
    [IS_OUTPUT] = { "the sum is an output", 2, 0 },
    [READ_BETWEEN] = { "the sum is read before the norm", 1, 1 },
    [BROADCAST] = { "one term is repeated", 1, 1 },
    [ACROSS_LAYERS] = { "the norm is in another layer, to be computed again", 0, 2 },
};

static tn_ref weights(tn_graph *g, const char *name, tn_dims dims) { return tn_param(g, name, dims, tn_normal(0.5f)); }

/* x + product(norm(x)), then + sin(norm(that)), then a norm. */
static tn_ref build(tn_graph *g, kind k)
{
    const tn_ref x = tn_tanh(g, weights(g, "x", tn_shape(R, D)));
    const tn_ref p = tn_linear(g, tn_rmsnorm(g, x, weights(g, "n1", tn_shape(D))), weights(g, "w", tn_shape(D, D)),
                               .bias = weights(g, "b", tn_shape(D)));
    tn_ref s = tn_add(g, x, p);
    if (k == IS_OUTPUT) tn_output(g, "s", s);
    tn_region layer = tn_segment_begin(g, "layer0");
    const tn_ref f = tn_sin(g, tn_rmsnorm(g, s, weights(g, "n2", tn_shape(D))));
    s = tn_add(g, s, k == BROADCAST ? tn_reshape(g, tn_mean(g, f, -1), tn_shape(R, 1)) : f);
    const tn_ref gate = k == READ_BETWEEN ? tn_sigmoid(g, s) : TN_NONE;
    tn_region_end(g, layer);
    layer = tn_segment_begin(g, "layer1");
    tn_ref y = tn_layernorm(g, s, weights(g, "n3", tn_shape(D)), TN_NONE);
    if (k == READ_BETWEEN) y = tn_mul(g, y, gate);
    if (k == READ_TWICE) y = tn_mul(g, y, p);
    tn_region_end(g, layer);
    return tn_mean_all(g, tn_mul(g, y, weights(g, "mix", tn_shape(R, D))));
}

static int nodes_of(const tn_graph *g, const tn_op *op, bool backward, int32_t input)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        n += g->node[i].op == op && g->node[i].backward == backward && (input < 0 || g->node[i].in[input]);
    return n;
}

static int sums_of(const tn_graph *g, bool backward)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        n += g->node[i].op == &tn_op_binary && g->node[i].backward == backward &&
             ((const tn_binary_attr *)g->node[i].attr)->kind == TN_BINARY_ADD;
    return n;
}

static void where_sums_go(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tn_world w = tn_world_open(4, 1);
        tn_graph *g = tn_world_graph(NULL);
        const tn_ref loss = build(g, (kind)k);
        tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss, .recompute = k == ACROSS_LAYERS });
        const tn_graph *made = tn_plan_graph(w.plan[0]);
        tn_plan_check(w.plan[0], rows[k].name);
        assert_ok(tn_run(b));
        const int norms = nodes_of(made, &tn_op_norm, false, TN_NORM_RESIDUAL), alone = sums_of(made, false);
        if (norms != rows[k].in_norm || alone < rows[k].alone) /* what is computed again counts twice */
            fail_msg("%s: %d sums in norms, %d alone", rows[k].name, norms, alone);
        tn_world_close(&w);
    }
}

/* No copies, no zeros, and no gradient of a sum: the stream has one gradient in one place. */
static void one_gradient(void **state)
{
    (void)state;
    tn_world w = tn_world_open(4, 1);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .off = (const char *const[]){ "opt.sum_in_norm", NULL } });
    tn_world_add(&w, g, &(tn_compile_options){ .loss = build(g, STREAM) });
    const tn_graph *made = tn_plan_graph(w.plan[0]);
    assert_int_equal(sums_of(made, false), 2);
    assert_int_equal(sums_of(made, true), 0);
    assert_int_equal(nodes_of(made, &tn_op_copy, false, -1), 1); /* the loss' own seed */
    assert_int_equal(nodes_of(made, &tn_op_fill, false, -1), 0);
    tn_world_close(&w);
}

/* Thirds of a projection as heads, two of them turned: each writes its own part of the gradient. */
static void parts_of_heads(void **state)
{
    (void)state;
    tn_world w = tn_world_open(4, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref qkv = tn_reshape(g, tn_tanh(g, weights(g, "x", tn_shape(R, 3 * D))), tn_shape(2, R / 2, 6, D / 2));
    const tn_ref q = tn_slice(g, qkv, 2, 0, 2), k = tn_slice(g, qkv, 2, 2, 2), v = tn_slice(g, qkv, 2, 4, 2);
    const tn_ref y = tn_mul(g, tn_transpose(g, q, 0, 2, 1, 3), tn_sin(g, tn_transpose(g, k, 0, 2, 1, 3)));
    const tn_ref z = tn_mul(g, y, tn_transpose(g, v, 0, 2, 1, 3));
    tn_world_add(&w, g, &(tn_compile_options){ .loss = tn_mean_all(g, z) });
    const tn_graph *made = tn_plan_graph(w.plan[0]);
    assert_int_equal(nodes_of(made, &tn_op_copy, false, -1), 1); /* the loss' own seed */
    assert_int_equal(nodes_of(made, &tn_op_fill, false, -1), 0);
    assert_ok(tn_run(w.bound[0]));
    tn_world_close(&w);
}

void tn_tests_fuse(tn_test_list *l)
{
    tn_test_add(l, where_sums_go, NULL, "fuse: where sums are made");
    tn_test_add(l, one_gradient, NULL, "fuse: a stream has one gradient");
    tn_test_add(l, parts_of_heads, NULL, "fuse: parts of heads are written in place");
}
