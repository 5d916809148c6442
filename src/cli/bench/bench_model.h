/* tenon bench MODEL: its training step against the ceilings of what it runs on, and where the step's time goes. */
#ifndef TN_CLI_BENCH_MODEL_H
#define TN_CLI_BENCH_MODEL_H

#include "cli/cli.h"

tn_status tn_bench_model(tn_cli *c, const char *target, int threads); /* threads: 0: as the settings say */

#endif
