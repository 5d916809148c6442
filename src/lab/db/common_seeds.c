/* Studies with `seeds`: grid points on common seeds. */
#include "lab/db/trials.h"

#include "lab/db/db.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

tn_status tn_trial_reported(tn_lab *lab, const tn_trial *t, const char *metric, bool best, bool maximise, double *out)
{
    tn_arena a = { 0 };
    tn_trial_curve c;
    *out = NAN;
    const tn_status s = tn_lab_curve(lab, t->id, &a, &c);
    for (size_t k = 0; s == TN_OK && k < c.metrics; k++)
        for (size_t i = 0; strcmp(c.name[k], metric) == 0 && i < c.n; i++) {
            const double v = c.value[i * c.metrics + k];
            if (isnan(v)) continue;
            if (!best || isnan(*out) || (maximise ? v > *out : v < *out)) *out = v;
        }
    tn_arena_free(&a);
    return s;
}

/* --- before ------------------------------------------------------------------------------------------------------- */

static bool there_already(const tn_study *s, const tn_trial *of, uint64_t seed)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->trials[i].kind == TN_TRIAL_COMPARE && s->trials[i].config == of->id && s->trials[i].seed == seed)
            return true;
    return false;
}

static tn_status put_point(tn_lab *lab, const tn_trial *t, const double *x, size_t n)
{
    char *text = tn__numbers_write(x, n);
    if (!text) return TN_MEMORY;
    tn_status s = tn__db_do(lab, "UPDATE trial SET x = ?2, sum = NULL WHERE id = ?1 AND x IS NULL",
                            TN_DB_VALUES(TN_DB_INT(t->id), TN_DB_TEXT(text)));
    if (s == TN_OK) s = tn__db_sum_trial(lab, t->id);
    tn_free(text);
    return s;
}

tn_status tn_lab_seeds_fill(tn_lab *lab, const tn_study *s, const tn_study_plan *p)
{
    const tn_observed none = { .objectives = p->n_objectives };
    size_t dims = 1;
    for (size_t i = 0; i < p->n_sides; i++) dims = p->sides[i].space.n > dims ? p->sides[i].space.n : dims;
    double *x = tn_alloc(sizeof *x * dims);
    tn_status st = x ? TN_OK : TN_MEMORY;
    for (int64_t seed = 0; st == TN_OK && seed < p->seeds; seed++)
        for (size_t i = 0; st == TN_OK && i < s->n; i++) {
            const tn_trial *t = &s->trials[i];
            const uint64_t number = TN_FIRST_SEED + (uint64_t)seed;
            if (t->kind == TN_TRIAL_COMPARE || there_already(s, t, number)) continue;
            st = p->sampler->draw(&p->sampling, &p->sides[t->side].space, &none, t->number, x);
            if (st == TN_OK) st = put_point(lab, t, x, p->sides[t->side].space.n);
            if (st == TN_OK) st = tn_lab_enqueue(lab, s->id, p, (size_t)t->side, TN_TRIAL_COMPARE, t->id, number, x);
        }
    tn_free(x);
    return st;
}

/* --- after -------------------------------------------------------------------------------------------------------- */

typedef struct sums { /* over the seeds of one point */
    int64_t ended, failed;
    double y[16], seconds, started, ended_at;
    const tn_trial *wrong; /* one that failed */
} sums;

/* What was measured while it learned counts as that; the rest (time, size) as it was recorded. */
static tn_status add(tn_lab *lab, const tn_study_plan *p, const tn_trial *t, sums *to)
{
    to->ended++;
    to->seconds += isnan(t->seconds) ? 0 : t->seconds;
    to->started = fmin(to->started, t->started); /* fmin and fmax leave NaN out */
    to->ended_at = fmax(to->ended_at, t->ended);
    if (t->state != TN_TRIAL_DONE) {
        to->failed++;
        to->wrong = t;
        return TN_OK;
    }
    for (size_t k = 0; k < p->n_objectives; k++) {
        double v;
        TN_RETURN_IF(tn_trial_reported(lab, t, p->objectives[k].name, true, p->objectives[k].maximise, &v));
        to->y[k] += (isnan(v) && t->y ? t->y[k] : v) / (double)p->seeds;
    }
    return TN_OK;
}

static tn_status settle(tn_lab *lab, const tn_study_plan *p, const tn_trial *t, const sums *of)
{
    char error[256] = "";
    char *y = tn__numbers_write(of->y, p->n_objectives);
    if (!y) return TN_MEMORY;
    if (of->failed)
        snprintf(error, sizeof error, "%lld of %lld seeds failed; %s: %.150s", (long long)of->failed,
                 (long long)of->ended, tn_trial_state_name(of->wrong->state), of->wrong->error);
    tn_status s =
        tn__db_do(lab,
                  "UPDATE trial SET state = ?2, y = ?3, started = ?4, ended = ?5, seconds = ?6, error = ?7, sum = NULL "
                  "WHERE id = ?1 AND state <> 1",
                  TN_DB_VALUES(TN_DB_INT(t->id), TN_DB_INT(of->failed ? TN_TRIAL_FAILED : TN_TRIAL_DONE),
                               TN_DB_TEXT(of->failed ? NULL : y), TN_DB_NUM(of->started), TN_DB_NUM(of->ended_at),
                               TN_DB_NUM(of->seconds), TN_DB_TEXT(error)));
    if (s == TN_OK) s = tn__db_sum_trial(lab, t->id);
    tn_free(y);
    return s;
}

tn_status tn_lab_seeds_settle(tn_lab *lab, const tn_study *s, const tn_study_plan *p)
{
    for (size_t i = 0; i < s->n; i++) {
        const tn_trial *t = &s->trials[i];
        sums of = { .started = NAN, .ended_at = NAN };
        if (t->kind == TN_TRIAL_COMPARE) continue;
        for (size_t k = 0; k < s->n; k++) {
            const tn_trial *c = &s->trials[k];
            if (c->kind != TN_TRIAL_COMPARE || c->config != t->id || !tn_trial_ended(c->state)) continue;
            if (c->seed >= TN_FIRST_SEED + (uint64_t)p->seeds) continue; /* of another comparison */
            TN_RETURN_IF(add(lab, p, c, &of));
        }
        if (of.ended == p->seeds) TN_RETURN_IF(settle(lab, p, t, &of));
    }
    return TN_OK;
}
