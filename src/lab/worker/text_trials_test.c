/* Trials on text: they are the trainings that they say, at the sizes they say; the test part is looked at by
 * comparisons alone; common seeds. */
#include "dataset_files.h"
#include "lab/db/trials.h"
#include "lab/statistics/standings.h"
#include "lab/worker/trial_probe.h"
#include "study_world.h"
#include "train/run/session.h"
#include "train/run/training.h"

#include <math.h>
#include <string.h>

#define SET                                                                                                            \
    "dim: 16, layers: 2, heads: 2, loader.mode: window, train.context: 16, train.batch: 2, train.steps: 12, "          \
    "train.warmup: 2, train.eval_every: 4, train.eval_batches: 0, ckpt.every_s: 1e9"
#define OBJECTIVES "objectives: [loss, bits_per_byte, parameters, tokens_per_s, memory_bytes]\n"

typedef tn_study_world world;

/* Words of ours; the test part is of another kind, so that its loss cannot be taken for another. */
static void write_words(const char *path, const char *const *words, size_t n, size_t bytes, uint32_t seed)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t at = 0; at < bytes;) {
        seed = seed * 1664525u + 1013904223u;
        at += (size_t)fprintf(f, "%s%s", words[(seed >> 16) % n], seed >> 28 ? " " : "\n");
    }
    assert_int_equal(fclose(f), 0);
}

static void make_data(const tn_tempdir *d, const char *name, uint32_t test_seed)
{
    static const char *const letters[] = { "the", "cat", "sat", "on", "a", "mat", "and", "saw" }, *const digits[] = {
        "17", "4", "2026", "99"
    };
    char train[500], valid[500], test[500], out[500], settings[1600];
    snprintf(train, sizeof train, "%s/train.txt", d->path);
    snprintf(valid, sizeof valid, "%s/valid.txt", d->path);
    snprintf(test, sizeof test, "%s/test-%u.txt", d->path, test_seed);
    snprintf(out, sizeof out, "%s/%s", d->path, name);
    write_words(train, letters, 8, 6000, 1);
    write_words(valid, letters, 8, 300, 2);
    if (test_seed) write_words(test, digits, 4, 300, test_seed);
    snprintf(settings, sizeof settings, "tokenizer=bytes doc_bytes=0 valid=%s%s%s", valid, test_seed ? " test=" : "",
             test_seed ? test : "");
    assert_ok(tn_prepare_try(train, out, settings, NULL));
}

/* `more` follows the settings; %s in it is not replaced. where: another world in whose folder this one is. */
static void begin(world *w, const char *data, const char *more, const char *db, const world *where)
{
    char text[3000];
    tn_study_world_place(w, db, where);
    if (!where) {
        make_data(&w->dir, "one", 3);
        make_data(&w->dir, "other", 4);
        make_data(&w->dir, "none", 0);
    }
    snprintf(text, sizeof text, "study: s\nset: {data: %s/%s, " SET "}\n%s", w->dir.path, data, more);
    tn_study_world_open(w, text);
}

static void work(world *w, bool compare)
{
    int64_t ran;
    assert_ok(tn_worker_run(&(tn_worker_options){ .db = w->path, .compare = compare }, &ran));
}

/* All comparisons of a study with `seeds`, and what follows from them. */
static tn_study *run_seeds(world *w)
{
    tn_study *s = tn_study_world_load(w);
    assert_ok(tn_lab_seeds_fill(w->lab, s, &w->plan));
    tn_study_free(s);
    work(w, true);
    s = tn_study_world_load(w);
    assert_ok(tn_lab_seeds_settle(w->lab, s, &w->plan));
    tn_study_free(s);
    return tn_study_world_load(w);
}

static double reported(world *w, const tn_trial *t, const char *metric, bool best)
{
    double v;
    assert_ok(tn_trial_reported(w->lab, t, metric, best, false, &v));
    return v;
}

/* --- one trial ---------------------------------------------------------------------------------------------------- */

