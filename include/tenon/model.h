/* For authors of models: what a model is, and everything its `build` may call.
 *
 * A model is one folder: a table of settings, a build function that reads like its equations, instruments, presets, and
 * the row that registers it (models.def in the tree, or the function `tenon_model` in a shared object outside it). */
#ifndef TENON_MODEL_H
#define TENON_MODEL_H

#include <tenon/graph.h>
#include <tenon/ops.h>
#include <tenon/rows.h>
#include <tenon/settings.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TENON_MODEL_ABI = 8
}; /* grows when tn_model, its rows or tn_batch change; a shared object of another number is refused */

enum { TN_BATCH_INPUTS = TN_INPUTS_MAX + 8, TN_BATCH_NUMBERS = 32, TN_BATCH_WANTS = 8 };

/* What one step is built from: its inputs by name (tn_in), the outputs that somebody asks for (tn_wants), numbers of the data. */
typedef struct tn_batch {
    size_t size;           /* of this struct, for later fields */
    int64_t batch, length; /* B, T */
    const char *step;      /* which of the model's steps is built: "train", "eval" or one of its own */

    /* Decoding and chunks: the layers start from what the last step left in the store (caches under their scopes) and leave
     * theirs there, so that a prompt in pieces and then token by token gives what the whole sequence would. A mark in "reset"
     * starts a document afresh; attention, whose past is a cache by position, starts afresh at position 0. Inputs are then also
     * "position" i32 (B), of the first token; "keys" i32 (B), position + length; "positions" i32 (B,T); where states change only for
     * some rows "commit" f32 (B,1), 1 where they do; and where caches of a window may be shorter than the capacity "slot" i32 (B), the row of
     * the first token in those, and "slot_keys" i32 (B), slot + length. */
    bool cached;
    int64_t capacity; /* tokens that attention can look back on */
    int64_t chunk;    /* the pieces before this one had so many tokens each; 0: any number */

    struct {
        const char *name;
        tn_ref ref;
    } input[TN_BATCH_INPUTS];
    size_t n_inputs;
    tn_source_number number[TN_BATCH_NUMBERS];
    size_t n_numbers;
    const char *want[TN_BATCH_WANTS];
    size_t n_wants;
} tn_batch;

/* An input, or TN_NONE where this step has none of that name. */
tn_ref tn_in(const tn_batch *b, const char *name);
/* Whether an output is asked for that is not made otherwise: "logits" (B,T,vocab), for sampling and some metrics. */
bool tn_wants(const tn_batch *b, const char *output);
/* A number of the data ("samples": of the training set), or NaN. */
double tn_number(const tn_batch *b, const char *name);

/* For whoever calls a model's forward pass inside another model: a batch of its own, filled with these. */
void tn_batch_add(tn_batch *b, const char *name, tn_ref x);
void tn_batch_want(tn_batch *b, const char *output);
void tn_batch_number(tn_batch *b, const char *name, double value);

typedef struct tn_preset {
    const char *name, *help;
    const char *const *values; /* "key=value", NULL at the end */
} tn_preset;

/* How instruments look at parameters, and what they report: numbers beside the loss, such as a spectrum's spread. */
typedef struct tn_instruments {
    void *ctx;
    const float *(*param)(void *ctx, const char *name, int64_t *count); /* NULL: there is none */
    void (*report)(void *ctx, const char *name, double value, const char *unit);
    /* An output of the last training step, i32 as floats; NULL: there is none, or no step has run. Valid during the call.
     * Those named "look.NAME" (tn_graph_options.instruments) are of the first batch of an evaluation since then. */
    const float *(*output)(void *ctx, const char *name, int64_t *count);
    /* One of many positive numbers of the same name ("layer0.D.tau"), to be shown as a distribution; NULL: nobody asks. */
    void (*spread)(void *ctx, const char *name, double value, const char *unit);
} tn_instruments;

/* A plan over the model's parameters. */
typedef struct tn_step_row {
    const char *name; /* "train" and "eval" are those of every run; others are asked for by name, and planned then */
    tn_status (*build)(tn_graph *g, const tn_settings *st, const tn_batch *b);
    bool gradients;
} tn_step_row;

