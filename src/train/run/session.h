/* What every verb that runs a model needs, opened in one call: resolved settings, the model, its data source and a
 * trainer. */
#ifndef TN_TRAIN_SESSION_H
#define TN_TRAIN_SESSION_H

#include "models/models.h"
#include "train/run/dropout_auto.h"
#include "train/run/ladder.h"
#include "train/trainer/shared.h"
#include "train/source/source.h"
#include "train/trainer/trainer.h"
#include "train/trainer/width_fit.h"

enum { TN_SESSION_EPISODES = 100 }; /* of an evaluation in an environment */

/* An automatic batch: enough for matrix products to run at full speed. */
enum { TN_SESSION_TOKENS = 4096, TN_SESSION_SAMPLES = 64 };

typedef struct tn_session {
    tn_settings *settings;
    const tn_model *model;
    tn_source source; /* empty without data */
    tn_trainer *trainer;
    int64_t batch, length;         /* B, T of a batch; the trainer has B / plan.microbatches rows at a time */
    tn_shared *shared;             /* of samples and plans, or NULL */
    tn_context_slot *context_slot; /* whose context it runs on, or NULL */
    tn_width width;                /* text is empty if no width was fitted */
    tn_dropout_auto dropout;       /* train.dropout=auto */
    bool runs, needs_data;         /* as in the options */
    const tn_user_args *user;      /* the same */
    char dropped[512];             /* train.dropped when the source was opened */
    tn_ladder ladder;              /* what was done for want of memory */
} tn_session;

typedef struct tn_session_options {
    const tn_user_args *user;    /* the command line, which may name a shared object; or NULL */
    const char *target;          /* see tn_settings_resolve */
    const tn_settings *settings; /* instead: resolved already, with their model */
    const tn_model *model;
    tn_store *store;  /* borrowed: its tensors are the trainer's; NULL: its own */
    const char *file; /* instead of a target: a weights file, with its settings (see tn_settings_from) */
    const char *const *said;
    size_t n_said;
    const char *const *overrides;
    size_t n;
    bool needs_data;          /* or a task, by the model */
    bool evaluates;           /* no gradients, no training batches */
    bool goes_on;             /* a target that is a run's folder is that run (tn_run_is_target) */
    bool runs;                /* a run that is saved: without memory it goes down the whole ladder (ladder.h) */
    bool instruments;         /* of evaluations; without `evaluates`: as log.level says */
    bool frozen;              /* `evaluates`, and the caller loads the weights: none is drawn, none has a gradient */
    tn_dtype matrices;        /* type of frozen matrices */
    tn_data_split split;      /* of held-out batches; 0: validation */
    bool trained;             /* evaluates records of the training split, in order */
    bool whole;               /* text: evaluates the training split, from which nothing is held out; else `split` */
    const char *const *steps; /* of the model's own that are planned too, NULL at the end; or NULL */
    const char *weights;      /* to be loaded: checked against the model before memory is allocated; or NULL */
    int64_t parameters;       /* > 0: the width is fitted to about so many */
    tn_shared *shared;        /* keeps samples and plans; NULL: freed with the session */
    tn_context_slot *context_slot; /* its context is used; NULL: a new one */
    const char *width;             /* the setting that is fitted (NULL: see tn_width_fit) */
} tn_session_options;

/* Settings from a target and overrides, then data or task (which set sizes; see tn_source_find), train.dropout=auto (dropout_auto.h), batch size (auto: the largest
 * whose memory plan fits, at most TN_SESSION_TOKENS), trainer. Without the memory: a run takes the next rung of the ladder until it fits;
 * others refuse a plan that does not fit, and take a rung that changes no result where an allocation fails. */
tn_status tn_session_open_with(const tn_session_options *o, tn_session *out);
tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out);
void tn_session_close(tn_session *s);

/* The next rung after a failed allocation; trainer and source are made again. TN_MEMORY, with the earlier error: there is none. */
tn_status tn_session_lower(tn_session *s);
/* Trainer and source again, after a change of settings or of s->batch; further down the ladder where that does not fit. */
tn_status tn_session_refit(tn_session *s);

/* Size of a split in tokens, samples, records or sequences; 0 without data. */
int64_t tn_session_count(const tn_session *s, tn_data_split split);
/* Held-out batches of a split, for the session's trainer; no training batches. */
tn_status tn_session_heldout(const tn_session *s, tn_data_split split, tn_source *out);

#endif
