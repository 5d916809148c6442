/* Times of replayed steps. */
#include "report/profile/replayed.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/tracer.h"
#include "report/trace/trace.h"

#include <math.h>
#include <string.h>

enum { WARM = 3, STEPS = 8, MOST_ROWS = 4096, SHORT_GAP_NS = 10000 }; /* WARM: queued, captured, replayed once */

/* The part of the kernels' time whose ops are known, below which the rows would lack something. */
static const double KNOWN = 0.95;

static bool is_row(const tn_profile_row *r, const tn_node_time *x)
{
    return r->backward == x->backward && strncmp(r->op, x->op, sizeof r->op - 1) == 0 &&
           strncmp(r->region, x->region, sizeof r->region - 1) == 0;
}

bool tn_profile_use_times(tn_profile *p, const tn_node_time *node, size_t n, int steps, double optimizer_ms)
{
    double all = 0;
    if (n != p->n || steps < 1) return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_row(&p->row[i], &node[i])) return false;
        all += node[i].ms;
    }
    if (!(all > 0)) return false;
    for (size_t i = 0; i < n; i++) {
        tn_profile_row *r = &p->row[i];
        const double ms = node[i].ms / steps;
        r->spread_ms *= r->ms > 0 ? ms / r->ms : 0;
        r->ms = ms;
    }
    if (optimizer_ms > 0) p->optimizer_ms = optimizer_ms / steps;
    p->replayed = true;
    p->timed_ms = p->step_ms;
    p->timed_spread_ms = p->spread_ms;
    p->host_ms = fmax(p->step_ms - all / steps - p->optimizer_ms - p->data_ms, 0);
    return true;
}

static tn_status run(tn_session *s, int64_t *next, int steps)
{
    tn_trainer *t = s->trainer;
    const int64_t batches = tn_trainer_batches(t);
    tn_step_result x;
    int64_t count;
    for (int k = 0; k < steps; k++, ++*next) {
        for (int64_t i = 0; i < batches; i++) {
            if (s->source.ctx) TN_RETURN_IF(tn_source_next(&s->source, *next, t, &count));
            TN_RETURN_IF(tn_trainer_queue_grad(t, *next * batches + i, 1, false));
        }
        TN_RETURN_IF(tn_trainer_queue_apply(t, *next));
        if (tn_trainer_queued(t) == tn_trainer_queue_depth(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    }
    while (tn_trainer_queued(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    return TN_OK;
}

double tn_profile_marked(const tn_span *spans, size_t n)
{
    double all = 0, marked = 0;
    for (size_t i = 0; i < n; i++) {
        const double took = (double)(spans[i].end - spans[i].begin);
        if (spans[i].kind != TN_SPAN_KERNEL) continue;
        all += took;
        marked += spans[i].mark ? took : 0;
    }
    return all > 0 ? marked / all : 0;
}

/* No kernel is shorter than the shortest: about what a launch takes by itself. */
static double shortest_ms(const tn_span *spans, size_t n)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (spans[i].kind == TN_SPAN_KERNEL && spans[i].end - spans[i].begin < least)
            least = spans[i].end - spans[i].begin;
    return least < UINT64_MAX ? 1e-6 * (double)least : 0;
}

double tn_profile_gaps(const tn_span *spans, size_t n)
{
    uint64_t end = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        const tn_span *s = &spans[i];
        if (s->kind != TN_SPAN_KERNEL && s->kind != TN_SPAN_COPY) continue;
        if (end && s->begin > end && s->begin - end < SHORT_GAP_NS) sum += s->begin - end;
        if (s->end > end) end = s->end;
    }
    return 1e-6 * (double)sum;
}

/* The spans since `begun`, which are of so many steps. */
static tn_status take(tn_session *s, tn_profile *p, tn_span *spans, size_t n, uint64_t begun)
{
    size_t first = 0;
    double optimizer_ms = 0;
    tn_node_time *node = tn_alloc(sizeof *node * MOST_ROWS);
    if (!node) return TN_MEMORY;
    while (first < n && spans[first].begin < begun) first++;
    if (tn_profile_marked(spans + first, n - first) >= KNOWN &&
        tn_trainer_take_spans(s->trainer, spans + first, n - first, STEPS, &optimizer_ms)) {
        const size_t rows = tn_trainer_node_times(s->trainer, node, MOST_ROWS);
        if (tn_profile_use_times(p, node, rows, STEPS, optimizer_ms)) {
            p->launch_ms = shortest_ms(spans + first, n - first);
            p->gaps_ms = fmin(tn_profile_gaps(spans + first, n - first) / STEPS, p->host_ms);
        }
        const tn_trace sum = tn_trace_sum(spans + first, n - first);
        p->busy = sum.span_s > 0 ? sum.busy_s / sum.span_s : NAN;
    }
    tn_trainer_timers(s->trainer, false);
    tn_free(node);
    return p->replayed ? tn_record_spans(s->trainer, spans + first, n - first, &p->recorded) : TN_OK;
}

tn_status tn_profile_replay(tn_session *s, tn_profile *p, int64_t *next)
{
    const tn_backend *b = tn_backend_get(tn_trainer_device(s->trainer));
    tn_span *spans = NULL;
    size_t n = 0;
    uint64_t begun = 0;
    if (!b || !b->trace_mark || b->trace_begin() != TN_OK) return TN_OK; /* no CUPTI: the queued steps count */
    tn_trainer_mark(s->trainer, true);
    tn_status st = run(s, next, WARM);
    if (st == TN_OK) st = b->wait(NULL);
    begun = tn_tracer_now();
    if (st == TN_OK) st = run(s, next, STEPS);
    if (st == TN_OK) st = b->wait(NULL);
    tn_trainer_mark(s->trainer, false);
    const tn_status ended = b->trace_end(&spans, &n);
    if (st == TN_OK && ended == TN_OK) {
        tn_trace_sort(spans, n);
        st = take(s, p, spans, n, begun);
    }
    tn_free(spans);
    return st;
}
