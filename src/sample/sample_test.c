/* Sampling: the state goes on over prompts and pieces, seeds decide, stop strings and contexts end it, text is whole; and
 * a published model against its PyTorch twin. */
#include "base/text.h"
#include "dataset_files.h"
#include "sample/sample.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <math.h>

typedef struct stage {
    tn_settings *st;
    const tn_model *model;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_sampler *sampler;
    char text[4][4096]; /* gathered by sample */
    size_t n[4];
    int broken; /* pieces that are not whole characters */
} stage;

static const char *const ten[] = {
    "dim=24", "layers=2", "heads=4", "vocab=256", "train.context=512", "pattern=DO", NULL
};
static const char *const scales[] = { "dim=24",     "layers=2", "heads=4",   "vocab=256", "train.context=512",
                                      "pattern=DO", "hten=3",   "norm=post", NULL };
static const char *const llama[] = { "dim=24", "layers=2", "heads=4", "vocab=256", "train.context=512", NULL };
static const char *const conv[] = { "dim=24", "layers=2",  "heads=4", "vocab=256", "train.context=512",
                                    "conv=4", "gate=silu", NULL };
static const char *const gpt2[] = { "dim=24",     "layers=2", "heads=4", "vocab=256", "train.context=512",
                                    "shape=gpt2", NULL };

/* First values are small: larger ones make the state matter, and the text vary. */
static void enlarge(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role != TN_ROLE_PARAM || e->dims.rank < 2) continue;
        for (int64_t k = 0; k < tn_dims_count(e->dims); k++) ((float *)e->data)[k] *= 8;
    }
}

static void open_stage(stage *s, const char *model, const char *const *list, int64_t batch, int64_t capacity,
                       int threads)
{
    size_t n = 0;
    *s = (stage){ 0 };
    while (list[n]) n++;
    assert_ok(tn_settings_resolve(model, list, n, &s->st, &s->model));
    assert_ok(tn_store_new(TN_CPU, 9, &s->store));
    assert_ok(tn_tokenizer_open("bytes", &s->tokenizer));
    const tn_sampler_options o = { .decoder = { .model = s->model,
                                                .settings = s->st,
                                                .store = s->store,
                                                .batch = batch,
                                                .capacity = capacity,
                                                .threads = threads },
                                   .tokenizer = s->tokenizer,
                                   .start = -1 };
    assert_ok(tn_sampler_new(&o, &s->sampler));
    enlarge(s->store);
}

static void close_stage(stage *s)
{
    tn_sampler_free(s->sampler);
    for (size_t i = 0; i < tn_store_count(s->store); i++)
        assert_int_not_equal(tn_store_at(s->store, i)->role, TN_ROLE_CACHE);
    tn_store_free(s->store);
    tn_tokenizer_free(s->tokenizer);
    tn_settings_free(s->st);
}

static tn_status gather(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    stage *s = ctx;
    char piece[4096];
    assert_true(bytes > 0 && s->n[sample] + bytes < sizeof s->text[0]);
    memcpy(piece, text, bytes);
    piece[bytes] = 0;
    if (!tn_utf8_valid(piece)) s->broken++;
    memcpy(s->text[sample] + s->n[sample], text, bytes);
    s->text[sample][s->n[sample] += bytes] = 0;
    return TN_OK;
}

static tn_sample_options options(stage *s, double temperature, int64_t max_tokens)
{
    return (tn_sample_options){
        .pick = { temperature, 0, 1 }, .seed = 5, .max_tokens = max_tokens, .ctx = s, .text = gather
    };
}

static void draw(stage *s, const char *prompt, const tn_sample_options *o)
{
    memset(s->n, 0, sizeof s->n);
    tn_sampler_clear(s->sampler);
    assert_ok(tn_sampler_prompt(s->sampler, prompt, strlen(prompt), NULL));
    assert_ok(tn_sampler_run(s->sampler, o, NULL));
}

/* --- the decoder ------------------------------------------------------------------------------------------------------ */

typedef struct pupil {
    const char *model;
    const char *const *list;
} pupil;
static const pupil pupils[] = { { "ten", ten }, { "gpt", llama }, { "gpt", gpt2 }, { "ten", scales }, { "gpt", conv } };

