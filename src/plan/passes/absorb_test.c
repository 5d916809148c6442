/* Elementwise ops inside their neighbours: which pairs become one node, and which stay two. The pass runs for CUDA only, but
 * needs no GPU; that the kernels compute the same is for the rows of conv_causal and outer. */
#include "plan/graph.h"
#include "testlib.h"

#include "ops/binary/binary.h"
#include "ops/conv_causal/conv_causal.h"
#include "ops/outer/outer.h"
#include "ops/unary/unary.h"

#include <tenon/ops.h>

enum { B = 2, MANY = 8, H = 3, N = 16, C = 12 };

typedef enum kind {
    PAIR,
    READ_TWICE,
    IS_OUTPUT,
    IS_SEED,
    THROUGH_VIEW,
    GATES,
    GATE_READ_TWICE,
    SWITCHED_OFF,
    ACROSS_LAYERS,
    OTHER_ACT,
    NARROW,
    FULL,
    HALF,
    ODD_ROWS,
    REPEATED,
    TOKEN,
    TOKEN_IS_SEED,
    KINDS
} kind;

static const struct {
    const char *name;
    int in_conv, in_outer; /* how many are inside; 2: strengths and decays with their activations */
} rows[KINDS] = {
    [PAIR] = { "one reader", 1, 1 },
    [READ_TWICE] = { "two readers", 0, 0 },
    [IS_OUTPUT] = { "an output", 0, 0 },
    [IS_SEED] = { "a seed", 0, 0 },
    [THROUGH_VIEW] = { "a part is read", 0, 1 },
    [GATES] = { "activations of decays and strengths", 1, 2 },
    [GATE_READ_TWICE] = { "one of them with two readers", 1, 1 },
    [SWITCHED_OFF] = { "switched off", 0, 0 },
    [ACROSS_LAYERS] = { "in another layer, to be computed again", 0, 0 },
    [OTHER_ACT] = { "another activation, a sum", 0, 0 },
    [NARROW] = { "a state of odd size", 1, 0 },
    [FULL] = { "f32", 1, 0 },
    [HALF] = { "f16", 1, 0 },
    [ODD_ROWS] = { "rows that begin anywhere", 1, 0 },
    [REPEATED] = { "a strength for all heads", 1, 0 },
    [TOKEN] = { "single tokens, of any type and size", 1, 2 },
    [TOKEN_IS_SEED] = { "single tokens with gradients", 0, 0 },
};

static tn_ref part(tn_graph *g, tn_ref x, int64_t from, int64_t n) { return tn_slice(g, x, -1, from, n); }

static void build(tn_graph *g, kind k, tn_seed seed[2])
{
    const bool single = k == TOKEN || k == TOKEN_IS_SEED;
    const tn_dtype type = k == FULL || single ? TN_F32 : k == HALF ? TN_F16 : TN_BF16;
    const int64_t T = single ? 1 : MANY, size = k == NARROW || single ? 12 : N, wide = k == ODD_ROWS ? size + 4 : size;
    const tn_ref x = tn_input(g, "x", tn_shape(B, T, C), type), w = tn_input(g, "w", tn_shape(4, C), TN_F32);
    const int64_t heads = k == REPEATED ? 1 : H;
    const tn_ref all = tn_input(g, "qkv", tn_shape(B, T, 3 * H, wide), type),
                 a = tn_input(g, "a", tn_shape(B, T, H), type);
    const tn_ref b = tn_input(g, "b", tn_shape(B, T, heads), type);
    const bool gates = k == GATES || k == GATE_READ_TWICE || k == TOKEN;
    const tn_ref alpha = gates ? tn_neg(g, tn_softplus(g, a)) : a, opened = gates ? tn_sigmoid(g, b) : b;
    const tn_ref strength = tn_reshape(g, opened, tn_shape(B, T, heads, 1));
    if (k == GATE_READ_TWICE) tn_output(g, "opened", opened);
    const tn_ref qkv = k == ODD_ROWS ? part(g, all, 4, size) : all;
    const tn_ref q = tn_slice(g, qkv, 2, 0, H), keys = tn_slice(g, qkv, 2, H, H), v = tn_slice(g, qkv, 2, 2 * H, H);
    tn_region layer = tn_segment_begin(g, "layer0");
    const tn_ref sum = tn_conv_causal(g, x, w), by = k == OTHER_ACT ? tn_add(g, v, strength) : tn_mul(g, v, strength);
    if (k == ACROSS_LAYERS) {
        tn_region_end(g, layer);
        layer = tn_segment_begin(g, "layer1");
    }
    const tn_ref seen = k == THROUGH_VIEW ? part(g, sum, 0, C / 2) : sum;
    tn_output(g, "y", k == OTHER_ACT ? tn_tanh(g, seen) : tn_silu(g, seen));
    tn_output(g, "o", tn_outer(g, q, keys, by, alpha));
    if (k == READ_TWICE) tn_output(g, "twice", tn_add(g, tn_mean_all(g, sum), tn_mean_all(g, by)));
    if (k == IS_OUTPUT) tn_output(g, "sum", sum), tn_output(g, "by", by);
    tn_region_end(g, layer);
    seed[0].y = sum, seed[1].y = by;
}

static void what_goes_where(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        const char *const off[] = { "opt.silu_in_conv", "opt.write_in_outer", NULL };
        const tn_graph_options o = { .activation = k == FULL   ? TN_F32
                                                   : k == HALF ? TN_F16
                                                               : TN_BF16,
                                     .off = k == SWITCHED_OFF ? off : NULL };
        tn_graph *g;
        tn_seed seed[2] = { 0 };
        int in_conv = 0, in_outer = 0, alone = 0;
        assert_ok(tn_graph_new(&o, &g));
        build(g, (kind)k, seed);
        tn_pass_absorb(g, k == ACROSS_LAYERS, seed, k == IS_SEED || k == TOKEN_IS_SEED ? 2 : 0);
        assert_ok(tn_graph_status(g));
        for (size_t i = 0; i < g->n_nodes; i++) {
            const tn_node *n = &g->node[i];
            if (n->op == &tn_op_conv_causal) in_conv += ((const tn_conv_causal_attr *)n->attr)->silu;
            if (n->op == &tn_op_outer) in_outer += (n->in[TN_OUTER_WRITE] != 0) + ((const tn_outer_attr *)n->attr)->raw;
            alone += n->op == &tn_op_unary || n->op == &tn_op_binary;
            for (int j = 0; j < n->n_out; j++) assert_int_equal(g->tensor[n->out[j]].producer, i);
        }
        const int others = k == READ_TWICE ? 1 : k == GATE_READ_TWICE ? 3 : 0;
        if (in_conv != rows[k].in_conv || in_outer != rows[k].in_outer ||
            alone != 2 - in_conv - (in_outer > 0) + others)
            fail_msg("%s: %d in conv_causal, %d in outer, %d alone", rows[k].name, in_conv, in_outer, alone);
        tn_graph_free(g);
    }
}

void tn_tests_absorb(tn_test_list *l) { tn_test_add(l, what_goes_where, NULL, "absorb: what goes into its neighbour"); }
