/* Summary of a device's trace: how much of the time it was busy, and how often the host waited. */
#ifndef TN_REPORT_TRACE_H
#define TN_REPORT_TRACE_H

#include "backend/backend.h"
#include "base/tracer.h"

typedef struct tn_trace {
    size_t kernels, copies;
    double kernel_s;    /* with at least one kernel at work */
    double busy_s;      /* ... kernel or copy */
    double span_s;      /* from the begin of the first of them to the end of the last */
    double gap_s;       /* the longest in between without any */
    size_t waits;       /* the host waited for all that was queued */
    size_t event_waits; /* ... for one thing that was queued earlier */
    size_t calls;       /* of the device's runtime */
} tn_trace;

void tn_trace_sort(tn_span *spans, size_t n); /* by begin */
/* Of sorted ones. */
tn_trace tn_trace_sum(const tn_span *spans, size_t n);

enum { TN_KERNEL_NAME = 64 };

/* All runs of one kernel. */
typedef struct tn_kernel_time {
    char name[TN_KERNEL_NAME]; /* without namespaces, arguments and template parameters: such kernels count together */
    size_t runs;
    double seconds;
} tn_kernel_time;

/* The function's own name in what C++ makes of it, or the name as it is. */
const char *tn_kernel_plain(const char *from, char to[TN_KERNEL_NAME]);

/* The kernels that took the most time, longest first; returns how many of `most` rows there are. */
size_t tn_trace_kernels(const tn_span *spans, size_t n, tn_kernel_time *rows, size_t most);
/* The same of the ops that the main thread ran; "linear, backward". The tracer has stopped. */
size_t tn_trace_ops(tn_tracer *t, tn_kernel_time *rows, size_t most);
/* Seconds in which the thread of a track computed: ops, its pieces of them, or batches. */
double tn_trace_computing(tn_tracer *t, int track);

#endif
