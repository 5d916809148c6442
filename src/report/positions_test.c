/* Loss by position against whole logits and a count by hand, for every kind of mark a model reads; its sum against
 * the plain evaluation; the effective context against rows computed one by one, and of a model that cannot look back
 * further than it does. */
#include "report/positions.h"

#include "dataset_files.h"
#include "report/receptive_field.h"
#include "train/source/text.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

enum { B = 3, T = 48 };

typedef struct rig {
    tn_tempdir dir;
    tn_dataset *data;
    tn_settings *settings;
    const tn_model *model;
    tn_trainer *trainer; /* owns the store; puts out logits */
} rig;

static void make_trainer(rig *r, const char *model, const char *const *more, bool documents)
{
    const char *set[9] = { "dim=32", "layers=2", "heads=2", "vocab=256", "train.context=48", "threads=1" };
    size_t n = 6;
    for (int i = 0; i < 3 && more[i]; i++) set[n++] = more[i];
    assert_ok(tn_settings_resolve(model, set, n, &r->settings, &r->model));
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = r->model,
                                                    .settings = r->settings,
                                                    .batch = B,
                                                    .length = T,
                                                    .logits = true,
                                                    .forward_only = true,
                                                    .input_spec = &(tn_input_spec){ .optional = documents } },
                             &r->trainer));
    const tn_entry *e = tn_store_find(tn_trainer_store(r->trainer), "embed"); /* so that labels differ */
    for (int64_t i = 0; i < tn_dims_count(e->dims); i++) ((float *)e->data)[i] *= 20;
}

static void open_rig(rig *r, const char *model, const char *const *more, bool documents)
{
    *r = (rig){ 0 };
    tn_tempdir_make(&r->dir);
    if (documents) tn_put_documents(tn_tempdir_file(&r->dir, "d.jsonl"), 24);
    else {
        FILE *f = fopen(tn_tempdir_file(&r->dir, "d.txt"), "w");
        for (int i = 0; i < 300; i++) fprintf(f, "line %d of %d\n", i, i * i % 83);
        fclose(f);
    }
    assert_ok(tn_dataset_open(tn_tempdir_file(&r->dir, documents ? "d.jsonl" : "d.txt"),
                              &(tn_dataset_options){ .holdout_frac = 0.2 }, &r->data));
    make_trainer(r, model, more, documents);
}

static void close_rig(rig *r)
{
    tn_trainer_free(r->trainer);
    tn_settings_free(r->settings);
    tn_dataset_close(r->data);
    tn_tempdir_clear(&r->dir);
}

static double nll_of(const float *logits, int32_t label)
{
    double most = (double)logits[0], sum = 0;
    for (int v = 1; v < 256; v++)
        if ((double)logits[v] > most) most = (double)logits[v];
    for (int v = 0; v < 256; v++) sum += exp((double)logits[v] - most);
    return most + log(sum) - (double)logits[label];
}

/* --- by position -------------------------------------------------------------------------------------------------- */

enum { MOST_ROWS = 4096, BUCKETS = 6 }; /* 0-1, 2-3, 4-7, 8-15, 16-31, 32-47 */

typedef struct direct {
    double loss[MOST_ROWS][BUCKETS], tokens[MOST_ROWS][BUCKETS];
    int rows;
} direct;

static void by_hand(rig *r, tn_loader_mode mode, direct *d)
{
    tn_source source;
    int64_t count, n;
    float loss;
    *d = (direct){ 0 };
    assert_ok(tn_source_text_open(
        &(tn_source_text_options){ .data = r->data, .mode = mode },
        &(tn_source_start){ .trainer = r->trainer, .batch = B, .length = T, .heldout = TN_VALID, .heldout_only = true },
        &source));
    for (int64_t i = 0;; i++) {
        assert_ok(tn_source_heldout(&source, i, r->trainer, &count));
        if (count == 0) break;
        assert_ok(tn_trainer_eval(r->trainer, &loss));
        const float *logits = tn_trainer_output(r->trainer, "logits", &n);
        const int32_t *labels = tn_trainer_input(r->trainer, "labels"), *reset = tn_trainer_input(r->trainer, "reset"),
                      *document = tn_trainer_input(r->trainer, "document");
        for (int b = 0; b < B; b++, d->rows++) {
            int at = 0;
            assert_true(d->rows < MOST_ROWS);
            for (int t = 0; t < T; t++, at++) {
                const int k = b * T + t;
                if (t && reset && reset[k]) at = 0;
                if (t && !reset && document && document[k] != document[k - 1]) at = 0;
                if (labels[k] < 0) continue;
                const int bucket = at < 2 ? 0 : at < 4 ? 1 : at < 8 ? 2 : at < 16 ? 3 : at < 32 ? 4 : 5;
                d->loss[d->rows][bucket] += nll_of(logits + (int64_t)k * 256, labels[k]);
                d->tokens[d->rows][bucket]++;
            }
        }
    }
    tn_source_close(&source);
}

