/* Surfaces on their way into a step: a batch holds what its optimizer step draws, made ahead by a thread or not; held-out surfaces
 * are always the same; a run that was stopped anywhere ends with the bits of one that was not, and is not continued on another
 * task. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "mlp.h"
#include "tempdir.h"
#include "run_pieces.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

enum { CELLS = 784, B = 8, TRAIN = 60, STEPS = 20 };

/* --- a model that reads surfaces -------------------------------------------------------------------------------------------- */

static const tn_setting settings[] = {
    TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e6), "", "features per token (auto: the task's)"),
    TN_SETTING_AUTO_INT("tokens", "auto", TN_RANGE(1, 1e6), "", "tokens per sample (auto: the task's)"),
    TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", "classes (auto: the task's)"),
    TN_SETTING_AUTO_INT("width", "auto", TN_RANGE(2, 1024), "", "columns of the surface (auto: the task's)"),
    TN_SETTING_AUTO_INT("height", "auto", TN_RANGE(2, 1024), "", "rows of the surface (auto: the task's)"),
    TN_SETTING_INT("dim", "6", TN_RANGE(1, 65536), "", "width of the layer"),
};

static const tn_input_row inputs[] = {
    { "features", TN_F32, .dims = { TN_B, TN_T, "inputs" } },
    { "target", TN_F32, .dims = { TN_B, "cells" }, .optional = true },
    { "goal", TN_I32, .dims = { TN_B, "cells" }, .pad = -1, .optional = true },
    { "labels", TN_I32, { TN_B, "labels" }, .pad = -1, .optional = true },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
};

/* What is missing between input and target comes from a narrow layer. */
static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t n = tn_settings_int(st, "inputs"), dim = tn_settings_int(st, "dim");
    const tn_ref x = tn_live(g, tn_reshape(g, tn_in(b, "features"), tn_shape(b->batch, n)), tn_in(b, "count"));
    const tn_ref up = tn_param(g, "up", tn_shape(dim, n), tn_normal(0.1f)),
                 down = tn_param(g, "down", tn_shape(n, dim), tn_normal(0.1f));
    const tn_ref y = tn_add(g, x, tn_linear(g, tn_linear(g, x, up, .act = TN_ACT_TANH), down));
    const bool goals = tn_in(b, "goal").id != 0;
    if (tn_number(b, "targets") != 1 || tn_number(b, "cells") != (double)n || tn_settings_int(st, "width") != 28)
        return tn_model_error("the numbers of the data are not there");
    if (goals) tn_output(g, "goals", tn_copy(g, tn_in(b, "goal")));
    tn_output(g, "numbers", tn_copy(g, tn_in(b, "sample")));
    tn_output(g, "loss", tn_mse(g, y, tn_live(g, tn_in(b, "target"), tn_in(b, "count"))));
    return tn_graph_status(g);
}

static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };

static const tn_model narrow = { TN_MODEL_HEAD,
                                 .name = "narrow",
                                 .summary = "a narrow layer",
                                 .settings = settings,
                                 .n_settings = sizeof settings / sizeof *settings,
                                 .build = build,
                                 .time = "tokens",
                                 TN_INPUTS(inputs),
                                 TN_METRICS(metrics) };

static tn_settings *settings_of(const char *words)
{
    tn_settings *st;
    char text[800];
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, sizeof settings / sizeof *settings, "narrow"));
    snprintf(text, sizeof text,
             "task.images=strokes task.size=%d threads=1 train.batch=%d train.steps=%d train.warmup=2 train.lr=1e-2 "
             "opt.resident_samples=off model=narrow %s",
             TRAIN, B, STEPS, words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    return st;
}

static tn_status try_session(tn_session *s, const tn_model *model, const char *words)
{
    tn_settings *st = settings_of(words);
    const tn_status status =
        tn_session_open_with(&(tn_session_options){ .settings = st, .model = model, .needs_data = true }, s);
    tn_settings_free(st);
    return status;
}

