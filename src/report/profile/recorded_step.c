/* A short trace, of which one step is kept. */
#include "report/profile/recorded_step.h"

#include "base/alloc.h"
#include "report/trace/trace_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, WARM = 1, MOST_SPANS = 20000, MOST_PHASES = 256 }; /* MOST_SPANS: of a track */

/* A step of the main thread, and its phases. */
typedef struct choice {
    const tn_event *step, *phase[MOST_PHASES];
    size_t n;
} choice;

static int by_length(const void *a, const void *b)
{
    const tn_event *x = *(const tn_event *const *)a, *y = *(const tn_event *const *)b;
    const uint64_t p = x->end - x->begin, q = y->end - y->begin;
    return (p > q) - (p < q);
}

static choice middle_step(tn_tracer *t)
{
    choice c = { 0 };
    const tn_event *e, *step[STEPS];
    size_t found = 0;
    const size_t n = tn_tracer_events(t, TN_TRACK_MAIN, &e);
    for (size_t i = 0; i < n && found < STEPS; i++)
        if (e[i].kind == TN_TRACED_STEP) step[found++] = &e[i];
    if (!found) return c;
    qsort(step, found, sizeof *step, by_length);
    c.step = step[found / 2];
    for (size_t i = 0; i < n && c.n < MOST_PHASES; i++)
        if (e[i].kind == TN_TRACED_PHASE && e[i].begin >= c.step->begin && e[i].end <= c.step->end)
            c.phase[c.n++] = &e[i];
    return c;
}

static bool is_optimizer(const choice *c, uint64_t when)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->phase[i]->begin <= when && when < c->phase[i]->end) return strcmp(c->phase[i]->name, "optimizer") == 0;
    return false;
}

/* TN_DOINGS: it holds others, or is none of the step's. What workers do is of the main thread's phase. */
static tn_doing doing_of(const tn_event *e, const choice *c)
{
    if (e->kind == TN_TRACED_WAIT) return TN_DOING_WAIT;
    if (e->kind == TN_TRACED_BATCH) return TN_DOING_BATCH;
    if (e->kind != TN_TRACED_OP && e->kind != TN_TRACED_PIECES) return TN_DOINGS;
    if (is_optimizer(c, e->begin)) return TN_DOING_OPTIMIZER;
    return e->backward ? TN_DOING_BACKWARD : TN_DOING_FORWARD;
}

static void take_track(tn_tracer *t, int track, const choice *c, tn_step_record *out)
{
    const tn_event *e, *step = c->step;
    const size_t n = tn_tracer_events(t, track, &e), most = out->n + MOST_SPANS;
    tn_tracer_track_name(t, track, out->track[track]);
    for (size_t i = 0; i < n && out->n < most; i++) {
        if (e[i].end <= step->begin || e[i].begin >= step->end) continue;
        const tn_doing doing = doing_of(&e[i], c);
        if (doing == TN_DOINGS) continue;
        const uint64_t begin = e[i].begin > step->begin ? e[i].begin : step->begin,
                       end = e[i].end < step->end ? e[i].end : step->end;
        out->span[out->n++] = (tn_step_span){ .begin_ms = 1e-6 * (double)(begin - step->begin),
                                              .end_ms = 1e-6 * (double)(end - step->begin),
                                              .track = track,
                                              .doing = doing,
                                              .name = e[i].name,
                                              .where = e[i].where };
    }
}

/* Each track has room of its own: a main thread with many ops leaves that of the others. */
static size_t most_spans(tn_tracer *t, int tracks)
{
    size_t sum = 1;
    const tn_event *e;
    for (int k = 0; k < tracks; k++) {
        const size_t n = tn_tracer_events(t, k, &e);
        sum += n < MOST_SPANS ? n : MOST_SPANS;
    }
    return sum;
}

static tn_status take(tn_tracer *t, tn_step_record *out)
{
    const choice c = middle_step(t);
    if (!c.step) return TN_OK;
    const int tracks = tn_tracer_tracks(t);
    out->tracks = tracks < TN_STEP_TRACKS ? tracks : TN_STEP_TRACKS;
    if (!(out->span = tn_alloc(most_spans(t, out->tracks) * sizeof *out->span))) return TN_MEMORY;
    out->ms = 1e-6 * (double)(c.step->end - c.step->begin);
    for (int k = 0; k < out->tracks; k++) take_track(t, k, &c, out);
    return TN_OK;
}