static void compare(const direct *d, const tn_position_row *row, int bucket)
{
    double loss = 0, tokens = 0, squares = 0, rows = 0;
    for (int i = 0; i < d->rows; i++) {
        loss += d->loss[i][bucket];
        tokens += d->tokens[i][bucket];
        rows += d->tokens[i][bucket] > 0;
    }
    assert_true(row->tokens == (int64_t)tokens && row->rows == (int64_t)rows && tokens > 0);
    assert_true(fabs(row->loss - loss / tokens) < 1e-5);
    for (int i = 0; i < d->rows; i++) squares += pow(d->loss[i][bucket] - loss / tokens * d->tokens[i][bucket], 2);
    assert_true(fabs(row->error - sqrt(squares * rows / (rows - 1)) / tokens) < 1e-4);
}

static const struct row {
    const char *name, *model, *more[3];
    bool documents;
} rows[] = {
    { "gpt, learned positions, documents", "gpt", { "shape=gpt2" }, true },
    { "gpt, rotary, documents", "gpt", { "shape=llama" }, true },
    { "ten, documents", "ten", { "pattern=DO" }, true },
    { "ten, one text", "ten", { "pattern=DO" }, false },
    { "ten with energy in its loss", "ten", { "pattern=E", "energy=0.1" }, false },
    { "gpt, logits in memory", "gpt", { "opt.linear_xent=off" }, false },
};

static void positions(void **state)
{
    static direct d;
    const struct row *x = *state;
    const tn_loader_mode mode = x->documents ? TN_LOADER_PACK : TN_LOADER_WINDOW;
    rig r;
    tn_positions p;
    tn_source source;
    tn_evaluation whole;
    open_rig(&r, x->model, x->more, x->documents);
    by_hand(&r, mode, &d);
    const tn_positions_options o = { .model = r.model,
                                     .settings = r.settings,
                                     .store = tn_trainer_store(r.trainer),
                                     .data = r.data,
                                     .mode = mode,
                                     .split = TN_VALID,
                                     .context = T,
                                     .batch = B };
    assert_ok(tn_positions_measure(&o, &p));
    assert_int_equal(p.n, BUCKETS);
    assert_true(p.row[0].first == 0 && p.row[0].last == 1 && p.row[5].first == 32 && p.row[5].last == T - 1);
    for (int b = 0; b < BUCKETS; b++) compare(&d, &p.row[b], b);
    assert_ok(tn_source_text_open(
        &(tn_source_text_options){ .data = r.data, .mode = mode },
        &(tn_source_start){ .trainer = r.trainer, .batch = B, .length = T, .heldout = TN_VALID, .heldout_only = true },
        &source));
    assert_ok(tn_evaluate(r.trainer, &source, 0, &whole));
    assert_true(whole.count == p.tokens && fabs(tn_scores_get(&whole.scores, "loss") - p.loss) < 1e-5 &&
                p.bits == source.bits);
    tn_source_close(&source);
    tn_positions_options few = o;
    few.tokens = 1;
    assert_ok(tn_positions_measure(&few, &p));
    assert_true(p.tokens > 0 && p.tokens <= B * T && p.tokens < whole.count);
    close_rig(&r);
}

/* Beyond what it was trained on: rotary models and ten have a loss there, a table of positions has none. */
static void longer(void **state)
{
    static const struct {
        const char *model, *more[3], *why;
    } row[] = {
        { "gpt", { "shape=gpt2" }, "learned positions end at train.context=48" },
        { "ten", { "pos=learned" }, "learned positions end at train.context=48" },
        { "ten", { "pos=sin" }, "table of positions ends at train.context=48" },
        { "gpt", { "shape=llama" }, NULL },
        { "ten", { "pattern=DO" }, NULL },
    };
    rig r;
    tn_positions p;
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        open_rig(&r, row[i].model, row[i].more, false);
        const tn_positions_options o = { .model = r.model,
                                         .settings = r.settings,
                                         .store = tn_trainer_store(r.trainer),
                                         .data = r.data,
                                         .mode = TN_LOADER_WINDOW,
                                         .split = TN_VALID,
                                         .context = 2 * T,
                                         .batch = 1 };
        if (row[i].why) assert_fails(tn_positions_measure(&o, &p), TN_USAGE, row[i].why);
        else {
            assert_ok(tn_positions_measure(&o, &p));
            assert_true(p.n == 7 && p.row[6].first == 64 && p.row[6].last == 95 && p.row[6].tokens > 0);
        }
        close_rig(&r);
    }
}

/* --- how far back ------------------------------------------------------------------------------------------------- */

static tn_receptive_field_options reach_options(const rig *r)
{
    return (tn_receptive_field_options){ .model = r->model,
                                         .settings = r->settings,
                                         .store = tn_trainer_store(r->trainer),
                                         .data = r->data,
                                         .split = TN_VALID,
                                         .whole = 16,
                                         .targets = 60,
                                         .tokens = 40 };
}

