/* Benchmarks: kernels and models against ceilings measured in the same run. Rows go to the caller as they are known. */
#ifndef TN_REPORT_BENCH_H
#define TN_REPORT_BENCH_H

#include "report/bench/ceilings.h"

#include <tenon/model.h>
#include <tenon/op.h>

typedef struct tn_bench_row {
    const char *group, *name; /* "gemm", "512x512x512" */
    double ms, spread_ms;     /* median of the runs, half the distance of the quartiles */
    double gflops, gbs;       /* 0 where it does not apply */
    double of_ceiling;        /* 0..1, of the ceiling that bounds it; 0: not known */
    const char *why;          /* it was not measured: the reason, or NULL */
} tn_bench_row;

typedef struct tn_bench {
    tn_device device; /* what the rows run on; the rest is of it */
    tn_ceilings ceilings;
    double budget_s; /* for one row */
    bool bf16;       /* operands of matrix products are rounded to it (graphs) */
    int64_t dim;     /* tn_bench_relax: just this one; 0: all of its table */
    void *ctx;
    void (*row)(void *ctx, const tn_bench_row *r);
} tn_bench;

tn_status tn_bench_gemm(const tn_bench *b);
tn_status tn_bench_ops(const tn_bench *b);
tn_status tn_bench_gru(const tn_bench *b);
tn_status tn_bench_relax(const tn_bench *b);
tn_status tn_bench_xent(const tn_bench *b); /* part of tn_bench_ops */
/* The same at the sizes of a large step, by the device's clock (bench_kernel.h). */
tn_status tn_bench_gemm_gpu(const tn_bench *b);
tn_status tn_bench_ops_gpu(const tn_bench *b);

/* One row: the graph that `build` makes, forward and backward by every input it wants the gradient of. off: switches that
 * are off, or NULL. */
tn_status tn_bench_graph(const tn_bench *b, const char *group, const char *name, tn_ref (*build)(tn_graph *g),
                         const char *const *off);

#endif
