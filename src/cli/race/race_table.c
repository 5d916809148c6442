/* The table of a race, with what a reader has to know to judge it: settings that are not equal, rates that were tried and whether one
 * at the end of the list was best, results that became worse again. Computes nothing. */
#include "cli/race/race.h"
#include "cli/view.h"

#include <math.h>
#include <string.h>

int tn_race_name_width(const tn_race *r)
{
    int most = 12;
    for (size_t i = 0; i < r->n; i++) {
        const int n = (int)strlen(r->racer[i].name);
        if (n > most && n <= 14) most = n;
    }
    return most;
}

const char *tn_race_loss_text(double loss, double bits, char buf[24])
{
    const double x = loss * (isnan(bits) ? 1 / log(2) : bits);
    if (isnan(x)) snprintf(buf, 24, "-");
    else snprintf(buf, 24, x < 1000 ? "%.3f %s" : "%.2g %s", x, isnan(bits) ? "b/token" : "b/B");
    return buf;
}

const tn_metric_row *tn_race_score(const tn_progress_report *l, const tn_scores *s, double *value)
{
    const tn_metric_row *r = tn_metric_second(&l->metrics, l->select);
    *value = r ? tn_scores_get(s, r->name) : NAN;
    if (!isnan(*value)) return r;
    *value = tn_scores_first(s);
    return l->metrics.row[0];
}

const char *tn_race_score_text(const tn_progress_report *l, const tn_scores *s, double bits, char buf[24])
{
    double x;
    const tn_metric_row *r = tn_race_score(l, s, &x);
    if (tn_metric_is_nats(r) && r == l->metrics.row[0]) return tn_race_loss_text(x, bits, buf);
    if (isnan(x)) snprintf(buf, 24, "-");
    else if (tn_metric_is_fraction(r)) snprintf(buf, 24, "%.2f %%", 100 * x);
    else snprintf(buf, 24, "%.4g%s%.8s", x, *tn_metric_unit(r) ? " " : "", tn_metric_unit(r));
    return buf;
}

static double rate_of(const tn_race *r, const tn_racer *x) { return r->n_rates ? r->rate[x->chosen] : x->lr; }

void tn_race_print_name(const tn_race *r, const char *name, int w)
{
    if ((int)strlen(name) > w) fprintf(r->c->out, "%s\n%-*s", name, w, "");
    else fprintf(r->c->out, "%-*s", w, name);
}

/* --- what is not equal ------------------------------------------------------------------------------------------------ */

static tn_status emit_differences(const tn_race *r)
{
    for (size_t k = 0; k < r->n_differs; k++)
        for (size_t i = 0; i < r->n; i++)
            if (r->differs[k].value[i])
                TN_RETURN_IF(
                    tn_cli_emit(r->c, json_pack("{s:s, s:s, s:s, s:s}", "name", "not_equal", "config", r->racer[i].name,
                                                "key", r->differs[k].key, "value", r->differs[k].value[i])));
    return TN_OK;
}

static void print_difference(const tn_race *r, const tn_race_difference *d, FILE *f)
{
    const char *lead = " (";
    fputs(d->key, f);
    for (size_t i = 0; i < r->n; i++) {
        if (!d->value[i]) continue;
        fprintf(f, "%s%.40s for %s", lead, *d->value[i] ? d->value[i] : "\"\"", r->racer[i].name);
        lead = ", ";
    }
    fputc(')', f);
}

static void print_differences(const tn_race *r)
{
    enum { MOST = 8 };
    FILE *f = r->c->out;
    bool lr = false;
    if (!r->n_differs) return;
    fprintf(f, "\nThe sides also differ in ");
    for (size_t k = 0; k < r->n_differs; k++) {
        lr |= strcmp(r->differs[k].key, "train.lr") == 0;
        if (k < MOST) fprintf(f, "%s", k == 0 ? "" : k + 1 == r->n_differs ? " and " : ", ");
        if (k < MOST) print_difference(r, &r->differs[k], f);
    }
    if (r->n_differs > MOST) fprintf(f, " and %zu more (--json has all)", r->n_differs - MOST);
    fprintf(f, ": the table compares the models with these settings included.%s\n",
            lr ? " --lr=A,B,C trains each side at these learning rates and takes the best." : "");
}

/* --- rates ------------------------------------------------------------------------------------------------------------ */

/* "" where the best rate lies between others. */
static const char *edge_of(const tn_race *r, const tn_racer *x)
{
    const tn_race_trial *t = tn_race_chosen(x);
    if (!t || isnan(tn_scores_first(&t->last.best))) return "";
    if (tn_metric_is_fraction(t->last.select) && tn_scores_get(&t->last.best, t->last.select->name) == 1) return "";
    if (x->chosen + 1 == r->n_rates) return "best at the largest rate tried: try a larger one";
    return x->chosen == 0 ? "best at the smallest rate tried: try a smaller one" : "";
}

/* "bits/byte", or the first metric's own */
static const char *unit_of(const tn_progress_report *l)
{
    if (!tn_metric_is_nats(l->metrics.row[0])) return tn_metric_unit(l->metrics.row[0]);
    return isnan(l->bits) ? "bits/token" : "bits/byte";
}

