/* Opens a session for a configuration and times its steps. */
#include "report/probe/probe.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "train/run/parts.h"
#include "train/trainer/inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM_STEPS = 2 };
static const double WAITS = 0.03; /* part of a run in which steps wait for data */

struct tn_step_probe {
    tn_session s;
    int64_t next; /* step that is queued next */
    bool warm, varies;
    bool begun;    /* the batches of that step are queued, its update is not */
    double items;  /* that the source counted in the last run */
    double data_s; /* of it, until its batches were there */
    int ran;       /* steps of it */
    tn_step_losses losses;
};

/* --- opening ------------------------------------------------------------------------------------------------------------------ */

static tn_status set_words(const tn_step_probe_options *o, tn_settings *st)
{
    char key[128];
    for (size_t i = 0; i < o->n; i++) {
        const char *eq = strchr(o->word[i], '=');
        if (!eq || (size_t)(eq - o->word[i]) >= sizeof key) return tn_error(TN_INTERNAL, "\"%s\"", o->word[i]);
        snprintf(key, sizeof key, "%.*s", (int)(eq - o->word[i]), o->word[i]);
        TN_RETURN_IF(tn_settings_set(st, key, eq + 1, "%s", o->source ? o->source : "probe"));
    }
    return TN_OK;
}

/* What is timed does not depend on the weights: those of a run are not read. */
static tn_status set_start(tn_settings *st) { return tn_settings_set(st, "train.from", "", "probe"); }

/* Without a run's ladder: what does not fit is not measured as something else. */
static tn_status set_memory(const tn_step_probe_options *o, tn_settings *st)
{
    char text[32];
    const double may = 1e9 * tn_settings_float(st, "plan.memory_gb");
    if (!o->runs) TN_RETURN_IF(tn_settings_set(st, "train.memory", "refuse", "probe"));
    if (o->most_bytes <= 0 || (may > 0 && may < o->most_bytes)) return TN_OK;
    snprintf(text, sizeof text, "%.9g", o->most_bytes / 1e9);
    return tn_settings_set(st, "plan.memory_gb", text, "probe");
}

/* Weights of parts, and what the source makes with them; without data, a batch that stays as it is. */
static tn_status make_ready(tn_session *s, const char *dir)
{
    bool changed;
    tn_store *store = tn_trainer_store(s->trainer);
    TN_RETURN_IF(tn_parts_load(s->settings, s->model, store));
    TN_RETURN_IF(tn_parts_hash(s->settings, s->model, store, false, &changed));
    TN_RETURN_IF(tn_source_make_ready(&s->source, &(tn_source_prepare){
                                                      .trainer = s->trainer, .settings = s->settings, .dir = dir }));
    if (!s->source.ctx) {
        const tn_feed f = tn_trainer_feed(s->trainer);
        tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = 1 });
    }
    tn_trainer_steady(s->trainer, true);
    return TN_OK;
}

tn_status tn_step_probe_open(const tn_step_probe_options *o, tn_step_probe **out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    tn_step_probe *p = tn_alloc(sizeof *p);
    if (!p) TN_TRY(TN_MEMORY);
    TN_TRY(tn_settings_clone(o->settings, &st));
    TN_TRY(set_words(o, st));
    TN_TRY(set_start(st));
    TN_TRY(set_memory(o, st));
    TN_TRY(tn_session_open_with(
        &(tn_session_options){ .user = o->user, .settings = st, .model = o->model, .runs = o->runs }, &p->s));
    TN_TRY(make_ready(&p->s, o->dir));
    p->varies =
        p->s.source.n_widths || p->s.source.n_shapes || p->s.source.on_policy || isnan(tn_trainer_flops(p->s.trainer));
    *out = p;
    p = NULL;
done:
    tn_settings_free(st);
    tn_step_probe_close(p);
    return s;
}

void tn_step_probe_close(tn_step_probe *p)
{
    if (!p) return;
    tn_session_close(&p->s);
    tn_free(p);
}

/* --- running ------------------------------------------------------------------------------------------------------------------ */

static tn_status collect(tn_step_probe *p)
{
    tn_step_result x;
    TN_RETURN_IF(tn_trainer_collect(p->s.trainer, &x));
    if (p->losses.n < TN_STEP_PROBE_LOSSES) p->losses.loss[p->losses.n++] = x.loss;
    return TN_OK;
}

/* *late: time was up before the last of them. */
static tn_status queue_batches(tn_step_probe *p, double until, bool *late)
{
    const tn_source *source = &p->s.source;
    tn_trainer *to = p->s.trainer;
    const int64_t n = tn_trainer_batches(to);
    for (int64_t i = 0; i < n; i++) {
        int64_t count = 0;
        if ((*late = until > 0 && tn_clock_s() > until)) return TN_OK;
        const double asked = tn_clock_s();
        if (source->ctx) TN_RETURN_IF(tn_source_next(source, p->next, to, &count));
        p->data_s += tn_clock_s() - asked;
        p->items += (double)count;
        const float weight = n > 1 && source->ctx ? tn_source_weight(source, count) : 1;
        TN_RETURN_IF(tn_trainer_queue_grad(to, p->next * n + i, weight, false));
    }
    return TN_OK;
}

