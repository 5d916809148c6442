/* Where a run gets its batches: a struct of functions between the loop and its data, so that others than data sets can be plugged in without
 * the loop knowing. What a source can do is in it: functions that it lacks are NULL. A source counts for itself how far it is; its cursor, a
 * JSON object that only it understands, goes into every checkpoint, and a source that loaded it goes on with the very next batch.
 *
 *     tn_source_find (settings learn the sizes of the data) -> a trainer for tn_source_input_spec -> source.start -> next, heldout, ... -> tn_source_close */
#ifndef TN_TRAIN_SOURCE_H
#define TN_TRAIN_SOURCE_H

#include "data/loader.h"
#include "train/trainer/trainer.h"

#include <jansson.h>
#include <stdio.h>

enum { TN_SOURCE_GROUPS = 40, TN_SOURCE_NUMBERS = TN_BATCH_NUMBERS };

/* A place in a source: numbers that only it understands. Of one process: what is saved is a cursor. */
typedef struct tn_source_mark {
    uint64_t at[12];
} tn_source_mark;

/* How it is used from now on. */
typedef struct tn_source_start {
    /* whose parameters act, where batches depend on them; borrowed. NULL where only bytes are asked for */
    tn_trainer *trainer;
    int64_t batch, length; /* B, T */
    int64_t accumulate;    /* batches of a step; 0: 1 */
    tn_data_split heldout; /* an empty one: no held-out batches */
    bool heldout_only;     /* no training batches */
} tn_source_start;

/* What episodes brought in, where nothing was learned from them. */
typedef struct tn_source_play {
    int64_t episodes, steps;
    double mean, deviation; /* of an episode's reward */
} tn_source_play;

typedef struct tn_source tn_source;
struct tn_source {
    void *ctx;                /* NULL: there are no data */
    const char *what;         /* "data" or "task": what errors are about */
    const tn_input_row *rows; /* (n_rows): what it fills */
    size_t n_rows;
    tn_source_number number[TN_SOURCE_NUMBERS]; /* (n_numbers) */
    size_t n_numbers;

    /* Before next and heldout; again to begin anew, with another batch. TN_USAGE names what does not fit. */
    tn_status (*start)(tn_source *s, const tn_source_start *how);
    /* Memory that it takes when started so, without batches made ahead (tn_source_bytes). NULL: none worth counting. */
    size_t (*bytes)(void *ctx, const tn_source_start *how);
    /* The next batch, for this step of the optimizer, into inputs of the width that it needs (tn_feed_for); *count:
     * labels that are counted, or what else a run on it is measured in. Inside a step: no allocation, no file. */
    tn_status (*next)(void *ctx, int64_t step, const tn_feeder *to, int64_t *count);
    /* Batch i of the held-out part, always the same, for i = 0, 1, ... in turn; *count is 0 behind the last. NULL: there is none, every
     * batch is new. */
    tn_status (*heldout)(void *ctx, int64_t i, const tn_feeder *to, int64_t *count);
    json_t *(*save)(
        void *ctx); /* a new object; NULL: out of memory. After a failed `next`: where the step that failed began */
    /* TN_USAGE: the data are not those the cursor is for. */
    tn_status (*load)(void *ctx, const json_t *cursor);
    /* For looking at a batch again, outside of steps: where the next one comes from (inside a step: no allocation), that place again,
     * and the batch handed out last in words, with what finds it in the data; row: of which row above all (-1: none). All or none. */
    void (*mark)(void *ctx, tn_source_mark *out);
    tn_status (*back)(void *ctx, const tn_source_mark *to);
    void (*describe)(void *ctx, int64_t row, char *buf, size_t bytes);
    /* Numbers of its own for the lines of metrics. */
    void (*report)(void *ctx, void (*report)(void *to, const char *name, double value, const char *unit), void *to);
    /* The same data once more, started for held-out batches alone; it does not outlive this one. */
    tn_status (*open_heldout)(void *ctx, const tn_source_start *how, tn_source *out);
    int64_t (*count)(void *ctx, tn_data_split split); /* tokens, samples or sequences of a split */
    void (*about)(void *ctx, FILE *f);                /* a line for people */
    void (*example)(void *ctx,
                    const tn_feed *f); /* some of the training data, without start: for checks and benchmarks */
    tn_status (*play)(void *ctx, int64_t episodes,
                      tn_source_play *out); /* likeliest actions; always the same beginnings */
    void (*close)(void *ctx);

