/* Tenon's stable C interface: open a model, look at its tensors, compute, train, sample; whole runs and their plots.
 *
 *     tenon_net *net;
 *     if (tenon_open("runs/ten-1", NULL, 0, &net) != TENON_OK) { fprintf(stderr, "%s\n", tenon_error()); ... }
 *     tenon_shape(net, 4, 128);                                  4 sequences of 128 tokens
 *     tenon_gradients(net, tokens, labels, &loss);               forward and backward
 *     tenon_step(net, NULL);                                     clip, optimizer, gradients back to zero
 *     tenon_close(net);
 *
 * A model that reads something else than tokens is driven by the names of its inputs and outputs (below: by name):
 *
 *     tenon_shape(net, 16, 1);                                   16 samples
 *     tenon_fill(net, "features", TENON_F32, x, 16 * 64);   and so on for each of tenon_inputs
 *     tenon_run(net, "train", NULL, 0, &loss);                   gradients; "eval": the loss alone
 *     tenon_step(net, NULL);
 *
 * Every call that can fail returns a tenon_status; outputs are then untouched and tenon_error() says what went wrong, where,
 * and what to do. Nothing here prints, exits or reads the environment.
 *
 * Threads: a handle is used by one thread at a time, whoever has several takes turns (a lock around what belongs together, as
 * tenon_shape and the call after it); different handles may be used at once. The one call that may come from another thread, or from a
 * signal handler, is tenon_interrupt. The error text belongs to the calling thread. A model computes on threads of its own (the setting
 * `threads`); results do not depend on how many.
 *
 * Compatibility: within one TENON_API_VERSION functions and fields are only added. A struct that begins with `size` is set
 * to sizeof by the caller (its init function does it), so that it may grow at its end. Authors of models include
 * <tenon/model.h> instead; that interface is versioned apart. */
#ifndef TENON_TENON_H
#define TENON_TENON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API_VERSION 1

typedef enum tenon_status {
    TENON_OK = 0,
    TENON_INTERNAL = 1,     /* a fault of the library */
    TENON_USAGE = 2,        /* a wrong key, value, shape or argument */
    TENON_BAD_FILE = 3,     /* a file that is missing, cut short or malformed */
    TENON_DIVERGED = 4,     /* a number that is not finite */
    TENON_MEMORY = 5,       /* out of memory, or a plan that does not fit */
    TENON_DISK = 6,         /* a write that failed */
    TENON_INTERRUPTED = 130 /* a callback or tenon_interrupt asked for the end */
} tenon_status;

typedef struct tenon_net tenon_net;             /* a model with its settings, tensors and plans */
typedef struct tenon_tokenizer tenon_tokenizer; /* text to token ids and back */

const char *tenon_version(void); /* "0.2.0" */
int tenon_api_version(void);     /* TENON_API_VERSION of the library that runs */
const char *tenon_error(void);   /* of this thread's last failure; never NULL */

/* --- opening ---------------------------------------------------------------------------------------------------------- */

/* target: a run's directory (its best checkpoint), a checkpoint's directory, a .safetensors file that tenon_save wrote, a
 * .bin of llama2.c, a .gguf of llama.cpp; or, without weights, a preset, a model, a .yaml or a model's .so: parameters then have the first values
 * that `seed` gives. overrides: n texts "key=value", as on the command line (NULL where n is 0).
 * A shared object runs with the rights of the program: it is loaded where target or "model=PATH" names it, and TENON_USAGE where
 * only a file does (weights, settings).
 *
 * It computes on the CPU, whatever `device` a run was trained on, unless an override says device=cuda (TENON_USAGE where the
 * build has no CUDA or no GPU is there) or device=auto (a GPU where one is there, else the CPU). On a GPU `compute` is bf16 unless
 * an override says f32, and tensors have no address here: tenon_read and tenon_write copy them. */
tenon_status tenon_open(const char *target, const char *const *overrides, size_t n, tenon_net **out);
void tenon_close(tenon_net *net); /* takes NULL; every pointer got from it ends here */
/* What should be known of the last tenon_open or tenon_load that succeeded, in one line: the run's best checkpoint is damaged, and
 * which one was read instead. "": nothing. */
