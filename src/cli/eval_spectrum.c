/* The spectrum of a trained model on a batch of held-out text: what its instruments say of each layer, and a histogram of time
 * constants, or of |lambda| = exp(-1/tau), which is the same. */
#include "cli/eval.h"

#include "base/alloc.h"
#include "cli/table_file.h"
#include "report/chart.h"
#include "train/spread.h"
#include "train/training.h"

#include <math.h>
#include <string.h>

enum { MOST_SAID = 256, MOST_KINDS = 8 };

typedef struct seen {
    tn_spreads spreads;
    struct { char name[64]; double value; } said[MOST_SAID];
    size_t n_said;
    char kind[MOST_KINDS][8]; /* "D": the part of a name before "tau" */
    tn_spread by_kind[MOST_KINDS];
    size_t n_kinds;
    int first, end; /* octaves that any state lies in */
} seen;

/* --- listening -------------------------------------------------------------------------------------------------------- */

static void hear(void *ctx, const char *name, double value, const char *unit)
{
    seen *s = ctx;
    (void)unit;
    if (s->n_said == MOST_SAID) return;
    snprintf(s->said[s->n_said].name, sizeof s->said[0].name, "%s", name);
    s->said[s->n_said++].value = value;
}

/* "layer0.D.tau": D */
static const char *kind_of(const char *name, char kind[8])
{
    const char *end = strrchr(name, '.'), *start = end;
    while (start && start > name && start[-1] != '.') start--;
    snprintf(kind, 8, "%.*s", end ? (int)(end - start) : 0, end ? start : "");
    return kind;
}

static void hear_spread(void *ctx, const char *name, double value, const char *unit)
{
    seen *s = ctx;
    char kind[8];
    size_t k = 0;
    tn_spreads_take(&s->spreads, name, value, unit);
    kind_of(name, kind);
    while (k < s->n_kinds && strcmp(s->kind[k], kind) != 0) k++;
    if (k == MOST_KINDS) return;
    if (k == s->n_kinds) memcpy(s->kind[s->n_kinds++], kind, sizeof kind);
    tn_spread_add(&s->by_kind[k], value);
}

static int64_t octave_of(const seen *s, int k)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_kinds; i++) n += tn_spread_octave(&s->by_kind[i], k);
    return n;
}

static void find_octaves(seen *s)
{
    s->first = TN_SPREAD_FIRST;
    s->end = TN_SPREAD_FIRST + TN_SPREAD_OCTAVES;
    while (s->first < s->end && octave_of(s, s->first) == 0) s->first++;
    while (s->first < s->end && octave_of(s, s->end - 1) == 0) s->end--;
}

/* The size of the states of a layer whose distribution is called "layer0.D.tau". */
static double state_of(const seen *s, const char *name)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%.*s.state_rms", (int)(strrchr(name, '.') - name), name);
    for (size_t i = 0; i < s->n_said; i++)
        if (strcmp(s->said[i].name, wanted) == 0) return s->said[i].value;
    return NAN;
}

static double modulus(double tau) { return exp(-1 / tau); }

/* --- tables ----------------------------------------------------------------------------------------------------------- */

static void print_layers(const tn_eval *e, const seen *s)
{
    FILE *f = e->c->out;
    fprintf(f, "%-18s %7s %32s %32s %10s\n", "", "states", "|lambda| min, median, max", "tau min, median, max (tokens)", "state rms");
    for (size_t i = 0; i < s->spreads.n; i++) {
        const tn_spread *x = &s->spreads.row[i];
        const char *dot = strrchr(x->name, '.');
        if (!dot) continue;
        const double middle = tn_spread_quantile(x, 0.5);
        fprintf(f, "%-18.*s %7lld %12.5f%10.5f%10.5f %12.1f%10.1f%10.1f %10.4f\n", (int)(dot - x->name), x->name, (long long)x->n,
                modulus(x->min), modulus(middle), modulus(x->max), x->min, middle, x->max, state_of(s, x->name));
    }
}

static void print_histogram(const tn_eval *e, const seen *s)
{
    FILE *f = e->c->out;
    int64_t most = 1;
    fprintf(f, "\n%-22s %-22s", "time constant", "|lambda|");
    for (size_t k = 0; k < s->n_kinds; k++) fprintf(f, " %7s", s->kind[k]);
    fputc('\n', f);
    for (int o = s->first; o < s->end; o++) most = octave_of(s, o) > most ? octave_of(s, o) : most;
    for (int o = s->first; o < s->end; o++) {
        char tau[48], lambda[48];
        snprintf(tau, sizeof tau, "%g - %g", exp2(o), exp2(o + 1));
        snprintf(lambda, sizeof lambda, "%.5f - %.5f", modulus(exp2(o)), modulus(exp2(o + 1)));
        fprintf(f, "%-22s %-22s", tau, lambda);
        for (size_t k = 0; k < s->n_kinds; k++) fprintf(f, " %7lld", (long long)tn_spread_octave(&s->by_kind[k], o));
        fputs("  ", f);
        for (int64_t bar = (octave_of(s, o) * 30 + most - 1) / most; bar > 0; bar--) fputc('#', f);
        fputc('\n', f);
    }
}

