/* The trainer's structure, for trainer*.c and chunks.c. */
#ifndef TN_TRAIN_TRAINER_INTERNAL_H
#define TN_TRAIN_TRAINER_INTERNAL_H

#include "optim/optim.h"
#include "optim/schedule.h"
#include "plan/plan.h"
#include "train/trainer/chunks.h"
#include "train/trainer/graph_setup.h"
#include "train/trainer/resident.h"
#include "train/trainer/shared.h"
#include "train/trainer/trainer.h"

/* An output as it was when its step ended: the memory it lay in is used again by whatever runs next. */
typedef struct tn_kept_output {
    const char *name; /* the graph's */
    bool is_i32;
    int64_t count;
    float *value; /* (count) */
} tn_kept_output;

/* One plan of the model, bound (in chunks: neither). Inputs and scalars are the host's, found once. */
typedef struct tn_trainer_step {
    const char *name;
    int row; /* in the model's steps; -1: its `build` */
    const tn_plan *plan;
    tn_bound *bound;
    void *at[TN_INPUTS_MAX];         /* by slot; NULL: it has no use for it */
    float *scalar[TN_SCHEDULES_MAX]; /* by schedule; NULL: it does not read it */
    tn_kept_output *kept;            /* (n_kept): what instruments may ask for when others have run */
    size_t n_kept;
} tn_trainer_step;

typedef struct tn_ring tn_ring; /* trainer_ring.c */

struct tn_trainer {
    const tn_model *model;
    const tn_settings *settings;
    int64_t batch, length;
    tn_refusal *refused; /* the caller's, or NULL */
    int64_t microbatches;
    size_t reserved_bytes; /* bytes of the machine's memory that the caller needs beside it */
    double memory_limit;   /* bytes that all it needs may take */
    tn_inputs inputs;
    bool on_policy, nll, instruments, forward_only;
    const char *want[TN_BATCH_WANTS + 1]; /* of evaluations, NULL at the end */
    int threads;
    tn_graph_setup setup;
    tn_store *store;
    bool borrowed;                        /* the store */
    bool sealed;                          /* it has all weights that it will have */
    bool keeps_samples, may_drop_samples; /* on the device; if nobody asked for it, only where they fit easily */
    tn_context *context;
    bool borrowed_context; /* of a context slot */
    tn_plan_cache *plans;
    tn_shared *shared;       /* where grad, eval and apply are from instead, or NULL */
    char key[TN_HASH_BYTES]; /* of the settings, in there */
    /* (n_steps): n_train with gradients, the evaluation, those asked for by name */
    tn_trainer_step step[2 * TN_STEPS_MAX + 1];
    size_t n_train, n_steps;
    tn_trainer_step *grad, *eval; /* of those: the training step at work, the evaluation */
    int64_t accumulate, seed,
        last_step; /* batches of an optimizer's step; of random numbers; the run's, for schedules */
    /* of the learning rate, and the other scalars of the optimizer, as the settings had them when they were read */
    tn_schedule rate;
    tn_optim_scalars fixed;
    const tn_plan *apply;
    tn_bound *apply_bound;
    tn_chunks *chunks; /* instead of the plans of grad and eval, or NULL */
    tn_guard *guard;
    tn_ring *ring; /* steps that are queued; NULL: forward_only, or a part */
    bool scales;   /* the loss, by loss_scale; unscaled: the gradients are without it (tn_trainer_unscale) */
    bool unscaled;
    tn_loss_scale loss_scale;
    float weight; /* of the batches to come */
    /* the next of them: a trainer without an optimizer on the same store, context and cache; or NULL */
    tn_trainer *narrower;
    tn_trainer *now; /* the one whose inputs were filled last: itself or a narrower one */
    bool part;       /* it is such a narrower one */
    int shape;       /* ... by its sizes: of this number; 0: by its length */
    int shapes_refused;
    char why_refused[256]; /* the first of them */
    bool steady,
        fresh;     /* nobody else writes to the store (tn_trainer_steady); fresh: nothing has run since that was said */
    int64_t steps; /* of the schedule; 0: train.steps */
    tn_watch watch;
    int64_t valid; /* rows of the feed */
    tn_feed feed;  /* inputs of the training plan, or of the other where that has no use for them */
    /* whose `kept` ("look." outputs) are of an evaluation since the last training step, or NULL */
    const tn_trainer_step *evaluated;
    const tn_trainer_step *stepped; /* whose `kept` are of the last training step, or NULL */
};

/* Decides whether samples stay on the device, before the first plan (resident.c). r: or NULL. */
void tn__trainer_keep_samples(tn_trainer *t, const tn_resident *r);

/* Plans (trainer_plans.c). */

double tn__trainer_memory_limit(const tn_trainer *t); /* bytes that all it needs may take */
/* Fills *refused: the caller is told that nothing was asked for. Returns s. */
tn_status tn__trainer_refuse(tn_refusal *refused, double need, double limit, tn_status s);
/* Before the arena is allocated. */
tn_status tn__trainer_fits(const tn_trainer *t);
tn_status tn__trainer_bind(tn_trainer *t, const tn_trainer_options *o);
/* Of a step without gradients: its plan, its bound form. */
tn_status tn__trainer_plan_step(tn_trainer *t, tn_trainer_step *s);
tn_status tn__trainer_bind_step(tn_trainer *t, tn_trainer_step *s);

/* Steps and schedules (trainer_steps.c). */

tn_status tn__steps_list(tn_trainer *t,
                         const char *only); /* which there are; checks the rows. only: of those that train, or NULL */
void tn__step_resolve(const tn_trainer *t, tn_trainer_step *s); /* once it is bound */
/* By name, with its numbers counted; type may be NULL. NULL: it has none. */
const void *tn__step_output(const tn_trainer_step *s, const char *name, tn_dtype *type, int64_t *count);
tn_status tn__steps_check(const tn_trainer *t); /* schedules and costs, once all is bound */
tn_status tn__step_choose(tn_trainer *t,
                          int64_t step); /* before a training plan runs: which, with inputs and scalars */
tn_status tn__step_before_eval(tn_trainer *t);
tn_status tn__steps_plan(tn_trainer *t, const char *const *names); /* those that will be asked for by name; not bound */

/* Parts of a step, for trainer_ring.c. */

/* Forward and backward of a whole batch, queued. */
tn_status tn__trainer_run_grad(tn_trainer *t, int64_t step);
/* Outputs of that run, for instruments; waits. */
void tn__trainer_keep(tn_trainer *t);
/* Scalars of the update, with `ahead` steps before it that are not collected; fills what is known of it. */
tn_status tn__trainer_set_apply(tn_trainer *t, int64_t step, float batches, int queue_depth, tn_update_result *out);
/* The update as a whole, but for the guard. */
tn_status tn__trainer_apply_now(tn_trainer *t, int64_t step, float batches, float loss, int queue_depth,
                                tn_update_result *out);
/* The guard, or the loss scale, about a step. */
tn_status tn__trainer_after_step(tn_trainer *t, int64_t step, float loss, tn_update_result *out);

tn_status tn__ring_new(tn_trainer *t, int queue_depth, tn_ring **out);
void tn__ring_free(tn_ring *r);
int64_t tn__ring_losses(const tn_trainer *t); /* of the optimizer's plan */

#endif
