/* Finds the width with a given number of parameters, which usually grows with the width; where it does not quite (heads
 * that depend on dim), the nearest of all counts seen wins. The settings change only at the end.
 *
 * A GPU computes matrix products in tiles of 64 and more columns, and heads of 64: widths between pay for whole tiles, or take
 * slower kernels. Below 128 steps of 64 would leave the shape of the network to chance. */
#include "train/trainer/width_fit.h"

#include "base/status.h"
#include "train/trainer/graph_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUND = 8, LEAPS = 32 }; /* widths that processors like; refused values in a row that are stepped over */

static const double NEAR = 0.01,      /* part of the wanted number that an even width may differ by */
    NARROW = 2 / 3.0, WIDE = 3 / 2.0; /* of the model's own ffn: beyond them it would be another network */

tn_status tn_tensors_count(const tn_model *model, const tn_settings *st, const tn_input_spec *input_spec,
                           int64_t *parameters, int64_t *frozen)
{
    tn_graph_setup setup;
    tn_graph *g = NULL;
    int64_t n = 0, still = 0;
    const tn_graph_shape shape = {
        .batch = 1, .length = tn_inputs_length(model, st), .training = true, .input_spec = input_spec
    };
    TN_RETURN_IF(tn_graph_setup_read(st, &(tn_device){ TN_CPU }, 1, &setup));
    TN_RETURN_IF(tn_graph_setup_build(&setup, model, st, &shape, &g));
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (g->tensor[i].base != (int32_t)i) continue;
        if (g->tensor[i].role == TN_ROLE_PARAM) n += tn_gtensor_count(&g->tensor[i]);
        if (g->tensor[i].role == TN_ROLE_FROZEN) still += tn_gtensor_count(&g->tensor[i]);
    }
    tn_graph_free(g);
    *parameters = n;
    if (frozen) *frozen = still;
    return TN_OK;
}

typedef struct search {
    const tn_model *model;
    tn_settings *st; /* changed at every try */
    const tn_input_spec *input_spec;
    const char *key;
    int64_t unit, most; /* values tried are multiples of the unit */
    int64_t wanted;
    int64_t best, best_count; /* value and count; 0: none yet */
} search;

static int64_t distance(int64_t a, int64_t b) { return a > b ? a - b : b - a; }

static tn_status set_width(search *s, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return tn_settings_set(s->st, s->key, text, "--parameters");
}

/* The count at a value, 0 where the model refuses it. */
static tn_status try_width(search *s, int64_t value, int64_t *count)
{
    *count = 0;
    TN_RETURN_IF(set_width(s, value));
    const tn_status st = tn_tensors_count(s->model, s->st, s->input_spec, count, NULL);
    if (st != TN_OK) return st == TN_USAGE ? TN_OK : st;
    if (s->best && distance(*count, s->wanted) >= distance(s->best_count, s->wanted)) return TN_OK;
    s->best = value;
    s->best_count = *count;
    return TN_OK;
}

/* The first value from `from` on, at most `last` (both in units), that the model takes; *at is last + 1 where there is none. */
static tn_status next_width(search *s, int64_t from, int64_t last, int64_t tries, int64_t *at, int64_t *count)
{
    *count = 0;
    for (*at = from; *at <= last && tries > 0; ++*at, tries--) {
        TN_RETURN_IF(try_width(s, *at * s->unit, count));
        if (*count) return TN_OK;
    }
    *at = last + 1;
    return TN_OK;
}

/* Halves the widths between one that is too small and one that is too large. */
static tn_status bisect(search *s)
{
    int64_t at, count, first, low, high;
    TN_RETURN_IF(next_width(s, 1, s->most / s->unit, s->most / s->unit, &first, &count));
    if (!count) return TN_OK;
    s->unit *= first; /* multiples of heads, say, and nothing between */
    for (low = 1, high = s->most / s->unit + 1; high - low > 1 && s->best_count != s->wanted;) {
        const int64_t middle = low + (high - low) / 2;
        TN_RETURN_IF(next_width(s, middle, high - 1, LEAPS, &at, &count));
        if (count && count < s->wanted) low = at;
        else high = middle;
    }
    return TN_OK;
}