const char *tenon_note(const tenon_net *net);
/* Ends the tenon_sample, tenon_evaluate or tenon_measure that another thread is in: TENON_INTERRUPTED before its next token, piece of a
 * prompt, window or batch. Where there is none, nothing happens: a call that begins later does not know of it. */
void tenon_interrupt(tenon_net *net);
const char *tenon_device(const tenon_net *net); /* where it computes: "cpu" or "cuda" */

/* Settings, as text: "256", "true", "llama". NULL: there is no such key. Valid until the next tenon_set. */
const char *tenon_setting(const tenon_net *net, const char *key);
size_t tenon_settings(const tenon_net *net);                   /* how many keys */
const char *tenon_setting_key(const tenon_net *net, size_t i); /* NULL beyond the last */
/* Keys that a step reads anew: train.lr, .schedule, .warmup, .steps, .lr_min_frac, .cooldown_frac, .beta1, .beta2, .eps,
 * .momentum, .decay, .clip, and seed; and sizes of the model's inputs that are no settings but its data's ("labels" of a sample, "samples"
 * of the training set), which are what the model assumes until they are said here. Other keys shape the plans: TENON_USAGE. */
tenon_status tenon_set(tenon_net *net, const char *key, const char *value);

/* Parameters from a run, a checkpoint or a file of weights; all or none. Pointers to tensors stay valid. A model that was opened with
 * weights and only run so far reads its first file once more where memory holds fewer digits, so that one is still needed. */
tenon_status tenon_load(tenon_net *net, const char *path);
/* Parameters and the model's settings as a file that tenon_open takes; it ends in .safetensors or .safetensors.zst and
 * appears whole or not at all. */
tenon_status tenon_save(tenon_net *net, const char *path);

/* --- tensors ---------------------------------------------------------------------------------------------------------- */

typedef enum tenon_dtype {
    TENON_F32 = 0,
    TENON_BF16 = 1,
    TENON_F16 = 2,
    TENON_F64 = 3,
    TENON_I32 = 4,
    TENON_I64 = 5,
    TENON_U8 = 6
} tenon_dtype;

typedef struct tenon_tensor {
    size_t size;      /* sizeof(tenon_tensor) */
    const char *name; /* "layer0.mixer.w_in" */
    tenon_dtype dtype;
    int trainable; /* 1: a parameter; 0: frozen, or a state */
    int rank;
    int64_t shape[6]; /* outermost first */
    void *data;       /* row-major, contiguous; may be written between calls. NULL on a GPU */
    float *gradient;  /* the same shape, or NULL where it is not trainable, and on a GPU */
} tenon_tensor;

/* Addresses stay the same until tenon_close, whatever shapes are set and files loaded.
 *
 * A model that was opened with weights holds them as the file does, without gradients (what is quantised in bf16; on a GPU in the type that
 * it computes with), and so it is evaluated, sampled and differentiated by inputs. The first call that trains, or gives or copies a tensor, makes them f32 with
 * gradients, with all digits of the file; tenon_tensor_about does not. */
size_t tenon_tensors(const tenon_net *net);
tenon_status tenon_tensor_about(const tenon_net *net, size_t i,
                                tenon_tensor *out); /* as tenon_tensor_at, but data and gradient are NULL */
tenon_status tenon_tensor_at(const tenon_net *net, size_t i, tenon_tensor *out);
tenon_status tenon_tensor_find(const tenon_net *net, const char *name, tenon_tensor *out);
int64_t tenon_parameters(const tenon_net *net); /* trainable numbers in all */

typedef enum tenon_part { TENON_DATA = 0, TENON_GRADIENT = 1 } tenon_part;

/* Copies of a whole tensor, or of its gradient, on every device; bytes: its size, which is checked. */
tenon_status tenon_read(tenon_net *net, const char *name, tenon_part part, void *to, size_t bytes);
tenon_status tenon_write(tenon_net *net, const char *name, tenon_part part, const void *from, size_t bytes);

/* --- computing -------------------------------------------------------------------------------------------------------- */

/* Sequences and tokens of every call below, until the next tenon_shape. At first 1 and train.context; where the model learns from samples,
 * samples and the tokens of one. Plans for it are made when a call first needs them; an optimizer's memory and counts stay. */
tenon_status tenon_shape(tenon_net *net, int64_t batch, int64_t length);
int64_t tenon_batch(const tenon_net *net);
int64_t tenon_length(const tenon_net *net);
int64_t tenon_vocab(const tenon_net *net); /* last axis of the logits; 0: the model puts out none */

