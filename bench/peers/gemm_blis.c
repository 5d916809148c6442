/* The matrix product beside BLIS's sgemm, in turn, over the shapes of `tenon bench gemm`; gemm_blis.sh builds and runs it.
 * gemm_blis THREADS. A row: median rates, and the ratio of neighbouring runs with its spread. One thread is measured in the
 * CPU time of the process, which another process on the same core does not change; more threads by the clock. */
#include "backend/cpu/gemm.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "report/bench/timing.h"

#include <blis.h>
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 41 };

static const struct {
    int64_t m, n, k;
    char layout; /* f: x W^T, x: dy W, w: dy^T x */
} shapes[] = {
    { 64, 256, 768, 'f' },   { 512, 512, 512, 'f' },  { 1024, 1024, 1024, 'f' }, { 4096, 4096, 1024, 'f' },
    { 256, 768, 768, 'f' },  { 256, 3072, 768, 'f' }, { 256, 768, 3072, 'f' },   { 256, 50257, 768, 'f' },
    { 256, 768, 3072, 'x' }, { 3072, 768, 256, 'w' },
};

static double now(bool cpu)
{
    struct timespec t;
    clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(int64_t n)
{
    float *x = tn_alloc(sizeof *x * (size_t)n);
    for (int64_t i = 0; x && i < n; i++) x[i] = tn_rng_uniform((tn_rng){ 1, 2 }, (uint64_t)i) - 0.5f;
    return x;
}

static int compare(tn_pool *pool, int threads, int64_t m, int64_t n, int64_t k, char layout)
{
    const bool down_a = layout == 'w', down_b = layout == 'f';
    float *a = numbers(m * k), *b = numbers(n * k), *c = numbers(m * n), *d = numbers(m * n);
    const tn_gemm g = { .m = m,
                        .n = n,
                        .k = k,
                        .a = a,
                        .a_row = down_a ? 1 : k,
                        .a_col = down_a ? m : 1,
                        .b = b,
                        .b_row = down_b ? 1 : n,
                        .b_col = down_b ? k : 1,
                        .c = c,
                        .c_row = n,
                        .batch = 1,
                        .alpha = 1,
                        .share_b = true };
    void *work = tn_alloc(tn_gemm_work_bytes(&g, threads));
    double ours[MOST], theirs[MOST], ratio[MOST], spread, apart = 0;
    int runs = 0;
    if (!a || !b || !c || !d || !work) return 1;
    for (const double start = tn_clock_s(); runs < MOST && (runs < 7 || tn_clock_s() - start < 1.5); runs++) {
        double t = now(threads == 1);
        tn_gemm_run(pool, &g, work);
        ours[runs] = now(threads == 1) - t;
        t = now(threads == 1);
        cblas_sgemm(CblasRowMajor, down_a ? CblasTrans : CblasNoTrans, down_b ? CblasTrans : CblasNoTrans, (int)m,
                    (int)n, (int)k, 1, a, (int)(down_a ? m : k), b, (int)(down_b ? k : n), 0, d, (int)n);
        theirs[runs] = now(threads == 1) - t;
        ratio[runs] = theirs[runs] / ours[runs];
    }
    for (int64_t i = 0; i < m * n; i++) apart = fmax(apart, fabs((double)c[i] - (double)d[i]));
    const double flops = 2e-9 * (double)m * (double)n * (double)k, r = tn_median(ratio, (size_t)runs, &spread);
    double unused;
    printf("| %lldx%lldx%lld %c | %.1f | %.1f | %.2f +-%.2f |\n", (long long)m, (long long)n, (long long)k, layout,
           flops / tn_median(ours, (size_t)runs, &unused), flops / tn_median(theirs, (size_t)runs, &unused), r, spread);
    fflush(stdout);
    tn_free(a), tn_free(b), tn_free(c), tn_free(d), tn_free(work);
    return apart > 1e-3 * sqrt((double)k); /* both must have computed the same */
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    tn_pool *pool;
    if (threads < 1 || tn_pool_new(threads, &pool) != TN_OK) return 2;
    bli_thread_set_num_threads(threads);
    printf("| shape, %d thread%s | Tenon GFLOP/s | BLIS GFLOP/s | Tenon is faster by |\n| --- | ---: | ---: | ---: |\n",
           threads, threads > 1 ? "s" : "");
    int wrong = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        wrong |= compare(pool, threads, shapes[i].m, shapes[i].n, shapes[i].k, shapes[i].layout);
    tn_pool_free(pool);
    if (wrong) fprintf(stderr, "error: the two products differ\n");
    return wrong;
}
