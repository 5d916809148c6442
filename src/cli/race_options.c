/* What was typed behind `tenon race`: flags, and configurations with settings of their own ("gpt,lr=1e-3,layers=6"). Nothing
 * is opened here but the tables of settings. */
#include "cli/race.h"

#include "base/setting_value.h"
#include "cli/target.h"

#include <stdlib.h>
#include <string.h>

/* --- configurations --------------------------------------------------------------------------------------------------- */

static tn_status read_racer(tn_race *r, tn_racer *x, const char *word)
{
    const tn_args *a = &r->c->args;
    tn_target t;
    for (const tn_racer *y = r->racer; y < x; y++)
        if (strcmp(y->name, word) == 0)
            return tn_error(TN_USAGE, "%.200s stands there twice: give one of them a setting of its own, such as %.200s,seed=1", word,
                            word);
    TN_RETURN_IF(tn_target_read(&r->arena, &r->c->asked, word, a->overrides, a->overrides_n, &t));
    x->name = word;
    x->target = t.target;
    x->overrides = t.overrides;
    x->n = t.n;
    return TN_OK;
}

/* --- flags ------------------------------------------------------------------------------------------------------------ */

static const tn_setting rows[] = {
    TN_SETTING_CHOICE("--equal", "steps", "steps|tokens|seconds", ""),
    TN_SETTING_INT("--tokens", "0", TN_RANGE(1, 1e18), "tokens", ""),
    TN_SETTING_FLOAT("--seconds", "0", TN_RANGE_ABOVE(0), "s", ""),
    TN_SETTING_INT("--parameters", "0", TN_RANGE(1, 1e15), "", ""),
    TN_SETTING_INT("--sample", "0", TN_RANGE(1, 1e6), "tokens", ""),
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
        return tn_error(TN_USAGE, "--equal, --tokens and --seconds contradict each other: leave out all but one");
    r->equal = strcmp(wants, "tokens") == 0 ? TN_EQUAL_TOKENS : strcmp(wants, "seconds") == 0 ? TN_EQUAL_SECONDS : TN_EQUAL_STEPS;
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
    if (r->width && !text) return tn_error(TN_USAGE, "--width=KEY is for --parameters=N or --parameters=first: name one of them");
    if (text && strcmp(text, "first") == 0) r->parameters = TN_RACE_MEASURED;
    else TN_RETURN_IF(read_flag(&r->c->args, 3, &given, &v));
    if (v.i) r->parameters = v.i;
    return TN_OK;
}

static tn_status read_contexts(tn_race *r)
{
    const char *given = tn_args_value(&r->c->args, "contexts");
    r->csv = tn_args_value(&r->c->args, "csv");
    if (!given && r->csv) return tn_error(TN_USAGE, "--csv=FILE is the table of --contexts: name some, such as --contexts=1024..8192");
    if (!given) return TN_OK;
    return tn_context_list_read(given, &r->contexts);
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

tn_status tn_race_read(tn_cli *c, tn_race *r)
{
    *r = (tn_race){ .c = c, .svg = tn_args_value(&c->args, "svg") };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, TN_RACE_MOST));
    TN_RETURN_IF(read_equal(r));
    TN_RETURN_IF(read_size(r));
    TN_RETURN_IF(read_sample(r));
    TN_RETURN_IF(read_contexts(r));
    for (; r->n < c->args.positional_n; r->n++)
        TN_RETURN_IF(read_racer(r, &r->racer[r->n], tn_args_positional(&c->args, r->n)));
    return TN_OK;
}

void tn_race_free(tn_race *r)
{
    for (size_t i = 0; i < TN_RACE_MOST; i++) {
        tn_train_view_free(&r->racer[i].view);
        tn_text_free(&r->racer[i].sample);
    }
    tn_text_free(&r->prompt);
    tn_arena_free(&r->arena);
}
