/* Sentence pairs on their way into a step: what a batch holds, sizes of the model from the data, a run in pieces, and the tokenizer in
 * its folder. */
#include "tasks/pairs.h"
#include "train/source/task_setup.h"

#include "dataset_files.h"
#include "run_pieces.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"

#include <math.h>
#include <stdlib.h>

enum { B = 8, TEXT = 16, TRAIN = 30, STEPS = 12 };

/* --- a model that reads pairs --------------------------------------------------------------------------------------------------- */

static const tn_setting settings[] = {
    TN_SETTING_AUTO_INT("vocab", "auto", TN_RANGE(1, 1e6), "", "different tokens (auto: the data's)"),
    TN_SETTING_AUTO_INT("text", "auto", TN_RANGE(1, 4096), "", "tokens of a sentence (auto: the data's)"),
};

static const tn_input_row inputs[] = {
    { "premise", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "premise_length", TN_I32, .dims = { TN_B } },
    { "hypothesis", TN_I32, { TN_B, "text" }, .below = "vocab" },
    { "hypothesis_length", TN_I32, .dims = { TN_B } },
    { "count", TN_I32, { "1" }, .valid_rows = true },
    { "sample", TN_I32, .dims = { TN_B } },
};

/* Sums of a row's vectors shall be alike. */
static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t n = tn_settings_int(st, "vocab"), text = tn_settings_int(st, "text");
    const tn_ref table = tn_param(g, "table", tn_shape(n, 4), tn_normal(0.3f));
    tn_ref row[2];
    for (int k = 0; k < 2; k++) {
        const tn_ref x = tn_embed(g, tn_in(b, k ? "hypothesis" : "premise"), table);
        row[k] = tn_live(g, tn_reshape(g, x, tn_shape(b->batch, text * 4)), tn_in(b, "count"));
    }
    tn_output(g, "lengths", tn_copy(g, tn_in(b, "premise_length")));
    tn_output(g, "others", tn_copy(g, tn_in(b, "hypothesis_length")));
    tn_output(g, "numbers", tn_copy(g, tn_in(b, "sample")));
    tn_output(g, "loss", tn_mse(g, row[0], row[1]));
    return tn_number(b, "text") == (double)text ? tn_graph_status(g) : tn_model_error("no number text");
}

static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };

static const tn_model twins = { TN_MODEL_HEAD,   .name = "twins", .summary = "two sentences", .settings = settings,
                                .n_settings = 2, .build = build,  TN_INPUTS(inputs),          TN_METRICS(metrics) };

/* --- files ---------------------------------------------------------------------------------------------------------------------- */

static void put_tables(tn_tempdir *d)
{
    static const char *const names[] = { "snli_train.tsv", "snli_dev.tsv", "snli_test.tsv" };
    static const int rows[] = { TRAIN, 11, 9 };
    char text[8192];
    for (int k = 0; k < 3; k++) {
        int n = sprintf(text, "gold_label\tsentence1\tsentence2\n");
        for (int i = 0; i < rows[k]; i++)
            n += sprintf(text + n, "entailment\tThe %s %d sees a tree .\tSomebody sees %d trees .\n", names[k] + 5, i,
                         i);
        tn_put_file(tn_tempdir_file(d, names[k]), text, (size_t)n);
    }
}

static tn_status try_session(tn_session *s, const tn_model *model, const tn_tempdir *d, const char *words)
{
    tn_settings *st;
    char text[1200];
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, model->settings, model->n_settings, model->name));
    snprintf(text, sizeof text,
             "task=snli task.data=%s task.vocab=300 task.length=%d threads=1 train.batch=%d train.steps=%d "
             "train.warmup=2 %s",
             d->path, TEXT, B, STEPS, words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    const tn_status status =
        tn_session_open_with(&(tn_session_options){ .settings = st, .model = model, .needs_data = true }, s);
    tn_settings_free(st);
    return status;
}

/* --- batches -------------------------------------------------------------------------------------------------------------------- */

static void assert_batch(tn_session *s, const tn_pairs *p, tn_data_split split, int64_t first, int64_t rows)
{
    static const char *const names[] = { "premise", "premise_length", "hypothesis", "hypothesis_length" };
    const int32_t *sample = tn_trainer_input(s->trainer, "sample");
    int32_t ids[TEXT];
    assert_int_equal(*(const int32_t *)tn_trainer_input(s->trainer, "count"), rows);
    for (int which = 0; which < 2; which++) {
        const int32_t *x = tn_trainer_input(s->trainer, names[2 * which]),
                      *n = tn_trainer_input(s->trainer, names[2 * which + 1]);
        for (int64_t b = 0; b < B; b++) {
            memset(ids, 0, sizeof ids);
            const int64_t i = split == TN_TRAIN ? sample[b] : first + b,
                          length = b < rows ? tn_pairs_read(p, split, i, which, ids) : 0;
            assert_memory_equal(x + b * TEXT, ids, sizeof ids);
            assert_int_equal(n[b], length);
        }
    }
}