/* 297 tokens at once (pieces of 256, 32, 4 and 1) leave what 297 single ones leave. */
static void pieces_equal_tokens(void **state)
{
    enum { N = 297, V = 256 };
    const pupil *p = *state;
    stage s;
    int32_t tokens[2 * N];
    float first[2 * V], most = 0, off = 0;
    const float *logits = NULL;
    tn_decoder *d = NULL;
    open_stage(&s, p->model, p->list, 1, 16, 2);
    tn_sampler_free(s.sampler);
    s.sampler = NULL;
    assert_ok(tn_decoder_new(
        &(tn_decoder_options){
            .model = s.model, .settings = s.st, .store = s.store, .batch = 2, .capacity = 300, .threads = 2 },
        &d));
    for (int i = 0; i < 2 * N; i++) tokens[i] = (i * i + 7 * i / N) % V;
    assert_ok(tn_decoder_feed(d, tokens, N, &logits));
    memcpy(first, logits, sizeof first);
    tn_decoder_clear(d);
    for (int i = 0; i < N; i++)
        assert_ok(tn_decoder_feed(d, (const int32_t[]){ tokens[i], tokens[N + i] }, 1, &logits));
    for (int i = 0; i < 2 * V; i++) {
        most = fmaxf(most, fabsf(first[i]));
        off = fmaxf(off, fabsf(first[i] - logits[i]));
    }
    assert_true(most > 0.1f && off < 1e-3f * most);
    assert_fails(tn_decoder_feed(d, (const int32_t[]){ 1, 256 }, 1, &logits), TN_USAGE, "token 256 is outside");
    tn_decoder_free(d);
    close_stage(&s);
}

static tn_status build_without_state(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_batch plain = *b;
    plain.cached = false;
    for (size_t i = 0; i < plain.n_inputs; i++)
        if (strcmp(plain.input[i].name, "tokens") != 0) plain.input[i].ref = TN_NONE;
    tn_settings *own = NULL;
    const tn_model *gpt;
    const char *list[] = { "dim=8", "heads=1", "layers=1", "vocab=256" };
    (void)st;
    TN_RETURN_IF(tn_settings_resolve("gpt", list, 4, &own, &gpt));
    const tn_status s = gpt->build(g, own, &plain);
    tn_settings_free(own);
    return s;
}

static void model_without_state(void **state)
{
    (void)state;
    stage s;
    tn_decoder *d = NULL;
    tn_model m;
    open_stage(&s, "gpt", llama, 1, 16, 1);
    m = *s.model;
    m.name = "bare";
    m.build = build_without_state;
    tn_store *store = NULL;
    assert_ok(tn_store_new(TN_CPU, 1, &store));
    assert_fails(tn_decoder_new(
                     &(tn_decoder_options){ .model = &m, .settings = s.st, .store = store, .batch = 1, .capacity = 8 },
                     &d),
                 TN_USAGE, "model bare keeps no state");
    tn_store_free(store);
    close_stage(&s);
}

/* --- the sampler ------------------------------------------------------------------------------------------------------ */

static void seeds_decide(void **state)
{
    const pupil *p = *state;
    char first[4096] = "";
    for (int threads = 1; threads <= 2; threads++) {
        stage s;
        open_stage(&s, p->model, p->list, 2, 300, threads);
        tn_sample_options o = options(&s, 1, 80);
        draw(&s, "Once", &o);
        if (threads == 1) memcpy(first, s.text[0], sizeof first);
        assert_string_equal(s.text[0], first);
        assert_string_not_equal(s.text[0], s.text[1]);
        assert_int_equal(tn_sampler_result(s.sampler, 0).n, 80);
        assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_LENGTH);
        assert_int_equal(s.broken, 0); /* although the model draws bytes of all kinds */
        close_stage(&s);
        open_stage(&s, p->model, p->list, 1, 300, threads);
        o.seed++;
        o.ctx = &s;
        draw(&s, "Once", &o);
        assert_string_not_equal(s.text[0], first);
        close_stage(&s);
    }
}

