/* A tracer of the right size, and steps that fill it. */
#include "report/trace/trace_steps.h"

enum { LEAST_EVENTS = 1 << 16, MOST_EVENTS = 1 << 20, BESIDE_OPS = 64, OF_OP = 3, MOST_LOADERS = 64 };

int tn_trace_loaders(const tn_settings *st)
{
    const size_t at = tn_settings_find(st, "loader.workers");
    const int64_t n = at < tn_settings_count(st) ? tn_settings_int(st, "loader.workers") : 1;
    return n < 1 ? 1 : n > MOST_LOADERS ? MOST_LOADERS : (int)n;
}

/* An op is a span, with waits for workers of its loops; evaluations take a part of the room. */
tn_status tn_trace_tracer(const tn_trainer *t, int loaders, int64_t steps, int64_t warm_up, tn_tracer **out)
{
    const bool threads = t && tn_trainer_device(t) == TN_CPU;
    const tn_plan *plan = !t ? NULL : tn_trainer_plan(t, true) ? tn_trainer_plan(t, true) : tn_trainer_plan(t, false);
    const double of_batch = OF_OP * (double)(plan ? tn_plan_steps(plan) : 0) + BESIDE_OPS,
                 batches = t ? (double)tn_trainer_batches(t) : 1, want = 2 * of_batch * batches * (double)steps;
    const tn_tracer_options o = { .workers = threads ? tn_trainer_threads(t) - 1 : 0,
                                  .loaders = loaders,
                                  .steps = steps,
                                  .warm_up = warm_up,
                                  .events = want < LEAST_EVENTS  ? LEAST_EVENTS
                                            : want > MOST_EVENTS ? MOST_EVENTS
                                                                 : (size_t)want };
    return tn_tracer_new(&o, out);
}

static void add(tn_tracer *to, uint64_t begun, tn_event_kind kind, const char *name, int64_t number)
{
    tn_tracer_add(to, TN_TRACK_MAIN, &(tn_event){ .begin = begun, .kind = kind, .name = name, .number = number });
}

static tn_status one_step(tn_session *s, tn_tracer *to, int64_t step)
{
    const int64_t batches = tn_trainer_batches(s->trainer);
    const uint64_t begun = tn_tracer_clock(to);
    int64_t count;
    for (int64_t i = 0; i < batches; i++) {
        const uint64_t waiting = tn_tracer_clock(to);
        if (s->source.ctx) TN_RETURN_IF(tn_source_next(&s->source, step, s->trainer, &count));
        add(to, waiting, TN_TRACED_WAIT, "wait for data", 0);
        TN_RETURN_IF(tn_trainer_queue_grad(s->trainer, step * batches + i, 1, false));
    }
    TN_RETURN_IF(tn_trainer_queue_apply(s->trainer, step));
    add(to, begun, TN_TRACED_STEP, "step", step + 1);
    return TN_OK;
}

static tn_status run_steps(tn_session *s, tn_tracer *to, int64_t steps)
{
    tn_trainer *t = s->trainer;
    tn_step_result x;
    for (int64_t i = 0; i < steps; i++) {
        tn_tracer_step(to);
        if (i == 0) tn_tracer_count(to, TN_COUNTED_PLANNED, (double)tn_trainer_memory(t).total);
        tn_tracer_count_resident(to);
        TN_RETURN_IF(one_step(s, to, i));
        if (tn_trainer_queued(t) == tn_trainer_queue_depth(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    }
    while (tn_trainer_queued(t)) TN_RETURN_IF(tn_trainer_collect(t, &x));
    tn_tracer_count_resident(to);
    return TN_OK;
}

tn_status tn_trace_session(tn_session *s, tn_tracer *to, int64_t steps)
{
    tn_trainer_trace(s->trainer, to);
    tn_source_trace(&s->source, to);
    const tn_status st = run_steps(s, to, steps);
    tn_tracer_stop(to);
    tn_trainer_trace(s->trainer, NULL);
    tn_source_rest(&s->source); /* batches that are being prepared know the tracer */
    tn_source_trace(&s->source, NULL);
    return st;
}
