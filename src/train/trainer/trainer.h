/* A model in training: its store, its plans and a context, driven one batch at a time.
 *
 *     tn_trainer_new -> fill the feed -> tn_trainer_grad (once per micro-batch) -> tn_trainer_apply -> ...
 *
 * All memory is there after tn_trainer_new; no later call allocates or opens anything. */
#ifndef TN_TRAIN_TRAINER_H
#define TN_TRAIN_TRAINER_H

#include "base/memory_limit.h"
#include "optim/guard.h"
#include "optim/loss_scale.h"
#include "plan/plan.h"
#include "train/trainer/inputs.h"

#include <tenon/model.h>

struct tn_shared;
struct tn_context_slot;
struct tn_resident;
typedef struct tn_trainer tn_trainer;

/* A plan that needs more memory than there is: nothing was allocated. */
typedef struct tn_refusal {
    bool refused;
    bool fixed;         /* whatever the rows of a batch and the plan: parameters, or data in memory */
    double need, limit; /* bytes; need 0: not known */
} tn_refusal;

typedef struct tn_trainer_options {
    const tn_model *model;
    const tn_settings *settings;     /* borrowed */
    int64_t batch, length;           /* B, T */
    int64_t microbatches;            /* batches of B rows that the source's batch is cut into; 0: 1 */
    const tn_input_spec *input_spec; /* of the source; NULL: the model's rows without optional ones */
    bool on_policy;                  /* batches depend on the parameters: one step at a time */
    const char *const *wants;        /* further outputs of evaluations, NULL-terminated; or NULL */
    bool logits;                     /* "logits" among them */
    const char *const *steps;        /* of the model's own to plan at once (memory), NULL-terminated; or NULL */
    bool nll;                        /* evaluations also output "nll" (B,T); not in chunks (plan.recompute=chunk) */
    bool instruments;                /* evaluations also output what the model's instruments read; not in chunks */
    bool forward_only;               /* no gradients, no optimizer */
    bool frozen;                     /* ... and parameters are frozen: the caller loads them, none is drawn */
    bool drawn;                      /* ... but nobody loads them: they get random first values */
    tn_dtype weights;                /* type of frozen matrices */
    const char *step;                /* the only training step; NULL: those that the model chooses */
    /* (n_widths), ascending: plans for narrower batches too, on the same memory */
    const int64_t *widths;
    int64_t n_widths;
    /* (n_shapes): plans for batches of smaller sizes, likewise; whose the model refuses get the whole one */
    const tn_input_shape *shapes;
    int n_shapes;
    int threads;              /* 0: as the settings say */
    size_t reserved_bytes;    /* of host memory for the caller (data, prefetched batches): part of the memory plan */
    tn_refusal *refused;      /* set if a plan needs more memory than there is; or NULL */
    int queue_depth;          /* steps queued before the oldest is collected; 0: by device */
    struct tn_shared *shared; /* borrowed: for shared plans (shared.h); or NULL */
    struct tn_context_slot *context_slot; /* borrowed, by one trainer at a time; NULL: its own context */
    tn_store *store;                      /* borrowed, by one trainer at a time; NULL: its own */
    /* borrowed while it is made: samples that may stay on the device, by opt.resident_samples (resident.h); or NULL */
    const struct tn_resident *resident;
} tn_trainer_options;

/* TN_MEMORY: a plan needs more memory than there is (a GPU: than is free), before allocating; or an allocation failed. */
tn_status tn_trainer_new(const tn_trainer_options *o, tn_trainer **out);
void tn_trainer_free(tn_trainer *t);

/* What to fill before each call below. */
tn_feed tn_trainer_feed(tn_trainer *t);
const tn_inputs *tn_trainer_inputs(const tn_trainer *t);
/* One input by name; NULL: the model does not read it. */
void *tn_trainer_input(tn_trainer *t, const char *name);

/* The same for rows of `width` tokens: the narrowest plan that fits (feed.length), which the next grad or eval runs. */
tn_feed tn_trainer_feed_for(tn_trainer *t, int64_t width);
tn_feed tn_trainer_feed_again(tn_trainer *t); /* the last one */
tn_feeder tn_trainer_feeder(tn_trainer *t);
tn_feeder tn_trainer_batch_feeder(tn_trainer *t); /* for batches of training: without what stays on the device */
/* Puts those samples there, once before the first step; nothing where none stay. */
tn_status tn_trainer_load_samples(tn_trainer *t, const struct tn_resident *r);
bool tn_trainer_keeps_samples(const tn_trainer *t);
/* How many of the shapes the model refused: their batches have the whole one. *why: what it said of the first. */
int tn_trainer_shapes_refused(const tn_trainer *t, const char **why);
/* What such a feed has but memory: its inputs, batch, length, shape (tn_feeder). */
tn_feed tn_trainer_feed_blank(const tn_trainer *t, int64_t width, int shape);

