/* Evaluation: held-out batches through the forward plan, and through other steps that metrics read. Sums are double, in
 * the order of the batches. */
#include "train/run/training.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEEPS = 2, FLOATS = 4 };

/* An output of all rows so far; metrics that keep the same one share it. */
typedef struct kept {
    const char *step, *output;
    float *x; /* (rows, each) */
    size_t capacity;
    int64_t rows, each, batch; /* batch: the last that is in it */
} kept;

/* What a row has of the batches so far, by groups where it counts them apart. */
typedef struct tally {
    double sums[TN_SUMS_MAX];
    bool any;
} tally;

typedef struct metric {
    const tn_metric_row *row;
    const char *from[TN_SUMS_MAX]; /* outputs of one number each; NULL: none, or what the source counts */
    double times;                  /* of the mean: the number of the source that it needs */
    bool found;                    /* its step has all of these */
    bool apart;                    /* by groups */
    int64_t groups;                /* at least 1 */
    tally tally[TN_SOURCE_GROUPS];
    kept *kept[KEEPS]; /* NULL: none */
} metric;

struct tn_evaluator {
    tn_trainer *trainer;
    tn_metric_list list;
    metric *metric;                    /* (list.n) */
    kept kept[KEEPS * TN_METRICS_MAX]; /* (n_kept) */
    size_t n_kept;
    const char *const *group_name;
    const char *step;      /* whose outputs are looked at */
    float *floats[FLOATS]; /* whole numbers as such */
    size_t floats_capacity[FLOATS];
    int next_floats;
    bool (*stop)(void *ctx); /* or NULL */
    void *stop_ctx;
};

/* --- one batch ---------------------------------------------------------------------------------------------------------- */

/* Whole numbers (tokens that a step chose) as floats; a few of them may be looked at together. */
static const float *as_floats(tn_evaluator *e, const int32_t *from, int64_t n)
{
    const int k = e->next_floats = (e->next_floats + 1) % FLOATS;
    if (tn_grow((void **)&e->floats[k], &e->floats_capacity[k], (size_t)n, sizeof *e->floats[k]) != TN_OK) return NULL;
    for (int64_t i = 0; i < n; i++) e->floats[k][i] = (float)from[i];
    return e->floats[k];
}

static const float *output_of(void *evaluator, const char *name, int64_t *count)
{
    tn_evaluator *e = evaluator;
    tn_dtype type = TN_F32;
    if (!e->step || strcmp(e->step, "eval") == 0) return tn_trainer_output(e->trainer, name, count);
    const void *x = tn_trainer_step_output(e->trainer, e->step, name, &type, count);
    return x && type == TN_I32 ? as_floats(e, x, *count) : x;
}

static const void *input_of(void *evaluator, const char *name, int64_t *count)
{
    const tn_feed f = tn_trainer_feed_again(((const tn_evaluator *)evaluator)->trainer);
    *count = 0;
    for (size_t i = 0; i < f.inputs->n; i++)
        if (f.at[i] && strcmp(f.inputs->slot[i].row->name, name) == 0) {
            *count = tn_input_items(&f.inputs->slot[i], f.batch, f.length);
            return f.at[i];
        }
    return NULL;
}

static int64_t rows_of(tn_trainer *t) { return *tn_trainer_feed_again(t).valid; }

static double number_of(tn_evaluator *e, const char *name)
{
    int64_t n;
    const float *x = output_of(e, name, &n);
    return x && n == 1 ? (double)*x : NAN;
}

static void add_mean(tn_evaluator *e, const metric *m, int64_t count, double *sums)
{
    const double of = m->from[1] ? number_of(e, m->from[1]) : (double)count;
    sums[0] += number_of(e, m->from[0]) * of;
    sums[1] += of;
}

