/* Where the time of a plan's runs goes: clocks between its steps, for timers and traces, and the tables made of them. */
#include "ops/phase.h"
#include "plan/bound_internal.h"

#include <math.h>
#include <string.h>

/* Where a step's time goes is seen between its kernels: on a device with a queue of its own that is the trace of the device. */
bool tn__bound_is_timed(const tn_bound *b)
{
    return b->timers || (b->context->backend->host_memory && tn_tracer_on(b->context->tracer));
}

/* The first backward step; n_steps: it has none. Forward steps behind it recompute. */
static size_t turn_of(const tn_plan *p)
{
    size_t i = 0;
    while (i < p->n_steps && !p->step[i].backward) i++;
    return i;
}

/* FLOPs of a step that has just run; NaN: the numbers decided, and nobody counted. */
static double spent_by(const tn_step *s, const tn_call *c)
{
    if (!s->varies) return s->flops;
    return s->node->op->spent ? s->node->op->spent(c, s->backward) : NAN;
}

static void trace_step(const tn_bound *b, size_t i, double flops, uint64_t begin, uint64_t end)
{
    const tn_step *s = &b->plan->step[i];
    const char *region = b->plan->graph->region[s->region];
    tn_tracer_add(b->context->tracer, TN_TRACK_MAIN,
                  &(tn_event){ .begin = begin,
                               .end = end,
                               .name = s->node->op->name,
                               .where = region,
                               .flops = isnan(flops) ? 0 : flops,
                               .bytes = s->bytes,
                               .kind = TN_TRACED_OP,
                               .backward = s->backward });
}

static void trace_phase(const tn_bound *b, const char *name, uint64_t begin, uint64_t end)
{
    tn_tracer_add(b->context->tracer, TN_TRACK_MAIN,
                  &(tn_event){
                      .begin = begin, .end = end, .name = b->label ? b->label : name, .kind = TN_TRACED_PHASE });
}

void tn__bound_trace_queued(const tn_bound *b, uint64_t begun)
{
    const bool both = turn_of(b->plan) < b->plan->n_steps;
    trace_phase(b, both ? "queue forward and backward" : "queue forward", begun, tn_tracer_now());
}

/* A clock between the steps, for timers, a trace, or both. */
tn_status tn__bound_run_timed(tn_bound *b, bool again)
{
    const tn_plan *p = b->plan;
    tn_tracer *to = tn_tracer_on(b->context->tracer) ? b->context->tracer : NULL;
    const tn_frame f = tn_frame_parts(p, b->frame);
    const size_t first = again ? p->prologue : 0, turn = to && !b->label ? turn_of(p) : p->n_steps;
    uint64_t t = tn_tracer_now(), phase = t;
    for (size_t i = first; i < p->n_steps; i++) {
        const tn_step *s = &p->step[i];
        if (to && i == turn && i > first) trace_phase(b, "forward", phase, t), phase = t;
        if (to) tn_tracer_work_at(to, s->node->op->name, p->graph->region[s->region], s->backward);
        TN_RETURN_IF(s->kernel(&f.call[i]));
        const uint64_t u = tn_tracer_now();
        const double flops = spent_by(s, &f.call[i]);
        if (b->timers) b->step_ms[i] += 1e-6 * (double)(u - t), b->spent[i] += flops;
        if (to) trace_step(b, i, flops, t, u);
        t = u;
    }
    if (to) trace_phase(b, turn < p->n_steps ? "backward" : "forward", phase, t);
    b->runs += b->timers;
    return TN_OK;
}

/* The device's own clock: the host only queues. */
tn_status tn__bound_run_marked(tn_bound *b, bool again)
{
    const tn_plan *p = b->plan;
    const tn_backend *backend = b->context->backend;
    void *queue = b->context->queue;
    const tn_frame f = tn_frame_parts(p, b->frame);
    const size_t first = again ? p->prologue : 0;
    TN_RETURN_IF(backend->mark(queue, first));
    for (size_t i = first; i < p->n_steps; i++) {
        TN_RETURN_IF(p->step[i].kernel(&f.call[i]));
        TN_RETURN_IF(backend->mark(queue, i + 1));
    }
    TN_RETURN_IF(backend->wait(queue));
    for (size_t i = first; i < p->n_steps; i++) {
        double ms;
        TN_RETURN_IF(backend->between(queue, i, &ms));
        b->step_ms[i] += ms;
        b->spent[i] = NAN; /* the counts are the device's */
    }
    b->runs++;
    return TN_OK;
}

/* --- time ---------------------------------------------------------------------------------------------------------------- */

