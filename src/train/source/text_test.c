/* Data on its way into a step: a packed row gives the loss and gradients of its documents alone, whole evaluations are
 * weighed by tokens whatever the batch, bits per byte are those of the text, and nothing is allocated on the way. Beside
 * it: weight decay by kind of parameter, bf16 through a training step, memory limits. */
#include "train/source/text.h"

#include "base/alloc.h"
#include "dataset_files.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

typedef struct rig {
    tn_tempdir dir;
    tn_dataset *data;
    tn_settings *settings;
    tn_source source;
    tn_trainer *trainer;
} rig;

static void open_data(rig *r)
{
    tn_tempdir_make(&r->dir);
    tn_put_documents(tn_tempdir_file(&r->dir, "d.jsonl"), 24);
    assert_ok(
        tn_dataset_open(tn_tempdir_file(&r->dir, "d.jsonl"), &(tn_dataset_options){ .holdout_frac = 0.2 }, &r->data));
}

static tn_trainer *trainer_of(rig *r, const char *model, const char *const *set, size_t n, int64_t B, int64_t T,
                              bool documents)
{
    tn_trainer *t;
    const tn_model *m;
    tn_settings_free(r->settings);
    r->settings = NULL;
    assert_ok(tn_settings_resolve(model, set, n, &r->settings, &m));
    const tn_input_spec all = { .rows = tn_language_inputs, .n_rows = TN_LANGUAGE_INPUTS };
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = m, .settings = r->settings, .batch = B, .length = T, .input_spec = documents ? &all : NULL },
        &t));
    return t;
}

static void open_rig(rig *r, const char *model, const char *const *set, size_t n, int64_t B, int64_t T,
                     tn_loader_mode mode)
{
    *r = (rig){ 0 };
    open_data(r);
    r->trainer = trainer_of(r, model, set, n, B, T, tn_source_marks_documents(mode));
    assert_ok(tn_source_text_open(
        &(tn_source_text_options){ .data = r->data, .mode = mode, .seed = 5, .workers = 1, .prefetch = 2 },
        &(tn_source_start){ .trainer = r->trainer, .batch = B, .length = T, .heldout = TN_VALID }, &r->source));
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
    tn_dataset_close(r->data);
    tn_tempdir_clear(&r->dir);
}

/* --- packed rows ----------------------------------------------------------------------------------------------------- */

static const struct model_row {
    const char *name, *model, *set[4];
} model_rows[] = {
    { "gpt, learned positions", "gpt", { "shape=gpt2" } },
    { "gpt, rotary positions", "gpt", { "shape=llama" } },
    { "ten, D and O", "ten", { "pattern=DO" } },
    { "ten, E and window attention", "ten", { "pattern=EW", "window=32" } },
    { "ten, learned positions", "ten", { "pattern=D", "pos=learned" } },
};

enum { T = 96 };

/* A row by its names; NULL: the model does not read it. */
typedef struct marked {
    int32_t *tokens, *labels, *reset, *document;
} marked;

static marked row_of(tn_trainer *t)
{
    const tn_feed f = tn_trainer_feed(t);
    return (marked){ tn_feed_at(&f, "tokens"), tn_feed_at(&f, "labels"), tn_feed_at(&f, "reset"),
                     tn_feed_at(&f, "document") };
}

/* By whichever mark the model reads. */
static bool starts_at(const marked *row, int64_t i)
{
    return i == 0 || (row->document ? row->document[i] != row->document[i - 1] : row->reset[i]);
}

/* The row's documents one by one, each at the start of a row of its own; weighed by their labels. */
static double alone(tn_trainer *t, const marked *row, float *grad, int64_t params)
{
    const marked one = row_of(t);
    const tn_bucket *b = tn_store_bucket(tn_trainer_store(t), 0);
    double sum = 0, counted = 0;
    for (int i = 0; i < T; i++) counted += row->labels[i] >= 0;
    for (int64_t from = 0, to; from < T; from = to) {
        double n = 0;
        float loss;
        for (to = from + 1; to < T && !starts_at(row, to);) to++;
        memset(one.tokens, 0, T * sizeof *one.tokens);
        memset(one.labels, -1, T * sizeof *one.labels);
        for (int64_t i = from; i < to; i++) {
            one.tokens[i - from] = row->tokens[i];
            one.labels[i - from] = row->labels[i];
            n += row->labels[i] >= 0;
        }
        assert_true(n > 0);
        assert_ok(tn_trainer_grad(t, 0, &loss));
        sum += (double)loss * n / counted;
        for (int64_t i = 0; i < params; i++) grad[i] += b->grad[i] * (float)(n / counted);
        tn_store_zero_grad(tn_trainer_store(t));
    }
    return sum;
}

