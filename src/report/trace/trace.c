/* Summing the spans of a trace. Time in which several kernels overlap counts once. */
#include "report/trace/trace.h"

#include "base/alloc.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void tn_trace_sort(tn_span *spans, size_t n)
{
    if (n) qsort(spans, n, sizeof *spans, by_begin);
}

tn_trace tn_trace_sum(const tn_span *spans, size_t n)
{
    tn_trace t = { 0 };
    double span, gap;
    for (size_t i = 0; i < n; i++) {
        size_t *const count[] = { [TN_SPAN_KERNEL] = &t.kernels,
                                  [TN_SPAN_COPY] = &t.copies,
                                  [TN_SPAN_WAIT] = &t.waits,
                                  [TN_SPAN_EVENT_WAIT] = &t.event_waits,
                                  [TN_SPAN_CALL] = &t.calls };
        ++*count[spans[i].kind];
    }
    t.kernel_s = covered(spans, n, false, &span, &gap);
    t.busy_s = covered(spans, n, true, &t.span_s, &t.gap_s);
    return t;
}

/* --- kernels --------------------------------------------------------------------------------------------------------------- */

/* The function's own name in what C++ makes of it: _Z, N where it is nested, then length and text of each part. A name that is
 * not written so stays as it is. */
const char *tn_kernel_plain(const char *from, char to[TN_KERNEL_NAME])
{
    const char *p = strncmp(from, "_Z", 2) == 0 ? from + 2 : NULL, *last = from;
    size_t length = strlen(from);
    const bool nested = p && *p == 'N';
    for (p += nested; p && (isdigit((unsigned char)*p) || (*p == 'L' && isdigit((unsigned char)p[1])));) {
        char *text;
        const unsigned long n = strtoul(p + (*p == 'L'), &text, 10);
        if (n == 0 || n > strlen(text)) break;
        last = text, length = n;
        p = nested ? text + n : NULL;
    }
    snprintf(to, TN_KERNEL_NAME, "%.*s", (int)(length < TN_KERNEL_NAME ? length : TN_KERNEL_NAME - 1), last);
    return to;
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const tn_kernel_time *)a)->seconds, y = ((const tn_kernel_time *)b)->seconds;
    return (x < y) - (x > y);
}

enum { KINDS = 512 };

static void count(tn_kernel_time *all, size_t *kinds, const char name[TN_KERNEL_NAME], uint64_t ns)
{
    size_t k = 0;
    while (k < *kinds && strcmp(all[k].name, name) != 0) k++;
    if (k == KINDS) return;
    if (k == *kinds) memcpy(all[(*kinds)++].name, name, TN_KERNEL_NAME);
    all[k].runs++;
    all[k].seconds += 1e-9 * (double)ns;
}

/* Frees them all. */
static size_t longest(tn_kernel_time *all, size_t kinds, tn_kernel_time *rows, size_t most)
{
    if (kinds) qsort(all, kinds, sizeof *all, by_time);
    if (kinds > most) kinds = most;
    if (kinds) memcpy(rows, all, kinds * sizeof *rows);
    tn_free(all);
    return kinds;
}

size_t tn_trace_kernels(const tn_span *spans, size_t n, tn_kernel_time *rows, size_t most)
{
    tn_kernel_time *all = tn_alloc(KINDS * sizeof *all);
    size_t kinds = 0;
    for (size_t i = 0; all && i < n; i++) {
        char name[TN_KERNEL_NAME];
        if (spans[i].kind != TN_SPAN_KERNEL || !spans[i].name) continue;
        tn_kernel_plain(spans[i].name, name);
        count(all, &kinds, name, spans[i].end - spans[i].begin);
    }
    return longest(all, kinds, rows, most);
}

/* --- threads ---------------------------------------------------------------------------------------------------------------- */

size_t tn_trace_ops(tn_tracer *t, tn_kernel_time *rows, size_t most)
{
    tn_kernel_time *all = tn_alloc(KINDS * sizeof *all);
    const tn_event *e;
    size_t kinds = 0;
    const size_t n = tn_tracer_events(t, TN_TRACK_MAIN, &e);
    for (size_t i = 0; all && i < n; i++) {
        char name[TN_KERNEL_NAME] = "";
        if (e[i].kind != TN_TRACED_OP) continue;
        snprintf(name, sizeof name, "%.40s%s", e[i].name, e[i].backward ? ", backward" : "");
        count(all, &kinds, name, e[i].end - e[i].begin);
    }
    return longest(all, kinds, rows, most);
}

/* Waiting for workers is a part of an op's time, and none of the thread's. */
double tn_trace_computing(tn_tracer *t, int track)
{
    const tn_event *e;
    uint64_t sum = 0, op_end = 0;
    const size_t n = tn_tracer_events(t, track, &e);
    for (size_t i = 0; i < n; i++) {
        const uint64_t ns = e[i].end - e[i].begin;
        if (e[i].kind == TN_TRACED_OP) sum += ns, op_end = e[i].end;
        else if (e[i].kind == TN_TRACED_PIECES || e[i].kind == TN_TRACED_BATCH) sum += ns;
        else if (e[i].kind == TN_TRACED_WAIT && e[i].end <= op_end) sum -= ns;
    }
    return 1e-9 * (double)sum;
}
