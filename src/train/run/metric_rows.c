/* The metrics of a run, and checks of their rows. */
#include "train/run/metric_rows.h"

#include "base/status.h"
#include "train/source/source.h"
#include "train/run/training.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- mistakes in rows --------------------------------------------------------------------------------------------------- */

static tn_status mistake(const tn_model *m, const tn_metric_row *r, const char *what)
{
    return tn_error(TN_USAGE, "model %s: metric %s: %s", m->name, r->name ? r->name : "without a name", what);
}

static tn_status check_name(const tn_model *m, const tn_metric_row *r, bool first)
{
    const char *p = r->name;
    if (!p || !isalpha((unsigned char)*p)) return mistake(m, r, "give it a name that begins with a letter");
    if (strlen(p) > TN_SCORE_NAME / 2) return mistake(m, r, "the name is too long: use at most 24 letters");
    while (isalnum((unsigned char)*p) || (*p && strchr("_.@", *p))) p++;
    if (*p) return mistake(m, r, "a name may have letters, digits, _, . and @ only: choose another");
    if (tn_score_taken(r->name)) return mistake(m, r, "the name is taken by another value of a run: choose another");
    if (!first && strcmp(r->name, "loss") == 0)
        return mistake(m, r, "the loss is what training minimises: make it the first row");
    return TN_OK;
}

static tn_status check_how(const tn_model *m, const tn_metric_row *r)
{
    switch (r->how) {
    case TN_MEAN_BY_COUNT: return TN_OK;
    case TN_QUOTIENT:
        return r->sums[0] && r->sums[1] ? TN_OK : mistake(m, r, "a quotient is of two outputs: name both in .sums");
    case TN_FROM_SUMS:
        if (!r->sums[0]) return mistake(m, r, "it has no sums: name the outputs that are added up in .sums");
        return r->make ? TN_OK : mistake(m, r, ".make is missing: the function that computes the metric from the sums");
    case TN_ADDED: return r->add ? TN_OK : mistake(m, r, ".add is missing: the function called with every batch");
    case TN_OF_WHOLE:
        if (!r->keep[0]) return mistake(m, r, "nothing is kept for it: name the outputs in .keep");
        if (r->by_group) return mistake(m, r, "a metric of the whole set has no groups: remove .by_group");
        return r->whole ? TN_OK : mistake(m, r, ".whole is missing: the function of all that was kept");
    }
    return mistake(m, r, ".how is none of those in rows.h");
}

static tn_status check_step(const tn_model *m, const tn_metric_row *r)
{
    char what[160];
    if (!r->runs || strcmp(r->runs, "eval") == 0) return TN_OK;
    for (size_t i = 0; i < m->n_steps; i++)
        if (strcmp(m->steps[i].name, r->runs) == 0) return TN_OK;
    snprintf(what, sizeof what, "unknown step %.60s: add it to the model's steps, or remove .runs", r->runs);
    return mistake(m, r, what);
}

static tn_status check_rows(const tn_model *m, const tn_metric_list *l)
{
    char keys[2][TN_SCORE_KEY];
    for (size_t i = 0; i < l->n; i++) {
        const tn_metric_row *r = l->row[i];
        TN_RETURN_IF(check_name(m, r, i == 0));
        TN_RETURN_IF(check_how(m, r));
        TN_RETURN_IF(check_step(m, r));
        if (r->key && (strcmp(r->key, "loss") == 0 || (i && tn_score_taken(r->key))))
            return mistake(m, r, "its .key is taken by another value of a run: choose another");
        for (size_t k = 0; k < i; k++) {
            if (strcmp(l->row[k]->name, r->name) == 0) return mistake(m, r, "two rows have this name: rename one");
            if (strcmp(tn_metric_key(l, l->row[k]->name, keys[0]), tn_metric_key(l, r->name, keys[1])) == 0)
                return mistake(m, r, "two rows have its .key: change one");
        }
    }
    if (l->row[0]->better != TN_LOWER || l->row[0]->needs)
        return mistake(
            m, l->row[0],
            "the first row is what training minimises: put a metric there with .better = TN_LOWER and without .needs");
    return TN_OK;
}

/* --- which there are ---------------------------------------------------------------------------------------------------- */

void tn_metric_rows(const tn_model *m, tn_metric_list *out)
{
    const tn_metric_row *rows = m->n_metrics ? m->metrics : tn_language_metrics;
    const size_t n = m->n_metrics ? m->n_metrics : TN_LANGUAGE_METRICS;
    *out = (tn_metric_list){ .n = n < TN_METRICS_MAX ? n : TN_METRICS_MAX };
    for (size_t i = 0; i < out->n; i++) out->row[i] = &rows[i];
}

