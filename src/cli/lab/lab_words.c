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

/* Upwards, so that no smaller size is claimed than was computed. */
static const char *size_text(double v, char buf[24])
{
    const double unit = pow(10, floor(log10(v)) - 2);
    snprintf(buf, 24, "%.3g", ceil(v / unit * (1 - 1e-12)) * unit);
    return buf;
}

static void undecided_text(const tn_paired *r, const tn_judged *v, char *buf, size_t size)
{
    char aim[24], seen[24];
    size_text(v->aim, aim);
    if (!isnan(v->seen)) size_text(v->seen, seen);
    if (!v->seeds)
        snprintf(buf, size,
                 "undecided: more than %d seeds are needed to detect an effect of %s: choose a larger --effect",
                 TN_SEEDS_MOST, aim);
    else if (r->n == 1) snprintf(buf, size, "undecided: at least %zu seeds are needed", v->seeds);
    else if (isnan(v->seen))
        snprintf(buf, size, "undecided: at least %zu seeds are needed when all pairs differ by the same amount",
                 v->seeds);
    else
        snprintf(buf, size, "undecided: at least %zu seeds are needed to detect an effect of %s (%zu seeds detect %s)",
                 v->seeds, aim, r->n, seen);
}

const char *tn_lab_verdict_text(const tn_paired *r, const tn_judged *v, const char *a, const char *b, char *buf,
                                size_t size)
{
    char number[24];
    switch (v->word) {
    case TN_A_LARGER:
    case TN_B_LARGER: {
        const bool small = fmax(fabs(r->lo), fabs(r->hi)) < v->effect;
        snprintf(buf, size, "%.64s is better%s%s", v->better > 0 ? a : b, small ? ", by less than " : "",
                 small ? size_text(v->effect, number) : "");
        break;
    }
    case TN_NO_DIFFERENCE:
        snprintf(buf, size, "no difference (an effect of at least %s would have been detected with 80 %% power)",
                 size_text(v->seen, number));
        break;
    case TN_IDENTICAL:
        snprintf(buf, size, "identical on %s%zu seed%s", r->n > 1 ? "all " : "", r->n, r->n > 1 ? "s" : "");
        break;
    case TN_UNDECIDED: undecided_text(r, v, buf, size); break;
    }
    return buf;
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
