/* What was typed behind `tenon race`: flags, and configurations with settings of their own ("gpt,lr=1e-3,layers=6"). Nothing
 * is opened here but the tables of settings. */
#include "cli/race/race.h"

#include "base/output.h"
#include "base/setting_value.h"
#include "cli/target.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- configurations --------------------------------------------------------------------------------------------------- */

static tn_status read_racer(tn_race *r, tn_racer *x, const char *word)
{
    const tn_args *a = &r->c->args;
    tn_target t;
    for (const tn_racer *y = r->racer; y < x; y++)
        if (strcmp(y->name, word) == 0)
            return tn_error(TN_USAGE,
                            "%.200s is given twice: give one of them a setting of its own, such as %.200s,seed=1", word,
                            word);
    TN_RETURN_IF(tn_target_read(&r->arena, &r->c->user, word, a->overrides, a->overrides_n, &t));
    x->name = word;
    x->target = t.target;
    x->overrides = t.overrides;
    x->n = t.n;
    for (size_t i = 0; i < x->n; i++) {
        if (i >= a->overrides_n && strncmp(t.overrides[i], "run=", 4) == 0)
            return tn_error(TN_USAGE, "%.200s: run= applies to the whole race: write run=DIR as an argument of its own",
                            word);
        if (r->n_rates && strncmp(t.overrides[i], "train.lr=", 9) == 0)
            return tn_error(TN_USAGE, "--lr and %.200s conflict: remove one of them", t.overrides[i]);
    }
    return TN_OK;
}

/* --- flags ------------------------------------------------------------------------------------------------------------ */

static const tn_setting rows[] = {
    TN_SETTING_CHOICE("--equal", "steps", "steps|tokens|seconds", ""),
    TN_SETTING_INT("--tokens", "0", TN_RANGE(1, 1e18), "tokens", ""),
    TN_SETTING_FLOAT("--seconds", "0", TN_RANGE_ABOVE(0), "s", ""),
    TN_SETTING_INT("--parameters", "0", TN_RANGE(1, 1e15), "", ""),
    TN_SETTING_INT("--sample", "0", TN_RANGE(1, 1e6), "tokens", ""),
    TN_SETTING_FLOAT("--lr", "0", TN_RANGE_LO_OPEN(0, 1), "", ""),
};

/* The value of a flag by the row of its name; *out is untouched where it was not given. */
static tn_status read_flag(const tn_args *a, size_t row, bool *given, tn_setting_value *out)
{
    const char *text = tn_args_value(a, rows[row].key + 2);
    *given = text != NULL;
    return text ? tn_setting_parse(&rows[row], text, "command line", out) : TN_OK;
}

static tn_status read_equal(tn_race *r)
{
    tn_setting_value v = { 0 }, tokens = { 0 }, seconds = { 0 };
    bool given, by_tokens, by_seconds;
    const char *text = tn_args_value(&r->c->args, "equal");
    TN_RETURN_IF(read_flag(&r->c->args, 0, &given, &v));
    TN_RETURN_IF(read_flag(&r->c->args, 1, &by_tokens, &tokens));
    TN_RETURN_IF(read_flag(&r->c->args, 2, &by_seconds, &seconds));
    const char *wants = by_tokens ? "tokens" : by_seconds ? "seconds" : given ? text : "steps";
    if ((by_tokens && by_seconds) || (given && strcmp(wants, text) != 0))
        return tn_error(TN_USAGE, "--equal, --tokens and --seconds conflict: keep only one");
    r->equal = strcmp(wants, "tokens") == 0    ? TN_EQUAL_TOKENS
               : strcmp(wants, "seconds") == 0 ? TN_EQUAL_SECONDS
                                               : TN_EQUAL_STEPS;
    r->tokens = tokens.i;
    r->seconds = seconds.f;
    return TN_OK;
}

static tn_status read_size(tn_race *r)
{
    bool given;
    tn_setting_value v = { 0 };
    const char *text = tn_args_value(&r->c->args, "parameters");
    r->width = tn_args_value(&r->c->args, "width");
    if (r->width && !text) return tn_error(TN_USAGE, "--width=KEY needs --parameters=N or --parameters=first");
    if (text && strcmp(text, "first") == 0) r->parameters = TN_RACE_MEASURED;
    else if (text && !isdigit((unsigned char)text[0]))
        return tn_error(TN_USAGE, "--parameters=%.40s: give a number, such as 64k or 1e6, or first", text);
    else TN_RETURN_IF(read_flag(&r->c->args, 3, &given, &v));
    if (v.i) r->parameters = v.i;
    return TN_OK;
}

