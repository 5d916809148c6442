/* Ops that change a state or cache in place (TN_OP_WRITES_IN0): the node is kept though nobody reads its result,
 * later nodes see the new numbers and earlier ones the old, and the planner makes no copy of the tensor. */
#include "plan/plan.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <string.h>

/* state[0] += x[0], in bf16 or f32; the other elements must survive. */
static tn_status bump_infer(tn_sig *s)
{
    s->n_out = 1;
    s->out[0] = s->in[0];
    return TN_OK;
}

static tn_status bump_run(const tn_call *c)
{
    const float x = *(const float *)c->in[1].data;
    if (c->out[0].data != c->in[0].data) return tn_error(TN_INTERNAL, "not in place");
    if (c->out[0].dtype == TN_F32) *(float *)c->out[0].data += x;
    else *(uint16_t *)c->out[0].data = tn_f32_to_bf16(tn_bf16_to_f32(*(const uint16_t *)c->in[0].data) + x);
    return TN_OK;
}

static const tn_op bump = {
    .name = "bump", .flags = TN_OP_WRITES_IN0, .infer = bump_infer, .kernel = { [TN_CPU] = { .forward = bump_run } }
};

static tn_ref add_bump(tn_graph *g, tn_ref state, tn_ref x)
{
    tn_ref out;
    return tn_graph_add(g, __FILE__, __LINE__, &bump, NULL, (const tn_ref[]){ state, x }, 2, &out);
}

typedef struct world {
    tn_store *store;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
} world;

static void open_world(world *w, tn_graph *g)
{
    assert_ok(tn_store_new(TN_CPU, 1, &w->store));
    assert_ok(tn_graph_status(g));
    assert_ok(tn_store_adopt(w->store, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ 0 }, &w->plan));
    assert_ok(tn_context_new(TN_CPU, 1, &w->context));
    assert_ok(tn_bind(w->plan, w->context, w->store, &w->bound));
}

static void close_world(world *w)
{
    tn_bound_free(w->bound);
    tn_context_free(w->context);
    tn_plan_free(w->plan);
    tn_store_free(w->store);
}

static void order_and_effect(void **state)
{
    (void)state;
    tn_graph *g;
    world w;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1), TN_F32), s = tn_state(g, "s", tn_shape(2), TN_F32);
    tn_output(g, "before", tn_copy(g, s));
    const tn_ref once = add_bump(g, s, x);
    tn_output(g, "between", tn_copy(g, once));
    const tn_ref twice = add_bump(g, once, x);
    tn_output(g, "after", tn_copy(g, twice));
    tn_output(g, "itself", twice);
    open_world(&w, g);
    float *data = tn_store_find(w.store, "s")->data;
    data[0] = 10, data[1] = 7;
    *(float *)tn_bound_data(w.bound, "x") = 2;
    for (int run = 0; run < 2; run++) {
        assert_ok(tn_run(w.bound));
        assert_float_equal(*(float *)tn_bound_data(w.bound, "before"), 10 + 4 * run, 0);
        assert_float_equal(*(float *)tn_bound_data(w.bound, "between"), 12 + 4 * run, 0);
        assert_float_equal(*(float *)tn_bound_data(w.bound, "after"), 14 + 4 * run, 0);
        assert_ptr_equal(tn_bound_data(w.bound, "itself"), data);
    }
    assert_float_equal(data[1], 7, 0);
    close_world(&w);
}

static void unread_and_half(void **state)
{
    (void)state;
    tn_graph *g;
    world w;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1), TN_F32), s = tn_cache(g, "s", tn_shape(2, 3), TN_BF16);
    add_bump(g, tn_transpose(g, s, 1, 0), x);
    open_world(&w, g);
    assert_int_equal(tn_plan_steps(w.plan), 1); /* kept, and nothing copied */
    uint16_t *data = tn_store_find(w.store, "s")->data;
    data[1] = tn_f32_to_bf16(3);
    *(float *)tn_bound_data(w.bound, "x") = 2;
    assert_ok(tn_run(w.bound));
    assert_float_equal(tn_bf16_to_f32(data[0]), 2, 0);
    assert_float_equal(tn_bf16_to_f32(data[1]), 3, 0);
    close_world(&w);
}

static void refuses_activations(void **state)
{
    (void)state;
    tn_graph *g;
    assert_ok(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(1), TN_F32);
    add_bump(g, tn_copy(g, x), x);
    assert_fails(tn_graph_status(g), TN_USAGE, "tn_state or tn_cache");
    tn_graph_free(g);
}

void tn_tests_in_place(tn_test_list *l)
{
    tn_test_add(l, order_and_effect, NULL, "in place: later nodes see the change, earlier ones do not");
    tn_test_add(l, unread_and_half, NULL, "in place: kept though unread, in the tensor's own type and strides");
    tn_test_add(l, refuses_activations, NULL, "in place: an activation is refused");
}
