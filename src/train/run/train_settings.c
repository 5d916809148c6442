/* The settings of training, and how a run's settings are resolved: defaults < model < target < overrides. Ranges are
 * those of one key; checks between keys are in the code that uses them. */
#include "train/run/train_settings.h"

#include "train/run/saved_model.h"
#include "base/status.h"
#include "base/text.h"
#include "io/yaml_settings.h"
#include "plan/plan.h"
#include "train/source/task_setup.h"
#include "tasks/task.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const tn_setting tn_train_settings[] = {
    TN_SETTING_TEXT("model", "ten", "model to train, or the path of a model's .so"),
    TN_SETTING_TEXT("preset", "", "preset that the run starts from"),
    TN_SETTING_TEXT("data", "", "file or prepared folder to train on"),
    TN_SETTING_TEXT("tokenizer", "", "tokenizer of raw text (empty: bytes; a prepared folder has its own)"),
    TN_SETTING_CHOICE("loader.mode", "auto", "auto|window|pack|bucket",
                      "how rows are filled: random windows, packed documents, or one document each (auto: pack; one "
                      "raw file: window); of texts with questions, bucket makes batches by length"),
    TN_SETTING_INT("loader.shapes", "8", TN_RANGE(1, 64), "plans",
                   "of texts with questions in batches by length: sizes of batches at most, with a plan each"),
    TN_SETTING_INT("loader.workers", "1", TN_RANGE(0, 256), "threads",
                   "threads that prefetch batches (0: no prefetch)"),
    TN_SETTING_AUTO_INT("loader.prefetch", "auto", TN_RANGE(1, 4096), "batches",
                        "batches to prefetch (auto: text 4, or as many as fit 256 MB; samples, sentence pairs, probes "
                        "and a model's records 2)"),
    TN_SETTING_TEXT("run", "", "directory of the run (empty: runs/NAME-N)"),
    TN_SETTING_CHOICE("device", "auto", "auto|cpu|cuda", "where to compute"),
    TN_SETTING_AUTO_INT("threads", "auto", TN_RANGE(1, 1024), "threads", "worker threads (auto: one per core)"),
    TN_SETTING_INT("seed", "0", TN_RANGE_MIN(0), "", "random seed of the run"),
    TN_SETTING_CHOICE(
        "compute", "auto", "auto|f32|tf32|bf16|f16|bf16x3",
        "operands of matrix products (auto: f32, on a GPU bf16; sums are always f32; f16: with a loss scale; "
        "tf32: a GPU's f32 operands rounded inside the product; bf16x3: f32's precision from bf16 "
        "instructions)"),
    TN_SETTING_CHOICE("frozen", "auto", "auto|f32|bf16|f16",
                      "type of matrices that are not trained, such as those of parts from files (auto: f32; on a "
                      "GPU that of compute=bf16 or f16; of a file that is only run its own)"),

    TN_SETTING_INT("train.steps", "2000", TN_RANGE(1, 1e12), "steps", "length of the run"),
    TN_SETTING_INT("train.epochs", "0", TN_RANGE(0, 1e9), "epochs",
                   "length of a run on a task, instead of train.steps (0: by steps)"),
    TN_SETTING_TEXT(
        "train.from", "",
        "weights to start from: a run (its best checkpoint), a checkpoint, a file or a folder of a model of the "
        "same shape (empty: random ones)"),
    TN_SETTING_AUTO_INT("train.batch", "auto", TN_RANGE(1, 1e9), "seq",
                        "sequences or samples per step (auto: the largest of at most 4096 tokens that fits in memory; "
                        "a task: 64 samples)"),
    TN_SETTING_INT("train.context", "256", TN_RANGE(1, 1e9), "tokens", "length of a sequence"),
    TN_SETTING_INT("train.accumulate", "1", TN_RANGE(1, 1e6), "batches", "batches accumulated into one step"),
    TN_SETTING_FLOAT("train.lr", "1e-3", TN_RANGE_LO_OPEN(0, 1), "", "peak learning rate"),
    TN_SETTING_FLOAT("train.lr_min_frac", "0.1", TN_RANGE(0, 1), "", "final learning rate as a fraction of the peak"),
    TN_SETTING_INT("train.warmup", "100", TN_RANGE(0, 1e12), "steps", "warm-up of the learning rate"),
    TN_SETTING_CHOICE("train.schedule", "cosine", "cosine|wsd|constant", "learning-rate schedule after the warm-up"),
    TN_SETTING_FLOAT("train.cooldown_frac", "0.2", TN_RANGE(0, 1), "", "fraction of the steps in which wsd decays"),
    TN_SETTING_FLOAT("train.decay", "0.1", TN_RANGE(0, 1), "", "decoupled weight decay"),
    TN_SETTING_CHOICE("train.decay_on", "matrices", "matrices|all",
                      "what weight decay acts on (all: norms, biases, convolutions and spectra too)"),
    TN_SETTING_FLOAT("train.beta1", "0.9", TN_RANGE_HI_OPEN(0, 1), "", "decay of the first moment (adamw)"),
    TN_SETTING_FLOAT("train.beta2", "0.95", TN_RANGE_HI_OPEN(0, 1), "", "decay of the second moment (adamw)"),
    TN_SETTING_FLOAT("train.eps", "1e-8", TN_RANGE_LO_OPEN(0, 1), "", "epsilon of the denominator (adamw)"),
    TN_SETTING_FLOAT("train.clip", "1", TN_RANGE_MIN(0), "", "gradient clipping norm (0: no clipping)"),
    TN_SETTING_AUTO_FLOAT("train.dropout", "0", TN_RANGE_HI_OPEN(0, 1), "",
                          "dropout rate (auto: by the epochs planned, 0 for one, at most 0.2)"),
    TN_SETTING_CHOICE("train.nonfinite", "stop", "stop|skip|rollback", "what to do about a NaN or infinite gradient"),
    TN_SETTING_AUTO_INT_OFF("optim.loss_scale", "auto", TN_RANGE(1, 1152921504606846976.0), "",
                            "initial loss scale, halved when gradients overflow (auto: 65536 with compute=f16)"),
    TN_SETTING_INT("optim.loss_scale_growth", "2000", TN_RANGE(0, 1e9), "steps",
                   "finite steps in a row after which the loss scale doubles (0: never)"),
    TN_SETTING_CHOICE("train.optimizer", "adamw", "adamw|sgd", "update rule"),
    TN_SETTING_FLOAT("train.momentum", "0.9", TN_RANGE_HI_OPEN(0, 1), "", "momentum (sgd)"),
    TN_SETTING_INT("train.eval_every", "200", TN_RANGE(0, 1e12), "steps",
                   "steps between evaluations (0: only at the end; default for tasks: after whole epochs of at least "
                   "20 steps in total)"),
    TN_SETTING_INT(
        "train.eval_batches", "16", TN_RANGE(0, 1e9), "batches",
        "validation batches per evaluation (0: all; default for tasks: 0); the test split is always evaluated whole"),
    TN_SETTING_TEXT(
        "train.select", "auto",
        "held-out metric that selects the best checkpoint (auto: accuracy where the task has one, else loss)"),
    TN_SETTING_BOOL(
        "train.test", "off",
        "at the end, evaluate the best checkpoint on the whole test split (default for tasks that have one: on; off "
        "skips it, and `tenon eval RUN split=test` does it later)"),
    TN_SETTING_CHOICE("train.memory", "ladder", "ladder|refuse",
                      "a run that needs more memory than there is: ladder: computes batches in parts, recomputes "
                      "activations, gives up what the model allows; refuse: ends (exit code 5)"),
    TN_SETTING_TEXT("train.dropped", "",
                    "settings that were given up for want of memory, as they were (set by the run)"),
    TN_SETTING_INT("train.stop_patience", "0", TN_RANGE(0, 1e9), "evaluations",
                   "stop after this many evaluations without improvement (0: never)"),
    TN_SETTING_FLOAT("train.holdout_frac", "0.02", TN_RANGE_HI_OPEN(0, 1), "",
                     "fraction of the data held out for validation"),
    TN_SETTING_FLOAT("train.test_frac", "0", TN_RANGE_HI_OPEN(0, 1), "", "fraction of raw text kept as a test split"),

    TN_SETTING_INT("ckpt.every", "500", TN_RANGE(0, 1e12), "steps", "steps between checkpoints (0: only at the end)"),
    TN_SETTING_FLOAT("ckpt.every_s", "0", TN_RANGE_MIN(0), "s",
                     "seconds between checkpoints, in addition to ckpt.every (0: off)"),
    TN_SETTING_INT("ckpt.keep_latest", "2", TN_RANGE(1, 1e9), "checkpoints", "newest checkpoints to keep"),
    TN_SETTING_INT("ckpt.keep_best", "1", TN_RANGE(0, 1e9), "checkpoints", "best checkpoints to keep, by train.select"),
    TN_SETTING_FLOAT("ckpt.wait_s", "300", TN_RANGE_MIN(0), "s",
                     "how long to retry the last checkpoint on a failing disk before the run ends unsaved"),
    TN_SETTING_CHOICE("ckpt.compress", "off", "off|zstd", "compression of checkpoints"),

    TN_SETTING_CHOICE(
        "log.level", "training", "info|training|performance|profiling",
        "info: loss, time; training: speed, memory, instruments; performance: model parts; profiling: kernels, layout"),
    TN_SETTING_INT("log.every", "10", TN_RANGE(1, 1e12), "steps", "steps between lines of metrics.jsonl"),
    TN_SETTING_BOOL("log.csv", "off", "also write metrics.csv, at checkpoints and at the end"),
    TN_SETTING_INT("sample.every", "0", TN_RANGE(0, 1e12), "steps", "steps between samples of text (0: none)"),
    TN_SETTING_INT("sample.tokens", "64", TN_RANGE(1, 1e9), "tokens", "length of each sample"),
    TN_SETTING_TEXT("sample.prompt", "", "prompt of each sample"),

    TN_SETTING_CHOICE("plan.recompute", "none", "none|layer|chunk|trained",
                      "activations recomputed to save memory: inside layers, in chunks of time (recurrent models), or "
                      "inside layers that are trained, not in those of frozen parts"),
    TN_SETTING_INT("plan.microbatches", "1", TN_RANGE(1, 1e6), "parts",
                   "parts that a batch is computed in, one after the other: the same step in less memory"),
    TN_SETTING_FLOAT("plan.memory_gb", "0", TN_RANGE_MIN(0), "GB",
                     "memory that a run's plan may take (0: what the machine or the GPU has)"),
    TN_SETTING_AUTO_INT("plan.chunk", "auto", TN_RANGE(1, 1e9), "tokens",
                        "length of a chunk (auto: equal chunks of at most 4096 tokens per batch; GPU: 16384)"),
    TN_SETTING_CHOICE(
        "opt.resident_samples", "off", "auto|on|off",
        "training samples stay in the device's memory; a step uploads only sample numbers (auto: GPU, if they need "
        "at most a tenth of the memory that the plan leaves free; off: uploads each batch)"),
};
const size_t tn_train_settings_n = sizeof tn_train_settings / sizeof *tn_train_settings;

