/* The training loop: steps, evaluation, metrics and checkpoints. It prints nothing: it reports through the caller's
 * functions and writes the metrics file. */
#ifndef TN_TRAIN_TRAINING_H
#define TN_TRAIN_TRAINING_H

#include "io/jsonl.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/metric_rows.h"
#include "train/source/source.h"
#include "train/trainer/trainer.h"

#include <stdatomic.h>

/* Numbers that are not known, or not measured at this log.level, are NaN. */
typedef struct tn_progress_report {
    int64_t step, steps;         /* done so far, of how many (tn_training.seconds: of how many as it looks now) */
    int64_t tokens;              /* trained on so far */
    double working_s;            /* inside steps: without evaluations and files */
    double loss;                 /* of this step, nats per token */
    tn_metric_list metrics;      /* that evaluations have, */
    const tn_metric_row *select; /* and the one that says which is best */
    tn_scores last;              /* at the last evaluation; empty before the first */
    tn_scores best;              /* of the best evaluation so far, */
    int64_t best_step;           /* which was after so many steps */
    bool worse;                  /* results have become worse since (overfit_watch.h) */
    double bits;                 /* bits per byte of text that one nat per token stands for */
    bool evaluated;              /* `last` is new */
    const char *counts;          /* what evaluations count: tokens, samples or questions */
    bool stopped;                /* early: train.stop_patience */
    double lr, grad_norm, tokens_per_s, seconds;
    double samples_per_s; /* tasks, instead of tokens */
    double loss_scale;    /* of this step; NaN where the loss is not scaled */
    double epoch;         /* how often the data were seen */
    double step_ms;       /* of the last step */
    /* from the start of the process to the end of its first step; NaN in all reports but the first */
    double first_step_s;
    double utilisation;         /* part of the machine's measured peak, 0..1 */
    double stall_s, stall_frac; /* waiting for data, of this session; as a part of the time inside its steps */
    double memory_bytes;        /* most the process has had */
    char instrument[32];        /* one of the model's own, or "" */
    double instrument_value;
    tn_guard_action action;
    bool diverged; /* the step was not finite and ended the run */
    const char *bad_tensor,
        *bad_batch; /* of a step that was not finite and was looked into (diagnose.h), else "" or NULL */
} tn_progress_report;

/* What whoever runs a training keeps with each of its checkpoints, beside the cursor of the data. */
typedef struct tn_ckpt_extra {
    const char *name; /* its key */
    void *ctx;
    json_t *(*save)(void *ctx); /* a new object; NULL: failed, with the error's text */
    tn_status (*load)(void *ctx, const json_t *own);
} tn_ckpt_extra;

typedef struct tn_training {
    tn_trainer *trainer;
    const tn_settings *settings;
    const tn_source *source;
    const tn_ckpt_extra *extra; /* or NULL */
    bool undiagnosed;           /* a step that is not finite is not looked into */
    tn_jsonl *metrics;          /* or NULL */
    const char *dir;            /* of the run: checkpoints go there; NULL: none are made */
    int64_t batch, length;
    /* > 0: the run ends with the step after which its steps have taken about so long, instead of at train.steps; the
     * schedule's length is then, at every step, the number of steps that the speed so far promises */
    double seconds;
    void *ctx;
    void (*report)(void *ctx, const tn_progress_report *r); /* after every step, or NULL */
    bool (*interrupted)(void *ctx);                         /* asked between steps, or NULL */
    bool (*enough)(void *ctx); /* asked after every report, or NULL: true ends the run as train.stop_patience does */
    bool once;        /* the command that runs it does not go on from its checkpoints: messages do not promise it */
    bool unsaved_end; /* the last step is not saved: whoever runs it keeps its numbers otherwise */
    void (*note)(void *ctx, const char *text); /* what a person should know, in one line without its end; or NULL */
    void (*warn)(
        void *ctx,
        const char *text); /* one line: the disk does not take what has to be saved, and the run goes on without; NULL:
                                                * such a failure ends it, since nobody would know */
    double (*peak)(void *ctx); /* FLOP/s of the machine, asked once when a run has lasted a while; NULL: not known */
    tn_status (*sample)(void *ctx, int64_t step); /* every sample.every steps, between two of them; or NULL */
} tn_training;

/* Runs to train.steps (or .seconds, not from a checkpoint) and a last evaluation, from the beginning (from = NULL) or from a checkpoint whose tensors, guard
 * and cursor are loaded already. A run with a directory saves as ckpt.* says, at every evaluation that is the best so far
 * (ckpt.keep_best=0: not) and at its end. TN_DIVERGED, TN_INTERRUPTED and TN_BAD_FILE (the data; both after saving) end it early; *last
 * is always filled. A save that fails is warned of and tried again at the next interval, at the end for ckpt.wait_s seconds: only then
 * TN_DISK. */
tn_status tn_training_run(const tn_training *t, const tn_ckpt_state *from, tn_progress_report *last);

typedef struct tn_evaluation {
    tn_metric_list metrics;
    tn_scores scores; /* NaN: nothing was counted */
    int64_t count;    /* labels, or what else the source counts; 0: it has no held-out part */
} tn_evaluation;

/* The source's held-out part in its order, at most so many batches of it (0: all). Uses the trainer's inputs. */
tn_status tn_evaluate(tn_trainer *t, const tn_source *source, int64_t batches, tn_evaluation *out);

/* The same for who evaluates often: memory is taken once, by the first run. TN_USAGE: a mistake in a metric's row. */
typedef struct tn_evaluator tn_evaluator;
tn_status tn_evaluator_new(tn_trainer *t, const tn_source *source, tn_evaluator **out);
tn_status tn_evaluator_run(tn_evaluator *e, const tn_source *source, int64_t batches, tn_evaluation *out);
/* Asked between batches: TN_INTERRUPTED where it is true by then. */
void tn_evaluator_stop(tn_evaluator *e, const atomic_bool *stop);
void tn_evaluator_free(tn_evaluator *e);

/* Nothing is left to do: all steps are done, or train.stop_patience ended it. */
bool tn_training_finished(const tn_settings *st, const tn_ckpt_state *state);
/* "held-out loss has risen since step 200 (0.7360 -> 0.7730)": from the best evaluation to the last, by what it is selected by; unit: what
 * one of the first metric is in. */
enum { TN_RISE_TEXT = 160 };
const char *tn_training_rise(const tn_progress_report *r, double unit, char buf[TN_RISE_TEXT]);
/* What a run that stands at this checkpoint last reported. */
tn_progress_report tn_training_report_at(const tn_settings *st, const tn_metric_list *metrics,
                                         const tn_ckpt_state *state);

#endif
