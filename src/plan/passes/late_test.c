/* A loss that comes with its gradients: when the forward node may go, and that nobody misses what it made. */
#include "plan_check.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { N = 7, D = 5, V = 11 };

typedef enum kind { ALONE, TWO, SCALED, AND_NLL, READ_EARLY, WEIGHTS, READ_LATE, FORWARD, KINDS } kind;

static const struct {
    const char *name;
    int forward; /* forward nodes of linear_xent that stay */
} rows[KINDS] = {
    [ALONE] = { "loss alone", 0 },
    [TWO] = { "two losses, one differentiated", 1 },
    [SCALED] = { "the loss is scaled", 1 },
    [AND_NLL] = { "nll is an output too", 0 },
    [READ_EARLY] = { "a metric reads it in the forward pass", 1 },
    [WEIGHTS] = { "the weights have a gradient", 1 },
    [READ_LATE] = { "a state is set to it", 0 },
    [FORWARD] = { "no gradients", 1 },
};

static tn_bound *add(tn_world *w, kind k, const char *const *off)
{
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .off = off });
    const tn_ref x = tn_param(g, "x", tn_shape(N, D), tn_normal(1.f)),
                 head = tn_param(g, "w", tn_shape(V, D), tn_normal(1.f));
    const tn_ref labels = tn_input(g, "labels", tn_shape(N), TN_I32);
    const tn_ref weights = k == WEIGHTS ? tn_param(g, "weights", tn_shape(N), tn_uniform(0.5f, 1.f)) : TN_NONE;
    tn_ref nll, loss = tn_linear_xent(g, x, head, labels, .nll = &nll, .weights = weights);
    if (k == TWO) tn_output(g, "other", tn_linear_xent(g, x, head, labels, .z_loss = 0.5f));
    if (k == SCALED) loss = tn_scale(g, loss, 0.5f);
    if (k == AND_NLL) tn_output(g, "nll", nll);
    if (k == READ_EARLY) tn_output(g, "perplexity", tn_exp(g, loss));
    if (k == READ_LATE) tn_assign(g, tn_state(g, "last", tn_shape(1), TN_F32), tn_reshape(g, loss, tn_shape(1)));
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(w, g, &(tn_compile_options){ .loss = k == FORWARD ? TN_NONE : loss });
    int32_t *label = tn_world_data(b, "labels");
    for (int i = 0; i < N; i++) label[i] = i == 3 ? -1 : i * 3 % V;
    return b;
}

static int forward_nodes(const tn_world *w)
{
    const tn_graph *g = tn_plan_graph(w->plan[0]);
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n += g->node[i].op == &tn_op_linear_xent && !g->node[i].backward;
    return n;
}

static void same(tn_bound *a, tn_bound *b, const char *name, size_t bytes)
{
    if (tn_bound_data(b, name)) assert_memory_equal(tn_world_data(a, name), tn_world_data(b, name), bytes);
}

static void rule(void **state)
{
    static const char *const off[] = { "opt.late_loss", NULL };
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        tn_world w = tn_world_open(4, 1), plain = tn_world_open(4, 1);
        tn_bound *a = add(&w, (kind)i, NULL), *b = add(&plain, (kind)i, off);
        if (forward_nodes(&w) != rows[i].forward) fail_msg("%s: %d forward nodes", rows[i].name, forward_nodes(&w));
        assert_int_equal(forward_nodes(&plain), i == TWO ? 2 : 1);
        tn_plan_check(w.plan[0], rows[i].name);
        assert_ok(tn_run(a));
        assert_ok(tn_run(b));
        assert_true(*(const float *)tn_world_data(a, "loss") > 0.1f);
        same(a, b, "loss", sizeof(float));
        same(a, b, "nll", sizeof(float) * N);
        same(a, b, "perplexity", sizeof(float));
        if (i == READ_LATE)
            assert_true(*(const float *)tn_world_entry(&w, "last")->data == *(const float *)tn_world_data(a, "loss"));
        const tn_bucket *p = tn_store_bucket(w.store, 0), *q = tn_store_bucket(plain.store, 0);
        assert_memory_equal(p->grad, q->grad, sizeof(float) * (size_t)p->count);
        tn_world_close(&w);
        tn_world_close(&plain);
    }
}

/* What is wrong with the labels is said by whichever kernel looks at them first. */
static void bad_labels(void **state)
{
    (void)state;
    tn_world w = tn_world_open(4, 1);
    tn_bound *b = add(&w, ALONE, NULL);
    ((int32_t *)tn_world_data(b, "labels"))[2] = V;
    assert_fails(tn_run(b), TN_USAGE, "label 11 of token 2");
    tn_world_close(&w);
}

void tn_tests_late(tn_test_list *l)
{
    tn_test_add(l, rule, NULL, "late: where the forward node goes");
    tn_test_add(l, bad_labels, NULL, "late: a bad label is named");
}
