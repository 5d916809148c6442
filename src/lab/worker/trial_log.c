/* The log of a trial, and its objectives. */
#include "lab/worker/trial_log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

tn_status tn_trial_log_open(const tn_study_plan *p, const tn_settings *st, const tn_model *model,
                            const tn_source *source, int64_t batch, tn_trial_log *out)
{
    tn_trial_log l = { .plan = p, .model = model, .settings = st, .tokens_per_s = NAN, .memory_bytes = NAN };
    TN_RETURN_IF(tn_costs_open(model, st, batch, &l.costs));
    TN_RETURN_IF(tn_metric_list_of(model, source, &l.rows));
    for (size_t i = 0; i < source->n_metrics && i < TN_METRICS_MAX; i++) l.own.row[l.own.n++] = &source->metrics[i];
    *out = l;
    out->rules = tn_alloc(sizeof *out->rules * (p->n_rules + 1));
    if (!out->rules) return TN_MEMORY;
    if (p->n_rules) memcpy(out->rules, p->rules, sizeof *out->rules * p->n_rules);
    return TN_OK;
}

void tn_trial_log_written(tn_trial_log *l)
{
    for (size_t i = 0; i < l->n_reports; i++) tn_free((char *)l->reports[i].value);
    l->n_reports = 0;
}

void tn_trial_log_free(tn_trial_log *l)
{
    tn_trial_log_written(l);
    tn_free(l->reports);
    tn_free(l->history);
    tn_free(l->rules);
    *l = (tn_trial_log){ 0 };
}

/* --- metrics and rules -------------------------------------------------------------------------------------------- */

void tn_trial_log_put(tn_trial_log *l, const char *name, double value)
{
    for (size_t i = 0; i < l->n_metrics; i++)
        if (strcmp(l->metric[i].name, name) == 0) {
            l->metric[i].value = value;
            l->metric[i].step = l->step;
            return;
        }
    if (l->n_metrics == TN_REPORT_METRICS || strlen(name) >= TN_LOG_NAME) return;
    tn_metric *m = &l->metric[l->n_metrics++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->value = value;
    m->step = l->step;
}

/* What the model says of a number it reports, by either of its names; NULL: nothing. */
static const tn_instrument_row *row_of(const tn_trial_log *l, const char *said)
{
    const tn_instrument_row *r = l->model->reported;
    for (size_t i = 0; i < l->model->n_reported; i++, r++)
        if (strcmp(r->name, said) == 0 || (r->also && strcmp(r->also, said) == 0)) return r;
    return NULL;
}

static const char *name_of(const tn_trial_log *l, const char *said)
{
    const tn_instrument_row *r = row_of(l, said);
    return r ? r->name : said;
}

static const tn_metric *find(const tn_trial_log *l, const char *name)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < l->n_metrics; i++)
            if (strcmp(l->metric[i].name, pass ? name_of(l, name) : name) == 0) return &l->metric[i];
    return NULL;
}

double tn_trial_log_get(const tn_trial_log *l, const char *name, bool *there)
{
    const tn_metric *m = find(l, name);
    *there = m != NULL;
    return m ? m->value : NAN;
}

/* The setting that bounds a metric. */
static double cap_of(const tn_trial_log *l, const char *metric)
{
    const tn_instrument_row *r = row_of(l, metric);
    if (!r || !r->cap || tn_settings_find(l->settings, r->cap) == tn_settings_count(l->settings)) return NAN;
    return (double)tn_settings_int(l->settings, r->cap);
}

