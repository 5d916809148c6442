/* cache_write: what lands where, in every type; what stays; what is refused. It has no gradient and writes outside
 * the graph, so it does not go through the common driver. */
#include "device_memory.h"
#include "plan/plan.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { B = 2, S = 7, T = 3, KV = 2, D = 5, ROW = KV * D };

typedef struct world {
    tn_store *store;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
} world;

/* x is the last T tokens of an input with one more, so it is a strided view. */
static void open_rows(world *w, tn_dtype type, int threads, int positions)
{
    tn_graph *g;
    assert_ok(tn_graph_new(&(tn_graph_options){ .device = tn_test_device() }, &g));
    const tn_ref x = tn_slice(g, tn_input(g, "x", tn_shape(B, T + 1, KV, D), TN_F32), 1, 1, T);
    const tn_ref cache = tn_cache(g, "k", tn_shape(B, S, KV, D), type);
    const tn_ref after = tn_cache_write(g, cache, x, tn_input(g, "p", tn_shape(positions), TN_I32));
    tn_output(g, "after", tn_cast(g, after, TN_F32));
    assert_ok(tn_graph_status(g));
    assert_ok(tn_store_new(tn_test_device(), 1, &w->store));
    assert_ok(tn_store_adopt(w->store, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = threads, .device = tn_test_device() }, &w->plan));
    assert_ok(tn_context_new(tn_test_device(), threads, &w->context));
    assert_ok(tn_bind(w->plan, w->context, w->store, &w->bound));
    float *in = tn_bound_data(w->bound, "x");
    for (int i = 0; i < B * (T + 1) * ROW; i++) in[i] = (float)(i + 1);
}

static void open_world(world *w, tn_dtype type, int threads) { open_rows(w, type, threads, 1); }

static void close_world(world *w)
{
    tn_bound_free(w->bound);
    tn_context_free(w->context);
    tn_plan_free(w->plan);
    tn_store_free(w->store);
}

static void lands_at_its_place(void **state)
{
    const tn_dtype type = *(const tn_dtype *)*state;
    world w;
    open_world(&w, type, 2);
    for (int32_t p = 0; p <= S - T; p += 2) { /* overlapping writes: the later one wins */
        *(int32_t *)tn_bound_data(w.bound, "p") = p;
        assert_ok(tn_run(w.bound));
    }
    const float *y = tn_bound_data(w.bound, "after");
    float kept[B * S * ROW];
    char raw[sizeof kept];
    tn_memory_get(w.store, tn_store_find(w.store, "k")->data, raw, B * S * ROW * tn_dtype_bytes(type));
    tn_convert(kept, TN_F32, raw, type, B * S * ROW);
    assert_memory_equal(kept, y, sizeof kept);
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int i = 0; i < ROW; i++) {
                const int t = s < 4 ? s % 2 : s - 4; /* written last at p = 0, 2, 4 */
                assert_float_equal(y[(b * S + s) * ROW + i], (float)((b * (T + 1) + t + 1) * ROW + i + 1), 0);
            }
    close_world(&w);
}

static void others_stay(void **state)
{
    (void)state;
    world w;
    open_world(&w, TN_F32, 1);
    void *cache = tn_store_find(w.store, "k")->data;
    float k[B * S * ROW];
    for (int i = 0; i < B * S * ROW; i++) k[i] = -1;
    tn_memory_put(w.store, cache, k, sizeof k);
    *(int32_t *)tn_bound_data(w.bound, "p") = 2;
    assert_ok(tn_run(w.bound));
    tn_memory_get(w.store, cache, k, sizeof k);
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int i = 0; i < ROW; i++) assert_true((k[(b * S + s) * ROW + i] == -1) == (s < 2 || s >= 2 + T));
    close_world(&w);
}

static void rows_have_places(void **state)
{
    static const int32_t at[B] = { 1, 4 };
    (void)state;
    world w;
    open_rows(&w, TN_BF16, 2, B);
    memcpy(tn_bound_data(w.bound, "p"), at, sizeof at);
    assert_ok(tn_run(w.bound));
    const float *y = tn_bound_data(w.bound, "after");
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int i = 0; i < ROW; i++) {
                const int t = s - at[b];
                const float want = t >= 0 && t < T ? (float)((b * (T + 1) + t + 1) * ROW + i + 1) : 0;
                assert_float_equal(y[(b * S + s) * ROW + i], want, 0);
            }
    ((int32_t *)tn_bound_data(w.bound, "p"))[1] = S - T + 1;
    if (tn_test_device() == TN_CPU) assert_fails(tn_run(w.bound), TN_USAGE, "rows 5 to 7 do not fit a cache of 7");
    close_world(&w);
}

static void full_is_an_error(void **state)
{
    (void)state;
    world w;
    open_world(&w, TN_BF16, 1);
    if (tn_test_device() != TN_CPU) { /* it decides on the device, where it can only mark what is wrong */
        *(int32_t *)tn_bound_data(w.bound, "p") = S - T + 1;
        assert_ok(tn_run(w.bound));
        const float *y = tn_bound_data(w.bound, "after");
        for (int i = 0; i < B * S * ROW; i++) assert_true(isnan(y[i]) == (i / ROW % S >= S - T));
        close_world(&w);
        return;
    }
    *(int32_t *)tn_bound_data(w.bound, "p") = S - T + 1;
    assert_fails(tn_run(w.bound), TN_USAGE, "do not fit a cache of 7");
    *(int32_t *)tn_bound_data(w.bound, "p") = -1;
    assert_fails(tn_run(w.bound), TN_USAGE, "do not fit");
    const uint16_t *k = tn_store_find(w.store, "k")->data;
    for (int i = 0; i < B * S * ROW; i++) assert_int_equal(k[i], 0);
    close_world(&w);
}

void tn_tests_cache_write(tn_test_list *l)
{
    static const tn_dtype types[] = { TN_F32, TN_BF16, TN_F16 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        tn_test_add(l, lands_at_its_place, &types[i], "cache_write: lands at its place, %s", tn_dtype_name(types[i]));
    tn_test_add(l, others_stay, NULL, "cache_write: the other rows stay");
    tn_test_add(l, rows_have_places, NULL, "cache_write: sequences at places of their own");
    tn_test_add(l, full_is_an_error, NULL, "cache_write: a full cache is an error");
}