static int64_t most_of(const tn_settings *st, const char *key)
{
    const tn_setting *row = tn_settings_row_at(st, tn_settings_find(st, key));
    return row->max < 1e12 ? (int64_t)row->max : (int64_t)1e12;
}

/* s->best is 0 where the model takes none. */
static tn_status find_key(search *s, const char *key, int64_t unit)
{
    s->key = key;
    s->unit = unit;
    s->most = most_of(s->st, key);
    s->best = s->best_count = 0;
    TN_RETURN_IF(bisect(s));
    return s->best ? set_width(s, s->best) : TN_OK;
}

static tn_status search_key(search *s, const char *key, int64_t unit)
{
    TN_RETURN_IF(find_key(s, key, unit));
    if (s->best) return TN_OK;
    return tn_tensors_count(s->model, s->st, s->input_spec, &s->best_count, NULL); /* for the model's own words */
}

static bool within(const search *s, double part)
{
    return (double)distance(s->best_count, s->wanted) <= part * (double)s->wanted;
}

static bool near_enough(const search *s) { return within(s, TN_WIDTH_TOLERANCE); }

/* --- widths that GPUs like ------------------------------------------------------------------------------------------- */

/* The count is linear in ffn. Of the values near the one that is wanted, the roundest that is near enough; *found is false where
 * there is none. */
static tn_status fill_with_ffn(search *s, bool *found)
{
    const int64_t a = 64, own_count = s->best_count, most = most_of(s->st, "ffn");
    int64_t at_a, at_b;
    *found = false;
    s->key = "ffn";
    TN_RETURN_IF(try_width(s, a, &at_a));
    TN_RETURN_IF(try_width(s, 2 * a, &at_b));
    if (!at_a || at_b <= at_a) return TN_OK;
    const double slope = (double)(at_b - at_a) / (double)a, own = (double)(own_count - at_a) / slope + (double)a,
                 ffn = (double)(s->wanted - at_a) / slope + (double)a;
    if (!(ffn >= NARROW * own && ffn <= WIDE * own)) return TN_OK;
    for (int64_t unit = a; unit >= ROUND && !*found; unit /= 2) {
        const int64_t value = (int64_t)(ffn / (double)unit + 0.5) * unit;
        int64_t count;
        if (value < unit || value > most) continue;
        s->best = s->best_count = 0;
        TN_RETURN_IF(try_width(s, value, &count));
        *found = s->best && (within(s, NEAR) || (unit == ROUND && near_enough(s)));
    }
    return TN_OK;
}

/* The settings as they were, with their sources. */
static tn_status undo(search *s, const tn_settings *before)
{
    tn_settings *st;
    TN_RETURN_IF(tn_settings_clone(before, &st));
    tn_settings_swap(s->st, st);
    tn_settings_free(st);
    return TN_OK;
}

static tn_status try_even(search *s, int64_t unit, tn_width *w, bool *found)
{
    TN_RETURN_IF(find_key(s, "dim", unit));
    const long long dim = s->best;
    *found = dim && within(s, NEAR);
    snprintf(w->text, sizeof w->text, "dim=%lld", dim);
    if (!dim || *found) return TN_OK;
    TN_RETURN_IF(fill_with_ffn(s, found));
    snprintf(w->text, sizeof w->text, "dim=%lld ffn=%lld", dim, (long long)s->best);
    return TN_OK;
}

