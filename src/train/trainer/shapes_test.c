/* Plans for batches of smaller sizes: sizes have the names that the data give them, whatever the model calls them; a shape that the model
 * refuses is counted, and its batches have the whole plan; steps by name are planned for whole batches alone. */
#include "models/models.h"
#include "testlib.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer_internal.h"

#include <tenon/ops.h>

#include <string.h>

enum { B = 4, CELLS = 8 };

static const tn_setting settings[] = { TN_SETTING_INT("cells", "8", TN_RANGE(1, 64), "", "numbers of a row") };
static const tn_input_row own[] = { { "x", TN_F32, .dims = { TN_B, "cells" } },
                                    { "length", TN_I32, .dims = { TN_B }, .below = "cells+1" } },
                          theirs[] = { { "x", TN_F32, .dims = { TN_B, "bytes" } },
                                       { "length", TN_I32, .dims = { TN_B }, .below = "bytes+1" } };

static tn_ref mean_of(tn_graph *g, const tn_batch *b)
{
    const int64_t n = tn_ref_dim(g, tn_in(b, "x"), 1);
    const tn_ref x = tn_reshape(g, tn_in(b, "x"), tn_shape(b->batch * n, 1));
    return tn_mean_all(g, tn_square(g, tn_linear(g, x, tn_param(g, "w", tn_shape(1, 1), tn_ones))));
}

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    if (tn_ref_dim(g, tn_in(b, "x"), 1) % 2) return tn_model_error("rows are even");
    tn_output(g, "loss", mean_of(g, b));
    return tn_graph_status(g);
}

/* Alone it reads the schedule. */
static tn_status build_look(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    tn_output(g, "seen", tn_mul(g, mean_of(g, b), tn_scalar(g, "factor", 1)));
    return tn_graph_status(g);
}

static double factor_at(const tn_settings *st, int64_t step)
{
    (void)st;
    return 1 + (double)step;
}

static const tn_step_row steps[] = { { "look", build_look, false } };
static const tn_schedule_row factor[] = { { "factor", factor_at } };
static const tn_model toy = { TN_MODEL_HEAD,  .name = "toy",  .settings = settings, .n_settings = 1,
                              .build = build, TN_INPUTS(own), TN_STEPS(steps),      TN_SCHEDULES(factor) };

static void narrower(void **state)
{
    (void)state;
    static const tn_source_number numbers[] = { { "bytes", CELLS } };
    static const tn_input_shape shapes[] = { { { { "bytes", 3 } }, 1 },
                                             { { { "bytes", 4 } }, 1 },
                                             { { { "bytes", 5 } }, 1 } };
    static const char *const named[] = { "look", NULL };
    static const int64_t width[] = { CELLS, CELLS, 4, CELLS };
    const tn_input_spec spec = { .rows = theirs, .n_rows = 2, .numbers = numbers, .n_numbers = 1 };
    const char *why;
    tn_settings *st;
    tn_trainer *t;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, 1, "toy"));
    assert_ok(tn_settings_override(st, "threads=1"));
    assert_ok(tn_settings_override(st, "device=cpu"));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &toy,
                                                    .settings = st,
                                                    .batch = B,
                                                    .length = 1,
                                                    .input_spec = &spec,
                                                    .steps = named,
                                                    .shapes = shapes,
                                                    .n_shapes = 3 },
                             &t));
    assert_int_equal(tn_trainer_shapes_refused(t, &why), 2);
    assert_non_null(strstr(why, "rows are even"));
    const tn_feeder to = tn_trainer_feeder(t);
    for (int shape = 0; shape <= 3; shape++) {
        const tn_feed f = tn_feed_of(&to, shape);
        float loss, *x = tn_feed_at(&f, "x");
        assert_int_equal(f.shape, width[shape] == CELLS ? 0 : shape);
        assert_int_equal(tn_input_items(&f.inputs->slot[0], f.batch, f.length), B * width[shape]);
        assert_int_equal(f.inputs->slot[1].below, width[shape] + 1);
        for (int64_t i = 0; i < B * width[shape]; i++) x[i] = 3;
        assert_ok(tn_trainer_grad(t, 0, &loss));
        assert_true(loss == 9);
    }
    assert_int_equal(t->n_steps, 3); /* of training, of evaluation, and the one that was named */
    assert_true(t->narrower && !t->narrower->narrower && t->narrower->n_steps == 2);
    tn_trainer_free(t);
    tn_settings_free(st);
}

void tn_tests_shapes(tn_test_list *l)
{
    tn_test_add(l, narrower, NULL, "shapes: names of the data, refused ones, steps of whole batches");
}