/* A prompt, an answer, a second prompt and answer: the same as the whole talk given as one prompt. */
static void turns_go_on(void **state)
{
    const pupil *p = *state;
    stage s;
    int32_t talk[64];
    int64_t n = 5;
    open_stage(&s, p->model, p->list, 1, 128, 2);
    tn_sample_options o = options(&s, 0, 12);
    draw(&s, "first", &o);
    memcpy(talk, (const int32_t[]){ 'f', 'i', 'r', 's', 't' }, 5 * sizeof *talk);
    const tn_sampled one = tn_sampler_result(s.sampler, 0);
    memcpy(talk + n, one.ids, sizeof *talk * (size_t)one.n);
    n += one.n;
    talk[n++] = 'b';
    assert_ok(tn_sampler_prompt(s.sampler, "b", 1, NULL));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    int32_t answer[12];
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 12);
    memcpy(answer, tn_sampler_result(s.sampler, 0).ids, sizeof answer);
    tn_sampler_clear(s.sampler);
    assert_ok(tn_sampler_prompt_tokens(s.sampler, talk, n));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    assert_memory_equal(tn_sampler_result(s.sampler, 0).ids, answer, sizeof answer);
    assert_fails(tn_sampler_run(s.sampler, &o, NULL), TN_USAGE, "no prompt");
    close_stage(&s);
}

/* --- prompts of different length -------------------------------------------------------------------------------------- */

static const char *const told[] = { "Once upon a time there was a cat", "x", "Once", "once upon a" };

typedef struct texts {
    char text[4][4096];
    int64_t n[4];
    tn_sample_end end[4];
} texts;

/* told[first] and so on, `n` of them in one batch, `each` texts of each. */
static void draw_told(const pupil *p, int first, int n, int each, const tn_sample_options *how, texts *out)
{
    stage s;
    tn_sample_prompt prompt[4];
    tn_sample_options o = *how;
    open_stage(&s, p->model, p->list, n * each, 60, 2);
    o.ctx = &s;
    for (int i = 0; i < n; i++)
        prompt[i] = (tn_sample_prompt){ .text = told[first + i], .bytes = strlen(told[first + i]), .where = "a test" };
    if (n == 1) draw(&s, told[first], &o);
    else {
        assert_ok(tn_sampler_prompts(s.sampler, prompt, n));
        assert_int_equal(prompt[1].tokens, strlen(told[first + 1]));
        assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    }
    for (int i = 0; i < n * each; i++) {
        memcpy(out->text[i], s.text[i], sizeof s.text[i]);
        out->n[i] = tn_sampler_result(s.sampler, i).n;
        out->end[i] = tn_sampler_result(s.sampler, i).end;
    }
    close_stage(&s);
}

static void same_text(const texts *a, int i, const texts *b, int k)
{
    assert_string_equal(a->text[i], b->text[k]);
    assert_int_equal(a->n[i], b->n[k]);
    assert_int_equal(a->end[i], b->end[k]);
}

/* Each prompt writes together what it writes alone: of attention, also where the longest fills the context first. */
static void prompts_are_alone(void **state)
{
    const pupil *p = *state;
    static texts together, alone;
    for (int k = 0; k < 2; k++) {
        const tn_sample_options o = options(NULL, k, 80);
        draw_told(p, 0, 4, 1, &o, &together);
        for (int i = 0; i < 4; i++) {
            draw_told(p, i, 1, 1, &o, &alone);
            same_text(&together, i, &alone, 0);
        }
        assert_string_not_equal(together.text[0], together.text[1]);
    }
    const tn_sample_options o = options(NULL, 1, 20);
    draw_told(p, 0, 2, 2, &o, &together);
    for (int i = 0; i < 2; i++) {
        draw_told(p, i, 1, 2, &o, &alone);
        for (int k = 0; k < 2; k++) same_text(&together, 2 * i + k, &alone, k);
    }
}