/* While true, the caller promises that parameters change through tn_trainer_apply alone, so packed weights are reused
 * (opt.pack_weights). Call it again after writing to the store. */
void tn_trainer_steady(tn_trainer *t, bool steady);

/* Forward and backward on the batch; adds to the gradients, which carry the loss scale (optim.loss_scale). */
tn_status tn_trainer_grad(tn_trainer *t, int64_t step, float *loss);
/* Weight of the following batches in their step (default 1). */
void tn_trainer_weigh(tn_trainer *t, float weight);
/* Removes the loss scale from the gradients, to read them before tn_trainer_apply. */
void tn_trainer_unscale(tn_trainer *t);
/* Forward only, dropout off. */
tn_status tn_trainer_eval(tn_trainer *t, float *loss);

/* Runs one of the model's own steps without gradients; planned when opened if the options name it, else on first use, not inside a
 * training step: it may then read no input or parameter that the others do not read. Then one of its outputs, f32 or i32 (*type,
 * may be NULL); NULL: no such output. */
tn_status tn_trainer_run_step(tn_trainer *t, const char *name);
tn_bound *tn_trainer_step_bound(tn_trainer *t, const char *name); /* NULL: not run yet */
const void *tn_trainer_step_output(tn_trainer *t, const char *name, const char *output, tn_dtype *type, int64_t *count);

/* Reads the settings of steps (seed, learning rate, schedule, moments) again after a change. */
void tn_trainer_reread(tn_trainer *t);

/* Length of the learning-rate schedule from now on (0: train.steps). */
void tn_trainer_schedule(tn_trainer *t, int64_t steps);

typedef struct tn_update_result {
    float lr, grad_norm;
    bool ok;          /* false: not finite, and nothing was changed */
    float loss_scale; /* the step's; NaN where the loss is not scaled */
    tn_guard_action action;
} tn_update_result;

/* Clips, guards, updates (step counts from 0), zeroes the gradients. `batches`: the sum of weights since the last update.
 * TN_DIVERGED: train.nonfinite ends the run. */
tn_status tn_trainer_apply(tn_trainer *t, int64_t step, float batches, float loss, tn_update_result *out);

/* --- steps queued ahead ---------------------------------------------------------------------------------------------------
 * A device computes while the host prepares the next steps; results are collected later, in order.
 *
 *     tn_trainer_queue_grad (tn_trainer_batches times) -> tn_trainer_queue_apply -> ... -> tn_trainer_collect
 *
 * The same step as above, bit for bit, at most tn_trainer_queue_depth of them not collected. */

enum { TN_TRAINER_QUEUE_MAX = 4 };

/* 1 on the CPU, and where a step's result decides about the next one: train.nonfinite=skip or rollback, a loss scale, an
 * environment. With train.nonfinite=stop the steps queued behind a bad one are discarded. */
int tn_trainer_queue_depth(const tn_trainer *t);
int tn_trainer_queued(const tn_trainer *t); /* steps that are not collected */
/* weight 0: the batch is not run. keep: keeps outputs of this batch for instruments, which waits for the device. */
tn_status tn_trainer_queue_grad(tn_trainer *t, int64_t step, float weight, bool keep);
tn_status tn_trainer_queue_apply(tn_trainer *t, int64_t step);

typedef struct tn_step_result {
    double loss; /* mean of its batches by weight */
    tn_update_result update;
} tn_step_result;

/* The oldest step's, waiting for it; TN_DIVERGED as tn_trainer_apply, with *out filled. */
tn_status tn_trainer_collect(tn_trainer *t, tn_step_result *out);

/* The loss scale of the next step, for checkpoints and resuming. */
tn_loss_scale_state tn_trainer_loss_scale(const tn_trainer *t);
void tn_trainer_resume_loss_scale(tn_trainer *t, const tn_loss_scale_state *from);

