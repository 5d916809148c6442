/* Rows at once: a divisor is near every number of rows that may fit, and with a limit of memory the search ends with as many as fit. Plans and
 * their limits are real, times are made up: more rows are faster. */
#include "report/tune/tune.h"
#include "report/probe/probe.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const shape[] = { "gpt",      "dim=16",    "layers=1",   "heads=2",
                                     "vocab=32", "threads=1", "device=cpu", "train.context=16" };
static const char KEEP[] = "threads,plan.recompute,loader.workers";

typedef struct setup {
    tn_settings *settings;
    const tn_model *model;
    tn_step_probe *probe; /* what training would run */
    tn_tune_space space;
} setup;

static void open_setup(setup *s, int batch, int accumulate, double memory_gb)
{
    enum { SHAPE = sizeof shape / sizeof *shape - 1 };
    const char *word[SHAPE + 3];
    char more[3][64];
    memcpy(word, shape + 1, sizeof *word * SHAPE);
    snprintf(more[0], sizeof more[0], "train.batch=%d", batch);
    snprintf(more[1], sizeof more[1], "train.accumulate=%d", accumulate);
    snprintf(more[2], sizeof more[2], "plan.memory_gb=%.9g", memory_gb);
    for (int i = 0; i < 3; i++) word[SHAPE + i] = more[i];
    assert_ok(tn_settings_resolve(shape[0], word, SHAPE + 2 + (memory_gb > 0), &s->settings, &s->model));
    assert_ok(tn_step_probe_open(&(tn_step_probe_options){ .settings = s->settings, .model = s->model, .runs = true },
                                 &s->probe));
    assert_ok(tn_tune_space_of(
        &(tn_tune_space_options){ .session = tn_step_probe_session(s->probe), .cores = 1, .keep = KEEP }, &s->space));
}

static void close_setup(setup *s)
{
    tn_step_probe_close(s->probe);
    tn_settings_free(s->settings);
}

/* Of a step's rows in all; *rows: at once. */
static int64_t read_rows(const tn_tune_value *v, int64_t *rows)
{
    long long batch = 0, accumulate = 0, parts = 0;
    for (int i = 0; i < v->n; i++) {
        (void)sscanf(v->word[i], "train.batch=%lld", &batch);
        (void)sscanf(v->word[i], "train.accumulate=%lld", &accumulate);
        (void)sscanf(v->word[i], "plan.microbatches=%lld", &parts);
    }
    assert_true(parts > 0 && batch % parts == 0);
    *rows = batch / parts;
    return batch * accumulate;
}

static int64_t rows_at(const setup *s, const tn_tune_point *p)
{
    int64_t rows;
    (void)read_rows(&s->space.axis[s->space.rows].value[p->at[s->space.rows]], &rows);
    return rows;
}