static void packed_equals_alone(void **state)
{
    const struct model_row *m = *state;
    const char *set[10] = { "dim=32", "layers=2", "heads=2", "vocab=256", "threads=1", "train.context=96" };
    size_t n = 6;
    rig r;
    int64_t count;
    float loss;
    while (n < 10 && m->set[n - 6]) {
        set[n] = m->set[n - 6];
        n++;
    }
    open_rig(&r, m->model, set, n, 1, T, TN_LOADER_PACK);
    const marked row = row_of(r.trainer);
    int starts = 0;
    for (int tries = 0; starts < 2 && tries < 50; tries++) { /* a row where a document starts inside */
        assert_ok(tn_source_next(&r.source, 0, r.trainer, &count));
        assert_int_equal(count, T);
        starts = 0;
        for (int i = 0; i < T; i++) starts += starts_at(&row, i);
    }
    assert_true(starts >= 2);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    const tn_bucket *b = tn_store_bucket(tn_trainer_store(r.trainer), 0);
    float *sum = tn_alloc(sizeof *sum * (size_t)b->count);
    tn_settings *first = r.settings;
    r.settings = NULL;
    tn_trainer *t = trainer_of(&r, m->model, set, n, 1, T, false);
    assert_float_equal(alone(t, &row, sum, b->count), loss, 2e-6);
    double far = 0, norm = 0;
    for (int64_t i = 0; i < b->count; i++) {
        far += pow((double)(sum[i] - b->grad[i]), 2);
        norm += pow((double)b->grad[i], 2);
    }
    assert_true(sqrt(far) < 1e-5 * sqrt(norm));
    tn_free(sum);
    tn_trainer_free(t);
    tn_settings_free(r.settings);
    r.settings = first;
    close_rig(&r);
}

/* --- evaluations ----------------------------------------------------------------------------------------------------- */

static void evaluation(void **state)
{
    (void)state;
    const char *const set[] = { "dim=16", "layers=1", "heads=2", "vocab=256", "threads=1", "train.context=32" };
    double loss[3];
    int64_t tokens[3];
    for (int k = 0; k < 3; k++) { /* batches of 1, 2 and 5 rows, and padding that differs */
        rig r;
        tn_evaluation e, again;
        open_rig(&r, "gpt", set, 6, k == 0 ? 1 : k == 1 ? 2 : 5, 32, TN_LOADER_PACK);
        assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
        assert_ok(tn_evaluate(r.trainer, &r.source, 0, &again));
        assert_true(tn_scores_first(&e.scores) == tn_scores_first(&again.scores) && e.count == again.count);
        const tn_dataset_counts c = tn_dataset_count(r.data, TN_VALID);
        assert_int_equal(e.count, c.tokens - c.documents);
        assert_true(tn_scores_get(&e.scores, "bits_per_byte") == tn_scores_get(&e.scores, "loss") * r.source.bits);
        assert_float_equal(r.source.bits, 1 / log(2), 1e-12); /* a byte a token */
        loss[k] = tn_scores_get(&e.scores, "loss");
        tokens[k] = e.count;
        assert_ok(tn_evaluate(r.trainer, &r.source, 1, &e));
        assert_true(e.count < tokens[k]);
        close_rig(&r);
    }
    assert_true(tokens[0] == tokens[1] && tokens[0] == tokens[2]);
    assert_float_equal(loss[0], loss[1], 1e-6);
    assert_float_equal(loss[0], loss[2], 1e-6);
}

static void nothing_held_out(void **state)
{
    (void)state;
    const char *const set[] = { "dim=16", "layers=1", "heads=2", "vocab=256", "threads=1", "train.context=32" };
    rig r;
    tn_evaluation e;
    open_rig(&r, "gpt", set, 6, 2, 32, TN_LOADER_PACK);
    tn_source_close(&r.source);
    assert_ok(
        tn_source_text_open(&(tn_source_text_options){ .data = r.data },
                            &(tn_source_start){ .trainer = r.trainer, .batch = 2, .length = 32, .heldout = TN_TEST },
                            &r.source));
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &e));
    assert_true(e.count == 0 && isnan(tn_scores_first(&e.scores)) && isnan(r.source.bits));
    close_rig(&r);
}

