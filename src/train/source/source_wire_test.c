/* Texts with questions on their way into a step: every input against the layout of its texts, which questions are asked, and what of an answer
 * reaches a model. */
#include "wire_world.h"

#include "run_pieces.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/run/training.h"
#include "train/source/task_setup.h"
#include "train/source/wire_made.h"

enum { B = 8, TRAIN = 30, HELDOUT = 11, Q = 3, READERS = 2, STEPS = 6 };
#define WORDS "task.size=30 task.heldout=11 task.pairs=5 task.keys=60 task.questions=3"

/* --- a model that reads them ---------------------------------------------------------------------------------------------------- */

#define SIZE(name) TN_SETTING_AUTO_INT(name, "auto", TN_RANGE(1, 1e6), "", "a size (auto: the data's)")
static const tn_setting settings[] = {
    SIZE("bytes"),
    SIZE("questions"),
    SIZE("a.length"),
    SIZE("a.before"),
    SIZE("a.text"),
    SIZE("a.told"),
    SIZE("c.length"),
    SIZE("c.text"),
    SIZE("c.told"),
    TN_SETTING_TEXT("a.model", "", "a reader"),
    TN_SETTING_TEXT("a.tokenizer", "", "its tokenizer"),
    TN_SETTING_TEXT("b.model", "", "a reader"),
    TN_SETTING_TEXT("c.model", "", "a reader"),
    TN_SETTING_TEXT("c.tokenizer", "", "its tokenizer"),
};

/* clang-format off */
#define READER(X)                                                                          \
    { X ".tokens", TN_I32, .dims = { TN_B, "questions", X ".length" } },                   \
    { X ".labels", TN_I32, .dims = { TN_B, "questions", X ".length" }, .pad = -1 },        \
    { X ".text", TN_I32, .dims = { TN_B, X ".text" } },                                    \
    { X ".text_labels", TN_I32, .dims = { TN_B, X ".text" }, .pad = -1 },                  \
    { X ".text_length", TN_I32, .dims = { TN_B } },                                        \
    { X ".told", TN_I32, .dims = { TN_B, "questions", X ".told" } },                       \
    { X ".told_document", TN_I32, .dims = { TN_B, "questions", X ".told" } }
/* clang-format on */
static const tn_input_row inputs[] = {
    { "bytes", TN_I32, .dims = { TN_B, "bytes" } },
    { "lengths", TN_I32, .dims = { TN_B } },
    { "sample", TN_I32, .dims = { TN_B } },
    { "kind", TN_I32, .dims = { TN_B } },
    { "count", TN_I32, .dims = { "1" }, .valid_rows = true },
    READER("a"),
    READER("c"),
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static tn_status build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    const int64_t n = tn_settings_int(st, "bytes");
    tn_ref row[2];
    for (int k = 0; k < 2; k++) {
        const tn_ref table = tn_param(g, k ? "one" : "other", tn_shape(256, 2), tn_normal(0.3f));
        const tn_ref x = tn_embed(g, tn_in(b, "bytes"), table);
        row[k] = tn_live(g, tn_reshape(g, x, tn_shape(b->batch, n * 2)), tn_in(b, "count"));
    }
    for (size_t i = 0; i < INPUTS; i++)
        if (!inputs[i].valid_rows) tn_output(g, inputs[i].name, tn_copy(g, tn_in(b, inputs[i].name)));
    tn_output(g, "loss", tn_mse(g, row[0], row[1]));
    return tn_number(b, "contexts") == TRAIN ? tn_graph_status(g) : tn_model_error("no number contexts");
}

static const tn_metric_row metrics[] = { { "loss", .how = TN_MEAN_BY_COUNT } };
static const tn_model reads = { TN_MODEL_HEAD,
                                .name = "reads",
                                .summary = "texts",
                                .settings = settings,
                                .n_settings = sizeof settings / sizeof *settings,
                                .build = build,
                                TN_INPUTS(inputs),
                                TN_METRICS(metrics) };

