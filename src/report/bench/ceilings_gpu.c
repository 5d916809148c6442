/* The ceilings of a GPU: the driver's own copy within its memory, and the largest matrix product that cuBLASLt makes of
 * each type of operands; the best of several, as clocks only ever fall short of what they can do. */
#include "backend/backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "report/bench/bench_kernel.h"
#include "report/bench/timing.h"

enum { ROUNDS = 20, UPLOADS = 32 };

static const size_t COPY_BYTES = (size_t)1 << 30; /* far larger than the second-level cache */
static const size_t UPLOAD_BYTES = (size_t)16 << 20;

static tn_status time_copies(const tn_backend *b, void *queue, char *to, const char *from, size_t bytes, double *best)
{
    double ms[ROUNDS];
    for (size_t i = 0; i <= ROUNDS; i++) { /* all of them queued before the first is over: nothing lies between two */
        TN_RETURN_IF(b->mark(queue, i));
        if (i < ROUNDS) TN_RETURN_IF(b->copy(queue, to, from, bytes));
    }
    TN_RETURN_IF(b->wait(queue));
    for (size_t i = 0; i < ROUNDS; i++) TN_RETURN_IF(b->between(queue, i, &ms[i]));
    tn_median(ms, ROUNDS, NULL); /* sorts */
    *best = ms[0];
    return TN_OK;
}

/* Within the second-level cache: what the larger of two copies takes more, as beginning one takes longer than its bytes. */
static tn_status time_cache(const tn_backend *b, void *queue, char *to, const char *from, tn_ceilings *out)
{
    const size_t large = TN_CEILING_SHARED / 2, small = large / 4;
    double more, less;
    TN_RETURN_IF(time_copies(b, queue, to, from, large, &more));
    TN_RETURN_IF(time_copies(b, queue, to, from, small, &less));
    const double gbs = more > less ? 2e-6 * (double)(large - small) / (more - less) : 0;
    out->shared_gbs = gbs > out->copy_gbs ? gbs : 0;
    return time_copies(b, queue, to, from, 4, &out->launch_ms);
}

typedef tn_status upload_fn(void *queue, void *device, const void *host, size_t bytes);

/* By the host's clock, as it is the host that may wait; the first upload also makes what the others use again. */
static tn_status time_uploads(const tn_backend *b, void *queue, upload_fn *upload, char *to, const char *from,
                              double *gbs)
{
    double begin = 0;
    for (int i = 0; i < 2 * UPLOADS; i++) {
        if (i == UPLOADS) {
            TN_RETURN_IF(b->wait(queue));
            begin = tn_clock_s();
        }
        TN_RETURN_IF(upload(queue, to, from, UPLOAD_BYTES));
    }
    TN_RETURN_IF(b->wait(queue));
    *gbs = (double)UPLOADS * (double)UPLOAD_BYTES * 1e-9 / (tn_clock_s() - begin);
    return TN_OK;
}

static tn_status measure_copy(tn_ceilings *out)
{
    tn_status s = TN_OK;
    void *queue = NULL;
    char *memory = NULL, *host = NULL;
    double ms;
    const tn_backend *b = tn_backend_get(TN_CUDA);
    if (!b) return TN_USAGE;
    TN_TRY(b->open(1, &queue));
    memory = b->alloc(2 * COPY_BYTES);
    host = tn_alloc(UPLOAD_BYTES);
    if (!memory || !host) TN_TRY(TN_MEMORY);
    TN_TRY(time_copies(b, queue, memory, memory + COPY_BYTES, COPY_BYTES, &ms));
    out->copy_gbs = 2e-6 * (double)COPY_BYTES / ms;
    TN_TRY(time_cache(b, queue, memory, memory + COPY_BYTES, out));
    TN_TRY(time_uploads(b, queue, b->upload, memory, host, &out->upload_gbs));
    TN_TRY(time_uploads(b, queue, b->upload_pageable, memory, host, &out->upload_pageable_gbs));
done:
    tn_free(host);
    if (memory) b->free(memory);
    if (queue) b->close(queue);
    return s;
}

static tn_ref square(tn_graph *g, const void *size)
{
    const int64_t n = *(const int64_t *)size;
    const tn_dtype type = tn_graph_get_options(g)->activation;
    return tn_matmul(g, tn_input(g, "a", tn_shape(n, n), type), tn_input(g, "b", tn_shape(n, n), type),
                     .transpose_b = true);
}

static tn_status measure_products(int64_t n, tn_bench_case k, double *gflops)
{
    const tn_bench b = { .device = TN_CUDA, .ceilings = { .threads = 1 }, .budget_s = 0.3 };
    tn_bench_time t;
    k.op = "matmul", k.build = square, k.sizes = &n, k.forward_only = true;
    TN_RETURN_IF(tn_bench_time_case(&b, &k, &t));
    *gflops = t.flops / t.best_ms * 1e-6;
    return TN_OK;
}

tn_status tn_ceilings_gpu(tn_ceilings *out)
{
    tn_ceilings c = { .threads = 1, .gpu = true };
    TN_RETURN_IF(measure_copy(&c));
    c.memory_gbs = c.copy_gbs;
    TN_RETURN_IF(measure_products(8192, (tn_bench_case){ 0 }, &c.bf16_gflops));
    TN_RETURN_IF(measure_products(8192, (tn_bench_case){ .tf32 = true }, &c.tf32_gflops));
    TN_RETURN_IF(measure_products(4096, (tn_bench_case){ .f32 = true }, &c.fma_gflops));
    *out = c;
    return TN_OK;
}
