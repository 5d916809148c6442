/* Rules that stop a trial: parsing one, and testing it at a step. A rule reads one metric and its own past. */
#include "lab/search/pruner.h"

#include "base/setting_value.h"
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORMS "write `loss > 5`, `loss is nan`, `solver_iters at cap for 20 steps` or `loss > 2 after 5 epochs`"

static tn_status refuse(const char *text, const char *why)
{
    char quoted[96];
    return tn_error(TN_USAGE, "rule \"%s\": %s; " FORMS, tn_text_quote(text, quoted, sizeof quoted), why);
}

static void skip_space(const char **at)
{
    while (isspace((unsigned char)**at)) (*at)++;
}

/* Takes the word if it comes next as a whole word. */
static bool take(const char **at, const char *word)
{
    const size_t n = strlen(word);
    skip_space(at);
    if (strncmp(*at, word, n) != 0 || isalnum((unsigned char)(*at)[n]) || (*at)[n] == '_') return false;
    *at += n;
    return true;
}

static bool take_metric(const char **at, char *out, size_t bytes)
{
    size_t n = 0;
    skip_space(at);
    if (!isalpha((unsigned char)**at)) return false;
    while (isalnum((unsigned char)(*at)[n]) || ((*at)[n] && strchr("_.@", (*at)[n]))) n++;
    if (n >= bytes) return false;
    memcpy(out, *at, n);
    out[n] = 0;
    *at += n;
    return true;
}

/* A number up to the next white space, as settings write it. */
static bool take_number(const char **at, bool whole, tn_setting_value *out)
{
    const tn_setting rows[2] = { TN_SETTING_FLOAT("rule", "0", TN_RANGE_ANY, "", ""),
                                 TN_SETTING_INT("rule", "0", TN_RANGE_MIN(1), "", "") };
    char word[64];
    size_t n = 0;
    skip_space(at);
    while ((*at)[n] && !isspace((unsigned char)(*at)[n])) n++;
    if (n == 0 || n >= sizeof word) return false;
    memcpy(word, *at, n);
    word[n] = 0;
    *at += n;
    return tn_setting_parse(&rows[whole], word, "rule", out) == TN_OK;
}

static bool take_compare(const char **at, int *compare)
{
    static const struct {
        const char *sign;
        int code;
    } signs[] = { { "<=", 'l' }, { ">=", 'g' }, { "<", '<' }, { ">", '>' } };
    skip_space(at);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const size_t n = strlen(signs[i].sign);
        if (strncmp(*at, signs[i].sign, n) != 0) continue;
        *at += n;
        *compare = signs[i].code;
        return true;
    }
    return false;
}

static tn_status parse_condition(const char *text, const char **at, tn_rule *r)
{
    tn_setting_value v = { 0 };
    if (!take_metric(at, r->metric, sizeof r->metric)) return refuse(text, "it must begin with the name of a metric");
    if (take(at, "is")) {
        r->compare = 'n';
        return take(at, "nan") ? TN_OK : refuse(text, "`is` takes only `nan`");
    }
    if (take(at, "at")) {
        r->compare = 'c';
        return take(at, "cap") ? TN_OK : refuse(text, "`at` takes only `cap`");
    }
    if (!take_compare(at, &r->compare))
        return refuse(text, "the metric must be followed by <, <=, >, >=, `at cap` or `is nan`");
    if (!take_number(at, false, &v)) return refuse(text, "the sign must be followed by a number");
    r->value = v.f;
    return TN_OK;
}

/* "for 50 steps", "after 5 epochs", each once and in either order. */
static tn_status parse_clauses(const char *text, const char **at, tn_rule *r)
{
    bool has_for = false, has_after = false;
    for (skip_space(at); **at; skip_space(at)) {
        const bool is_for = !has_for && take(at, "for"), is_after = !is_for && !has_after && take(at, "after");
        tn_setting_value v = { 0 };
        if (!is_for && !is_after)
            return refuse(text, "what follows is neither `for N steps` nor `after N steps` or `after N epochs`");
        if (!take_number(at, true, &v)) return refuse(text, "`for` and `after` need a whole number above 0");
        const bool epochs = take(at, "epochs") || take(at, "epoch");
        if (!epochs && !take(at, "steps") && !take(at, "step"))
            return refuse(text, "the number must be followed by steps or epochs");
        if (is_for && epochs) return refuse(text, "`for` counts steps, not epochs");
        if (is_for) r->streak = v.i;
        else r->after = v.i, r->after_epochs = epochs;
        has_for |= is_for;
        has_after |= is_after;
    }
    return TN_OK;
}

tn_status tn_rule_parse(const char *text, tn_rule *out)
{
    tn_rule r = { .streak = 1 };
    const char *at = text;
    TN_RETURN_IF(parse_condition(text, &at, &r));
    TN_RETURN_IF(parse_clauses(text, &at, &r));
    *out = r;
    return TN_OK;
}

static bool holds(const tn_rule *r, double v, double cap)
{
    switch (r->compare) {
    case '<': return v < r->value;
    case '>': return v > r->value;
    case 'l': return v <= r->value;
    case 'g': return v >= r->value;
    case 'c': return v >= cap;
    default: return !isfinite(v);
    }
}

bool tn_rule_step(tn_rule *r, int64_t step, double epoch, double value, double cap)
{
    if (r->after_epochs ? epoch < (double)r->after : step < r->after) return false;
    if (isnan(value) && r->compare != 'n') return false;
    if (!holds(r, value, cap)) {
        r->held = 0;
        return false;
    }
    if (r->held == 0) r->since = step;
    r->held = step - r->since + 1;
    return r->held >= r->streak;
}