/* Adds the switches of all ops (opt.*). */
static tn_status add_switches(tn_settings *st)
{
    for (size_t i = 0; tn_op_at(i); i++) {
        const tn_setting *row = tn_op_at(i)->switch_row;
        if (row && tn_settings_find(st, row->key) == tn_settings_count(st))
            TN_RETURN_IF(tn_settings_add(st, row, 1, "opt"));
    }
    return tn_settings_add(st, tn_plan_switches, tn_plan_switches_n, "opt");
}

tn_status tn_settings_common(tn_settings *st)
{
    TN_RETURN_IF(tn_settings_add(st, tn_train_settings, tn_train_settings_n, "train"));
    TN_RETURN_IF(tn_settings_add(st, tn_task_settings, tn_task_settings_n, "task"));
    TN_RETURN_IF(tn_settings_add(st, tn_rl_settings, tn_rl_settings_n, "rl"));
    return add_switches(st);
}

/* --- which model, which file ---------------------------------------------------------------------------------------- */

typedef struct choice {
    char file[4096];  /* settings file, or "" */
    char model[4096]; /* name or path, or "" */
    char preset[64];
    char place[512]; /* of the file that says which model, or "" */
} choice;

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static tn_status keep(char *to, size_t bytes, const char *from)
{
    if (strlen(from) >= bytes) return tn_error(TN_USAGE, "a name or path of %zu characters is too long", strlen(from));
    snprintf(to, bytes, "%s", from);
    return TN_OK;
}

