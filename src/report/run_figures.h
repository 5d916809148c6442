/* What a run's metrics say of its machine: utilisation, waiting for data, memory, clock and power, over its last lines. */
#ifndef TN_REPORT_RUN_FIGURES_H
#define TN_REPORT_RUN_FIGURES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tn_run_figure {
    const char *key; /* of metrics.jsonl */
    const char *what, *unit;
    double mean, least, most; /* of the lines that have it */
    int64_t lines;
} tn_run_figure;

enum { TN_RUN_FIGURES = 16 };

/* Those that the run has recorded, in a fixed order; 0 where metrics.jsonl is gone. Lines that are damaged end the reading. However long
 * the file is, only its end is read. */
size_t tn_run_figures_read(const char *run, tn_run_figure figure[TN_RUN_FIGURES]);

#endif
