/* What the planner promises: nothing dead is run, nothing is kept for a frozen tensor, memory sharing and recomputation
 * change no bit, gradients through views, duplicates and custom rules are right, states and contexts keep apart.
 * Running out of memory is in plan_memory_test.c. */
#include "base/rng.h"
#include "plan/plan.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>
#include <stdio.h>

static int count_nodes(const tn_bound *b, const tn_world *w, const tn_op *op, int backward)
{
    int n = 0;
    for (int k = 0; k < w->n; k++) {
        const tn_graph *g = tn_plan_graph(w->plan[k]);
        for (size_t i = 0; w->bound[k] == b && i < g->n_nodes; i++)
            n += (!op || g->node[i].op == op) && (backward < 0 || g->node[i].backward == (backward > 0));
    }
    return n;
}

static void fill_normal(float *x, int64_t n, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) x[i] = tn_rng_normal((tn_rng){ 5, stream }, (uint64_t)i);
}

/* --- what is run and kept ------------------------------------------------------------------------------------------------ */

static void dead_code(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(3, 4), TN_F32);
    const tn_ref unused = tn_param(g, "unused", tn_shape(4), tn_ones), used = tn_param(g, "used", tn_shape(4), tn_ones);
    tn_exp(g, tn_mul(g, x, unused));
    const tn_ref y = tn_mul(g, x, used), loss = tn_sum_all(g, y);
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
    assert_int_equal(count_nodes(b, &w, &tn_op_unary, -1), 0);
    assert_int_equal(count_nodes(b, &w, &tn_op_binary, 0), 1);
    assert_int_equal(count_nodes(b, &w, &tn_op_binary, 1), 1);
    assert_int_equal(tn_plan_memory(w.plan[0]).gradients, 64); /* of `used` alone */
    assert_null(tn_bound_data(b, "unused"));
    tn_world_close(&w);
}

/* `layers` products with matrices of which the first is trained; the others too unless frozen. */
static tn_memory chain_memory(int layers, bool frozen, tn_dtype dtype, int *backward)
{
    enum { ROWS = 64, D = 32 };
    char name[16];
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    tn_ref h = tn_input(g, "x", tn_shape(ROWS, D), TN_F32);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "w%d", i);
        h = tn_linear(g, h,
                      i && frozen ? tn_frozen(g, name, tn_shape(D, D), dtype, tn_normal(0.1f))
                                  : tn_param(g, name, tn_shape(D, D), tn_normal(0.1f)));
    }
    const tn_ref loss = tn_mean_all(g, tn_square(g, h));
    const tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
    *backward = count_nodes(b, &w, &tn_op_linear, 1);
    const tn_memory m = tn_plan_memory(w.plan[0]);
    tn_world_close(&w);
    return m;
}

static void frozen_costs_nothing(void **state)
{
    (void)state;
    int nodes;
    const tn_memory trained = chain_memory(12, false, TN_F32, &nodes), frozen = chain_memory(12, true, TN_F32, &nodes);
    assert_int_equal(nodes, 12); /* dx still has to pass through */
    assert_int_equal(trained.gradients, 12 * frozen.gradients);
    assert_true(frozen.arena < trained.arena);
    assert_true(frozen.activations * 2 < trained.activations);
    /* Inputs of frozen products are not kept: more layers take no more memory. */
    assert_int_equal(chain_memory(24, true, TN_F32, &nodes).arena, frozen.arena);
    assert_true(chain_memory(24, false, TN_F32, &nodes).arena > trained.arena);
    const tn_memory half = chain_memory(12, true, TN_BF16, &nodes);
    assert_int_equal(half.frozen, 11 * 32 * 32 * 2);
    assert_int_equal(half.arena, frozen.arena); /* weights are read as they are: no f32 copy of any */
}

/* --- options that change memory, not numbers -------------------------------------------------------------------------------- */

enum { LAYERS = 8, ROWS = 256, WIDTH = 24 };

typedef tn_ref loss_graph(tn_graph *g, tn_ref x);

