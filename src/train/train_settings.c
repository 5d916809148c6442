/* Rows of the training loop and the resolution of a run's settings: defaults < target < overrides.
 * Ranges here are those of one key; checks between keys belong to the code that uses them. */
#include "train/train_settings.h"

#include "base/status.h"
#include "base/text.h"
#include "io/yaml_settings.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const tn_setting tn_train_settings[] = {
    TN_SETTING_TEXT("model", "ten", "family to train, or the path of a model's .so"),
    TN_SETTING_TEXT("preset", "", "named set of values the run starts from"),
    TN_SETTING_TEXT("data", "", "file or prepared folder to train on"),
    TN_SETTING_TEXT("run", "", "directory of the run (empty: runs/NAME)"),
    TN_SETTING_CHOICE("device", "auto", "auto|cpu|cuda", "where to compute"),
    TN_SETTING_AUTO_INT("threads", "auto", TN_RANGE(1, 4096), "threads", "worker threads (auto: one per core)"),
    TN_SETTING_INT("seed", "0", TN_RANGE_MIN(0), "", "seed of every random number of the run"),
    TN_SETTING_CHOICE("compute", "bf16", "f32|bf16", "operands of matrix products (sums are always f32)"),

    TN_SETTING_INT("train.steps", "2000", TN_RANGE(1, 1e12), "steps", "length of the run"),
    TN_SETTING_AUTO_INT("train.batch", "auto", TN_RANGE(1, 1e9), "seq",
                        "sequences per step (auto: the largest that fits the memory plan)"),
    TN_SETTING_INT("train.context", "256", TN_RANGE(1, 1e9), "tokens", "length of a sequence"),
    TN_SETTING_INT("train.accumulate", "1", TN_RANGE(1, 1e6), "batches", "batches whose gradients make one step"),
    TN_SETTING_FLOAT("train.lr", "1e-3", TN_RANGE_LO_OPEN(0, 1), "", "peak learning rate"),
    TN_SETTING_FLOAT("train.lr_min_frac", "0.1", TN_RANGE(0, 1), "", "last learning rate as a part of the peak"),
    TN_SETTING_INT("train.warmup", "100", TN_RANGE(0, 1e12), "steps", "steps in which the learning rate rises"),
    TN_SETTING_CHOICE("train.schedule", "cosine", "cosine|wsd|constant", "shape of the learning rate after warmup"),
    TN_SETTING_FLOAT("train.cooldown_frac", "0.2", TN_RANGE(0, 1), "", "part of the steps in which wsd comes down"),
    TN_SETTING_FLOAT("train.decay", "0.1", TN_RANGE(0, 1), "", "weight decay, apart from the gradient"),
    TN_SETTING_FLOAT("train.beta1", "0.9", TN_RANGE_HI_OPEN(0, 1), "", "memory of the mean gradient (adamw)"),
    TN_SETTING_FLOAT("train.beta2", "0.95", TN_RANGE_HI_OPEN(0, 1), "", "memory of the squared gradient (adamw)"),
    TN_SETTING_FLOAT("train.eps", "1e-8", TN_RANGE_LO_OPEN(0, 1), "",
                     "added to the root of the squared gradient (adamw)"),
    TN_SETTING_FLOAT("train.clip", "1", TN_RANGE_MIN(0), "", "largest norm of the gradient (0: no limit)"),
    TN_SETTING_FLOAT("train.dropout", "0", TN_RANGE_HI_OPEN(0, 1), "", "part of the activations dropped"),
    TN_SETTING_CHOICE("train.nonfinite", "stop", "stop|skip|rollback", "what a NaN or infinite gradient leads to"),
    TN_SETTING_CHOICE("train.optimizer", "adamw", "adamw|sgd", "rule of the step"),
    TN_SETTING_FLOAT("train.momentum", "0.9", TN_RANGE_HI_OPEN(0, 1), "", "memory of the gradient (sgd)"),
    TN_SETTING_INT("train.eval_every", "200", TN_RANGE(0, 1e12), "steps",
                   "steps between evaluations (0: only at the end)"),
    TN_SETTING_INT("train.eval_batches", "16", TN_RANGE(1, 1e9), "batches", "held-out batches of one evaluation"),
    TN_SETTING_FLOAT("train.holdout_frac", "0.02", TN_RANGE_HI_OPEN(0, 1), "", "part of the data kept for evaluation"),

    TN_SETTING_CHOICE("plan.recompute", "none", "none|layer", "activations computed again to save memory"),
    TN_SETTING_CHOICE("log.level", "info", "info|training|performance|profiling", "how much the log says"),
};
const size_t tn_train_settings_n = sizeof tn_train_settings / sizeof *tn_train_settings;

tn_status tn_settings_common(tn_settings *st)
{
    return tn_settings_add(st, tn_train_settings, tn_train_settings_n, "train");
}

static bool is_path(const char *target)
{
    const char *dot = strrchr(target, '.');
    return strchr(target, '/') || (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0));
}

/* A word is the name of a preset or a model unless a run's directory is called so; a path is a file or a run. */
static tn_status apply_target(tn_settings *st, const char *target)
{
    char config[4096], quoted[80];
    struct stat info;
    const int n = snprintf(config, sizeof config, "%s/config.yaml", target);
    if (n > 0 && (size_t)n < sizeof config && stat(config, &info) == 0) return tn_settings_read_yaml(st, config);
    if (is_path(target)) return tn_settings_read_yaml(st, target);
    return tn_error(TN_USAGE, "%s is neither a preset nor a model; a config file is named with .yaml or a path",
                    tn_text_quote(target, quoted, sizeof quoted));
}

tn_status tn_settings_resolve(const char *target, const char *const *overrides, size_t n, tn_settings **out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_common(st));
    if (target) TN_TRY(apply_target(st, target));
    for (size_t i = 0; i < n; i++) TN_TRY(tn_settings_override(st, overrides[i]));
    *out = st;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}
