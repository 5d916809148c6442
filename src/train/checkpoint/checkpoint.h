/* Checkpoints of a run. A checkpoint is a directory RUN/step-N:
 *
 *   model.safetensors   parameters, f32             state.json      step, data cursor, guard, best metric, seed, ...
 *   state.safetensors   moments and states          manifest.json   size and checksum of each file, metrics, version
 *
 * (model.safetensors.zst and state.safetensors.zst under ckpt.compress=zstd), and two links beside it: RUN/latest, from
 * which the run goes on, and RUN/best, the best by train.select. It is written under a temporary name, synced, and
 * renamed: under a final name there are only whole checkpoints, and the one before stays until the new one is durable.
 * What a run does with them (resume, settings, metrics) is run.h's. */
#ifndef TN_TRAIN_CHECKPOINT_H
#define TN_TRAIN_CHECKPOINT_H

#include "base/fs.h"
#include "base/hash.h"
#include "io/safetensors.h"
#include "optim/guard.h"
#include "optim/loss_scale.h"
#include "train/trainer/scores.h"

#include <jansson.h>

enum { TN_CKPT_FORMAT = 1, TN_CKPT_NAME = 32, TN_CKPT_NOTE = 2048 };

/* What is saved beside the tensors. Numbers that are not known are NaN. */
typedef struct tn_ckpt_state {
    int64_t step, tokens;        /* done so far */
    int64_t batch, length, seed; /* of the run */
    double loss, lr, grad_norm;  /* of the last step */
    tn_scores now;               /* of exactly these parameters */
    tn_scores last;              /* at the run's last evaluation */
    tn_scores best;              /* at its best evaluation, */
    int64_t best_step, stale;    /* when, and how many evaluations ago */
    double longest; /* the most evaluations in a row before it that were not better than an earlier one; files of
                                    before do not say it */
    bool
        unevaluated; /* an evaluation of these parameters was due and was interrupted: it comes first when the run goes on */
    char select[TN_SCORE_NAME]; /* which score makes the best one, "" is the first; in the manifest only, as */
    bool lower;                 /* whether less of it is better, */
    char unit[24];              /* and the unit of the first, which files say where it is not nats */
    double seconds, working;    /* of the run; inside steps */
    /* measured when it was saved: tokens or samples per second of steps, bytes planned and the most that the process took, part of the
     * machine's measured peak; files of before do not say them */
    double tokens_per_s, samples_per_s, planned_bytes, peak_bytes, utilisation;
    double evaluating, saving; /* seconds of the run: in evaluations, in saves before this one */
    tn_guard_state guard;
    tn_loss_scale_state scaling;
    char settings[TN_HASH_BYTES]; /* checksum of the settings that shape the numbers */
    json_t *cursor;               /* where the data continue; owned, or NULL */
} tn_ckpt_state;

void tn_ckpt_state_free(tn_ckpt_state *st); /* takes a zeroed one */

/* --- saving ---------------------------------------------------------------------------------------------------------- */

typedef struct tn_ckpt_what {
    const tn_store *store;
    const tn_guard *guard; /* or NULL */
    const tn_ckpt_state *state;
    bool compress;
    int failed; /* tries before this one, whose names are not used again: what a disk has lost is not looked for in the same place */
} tn_ckpt_what;

/* Makes RUN/step-N, reads it back, and points RUN/latest at it. TN_DISK: the checkpoints that were there are untouched. */
tn_status tn_ckpt_save(const char *run, const tn_ckpt_what *what);
/* Of its tensors, not packed: what a checkpoint takes on the disk but for some kilobytes. */
tn_status tn_ckpt_bytes(const tn_ckpt_what *what, uint64_t *bytes);

/* --- which there are ------------------------------------------------------------------------------------------------- */

typedef struct tn_ckpt_entry {
    int64_t step;
    tn_scores scores; /* empty: not evaluated */
    /* of them the one that decides what is best, "" is the first; of equal ones the first */
    char select[TN_SCORE_NAME];
    bool lower;        /* less of it is better */
    char unit[24];     /* of the first */
    bool complete;     /* manifest readable, all files there with their sizes */
    bool latest, best; /* what RUN/latest and RUN/best name */
    bool other;        /* something that no run wrote lies in it, so that it stays */
    bool keep;         /* the rules' answer */
    uint64_t bytes;
} tn_ckpt_entry;

typedef struct tn_ckpt_list {
    tn_ckpt_entry *entry; /* (n), by step */
    size_t n, capacity;
} tn_ckpt_list;

/* No directory, no checkpoints: an empty list. */
tn_status tn_ckpt_list_read(const char *run, tn_ckpt_list *out);
void tn_ckpt_list_free(tn_ckpt_list *l);

/* Marks what stays: of the whole ones up to step `upto` the `latest` newest and the `best` best ones
 * (the earlier of equals), at least the newest; all that are not whole, and all beyond `upto`, are left alone. */