typedef tn_region begin_region(tn_graph *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* dropout shows that recomputed layers draw the same numbers. */
static tn_ref mlp_of(tn_graph *g, tn_ref h, begin_region *begin, const char *name)
{
    for (int i = 0; i < LAYERS; i++) {
        const tn_region r = begin(g, "%s%d", name, i);
        const tn_ref u = tn_rmsnorm(g, h, tn_param(g, "norm", tn_shape(WIDTH), tn_ones));
        const tn_ref a = tn_linear(g, u, tn_param(g, "w1", tn_shape(4 * WIDTH, WIDTH), tn_normal(0.3f)),
                                   .bias = tn_param(g, "b1", tn_shape(4 * WIDTH), tn_normal(0.1f)));
        const tn_ref z = tn_dropout(g, tn_affine(g, tn_gelu(g, tn_scale(g, a, 0.7f)), 1.1f, 0.1f), 0.2f);
        h = tn_add(g, h, tn_linear(g, z, tn_param(g, "w2", tn_shape(WIDTH, 4 * WIDTH), tn_normal(0.2f))));
        tn_region_end(g, r);
    }
    return tn_mean_all(g, tn_square(g, tn_tanh(g, h)));
}

static tn_ref mlp(tn_graph *g, tn_ref h) { return mlp_of(g, h, tn_segment_begin, "layer"); }

/* Names say nothing: regions called layer<N> are no segments. */
static tn_ref mlp_in_regions(tn_graph *g, tn_ref h) { return mlp_of(g, h, tn_region_begin, "layer"); }

static tn_ref mlp_below(tn_graph *g, tn_ref h)
{
    const tn_region part = tn_region_begin(g, "reader"), inner = tn_region_begin(g, "tower");
    const tn_ref loss = mlp_of(g, h, tn_segment_begin, "block");
    tn_region_end(g, inner);
    tn_region_end(g, part);
    return loss;
}

/* The outer one decides: all layers are one segment. */
static tn_ref mlp_in_segment(tn_graph *g, tn_ref h)
{
    const tn_region part = tn_segment_begin(g, "whole");
    const tn_ref loss = mlp_of(g, h, tn_segment_begin, "layer");
    tn_region_end(g, part);
    return loss;
}

/* Only tanh's result is needed again. */
static tn_ref elementwise(tn_graph *g, tn_ref x)
{
    const tn_ref y = tn_mul(g, x, tn_param(g, "w", tn_shape(WIDTH), tn_normal(1.f)));
    return tn_mean_all(g, tn_affine(g, tn_tanh(g, tn_affine(g, tn_scale(g, y, 0.3f), 2.f, 0.1f)), -2.f, 1.f));
}

typedef struct net_result {
    size_t activations, n;
    float loss, *grad; /* (n) */
} net_result;

static net_result run_net(loss_graph *build, const char *const *off, bool recompute)
{
    net_result r = { 0 };
    tn_world w = tn_world_open(3, 1);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = true, .off = off });
    const tn_ref loss = build(g, tn_input(g, "x", tn_shape(ROWS, WIDTH), TN_F32));
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss, .recompute = recompute });
    fill_normal(tn_world_data(b, "x"), ROWS * WIDTH, 1);
    tn_bound_seed(b, 9, 4);
    assert_ok(tn_run(b));
    const tn_bucket *k = tn_store_bucket(w.store, 0);
    r.activations = tn_plan_memory(w.plan[0]).activations;
    r.loss = *(float *)tn_world_data(b, "loss");
    r.n = (size_t)k->count;
    r.grad = test_malloc(sizeof *r.grad * r.n);
    memcpy(r.grad, k->grad, sizeof *r.grad * r.n);
    tn_world_close(&w);
    return r;
}

static void same_numbers(net_result a, net_result b)
{
    assert_true(isfinite(a.loss) && a.loss > 0);
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(a.grad, b.grad, sizeof *a.grad * a.n);
    test_free(a.grad);
    test_free(b.grad);
}

