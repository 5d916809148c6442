/* Running out of memory while a model is built, adopted, compiled and bound: whichever allocation fails, the answer is
 * TN_MEMORY, everything made so far is freed (the address sanitizer looks), and the next attempt works. */
#include "base/alloc.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "testlib.h"
#include "world.h"

#include <tenon/ops.h>

#include <math.h>

static void decay_body(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = tn_tanh(g, tn_add(g, tn_mul(g, io->state[0], io->consts[0]), io->xs[0]));
    io->ys[0] = tn_square(g, io->next[0]);
}

static void double_it(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)xs, (void)n, (void)user;
    dx[0] = tn_scale(g, dy, 2.f);
}

/* One of everything a graph can hold. */
static tn_ref build(tn_graph *g)
{
    enum { B = 2, T = 4, D = 8 };
    const tn_ref tokens = tn_input(g, "tokens", tn_shape(B, T), TN_I32),
                 seen = tn_state(g, "seen", tn_shape(B, D), TN_F32);
    tn_ref x = tn_embed(g, tokens, tn_frozen(g, "table", tn_shape(11, D), TN_BF16, tn_normal(1.f)));
    for (int i = 0; i < 2; i++) {
        const tn_region r = tn_segment_begin(g, "layer%d", i);
        const tn_ref qkv = tn_linear(g, x, tn_param(g, "qkv", tn_shape(3 * D, D), tn_normal(0.3f)));
        tn_ref p[3];
        for (int k = 0; k < 3; k++) p[k] = tn_reshape(g, tn_part(g, qkv, k, 3), tn_shape(B, T, 2, D / 2));
        const tn_ref y = tn_attention(g, tn_rope(g, p[0]), tn_rope(g, p[1]), p[2], .causal = true);
        x = tn_add(g, x, tn_dropout(g, tn_reshape(g, y, tn_shape(B, T, D)), 0.1f));
        tn_region_end(g, r);
    }
    x = tn_custom_gradient(g, x, &x, 1, double_it, NULL);
    const tn_ref sequence = tn_transpose(g, x, 1, 0, 2), decay = tn_param(g, "decay", tn_shape(D), tn_constant(0.5f));
    tn_ref ys, last;
    tn_loop(g, ((tn_body){ decay_body, NULL }), .state = &seen, .n_state = 1, .xs = &sequence, .n_xs = 1,
            .consts = &decay, .n_consts = 1, .n_ys = 1, .steps = T, .final = &last, .ys = &ys);
    tn_assign(g, seen, last);
    tn_output(g, "last", last);
    return tn_mul(g, tn_mean_all(g, ys), tn_scalar(g, "weight", 2.f));
}

typedef struct attempt {
    tn_store *store;
    tn_context *context;
    tn_plan_cache *cache;
    tn_plan *apply;
    tn_bound *step, *update;
} attempt;

static tn_status make(void *user, tn_plan **out)
{
    tn_graph *g;
    TN_RETURN_IF(tn_graph_new(&(tn_graph_options){ .training = true }, &g));
    const tn_ref loss = build(g);
    tn_output(g, "loss", loss);
    const tn_status s = tn_store_adopt(((attempt *)user)->store, g);
    if (s == TN_OK) return tn_graph_compile(g, &(tn_compile_options){ .loss = loss, .recompute = true }, out);
    tn_graph_free(g);
    return s;
}

static tn_status try_all(attempt *a)
{
    const tn_plan *p;
    TN_RETURN_IF(tn_store_new(TN_CPU, 1, &a->store));
    TN_RETURN_IF(tn_context_new(TN_CPU, 1, &a->context));
    TN_RETURN_IF(tn_plan_cache_new(&a->cache));
    TN_RETURN_IF(tn_plan_cache_get(a->cache, "train", make, a, &p));
    TN_RETURN_IF(tn_bind(p, a->context, a->store, &a->step));
    TN_RETURN_IF(tn_optim_plan(a->store, &(tn_optim_options){ .kind = TN_ADAMW }, TN_CPU, 1, &a->apply));
    return tn_bind(a->apply, a->context, a->store, &a->update);
}

static void discard(attempt *a)
{
    tn_bound_free(a->step);
    tn_bound_free(a->update);
    tn_plan_free(a->apply);
    tn_plan_cache_free(a->cache);
    tn_context_free(a->context);
    tn_store_free(a->store);
}

static void every_allocation(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        attempt a = { 0 };
        tn_alloc_fail_at(++n);
        s = try_all(&a);
        const uint64_t calls = tn_alloc_count();
        tn_alloc_fail_at(0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %d: status %d (%s)", (int)n, (int)s, tn_error_text());
        if (s == TN_OK && calls >= n) fail_msg("allocation %d failed and nobody noticed", (int)n);
        if (s == TN_OK) assert_ok(tn_run(a.step));
        else assert_non_null(strstr(tn_error_text(), "out of memory"));
        discard(&a);
    }
    assert_true(n > 50);
}