static tn_status keep_rows(tn_evaluator *e, const metric *m, int64_t batch)
{
    const int64_t B = tn_trainer_feed_again(e->trainer).batch, rows = rows_of(e->trainer);
    for (int k = 0; k < KEEPS && m->kept[k]; k++) {
        int64_t n;
        kept *to = m->kept[k];
        if (to->batch == batch) continue; /* by another metric */
        const float *x = output_of(e, to->output, &n);
        const int64_t each = x ? n / B : 0;
        if (!x || each * B != n || (to->rows && each != to->each))
            return tn_error(
                TN_USAGE,
                "metric %s: the output %s must have the same number of values for every row: keep one of (B, each)",
                m->row->name, to->output);
        const size_t before = (size_t)(to->rows * each), more = (size_t)(rows * each);
        TN_RETURN_IF(tn_grow((void **)&to->x, &to->capacity, before + more, sizeof *to->x));
        memcpy(to->x + before, x, more * sizeof *x);
        to->each = each;
        to->rows += rows;
        to->batch = batch;
    }
    return TN_OK;
}

static tn_status add_batch(tn_evaluator *e, metric *m, int64_t batch, int64_t count)
{
    const tn_metric_row *r = m->row;
    tally *a = &m->tally[batch % m->groups];
    a->any = true;
    if (r->how == TN_OF_WHOLE) return keep_rows(e, m, batch);
    if (r->how == TN_ADDED) {
        const tn_metric_view v = { .settings = tn_trainer_settings(e->trainer),
                                   .rows = rows_of(e->trainer),
                                   .count = count,
                                   .ctx = e,
                                   .output = output_of,
                                   .input = input_of };
        r->add(&v, a->sums);
    } else if (r->how == TN_MEAN_BY_COUNT) add_mean(e, m, count, a->sums);
    else
        for (int k = 0; k < TN_SUMS_MAX && m->from[k]; k++) a->sums[k] += number_of(e, m->from[k]);
    return TN_OK;
}

static tn_status find_outputs(tn_evaluator *e, metric *m);

static const char *step_of(const tn_metric_row *r) { return r->runs ? r->runs : "eval"; }

/* All metrics of the step that has just run: the next one takes the place of its outputs. */
static tn_status add_step(tn_evaluator *e, const char *step, int64_t batch, int64_t count)
{
    e->step = step;
    for (size_t i = 0; i < e->list.n; i++)
        if (strcmp(step_of(e->list.row[i]), step) == 0) {
            TN_RETURN_IF(find_outputs(e, &e->metric[i]));
            TN_RETURN_IF(add_batch(e, &e->metric[i], batch, count));
        }
    return TN_OK;
}

