/* For authors of models: what a model is, and everything its `build` may call.
 *
 * A model is one folder: a table of settings, a build function that reads like its equations, instruments, presets, and
 * the row that registers it (models.def in the tree, or the function `tenon_model` in a shared object outside it). */
#ifndef TENON_MODEL_H
#define TENON_MODEL_H

#include <tenon/graph.h>
#include <tenon/ops.h>
#include <tenon/settings.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_MODEL_ABI = 5 }; /* grows when tn_model or tn_batch change; a shared object of another number is refused */

/* What a task feeds into one step. Fields a task does not have are TN_NONE. */
typedef struct tn_batch {
    size_t size; /* of this struct, for later fields */
    int64_t batch, length;
    tn_ref tokens; /* i32 (B,T) */
    tn_ref labels; /* i32 (B,T); -1 = not counted */
    tn_ref reset;  /* i32 (B,T): 1 where a document starts, or none */
    bool logits;   /* also put out "logits" (B,T,vocab): for sampling and comparisons; not in training */
    tn_ref document; /* i32 (B,T): number of the document of each token, or none; attention stays inside one */

    /* Carrying on: the layers start from what the last step left in the store (caches under their scopes) and leave
     * theirs there, so that a prompt in pieces and then token by token gives what the whole sequence would. A mark in
     * `reset` starts a document afresh; attention, whose past is a cache by position, starts afresh at position 0. */
    bool carry;
    int64_t capacity; /* tokens that attention can look back on */
    tn_ref position;  /* i32 (1): of the first token */
    tn_ref keys;      /* i32 (1): position + length */
    tn_ref positions; /* i32 (B,T): of each token; also without carry, counted from the start of its document, or none */
    tn_ref commit;    /* f32 (B,1), or none: states change only where it is 1 (layers that do not move at every token) */
    int64_t chunk;    /* carrying: the pieces before this one had so many tokens each; 0: any number */

    /* Samples of a task instead of tokens, for a model that has `features`. `length` is then T, the tokens of a sample, and
     * `labels` is (B,L): one per sample or one per token. Rows behind the samples that are there are padding: features 0,
     * labels -1. "logits" are (B,L,classes). */
    tn_ref features; /* f32 (B,T,F): T tokens of F numbers each, or none */
    tn_ref count;    /* i32 (1): how many of the B samples are there, or none */
    tn_ref sample;   /* i32 (B): which sample of the training set each row is (0 in padding), or none */
    int64_t samples; /* of the training set */
    tn_ref weights;  /* f32 (B): how much each sample's loss counts (policy gradients: the advantage), or none */
    tn_ref targets;  /* f32 (B): what the value head should say, or none */
} tn_batch;

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
     * Those named "look.NAME" (tn_graph_options.look) are of the first batch of an evaluation since then. */
    const float *(*output)(void *ctx, const char *name, int64_t *count);
    /* One of many positive numbers of the same name ("layer0.D.tau"), to be shown as a distribution; NULL: nobody asks. */
    void (*spread)(void *ctx, const char *name, double value, const char *unit);
} tn_instruments;

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
    /* Learns from the samples of a task (tn_batch.features), not from tokens. Such a model has the settings inputs (F),
     * tokens (T) and classes, all auto: taken from the task. */
    bool features;
    /* "key=value", NULL at the end: settings under which its gradient is that of its loss, where others only come near it (a
     * short solve, a finite nudge). `tenon check` compares with those. NULL: it always is. */
    const char *const *exact;
    /* "key=value", NULL at the end: its own defaults of settings that all models share, such as train.lr. NULL: it has none. */
    const char *const *defaults;
    /* Settings, NULL at the end, that `build` makes tn_scalar of the same name of and does nothing else with: trials that differ in
     * those alone share a plan. NULL: none. */
    const char *const *scalars;
} tn_model;

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
