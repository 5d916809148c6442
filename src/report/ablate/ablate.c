/* The rounds. At most two sides are open beside the configuration itself. */
#include "report/ablate/ablate_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory_peak.h"
#include "report/bench/timing.h"
#include "report/probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct time_parts {
    double rounds, turns; /* of the time, till the end of each */
} time_parts;
static const time_parts timing = { 0.76, 0.9 }, scoring = { 0.4, 0.5 }; /* scoring: held-out metrics were asked for */
static const double PARITY_PART = 0.35;                                 /* of a row's first round */
static const double SIDE_MS = 20;                                       /* a side of a pair takes at least this long */
enum { PAIRS = TN_ABLATE_PAIRS, LEAST_STEPS = 600 };                    /* LEAST_STEPS: that there must be time for */

/* What steps of parity have beside the row's words. Adam divides by the gradient's size: where a gradient is all but zero, rounding decides
 * about the direction of a whole step. With a large epsilon an update is as exact as its gradient. No warm-up: steps that move something. */
static const char *const parity_words[] = { "train.eps=0.01", "train.warmup=0" };

/* --- shared ------------------------------------------------------------------------------------------------------------------ */

double tn_ablating_left(const tn_ablating *x) { return x->until - tn_clock_s(); }

tn_status tn_ablating_ask(const tn_ablating *x, const char *what)
{
    const tn_ablate_options *o = x->o;
    if (o->progress) o->progress(o->ctx, what, fmin((tn_clock_s() - x->begun) / o->seconds, 1));
    return o->interrupted && o->interrupted(o->ctx) ? tn_error(TN_INTERRUPTED, "interrupted") : TN_OK;
}

static void add_words(const char *const *word, size_t n, tn_ablate_words *out)
{
    for (size_t i = 0; i < n && out->n < TN_ABLATE_ALL_WORDS; i++) out->word[out->n++] = word[i];
}

static bool is_all(const tn_ablating *x, size_t i) { return x->has_all && i == x->n - 1; }

/* Of all rows together: the words of those that are turned on. */
void tn_ablating_words(const tn_ablating *x, size_t i, bool fast, tn_ablate_words *out)
{
    out->n = 0;
    for (size_t k = 0; k < x->n; k++) {
        const tn_ablate_row *r = &x->row[k];
        if (is_all(x, i) ? !x->cumulative[k] : k != i) continue;
        if (fast) add_words(r->fast, r->n_fast, out);
        else add_words(r->plain, r->n_plain, out);
    }
}

tn_status tn_ablating_open(const tn_ablating *x, const tn_side_kind *k, const tn_ablate_words *w, bool again,
                           void **side)
{
    return k->open(&(tn_side_options){ .user = x->o->user,
                                       .settings = x->settings,
                                       .base = x->base,
                                       .model = x->o->model,
                                       .word = w->word,
                                       .n = w->n,
                                       .dir = x->o->dir,
                                       .again = again },
                   side);
}

/* ms[2], from a run of each that is long enough for the clock. */
static tn_status calibrate(const tn_side_kind *k, void *side[2], double ms[2])
{
    for (int i = 0; i < 2; i++)
        for (int times = 1; times <= k->most && ms[i] * times < SIDE_MS / 4;) {
            times = (int)fmin(fmax(SIDE_MS / 4 / fmax(ms[i], 1e-3), 4 * times), k->most);
            TN_RETURN_IF(k->run(side[i], times, &ms[i]));
            if (times == k->most) break;
        }
    return TN_OK;
}

tn_status tn_ablating_pairs(const tn_ablating *x, const tn_side_kind *k, void *side[2], double until, int *n,
                            double *ratio, double ms[2])
{
    double all[2][TN_ABLATE_PAIRS], one[2];
    TN_RETURN_IF(calibrate(k, side, ms));
    const double least = fmin(ms[0], ms[1]);
    const int most = *n < TN_ABLATE_PAIRS ? *n : TN_ABLATE_PAIRS;
    const int times = (int)fmax(1, fmin(ceil(SIDE_MS / fmax(least, 1e-3)), k->most));
    const double least_s = 1e-3 * TN_RATIOS_LEAST * times * (ms[0] + ms[1]), share = fmax(until - tn_clock_s(), 0);
    const double left = tn_ablating_left(x);
    const bool hopeless = least_s > fmin(left, 1 + 4 * share + 0.1 * left); /* the others need theirs */
    for (*n = 0; *n < most && !hopeless; ++*n) {
        if (tn_clock_s() >= (*n < TN_RATIOS_LEAST ? x->until : until)) break;
        for (int i = 0; i < 2; i++) {
            const int which = (i + *n) % 2;
            TN_RETURN_IF(k->run(side[which], times, &one[which]));
            all[which][*n] = one[which];
        }
        ratio[*n] = one[0] / one[1];
    }
    for (int i = 0; i < 2 && *n; i++) ms[i] = tn_median(all[i], (size_t)*n, NULL);
    return TN_OK;
}