static void in_place_sharing(void **state)
{
    (void)state;
    const char *const none[] = { "opt.inplace", NULL };
    net_result on = run_net(elementwise, NULL, false), off = run_net(elementwise, none, false);
    assert_true(on.activations < off.activations);
    same_numbers(on, off);
    on = run_net(mlp, NULL, false);
    off = run_net(mlp, none, false);
    assert_true(on.activations <= off.activations);
    same_numbers(on, off);
}

static void recompute(void **state)
{
    (void)state;
    const net_result keep = run_net(mlp, NULL, false), again = run_net(mlp, NULL, true);
    assert_true(again.activations * 2 < keep.activations);
    same_numbers(keep, again);
}

static void recompute_is_stated(void **state)
{
    (void)state;
    net_result keep = run_net(mlp_below, NULL, false), again = run_net(mlp_below, NULL, true);
    assert_true(again.activations * 2 < keep.activations);
    same_numbers(keep, again);
    keep = run_net(mlp_in_regions, NULL, false);
    again = run_net(mlp_in_regions, NULL, true);
    assert_int_equal(again.activations, keep.activations);
    same_numbers(keep, again);
    keep = run_net(mlp, NULL, true);
    again = run_net(mlp_in_segment, NULL, true);
    assert_true(again.activations > keep.activations);
    test_free(keep.grad);
    keep = run_net(mlp_in_segment, NULL, false);
    same_numbers(keep, again);
}

/* Rows of WIDTH numbers as queries, keys and values of two heads. */
static tn_ref attending(tn_graph *g, tn_ref x)
{
    enum { B = 4, T = ROWS / B, H = 2, D = WIDTH / H };
    for (int i = 0; i < 3; i++) {
        const tn_region r = tn_segment_begin(g, "layer%d", i);
        tn_ref part[3];
        for (int k = 0; k < 3; k++) {
            const tn_ref w = tn_param(g, k == 0 ? "q" : k == 1 ? "k" : "v", tn_shape(WIDTH, WIDTH), tn_normal(0.3f));
            part[k] = tn_reshape(g, tn_linear(g, x, w), tn_shape(B, T, H, D));
        }
        const tn_ref y =
            tn_reshape(g, tn_attention(g, part[0], part[1], part[2], .causal = true), tn_shape(ROWS, WIDTH));
        x = tn_add(g, x, tn_tanh(g, tn_linear(g, y, tn_param(g, "o", tn_shape(WIDTH, WIDTH), tn_normal(0.3f)))));
        tn_region_end(g, r);
    }
    return tn_mean_all(g, tn_square(g, x));
}

static int attentions(const char *const *off)
{
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = true, .off = off });
    const tn_ref loss = attending(g, tn_input(g, "x", tn_shape(ROWS, WIDTH), TN_F32));
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss, .recompute = true });
    const int n = count_nodes(b, &w, &tn_op_attention, 0);
    tn_world_close(&w);
    return n;
}

static void recompute_keeps_attention(void **state)
{
    (void)state;
    const char *const none[] = { "opt.keep_costly", NULL };
    const net_result keep = run_net(attending, NULL, false), again = run_net(attending, NULL, true),
                     all = run_net(attending, none, true);
    assert_true(again.activations < keep.activations && all.activations <= again.activations);
    assert_int_equal(attentions(NULL), 3);
    assert_int_equal(attentions(none), 6);
    assert_memory_equal(again.grad, all.grad, sizeof *all.grad * all.n);
    test_free(all.grad);
    same_numbers(keep, again);
}

/* --- gradients through views and repeated tensors ----------------------------------------------------------------------------- */

/* dL/dx of a graph of one input x (rows, columns) at x = 1, 2, 3, ...; also how many fills the plan has. */
static void differentiate(loss_graph *f, int64_t rows, int64_t columns, float *dx, int *fills)
{
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(rows, columns), TN_F32)), loss = f(g, x);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
    float *in = tn_world_data(b, "x");
    for (int64_t i = 0; i < rows * columns; i++) in[i] = (float)(i + 1);
    for (int run = 0; run < 2; run++) { /* the second run finds what the first left behind */
        assert_ok(tn_run(b));
        memcpy(dx, tn_world_data(b, "d.x"), sizeof *dx * (size_t)(rows * columns));
    }
    if (fills) *fills = count_nodes(b, &w, &tn_op_fill, -1);
    tn_world_close(&w);
}

