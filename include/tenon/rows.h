/* For authors of models: what a model declares in rows. Inputs of a step, metrics that a run is judged by, scalars that follow the run,
 * plans over one set of parameters, and data of its own. Whatever runs a model (training, evaluation, checkpoints, races, studies,
 * reports, C and Python) walks these rows and knows none of their names.
 *
 *     static const tn_input_row inputs[] = {
 *         { "field", TN_F32, .dims = { TN_B, "cells" } },
 *         { "wanted", TN_F32, .dims = { TN_B, "cells" } },
 *     };
 *     static const tn_metric_row metrics[] = {
 *         { "loss", "", TN_LOWER, .how = TN_MEAN_BY_COUNT },
 *         { "psnr", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "cells" }, .make = psnr },
 *     };
 *
 * and in the model's row: TN_INPUTS(inputs), TN_METRICS(metrics). */
#ifndef TENON_ROWS_H
#define TENON_ROWS_H

#include <tenon/settings.h>
#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TN_INPUT_RANK = 4,
    TN_INPUTS_MAX = 48,
    TN_LOSSES_MAX = 4,
    TN_METRICS_MAX = 16,
    TN_SUMS_MAX = 4,
    TN_STEPS_MAX = 8,
    TN_SCHEDULES_MAX = 16,
    TN_COSTS_MAX = 8,
    TN_PARTS_MAX = 8
};

/* --- inputs ----------------------------------------------------------------------------------------------------------- */

#define TN_B "B" /* rows of the batch */
#define TN_T "T" /* tokens of a sequence (train.context), or what a source calls so */

typedef enum tn_input_from {
    TN_SOURCE, /* the data fill it */
    TN_TRAINER /* whoever runs the plan does: positions of decoding and of chunks */
} tn_input_from;

/* Models and sources declare the same rows; they are matched by name, type and dims. */
typedef struct tn_input_row {
    const char *name;
    tn_dtype type;                   /* TN_F32 or TN_I32 */
    const char *dims[TN_INPUT_RANK]; /* TN_B, TN_T, a setting, a number of the source, or digits; NULL ends them */
    double
        pad;  /* what rows behind the last valid one hold; where it is cut, also what stands behind a short sequence */
    bool cut; /* dims begin with B, T: chunks of time and narrower plans take a part of it */
    bool optional; /* it is there only where the source has it (marks of documents); tn_in is TN_NONE elsewhere */
    bool assumed;  /* optional, but there where there are no data: checks and benchmarks */
    tn_input_from from;
    bool valid_rows; /* i32 {"1"}: how many rows of the batch are valid, which whoever fills the others says */
    /* i32: 0 .. below-1, or pad; a setting, a number of the source or digits, or NAME+1 (lengths). NULL: any */
    const char *below;
} tn_input_row;

/* A part of the loss, and what it is a mean over: where a step is done in parts (chunks of time), each counts by it. */
typedef struct tn_loss_row {
    const char *output;
    const char *count; /* an input: those of its numbers that are not `pad`; TN_T: tokens */
} tn_loss_row;

/* --- metrics ---------------------------------------------------------------------------------------------------------- */

typedef enum tn_better { TN_LOWER, TN_HIGHER } tn_better;

typedef enum tn_metric_how {
    TN_MEAN_BY_COUNT, /* output sums[0] (NULL, or where there is none: NAME, then "loss") is a batch's mean over output sums[1] (NULL:
                       * what the source counts); .needs: times that number */
    TN_QUOTIENT,  /* the sum of output sums[0] over the sum of output sums[1] */
    TN_FROM_SUMS, /* make() of the sums of the outputs sums[] */
    TN_ADDED,     /* make() (NULL: the first sum over the second) of what add() has added up, batch by batch */
    TN_OF_WHOLE   /* whole() of the outputs keep[] of all held-out rows together */
} tn_metric_how;

/* One evaluated batch, as a metric's functions see it. */
typedef struct tn_metric_view {
    const tn_settings *settings;
    int64_t rows;  /* valid ones of the batch */
    int64_t count; /* labels that count, or what else the source counts */
    void *ctx;
    const float *(*output)(void *ctx, const char *name, int64_t *count); /* NULL: there is none */
    const void *(*input)(void *ctx, const char *name, int64_t *count);
} tn_metric_view;

typedef struct tn_metric_row {
    const char *name, *unit;
    tn_better better;
    tn_metric_how how;
    const char *sums[TN_SUMS_MAX]; /* outputs of one number each; the host adds them in double */
    double (*make)(const double *sums, const tn_settings *st);
    void (*add)(const tn_metric_view *v, double *sums); /* sums (TN_SUMS_MAX) */
    const char *keep[2];                                /* outputs (B, each) or (B) */
    double (*whole)(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st);
    const char *reads; /* an output that is made only where somebody asks (tn_wants), such as "logits", or NULL */
    const char *runs;  /* the step whose outputs these are; NULL: "eval" */
    const char *needs; /* a number of the source without which the metric is not there; NULL: none */
    /* where held-out batches come in groups: the mean of the groups' values, each shown as NAME_GROUP too */
    bool by_group;
    const char *key; /* in metrics.jsonl and reports; NULL: heldout_NAME */
} tn_metric_row;

