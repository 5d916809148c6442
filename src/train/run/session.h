/* What every verb that runs a model needs, opened in one call: resolved settings, the model, its data source and a
 * trainer. */
#ifndef TN_TRAIN_SESSION_H
#define TN_TRAIN_SESSION_H

#include "models/models.h"
#include "train/trainer/shared.h"
#include "train/source/source.h"
#include "train/trainer/trainer.h"
#include "train/trainer/width_fit.h"

enum { TN_SESSION_EPISODES = 100 }; /* that an evaluation in an environment plays */

/* Of an automatic batch: enough for matrix products to run at full speed, and for a step to be a step. */
enum { TN_SESSION_TOKENS = 4096, TN_SESSION_SAMPLES = 64 };

typedef struct tn_session {
    tn_settings *settings;
    const tn_model *model;
    tn_source source; /* empty where none is named */
    tn_trainer *trainer;
    int64_t batch, length;         /* B, T */
    tn_shared *shared;             /* where samples and plans are from, or NULL */
    tn_context_slot *context_slot; /* whose context it runs on, or NULL */
    tn_width width;                /* text is empty where none was looked for */
    int64_t requested_batch;       /* the batch that memory was not given for, or 0 */
} tn_session;

typedef struct tn_session_options {
    const tn_user_args *user;    /* what the user typed, for a model of their own; NULL: nothing */
    const char *target;          /* see tn_settings_resolve */
    const tn_settings *settings; /* instead: as they were resolved, with their model */
    const tn_model *model;
    tn_store *store; /* borrowed: its tensors are the trainer's; NULL: its own */
    /* instead of a target: a file of weights, with the words that stand in it (see tn_settings_from) */
    const char *file;
    const char *const *said;
    size_t n_said;
    const char *const *overrides;
    size_t n;
    bool needs_data;     /* or a task, by the model */
    bool evaluates;      /* no gradients, no training batches */
    bool instruments;    /* the model's instruments are asked at evaluations; without `evaluates`: as log.level says */
    tn_data_split split; /* held-out batches come from it; 0 is the valid one */
    const char *weights; /* that will be loaded: the model has to be theirs before it takes memory; or NULL */
    int64_t parameters;  /* > 0: the model's width is changed so that it has about so many */
    tn_shared *shared;   /* samples and plans stay in it; NULL: they go with the session */
    tn_context_slot *context_slot; /* its context is taken, and stays; NULL: one of its own */
    const char *width;             /* the setting that is changed for it (NULL: see tn_width_fit) */
} tn_session_options;

/* Settings from a target and overrides, data where the settings name some (its vocabulary becomes the model's) or a task
 * (its sizes do; see tn_source_find), batch size (auto: the largest whose memory plan fits, TN_SESSION_TOKENS at most), trainer.
 * A plan that does not fit is refused; where it fits and memory is not given, the batch is halved (tn_session_halve_batch). */
tn_status tn_session_open_with(const tn_session_options *o, tn_session *out);
tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out);
void tn_session_close(tn_session *s);

/* Half the batch, twice as many of them a step: when memory was not given for what was planned. Trainer and source are made anew.
 * TN_MEMORY, with the error of before: the batch cannot be halved. */
tn_status tn_session_halve_batch(tn_session *s);

/* How much the data have of a split: tokens, samples, records, sequences; 0 without data. */
int64_t tn_session_count(const tn_session *s, tn_data_split split);
/* Held-out batches of a split, for the session's trainer; no training batches. */
tn_status tn_session_heldout(const tn_session *s, tn_data_split split, tn_source *out);

#endif