/* Made-up rows need not come from data: rows of all batches of a step may be computed at once. */
static void near_every_divisor(void **state)
{
    static const int of[][2] = {
        { 2, 1 }, { 97, 1 }, { 60, 1 }, { 720, 1 }, { 8, 9 }, { 10, 9 }, { 100, 2 }, { 1, 360 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        setup s;
        const int64_t all = (int64_t)of[i][0] * of[i][1];
        open_setup(&s, of[i][0], of[i][1], 0);
        assert_true(s.space.n == 1 && s.space.rows == 0);
        const tn_tune_axis *a = &s.space.axis[0];
        int64_t below = 0, tried = 0;
        for (int64_t d = 1, k = 0; d <= all; d++) {
            int64_t rows = 0;
            if (all % d) continue;
            if (k < a->n) assert_true(read_rows(&a->value[k], &rows) == all);
            if (rows == d) {
                below = d;
                if (!a->between[k++]) tried = d;
            }
            if (11 * below < 10 * d) fail_msg("%d x %d: nothing near %d rows", of[i][0], of[i][1], (int)d);
        }
        assert_int_equal(tried, all);
        assert_int_equal(rows_at(&s, &s.space.first), all);
        assert_int_equal(rows_at(&s, &s.space.start), of[i][0]);
        close_setup(&s);
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------------------ */

static tn_status open_point(const setup *s, const tn_tune_point *p)
{
    const char *word[TN_TUNE_WORDS];
    tn_step_probe *probe = NULL;
    const size_t n = tn_tune_words(&s->space, p, NULL, word);
    const tn_status st =
        tn_step_probe_open(&(tn_step_probe_options){ .settings = s->settings, .model = s->model, .word = word, .n = n },
                           &probe);
    tn_step_probe_close(probe);
    return st;
}

static tn_status fits(void *ctx, const tn_tune_point *p, bool *yes)
{
    const tn_status st = open_point(ctx, p);
    *yes = st == TN_OK;
    return st == TN_MEMORY ? TN_OK : st;
}

static tn_status pairs(void *ctx, const tn_tune_point *best, tn_tune_tried *t, bool again, int *n, double *ratio)
{
    const setup *s = ctx;
    const tn_status st = again ? open_point(s, &t->at) : TN_OK;
    if (st == TN_MEMORY) {
        t->verdict = TN_TUNE_MEMORY;
        *n = 0;
        return TN_OK;
    }
    for (int i = 0; i < *n; i++) ratio[i] = pow((double)rows_at(s, &t->at) / (double)rows_at(s, best), 0.3);
    return st;
}

static tn_status check(void *ctx, const tn_tune_point *best, tn_tune_tried *t)
{
    (void)ctx, (void)best, (void)t;
    return TN_OK;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static tn_tune_point find(setup *s)
{
    tn_tune_point best;
    tn_tune_search search = { .axes = 1,
                              .values = { s->space.axis[0].n },
                              .between = s->space.axis[0].between,
                              .start = s->space.start,
                              .first = &s->space.first,
                              .ctx = s,
                              .pairs = pairs,
                              .fits = fits,
                              .check = check,
                              .over = never };
    assert_ok(tn_tune_find(&search, &best));
    return best;
}

/* By trying all of them, whatever is offered. */
static int64_t most_that_fit(const setup *s, int64_t all)
{
    for (int64_t d = all;; d--) {
        char batch[40], accumulate[40];
        const char *word[] = { batch, accumulate, "plan.microbatches=1" };
        tn_step_probe *p = NULL;
        if (all % d) continue;
        snprintf(batch, sizeof batch, "train.batch=%d", (int)d);
        snprintf(accumulate, sizeof accumulate, "train.accumulate=%d", (int)(all / d));
        const tn_status st = tn_step_probe_open(
            &(tn_step_probe_options){ .settings = s->settings, .model = s->model, .word = word, .n = 3 }, &p);
        tn_step_probe_close(p);
        if (st == TN_OK) return d;
        assert_int_equal(st, TN_MEMORY);
    }
}

static void largest_that_fits(void **state)
{
    static const int of[][2] = { { 360, 1 }, { 10, 18 } };
    static const double limits[] = { 0.93, 0.55, 0.31, 0.17 }; /* of the memory of all rows at once */
    int inside = 0;
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        setup s, free;
        const int batch = of[i / 4][0], times = of[i / 4][1];
        open_setup(&free, batch * times, 1, 0);
        const double all = tn_step_probe_bytes(free.probe);
        close_setup(&free);
        open_setup(&s, batch, times, 1e-9 * limits[i % 4] * all);
        const tn_tune_point p = find(&s);
        const int64_t found = rows_at(&s, &p), most = most_that_fit(&s, batch * times);
        if (11 * found < 10 * most || found > most)
            fail_msg("%d x %d, %.2f of the memory: %d rows, and %d fit", batch, times, limits[i % 4], (int)found,
                     (int)most);
        inside += s.space.axis[0].between[p.at[0]];
        close_setup(&s);
    }
    assert_true(inside >= 3); /* values that are not tried in any case */
}

/* With dropout the rows at once stay: other parts of a batch would have other masks. auto is a rate where data are known, and may become
 * one where they are not. */
static void dropout_keeps_rows(void **state)
{
    static const struct {
        const char *dropout, *task, *steps;
        bool cuts;
    } of[] = { { "train.dropout=0", NULL, "train.steps=10", true },
               { "train.dropout=0.1", NULL, "train.steps=10", false },
               { "train.dropout=auto", NULL, "train.steps=10", false },
               { "train.dropout=auto", "task=parity", "train.steps=4", true }, /* not one epoch */
               { "train.dropout=auto", "task=parity", "train.steps=4000", false } };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *const word[] = { of[i].dropout,   of[i].steps,  "dim=8",       "threads=1",
                                     "train.batch=8", "device=cpu", "task=parity", "task.bits=6" };
        tn_session s = { 0 };
        tn_tune_space space;
        assert_ok(tn_session_open(of[i].task ? "net" : "gpt_tiny", word, of[i].task ? 8 : 6, false, &s));
        assert_ok(tn_tune_space_of(&(tn_tune_space_options){ .session = &s, .cores = 1, .keep = KEEP }, &space));
        if ((space.rows >= 0) != of[i].cuts)
            fail_msg("%s %s %s: %d", of[i].dropout, of[i].steps, of[i].task ? of[i].task : "no data", space.rows);
        tn_session_close(&s);
    }
}

void tn_tests_tune_rows(tn_test_list *l)
{
    tn_test_add(l, near_every_divisor, NULL, "tune rows: a divisor near every number of rows");
    tn_test_add(l, dropout_keeps_rows, NULL, "tune rows: dropout");
    tn_test_add(l, largest_that_fits, NULL, "tune rows: the largest batch that fits");
}
