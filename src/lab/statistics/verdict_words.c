/* Verdicts in words. */
#include "lab/statistics/compare.h"

#include <math.h>
#include <stdio.h>

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

const char *tn_verdict_text(const tn_paired *r, const tn_judged *v, const char *a, const char *b, char *buf,
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
