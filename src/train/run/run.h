/* A run is a directory: config.yaml (resolved settings), metrics.jsonl, checkpoints step-N/ with the links latest and
 * best (checkpoint.h). Opening it starts, resumes or restarts the run. --fresh alone discards an earlier run, and only
 * once the new one has a checkpoint (until then it is in RUN/old/). A lock on the directory allows one process at a
 * time. */
#ifndef TN_TRAIN_RUN_H
#define TN_TRAIN_RUN_H

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/run/training.h"
#include "train/trainer/trainer.h"

enum { TN_RUN_PATH = TN_PATH_BYTES };

typedef struct tn_run_dir {
    char dir[TN_RUN_PATH];
    char checkpoint[TN_RUN_PATH]; /* to go on from; "" where there is none */
    char note[2048]; /* what a person should know: settings that changed, a checkpoint that is damaged; or "" */
    bool found;      /* runs/NAME-N that was there and is continued because the settings are the same */
    bool made;       /* the folder was not there before */
    bool
        lowered; /* the settings now have its rung of the memory ladder and its dropout, and what was made from them has not */
    int lock; /* descriptor of the directory, or -1 */
} tn_run_dir;

/* The setting `run`, or, where that is empty, the newest runs/NAME-N with the same settings that is not finished, or else the newest
 * that is and is younger than the files it was made from (nothing is left to do then), or else a new one. A run that goes on keeps its rung
 * of the memory ladder: st gets it. Removes what a killed process left (.tmp-*), writes config.yaml. `fresh` starts over: no automatic
 * search, and what a named run holds moves to RUN/old. */
tn_status tn_run_open(tn_settings *st, const char *model, bool fresh, tn_run_dir *out);
/* A folder that is named instead of a model, and is a run, is the setting `run` from now on, unless the command line has that: wherever it
 * lies, and whatever it was called when it began. NULL and all else: nothing. */
tn_status tn_run_is_target(tn_settings *st, const char *target);
/* Whether `run` may be what it is: see run_place.c. */
tn_status tn__run_check_path(const tn_settings *st);
/* config.yaml again, where settings changed after it was opened. */
tn_status tn_run_record(const tn_run_dir *r, const tn_settings *st);
/* What a run that starts takes from other files, and one that goes on from its checkpoint: the weights that it starts from (train.from), then
 * those of parts (parts.h). The parts' hashes go into the settings, and into the run's config.yaml where there is one. */
tn_status tn_run_begin_parts(const tn_training *t);
/* Before the first step of this process: that, where the run starts, and what its source makes with it (tn_source.prepare). */
tn_status tn_run_prepare(const tn_training *t, bool starts);
/* After a start that ended with s, before tn_run_close: if it failed, the folder goes again where this one made it and nothing was trained.
 * Not after an interrupt: whoever sent it was told where the run is. Fine with one that did not open. */
void tn_run_undo(tn_run_dir *r, tn_status s);
void tn_run_close(tn_run_dir *r); /* takes a zeroed one with lock -1 */

/* Fills trainer and data from r->checkpoint, cuts lines of later steps off metrics.jsonl, and tidies. */
tn_status tn_run_resume(const tn_run_dir *r, const tn_training *how, tn_ckpt_state *out);
/* After a checkpoint of this step: removes those that ckpt.keep_* does not keep, and RUN/old; points RUN/best. */
tn_status tn_run_tidy(const char *dir, const tn_settings *st, int64_t step);

/* Removes the temporaries that a failed save could not remove itself. Not while one of the run's files is being written. */
tn_status tn_run_sweep(const char *dir);

/* Holds the directory for this process; close(2) gives it back. TN_USAGE: another process has it. Waits a little for it,
 * because one that was just killed may still be on its way out of the disk. */
tn_status tn_run_lock(const char *dir, int wait_ms, int *fd);
/* Keeps the lines up to `step`; what follows, also damage at the end, goes. Fine where there is no file. */
tn_status tn_metrics_cut(const char *path, int64_t step);

#endif