static tn_status emit_rates(const tn_race *r, const tn_racer *x)
{
    for (size_t k = 0; k < x->n_trials; k++) {
        const tn_race_trial *t = &x->trial[k];
        if (!t->trained) continue;
        const bool chosen = k == x->chosen;
        TN_RETURN_IF(
            tn_cli_emit(r->c, json_pack("{s:s, s:s, s:f, s:o, s:s, s:I, s:b, s:b, s:s}", "name", "rate_tried", "config",
                                        x->name, "lr", r->rate[k], "value",
                                        tn_number_or_null(tn_scores_first(&t->last.best) * tn_bits_of(&t->last)),
                                        "unit", unit_of(&t->last), "step", (json_int_t)t->last.best_step, "diverged",
                                        t->diverged, "chosen", chosen, "edge", chosen ? edge_of(r, x) : "")));
    }
    return TN_OK;
}

static void print_rates(const tn_race *r, int w)
{
    FILE *f = r->c->out;
    const int cell_w = r->n_rates <= 5 ? 11 : 10;
    fprintf(f, "\nBest held-out result at each learning rate; * marks the chosen one:\n%-*s", w, "rate");
    for (size_t k = 0; k < r->n_rates; k++) fprintf(f, " %*g", cell_w, r->rate[k]);
    fputc('\n', f);
    for (size_t i = 0; i < r->n; i++) {
        const tn_racer *x = &r->racer[i];
        if (!tn_race_chosen(x)) continue;
        tn_race_print_name(r, x->name, w);
        for (size_t k = 0; k < r->n_rates; k++) {
            const tn_race_trial *t = &x->trial[k];
            char text[24] = "diverged", cell[32];
            if (!t->diverged) tn_race_score_text(&t->last, &t->last.best, t->last.bits, text);
            snprintf(cell, sizeof cell, "%s%s", t->trained ? text : "-", k == x->chosen ? "*" : "");
            fprintf(f, " %*s", cell_w, cell);
        }
        fputc('\n', f);
    }
    for (size_t i = 0; i < r->n; i++)
        if (*edge_of(r, &r->racer[i])) fprintf(f, "%s: %s\n", r->racer[i].name, edge_of(r, &r->racer[i]));
}

/* --- the table -------------------------------------------------------------------------------------------------------- */

static int put(json_t *row, const char *key, json_t *value) { return json_object_set_new(row, key, value); }

/* All but the first, and that in another unit, which stand there already; without groups. */
static int put_scores(json_t *row, const tn_progress_report *l, const char *lead, const tn_scores *s)
{
    char key[TN_SCORE_KEY];
    int bad = 0;
    for (size_t i = 1; i < s->n && !bad; i++) {
        const tn_metric_row *r = tn_metric_find(&l->metrics, s->at[i].name);
        if (!r || tn_metric_is_other_unit(r) || strcmp(r->name, s->at[i].name) != 0 || isnan(s->at[i].value)) continue;
        snprintf(key, sizeof key, "%s%s", lead, s->at[i].name);
        bad = put(row, key, tn_number_or_null(s->at[i].value));
    }
    return bad;
}

static int put_patience(json_t *row, const tn_racer *x, const tn_progress_report *l)
{
    char text[TN_PATIENCE_TEXT];
    if (!*tn_training_patience(l, x->settings, true, text)) return 0;
    return put(row, "stop_patience", json_integer(tn_patience_least(&l->patience))) |
           put(row, "stop_step",
               json_integer(tn_patience_stop(&l->patience, l->step, tn_settings_int(x->settings, "train.eval_every"))));
}

static tn_status emit_racer(const tn_race *r, const tn_racer *x, const tn_race_trial *t)
{
    const tn_progress_report *l = &t->last;
    const tn_metric_row *first = l->metrics.row[0];
    const char *what = !tn_metric_is_nats(first) ? first->name : isnan(l->bits) ? "bits_per_token" : "bits_per_byte";
    json_t *row =
        json_pack("{s:s+, s:s, s:o, s:s, s:o, s:I, s:f, s:I, s:I, s:I, s:f, s:f, s:I}", "name", "heldout_", what,
                  "config", x->name, "value", tn_number_or_null(tn_scores_first(&l->last) * tn_bits_of(l)), "unit",
                  unit_of(l), "best", tn_number_or_null(tn_scores_first(&l->best) * tn_bits_of(l)), "best_step",
                  (json_int_t)l->best_step, "lr", rate_of(r, x), "parameters", (json_int_t)x->parameters, "steps",
                  (json_int_t)l->step, "tokens", (json_int_t)l->tokens, "seconds", l->working_s, "tokens_per_s",
                  l->tokens_per_s, "memory_bytes", (json_int_t)x->bytes);
    int bad = !row;
    const double tested = tn_scores_first(&x->test.scores);
    if (!bad) bad |= put_scores(row, l, "heldout_", &l->last) || put_scores(row, l, "best_", &l->best);
    if (!bad && !isnan(tested))
        bad |= put(row, "test", tn_number_or_null(tested * tn_score_scale(&l->metrics, x->test_bits)));
    if (!bad && !isnan(tested)) bad |= put_scores(row, l, "test_", &x->test.scores);
    if (!bad && x->width.text[0]) bad |= put(row, "width", json_string(x->width.text));
    if (!bad && t->last.worse) bad |= put(row, "worse_since_best", json_true());
    if (!bad && t->last.worse) bad |= put_patience(row, x, l);
    if (!bad && !t->finished) bad |= put(row, "finished", json_false());
    if (bad) json_decref(row);
    return tn_cli_emit(r->c, bad ? NULL : row);
}

