/* Metric values by name. */
#include "train/trainer/scores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double tn_scores_get(const tn_scores *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->at[i].name, name) == 0) return s->at[i].value;
    return NAN;
}

double tn_scores_first(const tn_scores *s) { return s->n ? s->at[0].value : NAN; }

bool tn_scores_put(tn_scores *s, const char *name, double value)
{
    size_t i = 0;
    while (i < s->n && strcmp(s->at[i].name, name) != 0) i++;
    if (i == TN_SCORES_MAX || strlen(name) >= TN_SCORE_NAME) return false;
    snprintf(s->at[i].name, sizeof s->at[i].name, "%s", name);
    s->at[i].value = value;
    if (i == s->n) s->n++;
    return true;
}

bool tn_scores_better(const tn_scores *a, const tn_scores *b, const char *name, bool lower)
{
    const double x = tn_scores_get(a, name), y = tn_scores_get(b, name), first = tn_scores_first(a);
    if (isnan(first)) return false;
    if (isnan(x) != isnan(y)) return isnan(y);
    if (!isnan(x) && x != y) return lower ? x < y : x > y;
    return !(first >= tn_scores_first(b));
}

bool tn_score_taken(const char *name)
{
    static const char *const taken[] = {
        "heldout", "lr",      "grad_norm",  "groups",       "select",      "lower",        "unit",
        "step",    "stale",   "train_loss",                         /* checkpoints, trials */
        "name",    "bytes",   "whole",      "latest",       "best", /* tables in --json */
        "epoch",   "seconds", "parameters", "epochs_to_90", "block_evals", "tokens_per_s", "memory_bytes", /* studies */
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(taken[i], name) == 0) return true;
    return strncmp(name, "last_", 5) == 0;
}
