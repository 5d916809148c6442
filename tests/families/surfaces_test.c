/* The rehearsal model surfaces from the inside: batches that know their step, schedules and the choice of a training step with and without accumulation,
 * evaluations that have the last values, PSNR from sums, and a step that is asked for by name. */
#define tenon_model surfaces_model /* another rehearsal may be in the same program */
#include "families/surfaces/surfaces.c"

#include "base/alloc.h"
#include "testlib.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <string.h>

enum { CELLS = 64, VALID = 101 };

static void open_session(tn_session *s, const char *const *words)
{
    tn_settings *st;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, settings, sizeof settings / sizeof *settings, "surfaces"));
    for (size_t i = 0; defaults[i]; i++) assert_ok(tn_settings_override(st, defaults[i]));
    for (size_t i = 0; words && words[i]; i++) assert_ok(tn_settings_override(st, words[i]));
    assert_ok(
        tn_session_open_with(&(tn_session_options){ .settings = st, .model = surfaces_model(), .needs_data = true },
                             s));
    tn_settings_free(st);
}

#define SMALL "train.batch=16", "threads=1", "train.steps=200"
#define WORDS(...) ((const char *const[]){ SMALL, __VA_ARGS__, NULL })

/* --- batches ---------------------------------------------------------------------------------------------------------------- */

/* A surface as the records have it, told another step. */
static void by_hand(int split, int64_t i, int64_t step, float surface[CELLS], float target[CELLS])
{
    const struct surfaces s = { CELLS, 8, 120, 1 };
    void *const at[] = { surface, target, NULL, NULL };
    assert_int_equal(read_surface(&s, split, i, step, at), CELLS);
}

/* Row b of the batch is one of the training set's, drawn for this step. */
static bool is_drawn(const float *row, int64_t step)
{
    float surface[CELLS], target[CELLS];
    for (int64_t i = 0; i < 600; i++) {
        by_hand(0, i, step, surface, target);
        if (memcmp(row, surface, sizeof surface) == 0) return true;
    }
    return false;
}

static void batches(void **state)
{
    (void)state;
    static const int64_t at[] = { 0, 60, 119, 120, 199 };
    tn_session s;
    int64_t count;
    float surface[CELLS], target[CELLS];
    open_session(&s, WORDS(NULL));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        assert_ok(tn_source_next(&s.source, at[i], s.trainer, &count));
        const float *x = tn_trainer_input(s.trainer, "surface");
        assert_int_equal(count, 16 * CELLS);
        assert_true(is_drawn(x, at[i]) && is_drawn(x + 15 * CELLS, at[i]));
        assert_int_equal(is_drawn(x, 30), false);
        assert_int_equal(is_drawn(x, 150), at[i] >= 120); /* behind the curriculum all steps are alike */
    }
    for (int64_t i = 0; i * 16 < VALID; i++) {
        const int64_t rows = i * 16 + 16 < VALID ? 16 : VALID - i * 16;
        assert_ok(tn_source_heldout(&s.source, i, s.trainer, &count));
        const float *x = tn_trainer_input(s.trainer, "surface"), *y = tn_trainer_input(s.trainer, "target");
        assert_int_equal(count, rows * CELLS);
        assert_int_equal(*(const int32_t *)tn_trainer_input(s.trainer, "rows"), rows);
        by_hand(1, i * 16 + rows - 1, 5000, surface, target);
        assert_memory_equal(x + (rows - 1) * CELLS, surface, sizeof surface);
        assert_memory_equal(y + (rows - 1) * CELLS, target, sizeof target);
        for (int64_t k = rows * CELLS; k < 16 * CELLS; k++) assert_true(x[k] == 0 && y[k] == 0);
    }
    tn_session_close(&s);
}

/* --- what follows the run ------------------------------------------------------------------------------------------------------ */

static float scalar(tn_session *s, bool training, const char *name)
{
    return *(const float *)tn_bound_data(tn_trainer_bound(s->trainer, training), name);
}

static bool is_consistency(tn_session *s)
{
    return tn_graph_output(tn_plan_graph(tn_trainer_plan(s->trainer, true)), "apart").id != 0;
}

