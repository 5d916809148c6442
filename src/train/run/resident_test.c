/* Samples that stay on the device (opt.resident_samples): the plain way's losses and parameters bit by bit, whatever batches, parts,
 * threads and stops there are; what a step uploads; when they stay. TENON_TEST_DEVICE=cuda: the same on a GPU. */
#include "train/trainer/resident.h"

#include "base/alloc.h"
#include "mlp.h"
#include "run_pieces.h"
#include "tempdir.h"
#include "train/run/session.h"
#include "train/trainer/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 24 };

#define DEVICE (tn_test_device() == TN_CUDA ? "cuda" : "cpu")

static tn_session open_with(const char *model, const char *words, const char *more, tn_shared *shared)
{
    char text[1600];
    const char *list[WORDS];
    size_t n = 0;
    tn_session s;
    snprintf(text, sizeof text, "%s threads=1 device=%s compute=f32 train.warmup=0 %s", words, DEVICE, more);
    for (char *rest = text, *word; n < WORDS && (word = strtok_r(rest, " ", &rest));) list[n++] = word;
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .target = model, .overrides = list, .n = n, .needs_data = true, .shared = shared }, &s));
    return s;
}

/* --- a step ------------------------------------------------------------------------------------------------------------------- */

/* As training does it. */
static float one_step(tn_session *s, int64_t step)
{
    const int64_t n = tn_trainer_batches(s->trainer);
    double weights = 0, loss = 0;
    tn_update_result done;
    for (int64_t i = 0; i < n; i++) {
        int64_t count;
        float x;
        assert_ok(tn_source_next(&s->source, step, s->trainer, &count));
        const float weight = n > 1 ? tn_source_weight(&s->source, count) : 1;
        if (weight == 0) continue;
        tn_trainer_weigh(s->trainer, weight);
        assert_ok(tn_trainer_grad(s->trainer, step * n + i, &x));
        weights += (double)weight;
        loss += (double)weight * (double)x;
    }
    assert_ok(tn_trainer_apply(s->trainer, step, (float)weights, (float)(loss / weights), &done));
    assert_true(done.ok);
    return (float)(loss / weights);
}

static float held_out(tn_session *s)
{
    int64_t count;
    float loss = 0;
    assert_ok(tn_source_heldout(&s->source, 0, s->trainer, &count));
    assert_ok(tn_trainer_eval(s->trainer, &loss));
    return loss;
}

static void assert_same(const tn_store *a, const float *x, const tn_store *b, const float *y, int64_t n)
{
    tn_host_copy p = { 0 }, q = { 0 };
    const size_t bytes = sizeof *x * (size_t)n;
    const void *left = tn_store_read(a, x, bytes, &p), *right = tn_store_read(b, y, bytes, &q);
    assert_true(left && right);
    assert_memory_equal(left, right, bytes);
    tn_host_copy_free(&p);
    tn_host_copy_free(&q);
}

static void assert_same_stores(tn_session *a, tn_session *b)
{
    const tn_store *x = tn_trainer_store(a->trainer), *y = tn_trainer_store(b->trainer);
    assert_int_equal(tn_store_buckets(x), tn_store_buckets(y));
    for (int k = 0; k < tn_store_buckets(x); k++) {
        const tn_bucket *p = tn_store_bucket(x, k), *q = tn_store_bucket(y, k);
        assert_true(p->count == q->count && p->m && q->m);
        assert_same(x, p->param, y, q->param, p->count);
        assert_same(x, p->m, y, q->m, p->count);
    }
}

static void assert_same_steps(tn_session *a, tn_session *b, int64_t steps)
{
    uint64_t before = 0;
    for (int64_t step = 0; step < steps; step++) {
        const float x = one_step(a, step);
        if (step == 2) before = tn_alloc_count();
        const float y = one_step(b, step);
        if (step == 2) assert_int_equal(tn_alloc_count(), before);
        assert_memory_equal(&x, &y, sizeof x);
        if (step % 3 != 1) continue; /* held-out batches between the steps: they are fed as ever */
        const float p = held_out(a), q = held_out(b);
        assert_memory_equal(&p, &q, sizeof p);
    }
    assert_same_stores(a, b);
}

/* --- parity --------------------------------------------------------------------------------------------------------------------- */

#define SURFACES " task.images=strokes task.size=60 task.pool=4 depth=4 train.steps=20 train.batch=7"

enum holds { FLOATS, BYTES, PARTS }; /* PARTS: some of it changes from step to step */

