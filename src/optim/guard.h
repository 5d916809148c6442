/* What to do about a step whose loss or gradient is not finite (train.nonfinite). The optimizer's plan has refused it
 * already (ok = 0, nothing changed); the guard decides how the run goes on:
 *     stop       at once, with TN_DIVERGED
 *     skip       with the next batch
 *     rollback   from the last snapshot of parameters, moments and states, at half the learning rate
 * The last two end the run too when too many steps in a row are bad. Under `skip`, states the step has already written
 * (tn_assign) stay as they are: a model that carries states across steps wants rollback.
 * A snapshot lies in host memory allocated with the guard; steps allocate nothing. */
#ifndef TN_OPTIM_GUARD_H
#define TN_OPTIM_GUARD_H

#include "plan/store.h"

typedef enum tn_nonfinite { TN_NONFINITE_STOP = 0, TN_NONFINITE_SKIP = 1, TN_NONFINITE_ROLLBACK = 2 } tn_nonfinite;
/* RESCALED: gradients that overflowed under a loss scale which was halved for it; the guard is not told of such a step. */
typedef enum tn_guard_action {
    TN_GUARD_CONTINUE,
    TN_GUARD_SKIPPED,
    TN_GUARD_ROLLED_BACK,
    TN_GUARD_RESCALED
} tn_guard_action;

typedef struct tn_guard tn_guard;

typedef struct tn_guard_options {
    tn_nonfinite policy;
    tn_device device; /* the store's */
    int64_t every;    /* rollback: good steps between snapshots; 0: 100 */
    int most_bad;     /* bad steps in a row that end the run; 0: 3 */
    int64_t step;     /* number of the first snapshot: what the store holds now */
    int64_t applied;  /* steps that moved the parameters before (a resumed run); 0 in a new one */
    float lr_factor;  /* of the run so far; 0: 1 */
} tn_guard_options;

/* Make it after the optimizer's plan, so that the moments exist. The store outlives it and gets no new tensors. */
tn_status tn_guard_new(tn_store *st, const tn_guard_options *o, tn_guard **out);
void tn_guard_free(tn_guard *g);

/* After every step; `step` is the number that messages and snapshots get. TN_DIVERGED: stop, the text says what to try
 * (the parameters are those of the last good step; under rollback those of the snapshot). */
tn_status tn_guard_after_step(tn_guard *g, bool ok, int64_t step, tn_guard_action *action);

/* Steps that made the parameters what they are: grows with good steps, goes back with a rollback. The next step's
 * opt_step is one more. */
int64_t tn_guard_applied(const tn_guard *g);
int64_t tn_guard_snapshot_step(const tn_guard *g); /* where a rollback leads */
float tn_guard_lr_factor(const tn_guard *g);       /* to multiply the learning rate with: 1, then halved per rollback */
size_t tn_guard_bytes(const tn_guard *g);          /* of the snapshot; 0 for the other policies */

/* What a resumed run needs to go on alike: counters, and under rollback the snapshot, in parts. */
typedef struct tn_guard_state {
    int64_t applied, good, bad, snapshot_applied, snapshot_step;
    float lr_factor;
} tn_guard_state;

tn_guard_state tn_guard_state_of(const tn_guard *g);
size_t tn_guard_parts(const tn_guard *g); /* 0 for the other policies */
void *tn_guard_part(const tn_guard *g, size_t i, size_t *bytes);
/* After the store and, where the checkpoint had it, the snapshot's parts were filled. Without it (has_snapshot false: the
 * run had another policy) what the store holds now becomes the snapshot. */
tn_status tn_guard_resume(tn_guard *g, const tn_guard_state *from, bool has_snapshot, int64_t step);

#endif
