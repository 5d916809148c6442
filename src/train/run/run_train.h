/* Training a run that is open: from its checkpoint or from the beginning, with its metrics.jsonl. What the command and the C interface
 * have in common; who watches is up to them. */
#ifndef TN_TRAIN_RUN_TRAIN_H
#define TN_TRAIN_RUN_TRAIN_H

#include "train/run/run.h"
#include "train/run/session.h"

/* Fills the session from the run's checkpoint, where it has one: *from is then `state`, else NULL. Free the state in either case. */
tn_status tn_run_load(const tn_run_dir *run, const tn_session *on, tn_ckpt_state *state, const tn_ckpt_state **from);

/* Trains to the end. calls: the functions of tn_training, their ctx, and how it ends; the rest is filled here. Memory that is asked for
 * in the first step (algorithms, recordings) may not be there: then half the batch, from the beginning, and halved() says so. */
tn_status tn_run_train(const tn_run_dir *run, tn_session *on, const tn_ckpt_state *from, const tn_training *calls,
                       void (*halved)(void *ctx, const tn_session *on), tn_progress_report *last);

#endif