void tn_ckpt_list_mark(tn_ckpt_list *l, int64_t latest, int64_t best, int64_t upto);
/* Removes the rest, and points RUN/best and, where it went, RUN/latest at what stayed. */
tn_status tn_ckpt_list_prune(const char *run, const tn_ckpt_list *l, int64_t upto);

/* "step-500" */
const char *tn_ckpt_name(int64_t step, char name[TN_CKPT_NAME]);
int64_t tn__ckpt_step_of(const char *name); /* back: -1 where the name is not exactly step-N */
/* The directory of a checkpoint of a run: the one `link` ("latest" or "best") names, or where that is missing or names
 * nothing whole, the newest (best) that verifies. TN_BAD_FILE: none does. Where another one than the
 * newest had to be taken, `why` (bytes long; may be NULL) says so, else it is empty. */
tn_status tn_ckpt_find(const char *run, const char *link, char path[TN_PATH_BYTES], char *why, size_t bytes);
/* The newest or best one for any path: a run's directory, a checkpoint's, or a file of tensors or a folder of
 * Hugging Face, which stand for themselves (is_file). Where it is
 * another than the run's link names, `note` says so in one line, with what to do, and whoever reads it has to tell; else it is "". */
bool tn_is_hf_folder(const char *path); /* of Hugging Face: config.json, and neither a run nor a checkpoint */
tn_status tn_ckpt_resolve(const char *path, const char *link, char found[TN_PATH_BYTES], bool *is_file,
                          char note[TN_CKPT_NOTE]);
/* That line from tn_ckpt_find's `why`. */
void tn_ckpt_note(const char *link, const char *why, const char *used, char note[TN_CKPT_NOTE]);

/* A run removes checkpoints, and writes others under the same names, while they are read. Where reading `found` of the run `path` failed
 * because it is no longer the one that `seen` is of, the one to read now is put there, and what it is into `seen`; false: it is still the
 * same, or no other is there, or `path` is not a run but that checkpoint. */
typedef struct tn_ckpt_id {
    uint64_t dev, ino;
} tn_ckpt_id;

tn_ckpt_id tn_ckpt_id_of(const char *found); /* before it is read */
bool tn_ckpt_replaced(const char *path, const char *link, char found[TN_PATH_BYTES], tn_ckpt_id *seen);

/* --- reading --------------------------------------------------------------------------------------------------------- */

/* Every file of the manifest against its size and checksum. TN_BAD_FILE names the first that is damaged, or says that the
 * checkpoint was removed meanwhile. */
tn_status tn_ckpt_verify(const char *path);
tn_status tn_ckpt_read_manifest(const char *path, json_t **out); /* checked; json_decref it */
tn_status tn_ckpt_read_state(const char *path, tn_ckpt_state *out);
/* Verifies, then fills the store (parameters, moments, states) and the guard (may be NULL). */
tn_status tn_ckpt_load(const char *path, tn_store *store, tn_guard *guard, tn_ckpt_state *out);
/* Parameters alone, for evaluation and sampling: of a run (its best), a checkpoint or a file of tensors of any floating
 * type. note: as tn_ckpt_resolve's. */
tn_status tn_ckpt_load_weights(const char *path, tn_store *store, char note[TN_CKPT_NOTE]);
/* The name of a checkpoint's file as it is there, packed or not: "model" or "state". */
tn_status tn_ckpt_tensors_path(const char *path, const char *which, char out[TN_PATH_BYTES]);

/* Numbers of any float type from a file into the tensor e of the store, whose shape they have. */
tn_status tn_store_take_floats(const tn_store *st, const tn_entry *e, const tn_file_tensor *t);

/* --- used by the files of this module -------------------------------------------------------------------------------- */

/* A checkpoint's directory, to know afterwards whether it is still the same. */
bool tn__ckpt_id_read(const char *path, tn_ckpt_id *out);    /* false: it is not there */
bool tn__ckpt_gone(const char *path, const tn_ckpt_id *was); /* or another has its name */

json_t *tn__ckpt_state_json(const tn_ckpt_state *st);
/* Scores among the numbers of a file; lead: of their keys. False: something is missing, or no number. */
bool tn__ckpt_scores(const json_t *from, const char *lead, tn_scores *out);
/* `name` stands for the file in messages. */
tn_status tn__ckpt_state_parse(const json_t *root, const char *name, tn_ckpt_state *out);

typedef struct tn_ckpt_file {
    char name[40];
    uint64_t bytes;
    char hash[TN_HASH_BYTES];
} tn_ckpt_file;

json_t *tn__ckpt_manifest_json(const tn_ckpt_state *st, const tn_ckpt_file *file, size_t n);
/* RUN/link names step-N from now on. */
tn_status tn__ckpt_point(const char *run, const char *link, int64_t step);
/* The step RUN/link names, or -1. */
int64_t tn__ckpt_pointed(const char *run, const char *link);

#endif
