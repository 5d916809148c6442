/* One training step as it was recorded: what each thread, or each stream of a device, did and when. */
#ifndef TN_REPORT_RECORDED_STEP_H
#define TN_REPORT_RECORDED_STEP_H

#include "backend/backend.h"
#include "base/tracer.h"
#include "train/run/session.h"

typedef enum tn_doing {
    TN_DOING_FORWARD,
    TN_DOING_BACKWARD,
    TN_DOING_OPTIMIZER,
    TN_DOING_BATCH, /* preparing one */
    TN_DOING_WAIT,  /* for data, for other threads */
    TN_DOINGS
} tn_doing;

typedef struct tn_step_span {
    double begin_ms, end_ms; /* since the step began */
    int track;
    tn_doing doing;
    const char *name, *where; /* of the plans, which live as long as the session; where: a region or NULL */
} tn_step_span;

enum { TN_STEP_TRACKS = 64 };

typedef struct tn_step_record {
    tn_step_span *span; /* (n) */
    size_t n;
    double ms; /* of the step */
    int tracks;
    char track[TN_STEP_TRACKS][TN_TRACK_NAME];
} tn_step_record;

/* Trains a few steps on the CPU and keeps the one of middle length; nothing on a GPU, where threads only queue. TN_MEMORY, and what the
 * steps return. */
tn_status tn_record_step(tn_session *s, tn_step_record *out);
/* Of a trace of a device (tn_trainer_mark), by begin: from the first op behind an update to the next such op, in the middle of the
 * trace. Nothing where there are no two of them. TN_MEMORY. */
tn_status tn_record_spans(const tn_trainer *t, const tn_span *spans, size_t n, tn_step_record *out);
void tn_step_record_free(tn_step_record *r);

#endif