static tn_status try_session(tn_session *s, const tn_model *model, const char *words)
{
    tn_settings *st;
    char text[1200];
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, model->settings, model->n_settings, model->name));
    snprintf(text, sizeof text, "threads=1 train.batch=%d train.steps=%d train.warmup=2 %s", B, STEPS, words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    const tn_status status =
        tn_session_open_with(&(tn_session_options){ .settings = st, .model = model, .needs_data = true }, s);
    tn_settings_free(st);
    return status;
}

#define MODELS "a.model=gpt_tiny a.tokenizer=bytes c.model=gpt_tiny c.tokenizer=tests/token/mini_llama2.json "

/* --- batches -------------------------------------------------------------------------------------------------------------------- */

typedef struct world {
    tn_session s;
    tn_wire_texts *texts;
    tn_wire_example e;
    tn_wire_reader reader[READERS];
    tn_tokenizer *tokenizer[READERS];
    tn_tokenizer_scratch *scratch;
    tn_wire_tokens work;
} world;

static void begin(world *w, const char *words)
{
    char text[900];
    *w = (world){ .texts = NULL };
    snprintf(text, sizeof text, "task=recall " MODELS WORDS " %s", words);
    assert_ok(try_session(&w->s, &reads, text));
    assert_ok(tn_task_named("recall")->texts(w->s.settings, &w->texts));
    assert_ok(tn_tokenizer_open("bytes", &w->tokenizer[0]));
    assert_ok(tn_tokenizer_open("tests/token/mini_llama2.json", &w->tokenizer[1]));
    w->reader[0] = (tn_wire_reader){ 'a', w->tokenizer[0], 0, 0 };
    w->reader[1] = (tn_wire_reader){ 'c', w->tokenizer[1], tn_tokenizer_special(w->tokenizer[1], TN_TOKEN_BOS),
                                     tn_tokenizer_special(w->tokenizer[1], TN_TOKEN_EOS) };
    assert_true(w->reader[1].bos != w->reader[1].eos);
    assert_ok(tn_tokenizer_scratch_new(&w->scratch));
}

static void end(world *w)
{
    tn_session_close(&w->s);
    tn_wire_texts_free(w->texts);
    tn_wire_example_free(&w->e);
    tn_wire_tokens_free(&w->work);
    tn_tokenizer_scratch_free(w->scratch);
    for (int r = 0; r < READERS; r++) tn_tokenizer_free(w->tokenizer[r]);
}

static const int32_t *input(const world *w, char letter, const char *name)
{
    char text[40];
    snprintf(text, sizeof text, "%c.%s", letter, name);
    const int32_t *x = tn_trainer_input(w->s.trainer, letter ? text : name);
    assert_non_null(x);
    return x;
}

static int64_t size(const world *w, char letter, const char *name)
{
    char text[40];
    snprintf(text, sizeof text, "%c.%s", letter, name);
    return tn_settings_int(w->s.settings, text);
}

