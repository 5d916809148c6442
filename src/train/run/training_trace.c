/* A run's spans and counters for a trace; all of it between steps or around them. */
#include "train/run/training_internal.h"

#include <stdio.h>

void tn__training_trace(const tn_training *t, int64_t steps)
{
    if (!t->tracer) return;
    tn_tracer_restart(t->tracer, steps > 2 * TN_TRACER_WARM_UP ? TN_TRACER_WARM_UP : 0);
    tn_trainer_trace(t->trainer, t->tracer);
    tn_source_trace(t->source, t->tracer);
}

static void tell(const tn_training *t, tn_tracer_change what)
{
    if (t->tracing) t->tracing(t->ctx, what);
}

void tn__training_trace_step(const tn_training *t)
{
    if (!t->tracer) return;
    const tn_tracer_change what = tn_tracer_step(t->tracer);
    if (what == TN_TRACER_BEGINS)
        tn_tracer_count(t->tracer, TN_COUNTED_PLANNED, (double)tn_trainer_memory(t->trainer).total);
    tn_tracer_count_resident(t->tracer);
    if (what != TN_TRACER_SAME) tell(t, what);
}

void tn__training_trace_end(const tn_training *t)
{
    if (!t->tracer || !tn_tracer_on(t->tracer)) return;
    tn_tracer_count_resident(t->tracer);
    tn_tracer_count(t->tracer, TN_COUNTED_PLANNED, (double)tn_trainer_memory(t->trainer).total);
    tn_tracer_stop(t->tracer);
    tell(t, TN_TRACER_ENDS);
}

void tn__training_span(const tn_training *t, uint64_t begun, tn_event_kind kind, const char *name, int64_t number)
{
    if (begun)
        tn_tracer_add(t->tracer, TN_TRACK_MAIN,
                      &(tn_event){ .begin = begun, .name = name, .number = number, .kind = kind });
}