/* As the training loop queues one. */
static tn_status queue_step(tn_step_probe *p, double until, bool *late)
{
    if (!p->begun) TN_RETURN_IF(queue_batches(p, until, late));
    if (*late) return TN_OK;
    p->begun = false;
    return tn_trainer_queue_apply(p->s.trainer, p->next++);
}

tn_status tn_step_probe_gradients(tn_step_probe *p)
{
    bool late = false;
    if (!p->begun) TN_RETURN_IF(queue_batches(p, 0, &late));
    p->begun = true;
    tn_source_rest(&p->s.source);
    return TN_OK;
}

/* Threads that make batches stand still between runs, so that none is made in somebody else's time. Where steps waited for data, what has
 * been begun is finished in this run's time: it then pays for as many batches as it takes, as training does in the long run. Elsewhere that
 * wait would count what no step waits for. */
tn_status tn_step_probe_run(tn_step_probe *p, int steps, double limit_s, double *ms)
{
    tn_trainer *to = p->s.trainer;
    bool late = false;
    const double begun = tn_clock_s();
    p->items = p->data_s = 0;
    p->ran = steps;
    for (int i = 0; i < steps && !late; i++) {
        if (tn_trainer_queued(to) == tn_trainer_queue_depth(to)) TN_RETURN_IF(collect(p));
        TN_RETURN_IF(queue_step(p, limit_s > 0 ? begun + limit_s : 0, &late));
    }
    while (tn_trainer_queued(to)) TN_RETURN_IF(collect(p));
    const double ended = tn_clock_s();
    tn_source_rest(&p->s.source);
    const double took = (p->data_s > WAITS * (ended - begun) ? tn_clock_s() : ended) - begun;
    *ms = late ? HUGE_VAL : 1e3 * took / steps;
    return TN_OK;
}

tn_status tn_step_probe_warm(tn_step_probe *p, double limit_s, double *ms)
{
    const double until = limit_s > 0 ? tn_clock_s() + limit_s : 0;
    const int depth = tn_trainer_queue_depth(p->s.trainer);
    for (int i = 0; i < WARM_STEPS && !p->warm; i++) {
        const double left = until > 0 ? fmax(until - tn_clock_s(), 1e-9) : 0;
        TN_RETURN_IF(tn_step_probe_run(p, depth, left, ms));
        if (isinf(*ms)) return TN_OK;
    }
    p->warm = true;
    return TN_OK;
}

tn_status tn_step_probe_pairs(tn_step_probe *a, tn_step_probe *b, const tn_step_pairs *how, int *n, double *ratio)
{
    const double begun = tn_clock_s();
    double a_ms = 0, b_ms = 0, known_ms = 0; /* known: of an earlier pair */
    const int most = *n;
    for (*n = 0; *n < most; ++*n) {
        if (how->seconds > 0 && *n && tn_clock_s() - begun > how->seconds) return TN_OK;
        if (*n % 2 == 0) TN_RETURN_IF(tn_step_probe_run(a, how->steps, 0, &a_ms));
        if (*n % 2 == 0) known_ms = a_ms;
        TN_RETURN_IF(tn_step_probe_run(b, how->steps, 1e-3 * how->most * how->steps * known_ms, &b_ms));
        if (*n % 2 && !isinf(b_ms)) TN_RETURN_IF(tn_step_probe_run(a, how->steps, 0, &a_ms));
        ratio[*n] = isinf(b_ms) ? 0 : a_ms / b_ms;
        if (isinf(b_ms)) {
            ++*n;
            return TN_OK;
        }
    }
    return TN_OK;
}

/* --- looking ------------------------------------------------------------------------------------------------------------------ */

const tn_session *tn_step_probe_session(const tn_step_probe *p) { return &p->s; }

double tn_step_probe_items(const tn_step_probe *p) { return p->ran > 0 ? p->items / p->ran : 0; }

double tn_step_probe_bytes(const tn_step_probe *p) { return (double)tn_trainer_memory(p->s.trainer).total; }

bool tn_step_probe_varies(const tn_step_probe *p) { return p->varies; }

const tn_step_losses *tn_step_probe_losses(const tn_step_probe *p) { return &p->losses; }

double tn_step_losses_differ(const tn_step_losses *a, const tn_step_losses *b, int *n)
{
    double most = 0;
    *n = a->n < b->n ? a->n : b->n;
    for (int i = 0; i < *n; i++) {
        const double x = a->loss[i], y = b->loss[i], d = fabs(x - y) / fmax(fabs(x), 1e-12);
        if (isnan(x) && isnan(y)) continue;
        if (!(d <= most)) most = isnan(d) ? HUGE_VAL : d;
    }
    return most;
}
