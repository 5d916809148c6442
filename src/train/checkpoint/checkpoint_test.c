/* Checkpoints: what is saved comes back bit for bit and trains on alike; damage anywhere is noticed and named; what stays
 * when others go; which one is taken when the links are wrong. Kills are tests/long/resume.sh's. */
#include "train/checkpoint/checkpoint.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tempdir.h"
#include "train/run/run.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <sys/wait.h>

enum { T = 8, B = 2 };

typedef struct rig {
    tn_settings *settings;
    tn_trainer *trainer;
} rig;

static rig open_rig(const char *a, const char *b)
{
    const char *const set[] = { "dim=16",    "layers=1",          "vocab=32", "train.context=8",
                                "threads=1", "train.dropout=0.2", a,          b };
    rig r = { 0 };
    const tn_model *model;
    assert_ok(tn_settings_resolve("gpt_tiny", set, 8, &r.settings, &model));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = model, .settings = r.settings, .batch = B, .length = T },
                             &r.trainer));
    return r;
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

/* Step number `step`, with a NaN in the gradient where it is to be bad. */
static float one_step(rig *r, int64_t step, bool bad)
{
    float loss;
    tn_update_result applied;
    for (int64_t i = 0; i < B * T; i++) {
        ((int32_t *)tn_trainer_input(r->trainer, "tokens"))[i] =
            (int32_t)tn_rng_below((tn_rng){ 3, 1 }, (uint64_t)(step * B * T + i), 32);
        ((int32_t *)tn_trainer_input(r->trainer, "labels"))[i] =
            (int32_t)tn_rng_below((tn_rng){ 3, 2 }, (uint64_t)(step * B * T + i), 32);
    }
    assert_ok(tn_trainer_grad(r->trainer, step, &loss));
    if (bad) tn_store_bucket(tn_trainer_store(r->trainer), 0)->grad[3] = NAN;
    assert_ok(tn_trainer_apply(r->trainer, step, 1, loss, &applied));
    assert_true(applied.ok == !bad);
    return loss;
}

static tn_ckpt_state state_at(const rig *r, int64_t step, double heldout)
{
    tn_ckpt_state st = { .step = step,
                         .tokens = 77,
                         .batch = B,
                         .length = T,
                         .seed = 5,
                         .unit = "nats",
                         .loss = 0.1,
                         .lr = 1e-3,
                         .grad_norm = 3,
                         .best_step = step < 4 ? step : 4,
                         .stale = step < 2 ? step : 2,
                         .longest = 3,
                         .seconds = 1.25,
                         .working = 0.5,
                         .scaling = { 4096, 7 },
                         .settings = "abc" };
    tn_scores_put(&st.now, "loss", heldout);
    tn_scores_put(&st.now, "accuracy", NAN);
    tn_scores_put(&st.last, "loss", 2.5);
    tn_scores_put(&st.last, "accuracy", 0.75);
    tn_scores_put(&st.last, "accuracy_8", -3);
    tn_scores_put(&st.last, "psnr", INFINITY);
    tn_scores_put(&st.best, "loss", NAN);
    tn_scores_put(&st.best, "accuracy", 0.875);
    tn_scores_put(&st.best, "psnr", -INFINITY);
    if (r) st.guard = tn_guard_state_of(tn_trainer_guard(r->trainer));
    else st.guard.lr_factor = 1;
    st.cursor = json_pack("{s:i}", "at", 7);
    assert_non_null(st.cursor);
    return st;
}

static void save(const tn_tempdir *d, rig *r, int64_t step, double heldout, bool compress)
{
    tn_ckpt_state st = state_at(r, step, heldout);
    assert_ok(tn_ckpt_save(d->path, &(tn_ckpt_what){ .store = tn_trainer_store(r->trainer),
                                                     .guard = tn_trainer_guard(r->trainer),
                                                     .state = &st,
                                                     .compress = compress }));
    tn_ckpt_state_free(&st);
}

