/* Samples on their way into a step: an epoch is every sample once, a source that was stopped goes on with the same bytes,
 * held-out parts come whole and in order, accuracy is counted over the labels that count, and a run on a task that was
 * stopped anywhere ends with the bits of one that was not. */
#include "train/source/task_setup.h"

#include "base/alloc.h"
#include "mlp.h"
#include "tempdir.h"
#include "train/check/check.h"
#include "train/run/run.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

enum { N = 31, TRAIN = 13, VALID = 10, TEST = 8, TOKENS = 2, NUMBERS = 3, CLASSES = 4, B = 5 };

/* --- a set ------------------------------------------------------------------------------------------------------------- */

typedef struct world {
    uint8_t bytes[N * TOKENS * NUMBERS];
    float floats[N * TOKENS * NUMBERS];
    int32_t y[N * TOKENS], index[N];
    tn_samples set;
} world;

/* Rows of the splits are not in order; the class hangs on the numbers, so that it can be learnt. */
static void make_world(world *w, bool bytes, int64_t labels)
{
    for (int i = 0; i < N * TOKENS * NUMBERS; i++) {
        w->bytes[i] = (uint8_t)(i * i * 37 % 251);
        w->floats[i] = (float)w->bytes[i] / 64 - 2;
    }
    for (int i = 0; i < N; i++) w->index[i] = (int32_t)(i * 12 % N);
    for (int i = 0; i < N * labels; i++) w->y[i] = w->bytes[i * TOKENS * NUMBERS / labels] / 64;
    if (labels > 1)
        for (int i = 0; i < N * labels; i += 3) w->y[i] = -1;
    w->set = (tn_samples){ .n = N,
                           .tokens = TOKENS,
                           .features = NUMBERS,
                           .labels = labels,
                           .classes = CLASSES,
                           .x_u8 = bytes ? w->bytes : NULL,
                           .x_f32 = bytes ? NULL : w->floats,
                           .scale = bytes ? 1.f / 255 : 1,
                           .y = w->y,
                           .index = { w->index, w->index + TRAIN, w->index + TRAIN + VALID },
                           .count = { TRAIN, VALID, TEST } };
}

typedef struct rig {
    world w;
    tn_settings *settings;
    tn_trainer *trainer;
    tn_source source;
    float *features;
    int32_t *labels, *sample, *count;
} rig;

static tn_status open_samples(const tn_samples *set, tn_trainer *t, int64_t batch, uint64_t seed, tn_data_split heldout,
                              tn_source *out)
{
    return tn_source_samples_open(
        set, seed, &(tn_source_start){ .trainer = t, .batch = batch, .length = TOKENS, .heldout = heldout }, out);
}

static void open_rig(rig *r, bool bytes, int64_t labels, uint64_t seed, tn_data_split heldout)
{
    const char *const set[] = { "inputs=3", "tokens=2", "classes=4", "threads=1" };
    make_world(&r->w, bytes, labels);
    r->settings = tn_mlp_settings(set, 4);
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = &tn_mlp,
                                                    .settings = r->settings,
                                                    .batch = B,
                                                    .length = TOKENS,
                                                    .input_spec = TN_MLP_SUPPLY(labels, TRAIN),
                                                    .logits = true },
                             &r->trainer));
    assert_ok(open_samples(&r->w.set, r->trainer, B, seed, heldout, &r->source));
    r->features = tn_trainer_input(r->trainer, "features");
    r->labels = tn_trainer_input(r->trainer, "labels");
    r->sample = tn_trainer_input(r->trainer, "sample");
    r->count = tn_trainer_input(r->trainer, "count");
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static int64_t next(rig *r)
{
    int64_t count;
    assert_ok(tn_source_next(&r->source, 0, r->trainer, &count));
    return count;
}

/* Row b of the feed is this row of the set; padding where row < 0. */
static void assert_row(const rig *r, int64_t b, int64_t row)
{
    float x[TOKENS * NUMBERS] = { 0 };
    const int64_t L = r->w.set.labels;
    if (row >= 0) tn_samples_read(&r->w.set, row, x);
    assert_memory_equal(r->features + b * TOKENS * NUMBERS, x, sizeof x);
    for (int64_t i = 0; i < L; i++) assert_int_equal(r->labels[b * L + i], row < 0 ? -1 : r->w.y[row * L + i]);
    if (row < 0) assert_int_equal(r->sample[b], 0);
}

/* --- epochs ------------------------------------------------------------------------------------------------------------ */