/* Question k (-1: there is none) of row b: tokens and labels at the same index, and the same at the end of the row that is read as text. */
static void assert_question(world *w, int r, int64_t b, int64_t at, int32_t k)
{
    const char x = w->reader[r].letter;
    const int64_t length = size(w, x, "length"), told = size(w, x, "told"), row = b * Q + at;
    const int32_t *tokens = input(w, x, "tokens") + row * length, *labels = input(w, x, "labels") + row * length,
                  *all = input(w, x, "told") + row * told, *document = input(w, x, "told_document") + row * told;
    tn_tokens ids = { 0 };
    size_t answer = 0;
    tn_wire_parts p = { 0 };
    if (k >= 0) {
        const tn_wire_question *q = &w->e.question[k];
        p = (tn_wire_parts){ .question = tn_wire_at(&w->e, q->question),
                             .question_bytes = q->question.bytes,
                             .answer = tn_wire_at(&w->e, w->e.gold[q->gold]),
                             .answer_bytes = w->e.gold[q->gold].bytes };
        assert_ok(tn_wire_lay_out(&w->reader[r], w->scratch, &p, &w->work, &ids, &answer));
    }
    for (int64_t i = 0; i < length; i++) {
        const bool here = i < (int64_t)ids.n;
        assert_int_equal(tokens[i], here ? ids.ids[i] : 0);
        assert_int_equal(labels[i], here && i >= (int64_t)answer ? ids.ids[i] : -1); /* EOS among them, BOS never */
    }
    assert_memory_equal(all + told - (length - 1), tokens + 1, (size_t)(length - 1) * sizeof *all);
    int64_t first = told;
    if (k >= 0) {
        p.context = tn_wire_at(&w->e, w->e.context);
        p.context_bytes = w->e.context.bytes;
        p.anchor = "\n";
        p.anchor_bytes = 1;
        const size_t before = ids.n;
        assert_ok(tn_wire_lay_out(&w->reader[r], w->scratch, &p, &w->work, &ids, &answer));
        first = told - (length - 1) - (int64_t)(ids.n - (before - 1));
        assert_true(first >= 0);
        assert_memory_equal(all + first, ids.ids, ids.n * sizeof *all);
    }
    for (int64_t i = 0; i < told; i++) {
        if (i < first) assert_int_equal(all[i], 0);
        assert_int_equal(document[i], i >= first);
    }
    tn_tokens_free(&ids);
}

static void assert_text(world *w, int r, int64_t b)
{
    const char x = w->reader[r].letter;
    const int64_t length = size(w, x, "text");
    const int32_t *tokens = input(w, x, "text") + b * length, *labels = input(w, x, "text_labels") + b * length;
    const tn_wire_parts p = { .context = tn_wire_at(&w->e, w->e.context), .context_bytes = w->e.context.bytes };
    tn_tokens ids = { 0 };
    size_t answer;
    assert_ok(tn_wire_lay_out(&w->reader[r], w->scratch, &p, &w->work, &ids, &answer));
    assert_int_equal(input(w, x, "text_length")[b], ids.n);
    for (int64_t i = 0; i < length; i++) {
        const bool here = i < (int64_t)ids.n;
        assert_int_equal(tokens[i], here ? ids.ids[i] : 0);
        assert_int_equal(labels[i], here && i ? ids.ids[i] : -1);
    }
    tn_tokens_free(&ids);
}

static void assert_batch(world *w, int split, int64_t first, int64_t rows, int64_t step)
{
    const int64_t most = tn_settings_int(w->s.settings, "bytes"), seed = tn_settings_int(w->s.settings, "seed");
    const int32_t *sample = input(w, 0, "sample"), *bytes = input(w, 0, "bytes"), *n = input(w, 0, "lengths");
    int32_t picked[5];
    assert_int_equal(*input(w, 0, "count"), rows);
    for (int64_t b = 0; b < rows; b++) {
        const int64_t i = split == TN_TRAIN ? sample[b] : first + b;
        assert_ok(tn_wire_read(w->texts, split, i, &w->e));
        if (split != TN_TRAIN) assert_int_equal(sample[b], 0);
        assert_int_equal(n[b], w->e.context.bytes);
        for (int64_t k = 0; k < most; k++)
            assert_int_equal(bytes[b * most + k], k < n[b] ? (unsigned char)tn_wire_at(&w->e, w->e.context)[k] : 0);
        assert_int_equal(input(w, 0, "kind")[b], TN_WIRE_QA);
        assert_int_equal(tn_wire_pick((uint64_t)seed, step, split, i, 5, Q, picked), Q);
        for (int r = 0; r < READERS; r++) {
            assert_text(w, r, b);
            for (int64_t k = 0; k < Q; k++) assert_question(w, r, b, k, picked[k]);
        }
    }
    for (int64_t b = rows; b < B; b++) {
        assert_int_equal(n[b], 0);
        for (int64_t k = 0; k < Q * size(w, 'a', "length"); k++)
            assert_int_equal(input(w, 'a', "labels")[b * Q * size(w, 'a', "length") + k], -1);
    }
}