/* A projection whose parts are used once each: y = p0 * p1 + p2. */
static tn_ref split_in_three(tn_graph *g, tn_ref x)
{
    const tn_ref p = tn_scale(g, x, 1.f);
    return tn_sum_all(g, tn_add(g, tn_mul(g, tn_part(g, p, 0, 3), tn_part(g, p, 1, 3)), tn_part(g, p, 2, 3)));
}

static void split(void **state)
{
    (void)state;
    float dx[12];
    int fills;
    differentiate(split_in_three, 2, 6, dx, &fills);
    assert_int_equal(fills, 0); /* the parts make up the whole: nothing has to be zeroed first */
    const float want[12] = { 3, 4, 1, 2, 1, 1, 9, 10, 7, 8, 1, 1 };
    assert_memory_equal(dx, want, sizeof want);
}

/* Columns 0..2 once, 1..3 squared, the last row by itself, and a part that gets no gradient. */
static tn_ref overlapping(tn_graph *g, tn_ref x)
{
    const tn_ref p = tn_scale(g, x, 1.f);
    const tn_ref a = tn_sum_all(g, tn_slice(g, p, 1, 0, 3)), b = tn_sum_all(g, tn_square(g, tn_slice(g, p, 1, 1, 3)));
    const tn_ref c = tn_sum_all(g, tn_scale(g, tn_slice(g, p, 0, 1, 1), 100.f));
    return tn_add(g, tn_add(g, a, b), c);
}

static tn_ref only_a_middle(tn_graph *g, tn_ref x)
{
    const tn_ref p = tn_scale(g, x, 1.f);
    return tn_sum_all(g, tn_mul(g, tn_slice(g, p, 1, 1, 2), tn_stop_gradient(g, tn_slice(g, p, 1, 0, 2))));
}

static tn_ref turned(tn_graph *g, tn_ref x)
{
    const tn_ref t = tn_transpose(g, tn_scale(g, x, 1.f), 1, 0);
    return tn_sum_all(g, tn_square(g, tn_reshape(g, tn_slice(g, t, 0, 1, 2), tn_shape(4))));
}

static void slices(void **state)
{
    (void)state;
    float dx[8];
    differentiate(overlapping, 2, 4, dx, NULL);
    const float want[8] = { 1, 1 + 4, 1 + 6, 8, 101, 101 + 12, 101 + 14, 100 + 16 };
    assert_memory_equal(dx, want, sizeof want);
    differentiate(only_a_middle, 2, 4, dx, NULL);
    const float middle[8] = { 0, 1, 2, 0, 0, 5, 6, 0 };
    assert_memory_equal(dx, middle, sizeof middle);
    differentiate(turned, 2, 3, dx, NULL);
    const float columns[6] = { 0, 4, 6, 0, 10, 12 };
    assert_memory_equal(dx, columns, sizeof columns);
}

static tn_ref itself(tn_graph *g, tn_ref x) { return tn_sum_all(g, tn_mul(g, x, x)); }
static tn_ref reshaped(tn_graph *g, tn_ref x)
{
    const tn_ref p = tn_scale(g, x, 1.f);
    return tn_sum_all(g, tn_mul(g, tn_reshape(g, p, tn_shape(4)), tn_reshape(g, p, tn_shape(4))));
}
static tn_ref both_halves(tn_graph *g, tn_ref x)
{
    const tn_ref p = tn_scale(g, x, 1.f), a = tn_part(g, p, 0, 2);
    return tn_add(g, tn_sum_all(g, tn_mul(g, a, a)), tn_sum_all(g, tn_mul(g, a, tn_part(g, p, 1, 2))));
}

static void duplicates(void **state)
{
    (void)state;
    float dx[4];
    const float twice[4] = { 2, 4, 6, 8 };
    differentiate(itself, 2, 2, dx, NULL);
    assert_memory_equal(dx, twice, sizeof twice);
    differentiate(reshaped, 2, 2, dx, NULL);
    assert_memory_equal(dx, twice, sizeof twice);
    differentiate(both_halves, 2, 2, dx, NULL);
    const float halves[4] = { 2 * 1 + 2, 1, 2 * 3 + 4, 3 };
    assert_memory_equal(dx, halves, sizeof halves);
}