static void open_session(tn_session *s, const char *words) { assert_ok(try_session(s, &narrow, words)); }

/* --- batches ------------------------------------------------------------------------------------------------------------------- */

typedef struct surface {
    float x[CELLS], target[CELLS];
    int32_t goal[CELLS];
} surface;

/* The rows of the batch are these of the set, drawn for this step. */
static void assert_batch(tn_session *s, const tn_samples *set, tn_data_split split, int64_t first, int64_t rows,
                         int64_t step)
{
    static surface v;
    const float *x = tn_trainer_input(s->trainer, "features"), *target = tn_trainer_input(s->trainer, "target");
    const int32_t *goal = tn_trainer_input(s->trainer, "goal"), *sample = tn_trainer_input(s->trainer, "sample");
    assert_int_equal(*(const int32_t *)tn_trainer_input(s->trainer, "count"), rows);
    for (int64_t b = 0; b < rows; b++) {
        const int64_t i = split == TN_TRAIN ? sample[b] : first + b;
        set->targets->read(set, set->index[split][i], step, tn_targets_progress(set->targets, step, STEPS), v.x,
                           v.target, v.goal);
        assert_memory_equal(x + b * CELLS, v.x, sizeof v.x);
        assert_memory_equal(target + b * CELLS, v.target, sizeof v.target);
        if (set->targets->has_goals) assert_memory_equal(goal + b * CELLS, v.goal, sizeof v.goal);
    }
    for (int64_t k = rows * CELLS; k < B * CELLS; k++)
        assert_true(x[k] == 0 && target[k] == 0 && (!goal || goal[k] == -1) &&
                    (goal != NULL) == set->targets->has_goals);
}

static const char *const tasks[] = {
    "task=route task.dx=3 task.dy=-2",
    "task=route task.move=transpose",
    "task=restore",
    "task=restore task.damage=hole",
};

static void batches(void **state)
{
    const char *words = *state;
    char text[200];
    tn_samples *set = NULL;
    for (int ahead = 0; ahead < 2; ahead++) {
        tn_session s;
        int64_t count, at = 0;
        snprintf(text, sizeof text, "%s train.accumulate=2 %s", words,
                 ahead ? "loader.prefetch=3" : "loader.workers=0");
        open_session(&s, text);
        if (!set) assert_ok(tn_task_samples(s.settings, NULL, &set));
        assert_int_equal(s.source.prefetch != NULL, ahead != 0);
        for (int64_t batch = 0; batch < 2 * STEPS; batch++, at = at + B < TRAIN ? at + B : 0) {
            const int64_t rows = TRAIN - at < B ? TRAIN - at : B;
            assert_ok(tn_source_next(&s.source, batch / 2, s.trainer, &count));
            assert_int_equal(count, rows);
            assert_batch(&s, set, TN_TRAIN, 0, rows, batch / 2);
            if (batch % 10) continue;
            assert_ok(tn_source_heldout(&s.source, 0, s.trainer, &count));
            assert_batch(&s, set, TN_VALID, 0, B, -1);
            assert_ok(tn_source_heldout(&s.source, 1, s.trainer, &count));
            assert_int_equal(count, 12 - B);
            assert_batch(&s, set, TN_VALID, B, count, -1);
        }
        assert_true(tn_source_number_of(&s.source, "width") == 28 && tn_source_number_of(&s.source, "height") == 28 &&
                    tn_source_number_of(&s.source, "cells") == CELLS &&
                    isnan(tn_source_number_of(&s.source, "answers")));
        tn_session_close(&s);
    }
    tn_samples_free(set);
}

