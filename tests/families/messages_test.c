/* The messages model (messages/messages.c) inside the run layer: its metrics against the same numbers made another way, its frozen parts,
 * what its records are, and what a step that a metric runs may and may not do. In f32 on the device of TENON_TEST_DEVICE. */
#include "base/alloc.h"
#include "device_memory.h"
#include "tempdir.h"
#include "testlib.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer/trainer.h"
#include "train/run/saved_model.h"
#include "train/source/records.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#define tenon_model messages_model
#include "messages/messages.c"

enum { B = 16, STEPS = 60 }; /* 40 held-out records are two batches and a half */

typedef struct rig {
    tn_settings *settings;
    tn_source source;
    tn_trainer *trainer;
} rig;

static const char *const generate[] = { "generate", NULL };

static tn_status open_rig(const tn_model *m, bool forward_only, const char *const *asks, rig *r)
{
    *r = (rig){ 0 };
    assert_ok(tn_settings_new(&r->settings));
    assert_ok(tn_settings_common(r->settings));
    assert_ok(tn_settings_add(r->settings, settings, sizeof settings / sizeof *settings, "messages"));
    for (const char *const *w = defaults; *w; w++) assert_ok(tn_settings_override(r->settings, *w));
    assert_ok(tn_settings_override(r->settings, "compute=f32"));
    assert_ok(tn_settings_override(r->settings, tn_test_device() == TN_CUDA ? "device=cuda" : "device=cpu"));
    const tn_source_open how = { .model = m, .settings = r->settings, .needed = true, .trains = !forward_only };
    assert_ok(tn_source_find(&how, &r->source));
    const tn_input_spec input_spec = tn_source_input_spec(&r->source);
    const tn_status s = tn_trainer_new(&(tn_trainer_options){ .model = m,
                                                              .settings = r->settings,
                                                              .batch = B,
                                                              .length = 1,
                                                              .input_spec = &input_spec,
                                                              .logits = true,
                                                              .steps = asks,
                                                              .forward_only = forward_only,
                                                              .threads = 1 },
                                       &r->trainer);
    if (s != TN_OK) return s;
    const tn_source_start start = { .trainer = r->trainer,
                                    .batch = B,
                                    .length = 1,
                                    .accumulate = 1,
                                    .heldout = TN_VALID,
                                    .heldout_only = forward_only };
    return r->source.start(&r->source, &start);
}

static void close_rig(rig *r)
{
    tn_source_close(&r->source);
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
}

static void train(rig *r, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t count;
        float loss;
        tn_update_result done;
        assert_ok(tn_source_next(&r->source, i, r->trainer, &count));
        assert_ok(tn_trainer_grad(r->trainer, i, &loss));
        assert_ok(tn_trainer_apply(r->trainer, i, 1, loss, &done));
        assert_true(done.ok && count == B * SPOKEN);
    }
}

/* --- metrics, once more ------------------------------------------------------------------------------------------------------- */

typedef struct place {
    double near;
    int64_t row;
} place;

static int nearest_first(const void *a, const void *b)
{
    const double x = ((const place *)a)->near, y = ((const place *)b)->near;
    return (x < y) - (x > y);
}

/* All questions in the order of their distance from each source. */
static void rank(const float *source, const float *asked, int64_t rows, int64_t each, double *first, double *five)
{
    place at[VALID];
    *first = *five = 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < rows; j++) {
            double d = 0;
            for (int64_t f = 0; f < each; f++) d += pow((double)source[i * each + f] - (double)asked[j * each + f], 2);
            at[j] = (place){ -d, j };
        }
        qsort(at, (size_t)rows, sizeof *at, nearest_first);
        *first += at[0].row == i;
        for (int k = 0; k < 5; k++) *five += at[k].row == i;
    }
    *first /= (double)rows;
    *five /= (double)rows;
}