/* What a forward pass of a language model leaves: activations behind the last norm, and the matrix that makes logits of them. It reads
 * "tokens", and where they are there "reset", "document" and "positions" like the model itself; and "prefix" (B,P,d), vectors that stand
 * before the embedded tokens, or alone: the batch's length is then that of both. */
typedef struct tn_forward {
    tn_ref hidden; /* (B,T,d) */
    tn_ref head;   /* (vocab,d) */
    tn_ref extra;  /* one number that is added to the loss, or none */
} tn_forward;

typedef struct tn_model {
    size_t size; /* of this struct */
    int abi;     /* TENON_MODEL_ABI */
    const char *name, *summary;
    const tn_setting *settings;
    size_t n_settings;
    const tn_preset *presets;
    size_t n_presets;
    /* Describes one step: makes parameters, computes, ends with tn_output(g, "loss", one number). Errors of settings
     * are returned; errors of the graph are kept in it. */
    tn_status (*build)(tn_graph *g, const tn_settings *st, const tn_batch *b);
    void (*instruments)(const tn_settings *st, const tn_instruments *i); /* or NULL */
    /* "key=value", NULL at the end: settings under which its gradient is that of its loss, where others only come near it (a
     * short solve, a finite nudge). `tenon check` compares with those. NULL: it always is. */
    const char *const *exact;
    /* "key=value", NULL at the end: its own defaults of settings that all models share, such as train.lr. NULL: it has none. */
    const char *const *defaults;
    /* Settings, NULL at the end, that `build` makes tn_scalar of the same name of and does nothing else with: trials that differ in
     * those alone share a plan. NULL: none. */
    const char *const *scalars;
    /* Its rows (rows.h). Inputs: NULL is an error. Metrics: NULL are those of language models (the mean of the output "loss" by what the source
     * counts, and what else its data have); the first row is what training minimises. Steps: NULL is `build` with gradients as "train" and without as "eval". */
    const tn_input_row *inputs;
    size_t n_inputs;
    /* sizes, and settings that are auto, where there are no data: checks and benchmarks; or NULL */
    const tn_source_number *assumes;
    size_t n_assumes;
    const char *time; /* the setting that says what TN_T is; NULL: train.context */
    /* Parts of "loss", in the order in which they are added up. Where a graph does not put out all of them, "loss" counts as a whole, by
     * what the first row counts. NULL: "loss" as a whole, by tokens. */
    const tn_loss_row *losses;
    size_t n_losses;
    const tn_metric_row *metrics;
    size_t n_metrics;
    const tn_step_row *steps;
    size_t n_steps;
    const tn_schedule_row *schedules;
    size_t n_schedules;
    /* Which of the steps with gradients the optimizer's step takes, by its place in `steps`; NULL: the first. A pure function, as a
     * schedule is. */
    size_t (*choose)(const tn_settings *st, int64_t step);
    const tn_records *records; /* data of its own, where the settings name none (data, task); or NULL */
    /* The network without its loss, for models that are made of others; or NULL. Parameters go under the open scopes. */
    tn_status (*forward)(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out);
    const tn_view_row *views; /* the first is what `tenon eval --spectrum` shows */
    size_t n_views;
    const tn_cost_row *costs;
    size_t n_costs;
    const tn_instrument_row *reported;
    size_t n_reported;
    const tn_part_row *parts; /* those that come from files (at most TN_PARTS_MAX) */
    size_t n_parts;
    /* "key=value", NULL at the end: settings that a run without the memory it needs may give up, and what they become, in this order. They
     * change what is learned, so they come last. NULL: none. */
    const char *const *gives_up;
    /* Whether its loss compares the rows of a batch with each other: a batch is then not computed in parts. NULL: it does not. */
    bool (*couples_rows)(const tn_settings *st);
} tn_model;

/* --- a model that is made of others --------------------------------------------------------------------------------------- */

/* Another model under a scope of its own, with settings of its own, which live as long as the graph. */
typedef struct tn_part {
    const char *scope;
    const tn_model *model;
    const tn_settings *settings;
} tn_part;

/* `name` is that of a model or a preset. The part's settings are its own rows and the run's, with (later ones win) the run's values, those
 * of the preset, the words ("key=value", NULL at the end; or NULL), and SCOPE.KEY of the run for KEY: a model that has a row "reader.dim"
 * lets its user choose the width of the part "reader". */
