/* `tenon bench decode A B`: tokens per second of decoding by batch and context. */
#ifndef TN_CLI_BENCH_DECODE_H
#define TN_CLI_BENCH_DECODE_H

#include "cli/cli.h"

tn_status tn_bench_decode(tn_cli *c, int threads); /* threads 0: as the settings say */

#endif