/* Three batches, of 5, 5 and 3 samples; their numbers go to `order`. */
static void one_epoch(rig *r, int32_t order[TRAIN])
{
    bool seen[TRAIN] = { 0 };
    int at = 0;
    for (int batch = 0; batch < 3; batch++) {
        const int64_t count = next(r), rows = batch < 2 ? B : TRAIN - 2 * B;
        int64_t labels = 0;
        assert_int_equal(r->count[0], rows);
        for (int64_t b = 0; b < B; b++) {
            const int32_t which = r->sample[b];
            assert_true(which >= 0 && which < TRAIN);
            assert_row(r, b, b < rows ? r->w.index[which] : -1);
            for (int64_t i = 0; i < r->w.set.labels; i++) labels += r->labels[b * r->w.set.labels + i] >= 0;
            if (b >= rows) continue;
            assert_false(seen[which]);
            seen[which] = true;
            order[at++] = which;
        }
        assert_int_equal(count, labels);
    }
    assert_int_equal(at, TRAIN);
}

static void epochs(void **state)
{
    const bool bytes = *(const bool *)*state;
    rig a, b;
    int32_t first[TRAIN], second[TRAIN], again[TRAIN];
    open_rig(&a, bytes, bytes ? 1 : TOKENS, 7, TN_VALID);
    open_rig(&b, bytes, bytes ? 1 : TOKENS, 8, TN_VALID);
    one_epoch(&a, first);
    one_epoch(&a, second);
    assert_true(memcmp(first, second, sizeof first) != 0);
    one_epoch(&b, again);
    assert_true(memcmp(first, again, sizeof first) != 0); /* another seed */
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < 7; i++) (void)next(&a);
    assert_int_equal(tn_alloc_count(), before);
    assert_true(a.source.train_samples == TRAIN && isnan(a.source.bits));
    assert_int_equal(a.source.epoch_batches, 3);
    close_rig(&a);
    close_rig(&b);
}

/* --- the cursor -------------------------------------------------------------------------------------------------------- */

static void resume(void **state)
{
    (void)state;
    for (int stop = 0; stop < 8; stop++) {
        rig a, b;
        int64_t count;
        open_rig(&a, true, 1, 7, TN_VALID);
        open_rig(&b, true, 1, 7, TN_VALID);
        for (int i = 0; i < stop; i++) (void)next(&a);
        json_t *cursor = a.source.save(a.source.ctx);
        assert_ok(tn_source_heldout(&a.source, 0, a.trainer, &count)); /* which leaves the place where it is */
        assert_ok(b.source.load(b.source.ctx, cursor));
        json_t *copy = b.source.save(b.source.ctx);
        assert_true(json_equal(cursor, copy));
        for (int i = 0; i < 7; i++) {
            assert_int_equal(next(&a), next(&b));
            assert_memory_equal(a.features, b.features, sizeof(float) * B * TOKENS * NUMBERS);
            assert_memory_equal(a.labels, b.labels, sizeof(int32_t) * B);
            assert_memory_equal(a.sample, b.sample, sizeof(int32_t) * B);
            assert_int_equal(a.count[0], b.count[0]);
        }
        json_decref(copy);
        json_decref(cursor);
        close_rig(&a);
        close_rig(&b);
    }
}

static void refusals(void **state)
{
    (void)state;
    rig a, b;
    open_rig(&a, true, 1, 7, TN_VALID);
    json_t *cursor = a.source.save(a.source.ctx), *bad;
    open_rig(&b, true, 1, 8, TN_VALID);
    assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, "the run has seed=7");
    close_rig(&b);
    open_rig(&b, false, 1, 7, TN_VALID);
    assert_fails(b.source.load(b.source.ctx, cursor), TN_USAGE, "are not those the run began with");
    close_rig(&b);
    bad = json_deep_copy(cursor);
    json_object_set_new(bad, "next", json_integer(TRAIN + 1));
    assert_fails(a.source.load(a.source.ctx, bad), TN_BAD_FILE, "use another checkpoint");
    json_object_set_new(bad, "kind", json_string("dataset"));
    assert_fails(a.source.load(a.source.ctx, bad), TN_USAGE, "not trained on a task");
    json_decref(bad);
    a.w.set.count[TN_TRAIN] = 0;
    tn_source none;
    assert_fails(open_samples(&a.w.set, a.trainer, B, 0, TN_TRAIN, &none), TN_USAGE,
                 "make task.valid_frac and task.test_frac smaller");
    a.w.set.count[TN_TRAIN] = TRAIN;
    json_decref(cursor);
    close_rig(&a);
}

