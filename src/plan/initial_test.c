/* First values: the same on any number of threads, and those that the formula of each kind says. */
#include "testlib.h"

#include "base/alloc.h"
#include "plan/store.h"

#include <string.h>

enum { N = 100003 }; /* several tiles, and no whole number of blocks */

static void own_fill(float *x, tn_dims dims, float (*uniform)(const void *ctx, uint64_t i), const void *ctx,
                     const float *p)
{
    for (int64_t i = 0; i < tn_dims_count(dims); i++) x[i] = p[0] * uniform(ctx, (uint64_t)(2 * i));
}

static float expected(const tn_init *init, tn_rng r, uint64_t i)
{
    switch (init->kind) {
    case TN_INIT_CONSTANT: return init->a;
    case TN_INIT_NORMAL: return tn_rng_normal(r, i) * init->a;
    case TN_INIT_UNIFORM: return init->a + (init->b - init->a) * tn_rng_uniform(r, i);
    default: return init->p[0] * tn_rng_uniform(r, 2 * i);
    }
}

/* In two parts, as a store does with what it uploads. */
static void fill(tn_pool *pool, float *x, const tn_init *init, tn_rng r)
{
    const int64_t half = N / 8 * 4;
    if (init->kind == TN_INIT_CALL) {
        tn_initial_whole(x, tn_shape(N), init, r);
        return;
    }
    tn_initial_part(pool, x + half, TN_F32, half, N - half, init, r);
    tn_initial_part(pool, x, TN_F32, 0, half, init, r);
}

static void on_any_threads(void **state)
{
    const tn_init kinds[] = {
        tn_constant(0.25f), tn_normal(0.02f), tn_uniform(-1, 3), { .kind = TN_INIT_CALL, .fill = own_fill, .p = { 2 } }
    };
    const tn_rng r = { 5, 77 };
    (void)state;
    float *x = tn_alloc(sizeof *x * N);
    assert_non_null(x);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int threads = 0; threads <= 3; threads += 3) {
            tn_pool *pool = NULL;
            if (threads) assert_ok(tn_pool_new(threads, &pool));
            memset(x, 0xff, sizeof *x * N);
            fill(pool, x, &kinds[k], r);
            for (uint64_t i = 0; i < N; i++) assert_true(x[i] == expected(&kinds[k], r, i));
            tn_pool_free(pool);
        }
    tn_free(x);
}

static const float *first_weights(int threads, tn_store **store, tn_graph **g)
{
    assert_ok(tn_graph_new(&(tn_graph_options){ .threads = threads }, g));
    tn_param(*g, "w", tn_shape(1024, 300), tn_normal(1.f)); /* enough for threads to be worth it */
    tn_frozen(*g, "h", tn_shape(64, 3), TN_BF16, tn_normal(1.f));
    assert_ok(tn_store_new(TN_CPU, 9, store));
    assert_ok(tn_store_adopt(*store, *g));
    return tn_store_find(*store, "w")->data;
}

static void of_a_store(void **state)
{
    tn_store *a, *b;
    tn_graph *g, *h;
    (void)state;
    const float *x = first_weights(1, &a, &g), *y = first_weights(3, &b, &h);
    assert_memory_equal(x, y, sizeof *x * 1024 * 300);
    assert_memory_equal(tn_store_find(a, "h")->data, tn_store_find(b, "h")->data, 2 * 64 * 3);
    tn_graph_free(g);
    tn_graph_free(h);
    tn_store_free(a);
    tn_store_free(b);
}

void tn_tests_initial(tn_test_list *l)
{
    tn_test_add(l, on_any_threads, NULL, "initial: every kind, on one thread and on three");
    tn_test_add(l, of_a_store, NULL, "initial: a store's tensors on one thread and on three");
}
