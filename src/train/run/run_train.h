/* Training a run that is open: from its checkpoint or from the beginning, with its metrics.jsonl. What the command and the C interface
 * have in common; who watches is up to them. */
#ifndef TN_TRAIN_RUN_TRAIN_H
#define TN_TRAIN_RUN_TRAIN_H

#include "train/run/run.h"
#include "train/run/session.h"

/* Fills the session from the run's checkpoint, where it has one: *from is then `state`, else NULL. Free the state in either case. Trainer and
 * source are made again where the run is on another rung of the memory ladder. */
tn_status tn_run_load(const tn_run_dir *run, tn_session *on, tn_ckpt_state *state, const tn_ckpt_state **from);

/* Trains to the end. calls: the functions of tn_training, their ctx, and how it ends; the rest is filled here. Where memory is not there
 * that a step, an evaluation or a save asks for, the run takes the next rung of the ladder, lowered() says so, and it goes on from its
 * newest save. TN_MEMORY: there is none left; what was saved is whole. */
tn_status tn_run_train(const tn_run_dir *run, tn_session *on, const tn_ckpt_state *from, const tn_training *calls,
                       void (*lowered)(void *ctx, const tn_session *on), tn_progress_report *last);

#endif
