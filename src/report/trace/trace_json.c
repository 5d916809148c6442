/* Writing the Trace Event format. Every event is one line; names come from files and are escaped. */
#include "report/trace/trace_json.h"

#include "base/alloc.h"
#include "base/text.h"
#include "report/trace/trace.h"

#include <inttypes.h>
#include <string.h>

/* Processes of the file, and tracks of the host beside those of the tracer. */
enum { GPU = 0, HOST = 1, RUNTIME_TRACK = 1000, LANES = 8, STREAMS = 64, DEPTH = 16 };
#define BIN_NS UINT64_C(50000000)

typedef struct writer {
    FILE *out;
    const tn_trace_file *t;
    uint64_t start;
    bool first; /* no event is written yet */
} writer;

static const char *const categories[TN_TRACED_KINDS] = {
    [TN_TRACED_STEP] = "user_annotation",
    [TN_TRACED_EVALUATION] = "evaluation",
    [TN_TRACED_SAVE] = "saving",
    [TN_TRACED_LOG] = "log",
    [TN_TRACED_PHASE] = "phase",
    [TN_TRACED_OP] = "cpu_op",
    [TN_TRACED_WAIT] = "wait",
    [TN_TRACED_PIECES] = "pieces",
    [TN_TRACED_BATCH] = "data",
};

static void put_text(FILE *out, const char *s)
{
    fputc('"', out);
    for (size_t n; *s; s += n) {
        uint32_t code;
        n = tn_utf8_decode(s, &code);
        if (!n) fputs("\\ufffd", out), n = 1;
        else if (code == '"' || code == '\\') fprintf(out, "\\%c", (int)code);
        else if (code < ' ' || (code >= 0x7f && code < 0xa0)) fprintf(out, "\\u%04x", (unsigned)code);
        else fwrite(s, 1, n, out);
    }
    fputc('"', out);
}

