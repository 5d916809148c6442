/* What is known of a model beside the time of its steps: parts, traces, memory. Shared by benchmarks of training steps and of
 * evaluations. */
#ifndef TN_CLI_BENCH_PARTS_H
#define TN_CLI_BENCH_PARTS_H

#include "cli/bench/bench_print.h"
#include "train/trainer/trainer.h"

enum { TN_BENCH_TIMED = 5, TN_BENCH_ROWS = 512 };

typedef struct tn_bench_parts {
    tn_region_time region[TN_BENCH_ROWS];
    tn_op_time op[TN_BENCH_ROWS];
    size_t n_regions, n_ops;
} tn_bench_parts;

/* Of TN_BENCH_TIMED steps, as --regions and --by-op ask; peak: the ceiling of products, in GFLOP/s. */
tn_status tn_bench_print_parts(tn_cli *c, const tn_bench_parts *p, const tn_ceilings *m, double peak);

/* Runs so many steps and waits for the last. */
typedef tn_status tn_bench_run(void *ctx, int64_t steps);
/* --trace, where it is given: a run of steps of a trainer under a trace, printed, and written to its file. What is recorded has been by
 * then. t NULL: the steps are not a trainer's, and only a GPU can be traced. */
tn_status tn_bench_trace(tn_cli *c, const char *name, tn_device device, tn_trainer *t, tn_bench_run *run, void *ctx);

tn_status tn_bench_print_rate(tn_cli *c, const char *name, double rate, const char *unit);
/* Of the first step: two ways of computing one thing show that they do. */
tn_status tn_bench_print_loss(tn_cli *c, const char *name, const tn_step_result *begun);
/* Bytes of the GPU's memory that are taken, by whomever; 0: there is none. */
size_t tn_bench_gpu_taken(void);
/* The plan, and what the run took of a GPU beyond `idle` (0: not known): the libraries' own scratch memory comes on top. */
tn_status tn_bench_print_memory(tn_cli *c, const char *name, const tn_trainer *t, size_t idle);

#endif
