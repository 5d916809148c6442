/* The training loop: steps, evaluation, metrics and checkpoints. It prints nothing: it reports through the caller's
 * functions and writes the metrics file. */
#ifndef TN_TRAIN_TRAINING_H
#define TN_TRAIN_TRAINING_H

#include "base/tracer.h"
#include "io/jsonl.h"
#include "train/run/ladder.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/metric_rows.h"
#include "train/run/patience.h"
#include "train/source/source.h"
#include "train/trainer/trainer.h"

/* Numbers that are not known, or not measured at this log.level, are NaN. */
typedef struct tn_progress_report {
    int64_t step, steps;         /* done, of how many (with tn_training.seconds: estimated) */
    int64_t tokens;              /* trained on so far */
    double working_s;            /* inside steps, without evaluations and files */
    double loss;                 /* of this step, nats per token */
    tn_metric_list metrics;      /* of evaluations */
    const tn_metric_row *select; /* the one that decides which is best */
    tn_scores last;              /* at the last evaluation; empty before the first */
    tn_scores best;              /* at the best evaluation */
    int64_t best_step;           /* of that evaluation */
    bool worse;                  /* held-out results got worse since (overfit_watch.h) */
    tn_patience_record patience; /* of the evaluations so far */
    double bits;                 /* bits per byte of text for one nat per token */
    bool evaluated;              /* `last` is new */
    const char *counts;          /* what evaluations count: tokens, samples or questions */
    bool stopped;                /* early: train.stop_patience */
    double lr, grad_norm, tokens_per_s, seconds;
    double samples_per_s; /* tasks, instead of tokens */
    double loss_scale;    /* of this step; NaN where the loss is not scaled */
    double epoch;         /* passes over the data */
    double step_ms;       /* mean of the steps since the last line */
    double first_step_s;  /* from the start of the process to the end of its first step; NaN after the first report */
    double utilisation;   /* part of the machine's measured peak, 0..1 */
    double stall_s, stall_frac;    /* waiting for data in this session; as a fraction of the time in steps */
    double evaluation_s, saving_s; /* spent evaluating and saving since the last line */
    double memory_bytes;           /* peak of the process */
    double gpu_busy;               /* per cent of the time since the last line in which a kernel ran; NaN: not known */
    double gpu_clock, gpu_watt;    /* MHz of its multiprocessors, power; means like gpu_busy; NaN: not known */
    double gpu_used, gpu_all;      /* bytes of the GPU's memory */
    char instrument[32];           /* one of the model's own, or "" */
    double instrument_value;
    tn_guard_action action;
    bool diverged;                      /* the step was not finite and ended the run */
    const char *bad_tensor, *bad_batch; /* of a step that was not finite (tn_diagnose), else "" or NULL */
} tn_progress_report;

/* What the caller saves with each checkpoint, next to the data cursor. */
typedef struct tn_ckpt_extra {
    const char *name; /* its key */
    void *ctx;
    json_t *(*save)(void *ctx); /* a new object; NULL: failed, with the error's text */
    tn_status (*load)(void *ctx, const json_t *own);
} tn_ckpt_extra;

typedef struct tn_training {
    tn_trainer *trainer;
    tn_settings *settings; /* which get the hashes of parts (parts.h) */
    const tn_source *source;
    const tn_ckpt_extra *extra; /* or NULL */
    bool undiagnosed;           /* no diagnosis of steps that are not finite */
    tn_jsonl *metrics;          /* or NULL */
    const char *dir;            /* of the run, for checkpoints; NULL: none */
    const tn_ladder *ladder;    /* what was done for want of memory; or NULL */
    int64_t batch, length;
    /* > 0: the run ends when its steps have taken about so long, instead of at train.steps; the schedule's length is the
     * number of steps estimated from the speed so far */
    double seconds;
    void *ctx;
    void (*report)(void *ctx, const tn_progress_report *r); /* after every step, or NULL */
    bool (*interrupted)(void *ctx);                         /* called between steps, or NULL */
    bool
        leaves_evaluations; /* .interrupted is also called between batches of an evaluation, which is then made when the run goes on */
    bool (*enough)(void *ctx); /* called after every report, or NULL: true ends the run like train.stop_patience */
    bool once;                 /* the command cannot resume it: messages do not suggest that */
    bool unsaved_end;          /* the last step is not saved: the caller keeps its numbers */
    void (*note)(void *ctx, const char *text); /* one line for the user, without a newline; or NULL */
    void (*warn)(void *ctx,
                 const char *text); /* saving failed and training continues; NULL: the failure ends the run */
    double (*peak)(void *ctx);      /* FLOP/s of the machine, called once after a while; NULL: unknown */
    tn_status (*sample)(void *ctx, int64_t step);      /* every sample.every steps, or NULL */
    struct tn_tracer *tracer;                          /* what some of the steps do goes there, or NULL */
    void (*tracing)(void *ctx, tn_tracer_change what); /* between steps, when that begins and ends; or NULL */
} tn_training;

/* Runs to train.steps (or .seconds, not from a checkpoint) and a last evaluation, from the beginning (from = NULL) or from a
 * checkpoint whose tensors, guard and cursor are loaded. A run with a directory saves as ckpt.* says, at each best evaluation
 * (unless ckpt.keep_best=0) and at its end. TN_DIVERGED, TN_INTERRUPTED and TN_BAD_FILE (the data; both after saving) end it
 * early; *last is always filled. A failed save is a warning and retried at the next interval, at the end for ckpt.wait_s
 * seconds; only then TN_DISK. */
tn_status tn_training_run(const tn_training *t, const tn_ckpt_state *from, tn_progress_report *last);

typedef struct tn_evaluation {
    tn_metric_list metrics;
    tn_scores scores; /* NaN: no labels */
    int64_t count;    /* labels, or what else the source counts; 0: no held-out split */
} tn_evaluation;

/* Evaluates at most so many held-out batches (0: all). Uses the trainer's inputs. */
tn_status tn_evaluate(tn_trainer *t, const tn_source *source, int64_t batches, tn_evaluation *out);

/* The same repeatedly: allocates once, in the first run. TN_USAGE: a mistake in a metric's row. */
typedef struct tn_evaluator tn_evaluator;
tn_status tn_evaluator_new(tn_trainer *t, const tn_source *source, tn_evaluator **out);
tn_status tn_evaluator_run(tn_evaluator *e, const tn_source *source, int64_t batches, tn_evaluation *out);
/* Called between batches: TN_INTERRUPTED once it is true. */
void tn_evaluator_stop(tn_evaluator *e, bool (*stop)(void *ctx), void *ctx);
void tn_evaluator_free(tn_evaluator *e);

/* All steps are done, or train.stop_patience ended the run. */
bool tn_training_finished(const tn_settings *st, const tn_ckpt_state *state);
/* "held-out loss has risen since step 200 (0.7360 -> 0.7730)": from the best evaluation to the last, by the selected metric;
 * unit: factor for the first metric. */
enum { TN_RISE_TEXT = 160 };
const char *tn_training_rise(const tn_progress_report *r, double unit, char buf[TN_RISE_TEXT]);
/* What train.stop_patience would save (patience.h), or has saved of a run that is over; "" where it is set, or saves nothing. */
const char *tn_training_patience(const tn_progress_report *r, const tn_settings *st, bool over,
                                 char buf[TN_PATIENCE_TEXT]);
/* The last report of a run at this checkpoint. */
tn_progress_report tn_training_report_at(const tn_settings *st, const tn_metric_list *metrics,
                                         const tn_ckpt_state *state);

#endif