/* --- a round of a row --------------------------------------------------------------------------------------------------------------- */

typedef struct sides {
    const tn_side_kind *kind;
    void *side[2]; /* plain, fast */
} sides;

static void close_sides(sides *s)
{
    for (int i = 0; i < 2; i++) {
        s->kind->close(s->side[i]);
        s->side[i] = NULL;
    }
}

/* Side k of a row: 0 plain, 1 fast. */
static tn_status open_side(const tn_ablating *x, size_t i, int k, bool parity, sides *s)
{
    tn_ablate_words w;
    tn_ablating_words(x, i, k == 1, &w);
    for (size_t p = 0; parity && s->kind == &tn_side_step && p < 2; p++) w.word[w.n++] = parity_words[p];
    return tn_ablating_open(x, s->kind, &w, x->row[i].price == TN_ABLATE_REREAD && k == 0, &s->side[k]);
}

static tn_plan_difference difference_of(const tn_ablating *x, size_t i, const sides *s)
{
    const tn_ablate_row *r = &x->row[i];
    if (!r->by_plan || r->not_on_plans || s->kind != &tn_side_step) return TN_PLANS_DIFFER;
    return tn_side_plans(s->side[0], s->side[1]);
}

/* A row that changes the training is not compared. */
static tn_status take_parity(tn_ablating *x, size_t i, double seconds, sides *s)
{
    tn_ablation *a = &x->found[i];
    if (isnan(x->row[i].tolerance)) return TN_OK;
    a->steps = x->o->steps;
    TN_RETURN_IF(s->kind->parity(s->side[0], s->side[1], seconds, &a->steps, &a->parity));
    a->failed = tn_parity_fails(&a->parity, x->row[i].tolerance);
    return TN_OK;
}

/* Bytes that the process had at most since then beside `before`, which is NaN where that is not known. */
static double peak_since(double before) { return fmax(tn_memory_peak() - before, 0); }

/* One side after the other is opened and has its first steps. What it takes is seen on a CPU: a GPU has what the plan says. *late: there is no
 * time for it. ms: of one. */
static tn_status open_warm(tn_ablating *x, size_t i, sides *s, double ms[2], double peak[2], bool *late)
{
    const bool seen = x->row[i].price == TN_ABLATE_STEP && tn_trainer_device(x->base->trainer) == TN_CPU;
    *s = (sides){ .kind = tn_side_kind_of(x->row[i].price) };
    for (int k = 0; k < 2 && !*late; k++) {
        const double before = seen ? tn_memory_peak_begin() : NAN;
        TN_RETURN_IF(open_side(x, i, k, false, s));
        TN_RETURN_IF(s->kind->warm(s->side[k], fmax(tn_ablating_left(x), 0.5), &ms[k]));
        peak[k] = isnan(before) ? NAN : peak_since(before);
        *late = isinf(ms[k]);
    }
    return TN_OK;
}

/* Of rounds that count alike: `mean` is that of those before. */
static double mean_of_rounds(double mean, int before, double ms) { return (mean * before + ms) / (before + 1); }

/* The smaller one: what the first use of code and tables takes is no side's. */
static double both_peaks(double known, double found) { return known > 0 && !(found < known) ? known : found; }

static tn_status time_round(tn_ablating *x, size_t i, int round, double until, sides *s)
{
    tn_ablation *a = &x->found[i];
    double ms[2] = { 0, 0 }, peak[2] = { NAN, NAN };
    bool late = false;
    TN_RETURN_IF(open_warm(x, i, s, ms, peak, &late));
    if (late) return TN_OK;
    a->pairs.n[round] = PAIRS;
    TN_RETURN_IF(tn_ablating_pairs(x, s->kind, s->side, until, &a->pairs.n[round], a->pairs.ratio[round], ms));
    a->plain_ms = mean_of_rounds(a->plain_ms, round, ms[0]);
    a->fast_ms = mean_of_rounds(a->fast_ms, round, ms[1]);
    a->plain_bytes = s->kind->bytes(s->side[0]);
    a->fast_bytes = s->kind->bytes(s->side[1]);
    a->plain_peak = both_peaks(a->plain_peak, peak[0]);
    a->fast_peak = both_peaks(a->fast_peak, peak[1]);
    if (round || !x->row[i].component || tn_ablating_left(x) <= 0) return TN_OK;
    return tn_ops_alone_take(s->side, x->row[i].component, until, &a->alone);
}

