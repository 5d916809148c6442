/* While one side of a pair runs, the other's threads make no batches: a run is paid for with as many as it takes. And steps with what training
 * does around them: as many lines as log.every asks for. */
#include "report/probe/lines.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <tenon/ops.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES, VALID_ROWS, WIDTH = 4, B = 8, SIDES = 2, AHEAD = 64 };

static atomic_int made[SIDES]; /* records read by each side */

static tn_status open_records(const tn_settings *st, void **data, tn_records_about *about)
{
    int *side = malloc(sizeof *side);
    assert_non_null(side);
    *side = (int)tn_settings_int(st, "side");
    *data = side;
    *about = (tn_records_about){ .count = { 64, 8, 8 }, .identity = 1 };
    return TN_OK;
}

/* Dear: a batch of them takes about as long as several steps. */
static int64_t read_record(const void *data, int split, int64_t i, int64_t step, void *const *at)
{
    volatile float x = (float)(i + split + step);
    for (int k = 0; k < 30000; k++) x = x * 0.999f + 0.1f;
    for (int k = 0; at[FEATURES] && k < WIDTH; k++) ((float *)at[FEATURES])[k] = x * 1e-3f * (float)k;
    made[*(const int *)data]++;
    return 1;
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref x = tn_in(b, "features"), w = tn_param(g, "w", tn_shape(WIDTH, WIDTH), tn_normal(0.1f));
    tn_output(g, "loss", tn_mse(g, tn_linear(g, x, w), x));
    return tn_graph_status(g);
}

static const tn_setting settings[] = { TN_SETTING_INT("side", "0", TN_RANGE(0, SIDES - 1), "", "who reads") };
static const tn_input_row inputs[] = {
    [FEATURES] = { "features", TN_F32, { TN_B, "4" }, .pad = 0 },
    [VALID_ROWS] = { "rows", TN_I32, { "1" }, .valid_rows = true },
};
static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };
static const tn_records records = {
    .name = "dear", .inputs = inputs, .n_inputs = 2, .open = open_records, .close = free, .read = read_record
};
static const tn_model model = { TN_MODEL_HEAD,  .name = "dear",    .settings = settings, .n_settings = 1,
                                .build = build, TN_INPUTS(inputs), TN_METRICS(metrics),  .records = &records };

static tn_step_probe *open_side(int side, const char *more)
{
    tn_settings *st;
    tn_step_probe *p = NULL;
    const char *const word[] = { side ? "side=1" : "side=0", "train.batch=8", "threads=1", "train.eval_every=0", more };
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, 1, "dear"));
    assert_ok(
        tn_step_probe_open(&(tn_step_probe_options){ .settings = st, .model = &model, .word = word, .n = 5 }, &p));
    tn_settings_free(st);
    return p;
}

static void makes_nothing_in_between(void **state)
{
    (void)state;
    double ms;
    tn_step_probe *a = open_side(0, "loader.workers=0"), *b = open_side(1, "loader.prefetch=64");
    const int opened = made[1];
    assert_ok(tn_step_probe_run(b, 2, 0, &ms));
    const int before = made[1], first = made[0];
    assert_true(before - opened >= 2 * B);
    assert_ok(tn_step_probe_run(a, AHEAD, 0, &ms));
    assert_int_equal(made[0] - first, AHEAD * B);
    assert_int_equal(made[1], before); /* it could have made all of the 64 meanwhile */
    assert_true(tn_step_probe_items(a) == B && tn_step_probe_items(b) == B);
    assert_ok(tn_step_probe_run(b, AHEAD + 2, 0, &ms)); /* more than it has: it goes on */
    assert_true(made[1] > before);
    assert_ok(tn_step_probe_gradients(b));
    const int rested = made[1];
    assert_ok(tn_step_probe_run(a, AHEAD, 0, &ms));
    assert_int_equal(made[1], rested);
    tn_step_probe_close(a);
    tn_step_probe_close(b);
}

static void lines(void **state)
{
    (void)state;
    double ms = 0;
    tn_step_probe *p = open_side(0, "loader.workers=0");
    const int before = made[0]; /* its labels were counted */
    assert_ok(tn_step_probe_lines(p, 10, &ms));
    assert_true(ms > 0 && made[0] - before == 20 * B);
    assert_ok(tn_step_probe_lines(p, 1, &ms)); /* once more, from the beginning of a run */
    assert_true(ms > 0 && made[0] - before == 22 * B);
    tn_step_probe_close(p);
    p = open_side(0, "train.from=/nowhere"); /* no probe reads the weights that a run starts from */
    assert_ok(tn_step_probe_lines(p, 1, &ms));
    tn_step_probe_close(p);
    p = open_side(0, "train.steps=15");
    assert_fails(tn_step_probe_lines(p, 10, &ms), TN_INTERNAL, "a probe of 20 steps ended after 15");
    tn_step_probe_close(p);
}

void tn_tests_rest_probe(tn_test_list *l)
{
    tn_test_add(l, makes_nothing_in_between, NULL, "step probe: no batches in somebody else's time");
    tn_test_add(l, lines, NULL, "step probe: steps with their lines");
}
