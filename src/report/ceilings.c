/* Measuring the ceilings: independent chains of fused multiply-adds in registers, and a copy far larger than caches. */
#include "report/ceilings.h"

#include "backend/cpu/pool.h"
#include "base/alloc.h"
#include "report/timing.h"

#include <string.h>

enum { CHAINS = 12, WIDTH = 8, LOOPS = 40000, COPY_MB = 64 };

typedef float lanes __attribute__((vector_size(WIDTH * sizeof(float))));

typedef struct fma_job {
    float *out;
} fma_job;

#if defined(__x86_64__)
__attribute__((target_clones("default", "avx2,fma", "avx512f")))
#endif
static void fma_tile(void *arg, int64_t tile)
{
    const fma_job *j = arg;
    lanes acc[CHAINS], a, b;
    for (int k = 0; k < WIDTH; k++) {
        a[k] = 0.999f;
        b[k] = 1e-3f;
    }
    for (int i = 0; i < CHAINS; i++) acc[i] = b;
    for (int n = 0; n < LOOPS; n++)
        for (int i = 0; i < CHAINS; i++) acc[i] = acc[i] * a + b;
    float sum = 0;
    for (int i = 0; i < CHAINS; i++)
        for (int k = 0; k < WIDTH; k++) sum += acc[i][k];
    j->out[tile] = sum; /* so that the work is not dropped */
}

typedef struct copy_job {
    char *to;
    const char *from;
    size_t bytes;
} copy_job;

static void copy_tile(void *arg, int64_t tile)
{
    const copy_job *j = arg;
    memcpy(j->to + (size_t)tile * j->bytes, j->from + (size_t)tile * j->bytes, j->bytes);
}

tn_status tn_ceilings_measure(int threads, tn_ceilings *out)
{
    tn_status s = TN_OK;
    tn_pool *pool = NULL;
    float sums[TN_POOL_MAX_THREADS];
    const size_t bytes = (size_t)COPY_MB << 20;
    char *a = tn_alloc(bytes), *b = tn_alloc(bytes);
    double best_fma = 1e9, best_copy = 1e9;
    if (!a || !b) TN_TRY(TN_MEMORY);
    TN_TRY(tn_pool_new(threads, &pool));
    memset(a, 1, bytes);
    for (int i = 0; i < 6; i++) {
        fma_job f = { sums };
        double t = tn_now_s();
        tn_pool_run(pool, threads, fma_tile, &f);
        t = tn_now_s() - t;
        if (t < best_fma) best_fma = t;
        copy_job c = { b, a, bytes / (size_t)(4 * threads) };
        t = tn_now_s();
        tn_pool_run(pool, 4 * threads, copy_tile, &c);
        t = tn_now_s() - t;
        if (i && t < best_copy) best_copy = t; /* the first touches the pages */
    }
    *out = (tn_ceilings){ .threads = threads,
                          .fma_gflops = 2.0 * CHAINS * WIDTH * LOOPS * threads / best_fma * 1e-9,
                          .copy_gbs = 2.0 * (double)bytes / best_copy * 1e-9 };
done:
    tn_pool_free(pool);
    tn_free(a);
    tn_free(b);
    return s;
}