/* Word by word through the plan of evaluation: what stands behind a word does not reach it. Returns the rows that are right. */
static int64_t speak(tn_trainer *t, int64_t rows, const int32_t *answer)
{
    int64_t n, right = 0;
    float loss;
    int32_t *said = tn_trainer_input(t, "said"), made[B][SPOKEN];
    for (int64_t i = 0; i < B * SPOKEN; i++) said[i] = i % SPOKEN ? (int32_t)(i % RECEIVER_VOCAB) : BEGIN;
    for (int k = 0; k < SPOKEN; k++) {
        assert_ok(tn_trainer_eval(t, &loss));
        const float *logits = tn_trainer_output(t, "logits", &n);
        assert_int_equal(n, B * SPOKEN * RECEIVER_VOCAB);
        for (int64_t i = 0; i < B; i++) {
            const float *x = logits + (i * SPOKEN + k) * RECEIVER_VOCAB;
            made[i][k] = 0;
            for (int32_t v = 1; v < RECEIVER_VOCAB; v++)
                if (x[v] > x[made[i][k]]) made[i][k] = v;
            if (k + 1 < SPOKEN) said[i * SPOKEN + k + 1] = made[i][k];
        }
    }
    for (int64_t i = 0; i < rows; i++) right += memcmp(made[i], answer + i * SPOKEN, sizeof made[i]) == 0;
    return right;
}

typedef struct oracle {
    double first, five, exact;
} oracle;

static oracle by_hand(rig *r)
{
    oracle o = { 0 };
    int64_t rows = 0, each = 0, n, count;
    float *kept[2] = { test_malloc(sizeof(float) * VALID * 64), test_malloc(sizeof(float) * VALID * 64) }, loss;
    for (int64_t i = 0;; i++) {
        int32_t answer[B * SPOKEN];
        assert_ok(tn_source_heldout(&r->source, i, r->trainer, &count));
        if (!count) break;
        const int64_t valid = count / SPOKEN;
        memcpy(answer, tn_trainer_input(r->trainer, "labels"), sizeof answer);
        assert_ok(tn_trainer_eval(r->trainer, &loss));
        for (int k = 0; k < 2; k++) {
            const float *x = tn_trainer_output(r->trainer, k ? "asked_at" : "source_at", &n);
            each = n / B;
            assert_true(x && each <= 64);
            memcpy(kept[k] + rows * each, x, sizeof *x * (size_t)(valid * each));
        }
        rows += valid;
        o.exact += (double)speak(r->trainer, valid, answer);
    }
    assert_int_equal(rows, VALID);
    o.exact /= (double)rows;
    rank(kept[0], kept[1], rows, each, &o.first, &o.five);
    test_free(kept[0]);
    test_free(kept[1]);
    return o;
}

static void assert_metrics(rig *r, oracle *o)
{
    tn_evaluation e;
    assert_ok(tn_evaluate(r->trainer, &r->source, 0, &e));
    *o = by_hand(r);
    assert_int_equal(e.count, VALID * SPOKEN);
    assert_true(tn_scores_get(&e.scores, "recall@1") == o->first);
    assert_true(tn_scores_get(&e.scores, "recall@5") == o->five);
    assert_true(tn_scores_get(&e.scores, "exact") == o->exact);
}

static void metrics_by_hand(void **state)
{
    (void)state;
    rig r;
    oracle first, then;
    assert_ok(open_rig(&model, false, generate, &r));
    assert_metrics(&r, &first);
    train(&r, STEPS);
    assert_metrics(&r, &then);
    assert_true(first.first <= 0.2 && first.exact == 0);
    /* between none and all, so that a metric that is always either would show */
    if (!(then.first > 0.8 && then.five >= then.first && then.exact > 0.02 && then.exact < 1))
        fail_msg("recall@1 %g, recall@5 %g, exact %g after %d steps", then.first, then.five, then.exact, STEPS);
    close_rig(&r);
}

/* Equal neighbours count against a row: embeddings that are all the same have found nothing. */
static void recall_of_equals(void **state)
{
    (void)state;
    const float same[] = { 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0 }, *kept[] = { same, same };
    const float apart[] = { 1, 0, 0, 1, -1, 0 }, turned[] = { 1, 0, -1, 0, 0, 1 }, *two[] = { apart, turned };
    const int64_t each[] = { 2, 2 };
    assert_true(recall_1(kept, 6, each, NULL) == 0 && recall_5(kept, 6, each, NULL) == 0 &&
                recall_5(kept, 5, each, NULL) == 1);
    assert_true(recall_1(two, 3, each, NULL) == 1.0 / 3);
}

static const int32_t told[] = { 1, 7, 13, END, 2, 8, 14, END, -1, -1, -1, -1 };
static float word_of[SPOKEN][3];

static const float *word_at(void *ctx, const char *name, int64_t *count)
{
    *count = 3;
    return strcmp(name, ctx) == 0 ? NULL : word_of[name[4] - '0'];
}