/* A task has values of its own for what nobody set; by default batches are made ahead. */
static void defaults(void **state)
{
    (void)state;
    tn_session s;
    open_session(&s, "task=restore");
    assert_string_equal(tn_settings_text(s.settings, "task.noise"), "0.3");
    assert_string_equal(tn_settings_source(s.settings, "task.noise"), "task restore");
    assert_true(s.source.prefetch && tn_settings_is_auto(s.settings, "classes"));
    tn_session_close(&s);
    open_session(&s, "task=restore task.noise=0.5");
    assert_string_equal(tn_settings_text(s.settings, "task.noise"), "0.5");
    tn_session_close(&s);
}

static void allocates_nothing(void **state)
{
    (void)state;
    tn_session s;
    tn_update_result a;
    int64_t count;
    uint64_t before = 0;
    float loss;
    open_session(&s, "task=restore");
    for (int64_t step = 0; step < 12; step++) {
        if (step == 4) before = tn_alloc_count();
        assert_ok(tn_source_next(&s.source, step, s.trainer, &count));
        assert_ok(tn_trainer_grad(s.trainer, step, &loss));
        assert_ok(tn_trainer_apply(s.trainer, step, 1, loss, &a));
    }
    assert_int_equal(tn_alloc_count(), before);
    tn_session_close(&s);
}

/* A loss that is a mean over goals: parts weigh what they have of them, also where the surfaces stay on the device. */
static void cut_by_goals(void **state)
{
    (void)state;
    static const tn_loss_row losses[] = { { "loss", "goal" } };
    enum { PARTS = 4 };
    tn_model m = narrow;
    float weight[2][8 * PARTS];
    bool even = true;
    m.losses = losses;
    m.n_losses = 1;
    for (int stays = 0; stays < 2; stays++) {
        tn_session s;
        char text[200];
        int64_t count;
        snprintf(text, sizeof text, "task=route task.dx=9 task.grow=0 plan.microbatches=%d opt.resident_samples=%s",
                 PARTS, stays ? "on" : "off");
        assert_ok(try_session(&s, &m, text));
        assert_true(tn_trainer_keeps_samples(s.trainer) == (stays != 0));
        for (int i = 0; i < 8 * PARTS; i++) {
            assert_ok(tn_source_next(&s.source, i / PARTS, s.trainer, &count));
            weight[stays][i] = tn_source_weight(&s.source, count);
            even &= weight[stays][i] == 1;
        }
        tn_session_close(&s);
    }
    assert_memory_equal(weight[0], weight[1], sizeof weight[0]);
    assert_false(even);
}

/* --- runs ---------------------------------------------------------------------------------------------------------------------- */

static tn_status train(const tn_tempdir *d, const char *run, const char *words, int64_t stop_after,
                       tn_progress_report *last)
{
    char text[600];
    tn_session on = { 0 };
    snprintf(text, sizeof text, "%s train.eval_every=5 ckpt.every=4 run=%s/%s", words, d->path, run);
    TN_RETURN_IF(try_session(&on, &narrow, text));
    return tn_run_piece(&on, "narrow", stop_after, last);
}

static void assert_same_runs(const tn_tempdir *d)
{
    char command[900];
    snprintf(command, sizeof command,
             "cd '%s' && for r in a b; do sed -E "
             "'s/,\"(samples_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)\":[^,}]*//g' "
             "$r/metrics.jsonl >$r.txt; done; grep -q heldout a.txt && cmp a.txt b.txt && "
             "cmp a/latest/model.safetensors b/latest/model.safetensors && "
             "cmp a/latest/state.safetensors b/latest/state.safetensors",
             d->path);
    assert_int_equal(system(command), 0);
}

