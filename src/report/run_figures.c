/* Means over the end of metrics.jsonl: how the run goes, not how it began. */
#include "report/run_figures.h"

#include "report/run_tail.h"

#include <math.h>

typedef struct row {
    const char *key, *what, *unit;
    double factor; /* of what the file has */
} row;

static const row rows[] = {
    { "utilisation", "arithmetic, of the machine's peak", "%", 100 },
    { "stall_frac", "waiting for data", "%", 100 },
    { "padding_frac", "padding in batches", "%", 100 },
    { "gpu_utilization_percent", "GPU at work", "%", 1 },
    { "gpu_clock_mhz", "GPU clock", "MHz", 1 },
    { "gpu_power_w", "GPU power", "W", 1 },
    { "memory_used_gb", "GPU memory in use, by all programs", "GB", 1 },
    { "memory_utilization_percent", "GPU memory in use", "%", 1 },
    { "memory_fragmentation_percent", "holes in the arena", "%", 1 },
    { "memory_mb", "memory of the process", "MB", 1 },
    { "tokens_per_s", "tokens", "/s", 1 },
    { "samples_per_s", "samples", "/s", 1 },
    { "step_ms", "steps with a line", "ms", 1 },
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= (int)TN_RUN_FIGURES, "a place for each");

static void take(const json_t *line, tn_run_figure *all)
{
    for (size_t i = 0; i < ROWS; i++) {
        double x;
        tn_run_figure *f = &all[i];
        if (!tn_jsonl_get_number(line, rows[i].key, &x) || !isfinite(x)) continue;
        x *= rows[i].factor;
        f->least = f->lines ? fmin(f->least, x) : x;
        f->most = f->lines ? fmax(f->most, x) : x;
        f->mean += (x - f->mean) / (double)++f->lines;
    }
}

size_t tn_run_figures_read(const char *run, tn_run_figure figure[TN_RUN_FIGURES])
{
    tn_run_figure all[ROWS] = { 0 };
    tn_jsonl_reader *from;
    json_t *line;
    size_t n = 0;
    if (tn_run_tail_open(run, &from) != TN_OK) return 0;
    while (tn_jsonl_reader_next(from, &line) == TN_OK && line) take(line, all);
    tn_jsonl_reader_close(from);
    for (size_t i = 0; i < ROWS; i++) {
        if (!all[i].lines) continue;
        figure[n] = all[i];
        figure[n].key = rows[i].key, figure[n].what = rows[i].what, figure[n++].unit = rows[i].unit;
    }
    return n;
}