static void same_stores(rig *a, rig *b)
{
    const tn_store *x = tn_trainer_store(a->trainer), *y = tn_trainer_store(b->trainer);
    for (int i = 0; i < tn_store_buckets(x); i++) {
        const tn_bucket *p = tn_store_bucket(x, i), *q = tn_store_bucket(y, i);
        const size_t bytes = sizeof(float) * (size_t)p->count;
        assert_memory_equal(p->param, q->param, bytes);
        if (p->m) assert_memory_equal(p->m, q->m, bytes);
        if (p->v) assert_memory_equal(p->v, q->v, bytes);
    }
}

/* --- there and back -------------------------------------------------------------------------------------------------- */

typedef struct way {
    const char *name, *optimizer, *policy;
    bool compress;
} way;

static const way ways[] = {
    { "adamw", "train.optimizer=adamw", "train.nonfinite=stop", false },
    { "sgd", "train.optimizer=sgd", "train.nonfinite=skip", false },
    { "packed", "train.optimizer=adamw", "train.nonfinite=skip", true },
    { "rollback", "train.optimizer=adamw", "train.nonfinite=rollback", false },
    { "rollback, packed", "train.optimizer=sgd", "train.nonfinite=rollback", true },
};

static void round_trip(void **state)
{
    const way *w = *state;
    const bool can_go_bad = strcmp(w->policy, "train.nonfinite=stop") != 0;
    rig a = open_rig(w->optimizer, w->policy), b = open_rig(w->optimizer, w->policy);
    tn_tempdir d;
    tn_ckpt_state st;
    tn_tempdir_make_quick(&d);
    for (int64_t i = 0; i < 5; i++) one_step(&a, i, can_go_bad && i == 3);
    save(&d, &a, 5, NAN, w->compress);
    for (size_t i = 0; i < tn_guard_parts(tn_trainer_guard(b.trainer));
         i++) { /* b has the same seed, and so the same first snapshot */
        size_t bytes;
        void *part = tn_guard_part(tn_trainer_guard(b.trainer), i, &bytes);
        memset(part, 1, bytes);
    }
    assert_ok(
        tn_ckpt_load(tn_tempdir_file(&d, "latest"), tn_trainer_store(b.trainer), tn_trainer_guard(b.trainer), &st));
    same_stores(&a, &b);
    const tn_guard_state x = tn_guard_state_of(tn_trainer_guard(a.trainer)),
                         y = tn_guard_state_of(tn_trainer_guard(b.trainer));
    assert_true(x.applied == y.applied && x.good == y.good && x.bad == y.bad && x.lr_factor == y.lr_factor &&
                x.snapshot_step == y.snapshot_step && x.snapshot_applied == y.snapshot_applied);
    assert_true(st.step == 5 && st.tokens == 77 && st.batch == B && st.seed == 5 && st.stale == 2 && st.best_step == 4);
    assert_true(st.longest == 3);
    assert_true(st.loss == 0.1 && isnan(tn_scores_first(&st.now)) && tn_scores_first(&st.last) == 2.5 &&
                isnan(tn_scores_first(&st.best)) && st.working == 0.5);
    assert_true(isnan(tn_scores_get(&st.now, "accuracy")) && tn_scores_get(&st.last, "accuracy") == 0.75 &&
                tn_scores_get(&st.best, "accuracy") == 0.875 && tn_scores_get(&st.last, "accuracy_8") == -3 &&
                st.last.n == 4);
    assert_true(tn_scores_get(&st.last, "psnr") == INFINITY && tn_scores_get(&st.best, "psnr") == -INFINITY);
    assert_true(st.scaling.scale == 4096 && st.scaling.good == 7);
    assert_string_equal(st.settings, "abc");
    assert_int_equal(json_integer_value(json_object_get(st.cursor, "at")), 7);
    for (int64_t i = 5; i < 12; i++) /* and on: under rollback a bad step leads to where it would have led */
        assert_true(one_step(&a, i, can_go_bad && i == 8) == one_step(&b, i, can_go_bad && i == 8));
    same_stores(&a, &b);
    tn_ckpt_state_free(&st);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
    close_rig(&b);
}