/* A failed attempt leaves the store as it was. */
static void store_unchanged(void **state)
{
    (void)state;
    tn_store *st;
    bool worked = false;
    assert_ok(tn_store_new(TN_CPU, 1, &st));
    for (uint64_t n = 1; !worked; n++) {
        tn_graph *g = tn_world_graph(&(tn_graph_options){ .training = true });
        tn_output(g, "loss", build(g));
        tn_alloc_fail_at(n);
        const tn_status s = tn_store_adopt(st, g);
        tn_alloc_fail_at(0);
        worked = s == TN_OK;
        if (!worked) {
            assert_int_equal(s, TN_MEMORY);
            assert_int_equal(tn_store_count(st), 0);
            assert_int_equal(tn_store_buckets(st), 0);
        }
        tn_graph_free(g);
    }
    assert_non_null(tn_store_find(st, "layer1.qkv"));
    tn_store_free(st);
}

/* A plan that does not fit leaves the context's memory to the plans bound before. */
static void context_lost(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_bound *small = NULL, *large = NULL;
    tn_plan *plan = NULL;
    for (int64_t rows = 4; rows <= 4096; rows *= 1024) {
        tn_graph *g = tn_world_graph(NULL);
        tn_output(g, "y", tn_exp(g, tn_input(g, "x", tn_shape(rows, 16), TN_F32)));
        if (rows == 4) small = tn_world_add(&w, g, NULL);
        else assert_ok(tn_graph_compile(g, &(tn_compile_options){ 0 }, &plan));
    }
    assert_ok(tn_run(small));
    tn_alloc_fail_at(6); /* bound plan, externs, inputs, frame, timers, and then the arena */
    assert_int_equal(tn_bind(plan, w.context, w.store, &large), TN_MEMORY);
    tn_alloc_fail_at(0);
    assert_ok(tn_run(small));
    assert_non_null(tn_bound_data(small, "y"));
    assert_ok(tn_bind(plan, w.context, w.store, &large));
    assert_ok(tn_run(small));
    tn_bound_free(large);
    tn_plan_free(plan);
    tn_world_close(&w);
}

/* The rows are the arena: whoever is alive at the same step lies apart, they reach its end, and the peak of live bytes is
 * what the plan says. */
static void layout(void **state)
{
    (void)state;
    attempt a = { 0 };
    assert_ok(try_all(&a));
    const tn_plan *p = tn_bound_plan(a.step);
    const size_t n = tn_plan_layout(p, NULL), steps = tn_plan_steps(p);
    tn_layout_row *r = tn_alloc(sizeof *r * n);
    assert_true(n > 5 && tn_plan_layout(p, r) == n);
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].first <= r[i].last && r[i].last <= steps && r[i].op && r[i].region && r[i].bytes % 64 == 0);
        assert_true(i == 0 || r[i].bytes <= r[i - 1].bytes);
        if (r[i].offset + r[i].bytes > end) end = r[i].offset + r[i].bytes;
        for (size_t k = 0; k < i; k++)
            assert_true(r[i].last < r[k].first || r[k].last < r[i].first || r[i].offset + r[i].bytes <= r[k].offset ||
                        r[k].offset + r[k].bytes <= r[i].offset);
    }
    assert_true(end == tn_plan_memory(p).arena);
    size_t peak = 0, fullest = 0;
    for (size_t s = 0; s <= steps; s++) {
        size_t alive = 0, all = 0;
        for (size_t i = 0; i < n; i++) {
            const size_t bytes = r[i].first <= s && s <= r[i].last ? r[i].bytes : 0;
            alive += r[i].workspace ? 0 : bytes;
            all += bytes;
        }
        peak = alive > peak ? alive : peak;
        fullest = all > fullest ? all : fullest;
    }
    assert_true(peak == tn_plan_memory(p).activations);
    assert_true(fabs(tn_plan_holes(p) - (1 - (double)fullest / (double)end)) < 1e-12 && isnan(tn_plan_holes(NULL)));
    tn_free(r);
    discard(&a);
}

void tn_tests_plan_memory(tn_test_list *l)
{
    tn_test_add(l, layout, NULL, "plan memory: the layout is the arena");
    tn_test_add(l, every_allocation, NULL, "plan memory: every allocation may fail");
    tn_test_add(l, store_unchanged, NULL, "plan memory: a failed adoption leaves the store alone");
    tn_test_add(l, context_lost, NULL, "plan memory: plans of a context beside one that does not fit");
}
