/* A model in training: its store, its plans and a context, driven one batch at a time.
 *
 *     tn_trainer_new -> fill the feed -> tn_trainer_grad (once per micro-batch) -> tn_trainer_apply -> ...
 *
 * All memory is there after tn_trainer_new; no later call allocates or opens anything. */
#ifndef TN_TRAIN_TRAINER_H
#define TN_TRAIN_TRAINER_H

#include "optim/guard.h"
#include "optim/loss_scale.h"
#include "plan/plan.h"
#include "train/trainer/inputs.h"

#include <tenon/model.h>

struct tn_shared;
struct tn_context_slot;
typedef struct tn_trainer tn_trainer;

typedef struct tn_trainer_options {
    const tn_model *model;
    const tn_settings *settings;     /* borrowed */
    int64_t batch, length;           /* B, T */
    const tn_input_spec *input_spec; /* who fills its inputs; NULL: the model's own rows, without the optional ones */
    bool on_policy; /* the next batch depends on the parameters: no step is queued before the last is finished */
    const char *const *wants; /* outputs that evaluation puts out beside its own, NULL at the end; or NULL */
    bool logits;              /* "logits" among them */
    const char *const *
        steps; /* of the model's own that will be run: planned at once, so that what fits is known; NULL at the end; or NULL */
    bool nll;          /* evaluation also puts out "nll" (B,T); not in chunks (plan.recompute=chunk) */
    bool instruments;  /* evaluation also puts out what the model's instruments ask for; not in chunks */
    bool forward_only; /* no gradients, no optimizer */
    const char *step;  /* the only one of the model's steps that trains; NULL: those that it chooses */
    /* (n_widths), ascending: batches may be narrower than `length`. Plans for these widths too, on the same memory */
    const int64_t *widths;
    int64_t n_widths;
    int threads; /* 0: as the settings say */
    /* bytes of the machine's memory that whoever runs it needs beside it: data, batches ahead. Part of the plan */
    size_t reserved_bytes;
    bool *refused;   /* set where a plan needs more than the machine has: no memory was asked for. NULL: nobody asks */
    int queue_depth; /* steps that may be queued before the oldest is collected; 0: what suits the device */
    /* borrowed: plans come from it where one store has them alone (shared.h); NULL: its own */
    struct tn_shared *shared;
    /* borrowed: its context is taken, by one trainer at a time; NULL: one of its own */
    struct tn_context_slot *context_slot;
    tn_store *store; /* borrowed: several trainers, one after another, on the same tensors; NULL: one of its own */
} tn_trainer_options;

/* TN_MEMORY, before the memory is asked for, where a plan needs more than the machine has (a GPU: more than is free), or where
 * it is not given. */
tn_status tn_trainer_new(const tn_trainer_options *o, tn_trainer **out);
void tn_trainer_free(tn_trainer *t);

/* All that is to be filled before each call below. */
tn_feed tn_trainer_feed(tn_trainer *t);
const tn_inputs *tn_trainer_inputs(const tn_trainer *t);
/* For who knows the model's names: one input of the feed; NULL: the model does not read it. */
void *tn_trainer_input(tn_trainer *t, const char *name);

/* The same for rows of `width` tokens: of the narrowest plan they fit in (feed.length says which), on which the next grad or
 * eval then runs. Without `widths` there is one. */
tn_feed tn_trainer_feed_for(tn_trainer *t, int64_t width);
tn_feed tn_trainer_feed_again(tn_trainer *t); /* the one that was asked for last */
tn_feeder tn_trainer_feeder(tn_trainer *t);
/* The length of the plan that rows of `width` tokens would go to. */
int64_t tn_trainer_width(const tn_trainer *t, int64_t width);

/* Until it says false, the caller promises that parameters change through tn_trainer_apply alone: weights packed for one
 * batch then serve the next (opt.pack_weights). Who writes to the store in between says so again. */
void tn_trainer_steady(tn_trainer *t, bool steady);

