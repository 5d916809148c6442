/* The first view of a trained model (tn_view_row) on a batch of held-out text, such as the spectrum of a recurrence: what its instruments say
 * of each place, and a histogram of the numbers, or of their twins, which say the same. */
#include "cli/eval/eval.h"

#include "base/alloc.h"
#include "cli/table_file.h"
#include "report/chart/chart.h"
#include "train/trainer/histogram.h"
#include "train/run/training.h"

#include <math.h>
#include <string.h>

enum { MOST_SAID = 256, MOST_KINDS = 8 };

typedef struct seen {
    const tn_view_row *view;
    tn_histograms histograms;
    struct {
        char name[64];
        double value;
    } said[MOST_SAID];
    size_t n_said;
    char kind[MOST_KINDS][8]; /* "D" of "layer0.D.tau" */
    tn_histogram by_kind[MOST_KINDS];
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

static void hear_histogram(void *ctx, const char *name, double value, const char *unit)
{
    seen *s = ctx;
    char kind[8];
    size_t k = 0;
    const char *dot = strrchr(name, '.');
    if (!dot || strcmp(dot + 1, s->view->name) != 0) return; /* of another view */
    tn_histograms_take(&s->histograms, name, value, unit);
    kind_of(name, kind);
    while (k < s->n_kinds && strcmp(s->kind[k], kind) != 0) k++;
    if (k == MOST_KINDS) return;
    if (k == s->n_kinds) memcpy(s->kind[s->n_kinds++], kind, sizeof kind);
    tn_histogram_add(&s->by_kind[k], value);
}

static int64_t octave_of(const seen *s, int k)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_kinds; i++) n += tn_histogram_octave(&s->by_kind[i], k);
    return n;
}

static void find_octaves(seen *s)
{
    s->first = TN_HISTOGRAM_FIRST;
    s->end = TN_HISTOGRAM_FIRST + TN_HISTOGRAM_OCTAVES;
    while (s->first < s->end && octave_of(s, s->first) == 0) s->first++;
    while (s->first < s->end && octave_of(s, s->end - 1) == 0) s->end--;
}

/* The number beside the distribution "layer0.D.tau": "layer0.D.state_rms". */
static double beside(const seen *s, const char *name)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%.*s.%s", (int)(strrchr(name, '.') - name), name, s->view->extra);
    for (size_t i = 0; i < s->n_said; i++)
        if (strcmp(s->said[i].name, wanted) == 0) return s->said[i].value;
    return NAN;
}

/* --- tables ----------------------------------------------------------------------------------------------------------- */

enum { PLACE = 10, NUMBER = 8, BINS = 16, BAR = 20 }; /* columns: four kinds of states fit 80 */

/* A state that hardly decays has a time constant of many digits. */
static void print_tau(double x, FILE *f) { fprintf(f, x < 99999 ? "%*.1f" : "%*.1e", NUMBER, x); }

static void print_places(const tn_eval *e, const seen *s)
{
    FILE *f = e->c->out;
    const tn_view_row *v = s->view;
    char own[64];
    snprintf(own, sizeof own, "%s (%s)", v->name, v->unit);
    fprintf(f, "%-*s %6s", PLACE, "", v->of);
    if (v->twin) fprintf(f, "  %*s", 3 * NUMBER, v->twin);
    fprintf(f, "  %*s", 3 * NUMBER, own);
    if (v->extra) fprintf(f, "  %9s", v->extra_label);
    fprintf(f, "\n%*s", PLACE + 7, "");
    for (int twin = v->twin != NULL; twin >= 0; twin--)
        fprintf(f, "  %*s%*s%*s", NUMBER, "min", NUMBER, "median", NUMBER, "max");
    fputc('\n', f);
    for (size_t i = 0; i < s->histograms.n; i++) {
        const tn_histogram *x = &s->histograms.row[i];
        const char *dot = strrchr(x->name, '.');
        if (!dot) continue;
        const double middle = tn_histogram_quantile(x, 0.5);
        fprintf(f, "%-*.*s %6lld", PLACE, (int)(dot - x->name), x->name, (long long)x->n);
        if (v->twin)
            fprintf(f, "  %*.5f%*.5f%*.5f", NUMBER, v->twin_of(x->min), NUMBER, v->twin_of(middle), NUMBER,
                    v->twin_of(x->max));
        fputs("  ", f);
        print_tau(x->min, f), print_tau(middle, f), print_tau(x->max, f);
        if (v->extra) fprintf(f, "  %9.4f", beside(s, x->name));
        fputc('\n', f);
    }
}

