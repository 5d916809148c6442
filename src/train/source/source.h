/* A source of batches: a struct of functions between the training loop and its data; functions that it lacks are NULL. Each
 * checkpoint holds the source's cursor, a JSON object that only the source reads; after loading it continues with the next batch.
 *
 *     tn_source_find (fills sizes of the settings) -> trainer (tn_source_input_spec) -> source.start -> next, heldout, ...
 *     -> tn_source_close */
#ifndef TN_TRAIN_SOURCE_H
#define TN_TRAIN_SOURCE_H

#include "data/loader.h"
#include "models/models.h"
#include "token/tokenizer.h"
#include "train/trainer/resident.h"
#include "train/trainer/trainer.h"

#include <jansson.h>
#include <stdio.h>

enum { TN_SOURCE_GROUPS = 40, TN_SOURCE_NUMBERS = TN_BATCH_NUMBERS };

/* A position in a source, valid in this process; a cursor is what is saved. */
typedef struct tn_source_mark {
    uint64_t at[12];
} tn_source_mark;

typedef struct tn_source_start {
    tn_trainer *trainer;   /* borrowed: the policy, where batches depend on it; may be NULL for `bytes` */
    int64_t batch, length; /* B, T */
    int64_t accumulate;    /* batches of a step; 0: 1 */
    int64_t microbatches;  /* equal parts of a batch that the trainer is given one after the other; 0: 1 */
    tn_data_split heldout; /* an empty one: no held-out batches */
    bool heldout_only;     /* no training batches */
} tn_source_start;

/* Episodes played without learning. */
typedef struct tn_source_play {
    int64_t episodes, steps;
    double mean, deviation; /* of an episode's reward */
} tn_source_play;

/* Before the first step of a run, when the weights of its parts are there. */
typedef struct tn_source_prepare {
    tn_trainer *trainer;
    const tn_settings *settings; /* with the hashes of parts */
    const char *dir;             /* of the run, or NULL */
    void *ctx;                   /* of the next two, which may be NULL */
    void (*note)(void *ctx, const char *text);
    bool (*interrupted)(void *ctx);
} tn_source_prepare;

typedef struct tn_source tn_source;
struct tn_source {
    void *ctx;                /* NULL: there are no data */
    const char *what;         /* "data" or "task", for errors */
    const tn_input_row *rows; /* (n_rows): what it fills */
    size_t n_rows;
    tn_source_number number[TN_SOURCE_NUMBERS]; /* (n_numbers) */
    size_t n_numbers;

    /* Before next and heldout; again to restart with another batch size. TN_USAGE names what does not fit. */
    tn_status (*start)(tn_source *s, const tn_source_start *how);
    /* Memory when started like this, without prefetched batches (tn_source_bytes). NULL: little. */
    size_t (*bytes)(void *ctx, const tn_source_start *how);
    /* The next batch of this optimizer step, into inputs of the width that it needs (tn_feed_for); *count: labels, or what
     * else the source counts. No allocation, no file. */
    tn_status (*next)(void *ctx, int64_t step, const tn_feeder *to, int64_t *count);
    /* Held-out batch i, always the same, for i = 0, 1, ...; *count is 0 after the last. NULL: no held-out split. */
    tn_status (*heldout)(void *ctx, int64_t i, const tn_feeder *to, int64_t *count);
    /* A new cursor; NULL: out of memory. After a failed `next`: where the failed step began. */
    json_t *(*save)(void *ctx);
    /* TN_USAGE: the cursor is for other data. */
    tn_status (*load)(void *ctx, const json_t *cursor);
    /* To see a batch again: the position of the next one (no allocation), going back there, and a description of the last batch
     * that locates it in the data; row: the row of interest, or -1. All three or none. */
    void (*mark)(void *ctx, tn_source_mark *out);
    tn_status (*back)(void *ctx, const tn_source_mark *to);
    void (*describe)(void *ctx, int64_t row, char *buf, size_t bytes);
    /* Its own numbers for metrics.jsonl. */
    void (*report)(void *ctx, void (*report)(void *to, const char *name, double value, const char *unit), void *to);
    /* The same data again for held-out batches only; it must not outlive this one. */
    tn_status (*open_heldout)(void *ctx, const tn_source_start *how, tn_source *out);
    int64_t (*count)(void *ctx, tn_data_split split); /* tokens, samples or sequences of a split */
    void (*about)(void *ctx, FILE *f);                /* one line of text */
    double (*padding)(
        void *ctx); /* as started: the part of the places of training batches that is padding. NULL: not known */
    void (*example)(void *ctx, const tn_feed *f); /* some training data, without start: for checks and benchmarks */
    tn_status (*play)(void *ctx, int64_t episodes, tn_source_play *out); /* greedy actions, fixed initial states */
    /* Makes what training batches need and the model alone can give, with its step `prepares`. NULL: they need nothing. */
    tn_status (*prepare)(void *ctx, const tn_source_prepare *how);
    const char *prepares;
    /* The source's own threads tell this tracer what they prepare; NULL where it has none. */
    void (*trace)(void *ctx, struct tn_tracer *to);
    /* They finish what they have begun and stand still until the next batch is asked for; NULL where it has none. */
    void (*rest)(void *ctx);
    void (*close)(void *ctx);