/* Weights alone, from a run, a checkpoint and a file; another model is refused and nothing is changed. */
static void weights_alone(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9"), b = open_rig("seed=3", "seed=3"),
        other = open_rig("dim=32", "seed=3");
    tn_tempdir d;
    char note[TN_CKPT_NOTE] = "something";
    tn_tempdir_make_quick(&d);
    one_step(&a, 0, false);
    save(&d, &a, 1, 2.0, true);
    assert_ok(tn_ckpt_load_weights(d.path, tn_trainer_store(b.trainer), note));
    assert_string_equal(note, "");
    const tn_bucket *p = tn_store_bucket(tn_trainer_store(a.trainer), 0),
                    *q = tn_store_bucket(tn_trainer_store(b.trainer), 0);
    assert_memory_equal(p->param, q->param, sizeof(float) * (size_t)p->count);
    q->param[0] += 1;
    assert_ok(
        tn_ckpt_load_weights(tn_tempdir_file(&d, "step-1/model.safetensors.zst"), tn_trainer_store(b.trainer), note));
    assert_memory_equal(p->param, q->param, sizeof(float) * (size_t)p->count);
    const float before = tn_store_bucket(tn_trainer_store(other.trainer), 0)->param[0];
    assert_fails(tn_ckpt_load_weights(d.path, tn_trainer_store(other.trainer), note), TN_BAD_FILE,
                 "it belongs to another model");
    assert_true(tn_store_bucket(tn_trainer_store(other.trainer), 0)->param[0] == before);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
    close_rig(&b);
    close_rig(&other);
}

/* --- damage ---------------------------------------------------------------------------------------------------------- */

static void flip(const char *path, size_t at)
{
    char *text;
    size_t bytes;
    assert_ok(tn_file_read_all(path, 1 << 26, &text, &bytes));
    assert_true(bytes > 0);
    text[at % bytes] = (char)(text[at % bytes] ^ 1);
    assert_ok(tn_file_write_atomic(path, text, bytes));
    tn_free(text);
}

static void damage(void **state)
{
    const bool compress = *state != NULL;
    static const size_t places[] = { 0, 3, 8, 40, 300, 1000, SIZE_MAX / 2, SIZE_MAX - 1 };
    const char *const files[] = { compress ? "model.safetensors.zst" : "model.safetensors",
                                  compress ? "state.safetensors.zst" : "state.safetensors", "state.json",
                                  "manifest.json" };
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    char name[64], moved[64];
    tn_ckpt_state st;
    tn_tempdir_make_quick(&d);
    save(&d, &a, 3, 1.0, compress);
    const char *dir = tn_tempdir_file(&d, "step-3");
    assert_ok(tn_ckpt_verify(dir));
    for (size_t f = 0; f < 4; f++) {
        snprintf(name, sizeof name, "step-3/%s", files[f]);
        snprintf(moved, sizeof moved, "step-3/%s.away", files[f]);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            const char *path = tn_tempdir_file(&d, name);
            flip(path, places[i]);
            const tn_status s = tn_ckpt_verify(tn_tempdir_file(&d, "step-3"));
            if (s != TN_BAD_FILE || !strstr(tn_error_text(), files[f]))
                fail_msg("%s changed at %zu: status %d, %s", files[f], places[i], (int)s, tn_error_text());
            assert_fails(tn_ckpt_load(tn_tempdir_file(&d, "step-3"), tn_trainer_store(a.trainer), NULL, &st),
                         TN_BAD_FILE, files[f]);
            flip(path, places[i]);
        }
        assert_int_equal(rename(tn_tempdir_file(&d, name), tn_tempdir_file(&d, moved)), 0);
        assert_fails(tn_ckpt_verify(tn_tempdir_file(&d, "step-3")), TN_BAD_FILE, files[f]);
        assert_int_equal(rename(tn_tempdir_file(&d, moved), tn_tempdir_file(&d, name)), 0);
        if (f < 3) { /* cut short */
            struct stat info;
            assert_int_equal(stat(tn_tempdir_file(&d, name), &info), 0);
            char *text;
            assert_ok(tn_file_read_all(tn_tempdir_file(&d, name), 1 << 26, &text, NULL));
            assert_int_equal(truncate(tn_tempdir_file(&d, name), info.st_size - 1), 0);
            assert_fails(tn_ckpt_verify(tn_tempdir_file(&d, "step-3")), TN_BAD_FILE, "its manifest says");
            assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, name), text, (size_t)info.st_size));
            tn_free(text);
        }
    }
    assert_ok(tn_ckpt_verify(tn_tempdir_file(&d, "step-3")));
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