static void batches(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_session s;
    tn_pairs *p = NULL;
    int64_t count;
    bool seen[TRAIN] = { false };
    tn_tempdir_make(&d);
    put_tables(&d);
    assert_ok(try_session(&s, &twins, &d, ""));
    assert_ok(tn_task_named("snli")->pairs(s.settings, &p));
    assert_true(s.source.prefetch && s.source.tokenizer && tn_settings_int(s.settings, "vocab") == p->vocab &&
                tn_settings_int(s.settings, "text") == TEXT && p->vocab > 257);
    for (int64_t batch = 0; batch < 4; batch++) {
        const int64_t rows = batch < 3 ? B : TRAIN - 3 * B;
        assert_ok(tn_source_next(&s.source, batch, s.trainer, &count));
        assert_int_equal(count, rows);
        assert_batch(&s, p, TN_TRAIN, 0, rows);
        const int32_t *sample = tn_trainer_input(s.trainer, "sample");
        for (int64_t b = 0; b < rows; b++) assert_false(seen[sample[b]]), seen[sample[b]] = true;
    }
    for (int64_t i = 0; i < 2; i++) {
        assert_ok(tn_source_heldout(&s.source, i, s.trainer, &count));
        assert_int_equal(count, i ? 11 - B : B);
        assert_batch(&s, p, TN_VALID, i * B, count);
    }
    tn_pairs_free(p);
    tn_session_close(&s);
    tn_tempdir_clear(&d);
}

static void refused(void **state)
{
    (void)state;
    static const tn_setting sizes[] = {
        TN_SETTING_AUTO_INT("inputs", "auto", TN_RANGE(1, 1e6), "", "features"),
        TN_SETTING_AUTO_INT("classes", "auto", TN_RANGE(2, 1e6), "", "classes"),
    };
    static const tn_input_row features[] = { { "features", TN_F32, .dims = { TN_B, "inputs" } } };
    static const tn_model other = { TN_MODEL_HEAD,   .name = "other", .settings = sizes,
                                    .n_settings = 2, .build = build,  TN_INPUTS(features) };
    tn_tempdir d;
    tn_session s;
    tn_tempdir_make(&d);
    put_tables(&d);
    assert_fails(try_session(&s, &other, &d, ""), TN_USAGE,
                 "task=snli gives pairs of sentences, and other has no input premise");
    assert_fails(try_session(&s, &twins, &d, "tokenizer=bytes"), TN_USAGE,
                 "tokenizer=bytes: the task snli has its own: remove it");
    assert_fails(try_session(&s, &twins, &d, "data=book.txt"), TN_USAGE,
                 "data=book.txt: the task snli has its own: remove it");
    assert_fails(try_session(&s, &twins, &d, "vocab=20"), TN_USAGE, "vocab=20 is too small for the task snli");
    assert_fails(try_session(&s, &twins, &d, "text=8"), TN_USAGE,
                 "the model takes i32 (B,8) and the data have i32 (B,16)");
    tn_tempdir_clear(&d);
}

/* --- runs ----------------------------------------------------------------------------------------------------------------------- */

static tn_status train(const tn_tempdir *d, const char *run, const char *words, int64_t stop_after,
                       tn_progress_report *last)
{
    char text[600];
    tn_session on = { 0 };
    snprintf(text, sizeof text, "model=twins train.eval_every=5 ckpt.every=4 run=%s/%s %s", d->path, run, words);
    TN_RETURN_IF(try_session(&on, &twins, d, text));
    return tn_run_piece(&on, "twins", stop_after, last);
}

static void sessions(void **state)
{
    (void)state;
    char command[600], folder[300];
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    tn_tokenizer *own = NULL;
    tn_session s;
    tn_tempdir_make_quick(&d);
    put_tables(&d);
    assert_ok(train(&d, "a", "loader.workers=0", -1, &whole));
    for (int i = 0; last.step < STEPS && i < 20; i++) {
        const tn_status status = train(&d, "b", "loader.prefetch=3", i, &last);
        assert_int_equal(status, last.step < STEPS ? TN_INTERRUPTED : TN_OK);
    }
    assert_true(last.step == STEPS && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    snprintf(command, sizeof command,
             "cd '%s' && for f in latest/model.safetensors latest/state.safetensors tokenizer.json; do cmp a/$f b/$f "
             "|| exit 1; done",
             d.path);
    assert_int_equal(system(command), 0);
    snprintf(folder, sizeof folder, "%s/a/tokenizer.json", d.path); /* what the run keeps is what it was trained with */
    assert_ok(tn_tokenizer_open(folder, &own));
    assert_ok(try_session(&s, &twins, &d, ""));
    assert_true(tn_tokenizer_hash(own) == tn_tokenizer_hash(s.source.tokenizer));
    tn_tokenizer_free(own);
    snprintf(folder, sizeof folder, "%s/a", d.path);
    tn_saved_model m = { .settings = s.settings, .model = &twins };
    snprintf(m.config, sizeof m.config, "%s", folder);
    tn_model_tokens tokens;
    assert_ok(tn_saved_model_tokenizer(&m, "", &own, &tokens));
    tn_model_tokens_free(&tokens);
    assert_true(tn_tokenizer_hash(own) == tn_tokenizer_hash(s.source.tokenizer));
    tn_tokenizer_free(own);
    tn_session_close(&s);
    assert_fails(train(&d, "a", "task.vocab=290", -1, &last), TN_USAGE, "task.vocab: the run has task.vocab=300");
    tn_tempdir_remove_all(&d);
}

void tn_tests_source_pairs(tn_test_list *l)
{
    tn_test_add(l, batches, NULL, "pair source: batches");
    tn_test_add(l, refused, NULL, "pair source: what is refused");
    tn_test_add(l, sessions, NULL, "pair run: in sessions of 0, 1, 2, ... steps");
}