static void print_histogram(const tn_eval *e, const seen *s)
{
    FILE *f = e->c->out;
    const tn_view_row *v = s->view;
    int64_t most = 1;
    fprintf(f, "\n%-*s", BINS, v->label);
    if (v->twin) fprintf(f, " %-18s", v->twin);
    for (size_t k = 0; k < s->n_kinds; k++) fprintf(f, " %5s", s->kind[k]);
    fputc('\n', f);
    for (int o = s->first; o < s->end; o++) most = octave_of(s, o) > most ? octave_of(s, o) : most;
    for (int o = s->first; o < s->end; o++) {
        char range[48];
        snprintf(range, sizeof range, "%g - %g", exp2(o), exp2(o + 1));
        fprintf(f, "%-*s", BINS, range);
        if (v->twin) snprintf(range, sizeof range, "%.5f - %.5f", v->twin_of(exp2(o)), v->twin_of(exp2(o + 1)));
        if (v->twin) fprintf(f, " %-18s", range);
        for (size_t k = 0; k < s->n_kinds; k++) fprintf(f, " %5lld", (long long)tn_histogram_octave(&s->by_kind[k], o));
        fputs("  ", f);
        for (int64_t bar = (octave_of(s, o) * BAR + most - 1) / most; bar > 0; bar--) fputc('#', f);
        fputc('\n', f);
    }
}

/* KEY_from and KEY_to of an octave, and the same of the twin. */
static void put_range(json_t *line, const seen *s, int octave)
{
    const tn_view_row *v = s->view;
    char key[64];
    for (int to = 0; to < 2; to++) {
        snprintf(key, sizeof key, "%s_%s", v->name, to ? "to" : "from");
        (void)json_object_set_new(line, key, json_real(exp2(octave + to)));
    }
    for (int to = 0; v->twin && to < 2; to++) {
        snprintf(key, sizeof key, "%s_%s", v->twin_key, to ? "to" : "from");
        (void)json_object_set_new(line, key, json_real(v->twin_of(exp2(octave + to))));
    }
}

static tn_status emit(const tn_eval *e, const seen *s)
{
    const tn_view_row *v = s->view;
    for (size_t i = 0; i < s->histograms.n; i++) {
        const tn_histogram *x = &s->histograms.row[i];
        if (!strchr(x->name, '.')) continue;
        json_t *line =
            json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s}", "name", "spectrum", "of", x->name, v->of, (json_int_t)x->n,
                      "min", tn_number_or_null(x->min), "median", tn_number_or_null(tn_histogram_quantile(x, 0.5)),
                      "max", tn_number_or_null(x->max), "unit", v->unit);
        if (v->extra) (void)json_object_set_new(line, v->extra, tn_number_or_null(beside(s, x->name)));
        TN_RETURN_IF(tn_cli_emit(e->c, line));
    }
    for (int o = s->first; o < s->end; o++)
        for (size_t k = 0; k < s->n_kinds; k++) {
            json_t *line = json_pack("{s:s, s:s}", "name", "spectrum_histogram", "kind", s->kind[k]);
            put_range(line, s, o);
            (void)json_object_set_new(line, v->of, json_integer((json_int_t)tn_histogram_octave(&s->by_kind[k], o)));
            TN_RETURN_IF(tn_cli_emit(e->c, line));
        }
    return TN_OK;
}

static void head_of_table(FILE *f, const tn_view_row *v)
{
    fprintf(f, "run,layer,%s,%s_from,%s_to", v->of, v->name, v->name);
    if (v->twin) fprintf(f, ",%s_from,%s_to", v->twin_key, v->twin_key);
    fprintf(f, ",count%s%s\n", v->extra ? "," : "", v->extra ? v->extra : "");
}