/* Forward and backward on the batch; adds to the gradients, which carry the loss scale (optim.loss_scale). */
tn_status tn_trainer_grad(tn_trainer *t, int64_t step, float *loss);
/* How much the following batches count beside the others of their step: 1 until something else is said. */
void tn_trainer_weigh(tn_trainer *t, float weight);
/* Takes the loss scale out of the gradients, for who reads them before tn_trainer_apply; changes nothing else. */
void tn_trainer_unscale(tn_trainer *t);
/* Forward only, dropout off. */
tn_status tn_trainer_eval(tn_trainer *t, float *loss);

/* One of the model's own steps on the batch of the feed, without gradients; planned at opening where the options name it, else when it is
 * first asked for, not inside a training step: it may then read no input and no parameter that the others do not.
 * Then an output of it, f32 or i32 (*type; may be NULL); NULL: it has none of that name. */
tn_status tn_trainer_run_step(tn_trainer *t, const char *name);
tn_bound *tn_trainer_step_bound(tn_trainer *t, const char *name); /* NULL: it has not been asked for */
const void *tn_trainer_step_output(tn_trainer *t, const char *name, const char *output, tn_dtype *type, int64_t *count);

/* The settings of steps (seed, learning rate, schedule, moments) are read when it is made: again, where somebody has changed them. */
void tn_trainer_reread(tn_trainer *t);

/* How many steps the learning rate's schedule is for from now on, where a run's end is not counted in steps (0: train.steps). */
void tn_trainer_schedule(tn_trainer *t, int64_t steps);

typedef struct tn_update_result {
    float lr, grad_norm;
    bool ok;          /* false: a number was not finite, and nothing was changed */
    float loss_scale; /* the step's; NaN where the loss is not scaled */
    tn_guard_action action;
} tn_update_result;

/* Clips, guards, steps (step counts from 0), zeroes the gradients. `batches`, the sum of their weights, were added up since
 * the last time.
 * TN_DIVERGED: the run is over by train.nonfinite. */
tn_status tn_trainer_apply(tn_trainer *t, int64_t step, float batches, float loss, tn_update_result *out);

/* --- steps queued ahead ---------------------------------------------------------------------------------------------------
 * A device computes while the host prepares the next steps: their numbers are collected later, in their order.
 *
 *     tn_trainer_queue_grad (train.accumulate times) -> tn_trainer_queue_apply -> ... -> tn_trainer_collect
 *
 * The same step as above, bit for bit, at most tn_trainer_queue_depth of them not collected. */

enum { TN_TRAINER_QUEUE_MAX = 4 };

/* 1 where the host computes, or where what a step finds out decides about the next one: train.nonfinite=skip or rollback, a loss
 * scale, an environment. Under train.nonfinite=stop the steps queued behind a bad one are computed for nothing. */
int tn_trainer_queue_depth(const tn_trainer *t);
int tn_trainer_queued(const tn_trainer *t); /* steps that are not collected */
/* keep: instruments may ask for the outputs of this batch, which waits for the device. */
tn_status tn_trainer_queue_grad(tn_trainer *t, int64_t step, float weight, bool keep);
tn_status tn_trainer_queue_apply(tn_trainer *t, int64_t step);

typedef struct tn_step_result {
    double loss; /* mean of its batches by weight */
    tn_update_result update;
} tn_step_result;

/* The oldest step's, waiting for it; TN_DIVERGED as tn_trainer_apply, with *out filled. */
tn_status tn_trainer_collect(tn_trainer *t, tn_step_result *out);

/* The loss scale of the next step, for checkpoints, and the one to go on with. */
tn_loss_scale_state tn_trainer_loss_scale(const tn_trainer *t);
void tn_trainer_resume_loss_scale(tn_trainer *t, const tn_loss_scale_state *from);