/* Which step trains and what its scalars are is a function of the optimizer's step, however many batches that has. */
static void follows(void **state)
{
    const int accumulate = *state ? 2 : 1;
    tn_session s;
    tn_update_result a;
    int64_t count;
    float loss;
    open_session(&s, accumulate == 2 ? WORDS("train.accumulate=2", "noise_last=0.05") : WORDS("noise_last=0.05"));
    const tn_settings *st = s.settings;
    for (int64_t step = 0; step < 10; step++) {
        for (int i = 0; i < accumulate; i++) {
            assert_ok(tn_source_next(&s.source, step, s.trainer, &count));
            assert_ok(tn_trainer_grad(s.trainer, step * accumulate + i, &loss));
            assert_int_equal(is_consistency(&s), step % 4 == 3);
            assert_true(scalar(&s, true, "noise") == (float)(0.1 - 0.05 * (double)step / 120));
            if (is_consistency(&s))
                assert_true(scalar(&s, true, "drift") == (float)drift_at(st, step) && drift_at(st, step) > 0);
        }
        assert_ok(tn_trainer_apply(s.trainer, step, (float)accumulate, loss, &a));
        assert_ok(tn_source_heldout(&s.source, 0, s.trainer, &count));
        assert_ok(tn_trainer_eval(s.trainer, &loss));
        assert_true(scalar(&s, false, "noise") == 0.05f); /* the run's last, from the first step on */
    }
    tn_session_close(&s);
}

/* All plans read the batch that is there: without noise and drift the two losses are one. */
static void same_batch(void **state)
{
    (void)state;
    tn_session s;
    int64_t count;
    float first, other, again;
    open_session(&s, WORDS("noise=0", "drift=0"));
    assert_ok(tn_source_next(&s.source, 150, s.trainer, &count));
    assert_ok(tn_trainer_grad(s.trainer, 2, &first));
    assert_ok(tn_trainer_grad(s.trainer, 3, &other));
    assert_true(is_consistency(&s) && first > 0.01f && first == other);
    assert_ok(tn_source_next(&s.source, 150, s.trainer, &count));
    assert_ok(tn_trainer_grad(s.trainer, 7, &other));
    assert_ok(tn_trainer_grad(s.trainer, 8, &again));
    assert_true(other != first && other == again);
    assert_ok(tn_trainer_eval(s.trainer, &again));
    assert_true(other == again);
    tn_session_close(&s);
}

/* No step of either kind allocates, nor does an evaluation behind the first. */
static void allocates_nothing(void **state)
{
    (void)state;
    tn_session s;
    tn_evaluator *v;
    tn_evaluation e;
    tn_update_result a;
    int64_t count;
    float loss;
    open_session(&s, WORDS(NULL));
    assert_ok(tn_evaluator_new(s.trainer, &s.source, &v));
    uint64_t before = 0;
    for (int64_t step = 0; step < 12; step++) {
        if (step == 4) before = tn_alloc_count();
        assert_ok(tn_source_next(&s.source, step, s.trainer, &count));
        assert_ok(tn_trainer_grad(s.trainer, step, &loss));
        assert_ok(tn_trainer_apply(s.trainer, step, 1, loss, &a));
        if (step % 4 == 0) assert_ok(tn_evaluator_run(v, &s.source, 0, &e));
    }
    assert_int_equal(tn_alloc_count(), before);
    tn_evaluator_free(v);
    tn_session_close(&s);
}

/* --- metrics ------------------------------------------------------------------------------------------------------------------ */

static double output_of(tn_session *s, const char *name)
{
    int64_t n;
    const float *x = tn_trainer_output(s->trainer, name, &n);
    assert_true(x && n == 1);
    return (double)*x;
}