static tn_status first_round(tn_ablating *x, size_t i, double seconds, sides *s)
{
    *s = (sides){ .kind = tn_side_kind_of(x->row[i].price) };
    for (int k = 0; k < 2; k++) TN_RETURN_IF(open_side(x, i, k, true, s));
    x->difference[i] = difference_of(x, i, s);
    x->dropped[i] = x->difference[i] == TN_PLANS_SAME;
    if (x->dropped[i]) return TN_OK;
    TN_RETURN_IF(take_parity(x, i, PARITY_PART * seconds, s));
    close_sides(s);
    return TN_OK;
}

/* What a model or its data do not have is no row; a plan that does not fit is one, without figures of rounds before. */
static tn_status take_reason(tn_ablating *x, size_t i, tn_status s)
{
    tn_ablation *a = &x->found[i];
    if (s == TN_USAGE && !x->row[i].is_switch && !is_all(x, i)) x->dropped[i] = x->refused[i] = true;
    else if (s == TN_USAGE || s == TN_MEMORY || s == TN_DIVERGED) {
        snprintf(a->why, sizeof a->why, "%.*s", (int)sizeof a->why - 1, tn_error_text());
        memset(a->pairs.n, 0, sizeof a->pairs.n);
    } else return s;
    return TN_OK;
}

static tn_status run_round(tn_ablating *x, size_t i, int round, double until)
{
    sides s = { .kind = &tn_side_step };
    const double seconds = until - tn_clock_s();
    tn_status st = tn_ablating_ask(x, x->row[i].name);
    if (st != TN_OK) return st;
    if (round == 0) st = first_round(x, i, seconds, &s);
    if (st == TN_OK && !x->dropped[i]) st = time_round(x, i, round, until, &s);
    close_sides(&s);
    return st == TN_OK ? TN_OK : take_reason(x, i, st);
}

/* --- all rounds ------------------------------------------------------------------------------------------------------------------------ */

/* Whether the row has this round. Without its first it has no second: the others need theirs. */
static bool has_round(const tn_ablating *x, size_t i, int round)
{
    const tn_ablation *a = &x->found[i];
    if (x->dropped[i] || a->why[0] || a->failed) return false;
    return round == 0 || (round == 1 ? a->pairs.n[0] > 0 : tn_paired_undecided(&a->pairs));
}

/* Rows from i on that have the round. */
static size_t rows_left(const tn_ablating *x, size_t i, int round)
{
    size_t left = 0;
    for (; i < x->n; i++) left += has_round(x, i, round);
    return left;
}

/* All rows together: nothing, or one row alone, is no sum of rows. */
static bool is_sum(const tn_ablating *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++) n += x->cumulative[i] && !x->dropped[i];
    return n > 1;
}

/* What one row does not need of its part of the time is for the next. */
static tn_status run_rounds(tn_ablating *x, double until)
{
    static const double ends[TN_ABLATE_ROUNDS] = { 0.45, 0.85, 1 }; /* of the time */
    const double begun = tn_clock_s();
    for (int round = 0; round < TN_ABLATE_ROUNDS; round++)
        for (size_t i = 0; i < x->n; i++) {
            tn_ablation *a = &x->found[i];
            const double now = tn_clock_s(), end = begun + ends[round] * (until - begun);
            if (is_all(x, i) && !is_sum(x)) x->dropped[i] = true;
            if (!has_round(x, i, round)) continue;
            a->row = &x->row[i];
            a->what = tn_side_kind_of(a->row->price)->what;
            if (now > (round == 0 ? end : x->until)) continue;
            TN_RETURN_IF(run_round(x, i, round, now + fmax(end - now, 0) / (double)rows_left(x, i, round)));
            x->cumulative[i] = x->row[i].as_it_is && !x->refused[i] && !a->why[0] && !a->failed;
        }
    return TN_OK;
}

/* Attributes that differ, but no number, no byte and no time. */
static bool changes_nothing(const tn_ablating *x, size_t i)
{
    const tn_ablation *a = &x->found[i];
    return x->difference[i] == TN_PLANS_ATTRIBUTES && a->steps && a->parity.identical && a->verdict == TN_GAIN_NONE &&
           !x->o->only;
}

static void conclude(tn_ablating *x, tn_ablate_result *out)
{
    for (size_t i = 0; i < x->n; i++) {
        tn_ablation *a = &x->found[i];
        if (x->dropped[i] || !a->row) continue;
        a->ratio = tn_paired_all(&a->pairs);
        a->verdict = tn_paired_gain(&a->pairs);
        x->dropped[i] = changes_nothing(x, i);
        if (x->dropped[i]) continue;
        out->rows++;
        out->gains += a->verdict == TN_GAIN_SHOWN;
        out->losses += a->verdict == TN_GAIN_NEGATIVE;
        out->unmeasured += a->verdict == TN_GAIN_SHORT && !a->failed && !a->why[0];
        if (a->failed && !out->failed++)
            snprintf(out->worst, sizeof out->worst, "%s: %s", a->row->name, a->parity.worst);
        x->o->row(x->o->ctx, a);
    }
}