static void batches(void **state)
{
    (void)state;
    world w;
    int64_t count;
    bool seen[TRAIN] = { false };
    begin(&w, "");
    assert_true(w.s.source.prefetch && tn_settings_int(w.s.settings, "questions") == Q);
    for (int64_t batch = 0; batch < 4; batch++) {
        const int64_t rows = batch < 3 ? B : TRAIN - 3 * B;
        assert_ok(tn_source_next(&w.s.source, batch, w.s.trainer, &count));
        assert_int_equal(count, rows);
        assert_batch(&w, TN_TRAIN, 0, rows, batch);
        const int32_t *sample = input(&w, 0, "sample");
        for (int64_t b = 0; b < rows; b++) assert_false(seen[sample[b]]), seen[sample[b]] = true;
    }
    for (int64_t i = 0; i < 2; i++) {
        assert_ok(tn_source_heldout(&w.s.source, i, w.s.trainer, &count));
        assert_int_equal(count, i ? HELDOUT - B : B);
        assert_batch(&w, TN_VALID, i * B, count, -1);
    }
    end(&w);
}

/* No answer begins behind a.before tokens; who says less is refused. */
static void before_answers(void **state)
{
    (void)state;
    world w;
    tn_session s = { 0 };
    int64_t count, most = 0;
    begin(&w, "");
    const int64_t n = size(&w, 'a', "length"), before = size(&w, 'a', "before");
    for (int64_t batch = 0; batch < 8; batch++) {
        assert_ok(tn_source_next(&w.s.source, batch, w.s.trainer, &count));
        const int32_t *labels = input(&w, 'a', "labels");
        for (int64_t row = 0; row < count * Q; row++) {
            int64_t at = 0;
            while (at < n && labels[row * n + at] < 0) at++;
            most = at < n && at > most ? at : most;
        }
    }
    assert_true(most > 1 && before == most);
    end(&w);
    assert_fails(try_session(&s, &reads, "task=recall " MODELS WORDS " a.before=2"), TN_USAGE,
                 "a.before=2: a question has");
}

/* --- what an answer changes ----------------------------------------------------------------------------------------------------- */

/* D8: an answer that is longer changes tokens and labels, and the end of what is told; nothing else. Contexts with the same text and question
 * whose answers differ in length. */
static tn_status read_pair(const tn_wire_texts *t, int split, int64_t i, tn_wire_example *e)
{
    static const char context[] = "somewhere a long text\n";
    const char *const answer[] = { " x", " x y z", " this is the longest of all answers" };
    (void)t;
    (void)split;
    void *p = e->text.data;
    TN_RETURN_IF(tn_grow(&p, &e->text.capacity, 200, 1));
    e->text.data = p;
    e->text.n = (size_t)snprintf(p, 200, "%swhat:%s", context, answer[i]);
    p = e->question;
    TN_RETURN_IF(tn_grow(&p, &e->question_capacity, 1, sizeof *e->question));
    e->question = p;
    p = e->gold;
    TN_RETURN_IF(tn_grow(&p, &e->gold_capacity, 1, sizeof *e->gold));
    e->gold = p;
    const size_t at = sizeof context - 1;
    e->context = (tn_wire_span){ 0, at };
    e->question[0] = (tn_wire_question){ { at, 5 }, 0, 1 };
    e->gold[0] = (tn_wire_span){ at + 5, e->text.n - at - 5 };
    e->questions = e->golds = 1;
    return TN_OK;
}

static void close_none(void *data) { (void)data; }

