/* Runs: a run that was stopped anywhere ends with the bits of one that was not; what a command may change; starting over;
 * lines of metrics that have to go. */
#include "train/run/run.h"

#include "io/yaml_settings.h"
#include "run_sessions.h"
#include "train/run/same_settings.h"

#include <inttypes.h>
#include <math.h>
#include <sys/wait.h>
#include <time.h>

/* --- a whole training, in sessions ----------------------------------------------------------------------------------- */

static void sessions(void **state)
{
    const char *policy = *state;
    const char *const set[] = {
        "train.steps=23",           "ckpt.every=4", "train.eval_every=5", "train.warmup=3", policy,
        "train.stop_patience=4", /* of five evaluations: a run that gets better is not stopped */
        "optim.loss_scale_growth=3"
    }; /* half precision: it grows and overflows on the way */
    place p;
    tn_progress_report last, whole;
    int64_t from, done = 0;
    open_place(&p, strncmp(policy, "loader.", 7) == 0);
    assert_ok(session(&p, "a", set, 7, false, -1, &whole, &from));
    assert_true(from == -1 && whole.step == 23);
    if (strcmp(policy, "compute=f16") == 0) {
        const char *text = file_text(&p.d, "a/metrics.jsonl");
        assert_non_null(strstr(text, "\"loss_scale\":131072"));
        assert_non_null(strstr(text, "\"nonfinite\":\"loss scale halved\""));
        tn_free((void *)(uintptr_t)text);
    }
    for (int i = 0; done < 23 && i < 30; i++) { /* 0, 1, 2, ... steps at a time */
        FILE *f =
            done ? fopen(tn_tempdir_file(&p.d, "b/metrics.jsonl"), "a") : NULL; /* what a killed session had got to */
        if (f) assert_true(fputs("{\"step\":22,\"loss\":1}\n{\"step\":", f) >= 0 && fclose(f) == 0);
        const tn_status s = session(&p, "b", set, 7, false, i, &last, &from);
        assert_true(from == (done ? done : -1));
        done = last.step;
        if (done < 23) assert_int_equal(s, TN_INTERRUPTED);
        if (done < 23 && done > 0) assert_non_null(strstr(tn_error_text(), ": rerun this command to resume"));
    }
    assert_true(last.step == 23 && tn_scores_first(&last.last) == tn_scores_first(&whole.last) &&
                last.loss == whole.loss);
    same_metrics(&p);
    assert_ok(session(&p, "b", set, 7, false, -1, &last, &from)); /* finished: nothing changes */
    assert_true(from == 23 && last.step == 23);
    same_metrics(&p);
    tn_tempdir_remove_all(&p.d);
}

/* Steps queued ahead, and the run stopped between them: lines, evaluations and checkpoints are those of one by one. */
static void queue_depth(void **state)
{
    (void)state;
    const char *const set[] = { "train.steps=37", "ckpt.every=7", "train.eval_every=9", "log.every=2",
                                "train.warmup=3" };
    place p;
    tn_progress_report whole, last;
    int64_t from;
    open_place(&p, false);
    p.queue_depth = TN_TRAINER_QUEUE_MAX;
    assert_ok(session(&p, "a", set, 5, false, -1, &whole, &from));
    assert_int_equal(session(&p, "b", set, 5, false, 12, &last, &from), TN_INTERRUPTED);
    assert_true(last.step == 12);
    assert_ok(session(&p, "b", set, 5, false, -1, &last, &from));
    assert_true(from == 12 && last.step == 37 && last.loss == whole.loss &&
                tn_scores_first(&last.last) == tn_scores_first(&whole.last));
    same_metrics(&p);
    tn_tempdir_remove_all(&p.d);
}

/* A bad step ends the run with its own line, whatever was queued behind it. */
static void ahead_of_a_bad_step(void **state)
{
    (void)state;
    const char *const set[] = { "train.steps=40", "log.every=1", "train.eval_every=0" };
    place p;
    tn_progress_report one, late;
    int64_t from;
    open_place(&p, false);
    p.queue_depth = TN_TRAINER_QUEUE_MAX;
    p.ruin = 6;
    assert_int_equal(session(&p, "a", set, 3, false, -1, &one, &from), TN_DIVERGED);
    assert_int_equal(session(&p, "b", set, 3, false, -1, &late, &from), TN_DIVERGED);
    assert_true(one.step == 6 && late.step == 6);
    char command[900];
    snprintf(command, sizeof command,
             "cd '%s' && for r in a b; do grep -oE '\"(step|loss|grad_norm)\":[^,}]*' $r/metrics.jsonl >$r.txt; done; "
             "test -s a.txt && cmp a.txt b.txt",
             p.d.path);
    assert_int_equal(system(command), 0);
    tn_tempdir_remove_all(&p.d);
}