tn_status tn_metric_list_of(const tn_model *m, const tn_source *source, tn_metric_list *out)
{
    tn_metric_list all, usable = { 0 };
    tn_metric_rows(m, &all);
    if (m->n_metrics > TN_METRICS_MAX)
        return tn_error(TN_USAGE, "model %s has %zu metrics, and a run has at most %d: remove some", m->name,
                        m->n_metrics, TN_METRICS_MAX);
    TN_RETURN_IF(check_rows(m, &all));
    for (size_t i = 0; i < all.n; i++)
        if (!all.row[i]->needs || !isnan(tn_source_number_of(source, all.row[i]->needs)))
            usable.row[usable.n++] = all.row[i];
    *out = usable;
    return TN_OK;
}

const tn_metric_row *tn_metric_find(const tn_metric_list *l, const char *name)
{
    for (int groups = 0; groups < 2; groups++)
        for (size_t i = 0; i < l->n; i++) {
            const char *is = l->row[i]->name;
            const size_t n = strlen(is);
            if (groups ? l->row[i]->by_group && strncmp(is, name, n) == 0 && name[n] == '_' : strcmp(is, name) == 0)
                return l->row[i];
        }
    return NULL;
}

const char *tn_metric_key(const tn_metric_list *l, const char *name, char key[TN_SCORE_KEY])
{
    const tn_metric_row *r = tn_metric_find(l, name);
    const bool own = r && r->key && strcmp(r->name, name) == 0;
    snprintf(key, TN_SCORE_KEY, "%s%.*s", own ? "" : "heldout_", TN_SCORE_NAME, own ? r->key : name);
    return key;
}

bool tn_metric_better(const tn_metric_row *r, double a, double b) { return r->better == TN_HIGHER ? a > b : a < b; }

bool tn_metric_is_other_unit(const tn_metric_row *r) { return r->how == TN_MEAN_BY_COUNT && r->needs; }

bool tn_metric_is_nats(const tn_metric_row *r) { return strcmp(tn_metric_unit(r), "nats") == 0; }

bool tn_metric_is_fraction(const tn_metric_row *r) { return r->how == TN_ADDED && !r->make && !*tn_metric_unit(r); }

const tn_metric_row *tn_metric_second(const tn_metric_list *l, const tn_metric_row *select)
{
    if (select && l->n && select != l->row[0]) return select;
    for (size_t i = 1; i < l->n; i++)
        if (!tn_metric_is_other_unit(l->row[i])) return l->row[i];
    return NULL;
}

const char *tn_metric_counts(const tn_source *source)
{
    return source->train_samples > 0 ? "samples" : source->groups > 0 ? "questions" : "tokens";
}

/* --- what makes a checkpoint the best ----------------------------------------------------------------------------------- */

static bool is_auto(const tn_settings *st) { return strcmp(tn_settings_text(st, "train.select"), "auto") == 0; }

const tn_metric_row *tn_metric_selected(const tn_metric_list *l, const tn_settings *st)
{
    const char *name = tn_settings_text(st, "train.select");
    for (size_t i = 0; i < l->n; i++) {
        const tn_metric_row *r = l->row[i];
        if (is_auto(st) ? r->needs && strcmp(r->needs, "answers") == 0 : strcmp(r->name, name) == 0) return r;
    }
    return is_auto(st) ? l->row[0] : NULL;
}

static tn_status no_such(const tn_model *m, const tn_metric_list *l, const char *name)
{
    char names[512];
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", l->row[i]->name);
    return tn_error(TN_USAGE, "train.select=%.60s: %s has no such metric on these data: choose auto, %s", name, m->name,
                    names);
}

tn_status tn_metric_resolve(const tn_source *source, tn_trainer *t, tn_settings *st)
{
    tn_metric_list l;
    tn_evaluator *e = NULL;
    const tn_model *m = tn_trainer_model(t);
    TN_RETURN_IF(tn_metric_list_of(m, source, &l));
    const tn_metric_row *by = tn_metric_selected(&l, st);
    if (!by) return no_such(m, &l, tn_settings_text(st, "train.select"));
    TN_RETURN_IF(tn_evaluator_new(t, source, &e));
    tn_evaluator_free(e);
    if (!is_auto(st) || by == l.row[0]) return TN_OK;
    return tn_settings_set(st, "train.select", by->name, "task %s", tn_settings_text(st, "task.name"));
}
