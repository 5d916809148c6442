/* What a row does to held-out metrics: both sides are trained for as many steps, from the same start. */
#include "report/ablate/ablate_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "report/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BRIEF_STEPS = 30, NUDGES = 2, WORD = 48 };
static const double POINTS = 0.005, POINTS_DB = 0.5, PART = 0.005; /* tn_ablate_allowed */
static const double NUDGE = 1e-5, NOISE_TIMES = 2;

typedef struct scoring {
    tn_ablating *x;
    int64_t steps;
    double until;
    tn_ablate_result *out;
    tn_evaluation base; /* of the configuration as it is */
    bool known;
    tn_scores noise; /* how far it is moved by rounding */
    bool noise_known;
    char word[3][WORD];
} scoring;

/* All held-out batches that an evaluation of a run has. */
static tn_status score(const tn_step_probe *p, tn_evaluation *out)
{
    tn_source held = { 0 };
    const tn_session *s = tn_step_probe_session(p);
    TN_RETURN_IF(tn_session_heldout(s, TN_VALID, &held));
    tn_trainer_steady(s->trainer, true);
    const tn_status st = tn_evaluate(s->trainer, &held, tn_settings_int(s->settings, "train.eval_batches"), out);
    tn_source_close(&held);
    return st;
}

/* All parameters a little larger, as other rounding would have them. */
static tn_status nudge(const tn_session *x, double by)
{
    tn_status s = TN_OK;
    tn_host_copy h = { 0 };
    tn_store *store = tn_trainer_store(x->trainer);
    for (size_t i = 0; i < tn_store_count(store); i++) {
        const tn_entry *e = tn_store_at(store, i);
        const int64_t n = tn_dims_count(e->dims);
        if (!e->grad || e->dtype != TN_F32 || !n) continue;
        const float *from = tn_store_read(store, e->data, sizeof *from * (size_t)n, &h);
        float *to = tn_alloc(sizeof *to * (size_t)n);
        if (!from || !to) s = tn_error(TN_MEMORY, "out of memory");
        for (int64_t k = 0; k < n && s == TN_OK; k++) to[k] = from[k] * (float)(1 + by);
        if (s == TN_OK) s = tn_store_put(store, e, 0, n, to, TN_F32);
        tn_free(to);
        if (s != TN_OK) break;
    }
    tn_host_copy_free(&h);
    tn_trainer_steady(x->trainer, true);
    return s;
}

/* From weights that are larger by the part `by`. *ended: time was up. */
static tn_status train(const scoring *c, const tn_ablate_words *words, double by, tn_evaluation *out, bool *ended)
{
    tn_step_probe *p = NULL;
    tn_ablate_words w = *words;
    double ms;
    for (int i = 0; i < 3 && w.n < TN_ABLATE_ALL_WORDS; i++) w.word[w.n++] = c->word[i];
    tn_status s = tn_ablating_open(c->x, &tn_side_step, &w, false, (void **)&p);
    if (s == TN_OK && by > 0) s = nudge(tn_step_probe_session(p), by);
    if (s == TN_OK) s = tn_step_probe_run(p, (int)c->steps, fmax(c->until - tn_clock_s(), 1e-3), &ms);
    if (s == TN_OK && !(*ended = isinf(ms))) s = score(p, out);
    tn_step_probe_close(p);
    return s;
}

static tn_status score_side(scoring *c, size_t i, bool fast, tn_evaluation *out, bool *ended)
{
    tn_ablate_words w;
    const tn_ablate_row *r = &c->x->row[i];
    const bool as_base = fast && (r->as_it_is || tn_ablate_is_as(c->x->base->settings, r->fast, r->n_fast));
    *ended = false;
    if (!as_base) {
        tn_ablating_words(c->x, i, fast, &w);
        return train(c, &w, 0, out, ended);
    }
    w.n = 0;
    if (!c->known) TN_RETURN_IF(train(c, &w, 0, &c->base, ended));
    c->known = !*ended;
    *out = c->base;
    return TN_OK;
}

static double points_of(const tn_ablate_scores *s, size_t i)
{
    const tn_metric_row *r = tn_metric_find(&s->metrics, s->plain.at[i].name);
    const char *unit = r ? tn_metric_unit(r) : "";
    const bool loss = s->metrics.n && r == s->metrics.row[0];
    if (strcmp(unit, "dB") == 0) return POINTS_DB;
    if (loss || *unit) return PART * fabs(s->plain.at[i].value);
    return fmax(POINTS, s->count > 0 ? 1.0 / (double)s->count : 0);
}

double tn_ablate_allowed(const tn_ablate_scores *s, size_t i)
{
    const double noise = s->noise ? tn_scores_get(s->noise, s->plain.at[i].name) : NAN;
    return fmax(points_of(s, i), NOISE_TIMES * noise); /* NaN counts as nothing */
}

