/* Compares a run's settings with those of a command. A setting must not change unless it is listed here. */
#include "train/run/same_settings.h"

#include "base/alloc.h"
#include "base/status.h"
#include "io/yaml_settings.h"
#include "train/run/dropout_auto.h"
#include "train/run/ladder.h"
#include "train/run/train_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys that may change; one that ends in a dot stands for all below it. */
static const char *const loose[] = {
    "run",
    "preset",
    "device",
    "threads",
    "log.",
    "ckpt.",
    "plan.",
    "opt.",
    "sample.",
    "loader.workers",
    "loader.prefetch",
    "train.eval_every",
    "train.stop_patience",
    "train.nonfinite",
    "train.memory",
    "train.dropped",
    "train.test",
    "train.epochs", /* as train.steps */
};

bool tn_settings_may_change(const char *key)
{
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        const size_t n = strlen(loose[i]);
        if (loose[i][n - 1] == '.' ? strncmp(key, loose[i], n) == 0 : strcmp(key, loose[i]) == 0) return true;
    }
    return false;
}

/* What a run writes itself: hashes of a part's weights, which its checkpoints hold, and of its tokenizer. */
static bool is_hash(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot && (strcmp(dot, ".hash") == 0 || strcmp(dot, ".tokenizer_hash") == 0);
}

/* Where a part's file lies: it may be moved once the run has its weights. */
static bool is_moved(const tn_settings *old, const char *key)
{
    char hash[128];
    const char *dot = strrchr(key, '.');
    if (!dot || (strcmp(dot, ".model") != 0 && strcmp(dot, ".tokenizer") != 0)) return false;
    snprintf(hash, sizeof hash, "%.*s.hash", (int)(dot - key), key);
    return tn_settings_find(old, hash) < tn_settings_count(old) && tn_settings_text(old, hash)[0];
}

static bool is_steps(const char *key) { return strcmp(key, "train.steps") == 0; }

tn_status tn_settings_same_hash(const tn_settings *st, char hash[TN_HASH_BYTES])
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const tn_setting *row = tn_settings_row_at(st, i);
        const char *text = tn_settings_text_at(st, i);
        if (tn_settings_may_change(row->key) || is_steps(row->key) || is_hash(row->key)) continue;
        tn_hash_add(h, row->key, strlen(row->key) + 1);
        tn_hash_add(h, text, strlen(text) + 1);
    }
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}

/* --- the run's own settings ------------------------------------------------------------------------------------------ */

static tn_status refuse(const char *key, const char *was, const char *is)
{
    return tn_error(TN_USAGE,
                    "%s: the run has %s=%.200s, the command says %.200s: start over with --fresh, or name another run "
                    "with run=OTHER",
                    key, key, was[0] ? was : "\"\"", is[0] ? is : "\"\"");
}

/* The name of the run's model alone: another one has other keys, which the file's reader would take for mistakes. */
static tn_status read_model(const char *config, tn_settings **out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, tn_train_settings, 1, "train")); /* model comes first in the table */
    TN_TRY(tn_settings_peek_yaml(st, config));
    *out = st;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

static tn_status check_model(const tn_settings *now, const char *config)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(read_model(config, &st));
    if (strcmp(tn_settings_text(st, "model"), tn_settings_text(now, "model")) != 0)
        TN_TRY(refuse("model", tn_settings_text(st, "model"), tn_settings_text(now, "model")));
done:
    tn_settings_free(st);
    return s;
}

/* Keys the file lacks (an older version wrote it) have the command's values. */
static tn_status read_old(const tn_settings *now, const char *config, tn_settings **out)
{
    tn_settings *old;
    TN_RETURN_IF(check_model(now, config));
    TN_RETURN_IF(tn_settings_clone(now, &old));
    const tn_status s = tn_settings_read_yaml(old, config);
    if (s == TN_OK) *out = old;
    else tn_settings_free(old);
    return s;
}

/* The learning rates so far hang on train.steps under cosine; the others can be prolonged. */
static tn_status check_steps(const tn_settings *now, const tn_settings *old)
{
    if (strcmp(tn_settings_text(now, "train.schedule"), "cosine") != 0) return TN_OK;
    return tn_error(TN_USAGE,
                    "train.steps: the run has train.steps=%s, the command says %s, and train.schedule=cosine cannot be "
                    "extended (constant and wsd can): start over with --fresh, or name another run with run=OTHER",
                    tn_settings_text(old, "train.steps"), tn_settings_text(now, "train.steps"));
}

static void list_change(const char *key, const char *was, const char *is, char *changed, size_t bytes)
{
    const size_t n = strlen(changed);
    if (strcmp(was, is) == 0 || is_hash(key)) return;
    if (strcmp(key, "run") == 0 || strcmp(key, "preset") == 0) return; /* names */
    if (strcmp(key, "train.dropped") == 0) return;                     /* what it names is listed */
    snprintf(changed + n, bytes - n, "%s%s %.60s -> %.60s", n ? ", " : "", key, was, is);
}

/* As they were before anything was given up for want of memory. */
static tn_status undone(const tn_settings *st, tn_settings **out)
{
    TN_RETURN_IF(tn_settings_clone(st, out));
    return tn_ladder_undo(*out);
}

/* What the run goes on without although the command asks for it: "loss.kd=1, loss.state=0.5". */
static void list_dropped(const tn_settings *now, const char *before, char *kept, size_t bytes)
{
    const char *dropped = tn_settings_text(now, "train.dropped");
    if (strcmp(dropped, before) == 0) return;
    dropped += strncmp(dropped, before, strlen(before)) == 0 ? strlen(before) : 0;
    size_t n = (size_t)snprintf(kept, bytes, "stays without ");
    for (dropped += strspn(dropped, " "); *dropped && n + 2 < bytes; dropped++) {
        if (*dropped == ' ') kept[n++] = ',';
        kept[n++] = *dropped;
    }
    snprintf(kept + n, bytes - n, " (train.dropped)");
}