/* --- held-out parts ---------------------------------------------------------------------------------------------------- */

static void heldout(void **state)
{
    const tn_data_split split = *(const tn_data_split *)*state;
    rig r;
    open_rig(&r, true, 1, 7, split);
    for (int round = 0; round < 2; round++) {
        int64_t count, at = 0;
        for (int64_t i = 0;; i++) {
            assert_ok(tn_source_heldout(&r.source, i, r.trainer, &count));
            if (count == 0) break;
            assert_int_equal(r.count[0], count);
            for (int64_t b = 0; b < B; b++) assert_row(&r, b, b < count ? r.w.set.index[split][at + b] : -1);
            at += count;
        }
        assert_int_equal(at, r.w.set.count[split]);
    }
    for (int64_t b = 0; b < B; b++)
        r.w.y[r.w.set.index[split][b]] = -1; /* a first batch without labels does not end it */
    int64_t count;
    assert_ok(tn_source_heldout(&r.source, 0, r.trainer, &count));
    assert_int_equal(count, r.w.set.count[split] - B);
    close_rig(&r);
}

/* Loss and accuracy from the logits of one sample at a time. */
static void accuracy(void **state)
{
    const int64_t L = *(const int64_t *)*state;
    rig r;
    tn_evaluation e, one;
    double loss = 0;
    int64_t counted = 0, right = 0;
    open_rig(&r, true, L, 7, TN_VALID);
    for (int64_t i = 0; i < VALID; i++) {
        const int64_t row = r.w.set.index[TN_VALID][i];
        float unused;
        int64_t n;
        memset(r.labels, -1, sizeof(int32_t) * (size_t)(B * L));
        tn_samples_read(&r.w.set, row, r.features);
        r.count[0] = 1;
        assert_ok(tn_trainer_eval(r.trainer, &unused));
        const float *x = tn_trainer_output(r.trainer, "logits", &n);
        assert_int_equal(n, B * L * CLASSES);
        for (int64_t k = 0; k < L; k++, x += CLASSES) {
            const int32_t y = r.w.y[row * L + k];
            double sum = 0;
            int best = 0;
            for (int c = 0; c < CLASSES; c++) {
                sum += exp((double)x[c]);
                if (x[c] > x[best]) best = c;
            }
            if (y < 0) continue;
            loss += log(sum) - (double)x[y];
            right += best == y;
            counted++;
        }
    }
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
    assert_int_equal(e.count, counted);
    assert_true(right > 0 && right < counted &&
                tn_scores_get(&e.scores, "accuracy") == (double)right / (double)counted);
    assert_true(fabs(tn_scores_get(&e.scores, "loss") - loss / (double)counted) < 1e-5);
    assert_ok(tn_evaluate(r.trainer, &r.source, 1, &one));
    assert_true(one.count < counted);
    close_rig(&r);
}

/* --- runs -------------------------------------------------------------------------------------------------------------- */

typedef struct stopper {
    int64_t after, seen; /* steps of this session */
} stopper;

static bool stop_now(void *ctx)
{
    stopper *s = ctx;
    return s->after >= 0 && s->seen++ >= s->after;
}

