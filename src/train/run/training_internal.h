/* What the files of the training run share: the end of a run, a disk that fails, a step that is not finite. */
#ifndef TN_TRAIN_TRAINING_INTERNAL_H
#define TN_TRAIN_TRAINING_INTERNAL_H

#include "train/run/training.h"

/* train.stop_patience is used up. */
bool tn__out_of_patience(const tn_settings *st, const tn_ckpt_state *state);

/* The note of overfitting, with remedies. */
enum { TN_OVERFIT_NOTE = 512 };
const char *tn__overfit_note(const tn_training *t, const tn_progress_report *r, char buf[TN_OVERFIT_NOTE]);

/* --- a disk that fails (save_faults.c): a warning, and training continues ------------------------------------------- */

/* One line to t->warn, which must be there. */
void tn_training_warn(const tn_training *t, const char *fmt, ...) TN_PRINTF(2, 3);
/* Warns where the disk has no room for two checkpoints: the new one is written before the old one is removed. */
tn_status tn_warn_disk_space(const tn_training *t);
/* The metrics, before a checkpoint that counts on their lines. Repeating a failed sync is useless: what it lost is lost. */
tn_status tn__training_sync(const tn_training *t);
/* Whether batches leave something behind beside gradients. */
bool tn__has_states(const tn_store *st);
/* Waits; false: the run was interrupted meanwhile. */
bool tn_training_pause(const tn_training *t, double seconds);

/* "step-4 is kept"; when the next save is tried */
const char *tn__kept_text(int64_t saved, char text[64]);
const char *tn__next_save_text(const tn_settings *st, int64_t step, int64_t steps, char text[64]);
/* log.csv: metrics.csv in the run's directory. */
tn_status tn__training_csv(const tn_training *t);

/* --- a trace of some steps (training_trace.c) ------------------------------------------------------------------------ */

/* The run's threads tell the tracer of t, which forgets what it had; where there is none nothing happens, as in the next two. */
void tn__training_trace(const tn_training *t, int64_t steps);
/* Before a step: whether it is traced. Counters, and the caller is told when tracing begins and ends. */
void tn__training_trace_step(const tn_training *t);
/* No more is traced, whatever ended the run. */
void tn__training_trace_end(const tn_training *t);
/* A span of the main thread that began then (tn_tracer_clock). number 0: none. */
void tn__training_span(const tn_training *t, uint64_t begun, tn_event_kind kind, const char *name, int64_t number);

/* --- a step that is not finite (diagnose.c) ------------------------------------------------------------------------- */

typedef struct tn_diagnosis {
    char tensor[640]; /* "the parameter embed, f32 (256,16): NaN at (3,4)" */
    char batch[400];  /* "batch 11 of epoch 0, row 1 from document 0 byte 812" */
} tn_diagnosis;

/* Which batch and which tensor were the first that was not finite: computes the step again with checks (tn_bound_check). Called right
 * after the step (counted from 0), whose first batch came from *from, and whose update was refused. Parameters, states, gradients (zero)
 * and the source are afterwards what they were. If steps queued behind it have changed the parameters, the number may not be found
 * again: `tensor` then says so. Both are "" where the source cannot go back. */
tn_status tn_diagnose(const tn_training *t, const tn_source_mark *from, int64_t step, tn_diagnosis *out);

#endif