/* --- which stay ------------------------------------------------------------------------------------------------------ */

/* train.select=accuracy: the highest accuracy, of equals the lower loss, then the earlier; through the files. */
static void prune_accuracy(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    tn_ckpt_list l;
    static const double accuracy[] = { 0.5, 0.9, 0.9, 0.9, 0.6 }, heldout[] = { 1, 3, 2, 2, 0.5 };
    tn_tempdir_make_quick(&d);
    for (int i = 0; i < 5; i++) {
        tn_ckpt_state st = state_at(&a, i + 1, heldout[i]);
        tn_scores_put(&st.now, "accuracy", accuracy[i]);
        snprintf(st.select, sizeof st.select, "accuracy");
        assert_ok(tn_ckpt_save(d.path, &(tn_ckpt_what){ .store = tn_trainer_store(a.trainer), .state = &st }));
        tn_ckpt_state_free(&st);
    }
    assert_ok(tn_ckpt_list_read(d.path, &l));
    tn_ckpt_list_mark(&l, 1, 2, 9);
    const bool kept[] = { false, false, true, true, true };
    for (size_t i = 0; i < l.n; i++)
        assert_true(tn_scores_get(&l.entry[i].scores, "accuracy") == accuracy[i] && l.entry[i].keep == kept[i]);
    assert_ok(tn_ckpt_list_prune(d.path, &l, 9));
    assert_int_equal(tn__ckpt_pointed(d.path, "best"), 3);
    tn_ckpt_list_free(&l);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

/* Any metric may decide, also one of which less is better; where none has a value of it, the loss does. */
static void prune_any_metric(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    tn_ckpt_list l;
    static const double miss[] = { 0.5, 0.1, 0.3, 0.1 }, heldout[] = { 1, 3, 0.5, 2 };
    tn_tempdir_make_quick(&d);
    for (int i = 0; i < 4; i++) {
        tn_ckpt_state st = state_at(&a, i + 1, heldout[i]);
        tn_scores_put(&st.now, "miss@5", miss[i]);
        snprintf(st.select, sizeof st.select, "miss@5");
        snprintf(st.unit, sizeof st.unit, "dB");
        st.lower = true;
        assert_ok(tn_ckpt_save(d.path, &(tn_ckpt_what){ .store = tn_trainer_store(a.trainer), .state = &st }));
        tn_ckpt_state_free(&st);
    }
    assert_ok(tn_ckpt_list_read(d.path, &l));
    for (size_t i = 0; i < l.n; i++)
        assert_true(tn_scores_get(&l.entry[i].scores, "miss@5") == miss[i] && l.entry[i].lower);
    assert_string_equal(l.entry[0].unit, "dB");
    tn_ckpt_list_mark(&l, 0, 1, 9);
    assert_true(l.entry[3].keep && !l.entry[0].keep && !l.entry[1].keep &&
                !l.entry[2].keep); /* of equals the lower loss */
    l.entry[3].scores.n = l.entry[2].scores.n = 1;
    tn_ckpt_list_mark(&l, 0, 1, 9);
    assert_true(l.entry[1].keep && !l.entry[2].keep && !l.entry[3].keep); /* a known value, whatever the losses */
    l.entry[0].scores.n = l.entry[1].scores.n = 1;
    tn_ckpt_list_mark(&l, 0, 1, 9);
    assert_true(l.entry[2].keep && !l.entry[1].keep); /* nobody knows it: by the loss */
    tn_ckpt_list_free(&l);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

/* An older checkpoint knows no accuracy. */
static void older_state(void **state)
{
    (void)state;
    tn_ckpt_state st = state_at(NULL, 3, 1), back;
    json_t *root = tn__ckpt_state_json(&st);
    json_object_del(json_object_get(root, "metrics"), "accuracy");
    json_object_del(json_object_get(root, "metrics"), "last_accuracy");
    json_object_del(json_object_get(root, "best"), "accuracy");
    assert_ok(tn__ckpt_state_parse(root, "state.json", &back));
    assert_true(back.step == 3 && tn_scores_first(&back.now) == 1 && back.now.n == 1 && back.best.n == 2 &&
                isnan(tn_scores_get(&back.last, "accuracy")));
    tn_ckpt_state_free(&back);
    tn_ckpt_state_free(&st);
    json_decref(root);
}

/* Numbers of a state.json that somebody made up: none is counted on. */
static const struct made_row {
    const char *group, *key, *value, *says;
} made_rows[] = {
    { NULL, "step", "-1", "step=-1 is impossible" },
    { NULL, "step", "9223372036854775807", "impossible" },
    { NULL, "step", "3.5", "step is missing or not a number" },
    { NULL, "step", "1e3", "step is missing or not a number" },
    { NULL, "step", "\"3\"", "step is missing or not a number" },
    { NULL, "step", "null", "step is missing or not a number" },
    { NULL, "tokens", "9223372036854775807", "tokens=" },
    { NULL, "batch", "0", "batch=0 is impossible" },
    { NULL, "batch", "4294967297", "batch=" },
    { NULL, "length", "-8", "length=-8" },
    { NULL, "seed", "-1", "seed=-1" },
    { "best", "step", "9223372036854775807", "best.step=" },
    { "best", "step", "7", "a counter is 7 after 5 steps" },
    { "best", "stale", "6", "a counter is 6 after 5 steps" },
    { "best", "accuracy", "\"much\"", "a score in best" },
    { "guard", "applied", "6", "a counter is 6" },
    { "guard", "good", "9000000000000000000", "guard.good" },
    { "guard", "bad", "2147483648", "guard.bad" },
    { "guard", "snapshot_step", "-2", "guard.snapshot_step" },
    { "guard", "lr_factor", "0", "guard's numbers" },
    { "guard", "lr_factor", "1e-300", "guard's numbers" },
    { "guard", "lr_factor", "2", "guard's numbers" },
    { "time", "seconds", "-1", "time.seconds" },
    { "time", "seconds", "null", "time.seconds" },
    { "time", "working", "1e300", "time.working" },
    { "metrics", "lr", "-1", "metrics.lr" },
    { "metrics", "grad_norm", "-3", "metrics.grad_norm" },
    { "metrics", "accuracy", "[0.5]", "a score in metrics" },
    { "metrics", "heldout", "true", "a score in metrics" },
    { "metrics", "last_heldout", "{}", "a score in metrics" },
    { "metrics", "last_accuracy_8", "\"x\"", "a score in metrics" },
    { "metrics", "a_metric_whose_name_is_longer_than_any_that_a_run_has", "1", "a score in metrics" },
    { NULL, "loss_scale", "0.5", "loss_scale" },
    { NULL, "loss_scale_good", "-1", "loss_scale" },
    { NULL, "loss_scale_good", "2.5", "loss_scale" },
};

static void made_up(void **state)
{
    const struct made_row *r = *state;
    tn_ckpt_state st = state_at(NULL, 5, 1), back = { .step = -7 };
    json_t *root = tn__ckpt_state_json(&st), *to = r->group ? json_object_get(root, r->group) : root;
    json_t *value = json_loads(r->value, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_ok(tn__ckpt_state_parse(root, "state.json", &back));
    tn_ckpt_state_free(&back);
    back.step = -7;
    json_object_set_new(to, r->key, value);
    assert_fails(tn__ckpt_state_parse(root, "state.json", &back), TN_BAD_FILE, r->says);
    assert_true(back.step == -7);
    tn_ckpt_state_free(&st);
    json_decref(root);
}

/* On the disk: the links follow, the rest goes, and a checkpoint of the same step is replaced. */
static void prune_files(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    tn_ckpt_list l;
    char found[TN_PATH_BYTES], why[512];
    static const double heldout[] = { 3, 1, 2, 4 };
    tn_tempdir_make_quick(&d);
    for (int i = 0; i < 4; i++) save(&d, &a, 10 * (i + 1), heldout[i], false);
    assert_int_equal(tn__ckpt_pointed(d.path, "latest"), 40);
    assert_ok(tn_ckpt_list_read(d.path, &l));
    assert_int_equal(l.n, 4);
    tn_ckpt_list_mark(&l, 0, 2, 40);
    assert_ok(tn_ckpt_list_prune(d.path, &l, 40));
    tn_ckpt_list_free(&l);
    assert_int_equal(tn_tempdir_entries(&d, false), 4); /* step-20, step-30, best, latest */
    assert_int_equal(tn__ckpt_pointed(d.path, "best"), 20);
    assert_int_equal(tn__ckpt_pointed(d.path, "latest"), 30);
    save(&d, &a, 30, 0.5, true);
    assert_int_equal(tn_tempdir_entries(&d, false), 4);
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_true(strstr(found, "step-30") && !why[0]);
    assert_ok(tn_ckpt_list_read(d.path, &l));
    tn_ckpt_list_mark(&l, 1, 0, 40);
    assert_ok(tn_ckpt_list_prune(d.path, &l, 40));
    tn_ckpt_list_free(&l);
    assert_int_equal(tn__ckpt_pointed(d.path, "best"), 30);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

static void find_another(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    char found[TN_PATH_BYTES], why[512];
    tn_tempdir_make_quick(&d);
    assert_fails(tn_ckpt_find(d.path, "latest", found, NULL, 0), TN_BAD_FILE, "contains no checkpoint");
    for (int i = 1; i <= 3; i++) save(&d, &a, i, 4 - i, false);
    assert_int_equal(unlink(tn_tempdir_file(&d, "latest")), 0);
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_true(strstr(found, "step-3") && !why[0]);
    assert_int_equal(symlink("nonsense", tn_tempdir_file(&d, "latest")), 0);
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_non_null(strstr(found, "step-3"));
    assert_ok(tn__ckpt_point(d.path, "latest", 2));
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_non_null(strstr(found, "step-2"));
    flip(tn_tempdir_file(&d, "step-2/model.safetensors"), 5000);
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_true(strstr(found, "step-3") && strstr(why, "step-2/model.safetensors is damaged"));
    char note[TN_CKPT_NOTE];
    bool is_file;
    tn_ckpt_note("latest", why, found, note);
    assert_non_null(strstr(note, "the latest checkpoint cannot be used ("));
    assert_non_null(strstr(note, "step-2/model.safetensors is damaged: its checksum differs from its manifest): "));
    assert_non_null(strstr(note, "/step-3 instead; restore the file, or name "));
    assert_ok(tn__ckpt_point(d.path, "best", 2)); /* the same for whoever wants the best one */
    assert_ok(tn_ckpt_resolve(d.path, "best", found, &is_file, note));
    assert_true(strstr(found, "step-3") && strstr(note, "the best checkpoint cannot be used"));
    assert_ok(tn_ckpt_resolve(tn_tempdir_file(&d, "step-1"), "best", found, &is_file,
                              note)); /* named: nothing stands for it */
    assert_string_equal(note, "");
    assert_ok(tn__ckpt_point(d.path, "best", 7)); /* removed by hand */
    assert_ok(tn_ckpt_resolve(d.path, "best", found, &is_file, note));
    assert_true(strstr(found, "step-3") && strstr(note, "/step-7, the target of best, does not exist): "));
    flip(tn_tempdir_file(&d, "step-3/state.json"), 5);
    assert_ok(tn_ckpt_find(d.path, "latest", found, why, sizeof why));
    assert_non_null(strstr(found, "step-1"));
    flip(tn_tempdir_file(&d, "step-1/manifest.json"), 50);
    assert_fails(tn_ckpt_find(d.path, "latest", found, why, sizeof why), TN_BAD_FILE, "no valid checkpoint in");
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

/* --- beside a run that removes ----------------------------------------------------------------------------------------- */

enum { SAVES = 400 };

/* Saves, and keeps the newest and the best. In a child. */
static int save_and_prune(const tn_tempdir *d, rig *r)
{
    for (int i = 1; i <= SAVES; i++) {
        tn_ckpt_list l = { 0 };
        const int64_t step = i - i / 10; /* every tenth one replaces the one before it */
        tn_ckpt_state st = state_at(r, step, 1 + (i * 7 % 5));
        tn_status s = tn_ckpt_save(d->path, &(tn_ckpt_what){ .store = tn_trainer_store(r->trainer), .state = &st });
        if (s == TN_OK) s = tn_ckpt_list_read(d->path, &l);
        tn_ckpt_list_mark(&l, 1, 1, step);
        if (s == TN_OK) s = tn_ckpt_list_prune(d->path, &l, step);
        tn_ckpt_list_free(&l);
        tn_ckpt_state_free(&st);
        if (s != TN_OK) return 1;
    }
    return 0;
}

/* What a reader may meet there: checkpoints that are whole, or gone; never damage. */
static void read_beside(tn_tempdir *d, rig *r, int round)
{
    char found[TN_PATH_BYTES], why[512], name[TN_CKPT_NAME], note[TN_CKPT_NOTE];
    tn_ckpt_list l = { 0 };
    tn_ckpt_state st;
    json_t *manifest;
    switch (round % 4) {
    case 0:
        assert_ok(tn_ckpt_find(d->path, round % 8 ? "latest" : "best", found, why, sizeof why));
        assert_string_equal(why, "");
        break;
    case 1:
        assert_ok(tn_ckpt_load_weights(d->path, tn_trainer_store(r->trainer), note));
        assert_string_equal(note, "");
        break;
    case 2:
        assert_ok(tn_ckpt_list_read(d->path, &l));
        assert_true(l.n > 0);
        for (size_t i = 0; i < l.n; i++) {
            if (tn_ckpt_verify(tn_tempdir_file(d, tn_ckpt_name(l.entry[i].step, name))) == TN_OK) continue;
            assert_null(strstr(tn_error_text(), "damaged"));
        }
        tn_ckpt_list_free(&l);
        break;
    default: /* as `ckpt inspect` does */
        assert_ok(tn_ckpt_find(d->path, "latest", found, NULL, 0));
        tn_ckpt_id seen = tn_ckpt_id_of(found);
        tn_status s;
        do {
            s = tn_ckpt_read_manifest(found, &manifest);
            if (s == TN_OK) json_decref(manifest);
            if (s == TN_OK) s = tn_ckpt_read_state(found, &st);
            if (s == TN_OK) tn_ckpt_state_free(&st);
        } while (s == TN_BAD_FILE && tn_ckpt_replaced(d->path, "latest", found, &seen));
        assert_ok(s);
    }
}

static void beside(void **state)
{
    (void)state;
    rig a = open_rig("train.steps=9", "train.steps=9");
    tn_tempdir d;
    int status = 0, round = 0;
    tn_tempdir_make_quick(&d);
    save(&d, &a, 0, 9, false);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(save_and_prune(&d, &a));
    pid_t ended = 0;
    for (; ended == 0; round++) {
        read_beside(&d, &a, round);
        ended = waitpid(child, &status, WNOHANG);
    }
    assert_true(ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(round > 20);
    tn_tempdir_remove_all(&d);
    close_rig(&a);
}

void tn_tests_checkpoint(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        tn_test_add(l, round_trip, &ways[i], "checkpoint: there and back, %s", ways[i].name);
    tn_test_add(l, weights_alone, NULL, "checkpoint: weights alone");
    tn_test_add(l, damage, NULL, "checkpoint: damage");
    tn_test_add(l, damage, &ways[2], "checkpoint: damage, packed");
    tn_test_add(l, prune_accuracy, NULL, "checkpoint: the best by accuracy");
    tn_test_add(l, prune_any_metric, NULL, "checkpoint: the best by any metric");
    for (size_t i = 0; i < sizeof made_rows / sizeof *made_rows; i++)
        tn_test_add(l, made_up, &made_rows[i], "checkpoint: made up %s %s", made_rows[i].key, made_rows[i].value);
    tn_test_add(l, older_state, NULL, "checkpoint: a state without accuracy");
    tn_test_add(l, prune_files, NULL, "checkpoint: prune on the disk");
    tn_test_add(l, beside, NULL, "checkpoint: read beside a run that removes them");
    tn_test_add(l, find_another, NULL, "checkpoint: another one where the newest is damaged");
}
