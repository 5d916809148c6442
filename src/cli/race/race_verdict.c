/* The verdict of a race in two sentences: which side is best and by how much, and what that costs. Computes nothing but ratios of what the
 * tables show. A race trains one seed, and says so. */
#include "cli/race/race.h"
#include "cli/view.h"

#include <math.h>
#include <string.h>

/* Below this ratio one seed says nothing: seeds of small language models differ by about as much. */
static const double TIE = 0.01;

typedef struct standing {
    const tn_racer *x;
    const tn_metric_row *row;
    double score;
    char text[24];
} standing;

/* Of the test split, or of the best evaluation. */
static bool score_of(const tn_racer *x, bool test, standing *out)
{
    const tn_race_trial *t = tn_race_chosen(x);
    if (!t) return false;
    const tn_scores *s = test ? &x->test.scores : &t->last.best;
    out->x = x;
    out->row = tn_race_score(&t->last, s, &out->score);
    tn_race_score_text(&t->last, s, test ? x->test_bits : t->last.bits, out->text);
    return !isnan(out->score);
}

/* Best first; 0 where fewer than two sides can be compared. */
static size_t rank(const tn_race *r, bool test, standing *to)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        standing s;
        if (!score_of(&r->racer[i], test, &s)) {
            if (test) return 0;
            continue;
        }
        size_t k = n++;
        for (; k > 0 && tn_metric_better(s.row, s.score, to[k - 1].score); k--) to[k] = to[k - 1];
        to[k] = s;
    }
    return n < 2 ? 0 : n;
}

static void print_difference(FILE *f, const standing *a, const standing *b, const tn_metric_row *m)
{
    if (tn_metric_is_fraction(m)) fprintf(f, " (%.1f points)", 100 * fabs(a->score - b->score));
    else if (tn_metric_is_nats(m) && b->score > 0)
        fprintf(f, " (%.1f %% %s)", 100 * fabs(1 - a->score / b->score), a->score < b->score ? "lower" : "higher");
    else
        fprintf(f, " (%s by %.3g%s%s)", a->score < b->score ? "lower" : "higher", fabs(a->score - b->score),
                *tn_metric_unit(m) ? " " : "", tn_metric_unit(m));
}

static void print_quality(const tn_race *r, const standing *s, size_t n, bool test)
{
    FILE *f = r->c->out;
    const tn_metric_row *m = s[0].row;
    const double scale = tn_metric_is_fraction(m) ? 1 : fabs(s[1].score);
    const char *where = test ? "on the test split" : "on held-out data";
    const bool tie = fabs(s[0].score - s[1].score) <= TIE * scale;
    if (tie)
        fprintf(f, "verdict %s and %s are within 1 %% %s (%s and %s): one seed cannot tell them apart", s[0].x->name,
                s[1].x->name, where, s[0].text, s[1].text);
    else {
        fprintf(f, "verdict %s is best %s: %s against %s for %s", s[0].x->name, where, s[0].text, s[1].text,
                s[1].x->name);
        print_difference(f, &s[0], &s[1], m);
    }
    for (size_t i = 2; i < n; i++) fprintf(f, ", then %s with %s", s[i].x->name, s[i].text);
    if (!tie && r->n_rates)
        fprintf(f, "; each at the best of %zu learning rates, one seed (`tenon lab compare` tests several)",
                r->n_rates);
    else if (!tie) fputs("; one learning rate and one seed each (--lr=A,B,C and `tenon lab compare` try several)", f);
    fputs(". ", f);
}

static double speed_of(const tn_progress_report *l)
{
    return isnan(l->samples_per_s) ? l->tokens_per_s : l->samples_per_s;
}

/* The longest context that was measured for both, or NULL. */
static const tn_context_row *longest(const tn_racer *a, const tn_racer *b, const tn_context_row **of_b)
{
    const size_t n = a->n_measured < b->n_measured ? a->n_measured : b->n_measured;
    for (size_t i = n; i > 0; i--) {
        *of_b = &b->context[i - 1];
        if (!isnan(a->context[i - 1].tokens_per_s) && !isnan((*of_b)->tokens_per_s)) return &a->context[i - 1];
    }
    return NULL;
}

static void print_cost(const tn_race *r, const tn_racer *a, const tn_racer *b)
{
    FILE *f = r->c->out;
    const tn_progress_report *la = &tn_race_chosen(a)->last, *lb = &tn_race_chosen(b)->last;
    const tn_context_row *kb = NULL, *ka = longest(a, b, &kb);
    const double speed = speed_of(la) / speed_of(lb);
    const bool ahead = speed >= 1;
    fprintf(f, "In training %s is %.2f times as fast as %s", (ahead ? a : b)->name, ahead ? speed : 1 / speed,
            (ahead ? b : a)->name);
    if (b->bytes)
        fprintf(f, "; %s needs %.2f times the memory of %s", a->name, (double)a->bytes / (double)b->bytes, b->name);
    if (ka) {
        const double x = ka->tokens_per_s / kb->tokens_per_s, faster = x >= 1 ? x : 1 / x;
        fprintf(f, ". At a context of %lld %s is %.*f times as fast", (long long)ka->context, (x >= 1 ? a : b)->name,
                faster < 10 ? 2 : 0, faster);
        if (kb->bytes)
            fprintf(f, ", and %s needs %.2f times the memory", a->name, (double)ka->bytes / (double)kb->bytes);
    }
    fputs(".\n", f);
}

void tn_race_verdict(const tn_race *r)
{
    standing s[TN_RACE_MOST];
    bool test = true;
    size_t n = rank(r, true, s);
    if (!n) test = false, n = rank(r, false, s);
    if (!n) return;
    for (size_t i = 0; i < n; i++)
        if (!tn_race_chosen(s[i].x)->finished) return; /* not of equal budgets */
    fputc('\n', r->c->out);
    print_quality(r, s, n, test);
    print_cost(r, s[0].x, s[1].x);
}
