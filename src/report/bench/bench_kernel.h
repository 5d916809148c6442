/* One op inside a small graph, on any device: its time is taken alone, by the device's own clock, so that what has
 * to stand around it (making its operands activations that a gradient is asked of) does not count. */
#ifndef TN_REPORT_BENCH_KERNEL_H
#define TN_REPORT_BENCH_KERNEL_H

#include "report/bench/bench.h"

typedef struct tn_bench_case {
    const char *op; /* whose time is taken */
    /* Its result, differentiated by a given cotangent, or as it is where it is one number. */
    tn_ref (*build)(tn_graph *g, const void *sizes);
    const void *sizes;
    bool forward_only;
    bool f32, tf32; /* activations and operands of products; neither: bf16 */
} tn_bench_case;

typedef struct tn_bench_time {
    double ms, spread_ms, best_ms;  /* both directions: median, half the distance of the quartiles, shortest */
    double forward_ms, backward_ms; /* medians */
    double flops, backward_flops, bytes, backward_bytes; /* of one run, as tn_op_time has them */
} tn_bench_time;

tn_status tn_bench_time_case(const tn_bench *b, const tn_bench_case *k, tn_bench_time *out);

/* Numbers of a bf16 or f32 activation that a gradient is asked of. */
tn_ref tn_bench_activation(tn_graph *g, const char *name, tn_dims dims);

/* The row of an op whose FLOPs and bytes are known: of_ceiling is the time that the ceiling which bounds it allows,
 * over the time taken. peak: in GFLOP/s, of its products. */
void tn_bench_report(const tn_bench *b, const char *group, const char *name, double ms, double spread_ms, double flops,
                     double bytes, double peak);

#endif
