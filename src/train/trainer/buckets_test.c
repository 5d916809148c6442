/* Rows of different widths through one trainer: each width's plan gives the loss and gradients of padded rows, all widths
 * share the memory of the widest, tokens count alike in a step of several batches, and nothing is allocated on the way. */
#include "base/alloc.h"
#include "dataset_files.h"
#include "train/source/text.h"
#include "train/run/train_settings.h"

#include <math.h>
#include <stdlib.h>

enum { T = 64, B = 2 };

typedef struct rig {
    tn_tempdir dir;
    tn_dataset *data;
    tn_settings *settings;
    tn_source source;
    tn_trainer *trainer;
} rig;

static void open_rig(rig *r, const char *target, const char *more, bool buckets)
{
    const char *const set[] = { "dim=32", "layers=2", "heads=2", "vocab=256", "threads=1", "train.context=64", more };
    const tn_model *m;
    char text[4000];
    size_t n = 0;
    int64_t widths[TN_LOADER_WIDTHS];
    *r = (rig){ 0 };
    tn_tempdir_make(&r->dir);
    for (int i = 0; i < 60; i++) /* 3 to 90 bytes */
        n += (size_t)
            snprintf(text + n, sizeof text - n, "{\"text\":\"%02d.%.*s\"}\n", i, i * i % 30 * (i % 4 == 0 ? 3 : 1),
                     "a text that is short, or long enough to be cut where the context ends, or of any length between");
    tn_put_text(tn_tempdir_file(&r->dir, "d.jsonl"), text);
    assert_ok(
        tn_dataset_open(tn_tempdir_file(&r->dir, "d.jsonl"), &(tn_dataset_options){ .holdout_frac = 0.2 }, &r->data));
    assert_ok(tn_settings_resolve(target, set, sizeof set / sizeof *set, &r->settings, &m));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = m,
                                                    .settings = r->settings,
                                                    .batch = B,
                                                    .length = T,
                                                    .widths = widths,
                                                    .n_widths = buckets ? tn_loader_widths(T, widths) : 0 },
                             &r->trainer));
    assert_ok(tn_source_text_open(
        &(tn_source_text_options){ .data = r->data, .mode = TN_LOADER_BUCKET, .seed = 5, .workers = 1, .prefetch = 2 },
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

static const tn_bucket *grads(const rig *r) { return tn_store_bucket(tn_trainer_store(r->trainer), 0); }

/* The widths come out of tn_trainer_plan's flops: a narrow plan does less. */
static void same_numbers(void **state)
{
    const char *const *model = *state;
    rig narrow, wide;
    int widths = 0;
    double seen[TN_LOADER_WIDTHS] = { 0 };
    open_rig(&narrow, model[0], model[1], true);
    open_rig(&wide, model[0], model[1], false);
    for (int i = 0; i < 24; i++) {
        float x, y;
        int64_t n, m;
        double apart = 0, size = 0;
        assert_ok(tn_source_next(&narrow.source, i, narrow.trainer, &n));
        assert_ok(tn_source_next(&wide.source, i, wide.trainer, &m));
        assert_ok(tn_trainer_grad(narrow.trainer, i, &x));
        assert_ok(tn_trainer_grad(wide.trainer, i, &y));
        assert_true(n == m && n > 0 && fabsf(x - y) < 1e-5f * y);
        for (int64_t k = 0; k < grads(&wide)->count; k++) {
            apart = fmax(apart, fabs((double)grads(&wide)->grad[k] - (double)grads(&narrow)->grad[k]));
            size += (double)grads(&wide)->grad[k] * (double)grads(&wide)->grad[k];
        }
        assert_true(size > 0 && apart < 1e-5 * sqrt(size));
        int w = 0;
        while (w < widths && seen[w] != tn_trainer_flops(narrow.trainer)) w++;
        if (w == widths) seen[widths++] = tn_trainer_flops(narrow.trainer);
        assert_true(widths <= TN_LOADER_WIDTHS && tn_trainer_flops(narrow.trainer) <= tn_trainer_flops(wide.trainer));
        assert_ok(tn_trainer_eval(narrow.trainer, &x)); /* of the same width */
        assert_ok(tn_trainer_eval(wide.trainer, &y));
        assert_true(fabsf(x - y) < 1e-5f * y);
        tn_store_zero_grad(tn_trainer_store(narrow.trainer));
        tn_store_zero_grad(tn_trainer_store(wide.trainer));
    }
    assert_true(widths >= 3);
    const tn_memory_plan a = tn_trainer_memory(narrow.trainer), b = tn_trainer_memory(wide.trainer);
    assert_true(a.activations == b.activations && a.workspace == b.workspace && a.other > b.other);
    close_rig(&narrow);
    close_rig(&wide);
}

/* Two batches of one step, weighed by their tokens, are the mean over all tokens. */
static void tokens_count_alike(void **state)
{
    (void)state;
    rig r;
    float loss;
    int64_t n[2];
    open_rig(&r, "gpt", "train.dropout=0", true);
    const int64_t count = grads(&r)->count;
    double *want = calloc((size_t)count, sizeof *want), worst = 0, total;
    for (int k = 0; k < 2; k++) {
        for (int skip = 0; skip < (k ? 5 : 1); skip++) assert_ok(tn_source_next(&r.source, k, r.trainer, &n[k]));
        assert_ok(tn_trainer_grad(r.trainer, k, &loss));
        for (int64_t i = 0; i < count; i++) want[i] += (double)n[k] * (double)grads(&r)->grad[i];
        tn_store_zero_grad(tn_trainer_store(r.trainer));
    }
    assert_true(n[0] != n[1]);
    close_rig(&r);
    open_rig(&r, "gpt", "train.dropout=0", true);
    total = (double)(n[0] + n[1]);
    for (int k = 0; k < 2; k++) {
        for (int skip = 0; skip < (k ? 5 : 1); skip++) assert_ok(tn_source_next(&r.source, k, r.trainer, &n[k]));
        tn_trainer_weigh(r.trainer, (float)n[k] / (B * T));
        assert_ok(tn_trainer_grad(r.trainer, k, &loss));
    }
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs(want[i] / total - (double)grads(&r)->grad[i] * (B * T) / total));
    assert_true(worst < 1e-6);
    free(want);
    close_rig(&r);
}

static void allocates_nothing(void **state)
{
    (void)state;
    rig r;
    int64_t count;
    float loss;
    tn_update_result a;
    open_rig(&r, "ten", "pattern=DO", true);
    const uint64_t before = tn_alloc_count();
    for (int i = 0; i < 30; i++) {
        assert_ok(tn_source_next(&r.source, i, r.trainer, &count));
        assert_ok(tn_trainer_grad(r.trainer, i, &loss));
        assert_ok(tn_trainer_apply(r.trainer, i, 1, loss, &a));
        if (i % 7 == 0) assert_ok(tn_source_heldout(&r.source, 0, r.trainer, &count));
        if (i % 7 == 0) assert_ok(tn_trainer_eval(r.trainer, &loss));
    }
    assert_int_equal(tn_alloc_count(), before);
    close_rig(&r);
}

/* What widths there are, and that a model may refuse one: of 6, 12, 18, ..., 48 those above 16 must be
 * multiples of it. */
static void widths(void **state)
{
    (void)state;
    rig r;
    int64_t w[TN_LOADER_WIDTHS];
    assert_true(tn_loader_widths(512, w) == 8 && w[0] == 64 && w[1] == 128 && w[6] == 448 && w[7] == 512);
    assert_true(tn_loader_widths(100, w) == 8 && w[0] == 13 && w[6] == 91 && w[7] == 100);
    assert_true(tn_loader_widths(9, w) == 5 && w[0] == 2 && w[3] == 8 && w[4] == 9);
    assert_true(tn_loader_widths(3, w) == 3 && w[0] == 1 && w[1] == 2 && w[2] == 3);
    assert_true(tn_loader_widths(1, w) == 1 && w[0] == 1);
    open_rig(&r, "ten", "pattern=D", true);
    assert_true(tn_trainer_feed_for(r.trainer, 17).length == 24 && tn_trainer_feed_for(r.trainer, 1).length == 8);
    assert_true(tn_trainer_feed(r.trainer).length == T);
    close_rig(&r);
    tn_trainer *t;
    tn_settings *st;
    const tn_model *m;
    const char *const set[] = { "dim=32",    "layers=2",         "heads=2",   "vocab=256",
                                "threads=1", "train.context=48", "pattern=E", "tbptt=16" };
    assert_ok(tn_settings_resolve("ten", set, 8, &st, &m));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = m, .settings = st, .batch = B, .length = 48, .widths = w, .n_widths = tn_loader_widths(48, w) },
        &t));
    assert_true(tn_trainer_feed_for(t, 18).length == 48 && tn_trainer_feed_for(t, 12).length == 12);
    tn_trainer_free(t);
    tn_settings_free(st);
}

void tn_tests_buckets(tn_test_list *l)
{
    static const char *const models[][2] = {
        { "gpt", "shape=gpt2" }, { "gpt", "shape=llama" }, { "ten", "pattern=DO" }, { "ten", "pattern=EW" }
    };
    for (int i = 0; i < 4; i++)
        tn_test_add(l, same_numbers, &models[i], "buckets: every width as if padded: %s, %s", models[i][0],
                    models[i][1]);
    tn_test_add(l, tokens_count_alike, NULL, "buckets: tokens count alike in a step");
    tn_test_add(l, allocates_nothing, NULL, "buckets: steps allocate nothing");
    tn_test_add(l, widths, NULL, "buckets: widths, and those a model refuses");
}