/* Rows of a bucket are narrower than the step of a trainer that has one width: padding is not counted. */
static void narrow_rows(void **state)
{
    (void)state;
    const char *const set[] = { "dim=16", "layers=1", "heads=2", "vocab=256", "threads=1", "train.context=512" };
    rig r;
    int64_t count, counted = 0;
    open_rig(&r, "gpt", set, 6, 2, 512, TN_LOADER_BUCKET);
    const marked row = row_of(r.trainer);
    assert_null(row.reset);
    assert_ok(tn_source_next(&r.source, 0, r.trainer, &count));
    for (int i = 0; i < 2 * 512; i++) counted += row.labels[i] >= 0;
    assert_true(counted == count && count < 2 * 512 && row.labels[511] == -1 && row.labels[1023] == -1);
    close_rig(&r);
}

/* --- allocations ----------------------------------------------------------------------------------------------------- */

static void quiet_steps(void **state)
{
    (void)state;
    const char *const set[] = { "dim=16",
                                "layers=1",
                                "heads=2",
                                "vocab=256",
                                "threads=1",
                                "train.context=32",
                                "log.level=profiling",
                                "log.every=1",
                                "train.steps=12",
                                "train.eval_every=4" };
    rig r;
    int64_t count;
    float loss;
    tn_update_result a;
    tn_evaluation e;
    tn_evaluator *evaluator;
    open_rig(&r, "ten", set, 10, 2, 32, TN_LOADER_PACK);
    assert_ok(tn_evaluator_new(r.trainer, &r.source, &evaluator));
    assert_ok(tn_source_next(&r.source, 0, r.trainer, &count));
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < 10; i++) {
        assert_ok(tn_source_next(&r.source, 0, r.trainer, &count));
        assert_ok(tn_trainer_grad(r.trainer, i, &loss));
        assert_ok(tn_trainer_apply(r.trainer, i, 1, loss, &a));
    }
    assert_ok(tn_evaluator_run(evaluator, &r.source, 0, &e));
    assert_int_equal(tn_alloc_count(), before);
    tn_evaluator_free(evaluator);
    close_rig(&r);
}

/* --- what the optimizer does to whom --------------------------------------------------------------------------------- */

static bool holds(const char *name, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(name, *parts)) return true;
    return false;
}

/* Without gradients a step is weight decay alone: matrices shrink; norms, biases and spectra stay. */
static void decay_groups(void **state)
{
    static const char *const shrink[] = { ".w_", ".w1", ".w2", "embed", "head", NULL }, *const stay[] = {
        "norm", ".b_", ".b1", ".b2", "nu", "omega", NULL
    };
    const char *const set[] = { "dim=16",           "layers=2",     "heads=2",
                                "vocab=64",         "threads=1",    "train.context=8",
                                "train.warmup=0",   "train.lr=0.1", "train.decay=0.5",
                                "train.steps=1000", *state };
    rig r = { 0 };
    tn_update_result a;
    int shrunk = 0, stayed = 0;
    tn_trainer *t = trainer_of(&r, strncmp(*state, "shape", 5) == 0 ? "gpt" : "ten", set, 11, 1, 8, false);
    tn_store *st = tn_trainer_store(t);
    const tn_bucket *b = tn_store_bucket(st, 0);
    for (int i = 0; i < tn_store_buckets(st); i++)
        for (int64_t k = 0; k < tn_store_bucket(st, i)->count; k++) tn_store_bucket(st, i)->param[k] = 2;
    assert_true(b->count > 0);
    assert_ok(tn_trainer_apply(t, 0, 1, 1.f, &a));
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_PARAM) continue;
        const float x = *(const float *)e->data;
        if (holds(e->name, stay)) {
            if (x != 2) fail_msg("%s decays", e->name);
            stayed++;
        } else if (holds(e->name, shrink)) {
            if (!(x < 1.91f && x > 1.89f)) fail_msg("%s is %g instead of 1.9", e->name, (double)x);
            shrunk++;
        }
    }
    assert_true(shrunk >= 5 && stayed >= 3);
    tn_trainer_free(t);
    tn_settings_free(r.settings);
}