/* A first step that goes wrong leads back to the weights that the run started from. */
static void from_weights(void **state)
{
    (void)state;
    const char *const first[] = { "train.steps=6", "train.eval_every=0" };
    char from_a[TN_PATH_BYTES + 16];
    const char *const second[] = { "train.steps=1", "train.nonfinite=rollback", from_a };
    place p;
    tn_progress_report last;
    int64_t from;
    open_place(&p, false);
    snprintf(from_a, sizeof from_a, "train.from=%s", tn_tempdir_file(&p.d, "a"));
    assert_ok(session(&p, "a", first, 2, false, -1, &last, &from));
    p.ruin = 1;
    assert_ok(session(&p, "b", second, 3, false, -1, &last, &from));
    assert_true(last.step == 1 && last.action == TN_GUARD_ROLLED_BACK);
    char command[900];
    snprintf(command, sizeof command, "cd '%s' && cmp a/latest/model.safetensors b/latest/model.safetensors", p.d.path);
    assert_int_equal(system(command), 0);
    tn_tempdir_remove_all(&p.d);
}

/* Prolonged, with other unimportant settings, as if it had been that long from the beginning. */
static void prolonged(void **state)
{
    (void)state;
    const char *const first[] = { "train.steps=10", "ckpt.every=4", "train.schedule=constant", "train.eval_every=5" };
    const char *const longer[] = { "train.steps=20", "ckpt.every=3", "train.schedule=constant", "train.eval_every=5" };
    place p;
    tn_progress_report last;
    int64_t from;
    open_place(&p, false);
    assert_ok(session(&p, "a", longer, 4, false, -1, &last, &from));
    assert_ok(session(&p, "b", first, 4, false, -1, &last, &from));
    assert_ok(session(&p, "b", longer, 4, false, -1, &last, &from));
    assert_true(from == 10 && last.step == 20);
    same_metrics(&p);
    tn_tempdir_remove_all(&p.d);
}

/* A learning rate that ruins everything: the run ends early, stays ended, and goes on with more patience. */
static void patience(void **state)
{
    (void)state;
    const char *set[] = { "train.steps=40",        "train.lr=1",
                          "train.warmup=0",        "train.eval_every=2",
                          "train.stop_patience=2", "train.schedule=constant" };
    place p;
    tn_progress_report last;
    int64_t from;
    open_place(&p, false);
    assert_ok(session(&p, "a", set, 6, false, -1, &last, &from));
    assert_true(last.stopped && last.step < 40);
    const int64_t ended = last.step;
    assert_ok(session(&p, "a", set, 6, false, -1, &last, &from));
    assert_true(from == ended && last.step == ended && last.stopped);
    set[4] = "train.stop_patience=0";
    assert_ok(session(&p, "a", set, 6, false, -1, &last, &from));
    assert_true(from == ended && last.step == 40 && !last.stopped);
    tn_tempdir_remove_all(&p.d);
}

/* A run in sessions suggests the patience of one that was not stopped: what decides it is saved. */
static void patience_in_sessions(void **state)
{
    (void)state;
    const char *const set[] = { "train.steps=40", "train.lr=0.5", "train.warmup=0", "train.eval_every=2",
                                "train.schedule=constant" };
    place p;
    tn_progress_report whole, last = { 0 };
    int64_t from;
    open_place(&p, false);
    assert_ok(session(&p, "a", set, 5, false, -1, &whole, &from));
    for (int64_t done = 0; done < 40; done = last.step) (void)session(&p, "b", set, 5, false, 7, &last, &from);
    assert_true(whole.patience.longest > 0 && whole.patience.stale > 0);
    assert_true(last.patience.longest == whole.patience.longest && last.patience.stale == whole.patience.stale &&
                last.patience.best_step == whole.patience.best_step);
    assert_int_equal(tn_patience_stop(&last.patience, 40, 2), tn_patience_stop(&whole.patience, 40, 2));
    tn_tempdir_remove_all(&p.d);
}