/* More steps, or a batch that another machine chose, plan other epochs. */
static tn_status keep_dropout(tn_settings *now, const tn_settings *old, bool *changed)
{
    static const char key[] = "train.dropout";
    if (strcmp(tn_settings_source(now, key), TN_DROPOUT_CHOSEN) != 0 || tn_settings_is_auto(old, key)) return TN_OK;
    if (strcmp(tn_settings_text(now, key), tn_settings_text(old, key)) == 0) return TN_OK;
    *changed = true;
    return tn_settings_set(now, key, tn_settings_text(old, key), TN_DROPOUT_CHOSEN);
}

/* Not typed: a config.yaml has behind each value where it came from. */
static bool was_chosen(const tn_settings *old, const char *config)
{
    const char *colon = strrchr(tn_settings_source(old, "train.dropout"), ':');
    long line = colon ? strtol(colon + 1, NULL, 10) : 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = line > 0 ? fopen(config, "r") : NULL;
    bool chosen = false;
    while (f && line > 0 && getline(&text, &bytes, f) >= 0)
        if (--line == 0) chosen = strstr(text, "# " TN_DROPOUT_CHOSEN "\n") != NULL;
    if (f) fclose(f);
    free(text);
    return chosen;
}

tn_status tn_settings_keep_rung(tn_settings *now, const char *config, bool *lowered, char *kept, size_t bytes)
{
    tn_settings *old;
    char before[512];
    kept[0] = 0;
    snprintf(before, sizeof before, "%s", tn_settings_text(now, "train.dropped"));
    TN_RETURN_IF(read_old(now, config, &old));
    tn_status s = tn_ladder_keep(now, old, lowered);
    if (s == TN_OK) s = keep_dropout(now, old, lowered);
    if (s == TN_OK) list_dropped(now, before, kept, bytes);
    tn_settings_free(old);
    return s;
}

tn_status tn_settings_may_continue(const tn_settings *here, const char *config, char *changed, size_t bytes)
{
    tn_status s = TN_OK;
    tn_settings *there = NULL, *old = NULL, *now = NULL;
    changed[0] = 0;
    TN_TRY(read_old(here, config, &there));
    TN_TRY(undone(here, &now));
    TN_TRY(undone(there, &old));
    for (size_t i = 0; i < tn_settings_count(now); i++) {
        const char *key = tn_settings_row_at(now, i)->key, *was = tn_settings_text_at(old, i),
                   *is = tn_settings_text_at(now, i);
        const bool same = strcmp(was, is) == 0 || is_hash(key);
        if (!same && is_steps(key)) TN_TRY(check_steps(now, old));
        else if (!same && !tn_settings_may_change(key) && !(is[0] && is_moved(old, key))) TN_TRY(refuse(key, was, is));
        list_change(key, tn_settings_text_at(there, i), tn_settings_text_at(here, i), changed, bytes);
    }
done:
    tn_settings_free(there);
    tn_settings_free(old);
    tn_settings_free(now);
    return s;
}

bool tn_settings_same_run(const tn_settings *here, const char *config)
{
    tn_settings *there = NULL, *old = NULL, *now = NULL;
    char a[TN_HASH_BYTES], b[TN_HASH_BYTES];
    bool kept;
    const bool same = read_old(here, config, &there) == TN_OK && undone(here, &now) == TN_OK &&
                      undone(there, &old) == TN_OK &&
                      (!was_chosen(there, config) || keep_dropout(now, old, &kept) == TN_OK) &&
                      tn_settings_same_hash(now, a) == TN_OK && tn_settings_same_hash(old, b) == TN_OK &&
                      strcmp(a, b) == 0 && tn_settings_int(now, "train.steps") == tn_settings_int(old, "train.steps");
    tn_settings_free(there);
    tn_settings_free(old);
    tn_settings_free(now);
    return same;
}

/* Settings that say what is trained rather than with what; groups of settings have a dot. */
static bool shapes_model(const char *key)
{
    static const char *const others[] = { "data", "tokenizer", "seed", "task", "compute", "frozen" };
    if (strcmp(key, "train.context") == 0) return true; /* a table of positions may be as long */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i]) == 0) return false;
    return !strchr(key, '.') && !tn_settings_may_change(key);
}

static void add_other(const char *key, const char *was, const char *is, char *text, size_t bytes)
{
    const size_t n = strlen(text);
    if (strcmp(was, is) != 0) snprintf(text + n, bytes - n, "%s%s=%.60s, not %.60s", n ? ", " : "", key, was, is);
}

void tn_settings_other_model(const tn_settings *now, const char *config, char *text, size_t bytes)
{
    tn_settings *old = NULL;
    text[0] = 0;
    if (read_model(config, &old) == TN_OK)
        add_other("model", tn_settings_text(old, "model"), tn_settings_text(now, "model"), text, bytes);
    tn_settings_free(old);
    old = NULL;
    if (text[0] || read_old(now, config, &old) != TN_OK) return;
    for (size_t i = 0; i < tn_settings_count(now); i++) {
        const char *key = tn_settings_row_at(now, i)->key;
        if (shapes_model(key)) add_other(key, tn_settings_text_at(old, i), tn_settings_text_at(now, i), text, bytes);
    }
    tn_settings_free(old);
}