tn_status tn_record_step(tn_session *s, tn_step_record *out)
{
    tn_tracer *t = NULL;
    *out = (tn_step_record){ 0 };
    if (tn_trainer_device(s->trainer) != TN_CPU) return TN_OK;
    TN_RETURN_IF(tn_trace_tracer(s->trainer, tn_trace_loaders(s->settings), STEPS, WARM, &t));
    tn_status st = tn_trace_session(s, t, WARM + STEPS);
    if (st == TN_OK) st = take(t, out);
    tn_tracer_free(t);
    return st;
}

/* --- a device's ----------------------------------------------------------------------------------------------------------------- */

static bool on_device(const tn_span *s) { return s->kind == TN_SPAN_KERNEL || s->kind == TN_SPAN_COPY; }

/* Whether a step begins with each span: an op of the gradient's behind one of an update. Returns how many do, the index of which-th in
 * *at. */
static size_t begins(const tn_trainer *t, const tn_span *spans, size_t n, size_t which, size_t *at)
{
    tn_node_time x;
    size_t found = 0;
    bool after = false, update;
    for (size_t i = 0; i < n; i++) {
        if (!on_device(&spans[i]) || !tn_trainer_marked(t, spans[i].mark, &x, &update)) continue;
        if (after && !update && found++ == which) *at = i;
        after = update;
    }
    return found;
}

typedef struct lane {
    uint32_t stream;
    uint64_t end; /* of the last span */
} lane;

/* Spans of a stream that overlap, kernels of a graph beside each other, have tracks of their own. */
static int track_of(tn_step_record *r, const tn_span *s, lane lanes[TN_STEP_TRACKS])
{
    int i = 0, same = 1;
    for (; i < r->tracks && (lanes[i].stream != s->stream || lanes[i].end > s->begin); i++)
        same += lanes[i].stream == s->stream;
    if (i == TN_STEP_TRACKS) return i - 1;
    if (i == r->tracks) {
        snprintf(r->track[i], sizeof r->track[i], same > 1 ? "stream %u (%d)" : "stream %u", s->stream, same);
        r->tracks++;
    }
    lanes[i] = (lane){ s->stream, s->end };
    return i;
}

tn_status tn_record_spans(const tn_trainer *t, const tn_span *spans, size_t n, tn_step_record *out)
{
    size_t first = 0, last = 0;
    lane lanes[TN_STEP_TRACKS];
    const size_t steps = begins(t, spans, n, SIZE_MAX, &first);
    *out = (tn_step_record){ 0 };
    if (steps < 2) return TN_OK;
    const size_t middle = (steps - 2) / 2;
    begins(t, spans, n, middle, &first);
    begins(t, spans, n, middle + 1, &last);
    if (!(out->span = tn_alloc(MOST_SPANS * sizeof *out->span))) return TN_MEMORY;
    const uint64_t begin = spans[first].begin;
    out->ms = 1e-6 * (double)(spans[last].begin - begin);
    for (size_t i = first; i < last && out->n < MOST_SPANS; i++) {
        tn_node_time x;
        bool update;
        if (!on_device(&spans[i]) || !tn_trainer_marked(t, spans[i].mark, &x, &update)) continue;
        out->span[out->n++] = (tn_step_span){ .begin_ms = 1e-6 * (double)(spans[i].begin - begin),
                                              .end_ms = 1e-6 * (double)(spans[i].end - begin),
                                              .track = track_of(out, &spans[i], lanes),
                                              .doing = update       ? TN_DOING_OPTIMIZER
                                                       : x.backward ? TN_DOING_BACKWARD
                                                                    : TN_DOING_FORWARD,
                                              .name = x.op,
                                              .where = x.region };
    }
    return TN_OK;
}

void tn_step_record_free(tn_step_record *r)
{
    tn_free(r->span);
    *r = (tn_step_record){ 0 };
}
