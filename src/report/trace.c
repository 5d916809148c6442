/* Summing the spans of a trace. Time in which several kernels overlap counts once. */
#include "report/trace.h"

#include <stdlib.h>

static int by_begin(const void *a, const void *b)
{
    const uint64_t x = ((const tn_span *)a)->begin, y = ((const tn_span *)b)->begin;
    return (x > y) - (x < y);
}

static bool on_device(const tn_span *s, bool copies)
{
    return s->kind == TN_SPAN_KERNEL || (copies && s->kind == TN_SPAN_COPY);
}

/* Seconds covered by kernels (and copies); the longest hole between them. */
static double covered(const tn_span *s, size_t n, bool copies, double *span_s, double *gap_s)
{
    uint64_t first = 0, end = 0, sum = 0, gap = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (!on_device(&s[i], copies)) continue;
        if (!any) first = end = s[i].begin;
        any = true;
        if (s[i].begin > end && s[i].begin - end > gap) gap = s[i].begin - end;
        const uint64_t from = s[i].begin > end ? s[i].begin : end;
        if (s[i].end > from) sum += s[i].end - from;
        if (s[i].end > end) end = s[i].end;
    }
    *span_s = 1e-9 * (double)(end - first);
    *gap_s = 1e-9 * (double)gap;
    return 1e-9 * (double)sum;
}

tn_trace tn_trace_sum(tn_span *spans, size_t n)
{
    tn_trace t = { 0 };
    double span, gap;
    if (n) qsort(spans, n, sizeof *spans, by_begin);
    for (size_t i = 0; i < n; i++) {
        size_t *const count[] = { [TN_SPAN_KERNEL] = &t.kernels,
                                  [TN_SPAN_COPY] = &t.copies,
                                  [TN_SPAN_WAIT] = &t.waits,
                                  [TN_SPAN_EVENT_WAIT] = &t.event_waits };
        ++*count[spans[i].kind];
    }
    t.kernel_s = covered(spans, n, false, &span, &gap);
    t.busy_s = covered(spans, n, true, &t.span_s, &t.gap_s);
    return t;
}
