/* tenon bench MODEL --lengths=A,B: one model at several lengths of its sequences, the tokens of a step the same. */
#ifndef TN_CLI_BENCH_LENGTHS_H
#define TN_CLI_BENCH_LENGTHS_H

#include "cli/cli.h"

tn_status tn_bench_lengths(tn_cli *c, const char *target, const char *lengths);

#endif