/* A word is the name of a preset or a model unless a run's directory is called so; a path is a file or a run. */
static tn_status read_target(const char *target, choice *c)
{
    char quoted[80];
    struct stat info;
    const tn_model *owner;
    const int n = snprintf(c->file, sizeof c->file, "%s/config.yaml", target);
    if (n > 0 && (size_t)n < sizeof c->file && stat(c->file, &info) == 0) return TN_OK;
    c->file[0] = 0;
    if (tn_is_weights_file(target) && stat(target, &info) == 0) /* who opens it says so: see tn_settings_from */
        return tn_error(TN_USAGE,
                        "%.640s is a model with weights, not a config: `tenon sample`, `chat`, `eval` and `bench "
                        "decode` take it",
                        target);
    if (ends_with(target, ".so")) return keep(c->model, sizeof c->model, target);
    if (ends_with(target, ".c"))
        return tn_error(TN_USAGE, "%.640s is a model's source: build it with `make` in its folder, then name %s%.*sso",
                        target, strchr(target, '/') ? "" : "./", (int)strlen(target) - 1, target);
    if (strchr(target, '/') || ends_with(target, ".yaml") || ends_with(target, ".yml"))
        return keep(c->file, sizeof c->file, target);
    if (tn_preset_named(target, &owner)) return keep(c->preset, sizeof c->preset, target);
    if (tn_model_named(target)) return keep(c->model, sizeof c->model, target);
    tn_nearest near = { .word = target };
    tn_model_names_try(&near);
    tn_text_quote(target, quoted, sizeof quoted);
    if (near.best)
        return tn_error(TN_USAGE, "%s is neither a preset nor a model: did you mean %s? (`tenon presets` lists them)",
                        quoted, near.best);
    return tn_error(
        TN_USAGE,
        "%s is neither a preset nor a model (`tenon presets` lists them); a config file ends in .yaml or has a path",
        quoted);
}

