/* The sections of settings, and allowed values in words. */
#include "cli/settings_view.h"

#include <stdio.h>
#include <string.h>

/* A word that ends in a dot is all keys that begin so. The first section that names a key has it; the last has all others. */
static const struct {
    const char *name, *keys;
} sections[] = {
    { "run", "model preset run device compute frozen threads seed " },
    { "data", "data tokenizer loader. train.holdout_frac train.test_frac " },
    { "training",
      "train.steps train.epochs train.from train.batch train.context train.accumulate train.dropout train.nonfinite "
      "train.memory train.dropped " },
    { "optimizer",
      "train.optimizer train.lr train.lr_min_frac train.warmup train.schedule train.cooldown_frac train.decay "
      "train.decay_on train.beta1 train.beta2 train.eps train.momentum train.clip optim. " },
    { "evaluation", "train.eval_every train.eval_batches train.select train.test train.stop_patience train. " },
    { "checkpoints", "ckpt. " },
    { "logging", "log. sample. " },
    { "plan", "plan. " },
    { "task", "task. " },
    { "reinforcement", "rl. " },
    { "switches", "opt. " },
    { "model", "" },
};
const size_t tn_sections_n = sizeof sections / sizeof *sections;

const char *tn_section_name(size_t i) { return sections[i].name; }

size_t tn_section_of(const char *key)
{
    for (size_t i = 0; i + 1 < tn_sections_n; i++)
        for (const char *p = sections[i].keys; *p; p += strcspn(p, " ") + 1) {
            const size_t n = strcspn(p, " ");
            if (strncmp(key, p, n) == 0 && (key[n] == 0 || p[n - 1] == '.')) return i;
        }
    return tn_sections_n - 1;
}

size_t tn_section_named(const char *name)
{
    size_t i = 0;
    while (i < tn_sections_n && strcmp(sections[i].name, name) != 0) i++;
    return i;
}

/* Bounds that only keep numbers from overflowing, and that a count is none below zero, are not worth a word. */
static bool is_bound(double x) { return fabs(x) < 1e6; }

static const char *range_text(const tn_setting *row, char *buf, size_t bytes)
{
    char lo[32], hi[32];
    const bool has_auto = row->type == TN_TYPE_AUTO_INT || row->type == TN_TYPE_AUTO_FLOAT;
    const char *or_auto = !has_auto ? "" : row->choices ? ", auto or off" : " or auto";
    snprintf(lo, sizeof lo, "%.10g", row->min);
    snprintf(hi, sizeof hi, "%.10g", row->max);
    if (is_bound(row->min) && is_bound(row->max))
        snprintf(buf, bytes, "%s%s to %s%s%s", row->min_open ? "above " : "", lo, row->max_open ? "below " : "", hi,
                 or_auto);
    else if (is_bound(row->min) && row->min_open) snprintf(buf, bytes, "above %s%s", lo, or_auto);
    return buf;
}

const char *tn_setting_allowed(const tn_setting *row, char *buf, size_t bytes)
{
    buf[0] = 0;
    switch (row->type) {
    case TN_TYPE_CHOICE: snprintf(buf, bytes, "%s", row->choices); return buf;
    case TN_TYPE_SWITCH:
    case TN_TYPE_BOOL: snprintf(buf, bytes, "on|off"); return buf;
    case TN_TYPE_TEXT: return buf;
    default: return range_text(row, buf, bytes);
    }
}
