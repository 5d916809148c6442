/* tenon bench w2: the workload of the TEP report, beside the report's own figures. */
#ifndef TN_CLI_BENCH_W2_H
#define TN_CLI_BENCH_W2_H

#include "cli/cli.h"

tn_status tn_bench_w2(tn_cli *c, int threads);

#endif