static tn_status open_pair(const tn_settings *st, tn_wire_texts **out)
{
    (void)st;
    *out = tn_alloc(sizeof **out);
    **out = (tn_wire_texts){ .task = "pair",
                             .kind = TN_WIRE_QA,
                             .anchor = "\n",
                             .form = "",
                             .count = { 3 },
                             .read = read_pair,
                             .close = close_none };
    return TN_OK;
}

static void nothing_of_the_answer(void **state)
{
    (void)state;
    tn_wire_texts *t = NULL;
    tn_wire_store *s = NULL;
    tn_tokenizer *k = tn_wire_bpe(300);
    const tn_wire_reader r = tn_wire_reader_of('a', k);
    assert_ok(open_pair(NULL, &t));
    assert_ok(tn_wire_store_open(t, &r, 1, NULL, &s));
    tn_wire_sequence told[2], own[2];
    for (int64_t c = 0; c < 2; c++) {
        told[c] = tn_wire_store_sequence(s, 0, c, c, true);
        own[c] = tn_wire_store_sequence(s, 0, c, -1, true);
    }
    assert_true(told[0].askeds < told[1].askeds); /* answers differ in length, */
    assert_true(told[0].contexts == told[1].contexts && told[0].anchors == told[1].anchors);
    assert_true(told[0].answer == told[1].answer && tn_wire_answer(&told[0]) == tn_wire_answer(&told[1]));
    assert_true(tn_wire_length(&own[0]) == tn_wire_length(&own[1]));
    tn_wire_store_free(s);
    tn_wire_texts_free(t);
    tn_tokenizer_free(k);
}

/* The same in batches: where a row that is told begins depends on its context alone, and each question of it ends in padding. */
static void place_of_the_context(void **state)
{
    (void)state;
    world w;
    int64_t count;
    begin(&w, "");
    assert_ok(tn_source_heldout(&w.s.source, 0, w.s.trainer, &count));
    int different = 0;
    for (int r = 0; r < READERS; r++) {
        const char x = w.reader[r].letter;
        const int64_t told = size(&w, x, "told"), length = size(&w, x, "length"), front = told - (length - 1);
        for (int64_t b = 0; b < B; b++)
            for (int64_t k = 1; k < Q; k++) {
                const int32_t *one = input(&w, x, "told") + b * Q * told, *other = one + k * told;
                assert_memory_equal(one, other, (size_t)front * sizeof *one);
                assert_memory_equal(input(&w, x, "told_document") + b * Q * told,
                                    input(&w, x, "told_document") + (b * Q + k) * told, (size_t)told * sizeof *one);
                different += memcmp(one + front, other + front, (size_t)(length - 1) * sizeof *one) != 0;
            }
    }
    assert_int_equal(different, READERS * B * (Q - 1));
    end(&w);
}

/* --- opening and running -------------------------------------------------------------------------------------------------------- */

static void refused(void **state)
{
    (void)state;
    static const tn_setting sizes[] = { SIZE("inputs"), SIZE("classes") };
    static const tn_input_row features[] = { { "features", TN_F32, .dims = { TN_B, "inputs" } } };
    static const tn_model other = { TN_MODEL_HEAD,   .name = "other", .settings = sizes,
                                    .n_settings = 2, .build = build,  TN_INPUTS(features) };
    tn_session s;
    assert_fails(try_session(&s, &other, "task=recall"), TN_USAGE,
                 "task=recall gives texts with questions, and other has no input bytes");
    assert_fails(try_session(&s, &reads, "task=recall"), TN_USAGE,
                 "no language model reads the texts: name one with a.model");
    assert_fails(try_session(&s, &reads, ""), TN_USAGE, "reads learns from texts with questions");
    assert_fails(try_session(&s, &reads, "task=xor"), TN_USAGE, "task=xor: reads learns from texts with questions");
    assert_fails(try_session(&s, &reads, "task=recall a.model=/nowhere/model.gguf"), TN_BAD_FILE, "a.model: ");
    assert_fails(try_session(&s, &reads, "task=recall data=book.txt " MODELS), TN_USAGE,
                 "data=book.txt: the task recall");
    assert_fails(try_session(&s, &reads, "task=recall a.length=4 " MODELS WORDS), TN_USAGE,
                 "input a.tokens: the model takes i32 (B,3,4) and the data have i32 (B,3,");
    assert_fails(try_session(&s, &reads, "task=recall c.model=gpt_tiny c.tokenizer=bytes " WORDS), TN_USAGE,
                 "input a.tokens: the data have none of that name");
}