static tn_status emit(const tn_eval *e, const seen *s)
{
    for (size_t i = 0; i < s->spreads.n; i++) {
        const tn_spread *x = &s->spreads.row[i];
        if (!strchr(x->name, '.')) continue;
        TN_RETURN_IF(tn_cli_emit(e->c, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:o}", "name", "spectrum", "of", x->name, "states",
                                                 (json_int_t)x->n, "min", tn_number_or_null(x->min), "median",
                                                 tn_number_or_null(tn_spread_quantile(x, 0.5)), "max", tn_number_or_null(x->max), "unit",
                                                 "tokens", "state_rms", tn_number_or_null(state_of(s, x->name)))));
    }
    for (int o = s->first; o < s->end; o++)
        for (size_t k = 0; k < s->n_kinds; k++)
            TN_RETURN_IF(tn_cli_emit(e->c, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:I}", "name", "spectrum_histogram", "kind", s->kind[k],
                                                     "tau_from", exp2(o), "tau_to", exp2(o + 1), "lambda_from", modulus(exp2(o)),
                                                     "lambda_to", modulus(exp2(o + 1)), "states",
                                                     (json_int_t)tn_spread_octave(&s->by_kind[k], o))));
    return TN_OK;
}

static tn_status table(const tn_eval *e, const seen *s)
{
    FILE *f;
    TN_RETURN_IF(tn_table_open(e->csv, &f));
    fputs("run,layer,states,tau_from,tau_to,lambda_from,lambda_to,count,state_rms\n", f);
    for (size_t i = 0; i < s->spreads.n; i++) {
        const tn_spread *x = &s->spreads.row[i];
        const char *dot = strrchr(x->name, '.');
        for (int o = s->first; dot && o < s->end; o++) {
            tn_table_field(f, e->target);
            fprintf(f, ",%.*s,%lld", (int)(dot - x->name), x->name, (long long)x->n);
            tn_table_number(f, "%g", exp2(o));
            tn_table_number(f, "%g", exp2(o + 1));
            tn_table_number(f, "%.6f", modulus(exp2(o)));
            tn_table_number(f, "%.6f", modulus(exp2(o + 1)));
            fprintf(f, ",%lld", (long long)tn_spread_octave(x, o));
            tn_table_number(f, "%.6g", state_of(s, x->name));
            fputc('\n', f);
        }
    }
    return tn_table_close(e->csv, f, TN_OK);
}

static tn_status draw(const tn_eval *e, const seen *s)
{
    FILE *f;
    char text[TN_SPREAD_OCTAVES][64];
    const char *names[TN_SPREAD_OCTAVES], *groups[MOST_KINDS];
    double value[TN_SPREAD_OCTAVES * MOST_KINDS];
    const size_t n = (size_t)(s->end - s->first);
    for (size_t k = 0; k < s->n_kinds; k++) groups[k] = s->kind[k];
    for (size_t i = 0; i < n; i++) {
        const int o = s->first + (int)i;
        snprintf(text[i], sizeof text[i], "%g - %g (%.4f)", exp2(o), exp2(o + 1), modulus(exp2(o)));
        names[i] = text[i];
        for (size_t k = 0; k < s->n_kinds; k++) value[i * s->n_kinds + k] = (double)tn_spread_octave(&s->by_kind[k], o);
    }
    const tn_bars c = { .title = "time constants of the states in tokens (|lambda| from)", .x_label = "states", .names = names,
                        .groups = groups, .n = n, .n_groups = s->n_kinds, .value = value };
    TN_RETURN_IF(tn_table_open(e->svg, &f));
    return tn_table_close(e->svg, f, tn_chart_bars(&c, f));
}

static tn_status show(const tn_eval *e, tn_session *on, seen *s)
{
    tn_evaluation found;
    TN_RETURN_IF(tn_evaluate(on->trainer, &on->source, 1, &found));
    TN_RETURN_IF(tn_trainer_instruments(on->trainer, hear, hear_spread, s));
    if (s->n_kinds == 0)
        return tn_error(TN_USAGE, "%s, a model %s, has no states with a decay: --spectrum is for ten with D, O or E layers", e->target,
                        on->model->name);
    find_octaves(s);
    if (!e->c->json) {
        fprintf(e->c->out, "%s, %s: decays as the mean over %lld tokens, states after the last of each row\n", e->target,
                tn_data_split_names[e->split], (long long)(on->batch * on->length));
        print_layers(e, s);
        print_histogram(e, s);
    } else TN_RETURN_IF(emit(e, s));
    if (e->csv) TN_RETURN_IF(table(e, s));
    return e->svg ? draw(e, s) : TN_OK;
}

tn_status tn_eval_spectrum(const tn_eval *e, tn_session *s)
{
    seen *x = tn_alloc(sizeof *x);
    if (!x) return TN_MEMORY;
    *x = (seen){ 0 };
    const tn_status st = show(e, s, x);
    tn_free(x);
    return st;
}