/* Checkpoints come between the evaluations too, by number and by the clock; best is the best evaluation's, found again from the metrics. */
static void best_is_kept(void **state)
{
    const char *const set[] = { "train.steps=40", "train.lr=0.1",  "train.warmup=0", "train.eval_every=4",
                                "ckpt.every=7",   "log.every=100", *state,           "train.schedule=constant" };
    place p;
    tn_progress_report last;
    tn_ckpt_list l;
    int64_t from, step = 0, at;
    double lowest = INFINITY, x;
    open_place(&p, false);
    assert_ok(session(&p, "a", set, 8, false, -1, &last, &from));
    const char *text = file_text(&p.d, "a/metrics.jsonl");
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        const char *held = strstr(line, "\"heldout\":");
        if (!held || held > line + strcspn(line, "\n") || sscanf(line, "{\"step\":%" SCNd64, &at) != 1) continue;
        assert_int_equal(sscanf(held, "\"heldout\":%lf", &x), 1);
        if (x < lowest) step = at;
        if (x < lowest) lowest = x;
    }
    tn_free((void *)(uintptr_t)text);
    assert_true(step > 0 && step < 40 && step % 4 == 0 && step % 7); /* the rate is too high: it gets worse again */
    assert_true(last.best_step == step && tn_scores_first(&last.best) == lowest);
    assert_ok(tn_ckpt_list_read(tn_tempdir_file(&p.d, "a"), &l));
    for (size_t i = 0; i < l.n; i++) assert_true(l.entry[i].best == (l.entry[i].step == step));
    for (size_t i = 0; i < l.n; i++) assert_true(!l.entry[i].best || tn_scores_first(&l.entry[i].scores) == lowest);
    assert_in_range(l.n, 2, 3); /* the two newest, of which it may be one */
    tn_ckpt_list_free(&l);
    tn_tempdir_remove_all(&p.d);
}

/* --- starting over --------------------------------------------------------------------------------------------------- */

static void fresh(void **state)
{
    (void)state;
    const char *set[] = { "train.steps=6", "ckpt.every=4", "seed=1" };
    place p;
    tn_progress_report last;
    int64_t from;
    open_place(&p, false);
    assert_ok(session(&p, "a", set, 3, false, -1, &last, &from));
    set[2] = "seed=2";
    assert_fails(session(&p, "a", set, 3, false, -1, &last, &from), TN_USAGE, "seed=1, the command says 2");
    assert_int_equal(session(&p, "a", set, 3, true, 0, &last, &from),
                     TN_INTERRUPTED); /* without a checkpoint of its own */
    assert_true(from == -1);
    assert_ok(tn_ckpt_verify(tn_tempdir_file(&p.d, "a/old/latest")));
    assert_int_equal(session(&p, "a", set, 3, true, 0, &last, &from),
                     TN_INTERRUPTED); /* again: what was trained stays */
    assert_ok(tn_ckpt_verify(tn_tempdir_file(&p.d, "a/old/latest")));
    assert_ok(session(&p, "a", set, 3, false, -1, &last,
                      &from)); /* the same command without --fresh goes on with the new one */
    assert_true(from == -1 && last.step == 6);
    assert_int_equal(access(tn_tempdir_file(&p.d, "a/old"), F_OK), -1);
    assert_ok(session(&p, "b", set, 3, false, -1, &last, &from));
    same_metrics(&p);
    tn_tempdir_remove_all(&p.d);
}

static void one_process(void **state)
{
    (void)state;
    tn_tempdir d;
    int a, b;
    tn_tempdir_make_quick(&d);
    assert_ok(tn_run_lock(d.path, 0, &a));
    assert_fails(tn_run_lock(d.path, 0, &b), TN_USAGE, "in use by another process");
    close(a);
    assert_ok(tn_run_lock(d.path, 0, &b));
    close(b);
    tn_tempdir_remove(&d);
}

/* Who waits for a folder that goes has not got it: a process that started anew would have one of the same name. */
static void lock_of_nothing(void **state)
{
    (void)state;
    tn_tempdir d;
    int lock, held[2], status;
    char byte;
    tn_tempdir_make_quick(&d);
    assert_int_equal(pipe(held), 0);
    const pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        const bool has = tn_run_lock(d.path, 0, &lock) == TN_OK && write(held[1], "x", 1) == 1;
        nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
        _exit(!has || rmdir(d.path) != 0);
    }
    assert_int_equal(read(held[0], &byte, 1), 1);
    assert_fails(tn_run_lock(d.path, 10000, &lock), TN_USAGE, "was removed by the process that had made it: try again");
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(held[0]), close(held[1]);
}

/* --- metrics --------------------------------------------------------------------------------------------------------- */

