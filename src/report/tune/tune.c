/* Runs the search with probes. At most two are open: the best point and the one that is tried; where both do not fit into memory at once,
 * they are opened in turn. */
#include "report/tune/tune.h"

#include "base/clock.h"
#include "base/memory_limit.h"
#include "report/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double PAIR_MS = 30;      /* a side of a pair takes at least this long */
static const double FIRST_PART = 0.2;  /* of the time at most, for the losses of the start */
static const double SEARCH_PART = 0.8; /* of the time; the rest is for the last comparison */
static const double TOO_SLOW = 4;      /* times as slow as the best: no need to wait for the end */
enum { MOST_STEPS = 128, WARM_TIMES = 20, LAST_PAIRS = 15 };

typedef struct tuning {
    const tn_tune_options *o;
    tn_tune_space space;
    tn_step_probe *best, *tried; /* or NULL */
    tn_tune_point best_at, tried_at;
    bool in_turn;            /* `tried` and the best do not fit together */
    double best_ms;          /* of a step, about */
    double free;             /* bytes that probes may take together; 0: the device knows */
    double begun;            /* clock */
    tn_step_losses losses;   /* that a candidate must have, */
    tn_tune_point losses_at; /* of this point: the start, until something is taken that cannot be compared with it */
    tn_step_losses found;    /* of the candidate */
    bool out_of_time;
    bool compared; /* with data: rows of made-up numbers differ with the rows at once */
} tuning;

static double elapsed(const tuning *t) { return tn_clock_s() - t->begun; }

static bool same_point(const tn_tune_point *a, const tn_tune_point *b) { return memcmp(a, b, sizeof *a) == 0; }

static void close_best(tuning *t)
{
    tn_step_probe_close(t->best);
    t->best = NULL;
}

static void close_tried(tuning *t)
{
    tn_step_probe_close(t->tried);
    t->tried = NULL;
}

/* --- opening ------------------------------------------------------------------------------------------------------------------- */

/* beside: a probe that stays open, or NULL. */
static tn_status open_point(const tuning *t, const tn_tune_point *at, const tn_step_probe *beside, tn_step_probe **out)
{
    const char *word[TN_TUNE_WORDS];
    const size_t n = tn_tune_words(&t->space, at, NULL, word);
    const double taken = beside ? tn_step_probe_bytes(beside) : 0;
    if (t->free > 0 && taken >= t->free) return tn_error(TN_MEMORY, "not enough memory for two plans at once");
    return tn_step_probe_open(&(tn_step_probe_options){ .user = t->o->user,
                                                        .settings = t->o->settings,
                                                        .model = t->o->model,
                                                        .word = word,
                                                        .n = n,
                                                        .source = "tenon tune",
                                                        .most_bytes = t->free > 0 ? t->free - taken : 0 },
                              out);
}

static tn_status warm(tn_step_probe *p, double limit_s)
{
    double ms = 0;
    TN_RETURN_IF(tn_step_probe_warm(p, limit_s, &ms));
    return isinf(ms) ? tn_error(TN_INTERRUPTED, "the first steps take too long") : TN_OK;
}

static tn_status open_best(tuning *t, const tn_tune_point *at)
{
    if (t->best && same_point(&t->best_at, at)) return TN_OK;
    close_best(t);
    TN_RETURN_IF(open_point(t, at, NULL, &t->best));
    t->best_at = *at;
    return warm(t->best, 0);
}

static double warm_limit(const tuning *t) { return 2 + 1e-3 * WARM_TIMES * TOO_SLOW * t->best_ms; }

/* What the point's plan says: too large, refused, or fit to run. */
static tn_status open_tried(tuning *t, tn_tune_tried *c)
{
    close_tried(t);
    t->in_turn = false;
    t->tried_at = c->at;
    tn_status s = open_point(t, &c->at, t->best, &t->tried);
    if (s == TN_MEMORY && t->best) {
        close_best(t);
        s = open_point(t, &c->at, NULL, &t->tried);
        t->in_turn = s == TN_OK;
    }
    if (s == TN_MEMORY || s == TN_USAGE) {
        c->verdict = s == TN_MEMORY ? TN_TUNE_MEMORY : TN_TUNE_REFUSED;
        snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, tn_error_text());
        return TN_OK;
    }
    TN_RETURN_IF(s);
    c->bytes = tn_step_probe_bytes(t->tried);
    return TN_OK;
}