/* What texts of a model begin and end with. */
static void tokens_of_models(void **state)
{
    (void)state;
    char model[1100], tokenizer[1100];
    tn_tokenizer *t = NULL;
    int32_t start = -7, stop = -7;
    assert_ok(tn_saved_model_reader(NULL, "gpt_tiny", "bytes", &t, &start, &stop));
    assert_true(start == 0 && stop == 0); /* bytes: NUL */
    tn_tokenizer_free(t);
    assert_ok(tn_saved_model_reader(NULL, "gpt_tiny", "tests/token/mini_qwen2.json", &t, &start, &stop));
    assert_true(start == stop && stop == tn_tokenizer_special(t, TN_TOKEN_EOS)); /* it has no BOS */
    tn_tokenizer_free(t);
    const char *found = tn_test_data("models/stories260K/stories260K.bin");
    if (!found) return;
    snprintf(model, sizeof model, "%s", found);
    snprintf(tokenizer, sizeof tokenizer, "%s", tn_test_data("models/stories260K/tok512.bin"));
    assert_ok(tn_saved_model_reader(NULL, model, tokenizer, &t, &start, &stop));
    assert_true(start == 1 && stop == 2);
    tn_tokenizer_free(t);
    t = NULL;
    snprintf(tokenizer, sizeof tokenizer, "%s", tn_test_data("tokenizers/gpt2"));
    assert_fails(tn_saved_model_reader(NULL, model, tokenizer, &t, &start, &stop), TN_USAGE,
                 "the tokenizer has 50257 tokens but ");
    assert_null(t);
}

static void about_it(void **state)
{
    (void)state;
    world w;
    char text[400] = "";
    begin(&w, "task.questions=0");
    assert_int_equal(tn_settings_int(w.s.settings, "questions"), 5);
    FILE *f = fmemopen(text, sizeof text, "w");
    w.s.source.about(w.s.source.ctx, f);
    fclose(f);
    assert_string_equal(text + strlen(text) - 1, "\n");
    assert_true(strstr(text, "recall, 30 contexts, 11 valid, 11 test, of at most"));
    assert_true(strstr(text, "5 pairs of 60 words made of syllables"));
    end(&w);
}

static tn_status train(const tn_tempdir *d, const char *run, const char *words, int64_t stop_after,
                       tn_progress_report *last)
{
    char text[900];
    tn_session on = { 0 };
    snprintf(text, sizeof text,
             "task=recall " MODELS WORDS
             " model=reads train.eval_every=3 ckpt.every=2 run=%s/%s task.cache=%s/cache %s",
             d->path, run, d->path, words);
    TN_RETURN_IF(try_session(&on, &reads, text));
    return tn_run_piece(&on, "reads", stop_after, last);
}

static void sessions(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_progress_report whole, last = { 0 };
    tn_tempdir_make_quick(&d);
    assert_ok(train(&d, "a", "loader.workers=0", -1, &whole));
    for (int i = 0; last.step < STEPS && i < 20; i++) {
        const tn_status status = train(&d, "b", "loader.prefetch=3", i, &last);
        assert_int_equal(status, last.step < STEPS ? TN_INTERRUPTED : TN_OK);
    }
    assert_true(last.step == STEPS && memcmp(&last.last, &whole.last, sizeof last.last) == 0);
    assert_fails(train(&d, "a", "task.pairs=6", -1, &last), TN_USAGE, "task.pairs: the run has task.pairs=5");
    tn_tempdir_remove_all(&d);
}

