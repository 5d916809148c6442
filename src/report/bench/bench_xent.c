/* The head of a language model: linear_xent forward and backward in turn with its three bare matrix products
 * (logits, dx, dw), whose time is the ceiling of the row: the rest of the op is what it costs to make a loss of
 * them. One tile of tokens, as more of them take longer and change nothing. */
#include "backend/cpu/gemm.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "report/bench/bench.h"
#include "report/bench/timing.h"

enum { N = 256, D = 512, V = 50257, ROUNDS = 3 };

typedef struct head {
    tn_graph *graph;
    tn_store *store;
    tn_context *context;
    tn_plan *plan;
    tn_bound *bound;
    tn_pool *pool;
    float *logits, *dx, *dw; /* (N,V) (N,D) (V,D) of the bare products */
    void *work;
} head;

static void head_free(head *h)
{
    tn_free(h->logits);
    tn_free(h->dx);
    tn_free(h->dw);
    tn_free(h->work);
    tn_pool_free(h->pool);
    tn_graph_free(h->graph);
    tn_bound_free(h->bound);
    tn_context_free(h->context);
    tn_plan_free(h->plan);
    tn_store_free(h->store);
}

static tn_status open_op(head *h, int threads)
{
    const tn_graph_options o = { .training = true, .threads = threads };
    TN_RETURN_IF(tn_store_new(TN_CPU, 1, &h->store));
    TN_RETURN_IF(tn_context_new(TN_CPU, threads, &h->context));
    TN_RETURN_IF(tn_graph_new(&o, &h->graph));
    tn_graph *g = h->graph;
    const tn_ref x = tn_want_gradient(g, tn_input(g, "x", tn_shape(N, D), TN_F32));
    const tn_ref w = tn_param(g, "w", tn_shape(V, D), tn_normal(0.02f));
    const tn_ref loss = tn_linear_xent(g, x, w, tn_input(g, "labels", tn_shape(N), TN_I32));
    tn_output(g, "loss", loss);
    TN_RETURN_IF(tn_store_adopt(h->store, g));
    h->graph = NULL;
    TN_RETURN_IF(tn_graph_compile(g, &(tn_compile_options){ .loss = loss }, &h->plan));
    TN_RETURN_IF(tn_bind(h->plan, h->context, h->store, &h->bound));
    float *numbers = tn_bound_data(h->bound, "x");
    int32_t *labels = tn_bound_data(h->bound, "labels");
    for (uint64_t i = 0; i < N * D; i++) numbers[i] = tn_rng_normal((tn_rng){ 7, 1 }, i);
    for (uint64_t i = 0; i < N; i++) labels[i] = (int32_t)tn_rng_below((tn_rng){ 7, 2 }, i, V);
    return TN_OK;
}

static void make_products(const head *h, tn_gemm g[3])
{
    const float *x = tn_bound_data(h->bound, "x"), *w = tn_store_find(h->store, "w")->data;
    const tn_gemm one = { .batch = 1, .alpha = 1, .share_b = true };
    g[0] = g[1] = g[2] = one;
    g[0].m = N, g[0].n = V, g[0].k = D, g[0].c = h->logits, g[0].c_row = V;
    g[0].a = x, g[0].a_row = D, g[0].a_col = 1, g[0].b = w, g[0].b_row = 1, g[0].b_col = D;
    g[1].m = N, g[1].n = D, g[1].k = V, g[1].c = h->dx, g[1].c_row = D;
    g[1].a = h->logits, g[1].a_row = V, g[1].a_col = 1, g[1].b = w, g[1].b_row = D, g[1].b_col = 1;
    g[2].m = V, g[2].n = D, g[2].k = N, g[2].c = h->dw, g[2].c_row = D;
    g[2].a = h->logits, g[2].a_row = 1, g[2].a_col = V, g[2].b = x, g[2].b_row = D, g[2].b_col = 1;
}

static tn_status open_products(head *h, int threads, tn_gemm g[3])
{
    size_t most = 0;
    h->logits = tn_alloc(sizeof(float) * N * V);
    h->dx = tn_alloc(sizeof(float) * N * D);
    h->dw = tn_alloc(sizeof(float) * V * D);
    if (!h->logits || !h->dx || !h->dw) return TN_MEMORY;
    make_products(h, g);
    for (int i = 0; i < 3; i++) {
        const size_t bytes = tn_gemm_work_bytes(&g[i], threads);
        most = bytes > most ? bytes : most;
    }
    h->work = tn_alloc(most);
    return h->work ? tn_pool_new(threads, &h->pool) : TN_MEMORY;
}

tn_status tn_bench_xent(const tn_bench *b)
{
    tn_status s = TN_OK;
    head h = { 0 };
    tn_gemm g[3];
    double op[ROUNDS], ratio[ROUNDS];
    tn_bench_row r = { .group = "op", .name = "linear_xent fwd+bwd, of its bare GEMMs" };
    TN_TRY(open_op(&h, b->ceilings.threads));
    TN_TRY(open_products(&h, b->ceilings.threads, g));
    TN_TRY(tn_run(h.bound)); /* touches the memory */
    for (int i = 0; i < ROUNDS; i++) {
        const double start = tn_clock_s();
        TN_TRY(tn_run(h.bound));
        const double middle = tn_clock_s();
        for (int k = 0; k < 3; k++) tn_gemm_run(h.pool, &g[k], h.work);
        op[i] = middle - start;
        ratio[i] = (tn_clock_s() - middle) / op[i];
    }
    r.ms = 1e3 * tn_median(op, ROUNDS, &r.spread_ms);
    r.spread_ms *= 1e3;
    r.gflops = 6e-6 * N * D * V / r.ms;
    r.of_ceiling = tn_median(ratio, ROUNDS, NULL);
    b->row(b->ctx, &r);
done:
    head_free(&h);
    return s;
}