/* bf16 operands: another loss in the last digits, and master weights that bf16 could not hold. */
static void bf16_steps(void **state)
{
    const char *const compute = *state;
    const char *set[] = { "dim=32",    "layers=1",         "heads=2",        "vocab=256",
                          "threads=1", "train.context=32", "train.warmup=0", "compute=f32" };
    float loss[2];
    for (int k = 0; k < 2; k++) {
        rig r;
        int64_t count;
        tn_update_result a;
        int fine = 0;
        set[7] = k ? compute : "compute=f32";
        open_rig(&r, "gpt", set, 8, 2, 32, TN_LOADER_PACK);
        for (int i = 0; i < 4; i++) {
            assert_ok(tn_source_next(&r.source, 0, r.trainer, &count));
            assert_ok(tn_trainer_grad(r.trainer, i, &loss[k]));
            assert_ok(tn_trainer_apply(r.trainer, i, 1, loss[k], &a));
            assert_true(a.ok);
        }
        const tn_bucket *b = tn_store_bucket(tn_trainer_store(r.trainer), 0);
        for (int64_t i = 0; i < b->count; i++) {
            uint32_t bits;
            memcpy(&bits, &b->param[i], sizeof bits);
            fine += (bits & 0xffff) != 0;
        }
        assert_true(fine > b->count / 2);
        close_rig(&r);
    }
    if (strcmp(compute, "compute=bf16") == 0)
        assert_true(loss[0] != loss[1]); /* bf16x3 may do without the instructions */
    assert_float_equal(loss[0], loss[1], 0.02);
}

/* --- memory limits --------------------------------------------------------------------------------------------------- */

static void limits(void **state)
{
    (void)state;
    tn_tempdir d;
    char path[400];
    tn_tempdir_make(&d);
    const char *const dirs[] = { "/a", "/a/b" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", d.path, dirs[i]);
        assert_ok(tn_dir_make(path));
    }
    const char *const files[][2] = { { "", "900000000\n" }, { "/a", "5000000\n" }, { "/a/b", "max\n" } };
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s/memory.max", d.path, files[i][0]);
        tn_put_text(path, files[i][1]);
    }
    assert_true(tn_memory_limit_of_group(d.path, "/a/b") == 5e6);
    assert_true(tn_memory_limit_of_group(d.path, "/a/b/c") == 5e6); /* a group that cannot be seen */
    assert_true(tn_memory_limit_of_group(d.path, "/ab") == 9e8);
    assert_true(tn_memory_limit_of_group(d.path, "/") == 9e8);
    assert_true(tn_memory_limit_of_group(d.path, "") == 9e8);
    tn_put_text(path, "nonsense\n");
    assert_true(tn_memory_limit_of_group(d.path, "/a/b") == 5e6);
    assert_true(tn_memory_limit_of_group("/nowhere", "/a") > 1e20);
    assert_true(tn_memory_limit() > 1e6 && tn_memory_limit() < 1e20);
    tn_tempdir_clear(&d);
}

void tn_tests_text(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof model_rows / sizeof *model_rows; i++)
        tn_test_add(l, packed_equals_alone, &model_rows[i], "source: packed documents as if alone: %s",
                    model_rows[i].name);
    tn_test_add(l, evaluation, NULL, "source: evaluations do not depend on the batch");
    tn_test_add(l, nothing_held_out, NULL, "source: nothing held out");
    tn_test_add(l, narrow_rows, NULL, "source: narrow rows");
    tn_test_add(l, quiet_steps, NULL, "source: steps and evaluations allocate nothing");
    tn_test_add(l, decay_groups, "shape=gpt2", "source: weight decay, gpt2");
    tn_test_add(l, decay_groups, "shape=llama", "source: weight decay, llama");
    tn_test_add(l, decay_groups, "pattern=DO", "source: weight decay, ten");
    tn_test_add(l, bf16_steps, "compute=bf16", "source: steps with bf16");
    tn_test_add(l, bf16_steps, "compute=bf16x3", "source: steps with bf16x3");
    tn_test_add(l, limits, NULL, "source: memory limits of groups");
}