/* The next three are tenon_clear, tenon_fill and tenon_run for models that read "tokens" and "labels".
 * tokens (B,T), each in [0, vocab); labels (B,T), -1 = not counted. logits (B,T,vocab) is filled. */
tenon_status tenon_forward(tenon_net *net, const int32_t *tokens, float *logits);
/* Mean loss in nats over the labels that count; no gradients, no dropout. */
tenon_status tenon_loss(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss);
/* The same with gradients, which are added to what tensors' `gradient` holds. loss may be NULL. */
tenon_status tenon_gradients(tenon_net *net, const int32_t *tokens, const int32_t *labels, double *loss);
void tenon_zero_gradients(tenon_net *net);

typedef struct tenon_step_report {
    size_t size;      /* sizeof(tenon_step_report) */
    int64_t step;     /* steps done, this one among them */
    double lr;        /* by train.lr and train.schedule */
    double grad_norm; /* before clipping */
    int applied;      /* 0: a number was not finite and nothing changed (train.nonfinite=skip) */
} tenon_step_report;

/* The optimizer's step with the mean of the gradients added up since the last one, which then are zero. The settings
 * train.* decide: optimizer, learning rate, clipping, what a NaN leads to. report may be NULL.
 * TENON_DIVERGED: train.nonfinite=stop, and a number was not finite. */
tenon_status tenon_step(tenon_net *net, tenon_step_report *report);

/* Mean nats per token of a row of n tokens: each but the first is predicted from those before it in its window of
 * `length` tokens (windows follow each other and share one token). counted may be NULL. */
tenon_status tenon_evaluate(tenon_net *net, const int32_t *tokens, size_t n, double *nats, size_t *counted);

/* --- by name ---------------------------------------------------------------------------------------------------------- */

/* What the model reads. */
typedef struct tenon_input {
    size_t size;       /* sizeof(tenon_input) */
    const char *name;  /* "tokens", "features" */
    tenon_dtype dtype; /* TENON_F32 or TENON_I32 */
    int rank;
    int64_t shape[4]; /* outermost first, for the shape that is set */
    int batch, time;  /* 1: shape[0] is the batch; 1: shape[1] is the length */
    int64_t below;    /* TENON_I32: its numbers are 0 to below-1, or pad; 0: any */
    double pad;       /* what stands where there is nothing */
    int optional;     /* 1: it takes part where it is filled ("reset"); the model does without it elsewhere */
    int filled;       /* 1: since the last tenon_clear, or change of the shape */
} tenon_input;

size_t tenon_inputs(const tenon_net *net);
tenon_status tenon_input_at(const tenon_net *net, size_t i, tenon_input *out);
tenon_status tenon_input_find(const tenon_net *net, const char *name, tenon_input *out);

/* The n numbers of an input, copied: all of its shape, in its dtype, in its range. They stay until they are filled anew, so that what does
 * not change is filled once. How many rows of a batch are valid, where a model asks for it, is the batch unless it is filled. */
tenon_status tenon_fill(tenon_net *net, const char *name, tenon_dtype dtype, const void *values, size_t n);
void tenon_clear(tenon_net *net); /* nothing is filled */

/* Runs a step of the model on what is filled:
 *
 *     "train"    loss with gradients, which are added up for tenon_step; of several training steps the one that the model chooses for
 *                the optimizer's next step
 *     "eval"     loss without gradients or dropout
 *     others     those of the model's own, without gradients: "generate", "trace", ...
 *
 * outputs: n names of what is asked for beside what the step puts out anyway ("logits"), 8 different ones at most; then, and in steps of the
 * model's own, an input that is not filled holds its padding. Else every input that the step reads must be filled. "train" takes none.
 * "d.INPUT" among those of "eval" is the gradient of the loss by an input of floats. Weights take no part in it: nothing is computed for
 * theirs, and tensors' `gradient` stays.
 * loss: NaN where a step of the model's own has none; may be NULL. */
tenon_status tenon_run(tenon_net *net, const char *step, const char *const *outputs, size_t n, double *loss);
/* What the last tenon_run that was no "train" put out. Its memory is the host's on every device, and lasts until the next call that
 * computes. With plan.recompute=chunk only the loss and the logits are kept: data of others is NULL in tenon_output_at, and
 * tenon_output_find has none. */