    const tn_resident *resident;     /* what of its training samples is the same in every step; or NULL */
    const tn_dataset *text;          /* its data set of tokens, or NULL */
    const tn_tokenizer *tokenizer;   /* trained on its data: it goes into the run's folder; or NULL */
    tn_loader_mode mode;             /* and how its rows are filled */
    const char *verb;                /* of the command, that shows what was learned; NULL: sample for text, else eval */
    bool on_policy;                  /* batches depend on the parameters: no prefetching */
    int prefetch_depth;              /* batches to prefetch by default; 0: not useful */
    struct tn_prefetch *prefetch;    /* or NULL */
    struct tn_split *split;          /* into microbatches, or NULL */
    int64_t width[TN_LOADER_WIDTHS]; /* (n_widths): row widths below T, ascending */
    int64_t n_widths;
    const tn_input_shape *shape; /* (n_shapes): sizes of batches of short records */
    int n_shapes;
    double train_tokens;       /* labels per epoch; NaN: endless */
    double train_samples;      /* samples per epoch; 0: the data are no samples */
    double bits;               /* bits per byte of held-out text for one nat per token; NaN: unknown */
    double weigh_by, weigh_of; /* weight of a batch in its step: count * weigh_by / weigh_of; weigh_of 0: 1 */
    int64_t epoch_batches;     /* batches per epoch as started; 0: no epochs */
    int64_t evaluations;       /* suggested evaluations per run if there are no epochs; 0: none */
    /* Metrics by group: held-out batch i is of group i % groups; 0: no groups. */
    int64_t groups;                /* TN_SOURCE_GROUPS at most */
    const char *const *group_name; /* (groups) */
    /* Its own metrics that are not of held-out batches. */
    const tn_metric_row *metrics;
    size_t n_metrics;
};

struct tn_shared;

/* The tokenizer of a model on the disk (spec names another, unless it is empty), with the tokens that a text begins and ends with;
 * train/run has it, which includes this folder. user: what the user typed, or NULL. */
typedef tn_status tn_source_tokenizer(const tn_user_args *user, const char *target, const char *spec,
                                      tn_tokenizer **out, int32_t *start, int32_t *end);

typedef struct tn_source_open {
    const tn_model *model;
    tn_settings *settings; /* sizes that are auto are set from the data, defaults from the task */
    bool needed;           /* TN_USAGE without data; else *out is empty, and sizes are the model's defaults */
    bool trains;
    bool whole;                     /* raw text: nothing of it is held out */
    struct tn_shared *shared;       /* samples stay in it, or NULL */
    tn_source_tokenizer *tokenizer; /* of frozen models that read texts; NULL: there are none */
    const tn_user_args *user;       /* for it */
} tn_source_open;

/* Opens the source that the settings and the model's rows name: the kinds of sources.def in order. */
tn_status tn_source_find(const tn_source_open *o, tn_source *out);
#define TN_SOURCE_KIND(name)                                                                                           \
    bool tn_source_takes_##name(const tn_source_open *o);                                                              \
    tn_status tn_source_open_##name(const tn_source_open *o, tn_source *out);
#include "train/source/sources.def"
#undef TN_SOURCE_KIND

void tn_source_close(tn_source *s);                                    /* takes a zeroed one */
tn_status tn_source_started(tn_source *s, const tn_source_start *how); /* started, or closed where that fails */
/* Starts it with so many prefetched batches. */
tn_status tn_source_begin(tn_source *s, const tn_source_start *how, int prefetch);
/* Memory of that; how->trainer may be NULL. */
tn_status tn_source_bytes(const tn_source *s, const tn_model *model, const tn_settings *st, const tn_source_start *how,
                          int prefetch, size_t *out);
void tn_source_stop(tn_source *s); /* ends prefetching and microbatches, before its trainer is freed */
/* The functions above for a run, with prefetching, microbatches and tn_watch. */
tn_status tn_source_make_ready(const tn_source *s, const tn_source_prepare *how); /* prepare, where there is one */
tn_status tn_source_next(const tn_source *s, int64_t step, tn_trainer *to, int64_t *count);
tn_status tn_source_heldout(const tn_source *s, int64_t i, tn_trainer *to, int64_t *count);
/* Threads that prepare batches tell this tracer which, from their next batch on; NULL: nobody. It outlives the source, or goes after
 * tn_source_rest and tn_source_trace(NULL). */
void tn_source_trace(const tn_source *s, struct tn_tracer *to);
/* Threads that prepare batches finish those they have begun, and begin no other until the next is asked for: while somebody else is
 * measured, they take no core and get no further. */
void tn_source_rest(const tn_source *s);
json_t *tn_source_save(const tn_source *s);
tn_status tn_source_load(const tn_source *s, const json_t *cursor);
void tn_source_mark_here(const tn_source *s, tn_source_mark *out);
tn_status tn_source_back(const tn_source *s, const tn_source_mark *to);
void tn_source_describe(const tn_source *s, int64_t row, char *buf, size_t bytes);
/* Weight in its step of the batch (or microbatch) handed out last, which counts so many labels. */
float tn_source_weight(const tn_source *s, int64_t count);
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