/* The tolerance of all of them is that of those in it together. */
static void add_all(tn_ablating *x)
{
    double tolerance = 0;
    tn_ablate_row *r = &x->row[x->n];
    if (!tn_ablate_in(x->o->only, "all")) return;
    for (size_t i = 0; i < x->n; i++)
        if (x->row[i].as_it_is) tolerance += x->row[i].tolerance;
    *r = (tn_ablate_row){ .tolerance = tolerance, .price = TN_ABLATE_STEP };
    snprintf(r->name, sizeof r->name, "all");
    x->has_all = true;
    x->n++;
}

static double items_of(const tn_session *s)
{
    const double rows = (double)s->batch * (double)tn_settings_int(s->settings, "train.accumulate");
    return tn_model_reads_sequences(s->model) ? rows * (double)s->length : rows;
}

static tn_status open_base(const tn_ablating *x, tn_step_probe **out)
{
    return tn_step_probe_open(
        &(tn_step_probe_options){ .user = x->o->user, .settings = x->settings, .model = x->o->model }, out);
}

tn_status tn_ablating_keep_dropout(tn_ablating *x, const tn_session *base)
{
    if (!base->dropout.chosen) return TN_OK;
    return tn_settings_set(x->settings, "train.dropout", tn_settings_text(base->settings, "train.dropout"),
                           "tenon ablate");
}

/* Where a step takes too long for the time that there is, fewer rows, unless the command says how many. */
static tn_status fit_batch(tn_ablating *x, tn_step_probe **base)
{
    double ms;
    char text[32];
    const double most = 1e3 * x->o->seconds / LEAST_STEPS;
    TN_RETURN_IF(tn_step_probe_run(*base, 1, 0, &ms));
    int64_t rows = tn_step_probe_session(*base)->batch;
    const bool said = strcmp(tn_settings_source(x->settings, "train.batch"), "command line") == 0;
    if (said || ms <= most || rows == 1 || tn_step_probe_session(*base)->source.on_policy) return TN_OK;
    for (; rows > 1 && ms > most; rows = (rows + 1) / 2) ms /= 2;
    snprintf(text, sizeof text, "%lld", (long long)rows);
    TN_RETURN_IF(tn_settings_set(x->settings, "train.batch", text, "tenon ablate"));
    tn_step_probe_close(*base);
    *base = NULL;
    return open_base(x, base);
}

static tn_status run(tn_ablating *x, tn_step_probe *base, tn_ablate_result *out)
{
    const tn_ablate_options *o = x->o;
    double ms = 0;
    x->base = tn_step_probe_session(base);
    TN_RETURN_IF(tn_ablate_list(&(tn_ablate_facts){ .session = x->base, .prepared = o->prepared, .only = o->only },
                                &x->arena, x->row, &x->n));
    add_all(x);
    TN_RETURN_IF(tn_step_probe_warm(base, 0, &ms));
    o->begun(o->ctx,
             &(tn_ablate_base){
                 .session = x->base, .ms = ms, .bytes = tn_step_probe_bytes(base), .items = items_of(x->base) });
    const time_parts part = o->eval ? scoring : timing;
    const tn_status s = run_rounds(x, x->begun + part.rounds * o->seconds);
    if (s != TN_OK && s != TN_INTERRUPTED) return s;
    conclude(x, out); /* also of what there is when somebody has stopped it */
    TN_RETURN_IF(s);
    TN_RETURN_IF(tn_ablate_turns(x, x->begun + part.turns * o->seconds));
    return tn_ablate_heldout(x, x->until, out);
}

tn_status tn_ablate_run(const tn_ablate_options *o, tn_ablate_result *out)
{
    tn_status s = TN_OK;
    tn_step_probe *base = NULL;
    tn_ablate_result r = { .rows = 0 };
    tn_ablating *x = tn_alloc(sizeof *x);
    if (!x) return TN_MEMORY;
    memset(x, 0, sizeof *x);
    x->o = o;
    x->begun = tn_clock_s();
    x->until = x->begun + o->seconds;
    TN_TRY(tn_settings_clone(o->settings, &x->settings));
    TN_TRY(open_base(x, &base));
    TN_TRY(tn_ablating_keep_dropout(x, tn_step_probe_session(base)));
    TN_TRY(fit_batch(x, &base));
    TN_TRY(run(x, base, &r));
    *out = r;
done:
    tn_step_probe_close(base);
    tn_settings_free(x->settings);
    tn_arena_free(&x->arena);
    tn_free(x);
    return s;
}