/* --- schedules -------------------------------------------------------------------------------------------------------- */

/* A run-time scalar (tn_scalar of that name) that follows the run: a pure function of the settings and the optimizer's step,
 * 0 .. train.steps-1. Evaluations have the value of the last step. Nothing is saved: a run that is resumed computes it again. */
typedef struct tn_schedule_row {
    const char *name;
    double (*value)(const tn_settings *st, int64_t step);
} tn_schedule_row;

/* --- parts ------------------------------------------------------------------------------------------------------------ */

/* A part (tn_part_open_file) whose shape and weights come from a language model that somebody has trained: a run, a checkpoint, a file or
 * a folder. A run that starts takes the weights from there; its checkpoints hold them, so that one which goes on needs the file no more. */
typedef struct tn_part_row {
    const char *scope; /* "a": its parameters are a.NAME */
    const char *file;  /* the setting that names the file: "a.model"; empty: no such part, or first values */
    const char
        *shape; /* the setting that holds its settings, "dim=64 layers=2 ...": filled from the file where it is empty */
    /* a frozen tensor of one number that becomes the root mean square of the part's "embed", or NULL */
    const char *rms;
    bool optional; /* the model may leave it out although its file is named */
    /* shape NULL: the file is of the model itself, whose parameters SCOPE.NAME it has under that name. These settings (NULL at the end)
     * must be those of the file. */
    const char *const *same;
} tn_part_row;

/* --- what it shows, and what it costs ------------------------------------------------------------------------------------- */

/* A distribution that the instruments hand out number by number (tn_instruments.spread), as `tenon eval --spectrum` shows it and `tenon check`
 * looks at it. */
typedef struct tn_view_row {
    const char *name;         /* "tau": of all that are called "PLACE.tau" */
    const char *label, *unit; /* "time constant", "tokens" */
    const char *of;           /* what has such a number: "states" */
    const char *twin,
        *twin_key; /* the same number said otherwise, and its name in files: "|lambda|", "lambda"; or NULL */
    double (*twin_of)(double value);
    const char *extra, *extra_label; /* a number that is reported as "PLACE.state_rms", "state rms"; or NULL */
    const char *how;                 /* how it was measured; # stands for the tokens of the batch */
    const char *what, *where;        /* for who has none: "decaying states", "D, O or E layers" */
} tn_view_row;

/* A count that the plans put out for each sample, summed over a run: what it took, in units of one evaluation (`block_evals` of a study). */
typedef struct tn_cost_row {
    const char *name;
    const char *output;                     /* i32 (B); 0: the sample took no part */
    bool eval;                              /* of evaluations; else of training steps */
    double (*units)(const tn_settings *st); /* that one of them is; NULL: 1 */
    bool (*by_sample)(
        const tn_settings *st); /* one for each sample that took part, whatever the output says; NULL: no */
} tn_cost_row;

/* More about a number that the instruments report. */
typedef struct tn_instrument_row {
    const char *name;
    const char *also; /* another name that rules of a study have for it, or NULL */
    const char *cap;  /* the setting that bounds it ("at cap"), or NULL */
    /* a further key of it in metrics.jsonl, or NULL. name may then also be samples_per_s, or PART.ms: a part of the model, forward and
     * backward together (log.level=performance); -PART.ms: all but that part */
    const char *key;
    const char *rate; /* of a number per sample: the key of it per second, or NULL */
} tn_instrument_row;

/* --- data of the model's own ------------------------------------------------------------------------------------------- */

typedef struct tn_source_number {
    const char *name;
    double value;
} tn_source_number;

enum { TN_RECORD_SPLITS = 3 }; /* training, validation, test */

typedef struct tn_records_about {
    int64_t count[TN_RECORD_SPLITS];
    const tn_source_number *numbers; /* (n_numbers): sizes that dims, `below` and settings that are auto may name */
    size_t n_numbers;
    uint64_t identity; /* of all that the records depend on: a run is not continued on others */
} tn_records_about;

/* Records that are read one by one, in any order: the engine shuffles, pads, makes batches ahead and holds out. */
typedef struct tn_records {
    const char *name;
    const tn_input_row *inputs; /* (n_inputs): what it fills, rows of the batch (TN_B) as in the model's rows */
    size_t n_inputs;
    tn_status (*open)(const tn_settings *st, void **data, tn_records_about *about);
    void (*close)(void *data);
    /* Record i of a split for a batch of optimizer step `step` (held-out: -1), input k into at[k], which is zeroed nowhere; NULL: nobody
     * reads it. Returns what it counts (labels). Called by several threads at once; no allocation, no file. */
    int64_t (*read)(const void *data, int split, int64_t i, int64_t step, void *const *at);
} tn_records;

#ifdef __cplusplus
}
#endif
#endif