static void print_costs(const tn_race *r, const tn_racer *x, const tn_race_trial *t, int w)
{
    const tn_progress_report *l = &t->last;
    char tokens[16], rate[16], memory[24];
    tn_race_print_name(r, x->name, w);
    fprintf(r->c->out, " %10lld %7lld %8s %8.1f %8g %9s %9s\n", (long long)x->parameters, (long long)l->step,
            tn_count_text((double)l->tokens, tokens), l->working_s, rate_of(r, x),
            tn_count_text(isnan(l->samples_per_s) ? l->tokens_per_s : l->samples_per_s, rate),
            tn_bytes_text((double)x->bytes, memory));
}

static void print_scores(const tn_race *r, const tn_racer *x, const tn_race_trial *t, int w)
{
    const tn_progress_report *l = &t->last;
    char last[24], best[24], test[24], step[24] = "-";
    if (!isnan(tn_scores_first(&l->best))) snprintf(step, sizeof step, "%lld", (long long)l->best_step);
    tn_race_print_name(r, x->name, w);
    fprintf(r->c->out, " %14s %8s %14s", tn_race_score_text(l, &l->best, l->bits, best), step,
            tn_race_score_text(l, &l->last, l->bits, last));
    if (r->n_rates) fprintf(r->c->out, " %14s", tn_race_score_text(l, &x->test.scores, x->test_bits, test));
    fputc('\n', r->c->out);
}

static void print_tables(const tn_race *r, int w)
{
    const tn_race_trial *t;
    fprintf(r->c->out, "\n%-*s %10s %7s %8s %8s %8s %9s %9s\n", w, "training", "parameters", "steps", "tokens",
            "seconds", "lr", isnan(tn_race_chosen(&r->racer[0])->last.samples_per_s) ? "tokens/s" : "samples/s",
            "memory");
    for (size_t i = 0; i < r->n; i++)
        if ((t = tn_race_chosen(&r->racer[i]))) print_costs(r, &r->racer[i], t, w);
    fprintf(r->c->out, "\n%-*s %14s %8s %14s%s\n", w, "held out", "best", "at step", "last",
            r->n_rates ? "   test at best" : "");
    for (size_t i = 0; i < r->n; i++)
        if ((t = tn_race_chosen(&r->racer[i]))) print_scores(r, &r->racer[i], t, w);
}

/* What became worse again, and what a choice has to do with the numbers. */
static void print_notes(const tn_race *r)
{
    char text[TN_RISE_TEXT], patience[TN_PATIENCE_TEXT];
    for (size_t i = 0; i < r->n; i++) {
        const tn_race_trial *t = tn_race_chosen(&r->racer[i]);
        if (t && r->racer[i].width.text[0])
            fprintf(r->c->out, "%s: %s, for the number of parameters\n", r->racer[i].name, r->racer[i].width.text);
        if (t && t->last.worse)
            fprintf(r->c->out, "%s: %s: compare the best checkpoints; samples and contexts use them\n",
                    r->racer[i].name, tn_training_rise(&t->last, tn_bits_of(&t->last), text));
        if (t && t->last.worse && *tn_training_patience(&t->last, r->racer[i].settings, true, patience))
            fprintf(r->c->out, "%s: %s\n", r->racer[i].name, patience);
        if (!t || t->finished) continue;
        fprintf(r->c->out, "%s: not finished", r->racer[i].name);
        if (t->dir && r->equal != TN_EQUAL_SECONDS) fprintf(r->c->out, "; `tenon train %s` resumes it alone", t->dir);
        fputc('\n', r->c->out);
    }
}

static tn_status emit_all(const tn_race *r)
{
    TN_RETURN_IF(emit_differences(r));
    for (size_t i = 0; i < r->n; i++) {
        const tn_race_trial *t = tn_race_chosen(&r->racer[i]);
        if (!t) continue;
        TN_RETURN_IF(emit_racer(r, &r->racer[i], t));
        if (r->n_rates) TN_RETURN_IF(emit_rates(r, &r->racer[i]));
    }
    return TN_OK;
}

tn_status tn_race_table(const tn_race *r)
{
    const int w = tn_race_name_width(r);
    if (r->c->json) return emit_all(r);
    print_differences(r);
    if (r->n_rates) print_rates(r, w);
    print_tables(r, w);
    print_notes(r);
    return TN_OK;
}
