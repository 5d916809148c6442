/* How benchmarks look: rows and ceilings, as text or as JSON Lines. */
#ifndef TN_CLI_BENCH_PRINT_H
#define TN_CLI_BENCH_PRINT_H

#include "cli/cli.h"
#include "report/bench/bench.h"
#include "train/run/saved_model.h"

void tn_bench_print_row(void *cli, const tn_bench_row *r); /* for tn_bench.row */
/* Of the device, measured for about so long, and printed. */
tn_status tn_bench_ceilings(tn_cli *c, tn_device device, int threads, double seconds, tn_ceilings *out);
/* Measured again after the rows, whose highest part of a ceiling was `highest`, and printed with what that says of rows above it. */
tn_status tn_bench_ceilings_again(tn_cli *c, tn_device device, const tn_ceilings *before, int above, double highest);
/* What a word names with the command's settings; a file, a folder or a run brings its weights. */
tn_status tn_bench_find(tn_cli *c, tn_arena *arena, const char *word, tn_saved_model *out);
/* --threads; 0 where it is not given. */
tn_status tn_bench_threads(const tn_cli *c, int *out);
/* MODEL --lengths=A,B: time per token at several sequence lengths, the tokens of a step the same. */
tn_status tn_bench_lengths(tn_cli *c, const char *target, const char *lengths);
/* "812.3 GFLOP/s", in TFLOP/s where there are many; "-" where nobody knows how many operations it took (NaN). */
const char *tn_bench_rate_text(double gflops, char buf[24]);

#endif