const tn_model *tn_trainer_model(const tn_trainer *t);
const tn_settings *tn_trainer_settings(const tn_trainer *t);
tn_store *tn_trainer_store(tn_trainer *t);
tn_guard *tn_trainer_guard(tn_trainer *t); /* NULL in a trainer that is forward_only */
/* An output of the last evaluation ("loss", "xent", "logits", "nll"), with its numbers counted; NULL: the model has none. */
const float *tn_trainer_output(tn_trainer *t, const char *name, int64_t *count);
/* Of the width at work, as the next two; in chunks (plan.recompute=chunk): those of one chunk. */
tn_bound *tn_trainer_bound(const tn_trainer *t, bool training);
const tn_plan *tn_trainer_plan(const tn_trainer *t, bool training);
int64_t tn_trainer_parameters(const tn_trainer *t);
int tn_trainer_threads(const tn_trainer *t);
tn_device tn_trainer_device(const tn_trainer *t);

typedef struct tn_memory_plan {
    size_t parameters, gradients, optimizer, frozen, state, activations, workspace, other, data, total;
    size_t host; /* of a trainer on a GPU: what is in the machine's memory, and not part of the total */
} tn_memory_plan;

tn_memory_plan tn_trainer_memory(const tn_trainer *t);
/* For trainers: a plan's inputs and frame, and its arena where that is the largest so far. p may be NULL. */
void tn_memory_plan_add(tn_memory_plan *m, const tn_plan *p, size_t *arena);
/* "parameters 34 MB · gradients ... · peak 331 MB" into buf. */
const char *tn_memory_plan_text(const tn_memory_plan *m, char *buf, size_t bytes);

/* Bytes that this process may use: the machine's memory, or less where a control group limits it; and what of it is free now. */
double tn_memory_limit(void);
double tn_memory_available(void);
/* The least limit of a control group (version 2) and those above it: `root` is the mount point, `group` a path below it
 * ("/jobs/a"). A number beyond any machine where there is none. */
double tn_memory_limit_of_group(const char *root, const char *group);

/* Where the time of tn_trainer_grad goes: as tn_bound_timers, tn_bound_times and tn_bound_op_times, summed over the plans it
 * runs, of all widths. FLOPs are those of one batch. */
void tn_trainer_timers(tn_trainer *t, bool on);
size_t tn_trainer_times(const tn_trainer *t, tn_region_time *rows, size_t most);
size_t tn_trainer_op_times(const tn_trainer *t, tn_op_time *rows, size_t most);
double tn_trainer_flops(const tn_trainer *t); /* of one batch; NaN: the numbers decide how many */

/* For who counts or times what a trainer runs: told after every batch and every update, while the outputs of plan b are still
 * there (batches in chunks: NULL). */
typedef enum tn_trainer_event {
    TN_EVENT_GRAD,
    TN_EVENT_EVAL,
    TN_EVENT_APPLY,
    TN_EVENT_DATA
} tn_trainer_event; /* DATA: its inputs were filled */
typedef struct tn_watch {
    void *ctx;
    void (*ran)(void *ctx, tn_trainer_event what, tn_bound *b, double seconds);
} tn_watch;

void tn_trainer_watch(tn_trainer *t, tn_watch w); /* a zeroed one: nobody any more */
/* For who fills its inputs: the clock before, or 0 where nobody watches, and telling. */
double tn_trainer_watch_clock(const tn_trainer *t);
void tn_trainer_watch_data(const tn_trainer *t, double begun);

/* The training plans of all widths say what is not finite, as tn_bound_check. NULL: no longer. */
void tn_trainer_check(tn_trainer *t, tn_finding *f);

bool tn_trainer_has_instruments(const tn_trainer *t);
/* After tn_trainer_eval: instruments may ask for the "look." outputs of this batch until the next training step. */
void tn_trainer_keep_outputs(tn_trainer *t);

typedef void tn_instrument_report(void *ctx, const char *name, double value, const char *unit);
/* The model's instruments, each given to `report`; numbers that are one of many to `spread`, which may be NULL.
 * TN_USAGE: they ask for a setting that is not declared. */
tn_status tn_trainer_instruments(tn_trainer *t, tn_instrument_report *report, tn_instrument_report *spread, void *ctx);

#endif
