/* Several training steps of one model: instruments and watchers see the step that ran, with the sizes of its own outputs; schedules reach every
 * plan, also those of chunks; mistakes in rows are refused before anything reads them. */
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include "models/models.h"
#include "testlib.h"

#include <tenon/ops.h>

#include <math.h>
#include <string.h>

enum { B = 4, CELLS = 6 };

/* --- a toy ------------------------------------------------------------------------------------------------------------------ */

static const tn_input_row rows[] = { { "x", TN_F32, .dims = { TN_B, "6" } } };

static tn_ref residual(tn_graph *g, const tn_batch *b)
{
    return tn_linear(g, tn_in(b, "x"), tn_param(g, "w", tn_shape(CELLS, CELLS), tn_normal(0.1f)));
}

/* Both put out "seen": all numbers, or one. */
static tn_status build_wide(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref y = residual(g, b);
    tn_output(g, "seen", y);
    tn_output(g, "loss", tn_mul(g, tn_mean_all(g, tn_square(g, y)), tn_scalar(g, "factor", 1)));
    return tn_graph_status(g);
}

static tn_status build_narrow(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    (void)st;
    const tn_ref y = tn_mean_all(g, tn_square(g, residual(g, b)));
    tn_output(g, "seen", y);
    tn_output(g, "only", tn_copy(g, y));
    tn_output(g, "loss", tn_mul(g, y, tn_scalar(g, "factor", 1)));
    return tn_graph_status(g);
}

static const tn_step_row steps[] = { { "wide", build_wide, true }, { "narrow", build_narrow, true } };

static size_t in_turn(const tn_settings *st, int64_t step)
{
    (void)st;
    return (size_t)(step % 2);
}

static double factor_at(const tn_settings *st, int64_t step)
{
    (void)st;
    return 1 + (double)step;
}

static const tn_schedule_row factor[] = { { "factor", factor_at } };

static int64_t seen_count, only_count; /* as the instruments found them; -1: there is none */

static void ask(const tn_settings *st, const tn_instruments *i)
{
    (void)st;
    if (!i->output(i->ctx, "seen", &seen_count)) seen_count = -1;
    if (!i->output(i->ctx, "only", &only_count)) only_count = -1;
}

static const tn_model toy = { TN_MODEL_HEAD,        .name = "toy",     TN_INPUTS(rows),   TN_STEPS(steps),
                              TN_SCHEDULES(factor), .choose = in_turn, .instruments = ask };

static tn_settings *settings_of(const char *more)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_override(st, "threads=1"));
    assert_ok(tn_settings_override(st, "device=cpu"));
    if (more) assert_ok(tn_settings_override(st, more));
    return st;
}

static tn_status open_toy(const tn_model *m, const tn_settings *st, tn_trainer **t)
{
    return tn_trainer_new(&(tn_trainer_options){ .model = m, .settings = st, .batch = B, .length = 1 }, t);
}

static void hear(void *ctx, const char *name, double value, const char *unit)
{
    (void)ctx, (void)name, (void)value, (void)unit;
}

static void told(void *ctx, tn_trainer_event what, tn_bound *b, double seconds)
{
    (void)seconds;
    if (what == TN_EVENT_GRAD) *(bool *)ctx = tn_graph_output(tn_plan_graph(tn_bound_plan(b)), "only").id != 0;
}

static void each_has_its_own(void **state)
{
    (void)state;
    tn_settings *st = settings_of(NULL);
    tn_trainer *t;
    bool narrow = false;
    assert_ok(open_toy(&toy, st, &t));
    tn_trainer_watch(t, (tn_watch){ .ctx = &narrow, .ran = told });
    const tn_feed f = tn_trainer_feed(t);
    tn_feed_random(&f, (tn_rng){ .seed = 1 });
    for (int64_t step = 0; step < 4; step++) {
        float loss;
        tn_update_result a;
        assert_ok(tn_trainer_grad(t, step, &loss));
        assert_int_equal(narrow, step % 2);
        assert_ok(tn_trainer_instruments(t, hear, NULL, NULL));
        assert_int_equal(seen_count, step % 2 ? 1 : B * CELLS);
        assert_int_equal(only_count, step % 2 ? 1 : -1);
        assert_ok(tn_trainer_apply(t, step, 1, loss, &a));
    }
    tn_trainer_free(t);
    tn_settings_free(st);
}

static void mistakes(void **state)
{
    (void)state;
    static const tn_schedule_row nameless[] = { { NULL, factor_at } },
                                 input[] = { { "factor", factor_at }, { "x", factor_at } };
    static const tn_loss_row unknown[] = { { "loss", "labels" } }, empty[] = { { NULL, TN_T } };
    const tn_input_row counts[] = { rows[0], { "n", TN_F32, .dims = { "1" }, .valid_rows = true } };
    tn_settings *st = settings_of(NULL);
    tn_trainer *t;
    tn_model m = toy;
    m.schedules = nameless;
    assert_fails(open_toy(&m, st, &t), TN_USAGE, "model toy has a schedule without a name or a function");
    m.schedules = input; /* an input of that name is no scalar */
    m.n_schedules = 2;
    assert_fails(open_toy(&m, st, &t), TN_USAGE, "model toy, schedule x: no plan has a scalar of that name");
    m = toy;
    m.n_losses = 1;
    m.losses = unknown;
    assert_fails(open_toy(&m, st, &t), TN_USAGE,
                 "model toy, loss loss: its count is \"labels\", which is not an input");
    m.losses = empty;
    assert_fails(open_toy(&m, st, &t), TN_USAGE, "model toy has a loss row without an output or a count");
    static const tn_cost_row cost[] = { { "looks", "seen", .eval = false } };
    m = toy;
    m.costs = cost;
    m.n_costs = 1;
    assert_fails(open_toy(&m, st, &t), TN_USAGE, "model toy, cost looks: its output seen is not i32 (B)");
    m = toy;
    m.inputs = counts;
    m.n_inputs = 2;
    assert_fails(open_toy(&m, st, &t), TN_USAGE, "model toy, input n: .valid_rows is for TN_I32 and dims { \"1\" }");
    tn_settings_free(st);
}