/* As tenon train does it. */
static tn_status session(const tn_tempdir *d, const char *run, int64_t stop_after, tn_progress_report *last)
{
    char dir[TN_PATH_BYTES + 8], path[TN_PATH_BYTES];
    const char *const set[] = { "inputs=3",
                                "tokens=2",
                                "classes=4",
                                "threads=1",
                                "train.steps=40",
                                "train.lr=1e-1",
                                "train.batch=5",
                                "train.warmup=2",
                                "train.eval_every=3",
                                "train.eval_batches=0",
                                "train.select=accuracy",
                                "ckpt.every=7",
                                "train.accumulate=2",
                                dir };
    tn_status s = TN_OK;
    world w;
    tn_trainer *t = NULL;
    tn_source source = { 0 };
    tn_jsonl *metrics = NULL;
    tn_run_dir r = { .lock = -1 };
    tn_ckpt_state state = { 0 };
    stopper stop = { .after = stop_after };
    make_world(&w, true, 1);
    snprintf(path, sizeof path, "%s/%s", d->path, run);
    snprintf(dir, sizeof dir, "run=%s", path);
    tn_settings *st = tn_mlp_settings(set, sizeof set / sizeof *set);
    TN_TRY(tn_trainer_new(&(tn_trainer_options){ .model = &tn_mlp,
                                                 .settings = st,
                                                 .batch = B,
                                                 .length = TOKENS,
                                                 .input_spec = TN_MLP_SUPPLY(1, TRAIN),
                                                 .logits = true },
                          &t));
    TN_TRY(open_samples(&w.set, t, B, 3, TN_VALID, &source));
    TN_TRY(tn_run_open(st, "mlp", false, &r));
    if (r.checkpoint[0])
        TN_TRY(tn_run_resume(
            &r, &(tn_training){ .trainer = t, .settings = st, .source = &source, .batch = B, .length = TOKENS },
            &state));
    TN_TRY(tn_path_join(path, "metrics.jsonl", path, sizeof path));
    TN_TRY(tn_jsonl_open(path, r.checkpoint[0], &metrics));
    const tn_training job = { .trainer = t,
                              .settings = st,
                              .source = &source,
                              .metrics = metrics,
                              .dir = r.dir,
                              .batch = B,
                              .length = TOKENS,
                              .ctx = &stop,
                              .interrupted = stop_now };
    s = tn_training_run(&job, r.checkpoint[0] ? &state : NULL, last);
done:
    (void)tn_jsonl_close(metrics);
    tn_ckpt_state_free(&state);
    tn_run_close(&r);
    tn_trainer_free(t);
    tn_source_close(&source);
    tn_settings_free(st);
    return s;
}

/* Metrics without what a clock says, the last checkpoints, and which one is the best. */
static void assert_same_runs(const tn_tempdir *d)
{
    char command[900];
    snprintf(
        command, sizeof command,
        "cd '%s' && for r in a b; do sed -E "
        "'s/,\"(samples_per_s|first_step_s|seconds|step_ms|stall_s|stall_frac|memory_mb|utilisation)\":[^,}]*//g' "
        "$r/metrics.jsonl >$r.txt; done; grep -q heldout_accuracy a.txt && cmp a.txt b.txt && "
        "cmp a/latest/model.safetensors b/latest/model.safetensors && cmp a/latest/state.safetensors "
        "b/latest/state.safetensors && "
        "cmp a/best/model.safetensors b/best/model.safetensors && [ \"$(readlink a/best)\" = \"$(readlink b/best)\" ]",
        d->path);
    assert_int_equal(system(command), 0);
}

/* The checkpoint that RUN/best names, against all evaluations in the metrics. */
static void assert_best(const tn_tempdir *d, const tn_progress_report *last)
{
    char path[TN_PATH_BYTES], *text;
    tn_ckpt_list l;
    double best = -1, loss = INFINITY;
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/a/metrics.jsonl", d->path);
    assert_ok(tn_file_read_all(path, 1 << 22, &text, NULL));
    for (char *rest = text, *line; (line = strtok_r(rest, "\n", &rest));) {
        json_t *v = json_loads(line, 0, NULL);
        const double x = json_number_value(json_object_get(v, "heldout_accuracy")),
                     y = json_number_value(json_object_get(v, "heldout"));
        if (json_object_get(v, "heldout") && (x > best || (x == best && y < loss))) {
            best = x;
            loss = y;
            step = json_integer_value(json_object_get(v, "step"));
        }
        json_decref(v);
    }
    tn_free(text);
    assert_true(step > 0 && step % 7 != 0 && step < 40); /* else it would have been saved anyway */
    assert_true(step == last->best_step && best == tn_scores_get(&last->best, "accuracy") && best > 0.4);
    snprintf(path, sizeof path, "%s/a", d->path);
    assert_ok(tn_ckpt_list_read(path, &l));
    for (size_t i = 0; i < l.n; i++)
        if (l.entry[i].best)
            assert_true(l.entry[i].step == step && tn_scores_get(&l.entry[i].scores, "accuracy") == best &&
                        strcmp(l.entry[i].select, "accuracy") == 0);
    assert_true(tn__ckpt_pointed(path, "best") == step);
    tn_ckpt_list_free(&l);
}