static tn_status read_contexts(tn_race *r)
{
    const char *given = tn_args_value(&r->c->args, "contexts");
    r->csv = tn_args_value(&r->c->args, "csv");
    if (!given && r->csv) return tn_error(TN_USAGE, "--csv=FILE needs --contexts, such as --contexts=1024..8192");
    if (!given) return TN_OK;
    return tn_spans_read("--contexts", given, &r->contexts);
}

static tn_status read_sample(tn_race *r)
{
    bool given;
    tn_setting_value v = { 0 };
    const char *text = tn_args_value(&r->c->args, "sample");
    if (text && strcmp(text, "off") == 0) return TN_OK;
    TN_RETURN_IF(read_flag(&r->c->args, 4, &given, &v));
    r->sample = v.i;
    return TN_OK;
}

/* "1e-3,3e-3": kept in growing order, each once. */
static tn_status read_rates(tn_race *r)
{
    const char *p = tn_args_value(&r->c->args, "lr");
    char word[64];
    while (p && *p) {
        tn_setting_value v;
        const size_t n = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        TN_RETURN_IF(tn_setting_parse(&rows[5], word, "command line", &v));
        size_t at = 0;
        while (at < r->n_rates && r->rate[at] < v.f) at++;
        if (at < r->n_rates && r->rate[at] == v.f) return tn_error(TN_USAGE, "--lr: %s is given twice", word);
        if (r->n_rates == TN_RACE_RATES) return tn_error(TN_USAGE, "--lr: at most %d rates", TN_RACE_RATES);
        memmove(&r->rate[at + 1], &r->rate[at], (r->n_rates++ - at) * sizeof *r->rate);
        r->rate[at] = v.f;
        p += n + (p[n] == ',');
    }
    if (tn_args_value(&r->c->args, "lr") && r->n_rates < 2)
        return tn_error(TN_USAGE,
                        "--lr takes two to %d rates, such as --lr=1e-3,3e-3,1e-2; train.lr=1e-3 sets a single one",
                        TN_RACE_RATES);
    return TN_OK;
}

static tn_status read_place(tn_race *r)
{
    const char *dir = tn_cli_override(r->c, "run");
    r->keep = !tn_args_flag(&r->c->args, "no-keep");
    if (!r->keep) return TN_OK;
    if (dir && *dir) r->dir = dir;
    const tn_status s = tn_output_dir_check(r->dir ? r->dir : "runs");
    if (s != TN_OK) tn_error_prefix("run");
    return s;
}

/* What each of them is trained at. */
static tn_status name_trials(tn_race *r, tn_racer *x)
{
    x->n_trials = r->n_rates ? r->n_rates : 1;
    for (size_t k = 0; k < x->n_trials; k++) {
        tn_race_trial *t = &x->trial[k];
        t->label = x->name;
        if (!r->n_rates) continue;
        t->rate = tn_arena_printf(&r->arena, "%g", r->rate[k]);
        t->label = tn_arena_printf(&r->arena, "%s at lr %g", x->name, r->rate[k]);
        if (!t->rate || !t->label) return tn_error(TN_MEMORY, "out of memory");
    }
    return TN_OK;
}

tn_status tn_race_read(tn_cli *c, tn_race *r)
{
    *r = (tn_race){ .c = c, .svg = tn_args_value(&c->args, "svg") };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, TN_RACE_MOST));
    TN_RETURN_IF(read_place(r));
    TN_RETURN_IF(read_rates(r));
    TN_RETURN_IF(read_equal(r));
    TN_RETURN_IF(read_size(r));
    TN_RETURN_IF(read_sample(r));
    TN_RETURN_IF(read_contexts(r));
    for (; r->n < c->args.positional_n; r->n++) {
        TN_RETURN_IF(read_racer(r, &r->racer[r->n], tn_args_positional(&c->args, r->n)));
        TN_RETURN_IF(name_trials(r, &r->racer[r->n]));
    }
    return TN_OK;
}

void tn_race_free(tn_race *r)
{
    for (size_t i = 0; i < TN_RACE_MOST; i++) {
        tn_racer *x = &r->racer[i];
        for (size_t k = 0; k < TN_RACE_RATES; k++) {
            tn_train_view_free(&x->trial[k].view);
            tn_race_weights_free(&x->trial[k].weights);
        }
        tn_settings_free(x->settings);
        tn_text_free(&x->sample);
    }
    tn_text_free(&r->prompt);
    tn_arena_free(&r->arena);
}
