/* --trace=FILE of train, bench and report: some steps as a file that Perfetto opens, on the CPU and on a GPU. */
#ifndef TN_CLI_TRACING_H
#define TN_CLI_TRACING_H

#include "backend/gpu_usage.h"
#include "cli/cli.h"
#include "report/trace/trace_steps.h"

typedef struct tn_tracing {
    tn_cli *c;
    const char *path;         /* NULL: no file was asked for */
    tn_tracer *tracer;        /* NULL: nothing is traced */
    int64_t steps;            /* of --trace-steps */
    const tn_backend *device; /* whose own trace is taken, too; or NULL */
    bool taking;              /* it is */
    tn_span *spans;
    size_t n_spans;
    tn_gpu_usage *gpu; /* or NULL */
    int64_t heard;     /* samples of it that were counted */
} tn_tracing;

/* For steps of a trainer (NULL: of something else that runs on the device) that was given --trace; else x->tracer stays NULL. st: the
 * run's settings; NULL: the trainer alone is measured, without data and warm-up. TN_USAGE: the device cannot be traced. */
tn_status tn_tracing_open(tn_cli *c, tn_device device, const tn_trainer *t, const tn_settings *st, tn_tracing *x);
void tn_tracing_close(tn_tracing *x); /* after the session */
/* As tn_training.tracing: the device's own trace begins and ends with the tracer. */
tn_status tn_tracing_switch(tn_tracing *x, tn_tracer_change what);
/* Between steps: what is known of the GPU. */
void tn_tracing_sample(tn_tracing *x);
/* The file, before the session is closed, whatever ended the steps: `s` is returned, or what went wrong if that is TN_OK. */
tn_status tn_tracing_write(tn_tracing *x, const char *title, tn_status s);

#endif
