/* Environments as batches: what a batch holds follows from the episodes played, a cursor goes on with the same bits, a
 * cursor of another run is refused, likeliest actions repeat. That policies learn is a gate of its own (tests/long). */
#include "train/source/task_setup.h"

#include "mlp.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <string.h>

typedef struct rig {
    tn_settings *settings;
    tn_trainer *learner;
    tn_source source;
    const tn_env *env;
} rig;

static void open_rig(rig *r, const char *const *set, size_t n)
{
    const tn_model *model;
    const tn_task *task;
    *r = (rig){ 0 };
    assert_ok(tn_settings_resolve("tep", set, n, &r->settings, &model));
    assert_ok(
        tn_source_find(&(tn_source_open){ .model = model, .settings = r->settings, .needed = true, .trains = true },
                       &r->source));
    assert_true(r->source.play && r->source.on_policy && !r->source.open_heldout);
    assert_ok(tn_task_find(tn_settings_text(r->settings, "task.name"), &task));
    r->env = task->env;
    assert_non_null(r->env);
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = model,
                                                    .settings = r->settings,
                                                    .batch = tn_source_env_rows(r->env, r->settings),
                                                    .length = 1,
                                                    .input_spec = TN_MLP_SUPPLY(1, 1, .optional = true),
                                                    .threads = 1 },
                             &r->learner));
    assert_ok(tn_source_started(&r->source, &(tn_source_start){ .trainer = r->learner,
                                                                .batch = tn_source_env_rows(r->env, r->settings),
                                                                .length = 1 }));
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->learner);
    tn_settings_free(r->settings);
}

/* A batch by its names. */
typedef struct played {
    int64_t batch;
    int32_t *labels, *count;
    float *features, *weights, *targets;
} played;

static played next(rig *r, int64_t *count)
{
    assert_ok(tn_source_next(&r->source, 0, r->learner, count));
    const tn_feed f = tn_trainer_feed(r->learner);
    return (played){ .batch = f.batch,
                     .labels = tn_feed_at(&f, "labels"),
                     .count = tn_feed_at(&f, "count"),
                     .features = tn_feed_at(&f, "features"),
                     .weights = tn_feed_at(&f, "weights"),
                     .targets = tn_feed_at(&f, "targets") };
}

static void learn(rig *r, int64_t step)
{
    float loss;
    tn_update_result a;
    assert_ok(tn_trainer_grad(r->learner, step, &loss));
    assert_ok(tn_trainer_apply(r->learner, step, 1, loss, &a));
    assert_true(a.ok && isfinite(loss));
}

static const char *const small[] = { "task=cartpole",      "dim=8",           "mode=energy", "rl.episodes=3",
                                     "rl.standardise=off", "rl.discount=0.5", "seed=4" };

/* CartPole gives 1 a step: with discount 1/2 a step with k behind it is worth 2 - 2^-k. The episodes can be read off that:
 * the last step of each is worth 1. */
static void returns(void **state)
{
    (void)state;
    rig r;
    int64_t count;
    int ends = 0, other = 0;
    open_rig(&r, small, 7);
    const played f = next(&r, &count);
    assert_true(count == f.count[0] && count >= 3 * 8 && count < f.batch);
    for (int64_t i = count - 1, behind = 0; i >= 0; i--, behind++) {
        if (f.targets[i] == 1.f) behind = 0, ends++;
        assert_float_equal(f.targets[i], 2 - pow(2, -(double)behind), 1e-6);
        assert_true(f.labels[i] == 0 || f.labels[i] == 1);
        assert_true(fabsf(f.features[4 * i]) <= 2.5f);
        other += f.weights[i] != f.targets[i];
    }
    assert_int_equal(ends, 3);
    assert_true(other > 0); /* a value was taken off */
    for (int64_t i = count; i < f.batch; i++) assert_true(f.labels[i] == -1 && f.features[4 * i] == 0);
    close_rig(&r);
}