/* Alone, if not beside the best. */
static tn_status point_fits(void *ctx, const tn_tune_point *at, bool *fits)
{
    tuning *t = ctx;
    tn_step_probe *p = NULL;
    if (t->o->interrupted && t->o->interrupted(t->o->ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
    close_tried(t);
    tn_status s = open_point(t, at, t->best, &p);
    if (s == TN_MEMORY && t->best) {
        close_best(t);
        s = open_point(t, at, NULL, &p);
    }
    tn_step_probe_close(p);
    *fits = s != TN_MEMORY;
    return s == TN_MEMORY || s == TN_USAGE ? TN_OK : s;
}

/* --- pairs --------------------------------------------------------------------------------------------------------------------- */

/* As many steps as make a time that can be measured; on a GPU a few times what is queued ahead. */
static int steps_of(const tuning *t, const tn_step_probe *p)
{
    const int depth = tn_trainer_queue_depth(tn_step_probe_session(p)->trainer);
    const double steps = ceil(PAIR_MS / fmax(t->best_ms, 1e-3));
    const int least = depth > 1 ? 3 * depth : 1;
    return steps < least ? least : steps > MOST_STEPS ? MOST_STEPS : (int)steps;
}

/* One side, alone in memory. */
static tn_status run_alone(tuning *t, const tn_tune_point *at, double *ms)
{
    tn_status s = TN_OK;
    tn_step_probe *p = NULL;
    TN_TRY(open_point(t, at, NULL, &p));
    TN_TRY(warm(p, 0));
    TN_TRY(tn_step_probe_run(p, steps_of(t, p), 0, ms));
    t->found = *tn_step_probe_losses(p);
done:
    tn_step_probe_close(p);
    return s;
}

static tn_status pairs_in_turn(tuning *t, const tn_tune_point *best, const tn_tune_point *at, int n, double *ratio)
{
    close_best(t);
    close_tried(t);
    for (int i = 0; i < n; i++) {
        double a = 0, b = 0;
        if (i % 2) TN_RETURN_IF(run_alone(t, at, &b));
        const tn_step_losses found = t->found;
        TN_RETURN_IF(run_alone(t, best, &a));
        if (i % 2) t->found = found;
        else TN_RETURN_IF(run_alone(t, at, &b));
        ratio[i] = a / b;
    }
    return TN_OK;
}

/* Both open: `best` anew where equal steps have to be compared. */
static tn_status open_both(tuning *t, const tn_tune_point *best, bool again, tn_tune_tried *c)
{
    if (again) close_tried(t);
    if (again && t->best && tn_step_probe_varies(t->best)) close_best(t);
    if (!t->in_turn || again) TN_RETURN_IF(open_best(t, best));
    if (!again && same_point(&t->tried_at, &c->at) && (t->tried || t->in_turn)) return TN_OK;
    TN_RETURN_IF(open_tried(t, c));
    if (c->verdict != TN_TUNE_UNDECIDED || t->in_turn) return TN_OK;
    const tn_status s = warm(t->tried, warm_limit(t));
    if (s != TN_INTERRUPTED) return s;
    close_tried(t);
    c->verdict = TN_TUNE_SLOWER;
    snprintf(c->why, sizeof c->why, "its first steps take more than %.3g s", warm_limit(t));
    return TN_OK;
}

static tn_status measure_pairs(void *ctx, const tn_tune_point *best, tn_tune_tried *c, bool again, int *n,
                               double *ratio)
{
    tuning *t = ctx;
    const int most = *n;
    *n = 0;
    if (t->o->interrupted && t->o->interrupted(t->o->ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
    TN_RETURN_IF(open_both(t, best, again, c));
    if (c->verdict != TN_TUNE_UNDECIDED) return TN_OK;
    *n = most;
    if (t->in_turn) return pairs_in_turn(t, best, &c->at, most, ratio);
    const tn_step_pairs how = { .steps = steps_of(t, t->best), .most = TOO_SLOW };
    TN_RETURN_IF(tn_step_probe_pairs(t->best, t->tried, &how, n, ratio));
    t->found = *tn_step_probe_losses(t->tried);
    if (*n > 0 && ratio[*n - 1] > 0) return TN_OK;
    --*n;
    close_tried(t); /* in the middle of a step */
    c->verdict = TN_TUNE_SLOWER;
    snprintf(c->why, sizeof c->why, "it takes more than %.0f times as long", TOO_SLOW);
    return TN_OK;
}

/* --- losses -------------------------------------------------------------------------------------------------------------------- */

/* Whether the losses of both must agree. */
static bool comparable(const tuning *t, const tn_tune_point *a, const tn_tune_point *b)
{
    const tn_tune_space *s = &t->space;
    if (s->compute >= 0 && a->at[s->compute] != b->at[s->compute]) return false;
    return t->compared || s->rows < 0 || a->at[s->rows] == b->at[s->rows];
}

/* So many steps for the comparison, if there is time. */
static tn_status fill_losses(const tuning *t, int steps, double part, tn_step_probe *p)
{
    double ms;
    while (tn_step_probe_losses(p)->n < steps && elapsed(t) < part * t->o->seconds)
        TN_RETURN_IF(tn_step_probe_run(p, 1, 0, &ms));
    return TN_OK;
}

static tn_status check_losses(void *ctx, const tn_tune_point *best, tn_tune_tried *c)
{
    tuning *t = ctx;
    int n;
    (void)best;
    if (t->tried) TN_RETURN_IF(fill_losses(t, t->losses.n, 1, t->tried));
    if (t->tried) t->found = *tn_step_probe_losses(t->tried);
    const double differ = tn_step_losses_differ(&t->losses, &t->found, &n);
    const bool compares = comparable(t, &t->losses_at, &c->at);
    if (compares && differ > TN_TUNE_TOLERANCE) {
        c->verdict = TN_TUNE_LOSSES;
        snprintf(c->why, sizeof c->why, "losses differ by %.1e within %d steps", differ, n);
        return TN_OK;
    }
    if (!compares) {
        t->losses = t->found;
        t->losses_at = c->at;
    }
    t->best_ms /= fmax(c->ratio.median, 1e-3);
    if (!t->tried || t->in_turn) return TN_OK;
    close_best(t);
    t->best = t->tried;
    t->best_at = c->at;
    t->tried = NULL;
    return TN_OK;
}

/* --- the search ---------------------------------------------------------------------------------------------------------------- */

static void join_words(const tn_tune_space *s, const tn_tune_point *p, const tn_tune_point *than, char *buf,
                       size_t bytes)
{
    const char *word[TN_TUNE_WORDS];
    const size_t n = tn_tune_words(s, p, than, word);
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; i < n && at < bytes; i++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%s", i ? " " : "", word[i]);
}

static void tell(void *ctx, const tn_tune_tried *c)
{
    tuning *t = ctx;
    tn_tune_row r = { .ratio = c->ratio, .bytes = c->bytes, .verdict = c->verdict, .why = c->why };
    join_words(&t->space, &c->at, &c->than, r.words, sizeof r.words);
    t->out_of_time |= c->verdict == TN_TUNE_TIME;
    t->o->tried(t->o->ctx, &r);
}

static bool is_over(void *ctx)
{
    const tuning *t = ctx;
    return elapsed(t) > SEARCH_PART * t->o->seconds;
}

static tn_status search(tuning *t, tn_tune_point *best)
{
    tn_tune_search s = { .axes = t->space.n,
                         .memory_axis = t->space.rows,
                         .start = t->space.start,
                         .between = t->space.rows >= 0 ? t->space.axis[t->space.rows].between : NULL,
                         .first = &t->space.first,
                         .ctx = t,
                         .pairs = measure_pairs,
                         .fits = point_fits,
                         .check = check_losses,
                         .tried = tell,
                         .over = is_over };
    for (int i = 0; i < t->space.n; i++) s.values[i] = t->space.axis[i].n;
    return tn_tune_find(&s, best);
}

/* --- before and after ---------------------------------------------------------------------------------------------------------- */

static tn_status check_fits(const tuning *t, const tn_step_probe *p)
{
    const tn_session *s = tn_step_probe_session(p);
    const char *dropped = tn_settings_text(s->settings, "train.dropped");
    if (dropped[0])
        return tn_error(TN_MEMORY,
                        "the configuration does not fit in memory, and training would go on without %.200s: choose a "
                        "smaller model or train.context",
                        dropped);
    if (t->free > 0 && tn_step_probe_bytes(p) > t->free)
        return tn_error(TN_MEMORY,
                        "the plan needs %.3g GB and %.3g GB of memory are free: end other programs, or use a smaller "
                        "train.batch",
                        tn_step_probe_bytes(p) / 1e9, t->free / 1e9);
    return TN_OK;
}

/* What training would run now, down the ladder if need be: the settings that the search starts from. */
static tn_status open_start(tuning *t, tn_tune_result *out)
{
    double ms = 0;
    const tn_tune_options *o = t->o;
    const double available = 0.9 * tn_memory_available(); /* before anything is open */
    TN_RETURN_IF(tn_step_probe_open(
        &(tn_step_probe_options){ .user = o->user, .settings = o->settings, .model = o->model, .runs = true },
        &t->best));
    const tn_session *s = tn_step_probe_session(t->best);
    t->free = tn_trainer_device(s->trainer) == TN_CPU ? fmin(available, 0.9 * tn_memory_limit()) : 0;
    const double allowed = 1e9 * tn_settings_float(s->settings, "plan.memory_gb");
    if (allowed > 0) t->free = t->free > 0 ? fmin(t->free, allowed) : allowed; /* of both plans that are open */
    t->compared = s->source.ctx != NULL;
    TN_RETURN_IF(check_fits(t, t->best));
    TN_RETURN_IF(tn_tune_space_of(
        &(tn_tune_space_options){ .session = s, .cores = o->cores, .precision = o->precision, .keep = o->keep },
        &t->space));
    t->best_at = t->losses_at = t->space.start;
    TN_RETURN_IF(tn_step_probe_warm(t->best, 0, &ms));
    TN_RETURN_IF(fill_losses(t, TN_STEP_PROBE_LOSSES, FIRST_PART, t->best));
    t->losses = *tn_step_probe_losses(t->best);
    t->best_ms = ms;
    TN_RETURN_IF(tn_step_probe_run(t->best, steps_of(t, t->best), 0, &t->best_ms));
    out->start_ms = t->best_ms;
    out->start_bytes = tn_step_probe_bytes(t->best);
    o->begun(o->ctx, &(tn_tune_base){ .session = s, .ms = t->best_ms, .bytes = out->start_bytes });
    return TN_OK;
}

/* The last word: start against end, both from their first step. */
static tn_status compare_ends(tuning *t, const tn_tune_point *end, tn_tune_result *out)
{
    double ratio[LAST_PAIRS];
    tn_tune_tried c = { .at = *end, .than = t->space.start, .verdict = TN_TUNE_UNDECIDED };
    int n = TN_RATIOS_LEAST, have = 0;
    close_best(t);
    t->best_ms = out->start_ms;
    while (have < LAST_PAIRS && (have < TN_RATIOS_LEAST || elapsed(t) < t->o->seconds)) {
        TN_RETURN_IF(measure_pairs(t, &t->space.start, &c, have == 0, &n, ratio + have));
        if (c.verdict != TN_TUNE_UNDECIDED) break;
        have += n;
        n = LAST_PAIRS - have < 3 ? LAST_PAIRS - have : 3;
    }
    out->gain = tn_ratio_of(ratio, have, TN_RATIOS_TAIL);
    out->ms = out->start_ms / out->gain.median;
    out->bytes = c.bytes;
    return TN_OK;
}

static tn_status compare_losses(tuning *t, const tn_tune_point *end, tn_tune_result *out)
{
    if (t->best) TN_RETURN_IF(fill_losses(t, TN_STEP_PROBE_LOSSES, 1, t->best));
    if (t->tried && t->best) TN_RETURN_IF(fill_losses(t, tn_step_probe_losses(t->best)->n, 1, t->tried));
    if (t->best) t->losses = *tn_step_probe_losses(t->best);
    if (t->tried) t->found = *tn_step_probe_losses(t->tried);
    const double differ = tn_step_losses_differ(&t->losses, &t->found, &out->losses);
    if (comparable(t, &t->space.start, end)) out->loss_error = differ;
    else out->losses = 0;
    return TN_OK;
}

static void put_words(const tuning *t, const tn_tune_point *p, tn_tune_result *out)
{
    const char *word[TN_TUNE_WORDS];
    out->n = tn_tune_words(&t->space, p, NULL, word);
    for (size_t i = 0; i < out->n; i++) memcpy(out->word[i], word[i], strlen(word[i]) + 1);
    out->n_changed = tn_tune_words(&t->space, p, &t->space.start, word);
    for (size_t i = 0; i < out->n_changed; i++) memcpy(out->changed[i], word[i], strlen(word[i]) + 1);
}

/* What does not hold at the end is not chosen: the settings stay. */
static tn_status settle(tuning *t, tn_tune_point *end, tn_tune_result *out)
{
    const tn_tune_point start = t->space.start;
    if (!same_point(end, &start)) {
        TN_RETURN_IF(compare_ends(t, end, out));
        TN_RETURN_IF(compare_losses(t, end, out));
        if (!(out->gain.low > 1) || out->loss_error > TN_TUNE_TOLERANCE) *end = start;
    }
    out->exact = t->space.compute < 0 || end->at[t->space.compute] == start.at[t->space.compute];
    out->out_of_time = t->out_of_time;
    if (same_point(end, &start)) {
        out->gain = tn_ratio_of(NULL, 0, TN_RATIOS_TAIL);
        out->ms = out->start_ms;
        out->bytes = out->start_bytes;
        out->loss_error = 0;
        out->losses = 0;
    }
    put_words(t, end, out);
    return TN_OK;
}

tn_status tn_tune_run(const tn_tune_options *o, tn_tune_result *out)
{
    tuning t = { .o = o, .begun = tn_clock_s() };
    tn_tune_result r = { .n = 0 };
    tn_tune_point end = { { 0 } };
    tn_status s = open_start(&t, &r);
    if (s == TN_OK) s = search(&t, &end);
    if (s == TN_OK) s = settle(&t, &end, &r);
    close_best(&t);
    close_tried(&t);
    if (s == TN_OK) *out = r;
    return s;
}