static void sessions(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    tn_tempdir_make_quick(&d);
    assert_ok(session(&d, "a", -1, &whole));
    assert_true(whole.step == 40 && whole.samples_per_s > 0);
    assert_best(&d, &whole);
    for (int i = 0; last.step < 40 && i < 30; i++) { /* 0, 1, 2, ... steps at a time */
        const tn_status s = session(&d, "b", i, &last);
        assert_int_equal(s, last.step < 40 ? TN_INTERRUPTED : TN_OK);
    }
    assert_true(last.step == 40 && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    assert_true(memcmp(&last.best, &whole.best, sizeof last.best) == 0 && last.best_step == whole.best_step);
    assert_same_runs(&d);
    tn_tempdir_remove_all(&d);
}

/* Three batches of 5, 5 and 3 samples make the step that all 13 at once make. */
static void short_batches(void **state)
{
    (void)state;
    float after[2][256];
    int64_t n = 0;
    for (int whole = 0; whole < 2; whole++) {
        const int64_t batch = whole ? TRAIN : B;
        const char *const set[] = { "inputs=3",
                                    "tokens=2",
                                    "classes=4",
                                    "threads=1",
                                    "train.steps=1",
                                    "train.warmup=0",
                                    "train.optimizer=sgd",
                                    "train.clip=0",
                                    "train.lr=1",
                                    whole ? "train.accumulate=1" : "train.accumulate=3" };
        world w;
        tn_trainer *t;
        tn_source source;
        tn_progress_report last;
        make_world(&w, true, 1);
        tn_settings *st = tn_mlp_settings(set, sizeof set / sizeof *set);
        assert_ok(
            tn_trainer_new(&(tn_trainer_options){ .model = &tn_mlp, .settings = st, .batch = batch, .length = TOKENS },
                           &t));
        assert_ok(open_samples(&w.set, t, batch, 0, TN_VALID, &source));
        const tn_training job = { .trainer = t, .settings = st, .source = &source, .batch = batch, .length = TOKENS };
        assert_ok(tn_training_run(&job, NULL, &last));
        const tn_bucket *b = tn_store_bucket(tn_trainer_store(t), 0);
        n = b->count;
        assert_true(n > 0 && n <= 256);
        memcpy(after[whole], b->param, sizeof(float) * (size_t)n);
        tn_source_close(&source);
        tn_trainer_free(t);
        tn_settings_free(st);
    }
    for (int64_t i = 0; i < n; i++) assert_true(fabsf(after[0][i] - after[1][i]) < 2e-6f);
}

/* --- checks ------------------------------------------------------------------------------------------------------------ */

static void take_check(void *ctx, const tn_check_row *r)
{
    int *seen = ctx;
    seen[r->verdict]++;
    if (r->verdict == TN_FAILED) print_message("%s: %s\n", r->name, r->detail);
    if (strcmp(r->name, "speed") == 0) assert_string_equal(r->unit, "samples/s");
}

static void checks(void **state)
{
    const bool task = *(const bool *)*state;
    const char *const set[] = { "threads=1", task ? "task=xor" : "task=" };
    int seen[3] = { 0 };
    tn_source source;
    tn_settings *st = tn_mlp_settings(set, 2);
    assert_ok(tn_source_find(&(tn_source_open){ .model = &tn_mlp, .settings = st, .trains = true }, &source));
    assert_true(task == (source.ctx != NULL));
    const tn_check c = { .model = &tn_mlp,
                         .settings = st,
                         .batch = 8,
                         .length = tn_inputs_length(&tn_mlp, st),
                         .source = &source,
                         .only = "parameters,gradients,leak,overfit,determinism,allocations,speed",
                         .ctx = seen,
                         .row = take_check };
    assert_ok(tn_check_run(&c));
    assert_true(seen[TN_PASS] == 6 && seen[TN_SKIPPED] == 1);
    tn_source_close(&source);
    tn_settings_free(st);
}

void tn_tests_source_samples(tn_test_list *l)
{
    static const bool yes = true, no = false;
    static const tn_data_split valid = TN_VALID, test = TN_TEST;
    static const int64_t one = 1, each = TOKENS;
    tn_test_add(l, epochs, &yes, "task source: epochs, bytes");
    tn_test_add(l, epochs, &no, "task source: epochs, floats and a label for each token");
    tn_test_add(l, resume, NULL, "task source: goes on where it was");
    tn_test_add(l, refusals, NULL, "task source: refusals");
    tn_test_add(l, heldout, &valid, "task source: the valid part");
    tn_test_add(l, heldout, &test, "task source: the test part");
    tn_test_add(l, accuracy, &one, "task source: accuracy");
    tn_test_add(l, accuracy, &each, "task source: accuracy, a label for each token");
    tn_test_add(l, sessions, NULL, "task run: in sessions of 0, 1, 2, ... steps");
    tn_test_add(l, short_batches, NULL, "task run: short batches count less");
    tn_test_add(l, checks, &no, "task run: checks of a model on made-up samples");
    tn_test_add(l, checks, &yes, "task run: checks of a model on its task");
}