void tn_trial_log_rules(tn_trial_log *l, double epoch, const char *metric)
{
    for (size_t i = 0; i < l->plan->n_rules; i++) {
        tn_rule *r = &l->rules[i];
        const bool every_step = strcmp(r->metric, "loss") == 0 || strcmp(r->metric, "grad_norm") == 0;
        if (metric ? strcmp(metric, r->metric) != 0 : every_step) continue;
        const tn_metric *m = find(l, r->metric);
        if (!m || m->step != l->step) continue;
        if (tn_rule_step(r, l->step, epoch, m->value, cap_of(l, r->metric)) && !l->broken)
            l->broken = l->plan->rule_texts[i];
    }
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

/* {"loss":0.5,...}: numbers so that reading gives the same doubles. */
static char *metrics_text(const tn_trial_log *l)
{
    enum { EACH = TN_LOG_NAME + 40 };
    char *text = tn_alloc(EACH * l->n_metrics + 3), *p = text;
    if (!text) return NULL;
    *p++ = '{';
    for (size_t i = 0; i < l->n_metrics; i++) {
        const tn_metric *m = &l->metric[i];
        p += snprintf(p, EACH, "%s\"%s\":", i ? "," : "", m->name);
        p += isfinite(m->value) ? snprintf(p, EACH, "%.17g", m->value) : snprintf(p, EACH, "null");
    }
    *p++ = '}';
    *p = 0;
    return text;
}

/* The metrics as they are now. */
static tn_status remember(tn_trial_log *l, double epoch)
{
    bool there;
    double learned = NAN;
    TN_RETURN_IF(tn_grow((void **)&l->history, &l->capacity, l->n + 1, sizeof *l->history));
    for (size_t i = 0; i < l->rows.n; i++) {
        const double v = l->history[l->n].value[i] = tn_trial_log_get(l, l->rows.row[i]->name, &there);
        if (isnan(learned) && l->rows.row[i]->better == TN_HIGHER) learned = v;
    }
    for (size_t i = 0; i < l->own.n; i++)
        if (isnan(learned) && l->own.row[i]->better == TN_HIGHER)
            learned = tn_trial_log_get(l, l->own.row[i]->name, &there);
    l->history[l->n].learned = learned;
    l->history[l->n++].epoch = epoch;
    return TN_OK;
}

tn_status tn_trial_log_add(tn_trial_log *l, int64_t step, double epoch, double seconds, double *score)
{
    bool there;
    const double by = tn_trial_log_get(l, l->plan->prune_by, &there);
    *score = l->plan->prune_max ? -by : by;
    TN_RETURN_IF(remember(l, epoch));
    TN_RETURN_IF(tn_grow((void **)&l->reports, &l->reports_capacity, l->n_reports + 1, sizeof *l->reports));
    char *text = metrics_text(l);
    if (!text) return TN_MEMORY;
    l->reports[l->n_reports++] = (tn_report){
        .rung = (int64_t)l->n, .step = step, .epoch = epoch, .seconds = seconds, .score = *score, .value = text
    };
    return TN_OK;
}

tn_status tn_trial_log_recall(tn_trial_log *l, tn_lab *lab, int64_t trial)
{
    tn_arena arena = { 0 };
    tn_trial_curve c;
    tn_status s = tn_lab_curve(lab, trial, &arena, &c);
    for (size_t i = 0; s == TN_OK && i < c.n; i++) {
        for (size_t k = 0; k < c.metrics; k++) tn_trial_log_put(l, c.name[k], c.value[i * c.metrics + k]);
        s = remember(l, c.epoch[i]);
    }
    tn_arena_free(&arena);
    return s;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

json_t *tn_trial_log_save(const tn_trial_log *l)
{
    const tn_costs *c = &l->costs;
    json_t *rules = json_array(),
           *costs = json_pack("[I,I,I]", (json_int_t)c->calls, (json_int_t)c->samples, (json_int_t)c->eval_samples);
    bool ok = rules && costs;
    for (size_t i = 0; ok && i < c->n; i++) ok = json_array_append_new(costs, json_real(c->sum[i])) == 0;
    for (size_t i = 0; ok && i < l->plan->n_rules; i++)
        ok = json_array_append_new(rules, json_pack("[I,I]", (json_int_t)l->rules[i].held,
                                                    (json_int_t)l->rules[i].since)) == 0;
    if (ok) return json_pack("{s:o, s:o, s:f}", "rules", rules, "solves", costs, "eval_s", l->eval_s);
    json_decref(rules);
    json_decref(costs);
    return NULL;
}

/* From which it can be counted on. */
static bool is_count(json_int_t n) { return n >= 0 && n <= (json_int_t)1 << 60; }

/* Sums by row, in the order of the rows: models without any wrote five zeros before there were rows. */
static bool load_costs(tn_costs *c, const json_t *from)
{
    json_int_t calls, samples, eval_samples;
    if (json_unpack((json_t *)from, "[I,I,I]", &calls, &samples, &eval_samples) != 0 || !is_count(calls) ||
        !is_count(samples) || !is_count(eval_samples))
        return false;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *x = json_array_get(from, 3 + i);
        if (!json_is_number(x)) return false;
        c->sum[i] = json_number_value(x);
    }
    c->calls = calls;
    c->samples = samples;
    c->eval_samples = eval_samples;
    return true;
}

tn_status tn_trial_log_load(tn_trial_log *l, const json_t *from)
{
    json_t *rules = NULL, *costs = NULL;
    if (json_unpack((json_t *)from, "{s:o, s:o, s:F}", "rules", &rules, "solves", &costs, "eval_s", &l->eval_s) != 0 ||
        json_array_size(rules) != l->plan->n_rules || !load_costs(&l->costs, costs))
        return tn_error(TN_BAD_FILE, "the checkpoint belongs to another trial");
    for (size_t i = 0; i < l->plan->n_rules; i++) {
        json_int_t held, since;
        if (json_unpack(json_array_get(rules, i), "[I,I]", &held, &since) != 0 || !is_count(held) || !is_count(since))
            return tn_error(TN_BAD_FILE, "the checkpoint belongs to another trial");
        l->rules[i].held = held;
        l->rules[i].since = since;
    }
    return TN_OK;
}

/* --- objectives --------------------------------------------------------------------------------------------------- */

static double best_of(const tn_trial_log *l, size_t row)
{
    double best = NAN;
    for (size_t i = 0; i < l->n; i++) {
        const double v = l->history[i].value[row];
        if (isnan(best) || tn_metric_better(l->rows.row[row], v, best)) best = v;
    }
    return best;
}

/* The first epoch that came within a tenth of the best. */
static double epochs_to_90(const tn_trial_log *l)
{
    double best = NAN;
    for (size_t i = 0; i < l->n; i++)
        if (!(l->history[i].learned <= best) && !isnan(l->history[i].learned)) best = l->history[i].learned;
    for (size_t i = 0; i < l->n; i++)
        if (l->history[i].learned >= best - 0.1 * fabs(best)) return l->history[i].epoch;
    return NAN;
}

void tn_trial_log_objectives(const tn_trial_log *l, double seconds, double parameters, double *y, const char **missing)
{
    *missing = NULL;
    for (size_t i = 0; i < l->plan->n_objectives; i++) {
        const char *name = l->plan->objectives[i].name;
        const struct {
            const char *name;
            double value;
        } known[] = {
            { "seconds", seconds },
            { "parameters", parameters },
            { "epochs_to_90", epochs_to_90(l) },
            { "block_evals", tn_costs_units(&l->costs) },
            { "tokens_per_s", l->tokens_per_s },
            { "memory_bytes", l->memory_bytes },
        };
        bool there;
        y[i] = tn_trial_log_get(l, name, &there);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strcmp(known[k].name, name) == 0) y[i] = known[k].value;
        for (size_t k = 0; k < l->rows.n; k++)
            if (strcmp(l->rows.row[k]->name, name) == 0) y[i] = best_of(l, k);
        if (isnan(y[i]) && !*missing) *missing = name;
    }
}