void tn_bound_timers(tn_bound *b, bool on)
{
    memset(b->step_ms, 0, sizeof *b->step_ms * b->plan->n_steps);
    for (size_t i = 0; i < b->plan->n_steps; i++) b->spent[i] = on ? 0 : NAN;
    b->runs = 0;
    b->timers = on;
}

size_t tn_bound_take_spans(tn_bound *b, uint64_t first, const tn_span *spans, size_t n, uint64_t runs)
{
    size_t taken = 0;
    tn_bound_timers(b, false);
    for (size_t i = 0; i < n; i++) {
        const tn_span *s = &spans[i];
        if ((s->kind != TN_SPAN_KERNEL && s->kind != TN_SPAN_COPY) || s->mark < first ||
            s->mark - first >= b->plan->n_steps)
            continue;
        b->step_ms[s->mark - first] += 1e-6 * (double)(s->end - s->begin);
        taken++;
    }
    b->runs = taken ? runs : 0;
    return taken;
}

static double flops_of(const tn_step *s) { return s->varies ? NAN : s->flops; }

size_t tn_bound_times(const tn_bound *b, tn_region_time *rows, size_t most)
{
    const tn_graph *g = b->plan->graph;
    for (size_t i = 0; i < g->n_regions && i < most; i++)
        rows[i] = (tn_region_time){ .region = g->region[i], .runs = b->runs };
    tn_bound_times_add(b, 1, rows, most);
    return g->n_regions;
}

void tn_bound_times_add(const tn_bound *b, int64_t runs, tn_region_time *rows, size_t most)
{
    const tn_graph *g = b->plan->graph;
    for (size_t i = 0; i < b->plan->n_steps; i++) {
        const tn_step *s = &b->plan->step[i];
        if ((size_t)s->region >= most || strcmp(rows[s->region].region, g->region[s->region]) != 0) continue;
        tn_region_time *r = &rows[s->region];
        *(s->backward ? &r->backward_ms : &r->forward_ms) += b->step_ms[i];
        r->flops += flops_of(s) * (double)runs;
    }
}

size_t tn_bound_op_times(const tn_bound *b, tn_op_time *rows, size_t n, size_t most)
{
    for (size_t i = 0; i < b->plan->n_steps; i++) {
        const tn_step *s = &b->plan->step[i];
        size_t k = 0;
        while (k < n && strcmp(rows[k].op, s->node->op->name) != 0) k++;
        if (k == n && n == most) continue;
        if (k == n) rows[n++] = (tn_op_time){ .op = s->node->op->name, .runs = b->runs };
        *(s->backward ? &rows[k].backward_ms : &rows[k].forward_ms) += b->step_ms[i];
        rows[k].flops += flops_of(s);
        rows[k].bytes += s->bytes;
        if (s->backward) rows[k].backward_flops += flops_of(s);
        if (s->backward) rows[k].backward_bytes += s->bytes;
    }
    return n;
}

static tn_node_time node_of(const tn_plan *p, const tn_step *s)
{
    return (tn_node_time){ .op = s->node->op->name,
                           .region = p->graph->region[s->region],
                           .phase = tn_op_phase(s->node->op, s->node->attr, s->backward),
                           .backward = s->backward };
}

bool tn_plan_node_at(const tn_plan *p, size_t i, tn_node_time *out)
{
    if (!p || i >= p->n_steps) return false;
    *out = node_of(p, &p->step[i]);
    return true;
}

static bool is_row(const tn_node_time *r, const tn_step *s, const char *region)
{
    return r->backward == s->backward && strcmp(r->op, s->node->op->name) == 0 && strcmp(r->region, region) == 0;
}

size_t tn_bound_node_times(const tn_bound *b, tn_node_time *rows, size_t n, size_t most)
{
    const double runs = (double)b->runs;
    for (size_t i = 0; i < b->plan->n_steps; i++) {
        const tn_step *s = &b->plan->step[i];
        const char *region = b->plan->graph->region[s->region];
        size_t k = 0;
        while (k < n && !is_row(&rows[k], s, region)) k++;
        if (k == n && n == most) continue;
        if (k == n) rows[n++] = node_of(b->plan, s);
        const bool counted = s->varies && !isnan(b->spent[i]);
        rows[k].varies |= s->varies && !counted;
        rows[k].calls += runs;
        rows[k].ms += b->step_ms[i];
        rows[k].flops += counted ? b->spent[i] : s->flops * runs;
        rows[k].bytes += s->bytes * runs;
    }
    return n;
}
