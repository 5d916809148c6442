/* Metrics as rows: each way that batches add up against the same numbers by hand, a short last batch, groups, what a row needs of its data,
 * mistakes in rows in one line each, and train.select by any of them. */
#include "train/run/metric_rows.h"

#include "base/alloc.h"
#include "tempdir.h"
#include "train/trainer/inputs.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <string.h>

enum { B = 4, ROWS = 11, F = 2, BATCHES = 3 };

/* --- rows that are put out as they come in --------------------------------------------------------------------------------- */

static const tn_setting toy_settings[] = {
    TN_SETTING_INT("inputs", "2", TN_RANGE(1, 9), "", "numbers of a row"),
    TN_SETTING_INT("tokens", "1", TN_RANGE(1, 9), "", "tokens of a row"),
    TN_SETTING_INT("classes", "2", TN_RANGE(2, 9), "", "classes"),
    TN_SETTING_FLOAT("base", "10", TN_RANGE(1, 100), "", "of a logarithm"),
};

static tn_status toy_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_live(g, tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, F)), tn_in(b, "count"));
    const tn_ref w = tn_param(g, "w", tn_shape(1, F), tn_ones), first = tn_slice(g, x, 1, 0, 1);
    tn_output(g, "pair", tn_copy(g, x));
    tn_output(g, "first", tn_copy(g, first));
    tn_output(g, "total", tn_sum_all(g, x));
    tn_output(g, "squares", tn_sum_all(g, tn_square(g, x)));
    tn_output(g, "mean_first", tn_mean_all(g, first));
    tn_output(g, "count", tn_copy(g, tn_in(b, "count")));
    tn_output(g, "label", tn_copy(g, tn_in(b, "labels")));
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, tn_linear(g, x, w))));
    return tn_graph_status(g);
}

static double decibel(const double *sums, const tn_settings *st)
{
    return log(sums[1] / sums[0]) / log(tn_settings_float(st, "base"));
}

static double first_sum(const double *added, const tn_settings *st)
{
    (void)st;
    return added[0];
}

/* How many rows have the label that their first number says. */
static void add_hits(const tn_metric_view *v, double *sums)
{
    int64_t n, m;
    const float *pair = v->output(v->ctx, "pair", &n);
    const int32_t *labels = v->input(v->ctx, "labels", &m);
    assert_true(n == B * F && m == B && !v->output(v->ctx, "nothing", &n) && n == 0 &&
                !v->input(v->ctx, "nothing", &m) && m == 0);
    for (int64_t i = 0; i < v->rows; i++) sums[0] += (pair[i * F] > 0) == labels[i];
    sums[1] += (double)v->count;
    sums[2] += 1;
}

static double batches_of(const double *sums, const tn_settings *st)
{
    (void)st;
    return sums[2];
}

/* Of the order too. */
static double of_whole(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    double sum = 0;
    (void)st;
    assert_true(each[0] == F && each[1] == 1);
    for (int64_t i = 0; i < rows; i++) sum += (double)(i + 1) * (double)kept[0][i * F + 1] + (double)kept[1][i];
    return sum;
}

static const tn_metric_row toy_rows[] = {
    { "loss", "", TN_LOWER, TN_MEAN_BY_COUNT, .key = "heldout" },
    { "mean_first", "", TN_LOWER, .how = TN_MEAN_BY_COUNT },
    { "weighed", "", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "mean_first", "squares" } },
    { "scaled", "", TN_LOWER, TN_MEAN_BY_COUNT, .sums = { "mean_first" }, .needs = "samples" },
    { "ratio", "", TN_LOWER, TN_QUOTIENT, .sums = { "total", "squares" }, .by_group = true },
    { "psnr", "dB", TN_HIGHER, TN_FROM_SUMS, .sums = { "squares", "total" }, .make = decibel },
    { "hits", "", TN_HIGHER, TN_ADDED, .add = add_hits, .needs = "answers" },
    { "batches", "", TN_HIGHER, TN_ADDED, .add = add_hits, .make = batches_of, .key = "how_many" },
    { "order", "", TN_HIGHER, TN_OF_WHOLE, .keep = { "pair", "first" }, .whole = of_whole },
    { "rare", "", TN_LOWER, TN_MEAN_BY_COUNT, .needs = "bits" },
};

