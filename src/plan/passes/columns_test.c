/* Bias gradients: which node sums them. That the sums are right is linear_test.c's matter (its rows with a norm). */
#include "plan/graph.h"
#include "testlib.h"

#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"

#include <tenon/ops.h>

enum { R = 6, D = 16 };

typedef enum kind { STREAM, ALONE, TWICE, ACTIVATED, SHARED_BIAS, RESHAPED, OFF, KINDS } kind;

static const struct {
    const char *name;
    int in_norm, in_linear; /* how many sums are made where */
} rows[KINDS] = {
    [STREAM] = { "two branches of a residual stream", 2, 0 },
    [ALONE] = { "a norm without a residual", 2, 0 },
    [TWICE] = { "a result that is read once more", 1, 1 },
    [ACTIVATED] = { "a slope between", 1, 1 },
    [SHARED_BIAS] = { "one bias for both", 2, 0 },
    [RESHAPED] = { "rows of another length", 1, 1 },
    [OFF] = { "the switch is off", 0, 2 },
};

static tn_ref weights(tn_graph *g, const char *name, tn_dims dims) { return tn_param(g, name, dims, tn_normal(0.5f)); }

/* norm(x + p), then norm(that sum + q), p and q products with a bias; the kind changes p. */
static tn_ref build(tn_graph *g, kind k)
{
    tn_ref s = TN_NONE;
    const tn_ref x = tn_tanh(g, weights(g, "x", tn_shape(R, D))), b = weights(g, "b", tn_shape(D)),
                 w = weights(g, "w", tn_shape(D, D));
    tn_ref p = tn_linear(g, x, w, .bias = b, .act = k == ACTIVATED ? TN_ACT_TANH : TN_ACT_NONE);
    if (k == RESHAPED) p = tn_reshape(g, p, tn_shape(2 * R, D / 2));
    const tn_ref from = k == RESHAPED ? tn_reshape(g, x, tn_shape(2 * R, D / 2)) : x;
    tn_ref y = k == ALONE ? tn_rmsnorm(g, p, TN_NONE) : tn_rmsnorm(g, p, TN_NONE, .residual = from, .sum = &s);
    if (k == TWICE) y = tn_mul(g, y, p);
    if (k == RESHAPED) y = tn_reshape(g, y, tn_shape(R, D)), s = tn_reshape(g, s, tn_shape(R, D));
    const tn_ref q = tn_linear(g, y, w, .bias = k == SHARED_BIAS ? b : weights(g, "c", tn_shape(D)));
    y = tn_layernorm(g, q, TN_NONE, TN_NONE, .residual = s);
    return tn_mean_all(g, tn_mul(g, y, weights(g, "mix", tn_shape(R, D))));
}

static int sums_of(const tn_graph *g, const tn_op *op, int input)
{
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->node[i].op == op && g->node[i].backward && g->node[i].din[input];
    return n;
}

static void where_sums_go(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tn_graph *g;
        const char *const off[] = { "opt.column_sums", NULL };
        assert_ok(tn_graph_new(&(tn_graph_options){ .off = k == OFF ? off : NULL }, &g));
        const tn_ref loss = build(g, (kind)k);
        tn_pass_reverse(g, &(tn_seed){ .y = loss, .dy = tn_scalar(g, "scale", 1) }, 1);
        tn_pass_columns(g);
        assert_ok(tn_graph_status(g));
        const int norms = sums_of(g, &tn_op_norm, TN_NORM_COLUMNS), linears = sums_of(g, &tn_op_linear, TN_LINEAR_BIAS);
        if (norms != rows[k].in_norm || linears != rows[k].in_linear)
            fail_msg("%s: %d sums in norms, %d in linears", rows[k].name, norms, linears);
        for (size_t i = 0; i < g->n_nodes; i++) /* a parameter's gradient is added to, whoever does it */
            if (g->node[i].op == &tn_op_norm && g->node[i].backward && g->node[i].din[TN_NORM_COLUMNS])
                assert_true(g->node[i].accumulate >> TN_NORM_COLUMNS & 1);
        tn_graph_free(g);
    }
}

void tn_tests_columns(tn_test_list *l)
{
    tn_test_add(l, where_sums_go, NULL, "columns: where a bias' gradient is summed");
}