static const struct world {
    const char *name, *model, *words;
    enum holds holds;
} worlds[] = {
    { "tep, f32", "tep", "task=xor task.size=60 dim=8 train.batch=7", FLOATS },
    { "tep, u8", "tep", "task=strokes task.size=60 task.pool=4 dim=8 train.batch=7", BYTES },
    { "tep, labels by token", "tep", "task=copy task.size=60 dim=8 train.batch=7", FLOATS },
    { "tep, states by sample", "tep", "task=xor task.size=60 dim=8 train.batch=7 cache=true", FLOATS },
    { "net, u8", "net", "task=strokes task.size=60 task.pool=4 dim=8 train.batch=7", BYTES },
    { "net, f32", "net", "task=xor task.size=60 dim=8 train.batch=7", FLOATS },
    { "flow, u8", "flow", "task=strokes task.size=60 task.pool=4 depth=4 train.batch=7", BYTES },
    { "flow, a move that grows", "flow", "task=route" SURFACES, PARTS },
    { "flow, a move that does not", "flow", "task=route task.grow=0" SURFACES, FLOATS },
    { "flow, mirrored", "flow", "task=route task.move=mirror" SURFACES, FLOATS },
    { "flow, noise", "flow", "task=restore" SURFACES, PARTS },
    { "flow, a hole", "flow", "task=restore task.damage=hole task.hole=2" SURFACES, FLOATS },
};

static const char *const ways[] = {
    "loader.workers=0",
    "loader.workers=2 train.accumulate=3",
    "loader.workers=0 plan.microbatches=7",
    "loader.workers=2 plan.microbatches=7 train.accumulate=2",
};

static tn_session open_world(const struct world *w, const char *how, const char *more, tn_shared *shared)
{
    char text[900];
    snprintf(text, sizeof text, "%s opt.resident_samples=%s", more, how);
    return open_with(w->model, w->words, text, shared);
}

static size_t uploaded_bytes(const tn_plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < tn_plan_externs(p); i++) {
        const tn_gtensor *t = tn_plan_extern(p, i);
        if (t->role == TN_ROLE_INPUT || t->role == TN_ROLE_SCALAR)
            bytes += (size_t)tn_gtensor_count(t) * tn_dtype_bytes(t->dtype);
    }
    return bytes;
}

static void parity(void **state)
{
    const struct world *w = *state;
    for (size_t i = (size_t)(w - worlds) % 2; i < sizeof ways / sizeof *ways; i += 2) { /* half of them each, in turn */
        tn_session a = open_world(w, "off", ways[i], NULL), b = open_world(w, "on", ways[i], NULL);
        assert_true(!tn_trainer_keeps_samples(a.trainer) && tn_trainer_keeps_samples(b.trainer));
        assert_true((b.source.prefetch != NULL) == (i % 2 == 1) && (b.source.split != NULL) == (i >= 2));
        assert_true((b.source.resident->part[0].stored == TN_U8) == (w->holds == BYTES));
        assert_int_equal(tn_trainer_memory(a.trainer).samples, 0);
        assert_true((double)tn_trainer_memory(b.trainer).samples == tn_resident_bytes(b.source.resident));
        if (w->holds != PARTS) assert_true(uploaded_bytes(tn_trainer_plan(b.trainer, true)) < 300);
        for (size_t k = 0; k < b.source.resident->n; k++)
            assert_true(tn_plan_extern_find(tn_trainer_plan(b.trainer, true), b.source.resident->part[k].input) < 0);
        assert_same_steps(&a, &b, 13); /* an epoch has 7 batches or fewer, the last one is short */
        tn_session_close(&a);
        tn_session_close(&b);
    }
}

/* --- runs ----------------------------------------------------------------------------------------------------------------------- */

static tn_status train(const tn_tempdir *d, const struct world *w, const char *run, const char *how, const char *more,
                       int64_t stop_after, tn_progress_report *last)
{
    char text[700];
    snprintf(text, sizeof text, "%s train.steps=16 train.accumulate=2 train.eval_every=5 ckpt.every=4 run=%s/%s", more,
             d->path, run);
    tn_session on = open_world(w, how, text, NULL);
    return tn_run_piece(&on, w->model, stop_after, last);
}