static const tn_input_row toy_inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "labels", TN_I32, { TN_B, "1" }, .below = "classes", .pad = -1 },
    { "count", TN_I32, { "1" }, .valid_rows = true },
};

static const tn_model toy = { TN_MODEL_HEAD,      .name = "toy",    .settings = toy_settings, .n_settings = 4,
                              .build = toy_build, .time = "tokens", TN_INPUTS(toy_inputs),    TN_METRICS(toy_rows) };

/* --- its data --------------------------------------------------------------------------------------------------------------- */

static float number(int64_t row, int64_t k) { return (float)((row * 7 + k * 5) % 11) - 4.0f + 0.25f * (float)k; }

static int32_t label(int64_t row) { return row % 3 == 0; }

static tn_status heldout(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    const tn_feed f = tn_feed_full(to);
    (void)ctx;
    *count = i < BATCHES ? (i + 1 < BATCHES ? B : ROWS - B * (BATCHES - 1)) : 0;
    for (int64_t b = 0; b < *count; b++) {
        for (int64_t k = 0; k < F; k++) ((float *)tn_feed_at(&f, "features"))[b * F + k] = number(i * B + b, k);
        ((int32_t *)tn_feed_at(&f, "labels"))[b] = label(i * B + b);
    }
    tn_feed_end(&f, *count);
    return TN_OK;
}

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
    tn_source source;
} rig;