static tn_status evaluate_batch(tn_evaluator *e, int64_t batch, int64_t count)
{
    float loss;
    TN_RETURN_IF(tn_trainer_eval(e->trainer, &loss));
    if (batch == 0) tn_trainer_keep_outputs(e->trainer); /* its rows are full */
    TN_RETURN_IF(add_step(e, "eval", batch, count));
    for (size_t i = 0; i < e->list.n; i++) {
        const char *step = step_of(e->list.row[i]);
        bool done = strcmp(step, "eval") == 0;
        for (size_t k = 0; k < i; k++) done |= strcmp(step, step_of(e->list.row[k])) == 0;
        if (done) continue;
        TN_RETURN_IF(tn_trainer_run_step(e->trainer, step));
        TN_RETURN_IF(add_step(e, step, batch, count));
    }
    return TN_OK;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

static double quotient(const double *sums) { return sums[1] != 0 ? sums[0] / sums[1] : NAN; }

static double whole_of(const metric *m, const tn_settings *st)
{
    const float *x[KEEPS] = { NULL };
    int64_t each[KEEPS] = { 0 };
    for (int k = 0; k < KEEPS && m->kept[k]; k++) x[k] = m->kept[k]->x, each[k] = m->kept[k]->each;
    return m->row->whole(x, m->kept[0]->rows, each, st);
}

static double value_of(const tn_evaluator *e, const metric *m, int64_t group)
{
    const tn_metric_row *r = m->row;
    const tally *a = &m->tally[group];
    const tn_settings *st = tn_trainer_settings(e->trainer);
    if (!a->any) return NAN;
    if (r->how == TN_OF_WHOLE) return whole_of(m, st);
    if (r->how == TN_MEAN_BY_COUNT && r->needs) return quotient(a->sums) * m->times;
    return r->make && r->how != TN_MEAN_BY_COUNT && r->how != TN_QUOTIENT ? r->make(a->sums, st) : quotient(a->sums);
}

/* Groups count alike, however much each has. */
static void put_values(const tn_evaluator *e, const metric *m, tn_scores *out)
{
    double value[TN_SOURCE_GROUPS], sum = 0;
    int64_t n = 0;
    char name[TN_SCORE_NAME];
    for (int64_t g = 0; g < m->groups; g++) {
        value[g] = value_of(e, m, g);
        if (isnan(value[g])) continue;
        sum += value[g];
        n++;
    }
    tn_scores_put(out, m->row->name, n ? sum / (double)n : NAN);
    for (int64_t g = 0; m->apart && g < m->groups; g++) {
        snprintf(name, sizeof name, "%s_%s", m->row->name, e->group_name[g]);
        tn_scores_put(out, name, value[g]);
    }
}

tn_status tn_evaluator_run(tn_evaluator *e, const tn_source *source, int64_t batches, tn_evaluation *out)
{
    tn_evaluation found = { .metrics = e->list };
    for (size_t i = 0; i < e->list.n; i++) memset(e->metric[i].tally, 0, sizeof e->metric[i].tally);
    for (size_t i = 0; i < e->n_kept; i++) e->kept[i].rows = 0, e->kept[i].batch = -1;
    for (int64_t i = 0; batches == 0 || i < batches; i++) {
        int64_t count;
        TN_RETURN_IF(tn_source_heldout(source, i, e->trainer, &count));
        if (count == 0) break;
        if (e->stop && e->stop(e->stop_ctx)) return tn_error(TN_INTERRUPTED, "interrupted");
        TN_RETURN_IF(evaluate_batch(e, i, count));
        found.count += count;
    }
    for (size_t i = 0; i < e->list.n; i++) put_values(e, &e->metric[i], &found.scores);
    *out = found;
    return TN_OK;
}

/* --- opening ------------------------------------------------------------------------------------------------------------- */

static tn_status no_output(const tn_evaluator *e, const metric *m, const char *name, const char *kind, const char *call)
{
    return tn_error(TN_USAGE,
                    "model %s: metric %s: its step %s has no %s %s: output it with tn_output(g, \"%s\", %s), as f32",
                    tn_trainer_model(e->trainer)->name, m->row->name, step_of(m->row), kind, name, name, call);
}

static bool find_numbers(tn_evaluator *e, const char *name, bool one)
{
    int64_t n;
    const tn_graph *g = tn_plan_graph(tn_trainer_plan(e->trainer, false)); /* of chunks: of one of them */
    const tn_ref x = e->step ? (tn_ref){ 0 } : tn_graph_output(g, name);
    return output_of(e, name, &n) && (n == 1 || !one) && (!x.id || tn_ref_dtype(g, x) == TN_F32);
}

/* One number each. The mean falls back on outputs that every model has. */
static tn_status find_sums(tn_evaluator *e, metric *m)
{
    const tn_metric_row *r = m->row;
    const bool of_loss = strcmp(r->name, "loss") == 0 || r->needs; /* in another unit */
    const char *const means[] = { r->sums[0], of_loss || !r->sums[0] ? r->name : NULL, of_loss ? "loss" : NULL };
    if (r->how == TN_ADDED || r->how == TN_OF_WHOLE) return TN_OK;
    for (int k = 0; k < TN_SUMS_MAX && (k < 2 || r->how == TN_FROM_SUMS); k++) m->from[k] = r->sums[k];
    for (int k = 0; k < 3 && r->how == TN_MEAN_BY_COUNT; k++) {
        if (means[k]) m->from[0] = means[k];
        if (means[k] && find_numbers(e, means[k], false)) break;
    }
    for (int k = 0; k < TN_SUMS_MAX; k++)
        if (m->from[k] && !find_numbers(e, m->from[k], true)) return no_output(e, m, m->from[k], "sum", "one number");
    return TN_OK;
}

static kept *kept_of(tn_evaluator *e, const char *step, const char *output)
{
    for (size_t i = 0; i < e->n_kept; i++)
        if (strcmp(e->kept[i].output, output) == 0 && strcmp(e->kept[i].step, step) == 0) return &e->kept[i];
    e->kept[e->n_kept] = (kept){ .step = step, .output = output, .batch = -1 };
    return &e->kept[e->n_kept++];
}

static tn_status find_kept(tn_evaluator *e, metric *m)
{
    for (int k = 0; k < KEEPS && m->row->how == TN_OF_WHOLE && m->row->keep[k]; k++) {
        if (!find_numbers(e, m->row->keep[k], false))
            return no_output(e, m, m->row->keep[k], "output", "(B, each) numbers");
        m->kept[k] = kept_of(e, step_of(m->row), m->row->keep[k]);
    }
    return TN_OK;
}

/* Of the evaluation when it is opened; of another step, which is planned when it is first asked for, when it has run. */
static tn_status find_outputs(tn_evaluator *e, metric *m)
{
    if (m->found) return TN_OK;
    TN_RETURN_IF(find_sums(e, m));
    TN_RETURN_IF(find_kept(e, m));
    m->found = true;
    return TN_OK;
}

static tn_status open_metric(tn_evaluator *e, metric *m, const tn_metric_row *r, const tn_source *source)
{
    *m = (metric){ .row = r,
                   .times = r->needs ? tn_source_number_of(source, r->needs) : 1,
                   .apart = r->by_group && source->groups };
    m->groups = m->apart ? source->groups : 1;
    return strcmp(step_of(r), "eval") == 0 ? find_outputs(e, m) : TN_OK;
}

tn_status tn_evaluator_new(tn_trainer *t, const tn_source *source, tn_evaluator **out)
{
    tn_status s = TN_OK;
    size_t scores = 0;
    tn_evaluator *e = tn_alloc(sizeof *e);
    if (!e) return TN_MEMORY;
    *e = (tn_evaluator){ .trainer = t, .group_name = source->group_name };
    TN_TRY(tn_metric_list_of(tn_trainer_model(t), source, &e->list));
    e->metric = tn_alloc(sizeof *e->metric * e->list.n);
    if (!e->metric) TN_TRY(TN_MEMORY);
    memset(e->metric, 0, sizeof *e->metric * e->list.n);
    for (size_t i = 0; i < e->list.n; i++) {
        TN_TRY(open_metric(e, &e->metric[i], e->list.row[i], source));
        scores += 1 + (size_t)(e->metric[i].apart ? e->metric[i].groups : 0);
    }
    if (scores > TN_SCORES_MAX)
        TN_FAIL(
            TN_USAGE,
            "model %s: its metrics by groups are %zu numbers, and an evaluation has at most %d: count fewer by group",
            tn_trainer_model(t)->name, scores, TN_SCORES_MAX);
    *out = e;
    e = NULL;
done:
    tn_evaluator_free(e);
    return s;
}

void tn_evaluator_stop(tn_evaluator *e, bool (*stop)(void *ctx), void *ctx)
{
    e->stop = stop;
    e->stop_ctx = ctx;
}

void tn_evaluator_free(tn_evaluator *e)
{
    if (!e) return;
    for (size_t i = 0; i < e->n_kept; i++) tn_free(e->kept[i].x);
    for (int k = 0; k < FLOATS; k++) tn_free(e->floats[k]);
    tn_free(e->metric);
    tn_free(e);
}

tn_status tn_evaluate(tn_trainer *t, const tn_source *source, int64_t batches, tn_evaluation *out)
{
    tn_evaluator *e;
    TN_RETURN_IF(tn_evaluator_new(t, source, &e));
    const tn_status s = tn_evaluator_run(e, source, batches, out);
    tn_evaluator_free(e);
    return s;
}