/* Batches are not equally hard, so the mean of their decibels is another number than that of all cells; the last one is short. */
static void from_sums(void **state)
{
    (void)state;
    tn_session s;
    tn_evaluation e;
    int64_t count, batch_count = 0;
    double squares = 0, seen = 0, landed = 0, mean = 0;
    float loss;
    open_session(&s, WORDS("train.batch=4"));
    assert_ok(tn_evaluate(s.trainer, &s.source, 0, &e));
    for (;; batch_count++) {
        assert_ok(tn_source_heldout(&s.source, batch_count, s.trainer, &count));
        if (!count) break;
        assert_ok(tn_trainer_eval(s.trainer, &loss));
        const double one[] = { output_of(&s, "squares"), output_of(&s, "seen") };
        assert_true(one[1] == (double)count && fabs(one[0] / one[1] - (double)loss) < 1e-6 * one[0]);
        mean += decibel(one, s.settings);
        squares += one[0], seen += one[1], landed += output_of(&s, "landed");
    }
    assert_true(batch_count == 26 && seen == VALID * CELLS && e.count == VALID * CELLS);
    mean /= (double)batch_count;
    assert_true(fabs(tn_scores_get(&e.scores, "psnr") - decibel((double[]){ squares, seen }, s.settings)) < 1e-12);
    assert_true(fabs(tn_scores_get(&e.scores, "landing") - landed / seen) < 1e-12);
    if (!(mean - tn_scores_get(&e.scores, "psnr") > 0.2))
        fail_msg("psnr %g, mean of the batches' %g", tn_scores_get(&e.scores, "psnr"), mean);
    tn_session_close(&s);
}

/* --- a step by name ------------------------------------------------------------------------------------------------------------- */

static void trace(void **state)
{
    (void)state;
    tn_session s;
    int64_t count, n = 0;
    float loss, second[16 * CELLS];
    tn_dtype type;
    open_session(&s, WORDS(NULL));
    assert_ok(tn_source_heldout(&s.source, 0, s.trainer, &count));
    assert_null(tn_trainer_step_output(s.trainer, "trace", "path", &type, &n)); /* nobody has asked for it */
    assert_ok(tn_trainer_run_step(s.trainer, "trace"));
    const float *path = tn_trainer_step_output(s.trainer, "trace", "path", &type, &n);
    assert_true(path && type == TN_F32 && n == 16 * PATH * CELLS);
    assert_true(path[0] != 0 && memcmp(path, path + CELLS, sizeof(float) * CELLS) != 0);
    float *surface = tn_trainer_input(s.trainer, "surface");
    for (int64_t b = 0; b < 16; b++) {
        memcpy(surface + b * CELLS, path + b * PATH * CELLS, sizeof(float) * CELLS);
        memcpy(second + b * CELLS, path + (b * PATH + 1) * CELLS, sizeof(float) * CELLS);
    }
    const uint64_t before = tn_alloc_count();
    assert_ok(tn_trainer_run_step(s.trainer, "trace")); /* from where the first step of the path has led */
    assert_int_equal(tn_alloc_count(), before);
    path = tn_trainer_step_output(s.trainer, "trace", "path", &type, &n);
    for (int64_t b = 0; b < 16; b++)
        assert_memory_equal(path + b * PATH * CELLS, second + b * CELLS, sizeof(float) * CELLS);
    assert_null(tn_trainer_step_output(s.trainer, "trace", "paths", &type, &n));
    assert_fails(tn_trainer_run_step(s.trainer, "trail"), TN_USAGE,
                 "model surfaces has no step trail: add it to its steps");
    assert_ok(tn_trainer_grad(s.trainer, 0, &loss)); /* and it trains on */
    assert_true(isfinite(loss));
    tn_session_close(&s);
}

void tn_tests_surfaces(tn_test_list *l)
{
    tn_test_add(l, batches, NULL, "families: surfaces, batches know their step");
    tn_test_add(l, follows, NULL, "families: surfaces, schedules and the choice of a step");
    tn_test_add(l, follows, "two", "families: surfaces, the same with two batches a step");
    tn_test_add(l, same_batch, NULL, "families: surfaces, all plans read one batch");
    tn_test_add(l, allocates_nothing, NULL, "families: surfaces, steps allocate nothing");
    tn_test_add(l, from_sums, NULL, "families: surfaces, decibels are of sums");
    tn_test_add(l, trace, NULL, "families: surfaces, a step by name");
}