/* The loss of one label after n tokens that begin at `at`. */
static double alone(const rig *r, uint64_t at, int64_t n)
{
    int32_t ids[17];
    int64_t count;
    float loss;
    tn_trainer *t;
    assert_ok(tn_trainer_new(&(tn_trainer_options){ .model = r->model,
                                                    .settings = r->settings,
                                                    .batch = 1,
                                                    .length = n,
                                                    .logits = true,
                                                    .forward_only = true,
                                                    .store = tn_trainer_store(r->trainer) },
                             &t));
    assert_ok(tn_dataset_read(r->data, TN_VALID, at, (size_t)n + 1, ids));
    memcpy(((int32_t *)tn_trainer_input(t, "tokens")), ids, sizeof *ids * (size_t)n);
    memcpy(((int32_t *)tn_trainer_input(t, "labels")), ids + 1, sizeof *ids * (size_t)n);
    assert_ok(tn_trainer_eval(t, &loss));
    const double nll = nll_of(tn_trainer_output(t, "logits", &count) + (n - 1) * 256, ids[n]);
    tn_trainer_free(t);
    return nll;
}

/* The mean over the last two labels of 30 windows of 16 tokens, one every `stride` times two tokens, after n tokens
 * each. */
static double mean_alone(const rig *r, int64_t stride, int64_t n)
{
    double sum = 0;
    for (int64_t w = 0; w < 30; w++) {
        const int64_t start = w * stride * 2;
        sum += alone(r, (uint64_t)(start + 14 - n + 1), n);
        sum += alone(r, (uint64_t)(start + 15 - n + 1), n);
    }
    return sum / 60;
}

/* Whole context 16: the last 2 labels of each window are scored; on 8 and fewer tokens each by a row of its own. */
static void reach(void **state)
{
    static const char *const more[3] = { "pattern=DO" };
    rig r;
    tn_receptive_field found;
    (void)state;
    open_rig(&r, "ten", more, false);
    const tn_receptive_field_options o = reach_options(&r);
    assert_ok(tn_receptive_field_measure(&o, &found));
    assert_true(found.n == 5 && found.row[4].given == 16 && found.windows == 30 && found.targets == 60 &&
                found.documents == 1);
    const int64_t tokens = (int64_t)tn_dataset_count(r.data, TN_VALID).tokens, all = (tokens - 17) / 2 + 1,
                  stride = all / 30;
    for (int i = 0; i < 4; i++)
        assert_true(fabs(found.row[i].loss - mean_alone(&r, stride, found.row[i].given)) < 1e-5);
    for (int i = 0; i < 4; i++) assert_true(fabs(found.row[i].more - (found.row[i].loss - found.row[4].loss)) < 1e-9);
    assert_true(found.row[4].more == 0 && found.row[0].error > 0 && found.row[0].why[0] == 0);
    close_rig(&r);
}

/* One layer of attention over 4 tokens: what lies further back changes nothing. */
static void window(void **state)
{
    static const char *const more[3] = { "pattern=W", "window=4", "layers=1" };
    rig r;
    tn_receptive_field found;
    (void)state;
    open_rig(&r, "ten", more, false);
    static const char *const loud[] = { "layer0.mixer.w_qkv", "layer0.mixer.w_out" };
    for (int k = 0; k < 2; k++) {
        const tn_entry *e = tn_store_find(tn_trainer_store(r.trainer), loud[k]);
        assert_non_null(e);
        for (int64_t i = 0; i < tn_dims_count(e->dims); i++) ((float *)e->data)[i] *= 20;
    }
    const tn_receptive_field_options o = reach_options(&r);
    assert_ok(tn_receptive_field_measure(&o, &found));
    for (size_t i = 0; i < found.n; i++)
        assert_true(found.row[i].given < 4 ? fabs(found.row[i].more) > 1e-3 : fabs(found.row[i].more) < 1e-6);
    assert_true(found.effective <= 4);
    close_rig(&r);
}

static void refused(void **state)
{
    static const char *const learned[3] = { "shape=gpt2" };
    rig r;
    tn_receptive_field found;
    (void)state;
    open_rig(&r, "gpt", learned, true);
    tn_receptive_field_options o = reach_options(&r);
    o.whole = 4;
    assert_fails(tn_receptive_field_measure(&o, &found), TN_USAGE, "8 tokens or more");
    o.whole = 1 << 20;
    assert_fails(tn_receptive_field_measure(&o, &found), TN_USAGE, "no held-out document has more than 1048576 tokens");
    o.whole = 64;
    assert_fails(tn_receptive_field_measure(&o, &found), TN_USAGE, "learned positions end at train.context=48");
    close_rig(&r);
}

void tn_tests_positions(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tn_test_add(l, positions, &rows[i], "positions: %s", rows[i].name);
    tn_test_add(l, longer, NULL, "positions: beyond the trained context");
    tn_test_add(l, reach, NULL, "reach: rows one by one");
    tn_test_add(l, window, NULL, "reach: a window that ends");
    tn_test_add(l, refused, NULL, "reach: refused");
}
