/* Contexts and bound plans as bound.c and bound_times.c see them. */
#ifndef TN_PLAN_BOUND_INTERNAL_H
#define TN_PLAN_BOUND_INTERNAL_H

#include "backend/backend.h"
#include "base/tracer.h"
#include "plan/plan_internal.h"

struct tn_context {
    const tn_backend *backend;
    tn_device device;
    int threads;
    void *queue;
    void *arena;
    size_t arena_bytes;
    const struct tn_bound *last; /* whose numbers lie in the arena, or NULL */
    uint64_t generation;         /* grows when the arena moves: bound plans then resolve their pointers again */
    tn_tracer *tracer;           /* or NULL */
};

/* A whole run, one without its prologue, each with a chain's update behind it, and many of the last. */
enum { WHOLE, AGAIN, CHAINED, CHAINED_AGAIN, CHAINED_MANY, RECORDINGS };

struct tn_bound {
    const tn_plan *plan;
    tn_context *context;
    tn_store *store;
    void **externs;
    unsigned char *own;  /* inputs and scalars, gradients of inputs, inputs by copy: device memory */
    unsigned char *host; /* the first two for the host: own itself where it can read that */
    size_t input_bytes;  /* the first part of own, uploaded by every run */
    size_t own_bytes;    /* the first two */
    const void *taken;   /* device memory of the input that is not the host's, or NULL */
    void *taken_to;      /* in own */
    size_t taken_bytes;
    bool held, uploaded;  /* inputs stay as they are (tn_bound_hold), and are there */
    bool gave_gradients;  /* the host may have written gradients of inputs that are added to */
    unsigned char **seen; /* (outputs) as they were downloaded last, or NULL */
    bool chained;         /* runs follow one another (tn_bound_chain) */
    tn_chain chain;
    tn_chain_update update; /* of the chain, as its tensors lie now */
    bool update_known;      /* it is known: a run of this chain has looked for it */
    void *recording[RECORDINGS];
    bool queued[RECORDINGS]; /* ran once, kernel by kernel */
    bool replays;            /* the device can, and opt.replay is on */
    bool pageable;           /* uploads go without pinned memory (opt.pinned_uploads=off) */
    bool attached;           /* the store knows of the queue */
    void *frame;
    uint64_t generation;
    tn_finding *finding; /* where runs say what is not finite, or NULL */
    const char *label;   /* of its runs in traces, or NULL */
    uint64_t first_mark; /* of its steps in a trace of the device; 0: they have none */
    bool timers;
    double *step_ms; /* (n_steps), since the timers were turned on */
    double *spent;   /* (n_steps): FLOPs of those whose numbers decide about them, since then; NaN: not known */
    uint64_t runs;
};

/* Running with a clock between the steps (bound_times.c): on a device that computes while the host waits by the host's clock, else by
 * marks in its queue. */
bool tn__bound_is_timed(const tn_bound *b);
tn_status tn__bound_run_timed(tn_bound *b, bool again);
tn_status tn__bound_run_marked(tn_bound *b, bool again);
/* A run that was only queued, since `begun`: what the device then does is in the trace of the device. */
void tn__bound_trace_queued(const tn_bound *b, uint64_t begun);

#endif