/* One straight on without a thread, one in pieces of 0, 1, 2, ... steps with batches made ahead. */
static void sessions(void **state)
{
    const char *words = *state;
    char ahead[200], straight[200];
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    tn_tempdir_make_quick(&d);
    snprintf(straight, sizeof straight, "%s loader.workers=0", words);
    snprintf(ahead, sizeof ahead, "%s loader.prefetch=3", words);
    assert_ok(train(&d, "a", straight, -1, &whole));
    assert_int_equal(whole.step, STEPS);
    for (int i = 0; last.step < STEPS && i < 20; i++) {
        const tn_status s = train(&d, "b", ahead, i, &last);
        assert_int_equal(s, last.step < STEPS ? TN_INTERRUPTED : TN_OK);
    }
    assert_true(last.step == STEPS && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    assert_same_runs(&d);
    tn_tempdir_remove_all(&d);
}

static void not_on_another(void **state)
{
    (void)state;
    static const struct {
        const char *words, *says;
    } other[] = {
        { "task=route task.dx=2 task.dy=1", "task.dx: the run has task.dx=1, the command says 2" },
        { "task=route task.move=mirror", "task.move: the run has task.move=shift, the command says mirror" },
        { "task=route task.dy=1 task.grow=0.5", "task.grow: the run has task.grow=0.6, the command says 0.5" },
        { "task=restore", "task.name: the run has task.name=route, the command says restore" },
    };
    tn_tempdir d;
    tn_progress_report last;
    tn_session a, b;
    tn_tempdir_make_quick(&d);
    assert_int_equal(train(&d, "a", "task=route task.dy=1", 6, &last), TN_INTERRUPTED);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_fails(train(&d, "a", other[i].words, -1, &last), TN_USAGE, other[i].says);
    assert_ok(train(&d, "a", "task=route task.dy=1", -1, &last));
    tn_tempdir_remove_all(&d);
    open_session(&a, "task=route task.dy=1"); /* nor a cursor, whatever the settings' file says */
    json_t *cursor = tn_source_save(&a.source);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        open_session(&b, other[i].words);
        assert_fails(tn_source_load(&b.source, cursor), TN_USAGE, "are not those the run began with");
        tn_session_close(&b);
    }
    assert_ok(tn_source_load(&a.source, cursor));
    json_decref(cursor);
    tn_session_close(&a);
}

/* --- other models --------------------------------------------------------------------------------------------------------------- */

static tn_status open_mlp(const char *task, tn_settings **st, tn_source *out)
{
    const char *const set[] = { task, "task.images=strokes", "task.size=50" };
    *st = tn_mlp_settings(set, 3);
    return tn_source_find(&(tn_source_open){ .model = &tn_mlp, .settings = *st, .needed = true, .trains = true }, out);
}

static void classes(void **state)
{
    (void)state;
    tn_settings *st;
    tn_source s;
    assert_ok(open_mlp("task=strokes", &st, &s));
    assert_true(tn_settings_int(st, "classes") == 10 && tn_settings_int(st, "inputs") == CELLS);
    assert_true(tn_source_number_of(&s, "classes") == 10 && tn_source_number_of(&s, "width") == 28 &&
                tn_source_number_of(&s, "answers") == 1 && isnan(tn_source_number_of(&s, "targets")));
    tn_source_close(&s);
    tn_settings_free(st);
    assert_fails(open_mlp("task=route", &st, &s), TN_USAGE,
                 "task=route asks for a surface, and mlp answers with a class");
    tn_settings_free(st);
}

void tn_tests_source_targets(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        tn_test_add(l, batches, tasks[i], "target source: batches of %s", tasks[i]);
    tn_test_add(l, defaults, NULL, "target source: what the task sets");
    tn_test_add(l, allocates_nothing, NULL, "target source: steps allocate nothing");
    tn_test_add(l, cut_by_goals, NULL, "target source: parts of a batch by their goals");
    tn_test_add(l, sessions, tasks[0], "target run: route in sessions of 0, 1, 2, ... steps");
    tn_test_add(l, sessions, tasks[2], "target run: restore in sessions of 0, 1, 2, ... steps");
    tn_test_add(l, not_on_another, NULL, "target run: not continued on another task");
    tn_test_add(l, classes, NULL, "target source: models that answer with classes");
}