bool tn_ablate_moved(const tn_ablate_scores *s, size_t i)
{
    const char *name = s->plain.at[i].name;
    const tn_metric_row *r = tn_metric_find(&s->metrics, name);
    const double plain = s->plain.at[i].value, fast = tn_scores_get(&s->fast, name);
    const bool group = r && strcmp(r->name, name) != 0; /* of few rows */
    if (!s->strict || group || (isnan(plain) && isnan(fast)) || plain == fast) return false;
    return !(fabs(plain - fast) <= tn_ablate_allowed(s, i) * (1 + 1e-9));
}

static void count_moved(const tn_ablate_scores *s, tn_ablate_result *out)
{
    bool any = false;
    for (size_t i = 0; i < s->plain.n; i++) {
        if (!tn_ablate_moved(s, i)) continue;
        if (!any && !out->moved++)
            snprintf(out->furthest, sizeof out->furthest, "%s: %s", s->row->name, s->plain.at[i].name);
        any = true;
    }
}

/* Before the first row that must leave the metrics as they are; *ended: time was up, and nothing is known. */
static tn_status take_noise(scoring *c, bool *ended)
{
    tn_ablate_words w = { .n = 0 };
    *ended = false;
    if (c->noise_known) return TN_OK;
    if (!c->known) TN_RETURN_IF(train(c, &w, 0, &c->base, ended));
    c->known = !*ended;
    for (int k = 0; k < NUDGES && !*ended; k++) {
        tn_evaluation e = { .count = 0 };
        TN_RETURN_IF(train(c, &w, (k + 1) * NUDGE, &e, ended));
        for (size_t i = 0; i < c->base.scores.n && !*ended; i++) {
            const char *name = c->base.scores.at[i].name;
            const double d = fabs(tn_scores_get(&e.scores, name) - c->base.scores.at[i].value);
            (void)tn_scores_put(&c->noise, name, fmax(d, tn_scores_get(&c->noise, name)));
        }
    }
    c->noise_known = !*ended;
    return TN_OK;
}

static tn_status score_row(scoring *c, size_t i)
{
    tn_evaluation plain = { .count = 0 }, fast = { .count = 0 };
    bool ended = false;
    const bool strict = !isnan(c->x->row[i].tolerance);
    tn_status s = tn_ablating_ask(c->x, c->x->row[i].name);
    if (s == TN_OK && strict) s = take_noise(c, &ended);
    if (s == TN_OK && ended) return TN_OK;
    if (s == TN_OK) s = score_side(c, i, false, &plain, &ended);
    if (s == TN_OK && !ended) s = score_side(c, i, true, &fast, &ended);
    if (s == TN_USAGE || s == TN_MEMORY || s == TN_DIVERGED) return TN_OK;
    if (s != TN_OK || ended || !plain.count || !fast.count) return s;
    const tn_ablate_scores scores = { .row = &c->x->row[i],
                                      .plain = plain.scores,
                                      .fast = fast.scores,
                                      .metrics = plain.metrics,
                                      .steps = c->steps,
                                      .count = plain.count,
                                      .strict = strict,
                                      .noise = strict ? &c->noise : NULL };
    count_moved(&scores, c->out);
    c->x->o->scores(c->x->o->ctx, &scores);
    return TN_OK;
}

/* Attributes differ that change no number: neither does training. */
static bool is_same_training(const tn_ablating *x, size_t i)
{
    const tn_ablation *a = &x->found[i];
    return x->difference[i] == TN_PLANS_ATTRIBUTES && a->steps && a->parity.identical;
}

tn_status tn_ablate_heldout(tn_ablating *x, double until, tn_ablate_result *out)
{
    scoring c = { .x = x, .steps = x->o->eval ? x->o->eval : BRIEF_STEPS, .until = until, .out = out };
    if (!x->base->source.ctx || !x->base->source.open_heldout) return TN_OK;
    snprintf(c.word[0], sizeof c.word[0], "train.epochs=0");
    snprintf(c.word[1], sizeof c.word[1], "train.steps=%lld", (long long)c.steps);
    snprintf(c.word[2], sizeof c.word[2], "train.warmup=%lld", (long long)(c.steps / 10));
    for (size_t i = 0; i < x->n && tn_clock_s() < until; i++) {
        const tn_ablate_row *r = &x->row[i];
        if (x->dropped[i] || x->found[i].why[0] || r->price != TN_ABLATE_STEP || is_same_training(x, i)) continue;
        if (x->o->eval || isnan(r->tolerance)) TN_RETURN_IF(score_row(&c, i));
    }
    return TN_OK;
}