/* What a trainer that could not be opened was lent stays. */
static void lent_store(void **state)
{
    (void)state;
    tn_settings *st = settings_of("compute=tf32");
    tn_store *store;
    tn_trainer *t;
    assert_ok(tn_store_new(TN_CPU, 1, &store));
    assert_fails(
        tn_trainer_new(&(tn_trainer_options){ .model = &toy, .settings = st, .batch = B, .length = 1, .store = store },
                       &t),
        TN_USAGE, "compute=tf32");
    assert_int_equal(tn_store_count(store), 0);
    tn_store_free(store);
    tn_settings_free(st);
}

/* --- chunks --------------------------------------------------------------------------------------------------------------------- */

/* States from token to token, a loss that a schedule multiplies. */
static tn_status build_carrying(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_forward made = { TN_NONE, TN_NONE, TN_NONE };
    TN_RETURN_IF(tn_model_named("ten")->forward(g, st, b, &made));
    tn_output(g, "loss", tn_mul(g, tn_mean_all(g, tn_square(g, made.hidden)), tn_scalar(g, "factor", 1)));
    return tn_graph_status(g);
}

static const tn_input_row carrying_rows[] = {
    { "tokens", TN_I32, .dims = { TN_B, TN_T }, .cut = true, .below = "vocab" },
    { "class", TN_I32, .dims = { TN_B }, .below = "3", .pad = -1 },
};
static const tn_model carrying = { TN_MODEL_HEAD,           .name = "carrying", .build = build_carrying,
                                   .inputs = carrying_rows, .n_inputs = 1,      TN_SCHEDULES(factor) };

static tn_status open_carrying(const tn_model *m, const char *recompute, tn_settings **st, tn_trainer **t)
{
    const char *const set[] = { "dim=16",        "layers=1",   "pattern=D",    "vocab=11", "train.context=24",
                                "train.steps=9", "device=cpu", "plan.chunk=8", recompute };
    const tn_model *ten;
    assert_ok(tn_settings_resolve("ten", set, sizeof set / sizeof *set, st, &ten));
    return tn_trainer_new(&(tn_trainer_options){ .model = m, .settings = *st, .batch = 2, .length = 24, .threads = 1 },
                          t);
}

static void schedules_in_chunks(void **state)
{
    (void)state;
    static const char *const how[] = { "plan.recompute=none", "plan.recompute=chunk" };
    float loss[2][4], last;
    for (int k = 0; k < 2; k++) {
        tn_settings *st;
        tn_trainer *t;
        assert_ok(open_carrying(&carrying, how[k], &st, &t));
        const tn_feed f = tn_trainer_feed(t);
        tn_feed_random(&f, (tn_rng){ .seed = 1 });
        for (int i = 0; i < 3; i++) assert_ok(tn_trainer_grad(t, i, &loss[k][i]));
        assert_ok(tn_trainer_eval(t, &loss[k][3]));
        tn_trainer_free(t);
        tn_settings_free(st);
    }
    for (int i = 0; i < 4; i++) assert_true(fabsf(loss[0][i] - loss[1][i]) < 1e-5f * loss[0][i]);
    last = loss[1][3] / loss[1][0];
    assert_true(fabsf(loss[1][2] / loss[1][0] - 3) < 1e-4f && fabsf(last - 9) < 1e-3f); /* 1 + step; the last of nine */
}

static void chunks_refuse(void **state)
{
    (void)state;
    static const tn_loss_row by_class[] = { { "loss", "class" } };
    static const tn_schedule_row none[] = { { "facto", factor_at } };
    tn_settings *st;
    tn_trainer *t;
    tn_model m = carrying;
    m.n_inputs = 2;
    m.losses = by_class;
    m.n_losses = 1;
    assert_fails(open_carrying(&m, "plan.recompute=chunk", &st, &t), TN_USAGE,
                 "loss loss is a mean over the input class, which is not split along time");
    tn_settings_free(st);
    m = carrying;
    m.schedules = none;
    assert_fails(open_carrying(&m, "plan.recompute=chunk", &st, &t), TN_USAGE,
                 "schedule facto: no plan has a scalar of that name");
    tn_settings_free(st);
}

void tn_tests_steps(tn_test_list *l)
{
    tn_test_add(l, each_has_its_own, NULL, "steps: instruments and watchers see the one that ran");
    tn_test_add(l, mistakes, NULL, "steps: mistakes in rows are refused");
    tn_test_add(l, lent_store, NULL, "steps: a store that was lent stays when a trainer cannot be opened");
    tn_test_add(l, schedules_in_chunks, NULL, "steps: schedules in chunks are those of the whole");
    tn_test_add(l, chunks_refuse, NULL, "steps: what chunks cannot count is refused");
}