static const void *labels_at(void *ctx, const char *name, int64_t *count)
{
    (void)ctx;
    *count = 12;
    return strcmp(name, "labels") == 0 ? told : NULL;
}

/* An answer is right where every word is; rows behind the last valid one are none. */
static void exact_by_word(void **state)
{
    (void)state;
    for (int wrong = -1; wrong < 2 * SPOKEN; wrong++) {
        double sums[TN_SUMS_MAX] = { 0 };
        const tn_metric_view v = {
            .rows = 2, .ctx = (void *)(uintptr_t) "none", .output = word_at, .input = labels_at
        };
        for (int i = 0; i < 3 * SPOKEN; i++) word_of[i % SPOKEN][i / SPOKEN] = (float)(told[i] + (i == wrong));
        add_exact(&v, sums);
        assert_true(sums[0] == (wrong < 0 ? 2 : 1) && sums[1] == 2);
        const tn_metric_view without = {
            .rows = 2, .ctx = (void *)(uintptr_t) "word2", .output = word_at, .input = labels_at
        };
        add_exact(&without, sums);
        assert_true(sums[0] == (wrong < 0 ? 2 : 1) && sums[1] == 4);
    }
}

/* --- frozen parts ------------------------------------------------------------------------------------------------------------- */

static bool is_frozen(const char *name)
{
    return strncmp(name, "sender.", 7) == 0 || strncmp(name, "receiver.", 9) == 0;
}

static size_t bytes_of(const tn_entry *e) { return (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype); }

static void parts_stay(void **state)
{
    (void)state;
    rig r, other;
    size_t moved = 0, stayed = 0;
    assert_ok(open_rig(&model, false, generate, &r));
    assert_ok(open_rig(&model, false, generate, &other));
    train(&r, 8);
    const tn_store *a = tn_trainer_store(r.trainer), *b = tn_trainer_store(other.trainer);
    for (size_t i = 0; i < tn_store_count(a); i++) {
        const tn_entry *x = tn_store_at(a, i), *y = tn_store_find(b, x->name);
        void *first = tn_memory_copy(b, y->data, bytes_of(y));
        const bool same = tn_memory_equal(a, x->data, first, bytes_of(x));
        free(first);
        assert_int_equal(x->role, is_frozen(x->name) ? TN_ROLE_FROZEN : TN_ROLE_PARAM);
        if (same != is_frozen(x->name))
            fail_msg("%s %s", x->name, same ? "has not moved" : "is frozen and has changed");
        stayed += same;
        moved += !same;
    }
    assert_true(moved == 9 && stayed > 20);
    assert_int_equal(tn_store_find(a, "sender.embed")->dims.dim[0], SENDER_VOCAB);
    assert_int_equal(tn_store_find(a, "receiver.embed")->dims.dim[0], RECEIVER_VOCAB);
    close_rig(&r);
    close_rig(&other);
}

/* --- records ------------------------------------------------------------------------------------------------------------------ */

/* Every answer follows from its source and its question; no content of a held-out record is in another split, or twice in its own. */
static void records_are_what_they_say(void **state)
{
    (void)state;
    rig r;
    void *d;
    tn_records_about about;
    int seen[CONTENTS] = { 0 };
    assert_ok(open_rig(&model, false, NULL, &r));
    assert_ok(data_open(r.settings, &d, &about));
    const float *code = ((const data *)d)->code;
    const int64_t F = ((const data *)d)->features;
    for (int split = 0; split < TN_RECORD_SPLITS; split++)
        for (int64_t i = 0; i < about.count[split]; i++) {
            float source[64];
            int32_t asked[64], begin_with, said[SPOKEN], labels[SPOKEN], word[4], n = 0;
            void *const at[] = { source, asked, &begin_with, said, labels, NULL };
            assert_int_equal(data_read(d, split, i, 0, at), SPOKEN);
            for (int64_t t = 0; t < ((const data *)d)->asked; t++)
                if (asked[t] != NOTHING) word[n++ & 3] = asked[t];
            assert_true(n == 4 && begin_with == BEGIN && said[0] == BEGIN && labels[3] == END &&
                        memcmp(said + 1, labels, 3 * sizeof *labels) == 0);
            const int x = word[1], y = word[2] - VALUES, z = word[3] - 2 * VALUES, tone = word[0] - TONE;
            int w = -1;
            double best = INFINITY; /* the w whose codes the source is nearest to */
            for (int k = 0; k < VALUES; k++) {
                const int thing[] = { x, y, z, k };
                double far = 0;
                for (int64_t f = 0; f < F; f++) {
                    double rest = (double)source[f];
                    for (int j = 0; j < THINGS; j++) rest -= (double)code[(j * VALUES + thing[j]) * F + f];
                    far += rest * rest;
                }
                if (far < best) best = far, w = k;
            }
            assert_true(labels[0] == x && labels[1] == VALUES + y && labels[2] == 2 * VALUES + (w + 3 * tone) % VALUES);
            int *is = &seen[x + VALUES * (y + VALUES * z)];
            assert_true(*is == 0 || (split == 0 && *is == 1));
            *is = split + 1;
        }
    data_close(d);
    close_rig(&r);
}

