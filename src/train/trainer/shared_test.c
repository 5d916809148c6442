/* What is shared changes nothing: sessions on common plans and on a used context train bit for bit as on their own, one after the other
 * or at once; and what the plans do not depend on makes no new ones. */
#include "train/trainer/shared.h"

#include "testlib.h"
#include "train/run/session.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <pthread.h>
#include <string.h>

enum { MOST = 12, TRIALS = 6, FILES = 3 };

typedef struct point {
    const char *set[MOST]; /* NULL at the end */
} point;

#define COMMON "task.size=64", "train.epochs=2", "train.batch=16", "threads=1", "device=cpu", "log.level=info"
/* The first four differ in what a plan does not know. */
static const point points[TRIALS] = {
    { { COMMON, "dim=9", "seed=1", "train.lr=0.01", "beta=0.1", NULL } },
    { { COMMON, "dim=9", "seed=2", "train.lr=0.03", "beta=0.3", NULL } },
    { { COMMON, "dim=9", "seed=1", "damping=0.6", "rtol=0.1", NULL } },
    { { COMMON, "dim=9", "seed=1", "train.decay=0.2", "train.schedule=constant", NULL } },
    { { COMMON, "dim=40", "seed=1", "iterations=9", NULL } },
    { { COMMON, "dim=5", "seed=1", "mode=energy", NULL } },
};

typedef struct result {
    float *param; /* (n) */
    int64_t n;
    double loss, accuracy;
} result;

static tn_status train(const point *p, tn_shared *shared, tn_context_slot *context_slot, result *r)
{
    tn_session on = { 0 };
    tn_progress_report last;
    size_t n = 0;
    while (p->set[n]) n++;
    TN_RETURN_IF(tn_session_open_with(&(tn_session_options){ .target = "xor_tep",
                                                             .overrides = p->set,
                                                             .n = n,
                                                             .needs_data = true,
                                                             .shared = shared,
                                                             .context_slot = context_slot },
                                      &on));
    const tn_training job = {
        .trainer = on.trainer, .settings = on.settings, .source = &on.source, .batch = on.batch, .length = on.length
    };
    const tn_status s = tn_training_run(&job, NULL, &last);
    if (s == TN_OK) {
        const tn_bucket *b = tn_store_bucket(tn_trainer_store(on.trainer), 0);
        *r = (result){ .n = b->count,
                       .loss = tn_scores_first(&last.last),
                       .accuracy = tn_scores_get(&last.best, "accuracy"),
                       .param = tn_alloc(sizeof(float) * (size_t)b->count) };
        memcpy(r->param, b->param, sizeof(float) * (size_t)b->count);
    }
    tn_session_close(&on);
    return s;
}

static void assert_same(const result *a, const result *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->param, b->param, sizeof(float) * (size_t)a->n);
    assert_true(a->loss == b->loss && a->accuracy == b->accuracy);
}

static void by_turns(void **state)
{
    (void)state;
    result own[TRIALS], common;
    tn_shared *shared;
    tn_context_slot context_slot = { 0 };
    assert_ok(tn_shared_new(&shared));
    for (int i = 0; i < TRIALS; i++) assert_ok(train(&points[i], NULL, NULL, &own[i]));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < TRIALS; i++) {
            const int k = round ? TRIALS - 1 - i : i;
            assert_ok(train(&points[k], shared, &context_slot, &common));
            assert_same(&own[k], &common);
            tn_free(common.param);
        }
    for (int i = 1; i < TRIALS; i++) /* they are not one trial */
        assert_true(own[i].n != own[0].n || memcmp(own[i].param, own[0].param, sizeof(float) * (size_t)own[0].n) != 0);
    assert_int_equal(tn_shared_plans_made(shared), 3 * FILES); /* grad, eval, apply of three shapes */
    for (int i = 0; i < TRIALS; i++) tn_free(own[i].param);
    tn_context_slot_free(&context_slot);
    tn_shared_free(shared);
}

typedef struct thread {
    pthread_t id;
    tn_shared *shared;
    int first;
    result r[TRIALS];
    tn_status status;
} thread;

static void *thread_main(void *ctx)
{
    thread *t = ctx;
    tn_context_slot context_slot = { .shared = true };
    for (int i = 0; i < TRIALS && t->status == TN_OK; i++) {
        const int k = (t->first + i) % TRIALS;
        t->status = train(&points[k], t->shared, &context_slot, &t->r[k]);
    }
    tn_context_slot_free(&context_slot);
    return NULL;
}

static void at_once(void **state)
{
    (void)state;
    thread t[3];
    tn_shared *shared;
    assert_ok(tn_shared_new(&shared));
    for (int i = 0; i < 3; i++) {
        t[i] = (thread){ .shared = shared, .first = i };
        assert_int_equal(pthread_create(&t[i].id, NULL, thread_main, &t[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i].id, NULL);
        assert_ok(t[i].status);
    }
    for (int k = 0; k < TRIALS; k++) {
        result own;
        assert_ok(train(&points[k], NULL, NULL, &own));
        for (int i = 0; i < 3; i++) {
            assert_same(&own, &t[i].r[k]);
            tn_free(t[i].r[k].param);
        }
        tn_free(own.param);
    }
    assert_int_equal(tn_shared_plans_made(shared), 3 * FILES);
    tn_shared_free(shared);
}

/* What a plan is known by: its shape, and not what the run does with it. */
static void keys(void **state)
{
    static const char *const same[] = { "seed=3", "train.lr=0.5", "train.from=x" }, *const other[] = { "dim=9",
                                                                                                       "compute=bf16" };
    const tn_model *m;
    tn_settings *st;
    char key[2][TN_HASH_BYTES];
    (void)state;
    assert_ok(tn_settings_resolve("gpt_tiny", NULL, 0, &st, &m));
    assert_ok(tn_plan_key(m, st, key[0]));
    tn_settings_free(st);
    for (size_t i = 0; i < 5; i++) {
        assert_ok(tn_settings_resolve("gpt_tiny", i < 3 ? &same[i] : &other[i - 3], 1, &st, &m));
        assert_ok(tn_plan_key(m, st, key[1]));
        assert_true((strcmp(key[0], key[1]) == 0) == (i < 3));
        tn_settings_free(st);
    }
}

/* Of plans that nobody uses the oldest go. */
static void forgets(void **state)
{
    (void)state;
    tn_shared *shared;
    assert_ok(tn_shared_new(&shared));
    for (int round = 0; round < 2; round++)
        for (int d = 4; d < 4 + TN_SHARED_PLANS / 3 + 1; d++) {
            char dim[16];
            result r;
            snprintf(dim, sizeof dim, "dim=%d", d);
            const point p = { { "task.size=32", "train.steps=1", "train.batch=16", "threads=1", "device=cpu", dim,
                                NULL } };
            assert_ok(train(&p, shared, NULL, &r));
            tn_free(r.param);
        }
    assert_int_equal(tn_shared_plans_made(shared), 2 * 3 * (TN_SHARED_PLANS / 3 + 1));
    tn_shared_free(shared);
}

void tn_tests_shared(tn_test_list *l)
{
    tn_test_add(l, by_turns, NULL, "shared: plans and a context used by turns change no bit");
    tn_test_add(l, at_once, NULL, "shared: plans used by three threads at once change no bit");
    tn_test_add(l, keys, NULL, "shared: what the key of a plan depends on");
    tn_test_add(l, forgets, NULL, "shared: plans that were used longest ago are forgotten");
}