size_t tenon_outputs(const tenon_net *net);
tenon_status tenon_output_at(tenon_net *net, size_t i, tenon_tensor *out);
tenon_status tenon_output_find(tenon_net *net, const char *name, tenon_tensor *out);

/* --- metrics ---------------------------------------------------------------------------------------------------------- */

/* What the model is judged by on held-out data, by name: "loss", "bits_per_byte", or what its rows say. */
typedef struct tenon_metric {
    size_t size;      /* sizeof(tenon_metric) */
    const char *name; /* where groups are counted apart also NAME_GROUP */
    const char *unit; /* "nats"; "": none */
    int higher;       /* 1: more is better */
    double value;     /* NaN: not known */
} tenon_metric;

/* Evaluates the parameters as they are on the whole "valid" or "test" split of the data or task that the settings name, as
 * `tenon eval` does. */
tenon_status tenon_measure(tenon_net *net, const char *split);
/* Those of the last tenon_measure; before it, as the checkpoint that was opened has them. Names are valid until the next tenon_measure or
 * tenon_load. */
size_t tenon_metrics(const tenon_net *net);
tenon_status tenon_metric_at(const tenon_net *net, size_t i, tenon_metric *out);
tenon_status tenon_metric_find(const tenon_net *net, const char *name, tenon_metric *out);

/* --- tokenizers ------------------------------------------------------------------------------------------------------- */

/* spec: "bytes", or a file or folder: tokenizer.json, *.model, *.tiktoken, tokenizer.bin (llama2.c), vocab.bpe with encoder.json. */
tenon_status tenon_tokenizer_open(const char *spec, tenon_tokenizer **out);
/* That of a model: of the data it was trained on, or bytes. TENON_USAGE: it is not known. */
tenon_status tenon_tokenizer_of(const tenon_net *net, tenon_tokenizer **out);
void tenon_tokenizer_close(tenon_tokenizer *t); /* takes NULL */

int64_t tenon_tokenizer_vocab(const tenon_tokenizer *t);
int32_t tenon_tokenizer_start(const tenon_tokenizer *t); /* what a text begins with; -1: nothing */
int32_t tenon_tokenizer_end(const tenon_tokenizer *t);   /* what ends a document; -1: nothing */

/* special: texts such as "<|endoftext|>" become their token. With ids = NULL only *n is set: how many there are. */
tenon_status tenon_encode(tenon_tokenizer *t, const char *text, size_t bytes, int special, int32_t *ids,
                          size_t capacity, size_t *n);
/* The bytes of n ids; they end inside a character where the ids do. With text = NULL only *bytes is set. */
tenon_status tenon_decode(tenon_tokenizer *t, const int32_t *ids, size_t n, char *text, size_t capacity, size_t *bytes);

/* --- sampling --------------------------------------------------------------------------------------------------------- */

typedef struct tenon_sample_options {
    size_t size;        /* set by tenon_sample_init, as are the rest */
    const char *prompt; /* text, */
    size_t prompt_bytes;
    const int32_t *tokens; /* or, where this is not NULL, tokens as they are: no start token is put before them */
    size_t n_tokens;
    double temperature;      /* 0.8; 0: the likeliest token */
    int64_t top_k;           /* 0: no limit */
    double top_p;            /* 0.95; 1: no limit */
    uint64_t seed;           /* 0 */
    int64_t max_tokens;      /* 256 */
    int64_t samples;         /* 1: texts drawn side by side */
    const char *const *stop; /* texts that end a sample */
    size_t n_stop;
    int64_t context; /* what attention can look back on; 0: prompt and max_tokens, train.context at most */
    /* More text of a sample, in whole UTF-8 characters, as it is drawn; or NULL. Not 0: end with TENON_INTERRUPTED. */
    int (*text)(void *user, int64_t sample, const char *text, size_t bytes);
    /* A sample has ended: all its n tokens, and why: "length", "end", "stop" or "context"; or NULL. */
    int (*done)(void *user, int64_t sample, const int32_t *ids, size_t n, const char *why);
    void *user;
} tenon_sample_options;

void tenon_sample_init(tenon_sample_options *o);
/* Draws with the parameters as they are. The same seed gives the same text whatever the number of threads.
 * TENON_DIVERGED: a logit is NaN. */