static void open_alone(const world *w, const char *lr, const char *seed, tn_session *on)
{
    char data[500];
    snprintf(data, sizeof data, "data=%s/one", w->dir.path);
    const char *const set[] = { data,
                                "dim=16",
                                "layers=2",
                                "heads=2",
                                "loader.mode=window",
                                "train.context=16",
                                "train.batch=2",
                                "train.steps=12",
                                "train.warmup=2",
                                "train.eval_every=4",
                                "train.eval_batches=0",
                                "threads=1",
                                "log.level=info",
                                lr,
                                seed };
    assert_ok(tn_session_open("ten", set, sizeof set / sizeof *set, true, on));
}

static void instruments_are_objectives(void **state)
{
    (void)state;
    world w;
    begin(&w, "one",
          "base: ten\nsearch: {train.lr: [1e-2, 2e-2]}\nsampler: grid\ntrials: 2\nobjectives: [ loss min 9, "
          "layer0.D.state_rms min 9 ]\n",
          "lab.db", NULL);
    work(&w, false);
    tn_study *s = tn_study_world_load(&w);
    for (size_t i = 0; i < 2; i++) {
        if (s->trials[i].state != TN_TRIAL_DONE) fail_msg("%s", s->trials[i].error);
        assert_true(s->trials[i].y[1] > 0);
    }
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

static void is_the_training(void **state)
{
    (void)state;
    world w;
    begin(&w, "one", "base: ten\nsearch: {train.lr: [1e-2, 2e-2]}\nsampler: grid\ntrials: 2\nseed: 5\n" OBJECTIVES,
          "lab.db", NULL);
    work(&w, false);
    tn_study *s = tn_study_world_load(&w);
    assert_int_equal(s->n, 2);
    for (size_t i = 0; i < 2; i++) {
        const tn_trial *t = &s->trials[i];
        tn_session on = { 0 };
        tn_progress_report last;
        tn_evaluation e;
        if (t->state != TN_TRIAL_DONE) fail_msg("%s", t->error);
        open_alone(&w, i ? "train.lr=2e-2" : "train.lr=1e-2", i ? "seed=6" : "seed=5", &on);
        assert_ok(tn_training_run(&(tn_training){ .trainer = on.trainer,
                                                  .settings = on.settings,
                                                  .source = &on.source,
                                                  .batch = on.batch,
                                                  .length = on.length },
                                  NULL, &last));
        assert_ok(tn_evaluate(on.trainer, &on.source, 0, &e));
        assert_true(reported(&w, t, "loss", false) == tn_scores_get(&e.scores, "loss") &&
                    t->y[0] <= tn_scores_get(&e.scores, "loss"));
        assert_true(fabs(t->y[1] - t->y[0] * on.source.bits) < 1e-12 &&
                    t->y[2] == (double)tn_trainer_parameters(on.trainer));
        assert_true(t->y[3] > 0 && t->y[4] == (double)tn_trainer_memory(on.trainer).total);
        tn_session_close(&on);
    }
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* Ten evaluations unless the study says how many: every third of 25 steps, and the last. */
static void ten_rungs(void **state)
{
    (void)state;
    world w = { .study = 0 };
    tn_arena a = { 0 };
    tn_trial_curve c;
    char text[1500];
    tn_tempdir_make_quick(&w.dir);
    make_data(&w.dir, "one", 3);
    snprintf(w.path, sizeof w.path, "%s/lab.db", w.dir.path);
    snprintf(text, sizeof text,
             "study: s\nbase: ten\nset: {data: %s/one, dim: 16, layers: 1, train.context: 16, train.batch: 2, "
             "train.steps: 25}\n"
             "search: {train.lr: [1e-2, 2e-2]}\nsampler: grid\ntrials: 1\nobjectives: [loss]\n",
             w.dir.path);
    tn_study_world_open(&w, text);
    work(&w, false);
    tn_study *s = tn_study_world_load(&w);
    assert_ok(tn_lab_curve(w.lab, s->trials[0].id, &a, &c));
    assert_true(c.n == 9 && c.step[0] == 3 && c.step[7] == 24 && c.step[8] == 25);
    tn_arena_free(&a);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* --- the test part ------------------------------------------------------------------------------------------------ */

#define GRID "search: {train.lr: [1e-2, 4e-2]}\nsampler: grid\nseeds: 3\n" OBJECTIVES

/* Two data sets that differ in their test part only: all that a search says is the same, and what comparisons say
 * differs. */
static void only_comparisons_see_it(void **state)
{
    (void)state;
    world a, b;
    begin(&a, "one", "base: ten\n" GRID, "a.db", NULL);
    begin(&b, "other", "base: ten\n" GRID, "b.db", &a);
    work(&a, false); /* the points as a search would run them */
    work(&b, false);
    tn_study *p = tn_study_world_load(&a), *q = tn_study_world_load(&b);
    for (size_t i = 0; i < p->n; i++)
        assert_true(p->trials[i].y[0] == q->trials[i].y[0] && p->trials[i].y[1] == q->trials[i].y[1]);
    tn_study_free(p);
    tn_study_free(q);
    p = run_seeds(&a), q = run_seeds(&b);
    assert_int_equal(p->n, 2 + 6);
    for (size_t i = 0; i < p->n; i++) {
        const tn_trial *t = &p->trials[i], *u = &q->trials[i];
        assert_true(t->state == TN_TRIAL_DONE && u->state == TN_TRIAL_DONE);
        if (t->kind != TN_TRIAL_COMPARE) {
            assert_true(t->y[0] == u->y[0] && t->y[1] == u->y[1]); /* a point is known by its validation part */
            continue;
        }
        assert_true(reported(&a, t, "loss", true) == reported(&b, u, "loss", true));
        assert_true(t->y[0] != u->y[0] &&
                    t->y[0] > reported(&a, t, "loss", true) + 0.5); /* digits were never trained on */
        assert_true(t->y[1] > t->y[0]); /* bytes as tokens, and the ends of text: a little above 1 / ln 2 */
    }
    tn_study_free(p);
    tn_study_free(q);
    tn_study_world_end(&b, false);
    tn_study_world_end(&a, true);
}

static void no_test_part(void **state)
{
    (void)state;
    world w;
    begin(&w, "none", "base: ten\n" GRID, "lab.db", NULL);
    tn_study *s = run_seeds(&w);
    for (size_t i = 0; i < s->n; i++) {
        assert_int_equal(s->trials[i].state, TN_TRIAL_FAILED);
        assert_non_null(strstr(s->trials[i].error, "the data have no test split to compare on"));
    }
    assert_non_null(strstr(s->trials[0].error, "3 of 3 seeds failed"));
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* --- common seeds ------------------------------------------------------------------------------------------------- */

static void means_over_seeds(void **state)
{
    (void)state;
    world w;
    begin(&w, "one", "sides: {ten: {base: ten}, gpt: {base: gpt}}\n" GRID, "lab.db", NULL);
    assert_int_equal(w.plan.trials, 2);
    tn_study *s = run_seeds(&w);
    assert_int_equal(s->n, 4 + 12);
    for (size_t i = 0; i < 4; i++) {
        const tn_trial *t = &s->trials[i];
        double loss = 0, parameters = 0;
        size_t n = 0;
        for (size_t k = 4; k < s->n; k++) {
            if (s->trials[k].config != t->id) continue;
            assert_true(s->trials[k].side == t->side && s->trials[k].x[0] == t->x[0]);
            assert_true(s->trials[k].seed >= TN_FIRST_SEED && s->trials[k].seed < TN_FIRST_SEED + 3);
            loss += reported(&w, &s->trials[k], "loss", true) / 3;
            parameters += s->trials[k].y[2] / 3;
            n++;
        }
        assert_int_equal(n, 3);
        assert_true(t->state == TN_TRIAL_DONE && fabs(t->y[0] - loss) < 1e-12 && fabs(t->y[2] - parameters) < 1e-6);
    }
    tn_study_free(s);
    s = run_seeds(&w); /* again: nothing is left to do */
    assert_int_equal(s->n, 16);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

/* Comparisons that are stopped again and again, with a checkpoint each time, end as if they had not been: also on
 * the test part, which is that of the best evaluation and of no checkpoint between. */
static void stopped_often(void **state)
{
    (void)state;
    world calm, often;
    begin(&calm, "one", "base: ten\n" GRID, "calm.db", NULL);
    begin(&often, "one", "base: ten\n" GRID, "often.db", &calm);
    tn_study *a = run_seeds(&calm), *b = tn_study_world_load(&often);
    assert_ok(tn_lab_seeds_fill(often.lab, b, &often.plan));
    tn_study_free(b);
    assert_true(tn_study_world_work_stopped(&often, (tn_worker_options){ .compare = true }, 3, 5) > 10);
    b = run_seeds(&often);
    for (size_t i = 0; i < a->n; i++)
        assert_true(a->trials[i].y[0] == b->trials[i].y[0] && a->trials[i].y[1] == b->trials[i].y[1] &&
                    a->trials[i].y[2] == b->trials[i].y[2]);
    assert_int_equal(access(tn_tempdir_file(&calm.dir, "often/s/c0"), F_OK), -1);
    tn_study_free(a);
    tn_study_free(b);
    tn_study_world_end(&often, false);
    tn_study_world_end(&calm, true);
}

/* A checkpoint after every step is none of the best: only evaluations decide which parameters the test part sees. */
static void saved_often(void **state)
{
    (void)state;
    world calm, often;
    begin(&calm, "one", "sides: {a: {base: ten}}\n" GRID, "calm.db", NULL);
    begin(&often, "one", "sides: {a: {base: ten, set: {ckpt.every_s: 1e-6}}}\n" GRID, "often.db", &calm);
    tn_study *a = run_seeds(&calm), *b = run_seeds(&often);
    for (size_t i = 0; i < a->n; i++)
        assert_true(a->trials[i].y[0] == b->trials[i].y[0] && a->trials[i].y[1] == b->trials[i].y[1]);
    tn_study_free(a);
    tn_study_free(b);
    tn_study_world_end(&often, false);
    tn_study_world_end(&calm, true);
}

/* --- equal sizes -------------------------------------------------------------------------------------------------- */

#define SIDES                                                                                                          \
    "sides: {ten: {base: ten}, gpt: {base: gpt}, gpt2: {base: gpt, set: {shape: gpt2}}, diag: {base: ten, set: "       \
    "{pattern: D}}}\n"

static void equal_sizes(void **state)
{
    (void)state;
    world w, v;
    begin(&w, "one",
          SIDES "parameters: 2e4\nwidth: ffn\nsearch: {train.lr: [1e-2, 2e-2]}\nsampler: grid\ntrials: 1\n" OBJECTIVES,
          "lab.db", NULL);
    work(&w, false);
    tn_study *s = tn_study_world_load(&w);
    for (size_t i = 0; i < s->n; i++) {
        assert_int_equal(s->trials[i].state, TN_TRIAL_DONE);
        assert_true(fabs(s->trials[i].y[2] - 2e4) <= 0.03 * 2e4);
    }
    tn_study_free(s);
    begin(&v, "one",
          SIDES
          "parameters: first\nwidth: ffn\nsearch: {train.lr: [1e-2, 2e-2]}\nsampler: grid\ntrials: 1\n" OBJECTIVES,
          "first.db", &w);
    work(&v, false);
    s = tn_study_world_load(&v);
    tn_session on = { 0 };
    open_alone(&w, "train.lr=1e-2", "seed=42", &on);
    assert_true(s->trials[0].y[2] == (double)tn_trainer_parameters(on.trainer));
    tn_session_close(&on);
    for (size_t i = 1; i < s->n; i++) assert_true(fabs(s->trials[i].y[2] / s->trials[0].y[2] - 1) <= 0.03);
    tn_study_free(s);
    tn_study_world_end(&v, false);
    tn_study_world_end(&w, true);
}

static void what_is_probed(void **state)
{
    (void)state;
    world w;
    tn_trial_probe p;
    begin(&w, "one, train.from: /nowhere", "base: gpt\nparameters: 2e4\nwidth: ffn\n" GRID, "lab.db", NULL);
    tn_trial_host h = { .plan = &w.plan, .runs = w.dir.path };
    assert_ok(tn_trial_probe_side(&h, &(tn_claim){ .kind = TN_TRIAL_COMPARE, .seed = 1 }, (double[]){ 0 }, 0.01, &p));
    assert_true(fabs((double)p.parameters - 2e4) <= 0.03 * 2e4 && p.steps == 12 && p.tokens == 12 * 2 * 16);
    assert_non_null(strstr(p.width.text, "ffn="));
    assert_true(p.step_s > 0 && p.seconds > 12 * p.step_s && p.memory_bytes > 2e4 * 16);
    tn_context_slot_free(&h.context_slot);
    tn_study_world_end(&w, true);
}

/* --- standings ---------------------------------------------------------------------------------------------------- */

static void stand(void **state)
{
    (void)state;
    world w;
    tn_comparison k;
    tn_standing *v;
    tn_plot plot;
    size_t rows;
    begin(&w, "one",
          "sides: {ten: {base: ten}, gpt: {base: gpt}, lazy: {base: gpt, set: {train.lr: 1e-7, train.decay: 0}, "
          "search: {train.clip: [1, 2]}}}\n" GRID,
          "lab.db", NULL);
    tn_study *s = run_seeds(&w);
    assert_ok(tn_compare_pick(s, w.lab, 0, TN_COMPARE_TOP, &w.arena, &k));
    assert_ok(tn_standings(s, w.lab, &k, 1, NAN, &w.arena, &v, &rows));
    assert_int_equal(rows, 3);
    assert_true(v[0].mean <= v[1].mean && v[1].mean <= v[2].mean);
    for (size_t i = 0; i < 3; i++) {
        const tn_side_runs *r = &v[i].runs;
        double sum = 0, validation = 0;
        assert_int_equal(r->n, 3);
        for (size_t n = 0; n < 3; n++)
            sum += r->trial[n]->y[0] / 3, validation += reported(&w, r->trial[n], "loss", true) / 3;
        assert_true(fabs(v[i].mean - sum) < 1e-12 && v[i].half > 0 && fabs(r->validation - validation) < 1e-12 &&
                    v[i].y[2] > 0);
        assert_true((r->side == 1) == (v[i].paired.n == 0));
        if (r->side != 1)
            assert_true(v[i].p_adjusted >= v[i].paired.p && v[i].judged.comparisons == 2 &&
                        v[i].judged.better == (v[i].judged.word == TN_B_LARGER) - (v[i].judged.word == TN_A_LARGER));
        for (size_t m = 0; m < s->n; m++) /* the point that speaks is the best of its side on the validation part */
            if (s->trials[m].kind != TN_TRIAL_COMPARE && s->trials[m].side == r->side)
                assert_true(s->trials[m].y[0] >= r->validation - 1e-12);
    }
    assert_ok(tn_standings_curves(s, w.lab, v, rows, &w.arena, &plot));
    assert_true(plot.count == 3 && plot.series[0].n == 3 && plot.series[0].x[2] == 12);
    tn_study_free(s);
    tn_study_world_end(&w, true);
}

void tn_tests_text_trials(tn_test_list *l)
{
    tn_test_add(l, is_the_training, NULL, "lab/text: a trial is the training that it says");
    tn_test_add(l, instruments_are_objectives, NULL, "lab/text: instruments are objectives");
    tn_test_add(l, ten_rungs, NULL, "lab/text: ten evaluations unless set");
    tn_test_add(l, only_comparisons_see_it, NULL, "lab/text: the test part is seen by comparisons only");
    tn_test_add(l, no_test_part, NULL, "lab/text: a comparison needs a test part");
    tn_test_add(l, means_over_seeds, NULL, "lab/text: points on common seeds");
    tn_test_add(l, stopped_often, NULL, "lab/text: comparisons stopped again and again");
    tn_test_add(l, saved_often, NULL, "lab/text: checkpoints between evaluations decide nothing");
    tn_test_add(l, equal_sizes, NULL, "lab/text: sides of equal size");
    tn_test_add(l, what_is_probed, NULL, "lab/text: what a trial will cost");
    tn_test_add(l, stand, NULL, "lab/text: how sides stand against one");
}
