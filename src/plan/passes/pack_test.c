/* Weights packed once for many products: in loops, for weights used often, and across runs. Every number must have the
 * bits it has with opt.pack_weights=off, and a weight that was written must never be used as it was before. */
#include "plan/plan_internal.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

enum { N = 9, H = 66, T = 5 };

static const char *const off[] = { "opt.pack_weights", NULL };

static size_t packs(const tn_world *w) { return w->plan[w->n - 1]->prologue; }

static void fill(tn_bound *b, const char *name, int64_t n)
{
    float *x = tn_world_data(b, name);
    for (int64_t i = 0; i < n; i++) x[i] = 0.3f * sinf(1.3f * (float)i);
}

/* --- loops ------------------------------------------------------------------------------------------------------------ */

/* h' = tanh(W h + U x); constants W, U (H,H) */
static void cell(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref y = tn_linear(g, io->state[0], io->consts[0]);
    io->next[0] = tn_tanh(g, tn_linear(g, io->xs[0], io->consts[1], .residual = y));
}

static void solve_cell(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_tanh(g, tn_linear(g, io->state[0], io->consts[0], .residual = io->consts[1]));
}

static void cost(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->ys[0] = tn_sum_all(g, tn_square(g, tn_linear(g, io->state[0], io->consts[0])));
}

static tn_bound *add_loop(tn_world *w, int grad, const char *const *without)
{
    static const tn_body sequence = { cell, NULL }, map = { solve_cell, NULL }, of = { cost, NULL };
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .off = without, .threads = 2 });
    const tn_ref h0 = tn_fill(g, tn_shape(N, H), TN_F32, 0.f), xs = tn_input(g, "xs", tn_shape(T, N, H), TN_F32);
    const tn_ref W = tn_param(g, "W", tn_shape(H, H), tn_normal(0.05f)),
                 U = tn_param(g, "U", tn_shape(H, H), tn_normal(0.1f));
    const tn_ref x = tn_linear(g, tn_reshape(g, tn_slice(g, xs, 0, 0, 1), tn_shape(N, H)), U);
    const tn_ref weights[] = { W, U }, solved[] = { W, x };
    const tn_ref h =
        grad < 0 ? tn_loop(g, sequence, .state = &h0, .n_state = 1, .xs = &xs, .n_xs = 1, .consts = weights,
                           .n_consts = 2, .steps = T)
                 : tn_loop(g, map, .state = &h0, .n_state = 1, .consts = solved, .n_consts = 2, .steps = 30,
                           .grad = (tn_loop_grad)grad, .rtol = tn_scalar(g, "rtol", 1e-5f), .cost = &of,
                           .cost_consts = &W, .n_cost_consts = 1, .beta = tn_scalar(g, "beta", 0.1f), .centred = true);
    const tn_ref loss = tn_sum_all(g, tn_square(g, h));
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(w, g, &(tn_compile_options){ .loss = loss, .threads = 2 });
    fill(b, "xs", T * N * H);
    return b;
}

static void same_numbers(const tn_world *a, const tn_world *b)
{
    for (int i = 0; i < tn_store_buckets(a->store); i++) {
        const tn_bucket *p = tn_store_bucket(a->store, i), *q = tn_store_bucket(b->store, i);
        float most = 0;
        for (int64_t k = 0; k < p->count; k++) most = fmaxf(most, fabsf(p->grad[k]));
        assert_true(most > 0);
        assert_memory_equal(p->grad, q->grad, sizeof(float) * (size_t)p->count);
        assert_memory_equal(p->param, q->param, sizeof(float) * (size_t)p->count);
    }
}