/* Rows that are made up have the layout of real ones: every place counts, and the told row ends as the other one does. */
static void made_up(void **state)
{
    (void)state;
    static const tn_wire_made m = { .ids = 9, .length = 7, .before = 3, .text = 5, .told = 12 };
    int32_t tokens[2][7], labels[7], told[12], document[12], text[5], text_labels[5];
    tn_wire_made_question(&m, 4, 2, 0, tokens[0], labels, told, document);
    tn_wire_made_question(&m, 4, 3, 0, tokens[1], NULL, NULL, NULL);
    tn_wire_made_text(&m, 4, 2, text, text_labels);
    assert_true(memcmp(tokens[0], tokens[1], sizeof tokens[0]) != 0);
    for (int t = 0; t < 7; t++) {
        assert_true(tokens[0][t] >= 1 && tokens[0][t] < 9);
        assert_int_equal(labels[t], t < 3 ? -1 : tokens[0][t]);
        if (t) assert_int_equal(told[12 - 7 + t], tokens[0][t]);
    }
    assert_true(tokens[0][0] == 1 && tokens[0][6] == 2 && told[0] == 1);
    for (int t = 0; t < 12; t++) assert_int_equal(document[t], 1);
    for (int t = 1; t < 4; t++) assert_true(told[t] == text[t] && text_labels[t] == text[t]); /* the same text */
    assert_true(text[0] == 1 && text_labels[0] == -1 && text[4] == 2);
}

/* A reader of a shape alone is no reader of real texts, and of made-up ones where its lengths are set. */
static void made_up_readers(void **state)
{
    (void)state;
    const tn_model *wire = tn_model_named("wire");
    tn_session s = { 0 };
    int64_t count;
    static const char small[] =
        "a.shape=dim=16,layers=1,heads=2,vocab=30,train.context=64 slots=2 width=8 dim=16 heads=2 ffn=16 layers=1 "
        "hidden=8 train.batch=3 task.size=7 task.heldout=4 ";
    char words[600];
    snprintf(words, sizeof words,
             "task=letters %s a.ids=30 bytes=12 questions=1 a.length=7 a.before=3 a.text=6 a.told=14", small);
    assert_ok(try_session(&s, wire, words));
    assert_ok(tn_source_next(&s.source, 0, s.trainer, &count));
    assert_int_equal(count, 3);
    assert_true(((const int32_t *)tn_trainer_input(s.trainer, "lengths"))[0] == 12);
    tn_session_close(&s);
    snprintf(words, sizeof words,
             "task=letters %s a.ids=30 bytes=12 questions=1 a.length=4 a.before=3 a.text=6 a.told=14", small);
    assert_fails(try_session(&s, wire, words), TN_USAGE, "set a.length, to 5 or more");
    snprintf(words, sizeof words, "task=recall %s", small);
    assert_fails(try_session(&s, wire, words), TN_USAGE, "no language model reads the texts");
}

void tn_tests_source_wire(tn_test_list *l)
{
    tn_test_add(l, made_up, NULL, "wire source: rows that are made up");
    tn_test_add(l, made_up_readers, NULL, "wire source: readers that are made up");
    tn_test_add(l, batches, NULL, "wire source: batches");
    tn_test_add(l, before_answers, NULL, "wire source: where answers begin");
    tn_test_add(l, nothing_of_the_answer, NULL, "wire source: nothing of an answer's length (store)");
    tn_test_add(l, place_of_the_context, NULL, "wire source: nothing of an answer's length (batches)");
    tn_test_add(l, refused, NULL, "wire source: what is refused");
    tn_test_add(l, tokens_of_models, NULL, "wire source: first and last tokens of models");
    tn_test_add(l, about_it, NULL, "wire source: about");
    tn_test_add(l, sessions, NULL, "wire run: in sessions of 0, 1, 2, ... steps");
}
