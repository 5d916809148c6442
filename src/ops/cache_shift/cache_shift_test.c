/* cache_shift: what lands where, in every type and layout, also where rows move by less than their number; what stays; what is refused. It has no
 * gradient and writes outside the graph, so it does not go through the common driver. */
#include "device_memory.h"
#include "plan/plan.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { B = 5, S = 70, KV = 3, MOST_D = 24, MOST = B * S * KV * MOST_D };

/* Layouts: rows of a token, rows of a head (as attention keeps them), and numbers of a head that lie apart. */
typedef enum layout { TOKENS, HEADS, COLUMNS } layout;

typedef struct row {
    tn_dtype type;
    layout layout;
    int D; /* 24: rows of whole 16 bytes */
} row;

typedef struct world {
    tn_store *store;
    tn_plan *plan;
    tn_context *context;
    tn_bound *bound;
    row r;
} world;

static const int32_t shifts[B] = { 0, 1, 13, S - 2, S };

static tn_ref seen(tn_graph *g, const row *r, const char *name)
{
    switch (r->layout) {
    case TOKENS: return tn_cache(g, name, tn_shape(B, S, KV, r->D), r->type);
    case HEADS: return tn_transpose(g, tn_cache(g, name, tn_shape(B, KV, S, r->D), r->type), 0, 2, 1, 3);
    default: return tn_transpose(g, tn_cache(g, name, tn_shape(B, S, r->D, KV), r->type), 0, 1, 3, 2);
    }
}

/* The cache holds 1, 2, ...: of its tokens, as they are seen. */
static void open_world(world *w, row r, int threads)
{
    tn_graph *g;
    w->r = r;
    assert_ok(tn_graph_new(&(tn_graph_options){ .device = tn_test_device() }, &g));
    const tn_ref after = tn_cache_shift(g, seen(g, &r, "k"), tn_input(g, "shift", tn_shape(B), TN_I32));
    tn_output(g, "after", tn_cast(g, after, TN_F32));
    assert_ok(tn_graph_status(g));
    assert_ok(tn_store_new(tn_test_device(), 1, &w->store));
    assert_ok(tn_store_adopt(w->store, g));
    assert_ok(tn_graph_compile(g, &(tn_compile_options){ .threads = threads, .device = tn_test_device() }, &w->plan));
    assert_ok(tn_context_new(tn_test_device(), threads, &w->context));
    assert_ok(tn_bind(w->plan, w->context, w->store, &w->bound));
}

static void close_world(world *w)
{
    tn_bound_free(w->bound);
    tn_context_free(w->context);
    tn_plan_free(w->plan);
    tn_store_free(w->store);
}

/* Where number (b,s,h,d) of what is seen lies. */
static int place(const row *r, int b, int s, int h, int d)
{
    return r->layout == TOKENS  ? ((b * S + s) * KV + h) * r->D + d
           : r->layout == HEADS ? ((b * KV + h) * S + s) * r->D + d
                                : ((b * S + s) * r->D + d) * KV + h;
}

/* Whole numbers up to 256, which every type has. */
static float number(const row *r, int b, int s, int h, int d)
{
    return (float)((((b * S + s) * KV + h) * r->D + d) * 7 % 257);
}

static void fill(world *w)
{
    static float x[MOST];
    static char raw[sizeof x];
    const row *r = &w->r;
    for (int i = 0; i < B * S * KV * r->D; i++) {
        const int d = i % r->D, h = i / r->D % KV, s = i / r->D / KV % S, b = i / r->D / KV / S;
        x[place(r, b, s, h, d)] = number(r, b, s, h, d);
    }
    const int64_t n = B * S * KV * r->D;
    tn_convert(raw, r->type, x, TN_F32, n);
    tn_memory_put(w->store, tn_store_find(w->store, "k")->data, raw, (size_t)n * tn_dtype_bytes(r->type));
}