static void prompts_are_checked(void **state)
{
    stage s;
    char first[4096];
    tn_sample_prompt two[] = { { .text = "12", .bytes = 2, .where = "f:1" },
                               { .text = "12345678901234567", .bytes = 17, .where = "f:3" } };
    (void)state;
    open_stage(&s, "gpt", llama, 2, 16, 1);
    assert_fails(tn_sampler_prompts(s.sampler, two, 2), TN_USAGE,
                 "f:3: 17 tokens do not fit into a context of 16: use a shorter prompt");
    two[1].bytes = 16; /* to the last place: one token is drawn, and the other goes on */
    const tn_sample_options o = options(&s, 1, 6);
    assert_ok(tn_sampler_prompts(s.sampler, two, 2));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 6);
    assert_int_equal(tn_sampler_result(s.sampler, 1).n, 1);
    assert_int_equal(tn_sampler_result(s.sampler, 1).end, TN_SAMPLE_FULL);
    draw(&s, "ab", &o);
    memcpy(first, s.text[1], sizeof first);
    memset(s.n, 0, sizeof s.n);
    assert_ok(tn_sampler_prompts(s.sampler, two, 2));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    memset(s.n, 0, sizeof s.n);
    assert_ok(tn_sampler_prompt(s.sampler, "ab", 2, NULL)); /* begins anew, and so do the numbers of all rows */
    assert_int_equal(tn_sampler_tokens_left(s.sampler), 14);
    tn_sampler_clear(s.sampler);
    assert_ok(tn_sampler_prompt(s.sampler, "ab", 2, NULL));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    assert_string_equal(s.text[1], first);
    close_stage(&s);
}

static void stop_strings(void **state)
{
    (void)state;
    stage s;
    char whole[4096], stop[8], all[4096] = "";
    open_stage(&s, "ten", ten, 1, 8, 1);
    tn_sample_options o = options(&s, 1, 200);
    draw(&s, "abc", &o);
    memcpy(whole, s.text[0], sizeof whole);
    const char *letters = whole + 20; /* two plain characters in a row, each a token: the stop string spans both */
    while (*letters && !(letters[0] > ' ' && letters[0] < 127 && letters[1] > ' ' && letters[1] < 127)) letters++;
    assert_true(*letters);
    snprintf(stop, sizeof stop, "%.2s", letters);
    const char *const stops[] = { "\1never", stop };
    o.stop = stops;
    o.n_stop = 2;
    draw(&s, "abc", &o);
    snprintf(all, sizeof all, "%.*s", (int)(strstr(whole, stop) - whole), whole);
    assert_string_equal(s.text[0], all);
    assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_STOPPED);
    const char *const never[] = { "\1never" }; /* what looked like its beginning comes out */
    o.stop = never;
    o.n_stop = 1;
    draw(&s, "abc", &o);
    assert_string_equal(s.text[0], whole);
    close_stage(&s);
}

static void contexts_end(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, "gpt", llama, 1, 16, 1);
    tn_sample_options o = options(&s, 1, 100);
    draw(&s, "12345678", &o);
    assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_FULL);
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 9); /* the last of them is not fed any more */
    assert_fails(tn_sampler_prompt(s.sampler, "x", 1, NULL), TN_USAGE, "context of 16");
    tn_sampler_clear(s.sampler);
    assert_fails(tn_sampler_prompt(s.sampler, "12345678901234567", 17, NULL), TN_USAGE, "context of 16");
    o.max_tokens = 0;
    draw(&s, "", &o); /* an empty prompt is a line's end */
    assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_LENGTH);
    assert_int_equal(tn_sampler_tokens_left(s.sampler), 15);
    close_stage(&s);
    open_stage(&s, "ten", ten, 1, 1, 1); /* a recurrence has no end */
    o = options(&s, 1, 700);
    draw(&s, "12345678", &o);
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 700);
    close_stage(&s);
}

static tn_status refuse(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    (void)ctx, (void)sample, (void)text, (void)bytes;
    return tn_error(TN_INTERRUPTED, "enough");
}

