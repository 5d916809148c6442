/* Runs the training loop on a probe's session and takes the clock at its reports. */
#include "report/probe/lines.h"

#include "base/clock.h"
#include "train/run/training.h"

typedef struct timing {
    int64_t steps, seen;
    double begun, ended;
} timing;

/* Between two reports lie whole steps with their lines; the beginning and the end of a run do not count. */
static void look(void *ctx, const tn_progress_report *r)
{
    timing *t = ctx;
    (void)r;
    t->seen++;
    if (t->seen == t->steps) t->begun = tn_clock_s();
    if (t->seen == 2 * t->steps) t->ended = tn_clock_s();
}

static bool enough(void *ctx)
{
    const timing *t = ctx;
    return t->seen >= 2 * t->steps;
}

tn_status tn_step_probe_lines(tn_step_probe *p, int64_t steps, double *ms)
{
    const tn_session *s = tn_step_probe_session(p);
    timing t = { .steps = steps };
    tn_jsonl *lines = NULL;
    tn_progress_report last;
    TN_RETURN_IF(tn_jsonl_open("/dev/null", false, &lines));
    tn_status st = tn_training_run(&(tn_training){ .trainer = s->trainer,
                                                   .settings = s->settings,
                                                   .source = &s->source,
                                                   .undiagnosed = true,
                                                   .metrics = lines,
                                                   .batch = s->batch,
                                                   .length = s->length,
                                                   .ctx = &t,
                                                   .report = look,
                                                   .enough = enough,
                                                   .once = true,
                                                   .unsaved_end = true },
                                   NULL, &last);
    tn_source_rest(&s->source);
    const tn_status closed = tn_jsonl_close(lines);
    if (st == TN_OK) st = closed;
    if (st == TN_OK && t.seen < 2 * steps)
        st = tn_error(TN_INTERNAL, "a probe of %lld steps ended after %lld", (long long)(2 * steps), (long long)t.seen);
    if (st == TN_OK) *ms = 1e3 * (t.ended - t.begun) / (double)steps;
    return st;
}
