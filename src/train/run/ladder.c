/* The memory ladder: which setting changes next, and what is said of it. Whoever has the trainer makes it anew. */
#include "train/run/ladder.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

static const char *const WHY = "out of memory"; /* where such a setting came from */
enum { MOST_BATCHES = 1000000 };                /* of a step */

bool tn_ladder_on(const tn_settings *st) { return strcmp(tn_settings_text(st, "train.memory"), "ladder") == 0; }

static bool is(const tn_settings *st, const char *key, const char *value)
{
    return strcmp(tn_settings_text(st, key), value) == 0;
}

/* --- what is said -------------------------------------------------------------------------------------------------------- */

/* "38 GB of 24 GB: ", or nothing where an allocation failed that was planned for. */
static void say_need(const tn_refusal *r, char *buf, size_t bytes)
{
    buf[0] = 0;
    if (r->refused && r->need > 0)
        snprintf(buf, bytes, "%.3g GB of %.3g GB: ", r->need / 1e9, r->limit > 0 ? r->limit / 1e9 : 0);
}

static void say(tn_ladder *l, const tn_refusal *r, const char *text)
{
    char need[64];
    if (l->n == TN_LADDER_LINES) return;
    say_need(r, need, sizeof need);
    snprintf(l->line[l->n++], TN_LADDER_LINE, "%s%s", need, text);
}

/* One line for all of it, from the first batch size to the last. */
static void say_parts(tn_ladder *l, const tn_ladder_step *how, const tn_settings *st, int64_t was, int64_t is)
{
    const long long times = (long long)tn_settings_int(st, "train.accumulate");
    if (!l->parts_at && l->n < TN_LADDER_LINES) {
        l->parts = was;
        l->parts_at = ++l->n;
        say_need(&how->refusal, l->of, sizeof l->of);
    }
    if (!l->parts_at) return;
    if (l->parts_at - 1 < l->changed) l->changed = l->parts_at - 1;
    snprintf(l->line[l->parts_at - 1], TN_LADDER_LINE, "%smicro-batch %lld -> %lld, accumulate %lld -> %lld", l->of,
             (long long)(how->batch / l->parts), (long long)(how->batch / is), times * (long long)l->parts,
             times * (long long)is);
}

const char *tn_ladder_text(const tn_ladder *l, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < l->n && at < bytes; i++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%s", i ? "; " : "", l->line[i]);
    return buf;
}

/* --- rungs --------------------------------------------------------------------------------------------------------------- */

static int64_t smallest_factor(int64_t n)
{
    for (int64_t k = 2; k * k <= n; k++)
        if (n % k == 0) return k;
    return n;
}

static tn_status more_parts(tn_ladder *l, const tn_ladder_step *how, tn_settings *st, bool *done)
{
    char text[32];
    const int64_t parts = tn_settings_int(st, "plan.microbatches"), rows = how->batch / parts;
    if (rows < 2 || how->whole_batch || (how->model->couples_rows && how->model->couples_rows(st))) return TN_OK;
    const int64_t more = parts * smallest_factor(rows);
    if (more > MOST_BATCHES / tn_settings_int(st, "train.accumulate")) return TN_OK;
    snprintf(text, sizeof text, "%lld", (long long)more);
    TN_RETURN_IF(tn_settings_set(st, "plan.microbatches", text, "%s", WHY));
    say_parts(l, how, st, parts, more);
    *done = true;
    return TN_OK;
}

/* More activations are kept than with `layer`. */
static bool keeps_layers(const tn_settings *st)
{
    return is(st, "plan.recompute", "none") || is(st, "plan.recompute", "trained");
}

static tn_status recompute(tn_ladder *l, const tn_ladder_step *how, tn_settings *st, bool *done)
{
    char text[TN_LADDER_LINE];
    if (!keeps_layers(st)) return TN_OK;
    snprintf(text, sizeof text, "plan.recompute %s -> layer", tn_settings_text(st, "plan.recompute"));
    TN_RETURN_IF(tn_settings_set(st, "plan.recompute", "layer", "%s", WHY));
    say(l, &how->refusal, text);
    *done = true;
    return TN_OK;
}

static bool divide(const char *word, char key[64], const char **value)
{
    const char *eq = strchr(word, '=');
    if (!eq || eq == word || eq - word >= 64) return false;
    snprintf(key, 64, "%.*s", (int)(eq - word), word);
    *value = eq + 1;
    return true;
}