/* --- steps that metrics run ----------------------------------------------------------------------------------------------------- */

/* An evaluation that has no use for the receiver: only generation has. */
static tn_status build_lean(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    net n;
    const tn_status s = begin(&n, g, st, b);
    if (s != TN_OK) return s;
    tn_output(g, "source_at", n.source_at);
    tn_output(g, "asked_at", n.asked_at);
    const tn_ref far = tn_sub(g, n.source_at, n.asked_at), scaled = tn_mul(g, far, tn_scalar(g, "contrast", 1));
    tn_output(g, "loss", tn_mean_all(g, tn_square(g, scaled)));
    tn_output(g, "answer", tn_mean_all(g, far));
    if (tn_in(b, "labels").id) tn_output(g, "told", tn_copy(g, tn_in(b, "labels")));
    return tn_graph_status(g);
}

static const tn_step_row lean_steps[] = { { "train", build_step, true },
                                          { "eval", build_lean, false },
                                          { "generate", build_generate, false } };

static tn_model lean_model(void)
{
    tn_model m = model;
    m.steps = lean_steps;
    return m;
}

/* What only generation reads is in the store before weights are loaded, so that it has the file's numbers. */
static void lean_evaluation(void **state)
{
    (void)state;
    const tn_model lean = lean_model();
    rig r, saved, late;
    tn_tempdir d;
    char path[1024], note[TN_CKPT_NOTE];
    tn_evaluation a, b;
    assert_ok(open_rig(&model, false, generate, &r));
    train(&r, STEPS);
    for (size_t i = 0; i < tn_store_count(tn_trainer_store(r.trainer)); i++) { /* not what a seed would give */
        const tn_store *st = tn_trainer_store(r.trainer);
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_FROZEN) continue;
        float *x = tn_memory_floats(st, e->data, tn_dims_count(e->dims));
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) x[k] *= 1.25f;
        tn_memory_put(st, e->data, x, bytes_of(e));
        free(x);
    }
    assert_ok(tn_evaluate(r.trainer, &r.source, 0, &a));
    assert_true(tn_scores_get(&a.scores, "exact") > 0);
    tn_tempdir_make(&d);
    snprintf(path, sizeof path, "%s", tn_tempdir_file(&d, "w.safetensors"));
    assert_ok(tn_weights_save(path, &model, r.settings, tn_trainer_store(r.trainer)));
    assert_ok(open_rig(&lean, true, generate, &saved));
    assert_ok(tn_weights_load(path, tn_trainer_store(saved.trainer), note));
    assert_ok(tn_evaluate(saved.trainer, &saved.source, 0, &b));
    assert_true(tn_scores_get(&a.scores, "exact") == tn_scores_get(&b.scores, "exact"));
    assert_true(tn_scores_get(&a.scores, "recall@1") == tn_scores_get(&b.scores, "recall@1"));

    /* Planned behind the weights, it would have numbers of a seed: refused, and again when it is asked again. */
    assert_ok(open_rig(&lean, true, NULL, &late));
    for (int i = 0; i < 2; i++) {
        assert_fails(tn_trainer_run_step(late.trainer, "generate"), TN_USAGE,
                     "model messages, step generate: it creates the parameter receiver.embed, which no step before it "
                     "has: create it in the training step");
        assert_null(strchr(tn_error_text(), '\n'));
    }
    tn_tempdir_remove_all(&d);
    close_rig(&r);
    close_rig(&saved);
    close_rig(&late);
}

static tn_status build_more(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_frozen_begin(g);
    tn_param(g, "more", tn_shape(3), tn_ones);
    tn_frozen_end(g);
    return build_generate(g, st, b);
}