/* "key=value" that stands in a file. */
static tn_status set_word(tn_settings *st, const char *word, const char *file)
{
    char key[128], quoted[80];
    const char *eq = strchr(word, '=');
    if (!eq || eq == word || (size_t)(eq - word) >= sizeof key)
        return tn_error(TN_BAD_FILE, "%.300s: its settings contain %s, which is not key=value", file,
                        tn_text_quote(word, quoted, sizeof quoted));
    snprintf(key, sizeof key, "%.*s", (int)(eq - word), word);
    return tn_settings_set(st, key, eq + 1, "%s", file);
}

static bool says_which(const char *word) { return strncmp(word, "model=", 6) == 0 || strncmp(word, "preset=", 7) == 0; }

/* A first look: the file's and the overrides' own words on model and preset. */
static tn_status peek(const choice *named, const tn_settings_from *from, choice *c)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, tn_train_settings, 2, "train")); /* model and preset come first in the table */
    if (named->file[0]) TN_TRY(tn_settings_peek_yaml(st, named->file));
    for (size_t i = 0; i < from->n_said; i++)
        if (says_which(from->said[i])) TN_TRY(set_word(st, from->said[i], from->file));
    if (named->model[0]) TN_TRY(tn_settings_set(st, "model", named->model, "command line"));
    if (named->preset[0]) TN_TRY(tn_settings_set(st, "preset", named->preset, "command line"));
    for (size_t i = 0; i < from->n; i++)
        if (says_which(from->overrides[i])) TN_TRY(tn_settings_override(st, from->overrides[i]));
    const bool said = strcmp(tn_settings_source(st, "model"), "default") != 0;
    TN_TRY(keep(c->model, sizeof c->model, said ? tn_settings_text(st, "model") : ""));
    TN_TRY(keep(c->preset, sizeof c->preset, tn_settings_text(st, "preset")));
    if (said && strcmp(tn_settings_source(st, "model"), "command line") != 0)
        TN_TRY(keep(c->place, sizeof c->place, tn_settings_source(st, "model")));
done:
    tn_settings_free(st);
    return s;
}