static void ends_early(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, "ten", ten, 1, 8, 1);
    tn_sample_options o = options(&s, 0, 5);
    draw(&s, "abc", &o);
    const int32_t drawn = tn_sampler_result(s.sampler, 0).ids[0];
    tn_sampler_free(s.sampler);
    const tn_sampler_options with = {
        .decoder = { .model = s.model, .settings = s.st, .store = s.store, .batch = 1, .capacity = 8 },
        .tokenizer = s.tokenizer,
        .start = drawn
    };
    assert_ok(tn_sampler_new(&with, &s.sampler)); /* a text ends where the next would begin */
    assert_ok(tn_sampler_prompt_tokens(s.sampler, (const int32_t[]){ 'a', 'b', 'c' }, 3));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_ENDED);
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 0);
    tn_sampler_free(s.sampler);
    const tn_sampler_options listed = { .decoder = with.decoder,
                                        .tokenizer = s.tokenizer,
                                        .start = -1,
                                        .end = (const int32_t[]){ 300, drawn },
                                        .n_end = 2 };
    assert_ok(tn_sampler_new(&listed, &s.sampler)); /* or with a token of the model's list */
    assert_ok(tn_sampler_prompt_tokens(s.sampler, (const int32_t[]){ 'a', 'b', 'c' }, 3));
    assert_ok(tn_sampler_run(s.sampler, &o, NULL));
    assert_int_equal(tn_sampler_result(s.sampler, 0).end, TN_SAMPLE_ENDED);
    assert_int_equal(tn_sampler_result(s.sampler, 0).n, 0);
    tn_sampler_free(s.sampler);
    const tn_sampler_options again = { .decoder = with.decoder, .tokenizer = s.tokenizer, .start = -1 };
    assert_ok(tn_sampler_new(&again, &s.sampler));
    o.text = refuse;
    assert_ok(tn_sampler_prompt(s.sampler, "abc", 3, NULL));
    o.max_tokens = 100;
    assert_fails(tn_sampler_run(s.sampler, &o, NULL), TN_INTERRUPTED, "enough");
    ((float *)tn_store_find(s.store, "embed")->data)[3] = NAN;
    tn_sampler_clear(s.sampler);
    assert_ok(tn_sampler_prompt(s.sampler, "abc", 3, NULL));
    assert_fails(tn_sampler_run(s.sampler, &o, NULL), TN_DIVERGED, "NaN");
    close_stage(&s);
}

/* --- a published model ------------------------------------------------------------------------------------------------ */

static bool open_stories(tn_saved_model *m, tn_store **store, tn_tokenizer **tokenizer, int32_t *start)
{
    char path[1024];
    const char *found = tn_test_data("models/stories260K/stories260K.bin");
    if (!found) return false;
    snprintf(path, sizeof path, "%s", found);
    assert_ok(tn_saved_model_find(NULL, path, NULL, 0, "best", m));
    assert_ok(tn_store_new(TN_CPU, 1, store));
    tn_model_tokens tokens;
    assert_fails(tn_saved_model_tokenizer(m, "", tokenizer, &tokens), TN_USAGE, "stories260K/tok512.bin");
    assert_ok(tn_saved_model_tokenizer(m, tn_test_data("models/stories260K/tok512.bin"), tokenizer, &tokens));
    *start = tokens.start;
    tn_model_tokens_free(&tokens);
    return true;
}

static void close_stories(tn_saved_model *m, tn_store *store, tn_tokenizer *tokenizer)
{
    tn_store_free(store);
    tn_tokenizer_free(tokenizer);
    tn_saved_model_free(m);
}

/* Ids written by bench/peers/llama_twin.py --greedy 200. */
static void twin_writes_the_same(void **state)
{
    (void)state;
    tn_saved_model m;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_sampler *sampler;
    stage text = { 0 };
    int32_t start;
    if (!open_stories(&m, &store, &tokenizer, &start)) return;
    assert_int_equal(start, 1);
    const tn_sampler_options o = {
        .decoder = { .model = m.model, .settings = m.settings, .store = store, .batch = 1, .capacity = 512 },
        .tokenizer = tokenizer,
        .start = start
    };
    assert_ok(tn_sampler_new(&o, &sampler));
    assert_ok(tn_weights_load(m.weights, store, m.note));
    assert_ok(tn_sampler_prompt(sampler, "", 0, NULL));
    const tn_sample_options greedy = options(&text, 0, 200);
    assert_ok(tn_sampler_run(sampler, &greedy, NULL));
    const tn_sampled got = tn_sampler_result(sampler, 0);
    FILE *f = fopen("tests/sample/stories260K.ids", "r");
    assert_non_null(f);
    for (int64_t i = 0; i < 200; i++) {
        int want;
        assert_int_equal(fscanf(f, "%d", &want), 1);
        assert_true(i < got.n);
        assert_int_equal(got.ids[i], want);
    }
    fclose(f);
    assert_memory_equal(text.text[0], "Once upon a time, there was a little girl named Lily.", 53);
    tn_sampler_free(sampler);
    close_stories(&m, store, tokenizer);
}

