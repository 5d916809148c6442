/* Where a training run gets its batches: a struct of functions between the loop and its data, so that others than data sets
 * can be plugged in without the loop knowing. A source counts for itself how far it is; its cursor, a JSON object that only
 * it understands, goes into every checkpoint, and a source that loaded it goes on with the very next batch. */
#ifndef TN_TRAIN_SOURCE_H
#define TN_TRAIN_SOURCE_H

#include "data/loader.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

#include <jansson.h>

enum { TN_SOURCE_GROUPS = 40 };

/* A place in a source: numbers that only it understands. Of one process: what is saved is a cursor. */
typedef struct tn_source_mark {
    uint64_t at[12];
} tn_source_mark;

typedef struct tn_source {
    void *ctx;
    /* The next batch into the trainer's inputs, of the width that it needs (tn_trainer_feed_for); *count: labels that are
     * counted, or what else a run on it is measured in. Inside a step: no allocation, no file. */
    tn_status (*next)(void *ctx, tn_trainer *to, int64_t *count);
    /* Batch i of the held-out part, always the same, for i = 0, 1, ... in turn; *count is 0 behind the last. */
    tn_status (*heldout)(void *ctx, int64_t i, tn_trainer *to, int64_t *count);
    json_t *(*save)(void *ctx); /* a new object; NULL: out of memory. After a failed `next`: where the step that failed began */
    /* TN_USAGE: the data are not those the cursor is for. */
    tn_status (*load)(void *ctx, const json_t *cursor);
    /* For looking at a batch again, outside of steps: where the next one comes from (inside a step: no allocation), that place again,
     * and the batch handed out last in words, with what finds it in the data; row: of which row above all (-1: none). All or none. */
    void (*mark)(void *ctx, tn_source_mark *out);
    tn_status (*back)(void *ctx, const tn_source_mark *to);
    void (*describe)(void *ctx, int64_t row, char *buf, size_t bytes);
    void (*close)(void *ctx);
    /* Numbers of its own for the lines of metrics, or NULL. */
    void (*look)(void *ctx, void (*report)(void *to, const char *name, double value, const char *unit), void *to);
    double train_tokens;  /* labels of an epoch; NaN: there is always more */
    double train_samples; /* of an epoch, where the data are samples of a task; else 0 */
    double bits;         /* per byte of held-out text that one nat per token stands for; NaN: its bytes are not known */
    /* Where answers of several kinds are counted apart: held-out batch i is of kind i % groups; else 0. */
    int64_t groups;                /* TN_SOURCE_GROUPS at most */
    const char *const *group_name; /* (groups) */
    /* Metrics that are its own and not of held-out batches: `look` reports them by name. */
    const tn_metric_row *metrics;
    size_t n_metrics;
} tn_source;

typedef struct tn_source_options {
    const tn_dataset *data; /* borrowed */
    int64_t batch, length;  /* B, T */
    tn_loader_mode mode;
    uint64_t seed;
    int workers, prefetch; /* threads that fill batches, and batches they may be ahead */
    int64_t accumulate;    /* batches of a step; 0: 1 */
    tn_data_split heldout; /* an empty one: no held-out batches */
    bool heldout_only;     /* no training batches */
} tn_source_options;

/* Memory that its loaders take. */
size_t tn_source_bytes(const tn_source_options *o);
/* A data set of tokens, through loaders. */
tn_status tn_source_open(const tn_source_options *o, tn_source *out);
void tn_source_close(tn_source *s); /* takes a zeroed one */

/* A counter of a cursor: an integer from 0 to TN_CURSOR_MAX, from where it can be counted on. TN_BAD_FILE: it is none. */
#define TN_CURSOR_MAX ((int64_t)1 << 50)
tn_status tn_cursor_count(const json_t *cursor, const char *key, int64_t *out);

/* Whether rows may hold several documents, so that the trainer needs marks where they start. */
bool tn_source_marks_documents(tn_loader_mode mode);

#endif