static tn_ref stopped(tn_graph *g, tn_ref x)
{
    return tn_sum_all(g, tn_mul(g, x, tn_stop_gradient(g, tn_square(g, x))));
}

static void times_three(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    assert_int_equal(n, 1);
    dx[0] = tn_mul(g, tn_scale(g, dy, *(const float *)user), tn_part(g, xs[0], 0, 1));
}

/* round(x) with gradient 3 x dy, beside ordinary uses of both halves of x. */
static tn_ref custom(tn_graph *g, tn_ref x)
{
    static float three = 3;
    const tn_ref p = tn_scale(g, x, 1.f), a = tn_part(g, p, 0, 2), b = tn_part(g, p, 1, 2);
    const tn_ref both[] = { tn_exp(g, a), tn_exp(g, b) }, y = tn_concat(g, both, 2, -1);
    const tn_ref z = tn_custom_gradient(g, y, &p, 1, times_three, &three);
    return tn_add(g, tn_sum_all(g, tn_scale(g, z, 2.f)),
                  tn_add(g, tn_sum_all(g, a), tn_sum_all(g, tn_scale(g, b, 5.f))));
}

static void custom_and_stopped(void **state)
{
    (void)state;
    float dx[4];
    differentiate(stopped, 2, 2, dx, NULL);
    const float squares[4] = { 1, 4, 9, 16 };
    assert_memory_equal(dx, squares, sizeof squares);
    differentiate(custom, 2, 2, dx, NULL);
    const float want[4] = { 6 * 1 + 1, 6 * 2 + 5, 6 * 3 + 1, 6 * 4 + 5 };
    assert_memory_equal(dx, want, sizeof want);
}

/* --- states, plans, contexts ----------------------------------------------------------------------------------------------- */

static void states(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(2), TN_F32), sum = tn_state(g, "sum", tn_shape(2), TN_F32);
    const tn_ref a = tn_state(g, "a", tn_shape(2), TN_F32), b = tn_state(g, "b", tn_shape(2), TN_F32);
    const tn_ref after = tn_add(g, sum, x);
    tn_assign(g, sum, after);
    tn_assign(g, a, b); /* each gets what the other was at the start of the step */
    tn_assign(g, b, a);
    tn_output(g, "after", after);
    tn_bound *bound = tn_world_add(&w, g, NULL);
    const float one[2] = { 1, 2 }, five[2] = { 5, 6 };
    memcpy(tn_world_data(bound, "x"), one, sizeof one);
    memcpy(tn_world_entry(&w, "a")->data, one, sizeof one);
    memcpy(tn_world_entry(&w, "b")->data, five, sizeof five);
    for (int run = 1; run <= 3; run++) {
        assert_ok(tn_run(bound));
        const float want[2] = { 1.f * (float)run, 2.f * (float)run };
        assert_memory_equal(tn_world_data(bound, "after"), want, sizeof want);
        assert_memory_equal(tn_world_entry(&w, "sum")->data, want, sizeof want);
        assert_memory_equal(tn_world_entry(&w, "a")->data, run % 2 ? five : one, sizeof one);
        assert_memory_equal(tn_world_entry(&w, "b")->data, run % 2 ? one : five, sizeof one);
    }
    tn_world_close(&w);
}

static tn_status make_scaled(void *user, tn_plan **out)
{
    tn_graph *g;
    const int64_t rows = *(const int64_t *)user;
    TN_RETURN_IF(tn_graph_new(NULL, &g));
    const tn_ref x = tn_input(g, "x", tn_shape(rows, 16), TN_F32);
    tn_output(g, "y", tn_softmax(g, tn_square(g, tn_exp(g, x))));
    return tn_graph_compile(g, &(tn_compile_options){ 0 }, out);
}