static tn_status open_rig(const tn_model *m, rig *r)
{
    *r = (rig){ .source = { .heldout = heldout,
                            .bits = NAN,
                            .train_tokens = ROWS,
                            .train_samples = ROWS,
                            .number = { { "samples", ROWS }, { "answers", 1 } },
                            .n_numbers = 2 } };
    assert_ok(tn_settings_new(&r->settings));
    assert_ok(tn_settings_common(r->settings));
    assert_ok(tn_settings_add(r->settings, toy_settings, 4, "toy"));
    return tn_trainer_new(
        &(tn_trainer_options){
            .model = m, .settings = r->settings, .batch = B, .length = 1, .forward_only = true, .threads = 1 },
        &r->trainer);
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* --- each way to add up ------------------------------------------------------------------------------------------------------ */

typedef struct sums {
    double total, squares, first, n;
} sums;

static sums by_hand(int64_t from, int64_t to)
{
    sums s = { .n = (double)(to - from) };
    for (int64_t i = from; i < to; i++) {
        s.first += (double)number(i, 0);
        for (int64_t k = 0; k < F; k++)
            s.total += (double)number(i, k), s.squares += (double)(number(i, k) * number(i, k));
    }
    return s;
}

static void assert_score(const tn_evaluation *e, const char *name, double want)
{
    const double is = tn_scores_get(&e->scores, name);
    if (!(fabs(is - want) <= 1e-5 * fmax(1, fabs(want)))) fail_msg("%s is %.9g instead of %.9g", name, is, want);
}

static void ways(void **state)
{
    (void)state;
    rig r;
    tn_evaluation e;
    tn_evaluator *v;
    double hits = 0, order = 0, weighed = 0;
    assert_ok(open_rig(&toy, &r));
    assert_ok(tn_evaluator_new(r.trainer, &r.source, &v));
    assert_ok(tn_evaluator_run(v, &r.source, 0, &e));
    const sums all = by_hand(0, ROWS);
    for (int64_t i = 0; i < ROWS; i++) {
        hits += (number(i, 0) > 0) == label(i);
        order += (double)(i + 1) * (double)number(i, 1) + (double)number(i, 0);
    }
    for (int64_t i = 0; i < ROWS; i += B) {
        const sums s = by_hand(i, i + B < ROWS ? i + B : ROWS);
        weighed += s.first / s.n * s.squares;
    }
    assert_int_equal(e.count, ROWS);
    assert_int_equal(e.scores.n, 9); /* nobody knows bits here */
    assert_score(&e, "mean_first", all.first / ROWS);
    assert_score(&e, "weighed", weighed / all.squares);
    assert_score(&e, "scaled", all.first / ROWS * ROWS);
    assert_score(&e, "ratio", all.total / all.squares);
    assert_score(&e, "psnr", log10(all.total / all.squares));
    assert_score(&e, "hits", hits / ROWS);
    assert_score(&e, "batches", BATCHES);
    assert_score(&e, "order", order);
    assert_true(isnan(tn_scores_get(&e.scores, "rare")) && tn_scores_first(&e.scores) > 0);
    const uint64_t before = tn_alloc_count();
    tn_evaluation again;
    assert_ok(tn_evaluator_run(v, &r.source, 0, &again)); /* from the beginning, in the same memory */
    assert_memory_equal(&again.scores, &e.scores, sizeof e.scores);
    assert_int_equal(tn_alloc_count(), before);
    assert_ok(tn_evaluator_run(v, &r.source, 1, &again));
    assert_true(again.count == B && tn_scores_get(&again.scores, "batches") == 1);
    assert_score(&again, "mean_first", by_hand(0, B).first / B);
    tn_evaluator_free(v);
    close_rig(&r);
}

static const float *place[2];

static double whole_at(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    double sum = 0;
    (void)st;
    place[0] = place[1];
    place[1] = kept[0];
    for (int64_t i = 0; i < rows * each[0]; i++) sum += (double)kept[0][i];
    return sum;
}

/* Several cuts of one ranking (recall at 1, 5, 10) take the memory of one. */
static void kept_once(void **state)
{
    (void)state;
    static const tn_metric_row rows[] = { { "loss", .how = TN_MEAN_BY_COUNT },
                                          { "a", .how = TN_OF_WHOLE, .keep = { "pair" }, .whole = whole_at },
                                          { "b", .how = TN_OF_WHOLE, .keep = { "pair", "pair" }, .whole = whole_at } };
    tn_model model = toy;
    rig r;
    tn_evaluation e;
    model.metrics = rows;
    model.n_metrics = 3;
    assert_ok(open_rig(&model, &r));
    for (int64_t batches = 0; batches < 2; batches++) { /* all, then the rows of the first alone */
        assert_ok(tn_evaluate(r.trainer, &r.source, batches, &e));
        assert_true(place[0] && place[0] == place[1]);
        assert_score(&e, "a", by_hand(0, batches ? B : ROWS).total);
        assert_score(&e, "b", by_hand(0, batches ? B : ROWS).total);
    }
    close_rig(&r);
}

static void groups(void **state)
{
    (void)state;
    static const char *const names[] = { "even", "odd" };
    rig r;
    tn_evaluation e;
    char key[TN_SCORE_KEY];
    assert_ok(open_rig(&toy, &r));
    r.source.groups = 2;
    r.source.group_name = names;
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
    const sums a = by_hand(0, B), b = by_hand(B, 2 * B), c = by_hand(2 * B, ROWS);
    const double even = (a.total + c.total) / (a.squares + c.squares), odd = b.total / b.squares;
    assert_score(&e, "ratio_even", even);
    assert_score(&e, "ratio_odd", odd);
    assert_score(&e, "ratio", (even + odd) / 2);
    assert_int_equal(e.scores.n, 11);
    assert_string_equal(e.scores.at[5].name, "ratio_even"); /* behind its row */
    assert_string_equal(tn_metric_find(&e.metrics, "ratio_odd")->name, "ratio");
    assert_null(tn_metric_find(&e.metrics, "psnr_odd"));
    assert_string_equal(tn_metric_key(&e.metrics, "loss", key), "heldout");
    assert_string_equal(tn_metric_key(&e.metrics, "batches", key), "how_many");
    assert_string_equal(tn_metric_key(&e.metrics, "ratio_odd", key), "heldout_ratio_odd");
    assert_ok(tn_evaluate(r.trainer, &r.source, 1, &e)); /* the second group was not asked */
    assert_score(&e, "ratio", a.total / a.squares);
    assert_true(isnan(tn_scores_get(&e.scores, "ratio_odd")));
    close_rig(&r);
}

static tn_status nothing(void *ctx, int64_t i, const tn_feeder *to, int64_t *count)
{
    (void)ctx, (void)i, (void)to;
    *count = 0;
    return TN_OK;
}

static void nothing_held_out(void **state)
{
    (void)state;
    rig r;
    tn_evaluation e;
    assert_ok(open_rig(&toy, &r));
    r.source.heldout = nothing;
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
    for (size_t i = 0; i < e.scores.n; i++) assert_true(isnan(e.scores.at[i].value));
    assert_true(e.count == 0 && e.scores.n == 9);
    close_rig(&r);
}

/* --- mistakes ----------------------------------------------------------------------------------------------------------------- */

static const tn_metric_row good = { "loss", "", TN_LOWER, .how = TN_MEAN_BY_COUNT };

static const struct mistake_row {
    tn_metric_row row;
    const char *says;
} mistakes[] = {
    { { "a", .how = TN_QUOTIENT, .sums = { "total", "nothing" } },
      "model wrong: metric a: its step eval has no sum nothing: output it with tn_output" },
    { { "a", .how = TN_FROM_SUMS, .sums = { "pair" }, .make = decibel }, "metric a: its step eval has no sum pair" },
    { { "a", .how = TN_FROM_SUMS, .sums = { "count" }, .make = decibel }, "metric a: its step eval has no sum count" },
    { { "a", .how = TN_MEAN_BY_COUNT, .sums = { "total", "nothing" } }, "metric a: its step eval has no sum nothing" },
    { { "a", .how = TN_OF_WHOLE, .keep = { "pair", "nothing" }, .whole = of_whole },
      "model wrong: metric a: its step eval has no output nothing" },
    { { "a", .how = TN_QUOTIENT, .sums = { "total" } }, "metric a: a quotient is of two outputs: name both in .sums" },
    { { "a", .how = TN_FROM_SUMS, .sums = { "total" } }, "metric a: .make is missing" },
    { { "a", .how = TN_FROM_SUMS, .make = decibel }, "metric a: it has no sums" },
    { { "a", .how = TN_ADDED }, "metric a: .add is missing" },
    { { "a", .how = TN_OF_WHOLE, .keep = { "pair" } }, "metric a: .whole is missing" },
    { { "a", .how = TN_OF_WHOLE, .whole = of_whole }, "metric a: nothing is kept for it" },
    { { "a", .how = TN_OF_WHOLE, .keep = { "pair" }, .whole = of_whole, .by_group = true },
      "metric a: a metric of the whole set has no groups" },
    { { "a", .how = (tn_metric_how)77 }, "metric a: .how is none" },
    { { "a", .how = TN_MEAN_BY_COUNT, .runs = "dream" },
      "model wrong: metric a: unknown step dream: add it to the model's steps" },
    { { "loss", .how = TN_MEAN_BY_COUNT }, "metric loss: the loss is what training minimises: make it the first row" },
    { { "lr", .how = TN_MEAN_BY_COUNT }, "metric lr: the name is taken by another value of a run: choose another" },
    { { "best", .how = TN_MEAN_BY_COUNT }, "metric best: the name is taken by another value" },
    { { "a", .how = TN_MEAN_BY_COUNT, .sums = { "total" }, .key = "loss" },
      "metric a: its .key is taken by another value of a run" },
    { { "a", .how = TN_MEAN_BY_COUNT, .sums = { "total" }, .key = "heldout" },
      "metric a: its .key is taken by another value of a run" },
    { { "a", .how = TN_MEAN_BY_COUNT, .sums = { "total" }, .key = "heldout_loss" },
      "metric a: two rows have its .key" },
    { { "seconds", .how = TN_MEAN_BY_COUNT },
      "metric seconds: the name is taken by another value" }, /* an objective of studies */
    { { "last_a", .how = TN_MEAN_BY_COUNT }, "metric last_a: the name is taken by another value" },
    { { "a b", .how = TN_MEAN_BY_COUNT }, "metric a b: a name may have letters, digits" },
    { { NULL, .how = TN_MEAN_BY_COUNT }, "metric without a name: give it a name" },
    { { "a_metric_with_a_very_long_name", .how = TN_MEAN_BY_COUNT }, "the name is too long" },
};

static tn_status open_wrong(const tn_metric_row *rows, size_t n)
{
    const tn_model wrong = { TN_MODEL_HEAD,         .name = "wrong",    .settings = toy_settings,
                             .n_settings = 4,       .build = toy_build, .time = "tokens",
                             TN_INPUTS(toy_inputs), .metrics = rows,    .n_metrics = n };
    rig r;
    assert_ok(open_rig(&wrong, &r));
    const tn_status s = tn_metric_resolve(&r.source, r.trainer, r.settings); /* as a session does at opening */
    close_rig(&r);
    return s;
}

static void mistake(void **state)
{
    const struct mistake_row *m = *state;
    const tn_metric_row rows[] = { good, m->row };
    assert_fails(open_wrong(rows, 2), TN_USAGE, m->says);
    assert_null(strchr(tn_error_text(), '\n'));
}

static void mistakes_of_all(void **state)
{
    (void)state;
    const tn_metric_row a = { "a", .how = TN_MEAN_BY_COUNT, .sums = { "total" } },
                        up = { "a", "", TN_HIGHER, .how = TN_MEAN_BY_COUNT };
    tn_metric_row many[TN_METRICS_MAX + 1];
    assert_ok(open_wrong((tn_metric_row[]){ good, a }, 2));
    assert_fails(open_wrong((tn_metric_row[]){ good, a, a }, 3), TN_USAGE,
                 "model wrong: metric a: two rows have this name");
    assert_fails(open_wrong((tn_metric_row[]){ up, a }, 1), TN_USAGE,
                 "metric a: the first row is what training minimises");
    for (int i = 0; i <= TN_METRICS_MAX; i++) many[i] = good;
    assert_fails(open_wrong(many, TN_METRICS_MAX + 1), TN_USAGE,
                 "model wrong has 17 metrics, and a run has at most 16");
}

/* A row of the whole set has as many numbers in every batch. */
static tn_status build_uneven(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    TN_RETURN_IF(toy_build(g, st, b));
    tn_output(g, "few", tn_reshape(g, tn_slice(g, tn_in(b, "features"), 0, 0, 3), tn_shape(3 * F)));
    return tn_graph_status(g);
}

static void uneven(void **state)
{
    (void)state;
    static const tn_metric_row rows[] = { { "loss", .how = TN_MEAN_BY_COUNT },
                                          { "a", .how = TN_OF_WHOLE, .keep = { "few" }, .whole = of_whole } };
    const tn_model model = { TN_MODEL_HEAD,         .name = "uneven", .settings = toy_settings, .n_settings = 4,
                             .build = build_uneven, .time = "tokens", TN_INPUTS(toy_inputs),    TN_METRICS(rows) };
    rig r;
    tn_evaluation e;
    assert_ok(open_rig(&model, &r));
    assert_fails(tn_evaluate(r.trainer, &r.source, 0, &e), TN_USAGE,
                 "metric a: the output few must have the same number of values for every row");
    close_rig(&r);
}

/* --- other steps ------------------------------------------------------------------------------------------------------------- */

/* As a step that generates: what it puts out is its own, and the evaluation's outputs are not there. */
static tn_status build_twice(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    assert_string_equal(b->step, "twice");
    const tn_ref x = tn_live(g, tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, F)), tn_in(b, "count")),
                 w = tn_param(g, "w", tn_shape(1, F), tn_ones);
    tn_output(g, "doubled", tn_add(g, x, x));
    tn_output(g, "total", tn_sum_all(g, tn_linear(g, x, w)));
    tn_output(g, "mean_first", tn_mean_all(g, tn_slice(g, tn_add(g, x, x), 1, 0, 1)));
    tn_output(g, "said", tn_copy(g, tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_step_row toy_steps[] = {
    { "train", toy_build, true },
    { "eval", toy_build, false },
    { "twice", build_twice, false },
};

/* Whole numbers of a step come as floats. */
static void add_said(const tn_metric_view *v, double *added)
{
    int64_t n, m;
    const float *said = v->output(v->ctx, "said", &n);
    const int32_t *labels = v->input(v->ctx, "labels", &m);
    assert_true(said && labels && n == B && m == B && !v->output(v->ctx, "squares", &n));
    for (int64_t i = 0; i < v->rows; i++) added[0] += said[i] == (float)labels[i];
    added[1] += (double)v->rows;
}

static double last_of(const float *const *kept, int64_t rows, const int64_t *each, const tn_settings *st)
{
    (void)st;
    return rows == ROWS && each[0] == F ? (double)kept[0][rows * F - 1] : NAN;
}

static void other_steps(void **state)
{
    (void)state;
    static const tn_metric_row rows[] = {
        { "loss", .how = TN_MEAN_BY_COUNT },
        { "mean_first", .how = TN_MEAN_BY_COUNT, .runs = "twice" },
        { "sum", .how = TN_FROM_SUMS, .sums = { "total" }, .make = first_sum, .runs = "twice" },
        { "one", .how = TN_QUOTIENT, .sums = { "total", "total" }, .runs = "twice" },
        { "squares", .how = TN_FROM_SUMS, .sums = { "squares" }, .make = first_sum },
        { "exact", "", TN_HIGHER, TN_ADDED, .add = add_said, .runs = "twice" },
        { "last", .how = TN_OF_WHOLE, .keep = { "doubled" }, .whole = last_of, .runs = "twice" },
    };
    static const tn_metric_row missing[] = { { "loss", .how = TN_MEAN_BY_COUNT },
                                             { "a", .how = TN_QUOTIENT, .sums = { "squares", "total" },
                                               .runs = "twice" } };
    tn_model model = { TN_MODEL_HEAD,         .name = "stepped",  .settings = toy_settings,
                       .n_settings = 4,       .build = toy_build, .time = "tokens",
                       TN_INPUTS(toy_inputs), TN_METRICS(rows),   TN_STEPS(toy_steps) };
    rig r;
    tn_evaluation e;
    assert_ok(open_rig(&model, &r));
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
    const sums all = by_hand(0, ROWS);
    assert_score(&e, "mean_first", 2 * all.first / ROWS);
    assert_score(&e, "sum", all.total);
    assert_score(&e, "one", 1);
    assert_score(&e, "squares", all.squares);
    assert_score(&e, "exact", 1);
    assert_score(&e, "last", 2 * (double)number(ROWS - 1, 1));
    close_rig(&r);
    model.metrics = missing;
    model.n_metrics = 2;
    assert_ok(open_rig(&model, &r));
    assert_fails(tn_evaluate(r.trainer, &r.source, 0, &e), TN_USAGE,
                 "model stepped: metric a: its step twice has no sum squares");
    close_rig(&r);
}

/* --- train.select -------------------------------------------------------------------------------------------------------------- */

static void selects(void **state)
{
    (void)state;
    rig r;
    assert_ok(open_rig(&toy, &r));
    assert_ok(tn_metric_resolve(&r.source, r.trainer, r.settings));
    assert_string_equal(tn_settings_text(r.settings, "train.select"), "hits"); /* the first that needs answers */
    assert_ok(tn_settings_set(r.settings, "train.select", "psnr", "test"));
    assert_ok(tn_metric_resolve(&r.source, r.trainer, r.settings));
    assert_string_equal(tn_settings_text(r.settings, "train.select"), "psnr");
    assert_ok(tn_settings_set(r.settings, "train.select", "pnsr", "test"));
    assert_fails(tn_metric_resolve(&r.source, r.trainer, r.settings), TN_USAGE,
                 "train.select=pnsr: toy has no such metric on these data: choose auto, loss, mean_first");
    assert_ok(tn_settings_set(r.settings, "train.select", "rare", "test")); /* which these data have not */
    assert_fails(tn_metric_resolve(&r.source, r.trainer, r.settings), TN_USAGE,
                 "train.select=rare: toy has no such metric on these data");
    assert_ok(tn_settings_set(r.settings, "train.select", "auto", "test"));
    r.source.train_samples = 0;
    r.source.n_numbers = 0;
    assert_ok(tn_metric_resolve(&r.source, r.trainer, r.settings));
    assert_string_equal(tn_settings_text(r.settings, "train.select"), "auto"); /* the loss */
    close_rig(&r);
}

/* --- a list of them ------------------------------------------------------------------------------------------------------------- */

static const struct better_row {
    double a, a_loss, b, b_loss; /* NaN: not known */
    bool higher, lower;          /* whether a is better */
    const char *what;
} better_rows[] = {
    { 2, 9, 1, 1, true, false, "by the metric" },
    { 1, 1, 1, 2, true, true, "of equals the lower loss" },
    { 1, 2, 1, 2, false, false, "all equal" },
    { 1, 9, NAN, 1, true, true, "one that is known" },
    { NAN, 1, 1, 9, false, false, "one that is not known" },
    { NAN, 1, NAN, 2, true, true, "neither is known" },
    { NAN, 1, NAN, NAN, true, true, "the first of all" },
    { 5, NAN, 1, 1, false, false, "a loss that is no number" },
    { INFINITY, 1, 3, 1, true, false, "without end" },
};

static void better(void **state)
{
    const struct better_row *r = *state;
    tn_scores a = { 0 }, b = { 0 };
    tn_scores_put(&a, "loss", r->a_loss);
    if (!isnan(r->a)) tn_scores_put(&a, "psnr", r->a);
    if (!isnan(r->b_loss)) tn_scores_put(&b, "loss", r->b_loss);
    if (!isnan(r->b)) tn_scores_put(&b, "psnr", r->b);
    assert_int_equal(tn_scores_better(&a, &b, "psnr", false), r->higher);
    assert_int_equal(tn_scores_better(&a, &b, "psnr", true), r->lower);
}

static void by_name(void **state)
{
    (void)state;
    tn_scores s = { 0 };
    char name[64];
    assert_true(isnan(tn_scores_first(&s)) && isnan(tn_scores_get(&s, "loss")));
    assert_true(tn_scores_put(&s, "loss", 3) && tn_scores_put(&s, "psnr", 20) && tn_scores_put(&s, "loss", 2));
    assert_true(s.n == 2 && tn_scores_first(&s) == 2 && tn_scores_get(&s, "psnr") == 20);
    assert_false(tn_scores_put(&s, "a_name_that_is_longer_than_any_score_of_an_evaluation", 1));
    for (int i = 2; i < TN_SCORES_MAX; i++) {
        snprintf(name, sizeof name, "s%d", i);
        assert_true(tn_scores_put(&s, name, i));
    }
    assert_false(tn_scores_put(&s, "one_more", 1));
    assert_true(tn_scores_put(&s, "psnr", 21) && tn_scores_get(&s, "psnr") == 21 && s.n == TN_SCORES_MAX);
}

void tn_tests_scores(tn_test_list *l)
{
    tn_test_add(l, by_name, NULL, "scores: by name");
    for (size_t i = 0; i < sizeof better_rows / sizeof *better_rows; i++)
        tn_test_add(l, better, &better_rows[i], "scores: better, %s", better_rows[i].what);
    tn_test_add(l, kept_once, NULL, "scores: outputs of the whole set are kept once");
    tn_test_add(l, ways, NULL, "scores: each way that batches add up");
    tn_test_add(l, groups, NULL, "scores: groups");
    tn_test_add(l, nothing_held_out, NULL, "scores: nothing held out");
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        tn_test_add(l, mistake, &mistakes[i], "scores: mistake, %s", mistakes[i].says);
    tn_test_add(l, mistakes_of_all, NULL, "scores: mistakes of rows together");
    tn_test_add(l, uneven, NULL, "scores: rows of other sizes");
    tn_test_add(l, other_steps, NULL, "scores: outputs of other steps");
    tn_test_add(l, selects, NULL, "scores: train.select");
}