static tn_status find_preset(choice *c, const tn_preset **preset)
{
    const tn_model *owner = NULL;
    *preset = NULL;
    if (!c->preset[0]) return TN_OK;
    *preset = tn_preset_named(c->preset, &owner);
    if (!*preset) return tn_error(TN_USAGE, "unknown preset %s: `tenon presets` lists them", c->preset);
    if (!c->model[0]) return keep(c->model, sizeof c->model, owner->name);
    if (strcmp(c->model, owner->name) != 0)
        return tn_error(TN_USAGE, "preset %s belongs to model %s, not to %s", c->preset, owner->name, c->model);
    return TN_OK;
}

/* values: "key=value", NULL at the end, or NULL. */
static tn_status set_all(tn_settings *st, const char *const *values, const char *source)
{
    for (const char *const *v = values; v && *v; v++) {
        char key[128];
        const char *eq = strchr(*v, '=');
        if (!eq || (size_t)(eq - *v) >= sizeof key) return tn_error(TN_INTERNAL, "%s: \"%s\"", source, *v);
        snprintf(key, sizeof key, "%.*s", (int)(eq - *v), *v);
        TN_RETURN_IF(tn_settings_set(st, key, eq + 1, "%s", source));
    }
    return TN_OK;
}

static tn_status apply(tn_settings *st, const choice *c, const tn_preset *preset, const tn_settings_from *from)
{
    char source[128];
    const char *file = c->file[0] ? c->file : from->file ? from->file : "command line";
    snprintf(source, sizeof source, "preset %s", preset ? preset->name : "");
    TN_RETURN_IF(set_all(st, preset ? preset->values : NULL, source));
    if (c->file[0]) TN_RETURN_IF(tn_settings_read_yaml(st, c->file));
    for (size_t i = 0; i < from->n_said; i++) TN_RETURN_IF(set_word(st, from->said[i], from->file));
    TN_RETURN_IF(tn_settings_set(st, "model", c->model, "%s", file));
    if (preset) TN_RETURN_IF(tn_settings_set(st, "preset", preset->name, "%s", file));
    for (size_t i = 0; i < from->n; i++) TN_RETURN_IF(tn_settings_override(st, from->overrides[i]));
    return TN_OK;
}

static tn_status load_model(const choice *c, const tn_user_args *user, const tn_model **out)
{
    const tn_status s = tn_model_load(c->model, user, out);
    if (s != TN_OK && c->place[0]) tn_error_prefix("%s", c->place);
    return s;
}

tn_status tn_settings_resolve_from(const tn_settings_from *from, tn_settings **out, const tn_model **model)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    const tn_preset *preset;
    const tn_model *m = NULL;
    choice named = { .file = "" }, c = { .file = "" };
    if (from->target) TN_TRY(read_target(from->target, &named));
    memcpy(c.file, named.file, sizeof c.file);
    TN_TRY(peek(&named, from, &c));
    TN_TRY(find_preset(&c, &preset));
    if (!c.model[0]) TN_TRY(keep(c.model, sizeof c.model, tn_train_settings[0].value));
    TN_TRY(load_model(&c, from->user, &m));
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_common(st));
    TN_TRY(tn_settings_add(st, m->settings, m->n_settings, m->name));
    TN_TRY(set_all(st, m->defaults, "default"));
    TN_TRY(apply(st, &c, preset, from));
    *out = st;
    *model = m;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

tn_status tn_settings_resolve_user(const tn_user_args *user, const char *target, const char *const *overrides, size_t n,
                                   tn_settings **out, const tn_model **model)
{
    return tn_settings_resolve_from(
        &(tn_settings_from){ .user = user, .target = target, .overrides = overrides, .n = n }, out, model);
}

tn_status tn_settings_resolve(const char *target, const char *const *overrides, size_t n, tn_settings **out,
                              const tn_model **model)
{
    return tn_settings_resolve_user(NULL, target, overrides, n, out, model);
}

int64_t tn_settings_vocab(const tn_settings *st)
{
    if (tn_settings_find(st, "vocab") == tn_settings_count(st)) return 256;
    return tn_settings_is_auto(st, "vocab") ? 50257 : tn_settings_int(st, "vocab");
}
