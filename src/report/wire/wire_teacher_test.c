/* A teacher that is kept against the one that is asked in every step: the same loss and gradients, less work, and runs that are
 * interrupted. */
#include "device_memory.h"
#include "plan/plan.h"
#include "run_pieces.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run/run.h"
#include "wire_run.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>

enum { STEPS = 6, VOCAB = 256 };

static void open_session(const wire_run *w, const char *run, const char *words, tn_session *s)
{
    char text[2600];
    snprintf(text, sizeof text,
             "a.model=%s b.model=%s task=recall task.keys=50 task.pairs=3 task.questions=2 task.heldout=2 task.size=7 "
             "train.batch=2 slots=3 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 train.steps=%d train.warmup=3 "
             "log.every=1 ckpt.every=2 train.eval_every=3 run=%s/%s %s",
             w->model[0], w->model[1], STEPS, w->d.path, run, words);
    tn_settings *st = wire_run_settings(tn_model_named("wire"), text);
    *s = (tn_session){ 0 };
    assert_ok(tn_session_open_with(
        &(tn_session_options){ .settings = st, .model = tn_model_named("wire"), .needs_data = true }, s));
    tn_settings_free(st);
}

static tn_training training_of(const wire_run *w, const tn_session *s)
{
    return (tn_training){
        .trainer = s->trainer, .settings = s->settings, .source = &s->source, .dir = w->d.path, .batch = s->batch
    };
}

/* One batch of a session that has been prepared, its loss, and the gradients in its store. */
typedef struct first_step {
    tn_session s;
    float loss[3];
    double flops;
} first_step;

/* Readers of random weights are not sure of anything: these are surer, as trained ones are. */
static void sharpen(tn_store *st, float by)
{
    static const char *const tables[] = { "a.embed", "b.embed" };
    for (int k = 0; k < 2; k++) {
        const tn_entry *e = tn_store_find(st, tables[k]);
        assert_non_null(e);
        const int64_t n = tn_dims_count(e->dims);
        float *x = tn_memory_floats(st, e->data, n);
        for (int64_t i = 0; i < n; i++) x[i] *= by;
        tn_memory_put(st, e->data, x, sizeof *x * (size_t)n);
        free(x);
    }
}

static void take_steps(const wire_run *w, const char *words, float sharp, first_step *f)
{
    open_session(w, "x", words, &f->s);
    const tn_training t = training_of(w, &f->s);
    assert_ok(tn_run_begin_parts(&t));
    sharpen(tn_trainer_store(f->s.trainer), sharp);
    assert_ok(tn_run_prepare(&t, false));
    for (int i = 0; i < 3; i++) { /* gradients add up */
        int64_t count;
        assert_ok(tn_source_next(&f->s.source, i, f->s.trainer, &count));
        assert_ok(tn_trainer_grad(f->s.trainer, 0, &f->loss[i]));
    }
    f->flops = tn_trainer_flops(f->s.trainer);
}

static double largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return (double)most;
}

static void same_gradients(const first_step *a, const first_step *b, double tolerance)
{
    const tn_store *x = tn_trainer_store(a->s.trainer), *y = tn_trainer_store(b->s.trainer);
    int seen = 0;
    assert_int_equal(tn_store_count(x), tn_store_count(y));
    for (size_t i = 0; i < tn_store_count(x); i++) {
        const tn_entry *e = tn_store_at(x, i), *f = tn_store_find(y, e->name);
        const int64_t n = tn_dims_count(e->dims);
        assert_non_null(f);
        if (e->role != TN_ROLE_PARAM) continue;
        float *p = tn_memory_floats(x, e->grad, n), *q = tn_memory_floats(y, f->grad, n);
        const double most = largest(p, n);
        for (int64_t k = 0; k < n; k++)
            if (!(fabs((double)p[k] - (double)q[k]) <= tolerance * most))
                fail_msg("%s[%lld]: %g and %g", e->name, (long long)k, (double)p[k], (double)q[k]);
        seen += most > 0;
        free(p);
        free(q);
    }
    assert_true(seen > 20);
}

/* All tokens are kept: nothing is left out. */
static void all_tokens(void **state)
{
    const char *const *terms = *state;
    wire_run w;
    first_step live = { 0 }, kept = { 0 };
    char words[200];
    wire_run_open(&w, "slots=3");
    take_steps(&w, terms[0], 1, &live);
    snprintf(words, sizeof words, "%s loss.kd_top=%d %s", terms[0], VOCAB + 5, terms[1]);
    take_steps(&w, words, 1, &kept);
    for (int i = 0; i < 3; i++)
        if (!(fabsf(live.loss[i] - kept.loss[i]) <= 1e-5f * live.loss[i]))
            fail_msg("losses %.7g and %.7g", (double)live.loss[i], (double)kept.loss[i]);
    same_gradients(&live, &kept, 1e-5);
    assert_true(kept.flops < (strstr(terms[1], "teacher") ? 0.8 : 0.99) * live.flops);
    for (int k = 0; k < 2; k++) { /* no text is read, nor even fed */
        static const char *const told[] = { "a.told", "b.told" };
        if (!strstr(terms[1], "teacher")) break;
        assert_non_null(tn_bound_data(tn_trainer_bound(live.s.trainer, true), told[k]));
        assert_null(tn_bound_data(tn_trainer_bound(kept.s.trainer, true), told[k]));
    }
    if (strstr(terms[1], "features")) {
        const char *tokens = strstr(terms[0], "both") ? "sent" : "b.text";
        assert_non_null(tn_bound_data(tn_trainer_bound(live.s.trainer, true), tokens));
        assert_null(tn_bound_data(tn_trainer_bound(kept.s.trainer, true), tokens));
    }
    tn_session_close(&live.s);
    tn_session_close(&kept.s);
    wire_run_close(&w);
}

