/* Runs as one finds them on the disk: which there are, and what their files say. Opens nothing for writing and loads no model. */
#ifndef TN_TRAIN_RUN_INFO_H
#define TN_TRAIN_RUN_INFO_H

#include "base/alloc.h"
#include "train/checkpoint/checkpoint.h"

typedef enum tn_run_state {
    TN_RUN_RUNNING = 0,  /* a process has it */
    TN_RUN_FINISHED = 1, /* all steps, or ended by train.stop_patience */
    TN_RUN_STOPPED = 2,  /* resumable from its latest checkpoint */
    TN_RUN_BEGUN = 3,    /* no checkpoint yet: it would start over */
    TN_RUN_FAILED = 4,   /* the loss was not finite */
    TN_RUN_DAMAGED = 5   /* its settings or all its checkpoints cannot be read */
} tn_run_state;

typedef struct tn_run_info {
    tn_run_state state;
    char why[512]; /* damaged: what cannot be read */
    char model[128], preset[64];
    int64_t step, steps;                  /* the last that is known of; 0: not known */
    tn_scores best;                       /* of its best evaluation; empty: none */
    int64_t best_step;                    /* when that was, */
    int64_t stale;                        /* and how many evaluations before the latest checkpoint */
    char select[TN_SCORE_NAME], unit[24]; /* the score that makes it the best, "" is the first; the unit of the first */
    int64_t tokens;                       /* at `saved` */
    int64_t patience;                     /* train.stop_patience */
    int64_t saved;                        /* step of the latest checkpoint; 0: none */
    uint64_t bytes;                       /* of its checkpoints */
    int64_t changed;                      /* when it was last written, seconds since 1970 */
} tn_run_info;

const char *tn_run_state_name(tn_run_state s); /* "running", ... */
/* TN_BAD_FILE: no such directory. Damage inside it is a state. */
tn_status tn_run_info_read(const char *dir, tn_run_info *out);

/* Of its latest checkpoint, whose tensors it lists: the file is opened, and unpacked where it is packed. 0: not known. */
int64_t tn_run_parameters(const char *dir, const tn_run_info *r);

/* A directory is a run where it has a run's config.yaml, or metrics.jsonl. */
bool tn_is_run(const char *dir);
/* The run itself, or all in the folder and in the folders below it (those of a race), by name; dirs (n) in `arena`. Links are not
 * followed. TN_BAD_FILE: no such directory. */
tn_status tn_run_find_all(const char *path, tn_arena *arena, const char ***dirs, size_t *n);

#endif