/* One straight on, the other in pieces that have their samples now here, now there. */
static void sessions(void **state)
{
    const struct world *w = *state;
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    char command[900];
    tn_tempdir_make_quick(&d);
    assert_ok(train(&d, w, "a", "off", "loader.workers=0", -1, &whole));
    for (int i = 0; last.step < 16 && i < 20; i++) {
        const tn_status s = train(&d, w, "b", i % 3 == 2 ? "off" : "on", "loader.workers=2", i, &last);
        assert_int_equal(s, last.step < 16 ? TN_INTERRUPTED : TN_OK);
    }
    snprintf(command, sizeof command,
             "cd '%s' && cmp a/latest/model.safetensors b/latest/model.safetensors && "
             "cmp a/latest/state.safetensors b/latest/state.safetensors",
             d.path);
    assert_int_equal(system(command), 0);
    assert_true(last.step == 16 && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    tn_tempdir_remove_all(&d);
}

/* Trials of a study share plans: those of one way are not taken for the other's. */
static void shared_plans(void **state)
{
    (void)state;
    tn_shared *shared;
    assert_ok(tn_shared_new(&shared));
    tn_session a = open_world(&worlds[1], "off", "seed=3", shared), b = open_world(&worlds[1], "on", "seed=3", shared);
    const int64_t made = tn_shared_plans_made(shared);
    tn_session c = open_world(&worlds[1], "on", "seed=4", shared);
    assert_int_equal(tn_shared_plans_made(shared), made);
    tn_session e = open_world(&worlds[1], "off", "seed=4", NULL);
    assert_same_steps(&a, &b, 6);
    assert_same_steps(&e, &c, 6);
    tn_session_close(&a);
    tn_session_close(&b);
    tn_session_close(&c);
    tn_session_close(&e);
    tn_shared_free(shared);
}

/* --- a model with two training steps ---------------------------------------------------------------------------------------------- */

static size_t in_turn(const tn_settings *st, int64_t step)
{
    (void)st;
    return (size_t)(step % 2);
}

static void several_steps(void **state)
{
    static const tn_step_row steps[] = { { "one", tn_mlp_build, true }, { "other", tn_mlp_build, true } };
    tn_model two = tn_mlp;
    tn_session s[2];
    (void)state;
    two.steps = steps;
    two.n_steps = 2;
    two.choose = in_turn;
    for (int k = 0; k < 2; k++) {
        const char *const set[] = {
            "task=strokes",   "task.size=60", "task.pool=4",
            "train.batch=7",  "threads=1",    "train.warmup=0",
            "train.steps=20", "device=cpu",   k ? "opt.resident_samples=on" : "opt.resident_samples=off"
        };
        tn_settings *st = tn_mlp_settings(set, sizeof set / sizeof *set);
        assert_ok(
            tn_session_open_with(&(tn_session_options){ .settings = st, .model = &two, .needs_data = true }, &s[k]));
        tn_settings_free(st);
    }
    assert_same_steps(&s[0], &s[1], 13);
    assert_true((double)tn_trainer_memory(s[1].trainer).samples ==
                tn_resident_bytes(s[1].source.resident)); /* one set */
    tn_session_close(&s[0]);
    tn_session_close(&s[1]);
}

/* --- when they stay --------------------------------------------------------------------------------------------------------------- */

static void when_they_stay(void **state)
{
    static const struct {
        const char *model, *words;
        bool offered, stay;
    } row[] = {
        { "tep", "task=xor task.size=60 dim=8", true, false }, /* a processor's copy is no transfer */
        { "tep", "task=xor task.size=60 dim=8 opt.resident_samples=on", true, true },
        { "ten", "task=mqar task.pairs=2 train.context=16 dim=16 opt.resident_samples=on", false, false },
    };
    char text[300];
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tn_session s = open_with(row[i].model, row[i].words, "train.batch=4", NULL);
        assert_true((s.source.resident != NULL) == row[i].offered);
        const bool stay = row[i].stay || (row[i].offered && tn_test_device() == TN_CUDA);
        assert_true(tn_trainer_keeps_samples(s.trainer) == stay);
        const tn_memory_plan m = tn_trainer_memory(s.trainer);
        assert_true((strstr(tn_memory_plan_text(&m, text, sizeof text), "samples") != NULL) == stay);
        tn_session_close(&s);
    }
    assert_true(tn_resident_fits(90, 100, 1000) && !tn_resident_fits(91, 100, 1000) && !tn_resident_fits(1, 10, 10));
}

void tn_tests_resident(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i += TN_SANITIZED ? 2 : 1)
        tn_test_add(l, parity, &worlds[i], "resident samples: as the plain way, %s", worlds[i].name);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i += 2)
        tn_test_add(l, sessions, &worlds[i], "resident samples: runs that stop, %s", worlds[i].name);
    tn_test_add(l, shared_plans, NULL, "resident samples: trials that share plans");
    tn_test_add(l, several_steps, NULL, "resident samples: one set for several training steps");
    tn_test_add(l, when_they_stay, NULL, "resident samples: when they stay");
}