static const struct cut_row {
    const char *what, *before, *after;
} cut_rows[] = {
    { "nothing to do", "{\"step\":1}\n{\"step\":5}\n", "{\"step\":1}\n{\"step\":5}\n" },
    { "later steps", "{\"step\":1}\n{\"step\":5}\n{\"step\":6}\n{\"step\":7}\n", "{\"step\":1}\n{\"step\":5}\n" },
    { "a cut line", "{\"step\":5}\n{\"step\":", "{\"step\":5}\n" },
    { "a whole line without its end", "{\"step\":4}\n{\"step\":5}", "{\"step\":4}\n" },
    { "rubbish at the end", "{\"step\":5}\nxyz\n\n", "{\"step\":5}\n" },
    { "all of it", "{\"step\":6}\n", "" },
    { "an empty file", "", "" },
};

static void cut(void **state)
{
    const struct cut_row *r = *state;
    tn_tempdir d;
    tn_tempdir_make_quick(&d);
    assert_ok(tn_metrics_cut(tn_tempdir_file(&d, "none"), 5));
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, "m"), r->before, strlen(r->before)));
    assert_ok(tn_metrics_cut(tn_tempdir_file(&d, "m"), 5));
    const char *text = file_text(&d, "m");
    assert_string_equal(text, r->after);
    tn_free((void *)(uintptr_t)text);
    tn_tempdir_remove(&d);
}

/* --- settings -------------------------------------------------------------------------------------------------------- */

static const struct change_row {
    const char *was, *is;
    const char *says; /* part of the refusal; or "" */
} change_rows[] = {
    { "dim=32", "dim=64", "dim: the run has dim=32, the command says 64" },
    { "train.lr=1e-3", "train.lr=2e-3", "train.lr=0.001, the command says 0.002" },
    { "data=a.txt", "data=b.txt", "data: the run has data=a.txt, the command says b.txt: start over with --fresh" },
    { "seed=1", "seed=2", "run=OTHER" },
    { "train.batch=4", "train.batch=8", "train.batch" },
    { "compute=f32", "compute=bf16", "compute" },
    { "optim.loss_scale=auto", "optim.loss_scale=off", "optim.loss_scale" },
    { "train.eval_batches=2", "train.eval_batches=3", "train.eval_batches" },
    { "threads=1", "threads=2", "" },
    { "ckpt.every=5", "ckpt.every=50", "" },
    { "ckpt.compress=off", "ckpt.compress=zstd", "" },
    { "train.eval_every=5", "train.eval_every=50", "" },
    { "train.nonfinite=stop", "train.nonfinite=skip", "" },
    { "plan.recompute=none", "plan.recompute=layer", "" },
    { "train.steps=10", "train.steps=20", "train.schedule=cosine cannot be extended" },
};

static void change(void **state)
{
    const struct change_row *r = *state;
    tn_tempdir d;
    tn_settings *was, *is;
    const tn_model *m;
    char changed[256], a[TN_HASH_BYTES], b[TN_HASH_BYTES], *text = NULL;
    size_t bytes;
    tn_tempdir_make_quick(&d);
    assert_ok(tn_settings_resolve("gpt_tiny", &r->was, 1, &was, &m));
    assert_ok(tn_settings_resolve("gpt_tiny", &r->is, 1, &is, &m));
    FILE *f = open_memstream(&text, &bytes);
    assert_ok(tn_settings_write_yaml(was, f));
    fclose(f);
    const char *config = tn_tempdir_file(&d, "config.yaml");
    assert_ok(tn_file_write_atomic(config, text, bytes));
    free(text);
    assert_true(tn_settings_same_run(was, config));
    const tn_status s = tn_settings_may_continue(is, config, changed, sizeof changed);
    assert_int_equal(s, r->says[0] ? TN_USAGE : TN_OK);
    if (s == TN_OK) assert_non_null(strstr(changed, "->"));
    else assert_non_null(strstr(tn_error_text(), r->says));
    assert_ok(tn_settings_same_hash(was, a));
    assert_ok(tn_settings_same_hash(is, b));
    assert_true((strcmp(a, b) == 0) == (s == TN_OK || strstr(r->is, "steps")));
    assert_true(tn_settings_same_run(is, config) == (s == TN_OK));
    tn_settings_free(is);
    assert_ok(tn_settings_resolve("ten_tiny", NULL, 0, &is, &m));
    assert_fails(tn_settings_may_continue(is, config, changed, sizeof changed), TN_USAGE,
                 "model: the run has model=gpt");
    tn_settings_free(is);
    tn_settings_free(was);
    tn_tempdir_remove(&d);
}