static void cache(void **state)
{
    (void)state;
    tn_plan_cache *c;
    const tn_plan *a, *b, *again = NULL;
    int64_t small = 2, large = 5, impossible = -1;
    assert_ok(tn_plan_cache_new(&c));
    assert_ok(tn_plan_cache_get(c, "rows=2", make_scaled, &small, &a));
    assert_ok(tn_plan_cache_get(c, "rows=5", make_scaled, &large, &b));
    assert_ok(tn_plan_cache_get(c, "rows=2", NULL, NULL, &again)); /* not made again */
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, b);
    assert_fails(tn_plan_cache_get(c, "rows=-1", make_scaled, &impossible, &again), TN_USAGE,
                 "impossible shape (-1,16)");
    assert_int_equal(tn_plan_cache_count(c), 2);
    tn_plan_cache_free(c);
}

/* Two contexts run one plan in turn; on each, a larger plan bound later moves the arena under the first. */
static void contexts(void **state)
{
    (void)state;
    tn_plan *plan, *big;
    tn_context *context[2];
    tn_bound *bound[2], *larger[2];
    int64_t rows = 2, many = 4000;
    assert_ok(make_scaled(&rows, &plan));
    assert_ok(make_scaled(&many, &big));
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_context_new(TN_CPU, 1, &context[i]));
        assert_ok(tn_bind(plan, context[i], NULL, &bound[i]));
        for (int k = 0; k < 32; k++) ((float *)tn_world_data(bound[i], "x"))[k] = (float)(k * (i + 1)) * 0.01f;
        assert_ok(tn_run(bound[i]));
    }
    float first[2][32];
    for (int i = 0; i < 2; i++) memcpy(first[i], tn_world_data(bound[i], "y"), sizeof first[i]);
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_bind(big, context[i], NULL, &larger[i]));
        assert_ok(tn_run(larger[i]));
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(tn_run(bound[i]));
        assert_memory_equal(tn_world_data(bound[i], "y"), first[i], sizeof first[i]);
    }
    for (int i = 0; i < 2; i++) {
        tn_bound_free(larger[i]);
        tn_bound_free(bound[i]);
        tn_context_free(context[i]);
    }
    tn_plan_free(plan);
    tn_plan_free(big);
}

/* --- errors ------------------------------------------------------------------------------------------------------------------- */

static void messages(void **state)
{
    (void)state;
    char where[64];
    tn_graph *g = tn_world_graph(NULL);
    const tn_region r = tn_segment_begin(g, "layer3");
    const tn_ref x = tn_input(g, "x", tn_shape(2, 3), TN_F32), w = tn_param(g, "w", tn_shape(4, 5), tn_ones);
    snprintf(where, sizeof where, "plan_test.c:%d, in layer3)", __LINE__ + 1);
    const tn_ref y = tn_linear(g, x, w);
    tn_add(g, y, tn_reshape(g, x, tn_shape(99))); /* later errors do not hide the first */
    tn_region_end(g, r);
    assert_fails(tn_graph_status(g), TN_USAGE, where);
    assert_fails(tn_graph_status(g), TN_USAGE, "linear of (2,3) (4,5)");
    tn_plan *p = NULL;
    assert_fails(tn_graph_compile(g, &(tn_compile_options){ 0 }, &p), TN_USAGE, where);
    assert_null(p);

    g = tn_world_graph(NULL);
    tn_param(g, "w", tn_shape(2, 3), tn_ones);
    tn_param(g, "w", tn_shape(3, 2), tn_ones);
    assert_fails(tn_graph_status(g), TN_USAGE, "w is f32 (3,2) here and f32 (2,3) before");
    tn_graph_free(g);

    g = tn_world_graph(NULL);
    tn_slice(g, tn_input(g, "x", tn_shape(2, 3), TN_F32), 1, 2, 2);
    assert_fails(tn_graph_status(g), TN_USAGE, "slice [2, 4) of axis 1 is outside (2,3)");
    tn_graph_free(g);

    g = tn_world_graph(NULL);
    const tn_ref many = tn_param(g, "w", tn_shape(2), tn_ones);
    assert_fails(tn_graph_compile(g, &(tn_compile_options){ .loss = tn_square(g, many) }, &p), TN_USAGE, "one number");
}