/* Of a sharp reader the most likely tokens are nearly everything. */
static void some_tokens(void **state)
{
    (void)state;
    wire_run w;
    first_step none = { 0 }, live = { 0 }, kept = { 0 }, few = { 0 };
    wire_run_open(&w, "slots=3");
    take_steps(&w, "loss.kd=0", 5, &none);
    take_steps(&w, "loss.kd=1 loss.kd_temperature=1", 5, &live);
    take_steps(&w, "loss.kd=1 loss.kd_temperature=1 loss.teacher=cached", 5, &kept);
    take_steps(&w, "loss.kd=1 loss.kd_temperature=1 loss.teacher=cached loss.kd_top=2", 5, &few);
    for (int i = 0; i < 3; i++) {
        const float kl = live.loss[i] - none.loss[i], top = kept.loss[i] - none.loss[i];
        if (!(kl > 0.01f && fabsf(kl - top) < 0.01f * kl)) fail_msg("KL of %g, kept %g", (double)kl, (double)top);
        assert_true(few.loss[i] - none.loss[i] < 0.95f * kl);
    }
    tn_session_close(&none.s);
    tn_session_close(&live.s);
    tn_session_close(&kept.s);
    tn_session_close(&few.s);
    wire_run_close(&w);
}

/* --- the file -------------------------------------------------------------------------------------------------------------- */

/* Files whose names begin so, in a folder of the test's; *name: the last one. */
static int files_of(const wire_run *w, const char *folder, const char *lead, char name[300])
{
    char path[TN_PATH_BYTES];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", w->d.path, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, lead, strlen(lead)) == 0) snprintf(name, 300, "%s/%.255s", folder, e->d_name), n++;
    if (d) closedir(d);
    return n;
}

#define KEPT "loss.kd=0.5 loss.state=0.5 loss.teacher=cached "

static tn_status piece(const wire_run *w, const char *run, const char *words, int64_t stop, tn_progress_report *last)
{
    tn_session s;
    open_session(w, run, words, &s);
    return tn_run_piece(&s, "wire", stop, last);
}

/* While it is made: nothing is there. Later runs have it made, take it, and go on with it, to the same bits. */
static void interrupted(void **state)
{
    (void)state;
    wire_run w;
    tn_progress_report last, again;
    char name[300], other[300], path[TN_PATH_BYTES];
    struct stat before, after;
    wire_run_open(&w, "slots=3");
    assert_fails(piece(&w, "r", KEPT, 1, &last), TN_INTERRUPTED, "interrupted before the first step");
    assert_int_equal(files_of(&w, "r", "teach-", name), 0);
    assert_int_equal(files_of(&w, "r", ".tmp-", name), 0);
    assert_int_equal(piece(&w, "r", KEPT, 10, &last), TN_INTERRUPTED); /* 7 batches of the teacher, then steps */
    assert_true(last.step > 0 && last.step < STEPS);
    assert_int_equal(files_of(&w, "r", "teach-", name), 1);
    snprintf(path, sizeof path, "%s/%s", w.d.path, name);
    assert_int_equal(stat(path, &before), 0);
    assert_ok(piece(&w, "r", KEPT, -1, &last));
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && files_of(&w, "r", "teach-", name) == 1);
    assert_ok(piece(&w, "whole", KEPT, -1, &again));
    assert_true(last.step == STEPS && last.loss == again.loss);
    assert_true(tn_scores_first(&last.last) == tn_scores_first(&again.last));
    assert_int_equal(files_of(&w, "whole", "teach-", other), 1);
    assert_string_equal(strrchr(name, '/'), strrchr(other, '/'));
    wire_run_close(&w);
}

/* A killed process leaves a temporary, and a damaged disk a damaged file. */
static void damaged(void **state)
{
    (void)state;
    wire_run w;
    tn_progress_report last;
    char name[300], path[TN_PATH_BYTES];
    wire_run_open(&w, "slots=3");
    assert_ok(piece(&w, "r", KEPT "train.schedule=constant train.steps=2", -1, &last));
    assert_int_equal(files_of(&w, "r", "teach-", name), 1);
    snprintf(path, sizeof path, "%s/%s", w.d.path, name);
    char killed[TN_PATH_BYTES];
    snprintf(killed, sizeof killed, "%s/r/.tmp-%s-1", w.d.path, strrchr(name, '/') + 1);
    assert_int_equal(rename(path, killed), 0); /* as if it had ended before the file had its name */
    assert_ok(piece(&w, "r", KEPT "train.schedule=constant train.steps=3", -1, &last));
    assert_true(access(path, F_OK) == 0 && access(killed, F_OK) != 0); /* made again, and the temporary is gone */
    assert_int_equal(truncate(path, 5000), 0);
    assert_fails(piece(&w, "r", KEPT "train.schedule=constant train.steps=4", -1, &last), TN_BAD_FILE,
                 "remove the file, it is made again");
    assert_int_equal(unlink(path), 0);
    assert_ok(piece(&w, "r", KEPT "train.schedule=constant train.steps=4", -1, &last));
    assert_true(last.step == 4);
    wire_run_close(&w);
}

