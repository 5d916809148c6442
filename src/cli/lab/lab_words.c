/* Verdicts in words. */
#include "cli/lab/lab_view.h"

#include <math.h>
#include <stdlib.h>

tn_status tn_lab_effect(const tn_cli *c, double *out)
{
    const char *text = tn_args_value(&c->args, "effect");
    char *end;
    *out = NAN;
    if (!text) return TN_OK;
    const double v = strtod(text, &end);
    if (!*text || *end || !isfinite(v) || v <= 0)
        return tn_error(TN_USAGE, "--effect=%.32s: give a number above 0, the smallest difference that matters", text);
    *out = v;
    return TN_OK;
}

const char *tn_lab_verdict_short(const tn_judged *v, char *buf, size_t size)
{
    if (v->word == TN_NO_DIFFERENCE) snprintf(buf, size, "no difference");
    else if (v->word == TN_IDENTICAL) snprintf(buf, size, "identical");
    else if (v->word != TN_UNDECIDED) snprintf(buf, size, "%s", v->better > 0 ? "better" : "worse");
    else if (v->seeds) snprintf(buf, size, "needs %zu seeds", v->seeds);
    else snprintf(buf, size, "> %d seeds", TN_SEEDS_MOST);
    return buf;
}

void tn_lab_verdict_json(json_t *row, const tn_paired *r, const tn_judged *v, const char *a, const char *b)
{
    static const char *const words[] = { [TN_UNDECIDED] = "undecided",
                                         [TN_A_LARGER] = "better",
                                         [TN_B_LARGER] = "better",
                                         [TN_NO_DIFFERENCE] = "no difference",
                                         [TN_IDENTICAL] = "identical" };
    json_object_set_new(row, "difference", json_real(r->difference));
    json_object_set_new(row, "lo", tn_number_or_null(r->lo));
    json_object_set_new(row, "hi", tn_number_or_null(r->hi));
    json_object_set_new(row, "p", json_real(r->p));
    json_object_set_new(row, "comparisons", json_integer((json_int_t)v->comparisons));
    json_object_set_new(row, "effect_asked", json_real(v->effect));
    json_object_set_new(row, "effect_seen", tn_number_or_null(v->seen));
    json_object_set_new(row, "verdict", json_string(words[v->word]));
    json_object_set_new(row, "better", json_string(v->better > 0 ? a : v->better < 0 ? b : ""));
    if (v->word == TN_UNDECIDED)
        json_object_set_new(row, "seeds_needed", v->seeds ? json_integer((json_int_t)v->seeds) : json_null());
}