/* --- the data ---------------------------------------------------------------------------------------------------------- */

/* One byte of the text, here or there: refused, and taken again once it is as it was. */
static void changed_text(void **state)
{
    const bool documents = *state != NULL;
    const char *const set[] = { "train.steps=6", "ckpt.every=2" };
    place p;
    tn_progress_report last;
    int64_t from;
    char *text, was;
    size_t n;
    open_place(&p, documents);
    const char *path = p.data + 5;
    assert_int_equal(session(&p, "a", set, 2, false, 4, &last, &from), TN_INTERRUPTED);
    assert_ok(tn_file_read_all(path, 1 << 20, &text, &n));
    for (int round = 0; round < 2; round++) {
        char *at = strstr(text + (round ? n * 3 / 4 : n / 2), documents ? "of" : ""); /* not in what makes it JSON */
        was = *at;
        *at = was == 'x' ? 'y' : 'x';
        assert_ok(tn_file_write_atomic(path, text, n));
        assert_fails(session(&p, "a", set, 2, false, -1, &last, &from), TN_USAGE,
                     "changed since the run began, though not in size: put the old");
        *at = was;
    }
    assert_ok(tn_file_write_atomic(path, text, n)); /* another file, another time, the same text */
    assert_ok(session(&p, "a", set, 2, false, -1, &last, &from));
    assert_true(from == 4 && last.step == 6);
    tn_free(text);
    tn_tempdir_remove_all(&p.d);
}

/* --- what a run holds ------------------------------------------------------------------------------------------------- */

/* A session in the run "a" that is refused, and changes nothing in it. */
static void refused(place *p, bool fresh, const char *says)
{
    char command[900];
    tn_progress_report last;
    int64_t from;
    const char *const set[] = { "train.steps=6", "ckpt.every=2" };
    snprintf(command, sizeof command, "cd '%s' && find a mine -printf '%%p %%y %%l %%s\n' | sort > before", p->d.path);
    assert_int_equal(system(command), 0);
    assert_fails(session(p, "a", set, 2, fresh, -1, &last, &from), TN_USAGE, says);
    snprintf(command, sizeof command, "cd '%s' && find a mine -printf '%%p %%y %%l %%s\n' | sort | cmp - before",
             p->d.path);
    assert_int_equal(system(command), 0);
}

static const struct hostile_row {
    const char *does; /* in the place of the run a, where "mine" is somebody's folder */
    const char *says;
} hostile_rows[] = {
    { "ln -s ../mine a/old", "a/old is a link" },
    { "cp -r mine a/old", "a/old/photo was not written by tenon" },
    { "ln -s /nowhere a/old", "a/old is a link" },
    { "rm a/metrics.jsonl; ln -s ../mine/photo a/metrics.jsonl", "a/metrics.jsonl is a link" },
    { "rm a/metrics.jsonl; mkfifo a/metrics.jsonl", "a/metrics.jsonl is not a file" },
    { "ln -s ../mine a/step-9", "a/step-9 is a link" },
    { "echo > a/step-9", "a/step-9 is a file" },
    { "rm a/config.yaml; mkdir a/config.yaml", "a/config.yaml is not a file" },
    { "rm a/latest; mkdir a/latest", "a/latest is not a file" },
    { "rm -r a/step-* a/latest a/best; echo > a/notes.txt", "a contains notes.txt but no checkpoint" },
    { "rm -r a/step-* a/latest a/best; sed -i 1d a/config.yaml", "contains files that tenon did not write" },
    { "rm -r a; mkdir a; echo > a/metrics.jsonl", "contains files that tenon did not write" },
    { "rm -r a; cp -r mine a", "a contains photo but no checkpoint" },
};

static void hostile(void **state)
{
    const struct hostile_row *r = *state;
    place p;
    tn_progress_report last;
    int64_t from;
    char command[900];
    const char *const set[] = { "train.steps=6", "ckpt.every=2" };
    open_place(&p, false);
    assert_ok(session(&p, "a", set, 2, false, -1, &last, &from));
    snprintf(command, sizeof command, "cd '%s' && mkdir mine && echo mine > mine/photo && %s", p.d.path, r->does);
    assert_int_equal(system(command), 0);
    alarm(60); /* a pipe must not be waited for */
    refused(&p, false, r->says);
    refused(&p, true, r->says);
    alarm(0);
    tn_tempdir_remove_all(&p.d);
}