/* More than any machine has, and no tensor of it alone. */
static tn_status build_large(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    enum { PIECES = 16 };
    const int64_t n = (int64_t)(tn_memory_limit() / 32) & ~(int64_t)63; /* an eighth of all, in f32 */
    tn_ref x[PIECES];
    (void)st;
    for (int i = 0; i < PIECES; i++)
        x[i] = tn_add(g, tn_fill(g, tn_shape(1, n), TN_F32, (float)i), tn_mean_all(g, tn_in(b, "source")));
    for (int i = 0; i < PIECES; i++)
        tn_output(g,
                  (const char *const[]){ "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o",
                                         "p" }[i],
                  x[i]);
    return tn_graph_status(g);
}

static void mistakes(void **state)
{
    (void)state;
    rig r;
    tn_model m = model;
    const tn_step_row more[] = { steps[0], steps[1], { "generate", build_more, false } };
    m.steps = more;
    assert_fails(
        open_rig(&m, false, generate, &r), TN_USAGE,
        "model messages, step generate: it creates the parameter more, which no step before it has: create it");
    assert_null(strchr(tn_error_text(), '\n'));
    close_rig(&r);
    const tn_step_row large[] = { steps[0], steps[1], { "generate", build_large, false } };
    m.steps = large;
    assert_fails(open_rig(&m, false, generate, &r), TN_MEMORY, "the plan needs"); /* before memory is asked for */
    close_rig(&r);
    assert_ok(open_rig(&m, false, NULL, &r));
    for (int i = 0; i < 2; i++) assert_fails(tn_trainer_run_step(r.trainer, "generate"), TN_MEMORY, "the plan needs");
    close_rig(&r);

    m.steps = steps;
    assert_ok(open_rig(&m, false, NULL,
                       &r)); /* the batch is there when it is asked for: what it alone reads was not filled */
    for (int i = 0; i < 2; i++)
        assert_fails(tn_trainer_run_step(r.trainer, "generate"), TN_USAGE,
                     "model messages, step generate: it reads the input begin, which no step before it does");
    close_rig(&r);
}

/* A step that is asked for by name alone is planned then; one that no metric runs costs nothing. */
static void asked_later(void **state)
{
    (void)state;
    rig r;
    tn_model m = model;
    m.n_metrics = 4; /* without `exact` */
    const tn_step_row late[] = { steps[0], steps[1], { "trace", build_lean, false } };
    m.steps = late;
    int64_t n, count;
    tn_dtype type;
    assert_ok(open_rig(&m, false, NULL, &r));
    assert_ok(tn_source_heldout(&r.source, 0, r.trainer, &count));
    const size_t before = tn_trainer_memory(r.trainer).total;
    assert_ok(tn_trainer_run_step(r.trainer, "trace"));
    assert_true(tn_trainer_memory(r.trainer).total > before);
    const int32_t *got = tn_trainer_step_output(r.trainer, "trace", "told", &type, &n);
    assert_true(got && type == TN_I32 && n == B * SPOKEN);
    assert_memory_equal(got, tn_trainer_input(r.trainer, "labels"), sizeof *got * (size_t)n);
    const uint64_t allocated = tn_alloc_count();
    assert_ok(tn_trainer_run_step(r.trainer, "trace"));
    assert_int_equal(tn_alloc_count(), allocated);
    assert_fails(tn_trainer_run_step(r.trainer, "dream"), TN_USAGE,
                 "model messages has no step dream: add it to its steps");
    close_rig(&r);
}

void tn_tests_messages(tn_test_list *l)
{
    tn_test_add(l, metrics_by_hand, NULL,
                "messages: recall@k and exact match are what they are by hand, before and after training");
    tn_test_add(l, recall_of_equals, NULL, "messages: recall of equal embeddings is none");
    tn_test_add(l, exact_by_word, NULL, "messages: an answer is right where every word is");
    tn_test_add(l, parts_stay, NULL, "messages: frozen parts stay bit for bit, all else moves");
    tn_test_add(l, records_are_what_they_say, NULL, "messages: records are answered by source and question together");
    tn_test_add(l, lean_evaluation, NULL, "messages: a step that a metric runs has parameters that evaluation has not");
    tn_test_add(l, mistakes, NULL, "messages: a step that a metric runs and its mistakes");
    tn_test_add(l, asked_later, NULL, "messages: a step that is asked for by name is planned then");
}