/* Remembers what the key was. */
static tn_status drop(tn_settings *st, const char *key, const char *value)
{
    char was[64], dropped[512];
    snprintf(was, sizeof was, "%s", tn_settings_text(st, key));
    const char *before = tn_settings_text(st, "train.dropped");
    snprintf(dropped, sizeof dropped, "%.400s%s%s=%s", before, before[0] ? " " : "", key, was);
    TN_RETURN_IF(tn_settings_set(st, "train.dropped", dropped, "%s", WHY));
    return tn_settings_set(st, key, value, "%s", WHY);
}

static tn_status give_up(tn_ladder *l, const tn_ladder_step *how, tn_settings *st, bool *done)
{
    char key[64], text[TN_LADDER_LINE], was[64];
    const char *value;
    for (const char *const *w = how->model->gives_up; how->gives_up && w && *w && !*done; w++) {
        if (!divide(*w, key, &value)) return tn_error(TN_INTERNAL, "%s gives up \"%s\"", how->model->name, *w);
        if (is(st, key, value)) continue;
        snprintf(was, sizeof was, "%s", tn_settings_text(st, key));
        TN_RETURN_IF(drop(st, key, value));
        snprintf(text, sizeof text, "%s %s -> %s", key, was, value);
        say(l, &how->refusal, text);
        *done = true;
    }
    return TN_OK;
}

tn_status tn_ladder_lower(tn_ladder *l, const tn_ladder_step *how, tn_settings *st)
{
    char why[512], tried[512];
    bool done = false;
    snprintf(why, sizeof why, "%s", tn_error_text());
    TN_RETURN_IF(more_parts(l, how, st, &done));
    if (!done) TN_RETURN_IF(recompute(l, how, st, &done));
    if (!done) TN_RETURN_IF(give_up(l, how, st, &done));
    if (done) return TN_OK;
    if (!l->n) return tn_error(TN_MEMORY, "%s", why);
    return tn_error(TN_MEMORY, "%s (tried: %s)", why, tn_ladder_text(l, tried, sizeof tried));
}

/* --- runs that go on ------------------------------------------------------------------------------------------------------ */

/* The next word of "loss.kd=0.5 loss.state=0.1"; NULL: there is none. */
static const char *next_word(const char *at, char *word, size_t bytes)
{
    at += strspn(at, " ");
    const size_t n = strcspn(at, " ");
    if (n == 0 || n >= bytes) return NULL;
    snprintf(word, bytes, "%.*s", (int)n, at);
    return at + n;
}

tn_status tn_ladder_undo(tn_settings *st)
{
    char dropped[512], word[128], key[64];
    const char *value, *at = dropped;
    snprintf(dropped, sizeof dropped, "%s", tn_settings_text(st, "train.dropped"));
    while ((at = next_word(at, word, sizeof word)))
        if (divide(word, key, &value)) TN_RETURN_IF(tn_settings_set(st, key, value, "train.dropped"));
    return tn_settings_set(st, "train.dropped", "", "default");
}

static bool typed(const tn_settings *st, const char *key)
{
    return strcmp(tn_settings_source(st, key), "command line") == 0;
}

tn_status tn_ladder_keep(tn_settings *now, const tn_settings *run, bool *lowered)
{
    char dropped[512], word[128], key[64];
    const char *asked, *at = dropped;
    if (!tn_ladder_on(now)) return TN_OK;
    if (tn_settings_int(run, "plan.microbatches") > tn_settings_int(now, "plan.microbatches") &&
        !typed(now, "plan.microbatches")) {
        TN_RETURN_IF(tn_settings_set(now, "plan.microbatches", tn_settings_text(run, "plan.microbatches"), "the run"));
        *lowered = true;
    }
    if (is(run, "plan.recompute", "layer") && keeps_layers(now) && !typed(now, "plan.recompute")) {
        TN_RETURN_IF(tn_settings_set(now, "plan.recompute", "layer", "the run"));
        *lowered = true;
    }
    snprintf(dropped, sizeof dropped, "%s", tn_settings_text(run, "train.dropped"));
    while ((at = next_word(at, word, sizeof word))) {
        if (!divide(word, key, &asked) || !is(now, key, asked)) continue; /* it was dropped here too */
        TN_RETURN_IF(drop(now, key, tn_settings_text(run, key)));
        *lowered = true;
    }
    return TN_OK;
}