/* task.cache is for all runs; another temperature, or another number of tokens, is another file. */
static void shared_folder(void **state)
{
    (void)state;
    wire_run w;
    tn_progress_report last;
    char name[300], words[TN_PATH_BYTES + 200];
    static const char *const more[] = {
        "", "seed=5 loss.kd=2", "loss.kd_top=9", "loss.kd_temperature=3", "loss.states=1", "readers=b"
    };
    static const int files[] = { 1, 1, 2, 3, 4, 5 };
    wire_run_open(&w, "slots=3");
    for (int i = 0; i < 6; i++) {
        char run[16];
        snprintf(run, sizeof run, "r%d", i);
        snprintf(words, sizeof words, KEPT "train.steps=1 task.cache=%s/cache %s", w.d.path, more[i]);
        assert_ok(piece(&w, run, words, -1, &last));
        assert_int_equal(files_of(&w, run, "teach-", name), 0);
        assert_int_equal(files_of(&w, "cache", "teach-", name), files[i]);
    }
    wire_run_close(&w);
}

/* What a sender gives for a text is not what it gives for a text with a question. The teacher, who never sees what the encoder does, is the
 * same. */
static void shared_with_questions(void **state)
{
    (void)state;
    wire_run w;
    tn_progress_report last;
    char name[300], words[TN_PATH_BYTES + 300];
    static const char *const more[] = { "", "encoder_sees=both", "encoder_sees=both seed=5" };
    wire_run_open(&w, "slots=3");
    for (int i = 0; i < 3; i++) {
        char run[16];
        snprintf(run, sizeof run, "r%d", i);
        snprintf(words, sizeof words,
                 KEPT "train.steps=1 task.questions=1 encoder=sender sender_features=cached task.cache=%s/cache %s",
                 w.d.path, more[i]);
        assert_ok(piece(&w, run, words, -1, &last));
        assert_int_equal(files_of(&w, "cache", "features-", name), i ? 2 : 1);
        assert_int_equal(files_of(&w, "cache", "teach-", name), 1);
        assert_int_equal(files_of(&w, "cache", "wire-", name), 1);
    }
    wire_run_close(&w);
}

/* Who has not prepared it gets an error, not a run on nothing. */
static void not_prepared(void **state)
{
    (void)state;
    wire_run w;
    tn_session s;
    int64_t count;
    wire_run_open(&w, "slots=3");
    open_session(&w, "x", KEPT "loader.workers=0", &s);
    assert_fails(tn_source_next(&s.source, 0, s.trainer, &count), TN_BAD_FILE, "nobody has prepared what is cached");
    tn_training t = training_of(&w, &s);
    t.dir = NULL;
    assert_fails(tn_run_prepare(&t, true), TN_USAGE, "set task.cache=FOLDER");
    tn_session_close(&s);
    wire_run_close(&w);
}

void tn_tests_wire_teacher(tn_test_list *l)
{
#define CACHED "loss.teacher=cached"
#define SENDER "encoder=sender sender=b "
#define BOTH "task.questions=1 encoder_sees=both "
    static const char *const terms[][2] = {
        { "loss.kd=0.7 loss.state=0.3", CACHED },
        { "loss.kd=1 loss.kd_temperature=1", CACHED },
        { "loss.state=1 loss.states=1", CACHED },
        { SENDER "loss.kd=0.7 loss.state=0.3", CACHED " sender_features=cached" },
        { SENDER "loss.kd=0.5", "sender_features=cached" },
        { SENDER "readers=a", "sender_features=cached" },
        { SENDER BOTH "loss.kd=0.5", CACHED " sender_features=cached" },
        { SENDER BOTH "readers=a", "sender_features=cached" },
    };
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        tn_test_add(l, all_tokens, (void *)terms[i], "wire teacher: kept is live, with all tokens (%s, %s)",
                    terms[i][0], terms[i][1]);
    tn_test_add(l, some_tokens, NULL, "wire teacher: 64 tokens of a sharp reader are nearly all");
    tn_test_add(l, interrupted, NULL, "wire teacher: interrupted while it is made, and later");
    tn_test_add(l, damaged, NULL, "wire teacher: a killed process, a damaged file");
    tn_test_add(l, shared_folder, NULL, "wire teacher: what other runs take, and what not");
    tn_test_add(l, shared_with_questions, NULL, "wire teacher: a text with its question is another than the text");
    tn_test_add(l, not_prepared, NULL, "wire teacher: not without being prepared");
}