tenon_status tenon_sample(tenon_net *net, tenon_tokenizer *t, const tenon_sample_options *o);

/* --- runs ------------------------------------------------------------------------------------------------------------- */

/* A training run as `tenon train` makes it: a directory with config.yaml, metrics.jsonl and checkpoints, which tenon_open reads.
 *
 *     tenon_train_options o;
 *     tenon_train_init(&o);
 *     o.target = "ten_tiny", o.overrides = (const char *[]){ "data=book.txt", "train.steps=200" }, o.n = 2;
 *     o.progress = show;
 *     if (tenon_train(&o) != TENON_OK) ... */
typedef struct tenon_progress {
    size_t size;        /* sizeof(tenon_progress) */
    const char *run;    /* its directory */
    int64_t step;       /* done so far, */
    int64_t steps;      /* of so many */
    int64_t best_step;  /* 0: no evaluation yet */
    const char *metric; /* what evaluations are compared by: train.select, or the loss */
    int higher;         /* 1: more of it is better */
    int evaluated;      /* 1: after this step there was an evaluation, `heldout` is new */
    double loss;        /* of this step's batch */
    double heldout;     /* that metric at the last evaluation; NaN before the first */
    double best;        /* and at the best one */
    double lr, grad_norm;
    double rate;    /* tokens a second; samples, where it learns from samples */
    double seconds; /* of the run so far */
} tenon_progress;

typedef struct tenon_train_options {
    size_t size;        /* set by tenon_train_init, as are the rest */
    const char *target; /* a preset, model, .yaml, .so or run's directory, as in tenon_open; NULL: the default model */
    const char *const *overrides; /* (n) "key=value"; run=DIR names the run's directory, else it is runs/MODEL-N */
    size_t n;
    int fresh; /* 1: starts over where there is such a run already; 0: continues it, does nothing where it is finished */
    /* Called when the run is open (step: where it continues, or 0) and after every step; or NULL. Not 0: the run is saved and ends with
     * TENON_INTERRUPTED. The same call again resumes it. */
    int (*progress)(void *user, const tenon_progress *p);
    /* What a person should know, in one line; or NULL. warning: 1 where something failed and is tried again (a full disk). */
    void (*note)(void *user, const char *text, int warning);
    void *user;
} tenon_train_options;

void tenon_train_init(tenon_train_options *o);
/* Trains to train.steps, or resumes. train.test and sample.every are the command's and have no effect here: tenon_measure and
 * tenon_sample do the same. A run is used by one process at a time. */
tenon_status tenon_train(const tenon_train_options *o);

/* The settings that a target has, one call each in their order; not 0 ends it. choices: "cosine|wsd|constant", or NULL. */
tenon_status tenon_settings_of(const char *target, const char *const *overrides, size_t n,
                               int (*each)(void *user, const char *key, const char *value, const char *choices,
                                           const char *help),
                               void *user);

/* --- plots ------------------------------------------------------------------------------------------------------------ */

/* Lines, as the command draws them: a self-contained SVG for light and dark pages, or text for a terminal. A value that is not finite is
 * a gap. */
typedef struct tenon_plot_options {
    size_t size;                           /* set by tenon_plot_init, as are the rest */
    const char *title, *x_label, *y_label; /* NULL: none */
    size_t count;                          /* series, */
    const char *const *name;               /* (count) */
    const double *const *x, *const *y;     /* (count) arrays */
    const size_t *n;                       /* (count) their lengths */
    const size_t *behind; /* (count) 1 + the series behind which it is drawn, pale; 0: none. May be NULL */
    int log_y;            /* 1: decades on the y axis */
    int text;             /* 1: text of `width` columns and `height` rows (0: 80 and 20) */
    int width, height;
    void (*write)(void *user, const char *bytes, size_t n); /* takes the whole of it */
    void *user;
    const size_t *ring;    /* (count) 1 + the point that is marked with a ring; 0: none. May be NULL */
    const char *ring_name; /* what a ring means, or NULL */
} tenon_plot_options;

void tenon_plot_init(tenon_plot_options *o);
tenon_status tenon_plot(const tenon_plot_options *o); /* TENON_USAGE: nothing to draw */

#ifdef __cplusplus
}
#endif
#endif