static tn_status table(const tn_eval *e, const seen *s)
{
    FILE *f;
    const tn_view_row *v = s->view;
    TN_RETURN_IF(tn_table_open(e->csv, &f));
    head_of_table(f, v);
    for (size_t i = 0; i < s->histograms.n; i++) {
        const tn_histogram *x = &s->histograms.row[i];
        const char *dot = strrchr(x->name, '.');
        for (int o = s->first; dot && o < s->end; o++) {
            tn_table_field(f, e->target);
            fprintf(f, ",%.*s,%lld", (int)(dot - x->name), x->name, (long long)x->n);
            for (int to = 0; to < 2; to++) tn_table_number(f, "%g", exp2(o + to));
            for (int to = 0; v->twin && to < 2; to++) tn_table_number(f, "%.6f", v->twin_of(exp2(o + to)));
            fprintf(f, ",%lld", (long long)tn_histogram_octave(x, o));
            if (v->extra) tn_table_number(f, "%.6g", beside(s, x->name));
            fputc('\n', f);
        }
    }
    return tn_table_close(e->csv, f, TN_OK);
}

static tn_status draw(const tn_eval *e, const seen *s)
{
    FILE *f;
    const tn_view_row *v = s->view;
    char text[TN_HISTOGRAM_OCTAVES][64], title[160];
    const char *names[TN_HISTOGRAM_OCTAVES], *groups[MOST_KINDS];
    double value[TN_HISTOGRAM_OCTAVES * MOST_KINDS];
    const size_t n = (size_t)(s->end - s->first);
    for (size_t k = 0; k < s->n_kinds; k++) groups[k] = s->kind[k];
    for (size_t i = 0; i < n; i++) {
        const int o = s->first + (int)i;
        int n_text = snprintf(text[i], sizeof text[i], "%g - %g", exp2(o), exp2(o + 1));
        if (v->twin) snprintf(text[i] + n_text, sizeof text[i] - (size_t)n_text, " (%.4f)", v->twin_of(exp2(o)));
        names[i] = text[i];
        for (size_t k = 0; k < s->n_kinds; k++)
            value[i * s->n_kinds + k] = (double)tn_histogram_octave(&s->by_kind[k], o);
    }
    snprintf(title, sizeof title, "%ss of the %s in %s%s%s%s", v->label, v->of, v->unit, v->twin ? " (" : "",
             v->twin ? v->twin : "", v->twin ? " from)" : "");
    const tn_bars c = { .title = title,
                        .x_label = v->of,
                        .names = names,
                        .groups = groups,
                        .n = n,
                        .n_groups = s->n_kinds,
                        .value = value };
    TN_RETURN_IF(tn_table_open(e->svg, &f));
    return tn_table_close(e->svg, f, tn_chart_bars(&c, f));
}

static void say_how(const tn_eval *e, const char *how, int64_t tokens)
{
    const size_t n = strcspn(how, "#");
    fprintf(e->c->out, "%s, %s: %.*s", e->target, tn_eval_part(e), (int)n, how);
    if (how[n]) fprintf(e->c->out, "%lld%s", (long long)tokens, how + n + 1);
    fputc('\n', e->c->out);
}

static tn_status show(const tn_eval *e, tn_session *on, seen *s)
{
    tn_evaluation found;
    const tn_model *known;
    s->view = tn_model_view(on->model, &known);
    if (s->view) TN_RETURN_IF(tn_evaluate(on->trainer, &on->source, 1, &found));
    if (s->view) TN_RETURN_IF(tn_trainer_instruments(on->trainer, hear, hear_histogram, s));
    if (s->n_kinds == 0)
        return tn_error(TN_USAGE, "%s, a model %s, has no %s: --spectrum is for %s with %s", e->target, on->model->name,
                        known->views->what, known->name, known->views->where);
    find_octaves(s);
    if (!e->c->json) {
        say_how(e, s->view->how, on->batch * on->length);
        print_places(e, s);
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
