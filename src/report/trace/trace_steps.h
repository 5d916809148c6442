/* Steps of a session under a tracer, as training runs them. Its weights change. */
#ifndef TN_REPORT_TRACE_STEPS_H
#define TN_REPORT_TRACE_STEPS_H

#include "base/tracer.h"
#include "train/run/session.h"

/* Threads that prepare batches, as settings say; a source with one of its own has one. */
int tn_trace_loaders(const tn_settings *st);
/* Room for so many steps of this trainer (NULL: of something else), with a thread that prepares batches for each of `loaders`. steps,
 * warm_up: as tn_tracer_options. */
tn_status tn_trace_tracer(const tn_trainer *t, int loaders, int64_t steps, int64_t warm_up, tn_tracer **out);
/* The tracer begins at once and stops behind the last step. Nobody uses it then: the session goes on without it. */
tn_status tn_trace_session(tn_session *s, tn_tracer *to, int64_t steps);

#endif
