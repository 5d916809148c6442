/* What threads did and when, for a trace of some training steps: spans and counters in buffers of fixed size. While steps are
 * traced nothing is allocated, opened or written; what does not fit is counted.
 *
 *     TN_TRY(tn_tracer_new(&(tn_tracer_options){ .workers = 1, .loaders = 1, .steps = 100, .events = 65536 }, &t));
 *     tn_tracer_step(t)                                  before each step: begins behind warm-up, stops by itself
 *     const uint64_t begun = tn_tracer_clock(t); ...     0 where nothing is traced
 *     tn_tracer_add(t, TN_TRACK_MAIN, &(tn_event){ .begin = begun, .name = "step", .kind = TN_TRACED_STEP });
 *
 * A track belongs to one thread. Its spans nest, because a thread adds a span when it has ended. Names are borrowed: whoever writes
 * them down does so while the plans they are from exist, or restarts the tracer. */
#ifndef TN_BASE_TRACER_H
#define TN_BASE_TRACER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tn_event_kind {
    TN_TRACED_STEP, /* those that hold others come first */
    TN_TRACED_EVALUATION,
    TN_TRACED_SAVE,
    TN_TRACED_LOG,
    TN_TRACED_PHASE,  /* forward, backward, optimizer */
    TN_TRACED_OP,     /* one call of a plan */
    TN_TRACED_WAIT,   /* for data, for other threads, for a device */
    TN_TRACED_PIECES, /* what a worker computed of an op */
    TN_TRACED_BATCH,  /* a batch prepared */
    TN_TRACED_KINDS
} tn_event_kind;

typedef struct tn_event {
    uint64_t begin, end;      /* nanoseconds of tn_tracer_now; end 0: when it is added */
    const char *name, *where; /* where: the region of an op; NULL: none */
    double flops, bytes;      /* 0: not known */
    int64_t number;           /* of a step or batch, counted from 1; of pieces, how many; 0: none */
    tn_event_kind kind;
    bool backward;
} tn_event;

typedef enum tn_counter_kind {
    TN_COUNTED_RESIDENT, /* bytes of the process in memory */
    TN_COUNTED_PLANNED,  /* bytes of the memory plan */
    TN_COUNTED_DEVICE,   /* bytes of the GPU's memory in use */
    TN_COUNTED_GPU_BUSY, /* per cent */
    TN_COUNTED_KINDS
} tn_counter_kind;

typedef struct tn_counter {
    uint64_t at;
    double value;
    tn_counter_kind kind;
} tn_counter;

/* Tracks: the main thread's, then workers of the thread pool, then threads that prepare batches. */
enum { TN_TRACK_MAIN = 0, TN_TRACER_WARM_UP = 3, TN_TRACER_STEPS = 100 };

typedef struct tn_tracer_options {
    int workers, loaders;
    int64_t steps;   /* that are traced; 0: until it is stopped */
    int64_t warm_up; /* steps before them */
    size_t events;   /* of the main thread */
} tn_tracer_options;

typedef struct tn_tracer tn_tracer;

tn_status tn_tracer_new(const tn_tracer_options *o, tn_tracer **out);
void tn_tracer_free(tn_tracer *t); /* takes NULL; nobody adds any more */
/* Forgets everything: the run begins again. */
void tn_tracer_restart(tn_tracer *t, int64_t warm_up);

/* Before each step, on the main thread. */
typedef enum tn_tracer_change { TN_TRACER_SAME, TN_TRACER_BEGINS, TN_TRACER_ENDS } tn_tracer_change;
tn_tracer_change tn_tracer_step(tn_tracer *t);
bool tn_tracer_stop(tn_tracer *t);                   /* true: it was on */
bool tn_tracer_stop_at(tn_tracer *t, uint64_t when); /* as if it were then */

bool tn_tracer_on(const tn_tracer *t); /* NULL: false */
uint64_t tn_tracer_now(void);          /* of the monotonic clock, as tn_clock_s */
uint64_t tn_tracer_clock(const tn_tracer *t);
/* From the thread of that track. A begin of 0 was before tracing began: nothing is added. */
void tn_tracer_add(tn_tracer *t, int track, const tn_event *e);
/* What the pool's workers work at from now on; between its loops. */
void tn_tracer_work_at(tn_tracer *t, const char *name, const char *where, bool backward);
void tn_tracer_add_pieces(tn_tracer *t, int worker, uint64_t begun, int64_t pieces); /* workers are counted from 1 */
void tn_tracer_add_batch(tn_tracer *t, int loader, uint64_t begun, int64_t number);  /* threads from 0 */
void tn_tracer_count(tn_tracer *t, tn_counter_kind kind, double value);              /* on the main thread */
/* The counter of resident memory, from a file that stays open. */
void tn_tracer_count_resident(tn_tracer *t);

/* --- when it has stopped ---------------------------------------------------------------------------------------------------- */

int tn_tracer_tracks(const tn_tracer *t);
/* "main", "worker 1", "loader 1" */
enum { TN_TRACK_NAME = 32 };
const char *tn_tracer_track_name(const tn_tracer *t, int track, char buf[TN_TRACK_NAME]);
int tn_tracer_workers(const tn_tracer *t);
/* Parents before their children, in the order of time. */
size_t tn_tracer_events(tn_tracer *t, int track, const tn_event **out);
size_t tn_tracer_counters(const tn_tracer *t, const tn_counter **out);
size_t tn_tracer_dropped(const tn_tracer *t); /* spans and counters for which there was no room */
int64_t tn_tracer_traced(const tn_tracer *t); /* steps */
uint64_t tn_tracer_begun(const tn_tracer *t); /* clock; 0: it was never on */
uint64_t tn_tracer_ended(const tn_tracer *t);

#endif