/* A run of an older version, whose config.yaml has no mark, stopped anywhere on its way to old/. */
static void half_aside(void **state)
{
    (void)state;
    const char *const set[] = { "train.steps=6", "ckpt.every=2" };
    place p;
    tn_progress_report last;
    int64_t from;
    char command[900];
    open_place(&p, false);
    for (int moved = 0; moved < 4; moved++) {
        assert_ok(session(&p, "a", set, 2, true, -1, &last, &from));
        snprintf(command, sizeof command, "cd '%s/a' && sed -i 1d config.yaml && mkdir old && %s && %s && %s", p.d.path,
                 moved > 0 ? "mv step-* old" : "true", moved > 1 ? "mv latest best old" : "true",
                 moved > 2 ? "mv metrics.jsonl config.yaml old" : "true");
        assert_int_equal(system(command), 0);
        assert_ok(session(&p, "a", set, 2, true, -1, &last, &from));
        assert_true(from == -1 && last.step == 6);
        assert_int_equal(access(tn_tempdir_file(&p.d, "a/old"), F_OK), -1);
    }
    tn_tempdir_remove_all(&p.d);
}

/* A link that comes while the run goes on is not written through either. */
static void late_link(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_jsonl *w = NULL;
    tn_tempdir_make_quick(&d);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, "mine"), "{\"step\":9}\n", 11));
    assert_int_equal(symlink("mine", tn_tempdir_file(&d, "m")), 0);
    assert_fails(tn_metrics_cut(tn_tempdir_file(&d, "m"), 5), TN_DISK, "it is a link");
    assert_fails(tn_jsonl_open(tn_tempdir_file(&d, "m"), false, &w), TN_DISK, "it is a link");
    assert_fails(tn_jsonl_open(tn_tempdir_file(&d, "m"), true, &w), TN_DISK, "it is a link");
    const char *text = file_text(&d, "mine");
    assert_string_equal(text, "{\"step\":9}\n");
    tn_free((void *)(uintptr_t)text);
    tn_tempdir_remove(&d);
}

void tn_tests_run(tn_test_list *l)
{
    tn_test_add(l, sessions, "train.nonfinite=stop", "run: in sessions of 0, 1, 2, ... steps");
    tn_test_add(l, from_weights, NULL, "run: a rollback before the first snapshot, from other weights");
    tn_test_add(l, sessions, "train.nonfinite=rollback", "run: in sessions, with snapshots");
    tn_test_add(l, sessions, "compute=f16", "run: in sessions, half precision");
    tn_test_add(l, sessions, "loader.mode=pack", "run: in sessions, documents in a row");
    tn_test_add(l, sessions, "loader.mode=bucket", "run: in sessions, documents by length");
    tn_test_add(l, queue_depth, NULL, "run: steps queued ahead");
    tn_test_add(l, ahead_of_a_bad_step, NULL, "run: a bad step with others queued behind it");
    tn_test_add(l, prolonged, NULL, "run: prolonged");
    tn_test_add(l, patience, NULL, "run: patience");
    tn_test_add(l, patience_in_sessions, NULL, "run: patience suggested after sessions");
    tn_test_add(l, best_is_kept, "ckpt.every_s=0", "run: best is the best evaluation");
    tn_test_add(l, best_is_kept, "ckpt.every_s=1e-9",
                "run: best is the best evaluation, with a checkpoint at every step");
    tn_test_add(l, fresh, NULL, "run: started over");
    tn_test_add(l, changed_text, NULL, "run: a byte of its text changed");
    tn_test_add(l, changed_text, "documents", "run: a byte of its documents changed");
    for (size_t i = 0; i < sizeof hostile_rows / sizeof *hostile_rows; i++)
        tn_test_add(l, hostile, &hostile_rows[i], "run: %s", hostile_rows[i].does);
    tn_test_add(l, half_aside, NULL, "run: of an older version, half set aside");
    tn_test_add(l, late_link, NULL, "run: metrics through a link");
    tn_test_add(l, one_process, NULL, "run: one process at a time");
    tn_test_add(l, lock_of_nothing, NULL, "run: the lock of a folder that is gone is none");
    for (size_t i = 0; i < sizeof cut_rows / sizeof *cut_rows; i++)
        tn_test_add(l, cut, &cut_rows[i], "run: metrics, %s", cut_rows[i].what);
    for (size_t i = 0; i < sizeof change_rows / sizeof *change_rows; i++)
        tn_test_add(l, change, &change_rows[i], "run: %s in place of %s", change_rows[i].is, change_rows[i].was);
}
