/* A trace as a file: JSON in the "Trace Event" format, which Perfetto and chrome://tracing open; with a GPU's spans also
 * HolisticTraceAnalysis. Times are microseconds since tracing began. A track for each thread and each of the device's streams; spans of a
 * track nest. Counters: memory, and how much of the cores (and the GPU) worked in each 50 ms. */
#ifndef TN_REPORT_TRACE_JSON_H
#define TN_REPORT_TRACE_JSON_H

#include "backend/backend.h"
#include "base/tracer.h"

#include <stdio.h>

typedef struct tn_trace_file {
    const char *title; /* model, run: any text */
    tn_tracer *tracer; /* that has stopped */
    const tn_span *spans;
    size_t n_spans; /* of the device, by begin (tn_trace_sort); 0: there is none */
} tn_trace_file;

/* TN_DISK, TN_MEMORY. */
tn_status tn_trace_write(const tn_trace_file *t, FILE *out);

#endif
