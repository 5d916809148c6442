/* What is not equal although nobody asked for it: settings with other values on other sides, found by comparing the tables, not by a
 * list of names. Left out is what a side was given by name (it stands in its name), what the race itself makes equal or shows, and
 * what does not shape the numbers of a run. Settings that one model alone has are that model. */
#include "cli/race/race.h"
#include "train/run/dropout_auto.h"
#include "train/run/same_settings.h"

#include <string.h>

/* Whether a side's own words, behind its comma, set it. */
static bool typed_for_one(const tn_race *r, const char *key)
{
    char word[128];
    for (size_t i = 0; i < r->n; i++) {
        const tn_racer *x = &r->racer[i];
        for (size_t k = r->c->args.overrides_n; k < x->n; k++) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(x->overrides[k], "="), x->overrides[k]);
            const size_t at = tn_settings_find(x->settings, word); /* task is short for task.name */
            if (at < tn_settings_count(x->settings) && strcmp(tn_settings_row_at(x->settings, at)->key, key) == 0)
                return true;
        }
    }
    return false;
}

static bool settled(const tn_race *r, const char *key)
{
    if (strcmp(key, "model") == 0 || tn_settings_may_change(key)) return true;
    if (strcmp(key, "train.steps") == 0) return r->equal != TN_EQUAL_STEPS;
    if (strcmp(key, "train.lr") == 0) return r->n_rates > 0;
    return false;
}

/* The value on side i, or NULL where it has none or --parameters chose it. */
static const char *value_on(const tn_racer *x, const char *key)
{
    const size_t at = tn_settings_find(x->settings, key);
    if (at == tn_settings_count(x->settings) || strcmp(tn_settings_source_at(x->settings, at), "--parameters") == 0)
        return NULL;
    if (tn_settings_row_at(x->settings, at)->type == TN_TYPE_AUTO_FLOAT &&
        strcmp(tn_settings_source_at(x->settings, at), TN_DROPOUT_CHOSEN) == 0)
        return "auto"; /* by epochs that the race has yet to make equal */
    return tn_settings_text_at(x->settings, at);
}

static bool differs(const tn_race *r, const char *key, tn_race_difference *d)
{
    const char *first = NULL;
    bool other = false;
    *d = (tn_race_difference){ .key = key };
    for (size_t i = 0; i < r->n; i++) {
        const char *v = d->value[i] = value_on(&r->racer[i], key);
        if (v && !first) first = v;
        other |= v && strcmp(v, first) != 0;
    }
    return other && !settled(r, key) && !typed_for_one(r, key);
}

static bool seen_before(const tn_race *r, size_t side, const char *key)
{
    for (size_t i = 0; i < side; i++)
        if (tn_settings_find(r->racer[i].settings, key) < tn_settings_count(r->racer[i].settings)) return true;
    return false;
}

tn_status tn_race_differ(tn_race *r)
{
    size_t most = 0;
    for (size_t i = 0; i < r->n; i++) most += tn_settings_count(r->racer[i].settings);
    r->differs = tn_arena_alloc(&r->arena, most * sizeof *r->differs);
    if (!r->differs) return tn_error(TN_MEMORY, "out of memory");
    r->n_differs = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < tn_settings_count(r->racer[i].settings); k++) {
            const char *key = tn_settings_row_at(r->racer[i].settings, k)->key;
            if (!seen_before(r, i, key) && differs(r, key, &r->differs[r->n_differs])) r->n_differs++;
        }
    return TN_OK;
}