static void standardised(void **state)
{
    (void)state;
    rig r;
    int64_t count;
    double sum = 0, square = 0;
    open_rig(&r, (const char *const[]){ "task=cartpole", "dim=8", "mode=energy", "rl.episodes=2" }, 4);
    const played f = next(&r, &count);
    for (int64_t i = 0; i < count; i++)
        sum += (double)f.targets[i], square += (double)f.targets[i] * (double)f.targets[i];
    assert_float_equal(sum / (double)count, 0, 1e-5);
    assert_float_equal(square / (double)(count - 1), 1, 1e-4);
    close_rig(&r);
}

/* A pendulum that nobody swings up: its 500 steps are alike, and so is what they were worth. */
static void cut_short(void **state)
{
    (void)state;
    rig r;
    int64_t count;
    open_rig(&r, (const char *const[]){ "task=acrobot", "dim=8", "mode=energy", "rl.standardise=off" }, 4);
    const played f = next(&r, &count);
    assert_int_equal(count, 500);
    for (int64_t i = 0; i < count; i++) assert_float_equal(f.targets[i], -100, 1e-3);
    close_rig(&r);
}

static bool same_feed(const played *a, const played *b)
{
    const size_t n = (size_t)a->batch;
    return *a->count == *b->count && memcmp(a->features, b->features, 4 * n * sizeof(float)) == 0 &&
           memcmp(a->labels, b->labels, n * sizeof *a->labels) == 0 &&
           memcmp(a->weights, b->weights, n * sizeof(float)) == 0 &&
           memcmp(a->targets, b->targets, n * sizeof(float)) == 0;
}

/* Parameters and states, as a checkpoint holds them. */
static void give_store(const rig *from, rig *to)
{
    const tn_store *a = tn_trainer_store(from->learner), *b = tn_trainer_store(to->learner);
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i);
        memcpy(tn_store_find(b, x->name)->data, x->data, (size_t)tn_dims_count(x->dims) * tn_dtype_bytes(x->dtype));
    }
}

static void goes_on(void **state)
{
    (void)state;
    rig a, b;
    int64_t count;
    open_rig(&a, small, 7);
    open_rig(&b, small, 7);
    for (int i = 0; i < 3; i++) {
        (void)next(&a, &count);
        learn(&a, i);
    }
    json_t *cursor = a.source.save(a.source.ctx);
    assert_non_null(cursor);
    assert_ok(b.source.load(b.source.ctx, cursor));
    give_store(&a, &b);
    const played one = next(&a, &count), two = next(&b, &count);
    assert_true(same_feed(&one, &two));
    const played first = next(&b, &count);
    assert_false(same_feed(&one, &first)); /* another episode */
    json_object_set_new(cursor, "env", json_string("acrobot"));
    assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, "was not trained in CartPole-v1");
    json_object_set_new(cursor, "env", json_string("CartPole-v1"));
    json_object_set_new(cursor, "seed", json_integer(9));
    assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, "another seed");
    json_decref(cursor);
    close_rig(&a);
    close_rig(&b);
}

static void plays(void **state)
{
    (void)state;
    rig r;
    tn_source_play a, b;
    open_rig(&r, small, 7);
    assert_ok(r.source.play(r.source.ctx, 4, &a));
    assert_ok(r.source.play(r.source.ctx, 4, &b));
    assert_true(a.episodes == 4 && a.steps == b.steps && a.mean == b.mean && a.mean >= 8 && a.mean <= 500);
    assert_float_equal(a.mean * 4, (double)a.steps, 1e-9);
    close_rig(&r);
}

void tn_tests_source_env(tn_test_list *l)
{
    tn_test_add(l, returns, NULL, "environments: what a batch holds");
    tn_test_add(l, standardised, NULL, "environments: standardised returns");
    tn_test_add(l, cut_short, NULL, "environments: an episode cut at its limit");
    tn_test_add(l, goes_on, NULL, "environments: a cursor goes on with the same bits, another's is refused");
    tn_test_add(l, plays, NULL, "environments: likeliest actions");
}