/* *state: tn_loop_grad, or -1 for a sequence. Twice, as the second call must pack anew. */
static void loops(void **state)
{
    const int grad = *(const int *)*state;
    tn_world on = tn_world_open(3, 2), twin = tn_world_open(3, 2);
    tn_bound *a = add_loop(&on, grad, NULL), *b = add_loop(&twin, grad, off);
    const size_t more = tn_plan_memory(on.plan[0]).arena - tn_plan_memory(twin.plan[0]).arena;
    assert_true(grad == TN_LOOP_ONE_STEP || (more > 0 && more < 1 << 20)); /* the copies are counted */
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_run(a));
        assert_ok(tn_run(b));
        assert_memory_equal(tn_world_data(a, "loss"), tn_world_data(b, "loss"), sizeof(float));
        same_numbers(&on, &twin);
        ((float *)tn_world_entry(&on, "W")->data)[7] = 0.4f;
        ((float *)tn_world_entry(&twin, "W")->data)[7] = 0.4f;
    }
    tn_world_close(&on);
    tn_world_close(&twin);
}

/* --- plans ------------------------------------------------------------------------------------------------------------ */

/* x through the same layer `uses` times. */
static tn_bound *add_layers(tn_world *w, int64_t rows, int uses, int64_t repeats, const char *const *without)
{
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .off = without });
    tn_ref x = tn_input(g, "x", tn_shape(rows, H), TN_F32);
    for (int i = 0; i < uses; i++)
        x = tn_linear(g, x, tn_param(g, "W", tn_shape(H, H), tn_normal(0.1f)), .act = TN_ACT_TANH);
    const tn_ref loss = tn_sum_all(g, tn_square(g, x));
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(w, g, &(tn_compile_options){ .loss = loss, .repeats = repeats });
    fill(b, "x", rows * H);
    return b;
}

static void where_it_pays(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    add_layers(&w, N, 4, 1, NULL);
    assert_int_equal(packs(&w), 2); /* four products forward, three back: x has no gradient */
    add_layers(&w, N, 2, 1, NULL);
    assert_int_equal(packs(&w), 0);
    add_layers(&w, N, 2, 2, NULL);
    assert_int_equal(packs(&w), 1); /* the one product back is run twice only */
    add_layers(&w, N, 4, 1, off);
    assert_int_equal(packs(&w), 0);
    add_layers(&w, 5000, 4, 1, NULL); /* so many rows hide the packing */
    assert_int_equal(packs(&w), 0);
    tn_world_close(&w);
}

static float loss_after(tn_bound *b, tn_status (*go)(tn_bound *b))
{
    assert_ok(go(b));
    return *(const float *)tn_world_data(b, "loss");
}

/* tn_run sees every write; tn_run_again may rely on the promise, but not on memory that another plan has used. */
static void across_runs(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1), t = tn_world_open(1, 1);
    tn_bound *b = add_layers(&w, N, 4, 5, NULL), *other = add_layers(&w, 40, 3, 5, NULL),
             *twin = add_layers(&t, N, 4, 5, off);
    float *weight = tn_world_entry(&w, "W")->data, *plain = tn_world_entry(&t, "W")->data;
    const float first = loss_after(twin, tn_run);
    assert_true(loss_after(b, tn_run_again) == first); /* nothing has run yet: packs */
    assert_true(loss_after(b, tn_run_again) == first);
    weight[3] = plain[3] = 2.f;
    const float second = loss_after(twin, tn_run);
    assert_true(second != first);
    assert_true(loss_after(b, tn_run_again) != second); /* the promise was broken: the test can tell packed from not */
    assert_true(loss_after(b, tn_run) == second);
    assert_true(loss_after(b, tn_run_again) == second);
    weight[5] = plain[5] = -1.f;
    assert_ok(tn_run(other)); /* its numbers lie where the packed weights were */
    assert_true(loss_after(b, tn_run_again) == loss_after(twin, tn_run));
    tn_world_close(&w);
    tn_world_close(&t);
}

void tn_tests_pack(tn_test_list *l)
{
    static const int kinds[] = { -1, TN_LOOP_BPTT, TN_LOOP_IMPLICIT, TN_LOOP_ONE_STEP, TN_LOOP_EP };
    static const char *const names[] = { "sequence", "bptt", "implicit", "one step", "ep" };
    for (int i = 0; i < 5; i++) tn_test_add(l, loops, &kinds[i], "pack: loop, %s", names[i]);
    tn_test_add(l, where_it_pays, NULL, "pack: only where it pays");
    tn_test_add(l, across_runs, NULL, "pack: across runs");
}