tn_status tn_part_open(tn_graph *g, const tn_settings *run, const char *scope, const char *name,
                       const char *const *words, tn_part *out);
/* A part of a file (tn_part_row): the model `gpt` with the words in the run's setting `shape_setting` ("dim=64 layers=2", divided by blanks),
 * which is itself no setting of the part. */
tn_status tn_part_open_file(tn_graph *g, const tn_settings *run, const char *scope, const char *shape_setting,
                            tn_part *out);
/* Its network on a batch that the caller has filled; parameters are SCOPE.NAME. Between tn_frozen_begin and tn_frozen_end it is not trained. */
tn_status tn_part_forward(tn_graph *g, const tn_part *p, const tn_batch *b, tn_forward *out);

#define TN_INPUTS(rows) .inputs = (rows), .n_inputs = sizeof(rows) / sizeof *(rows)
#define TN_METRICS(rows) .metrics = (rows), .n_metrics = sizeof(rows) / sizeof *(rows)
#define TN_STEPS(rows) .steps = (rows), .n_steps = sizeof(rows) / sizeof *(rows)
#define TN_SCHEDULES(rows) .schedules = (rows), .n_schedules = sizeof(rows) / sizeof *(rows)
#define TN_VIEWS(rows) .views = (rows), .n_views = sizeof(rows) / sizeof *(rows)
#define TN_COSTS(rows) .costs = (rows), .n_costs = sizeof(rows) / sizeof *(rows)
#define TN_REPORTED(rows) .reported = (rows), .n_reported = sizeof(rows) / sizeof *(rows)
#define TN_PARTS(rows) .parts = (rows), .n_parts = sizeof(rows) / sizeof *(rows)

/* Rows that language models share: tokens and labels (B,T), and where the data have them reset, document and positions; loss, bits per byte
 * and, where answers are counted, how many are right. */
enum { TN_LANGUAGE_INPUTS = 5, TN_LANGUAGE_LOSSES = 2, TN_LANGUAGE_METRICS = 3 };
extern const tn_input_row tn_language_inputs[];
extern const tn_source_number tn_language_assumes[]; /* a vocabulary of 50257 */
extern const tn_loss_row tn_language_losses[];
extern const tn_metric_row tn_language_metrics[];
/* The same rows of inputs, for a table that has more of them: tokens and labels, where -1 is not counted; and where a row may hold several
 * documents 1 where one starts, which of the row a token is of, and a token's place in it. */
#define TN_LANGUAGE_INPUT_ROWS                                                                                         \
    { "tokens", TN_I32, { TN_B, TN_T }, .cut = true, .below = "vocab" },                                               \
        { "labels", TN_I32, { TN_B, TN_T }, .cut = true, .below = "vocab", .pad = -1 },                                \
        { "reset", TN_I32, { TN_B, TN_T }, .cut = true, .optional = true, .below = "2" },                              \
        { "document", TN_I32, { TN_B, TN_T }, .cut = true, .optional = true },                                         \
    {                                                                                                                  \
        "positions", TN_I32, { TN_B, TN_T }, .cut = true, .optional = true, .below = "train.context"                   \
    }
#define TN_LANGUAGE_ROWS .inputs = tn_language_inputs, .n_inputs = TN_LANGUAGE_INPUTS, TN_LANGUAGE_ROWS_BUT_INPUTS
#define TN_LANGUAGE_ROWS_BUT_INPUTS                                                                                    \
    .losses = tn_language_losses, .n_losses = TN_LANGUAGE_LOSSES, .assumes = tn_language_assumes, .n_assumes = 1,      \
    .metrics = tn_language_metrics, .n_metrics = TN_LANGUAGE_METRICS

/* tn_metric_row.add of how many answers are right: labels that the largest logit of their row names (the first of equals), and those
 * that count. */
void tn_answers_add(const tn_metric_view *v, double *sums);

#define TN_MODEL_HEAD .size = sizeof(tn_model), .abi = TENON_MODEL_ABI

/* For errors of settings: records the message and returns TN_USAGE. */
tn_status tn_model_error(const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* A shared object defines this one function. */
typedef const tn_model *tenon_model_fn(void);

#ifdef __cplusplus
}
#endif
#endif