static void lands_at_its_place(void **state)
{
    world w;
    const row r = *(const row *)*state;
    open_world(&w, r, 2);
    for (int time = 0; time < 3; time++) { /* queued, recorded, replayed */
        fill(&w);
        memcpy(tn_bound_data(w.bound, "shift"), shifts, sizeof shifts);
        assert_ok(tn_run(w.bound));
        const float *y = tn_bound_data(w.bound, "after"); /* (B,S,KV,D) */
        for (int i = 0; i < B * S * KV * r.D; i++) {
            const int d = i % r.D, h = i / r.D % KV, s = i / r.D / KV % S, b = i / r.D / KV / S;
            const int from = s + shifts[b] < S ? s + shifts[b] : s;
            if (y[i] != number(&r, b, from, h, d))
                fail_msg("(%d,%d,%d,%d) is %g, and row %d has %g", b, s, h, d, (double)y[i], from,
                         (double)number(&r, b, from, h, d));
        }
    }
    close_world(&w);
}

/* Nothing moves on the CPU; a GPU decides on the device, where it can only mark what is wrong. */
static void too_far_is_an_error(void **state)
{
    const int32_t wrong[] = { -1, S + 1 };
    world w;
    const row r = *(const row *)*state;
    open_world(&w, r, 1);
    for (int i = 0; i < 2; i++) {
        fill(&w);
        int32_t *shift = tn_bound_data(w.bound, "shift");
        memcpy(shift, shifts, sizeof shifts);
        shift[1] = wrong[i];
        if (tn_test_device() == TN_CPU) {
            assert_fails(tn_run(w.bound), TN_USAGE, "a cache of 70 rows cannot move by");
            memset(shift, 0, sizeof shifts);
            assert_ok(tn_run(w.bound));
            const float *y = tn_bound_data(w.bound, "after");
            for (int k = 0; k < B * S * KV * r.D; k++)
                assert_true(y[k] == number(&r, k / r.D / KV / S, k / r.D / KV % S, k / r.D % KV, k % r.D));
            continue;
        }
        assert_ok(tn_run(w.bound));
        const float *y = tn_bound_data(w.bound, "after");
        for (int k = 0; k < B * S * KV * r.D; k++) assert_true(isnan(y[k]) == (k / r.D / KV / S == 1));
    }
    close_world(&w);
}

static void shapes_are_checked(void **state)
{
    static const tn_dtype type[] = { TN_F32, TN_F64 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const char *const says[] = { "(B,S,KV,D)", "one of each sequence", "one of each sequence", "use f32" };
        tn_graph *g;
        assert_ok(tn_graph_new(&(tn_graph_options){ .device = tn_test_device() }, &g));
        const tn_dims dims = i == 0 ? tn_shape(B, S, KV) : tn_shape(B, S, KV, 4);
        (void)tn_cache_shift(g, tn_cache(g, "k", dims, type[i == 3]),
                             tn_input(g, "shift", tn_shape(i == 1 ? 1 : B), i == 2 ? TN_F32 : TN_I32));
        assert_fails(tn_graph_status(g), TN_USAGE, says[i]);
        tn_graph_free(g);
    }
}

void tn_tests_cache_shift(tn_test_list *l)
{
    static const char *const layouts[] = { "tokens", "heads", "columns" };
    static const row rows[] = { { TN_F32, HEADS, 24 },  { TN_BF16, HEADS, 24 }, { TN_F16, HEADS, 24 },
                                { TN_F32, HEADS, 5 },   { TN_BF16, HEADS, 5 },  { TN_F32, TOKENS, 24 },
                                { TN_BF16, TOKENS, 7 }, { TN_F32, COLUMNS, 8 }, { TN_F16, COLUMNS, 8 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        tn_test_add(l, lands_at_its_place, r, "cache_shift: lands at its place, %s, %s of %d", tn_dtype_name(r->type),
                    layouts[r->layout], r->D);
        tn_test_add(l, too_far_is_an_error, r, "cache_shift: too far is an error, %s, %s of %d", tn_dtype_name(r->type),
                    layouts[r->layout], r->D);
    }
    tn_test_add(l, shapes_are_checked, NULL, "cache_shift: shapes are checked");
}