    const tn_dataset *text; /* what it reads, where that is a data set of tokens; else NULL */
    tn_loader_mode mode;    /* and how its rows are filled */
    bool on_policy;         /* batches depend on the parameters: none is made ahead */
    int prefetch_depth; /* batches worth making ahead where nobody says how many; 0: they are there at once, or it does that itself */
    struct tn_prefetch *prefetch;    /* who makes them, or NULL */
    int64_t width[TN_LOADER_WIDTHS]; /* (n_widths): of rows that are narrower than T, ascending */
    int64_t n_widths;
    double train_tokens;  /* labels of an epoch; NaN: there is always more */
    double train_samples; /* of an epoch, where the data are samples; else 0 */
    double bits; /* per byte of held-out text that one nat per token stands for; NaN: its bytes are not known */
    double weigh_by,
        weigh_of;          /* a batch among those of its step counts as count * weigh_by / weigh_of; weigh_of 0: as 1 */
    int64_t epoch_batches; /* of the training part, as it was started; 0: it has no epochs */
    int64_t evaluations;   /* evaluations that show how a training on it goes, where epochs do not say; 0: none */
    /* Where answers of several kinds are counted apart: held-out batch i is of kind i % groups; else 0. */
    int64_t groups;                /* TN_SOURCE_GROUPS at most */
    const char *const *group_name; /* (groups) */
    /* Metrics that are its own and not of held-out batches: `look` reports them by their keys. */
    const tn_metric_row *metrics;
    size_t n_metrics;
};

struct tn_shared;

/* What decides about the source of a run. */
typedef struct tn_source_open {
    const tn_model *model;
    tn_settings *settings; /* sizes that are auto become those of the data, and what nobody set what suits them */
    bool needed; /* TN_USAGE where there are none; else *out is empty, and sizes become what the model assumes */
    bool trains;
    struct tn_shared *shared; /* samples stay in it, or NULL */
} tn_source_open;

/* The one that the settings and the model's rows name: the kinds of sources.def in their order. */
tn_status tn_source_find(const tn_source_open *o, tn_source *out);
#define TN_SOURCE_KIND(name)                                                                                           \
    bool tn_source_takes_##name(const tn_source_open *o);                                                              \
    tn_status tn_source_open_##name(const tn_source_open *o, tn_source *out);
#include "train/source/sources.def"
#undef TN_SOURCE_KIND

void tn_source_close(tn_source *s);                                    /* takes a zeroed one */
tn_status tn_source_started(tn_source *s, const tn_source_start *how); /* started, or closed where that fails */
/* Starts it, with so many batches made ahead (0: in the call). */
tn_status tn_source_begin(tn_source *s, const tn_source_start *how, int prefetch);
/* Memory that it takes when it is begun so; how->trainer is not asked for. */
tn_status tn_source_bytes(const tn_source *s, const tn_model *model, const tn_settings *st, const tn_source_start *how,
                          int prefetch, size_t *out);
void tn_source_stop(tn_source *s); /* no batch is made ahead any more: before its trainer goes */
/* The functions above, for a run: whoever watches the trainer is told, and what is made ahead is taken or undone. */
tn_status tn_source_next(const tn_source *s, int64_t step, tn_trainer *to, int64_t *count);
tn_status tn_source_heldout(const tn_source *s, int64_t i, tn_trainer *to, int64_t *count);
json_t *tn_source_save(const tn_source *s);
tn_status tn_source_load(const tn_source *s, const json_t *cursor);
void tn_source_mark_here(const tn_source *s, tn_source_mark *out);
tn_status tn_source_back(const tn_source *s, const tn_source_mark *to);
void tn_source_describe(const tn_source *s, int64_t row, char *buf, size_t bytes);
/* Of a batch of so many labels among those of its step. */
static inline float tn_source_weight(const tn_source *s, int64_t count)
{
    return s->weigh_of > 0 ? (float)((double)count * s->weigh_by / s->weigh_of) : 1;
}
/* For a trainer: what it fills, while it stays where it is. */
tn_input_spec tn_source_input_spec(const tn_source *s);
void tn_source_add_number(tn_source *s, const char *name, double value); /* or says it anew */
double tn_source_number_of(const tn_source *s, const char *name);        /* NaN: it has none */

/* A counter of a cursor: an integer from 0 to TN_CURSOR_MAX, from where it can be counted on. TN_BAD_FILE: it is none. */
#define TN_CURSOR_MAX ((int64_t)1 << 50)
tn_status tn_cursor_count(const json_t *cursor, const char *key, int64_t *out);
/* Of a key that was looked at, or that is compared. */
static inline int64_t tn_cursor_number(const json_t *cursor, const char *key)
{
    return json_integer_value(json_object_get(cursor, key));
}

#endif