static void begin_event(writer *w, const char *phase, int pid, long tid)
{
    fprintf(w->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%ld", w->first ? "" : ",", phase, pid, tid);
    w->first = false;
}

/* Nanoseconds as microseconds, without rounding: spans that nest still do. */
static void put_us(writer *w, const char *key, uint64_t ns)
{
    fprintf(w->out, ",\"%s\":%" PRIu64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_span(writer *w, int pid, long tid, const char *category, uint64_t begin, uint64_t end)
{
    begin_event(w, "X", pid, tid);
    fprintf(w->out, ",\"cat\":\"%s\"", category);
    put_us(w, "ts", begin - w->start);
    put_us(w, "dur", end - begin);
    fputs(",\"name\":", w->out);
}

/* kind: process_name or thread_name. */
static void put_name(writer *w, const char *kind, int pid, long tid, const char *name, int order)
{
    begin_event(w, "M", pid, tid);
    fprintf(w->out, ",\"name\":\"%s\",\"args\":{\"name\":", kind);
    put_text(w->out, name);
    fputs("}}", w->out);
    begin_event(w, "M", pid, tid);
    fprintf(w->out, ",\"name\":\"%.*s_sort_index\",\"args\":{\"sort_index\":%d}}", (int)strcspn(kind, "_"), kind,
            order);
}

static void put_counter(writer *w, int pid, const char *name, const char *unit, uint64_t at, double value)
{
    begin_event(w, "C", pid, 0);
    fprintf(w->out, ",\"name\":\"%s\"", name);
    put_us(w, "ts", at > w->start ? at - w->start : 0);
    fprintf(w->out, ",\"args\":{\"%s\":%.6g}}", unit, value);
}

/* --- the host's threads ------------------------------------------------------------------------------------------------------ */

/* What an event's number counts. */
static const char *numbered(tn_event_kind k)
{
    return k == TN_TRACED_PIECES ? "pieces" : k == TN_TRACED_BATCH ? "batch" : "step";
}

static void put_event(writer *w, int track, const tn_event *e)
{
    const char *lead = "";
    put_span(w, HOST, track, categories[e->kind], e->begin, e->end);
    if (e->kind == TN_TRACED_STEP) fprintf(w->out, "\"ProfilerStep#%" PRId64 "\"", e->number); /* as PyTorch calls it */
    else put_text(w->out, e->name);
    fputs(",\"args\":{", w->out);
    if (e->where) {
        fputs("\"region\":", w->out);
        put_text(w->out, e->where);
        fprintf(w->out, ",\"pass\":\"%s\"", e->backward ? "backward" : "forward");
        lead = ",";
    }
    if (e->flops > 0) fprintf(w->out, "%s\"flop\":%.15g", lead, e->flops), lead = ",";
    if (e->bytes > 0) fprintf(w->out, "%s\"bytes\":%.15g", lead, e->bytes), lead = ",";
    if (e->number) fprintf(w->out, "%s\"%s\":%" PRId64, lead, numbered(e->kind), e->number);
    fputs("}}", w->out);
}

static void put_threads(writer *w)
{
    char name[TN_TRACK_NAME];
    for (int i = 0; i < tn_tracer_tracks(w->t->tracer); i++) {
        const tn_event *e;
        const size_t n = tn_tracer_events(w->t->tracer, i, &e);
        put_name(w, "thread_name", HOST, i, tn_tracer_track_name(w->t->tracer, i, name), i);
        for (size_t k = 0; k < n; k++) put_event(w, i, &e[k]);
    }
}

static void put_counters(writer *w)
{
    static const struct {
        const char *name, *unit;
        double of;
    } rows[TN_COUNTED_KINDS] = {
        [TN_COUNTED_RESIDENT] = { "memory of the process", "MB", 1e-6 },
        [TN_COUNTED_PLANNED] = { "memory planned", "MB", 1e-6 },
        [TN_COUNTED_DEVICE] = { "memory of the GPU in use", "MB", 1e-6 },
        [TN_COUNTED_GPU_BUSY] = { "GPU utilisation (NVML)", "percent", 1 },
    };
    const tn_counter *c;
    const size_t n = tn_tracer_counters(w->t->tracer, &c);
    for (size_t i = 0; i < n; i++)
        put_counter(w, HOST, rows[c[i].kind].name, rows[c[i].kind].unit, c[i].at, c[i].value * rows[c[i].kind].of);
}

/* --- how much worked when ---------------------------------------------------------------------------------------------------- */

typedef struct bins {
    double *ns; /* (n) */
    size_t n;
    uint64_t start, end;
} bins;

static void add_busy(bins *b, uint64_t begin, uint64_t end, double sign)
{
    if (begin < b->start) begin = b->start;
    if (end > b->end) end = b->end;
    while (begin < end) {
        const size_t i = (size_t)((begin - b->start) / BIN_NS);
        const uint64_t next = b->start + (i + 1) * BIN_NS, to = next < end ? next : end;
        b->ns[i] += sign * (double)(to - begin);
        begin = to;
    }
}

static void put_bins(writer *w, const bins *b, int pid, const char *name, double whole)
{
    for (size_t i = 0; i < b->n; i++) {
        const uint64_t at = b->start + i * BIN_NS, wide = b->end - at < BIN_NS ? b->end - at : BIN_NS;
        put_counter(w, pid, name, "percent", at, wide ? 100 * b->ns[i] / (whole * (double)wide) : 0);
    }
    put_counter(w, pid, name, "percent", b->end, 0);
}

/* Ops of the main thread but for what it waited in them, and what workers computed. */
static void add_threads(const writer *w, bins *b)
{
    for (int i = 0; i <= tn_tracer_workers(w->t->tracer); i++) {
        const tn_event *e;
        uint64_t op_end = 0;
        const size_t n = tn_tracer_events(w->t->tracer, i, &e);
        for (size_t k = 0; k < n; k++) {
            if (e[k].kind == TN_TRACED_OP || e[k].kind == TN_TRACED_PIECES)
                add_busy(b, e[k].begin, op_end = e[k].end, 1);
            else if (e[k].kind == TN_TRACED_WAIT && e[k].end <= op_end) add_busy(b, e[k].begin, e[k].end, -1);
        }
    }
}

/* The part of each bin in which a kernel or a copy ran; overlapping ones count once. */
static void add_device(const writer *w, bins *b)
{
    uint64_t end = 0;
    for (size_t i = 0; i < w->t->n_spans; i++) {
        const tn_span *s = &w->t->spans[i];
        if (s->kind != TN_SPAN_KERNEL && s->kind != TN_SPAN_COPY) continue;
        if (s->end > end) add_busy(b, s->begin > end ? s->begin : end, s->end, 1), end = s->end;
    }
}

static tn_status put_utilisation(writer *w)
{
    bins b = { .start = w->start, .end = tn_tracer_ended(w->t->tracer) };
    b.n = b.end > b.start ? (size_t)((b.end - b.start + BIN_NS - 1) / BIN_NS) : 0;
    b.ns = tn_alloc(sizeof *b.ns * (b.n + 1));
    if (!b.ns) return TN_MEMORY;
    add_threads(w, &b);
    put_bins(w, &b, HOST, "cores computing", 1 + tn_tracer_workers(w->t->tracer));
    if (w->t->n_spans) {
        memset(b.ns, 0, sizeof *b.ns * (b.n + 1));
        add_device(w, &b);
        put_bins(w, &b, GPU, "GPU computing", 1);
    }
    tn_free(b.ns);
    return TN_OK;
}

/* --- the device -------------------------------------------------------------------------------------------------------------- */

/* A stream's spans should not overlap; those that do (kernels of a graph beside each other) get further tracks of the stream. */
typedef struct lane {
    uint64_t end[DEPTH]; /* of spans that are open */
    int depth;
} lane;

typedef struct lanes {
    uint32_t stream[STREAMS];
    int n, used[STREAMS];
    lane of[STREAMS][LANES];
} lanes;

static bool fits(lane *l, const tn_span *s, bool nests)
{
    while (l->depth && l->end[l->depth - 1] <= s->begin) l->depth--;
    if (l->depth && (!nests || l->end[l->depth - 1] < s->end)) return false;
    if (l->depth == DEPTH) return false;
    l->end[l->depth++] = s->end;
    return true;
}

/* The number of its track, or -1: there is no room for more. */
static long place(lanes *x, const tn_span *s, bool nests)
{
    int k = 0;
    while (k < x->n && x->stream[k] != s->stream) k++;
    if (k == STREAMS) return -1;
    if (k == x->n) x->stream[x->n++] = s->stream;
    for (int i = 0; i < LANES; i++)
        if (fits(&x->of[k][i], s, nests)) {
            if (i >= x->used[k]) x->used[k] = i + 1;
            return (long)k * LANES + i;
        }
    return -1;
}

static void put_device_span(writer *w, const tn_span *s, long track)
{
    char name[TN_KERNEL_NAME];
    const bool kernel = s->kind == TN_SPAN_KERNEL;
    put_span(w, GPU, track, kernel ? "kernel" : "gpu_memcpy", s->begin, s->end);
    put_text(w->out, s->name ? tn_kernel_plain(s->name, name) : kernel ? "kernel" : "Memcpy");
    fprintf(w->out, ",\"args\":{\"device\":0,\"stream\":%u,\"correlation\":%u", s->stream, s->correlation);
    if (s->bytes) fprintf(w->out, ",\"bytes\":%" PRIu64, s->bytes);
    fputs("}}", w->out);
}

static void put_call(writer *w, const tn_span *s, long track)
{
    const bool wait = s->kind == TN_SPAN_WAIT || s->kind == TN_SPAN_EVENT_WAIT;
    put_span(w, HOST, RUNTIME_TRACK + track, wait ? "wait" : "cuda_runtime", s->begin, s->end);
    put_text(w->out, s->name                         ? s->name
                     : s->kind == TN_SPAN_WAIT       ? "wait for the device"
                     : s->kind == TN_SPAN_EVENT_WAIT ? "wait for an event"
                                                     : "call");
    fprintf(w->out, ",\"args\":{\"correlation\":%u}}", s->correlation);
}

static void name_streams(writer *w, const lanes *x)
{
    char name[64];
    for (int k = 0; k < x->n; k++)
        for (int i = 0; i < x->used[k]; i++) {
            snprintf(name, sizeof name, i ? "stream %u (%d)" : "stream %u", x->stream[k], i + 1);
            put_name(w, "thread_name", GPU, (long)k * LANES + i, name, k * LANES + i);
        }
}

static tn_status put_device(writer *w)
{
    if (!w->t->n_spans) return TN_OK;
    lanes *x = tn_alloc(2 * sizeof *x), *calls = x ? x + 1 : NULL;
    if (!x) return TN_MEMORY;
    put_name(w, "process_name", GPU, 0, "GPU 0", 1);
    for (size_t i = 0; i < w->t->n_spans; i++) {
        tn_span s = w->t->spans[i];
        const bool device = s.kind == TN_SPAN_KERNEL || s.kind == TN_SPAN_COPY;
        if (s.begin < w->start) continue;
        if (!device) s.stream = 0; /* one thread makes all calls */
        const long track = place(device ? x : calls, &s, !device);
        if (track >= 0 && device) put_device_span(w, &s, track);
        else if (track >= 0) put_call(w, &s, track);
    }
    name_streams(w, x);
    for (int i = 0; calls->n && i < calls->used[0]; i++)
        put_name(w, "thread_name", HOST, RUNTIME_TRACK + i, "CUDA runtime", RUNTIME_TRACK + i);
    tn_free(x);
    return TN_OK;
}

tn_status tn_trace_write(const tn_trace_file *t, FILE *out)
{
    writer w = { .out = out, .t = t, .start = tn_tracer_begun(t->tracer), .first = true };
    fputs("{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"otherData\":{\"tenon\":\"" TN_VERSION "\",\"title\":",
          out);
    put_text(out, t->title);
    fprintf(out, ",\"steps\":%" PRId64 ",\"dropped\":%zu},", tn_tracer_traced(t->tracer), tn_tracer_dropped(t->tracer));
    fprintf(out, "\"deviceProperties\":[%s],\"distributedInfo\":{\"rank\":0,\"world_size\":1},\"traceEvents\":[",
            t->n_spans ? "{\"id\":0,\"name\":\"GPU 0\"}" : "");
    put_name(&w, "process_name", HOST, 0, t->title, 0);
    put_threads(&w);
    put_counters(&w);
    TN_RETURN_IF(put_utilisation(&w));
    TN_RETURN_IF(put_device(&w));
    fputs("\n]}\n", out);
    return ferror(out) ? tn_error(TN_DISK, "the trace could not be written") : TN_OK;
}