/* Ops with strided_in read parts of a projection, and write their gradients, where they lie; a turned view is copied. */
static void parts_in_place(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        tn_world w = tn_world_open(1, 1);
        tn_graph *g = tn_world_graph(NULL);
        tn_ref p = tn_mul(g, tn_input(g, "x", tn_shape(2, 16, 48), TN_F32), tn_param(g, "w", tn_shape(48), tn_ones));
        if (turned) p = tn_transpose(g, tn_reshape(g, p, tn_shape(2, 48, 16)), 0, 2, 1);
        const tn_ref nu = tn_param(g, "nu", tn_shape(8), tn_ones), omega = tn_param(g, "omega", tn_shape(8), tn_ones);
        const tn_ref y = tn_conv_causal(g, tn_part(g, p, 0, 3), tn_param(g, "taps", tn_shape(3, 16), tn_ones));
        const tn_ref z = tn_scan_gated(g, tn_part(g, p, 1, 3), tn_part(g, p, 2, 3), nu, omega);
        const tn_ref loss = tn_sum_all(g, tn_mul(g, y, z));
        const tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
        assert_int_equal(count_nodes(b, &w, &tn_op_copy, -1) > 1, turned); /* one: the loss's own gradient */
        tn_world_close(&w);
    }
}

/* Rows that are looked up count in the type of the table, whatever the op makes of them. */
static void bytes_of_rows(void **state)
{
    enum { ALL = 1000, TAKEN = 4, WIDE = 8 };
    static const tn_dtype types[] = { TN_U8, TN_F32, TN_I32 };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        tn_world w = tn_world_open(1, 1);
        tn_graph *g = tn_world_graph(NULL);
        tn_op_time row;
        const tn_ref number = tn_input(g, "number", tn_shape(TAKEN), TN_I32),
                     valid = tn_input(g, "valid", tn_shape(1), TN_I32);
        tn_output(g, "y", tn_take_samples(g, tn_input(g, "set", tn_shape(ALL, WIDE), types[i]), number, valid, 1, 0));
        const tn_bound *b = tn_world_add(&w, g, NULL);
        assert_int_equal(tn_bound_op_times(b, &row, 0, 1), 1);
        assert_string_equal(row.op, "take_samples");
        assert_int_equal((int64_t)row.bytes, 4 * (TAKEN + 1) + TAKEN * WIDE * ((int64_t)tn_dtype_bytes(types[i]) + 4));
        tn_world_close(&w);
    }
}

void tn_tests_plan(tn_test_list *l)
{
    tn_test_add(l, dead_code, NULL, "plan: what nobody reads is not run");
    tn_test_add(l, frozen_costs_nothing, NULL, "plan: a frozen tensor costs no gradient, and no input is kept for it");
    tn_test_add(l, in_place_sharing, NULL, "plan: sharing memory changes no bit and saves some");
    tn_test_add(l, recompute, NULL, "plan: recomputed layers give the same gradients in less memory");
    tn_test_add(l, recompute_keeps_attention, NULL, "plan: recomputed layers keep what attention gave");
    tn_test_add(l, recompute_is_stated, NULL,
                "plan: a segment is what the model says, whatever its name and where it stands");
    tn_test_add(l, split, NULL, "plan: parts of a projection need no zeroing");
    tn_test_add(l, parts_in_place, NULL, "plan: parts of a projection are not copied");
    tn_test_add(l, bytes_of_rows, NULL, "plan: bytes of rows that are looked up");
    tn_test_add(l, slices, NULL, "plan: overlapping, partial and turned views");
    tn_test_add(l, duplicates, NULL, "plan: a tensor that is read twice by one op");
    tn_test_add(l, custom_and_stopped, NULL, "plan: custom gradients and stopped ones");
    tn_test_add(l, states, NULL, "plan: states are carried from run to run");
    tn_test_add(l, cache, NULL, "plan: one plan per key");
    tn_test_add(l, contexts, NULL, "plan: many contexts run one plan");
    tn_test_add(l, messages, NULL, "plan: errors name the call and its shapes");
}
