/* What it takes to run a graph in a test: a store, a context, and the plans bound to both, closed together. Header
 * only. Every call fails the test when it cannot do its work. */
#ifndef TN_WORLD_H
#define TN_WORLD_H

#include "plan/plan.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TN_WORLD_PLANS = 16 };

typedef struct tn_world {
    tn_store *store;
    tn_context *context;
    tn_plan *plan[TN_WORLD_PLANS];
    tn_bound *bound[TN_WORLD_PLANS];
    int n;
    tn_device device;
} tn_world;

static inline tn_world tn_world_open_on(tn_device device, uint64_t seed, int threads)
{
    tn_world w = { .device = device };
    assert_ok(tn_store_new(device, seed, &w.store));
    assert_ok(tn_context_new(device, threads, &w.context));
    return w;
}

static inline tn_world tn_world_open(uint64_t seed, int threads) { return tn_world_open_on(TN_CPU, seed, threads); }

/* Binds a plan, which the world owns from then on. */
static inline tn_bound *tn_world_bind(tn_world *w, tn_plan *p)
{
    assert_true(w->n < TN_WORLD_PLANS);
    w->plan[w->n] = p;
    assert_ok(tn_bind(p, w->context, w->store, &w->bound[w->n]));
    return w->bound[w->n++];
}

/* Adopts, compiles (o may be NULL) and binds a graph. */
static inline tn_bound *tn_world_add(tn_world *w, tn_graph *g, const tn_compile_options *o)
{
    tn_plan *p;
    tn_compile_options how = o ? *o : (tn_compile_options){ .threads = tn_context_threads(w->context) };
    how.device = w->device;
    assert_ok(tn_store_adopt(w->store, g));
    assert_ok(tn_graph_compile(g, &how, &p));
    return tn_world_bind(w, p);
}

static inline void tn_world_close(tn_world *w)
{
    for (int i = 0; i < w->n; i++) tn_bound_free(w->bound[i]);
    for (int i = 0; i < w->n; i++) tn_plan_free(w->plan[i]);
    tn_context_free(w->context);
    tn_store_free(w->store);
}

static inline tn_graph *tn_world_graph(const tn_graph_options *o)
{
    tn_graph *g;
    assert_ok(tn_graph_new(o, &g));
    return g;
}

static inline tn_graph *tn_world_graph_on(tn_device device, const tn_graph_options *o)
{
    tn_graph_options on = o ? *o : (tn_graph_options){ 0 };
    on.device = device;
    return tn_world_graph(&on);
}

static inline void *tn_world_data(tn_bound *b, const char *name)
{
    void *p = tn_bound_data(b, name);
    if (p) return p;
    fail_msg("the plan has no %s", name);
    abort(); /* never reached, which compilers do not know */
}

static inline const tn_entry *tn_world_entry(const tn_world *w, const char *name)
{
    const tn_entry *e = tn_store_find(w->store, name);
    if (e) return e;
    fail_msg("the store has no %s", name);
    abort();
}

/* The largest difference over the largest number of b; NaN counts. */
static inline double tn_world_distance(const float *a, const float *b, int64_t n)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)b[i]), gap = fabs((double)a[i] - (double)b[i]);
        if (size > most) most = size;
        if (!(gap <= off)) off = gap;
    }
    return off / most;
}

/* The same bits on the CPU; on a GPU, where a product's algorithm is chosen by its shape and by measuring, this near. */
static inline bool tn_world_same(const float *a, const float *b, int64_t n, double near)
{
    if (tn_test_device() == TN_CPU) return memcmp(a, b, sizeof *a * (size_t)n) == 0;
    return tn_world_distance(a, b, n) <= near;
}

#endif
