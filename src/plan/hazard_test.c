/* Places where a plan could read what is no longer, or never was, what it means: states changed in place and read again
 * by the reverse pass or by recomputation, outputs that are views, slices of empty tensors and of live extents. */
#include "world.h"

#include <tenon/ops.h>

/* x times a cache that is changed afterwards: the gradient of x needs the old numbers. */
static tn_ref times_cache(tn_graph *g, bool copied, tn_ref *loss)
{
    const tn_ref cache = tn_cache(g, "cache", tn_shape(1, 2, 3), TN_F32),
                 x = tn_param(g, "x", tn_shape(1, 2, 3), tn_ones);
    const tn_ref at = tn_input(g, "at", tn_shape(1), TN_I32), news = tn_input(g, "news", tn_shape(1, 2, 3), TN_F32);
    tn_region r = tn_segment_begin(g, "layer0");
    const tn_ref old = copied ? tn_copy(g, cache) : cache, y = tn_tanh(g, tn_mul(g, x, old));
    const tn_ref changed = tn_cache_write(g, cache, news, at);
    tn_region_end(g, r);
    *loss = tn_sum_all(g, y);
    tn_output(g, "loss", *loss);
    return changed;
}

static void old_numbers_are_refused(void **state)
{
    (void)state;
    tn_plan *p;
    tn_ref loss;
    tn_graph *g = tn_world_graph(NULL);
    times_cache(g, false, &loss);
    assert_fails(tn_graph_compile(g, &(tn_compile_options){ .loss = loss }, &p), TN_USAGE, "changed in place");
    g = tn_world_graph(NULL); /* without gradients it is in order */
    times_cache(g, false, &loss);
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ 0 }, &p));
    tn_plan_free(p);
}

static void copies_are_not_recomputed(void **state)
{
    float grad[2][6];
    (void)state;
    for (int again = 0; again < 2; again++) {
        tn_ref loss;
        tn_world w = tn_world_open(1, 1);
        tn_graph *g = tn_world_graph(NULL);
        times_cache(g, true, &loss);
        tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss, .recompute = again });
        float *cache = tn_world_entry(&w, "cache")->data, *news = tn_world_data(b, "news");
        for (int i = 0; i < 6; i++) {
            cache[i] = 0.1f * (float)(i + 1);
            news[i] = 7;
        }
        assert_ok(tn_run(b));
        memcpy(grad[again], tn_world_entry(&w, "x")->grad, sizeof grad[again]);
        assert_true(cache[0] == 7);
        tn_world_close(&w);
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
}

static void outputs_lie_in_order(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref x = tn_input(g, "x", tn_shape(2, 3), TN_F32), y = tn_scale(g, x, 2);
    tn_output(g, "turned", tn_transpose(g, y, 1, 0));
    tn_output(g, "column", tn_slice(g, y, 1, 1, 1));
    tn_bound *b = tn_world_add(&w, g, NULL);
    memcpy(tn_world_data(b, "x"), (const float[]){ 1, 2, 3, 4, 5, 6 }, 6 * sizeof(float));
    assert_ok(tn_run(b));
    assert_memory_equal(tn_world_data(b, "turned"), ((const float[]){ 2, 8, 4, 10, 6, 12 }), 6 * sizeof(float));
    assert_memory_equal(tn_world_data(b, "column"), ((const float[]){ 4, 10 }), 2 * sizeof(float));
    tn_world_close(&w);
}

static void slices_of_nothing(void **state)
{
    (void)state;
    tn_world w = tn_world_open(1, 1);
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref p = tn_param(g, "p", tn_shape(4, 0), tn_ones), y = tn_scale(g, p, 2);
    const tn_ref loss = tn_sum_all(g, tn_mul(g, tn_slice(g, y, 0, 0, 2), tn_slice(g, y, 0, 2, 2)));
    tn_output(g, "loss", loss);
    tn_bound *b = tn_world_add(&w, g, &(tn_compile_options){ .loss = loss });
    assert_ok(tn_run(b));
    assert_true(*(float *)tn_world_data(b, "loss") == 0);
    tn_world_close(&w);
}

static void slices_of_live_rows(void **state)
{
    (void)state;
    tn_graph *g = tn_world_graph(NULL);
    const tn_ref count = tn_input(g, "count", tn_shape(1), TN_I32);
    const tn_ref x = tn_live(g, tn_input(g, "x", tn_shape(8, 3), TN_F32), count);
    assert_true(tn_slice(g, x, 0, 0, 4).id && tn_slice(g, x, 1, 1, 2).id);
    assert_ok(tn_graph_status(g));
    assert_int_equal(tn_slice(g, x, 0, 4, 4).id, 0); /* its first rows would count as the living ones */
    assert_fails(tn_graph_status(g), TN_USAGE, "live extent");
    tn_graph_free(g);
}

void tn_tests_hazard(tn_test_list *l)
{
    tn_test_add(l, old_numbers_are_refused, NULL, "hazard: gradients of a state changed later");
    tn_test_add(l, copies_are_not_recomputed, NULL, "hazard: recompute and a state changed in place");
    tn_test_add(l, outputs_lie_in_order, NULL, "hazard: outputs that are views");
    tn_test_add(l, slices_of_nothing, NULL, "hazard: slices of nothing");
    tn_test_add(l, slices_of_live_rows, NULL, "hazard: slices of live rows");
}