/* Whether ffn is a size of this network: kinds of a model without one keep their nearest width. */
static tn_status has_ffn(const search *s, bool *out)
{
    search probe = *s;
    int64_t count;
    *out = false;
    if (!tn_inputs_setting(s->st, "ffn") || !tn_settings_is_auto(s->st, "ffn")) return TN_OK;
    TN_RETURN_IF(tn_settings_clone(s->st, &probe.st));
    probe.key = "ffn";
    const tn_status st = try_width(&probe, ROUND, &count);
    *out = st == TN_OK && count && count != s->best_count;
    tn_settings_free(probe.st);
    return st;
}

/* A dim of even steps where the nearest multiple of 8 is wide enough for them, and ffn takes up the rest. *found is false, and
 * the search as it was, where there is none. */
static tn_status search_even(search *s, tn_width *w, bool *found)
{
    static const struct {
        int64_t from, unit;
    } steps[] = { { 256, 64 }, { 128, 32 }, { 128, 16 } };
    const search plain = *s;
    tn_settings *before;
    tn_status st = TN_OK;
    bool matters;
    *found = false;
    TN_RETURN_IF(has_ffn(s, &matters));
    if (!matters) return TN_OK;
    TN_RETURN_IF(tn_settings_clone(s->st, &before));
    for (size_t i = 0; i < sizeof steps / sizeof *steps && st == TN_OK && !*found; i++) {
        if (plain.best < steps[i].from) continue;
        st = try_even(s, steps[i].unit, w, found);
        if (st == TN_OK && !*found) st = undo(s, before);
    }
    if (!*found) *s = plain;
    tn_settings_free(before);
    return st;
}

/* --- any width ------------------------------------------------------------------------------------------------------- */

static tn_status search_widths(search *s, const char *key, tn_width *w)
{
    const char *first = key ? key : "dim";
    if (!tn_inputs_setting(s->st, first))
        return tn_error(
            TN_USAGE,
            "model %s has no integer setting %.40s to change its size by: name one with --width=KEY (a study: `width`)",
            s->model->name, first);
    TN_RETURN_IF(search_key(s, first, ROUND));
    bool even = false;
    if (!key && s->best) TN_RETURN_IF(search_even(s, w, &even));
    if (even) return TN_OK;
    snprintf(w->text, sizeof w->text, "%s=%lld", first, (long long)s->best);
    if (!near_enough(s) && !key && tn_inputs_setting(s->st, "ffn")) {
        const search before = *s;
        char was[32];
        snprintf(was, sizeof was, "%s", tn_settings_text(s->st, "ffn"));
        TN_RETURN_IF(search_key(s, "ffn", ROUND));
        if (near_enough(s)) {
            snprintf(w->text, sizeof w->text, "dim=%lld ffn=%lld", (long long)before.best, (long long)s->best);
            return TN_OK;
        }
        *s = before;
        TN_RETURN_IF(tn_settings_set(s->st, "ffn", was, "--parameters"));
    }
    if (near_enough(s)) return TN_OK;
    TN_RETURN_IF(search_key(s, first, 1));
    snprintf(w->text, sizeof w->text, "%s=%lld", first, (long long)s->best);
    return TN_OK;
}

tn_status tn_width_fit(const tn_model *model, tn_settings *st, const tn_input_spec *input_spec, const char *key,
                       int64_t parameters, tn_width *out)
{
    tn_status s = TN_OK;
    tn_width w = { 0 };
    search k = { .model = model, .input_spec = input_spec, .wanted = parameters };
    TN_RETURN_IF(tn_settings_clone(st, &k.st));
    TN_TRY(search_widths(&k, key, &w));
    w.parameters = k.best_count;
    if (!near_enough(&k))
        TN_FAIL(TN_USAGE,
                "no value of %s gives %s about %lld parameters (within 3 %%): the nearest is %lld, at %s; ask for "
                "that, or change another setting with "
                "--width=KEY (a study: `width`)",
                key ? key : "dim", model->name, (long long)parameters, (long long)w.parameters, w.text);
    tn_settings_swap(st, k.st);
    *out = w;
done:
    tn_settings_free(k.st);
    return s;
}