const tn_model *tn_trainer_model(const tn_trainer *t);
const tn_settings *tn_trainer_settings(const tn_trainer *t);
tn_store *tn_trainer_store(tn_trainer *t);
/* Those of its graphs: another trainer on its store has the same `frozen` and `weights`. */
const tn_graph_options *tn_trainer_graph_options(const tn_trainer *t);
tn_guard *tn_trainer_guard(tn_trainer *t); /* NULL in a trainer that is forward_only */
/* An output of the last evaluation ("loss", "xent", "logits", "nll") and its size; NULL: the model has none. */
const float *tn_trainer_output(tn_trainer *t, const char *name, int64_t *count);
/* Of the width at work, as the next two; in chunks (plan.recompute=chunk): those of one chunk. */
tn_bound *tn_trainer_bound(const tn_trainer *t, bool training);
const tn_plan *tn_trainer_plan(const tn_trainer *t, bool training);
const tn_plan *tn_trainer_apply_plan(const tn_trainer *t); /* of the optimizer */
int64_t tn_trainer_parameters(const tn_trainer *t);
int tn_trainer_threads(const tn_trainer *t);
tn_device tn_trainer_device(const tn_trainer *t);
int64_t tn_trainer_microbatches(const tn_trainer *t);
int64_t tn_trainer_batches(const tn_trainer *t); /* of a step: train.accumulate times microbatches */

typedef struct tn_memory_plan {
    size_t parameters, gradients, optimizer, frozen, state, activations, workspace, other, data, total;
    size_t samples; /* that stay beside the plan (opt.resident_samples): part of the total */
    size_t host;    /* on a GPU: host memory, not part of the total */
} tn_memory_plan;

tn_memory_plan tn_trainer_memory(const tn_trainer *t);
/* For trainers: a plan's inputs and frame, and its arena where that is the largest so far. p may be NULL. */
void tn_memory_plan_add(tn_memory_plan *m, const tn_plan *p, size_t *arena);
/* "parameters 34 MB · gradients ... · peak 331 MB" into buf. */
const char *tn_memory_plan_text(const tn_memory_plan *m, char *buf, size_t bytes);

/* Where the time of tn_trainer_grad goes: as tn_bound_timers, tn_bound_times and tn_bound_op_times, summed over the plans it
 * runs, of all widths. FLOPs are those of one batch. */
void tn_trainer_timers(tn_trainer *t, bool on);
size_t tn_trainer_times(const tn_trainer *t, tn_region_time *rows, size_t most);
size_t tn_trainer_op_times(const tn_trainer *t, tn_op_time *rows, size_t most);
size_t tn_trainer_node_times(const tn_trainer *t, tn_node_time *rows, size_t most);
/* The same from a trace of the device, which replays plans: op i of the k-th training plan has the mark TN_TRAINER_MARK(k) + i
 * (tn_bound_mark), then the times are those of the spans of so many batches. False: none has such a mark. optimizer_ms: of so many
 * updates, whose ops are marked like those of plan TN_TRAINER_UPDATE. */
#define TN_TRAINER_MARK(k) ((uint64_t)((k) + 1) << 32)
enum { TN_TRAINER_UPDATE = 1000 };
void tn_trainer_mark(tn_trainer *t, bool on);
/* What has this mark: op, region, direction. *update: it is an op of the optimizer's. False: nothing has. */
bool tn_trainer_marked(const tn_trainer *t, uint64_t mark, tn_node_time *out, bool *update);
bool tn_trainer_take_spans(tn_trainer *t, const tn_span *spans, size_t n, uint64_t batches, double *optimizer_ms);
/* All that its plans do goes to this tracer (NULL: no longer). */
void tn_trainer_trace(tn_trainer *t, struct tn_tracer *to);
double tn_trainer_flops(const tn_trainer *t); /* of one batch; NaN: the numbers decide how many */

/* Callbacks after every batch and update, while the outputs of plan b are valid (NULL for batches in chunks). */
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

void tn_trainer_watch(tn_trainer *t, tn_watch w); /* a zeroed one: none */
/* For whoever fills the inputs: the clock before (0: no watch), and the callback after. */
double tn_trainer_watch_clock(const tn_trainer *t);
void tn_trainer_watch_data(const tn_trainer *t, double begun);

/* tn_bound_check for the training plans of all widths. NULL: off. */
void tn_trainer_check(tn_trainer *t, tn_finding *f);

bool tn_trainer_has_instruments(const tn_trainer *t);
/* After tn_trainer_eval: keeps the "look." outputs of this batch for instruments until the next training step. */
void tn_trainer_keep_outputs(tn_trainer *t);

typedef void tn_instrument_report(void *ctx, const char *name, double value, const char *unit);
/* The model's instruments: single numbers to `report`, distributions number by number to `spread` (may be NULL).
 * TN_USAGE: they read a setting that is not declared. */
tn_status tn_trainer_instruments(tn_trainer *t, tn_instrument_report *report, tn_instrument_report *spread, void *ctx);

#endif