/* The first 30 stories, each from the start token on, at most so many tokens. The losses are those of llama_twin.py, in
 * float64 and with a tokenizer of its own; the published one, 1.319, is that of 256 tokens. */
typedef struct limit {
    uint64_t tokens;
    double loss;
} limit;
static const limit limits[] = { { 256, 1.319334 }, { 512, 1.313614 } };

static void stories_loss(void **state)
{
    const limit *most = *state;
    enum { T = 512 };
    tn_saved_model m;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_tempdir d;
    tn_dataset *data = NULL;
    tn_trainer *t = NULL;
    int32_t start;
    char out[1024], settings[1200];
    if (!tn_test_data("text/tinystories/tinystories_1000.json.gz") || !open_stories(&m, &store, &tokenizer, &start))
        return;
    tn_tempdir_make_quick(&d);
    snprintf(out, sizeof out, "%s", tn_tempdir_file(&d, "out"));
    snprintf(settings, sizeof settings, "valid_frac=0 tokenizer=%s", tn_test_data("models/stories260K/tok512.bin"));
    assert_ok(tn_prepare_try(tn_test_data("text/tinystories/tinystories_1000.json.gz"), out, settings, NULL));
    assert_ok(tn_dataset_open(out, NULL, &data));
    assert_ok(tn_trainer_new(
        &(tn_trainer_options){
            .model = m.model, .settings = m.settings, .batch = 1, .length = T, .store = store, .forward_only = true },
        &t));
    assert_ok(tn_weights_load(m.weights, store, m.note));
    double sum = 0, count = 0;
    for (uint64_t i = 0; i < 30; i++) {
        int32_t ids[T] = { 0 };
        uint64_t at, n;
        float loss;
        assert_ok(tn_dataset_document(data, TN_TRAIN, i, &at, &n));
        n = n < most->tokens ? n : most->tokens;
        assert_ok(tn_dataset_read(data, TN_TRAIN, at, n, ids));
        assert_int_equal(ids[0], start);
        for (uint64_t k = 0; k < T; k++) {
            ((int32_t *)tn_trainer_input(t, "tokens"))[k] = ids[k];
            ((int32_t *)tn_trainer_input(t, "labels"))[k] = k + 1 < n ? ids[k + 1] : -1;
        }
        assert_ok(tn_trainer_eval(t, &loss));
        sum += (double)loss * (double)(n - 1);
        count += (double)(n - 1);
    }
    if (!(fabs(sum / count - most->loss) < 1e-4)) fail_msg("%.4f nats a token over %.0f tokens", sum / count, count);
    tn_trainer_free(t);
    tn_dataset_close(data);
    tn_tempdir_clear(&d);
    close_stories(&m, store, tokenizer);
}

void tn_tests_sample(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof pupils / sizeof *pupils; i++) {
        const char *name = pupils[i].list == ten     ? "ten"
                           : pupils[i].list == llama ? "llama"
                           : pupils[i].list == gpt2  ? "gpt2"
                           : pupils[i].list == conv  ? "conv and gate"
                                                     : "scales";
        tn_test_add(l, pieces_equal_tokens, &pupils[i], "sample: a prompt in pieces equals single tokens, %s", name);
        tn_test_add(l, seeds_decide, &pupils[i], "sample: the seed decides, not the threads, %s", name);
        tn_test_add(l, turns_go_on, &pupils[i], "sample: prompts and answers take turns, %s", name);
        tn_test_add(l, prompts_are_alone, &pupils[i], "sample: prompts together write what each writes alone, %s",
                    name);
    }
    tn_test_add(l, model_without_state, NULL, "sample: a model that carries nothing is refused");
    tn_test_add(l, prompts_are_checked, NULL, "sample: prompts that do not fit, and one behind several");
    tn_test_add(l, stop_strings, NULL, "sample: stop strings");
    tn_test_add(l, contexts_end, NULL, "sample: a context ends, a recurrence does not");
    tn_test_add(l, ends_early, NULL, "sample: end tokens, callers and NaN end it");
    tn_test_add(l, twin_writes_the_same, NULL, "sample: stories260K writes what its twin writes");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        tn_test_add(l, stories_loss, &limits[i], "sample: stories260K has %.3f nats a token on TinyStories",
                    limits[i].loss);
}
