/* A talk on a small model with random weights: what the model reads in each turn, what is forgotten, what an interrupted answer
 * leaves behind. */
#include "sample/talk.h"

#include "models/models.h"
#include "testlib.h"
#include "train/run/train_settings.h"

#include <string.h>

typedef struct stage {
    tn_settings *st;
    const tn_model *model;
    tn_store *store;
    tn_tokenizer *tokenizer;
    tn_sampler *sampler;
    tn_chat_template form;
    tn_talk *talk;
    int64_t left; /* calls of `stop` before it fails */
} stage;

static void open_stage(stage *s, int64_t context, const char *system)
{
    static const char *const words[] = { "vocab=642", "dim=16", "layers=1", "heads=2", "threads=1" };
    *s = (stage){ 0 };
    assert_ok(tn_settings_resolve("gpt_tiny", words, sizeof words / sizeof *words, &s->st, &s->model));
    assert_ok(tn_store_new(TN_CPU, 1, &s->store));
    assert_ok(tn_tokenizer_open("tests/token/mini_qwen2.json", &s->tokenizer));
    const tn_sampler_options o = {
        .decoder = { .model = s->model, .settings = s->st, .store = s->store, .batch = 1, .capacity = context },
        .tokenizer = s->tokenizer,
        .start = -1
    };
    assert_ok(tn_sampler_new(&o, &s->sampler));
    assert_ok(tn_chat_template_named("chatml", &s->form));
    assert_ok(tn_talk_new(s->sampler, s->tokenizer, &s->form, system, &s->talk));
}

static void close_stage(stage *s)
{
    tn_talk_free(s->talk);
    tn_sampler_free(s->sampler);
    tn_tokenizer_free(s->tokenizer);
    tn_store_free(s->store);
    tn_settings_free(s->st);
}

static tn_status stop(void *ctx, int64_t sample, const char *text, size_t bytes)
{
    stage *s = ctx;
    (void)sample, (void)text, (void)bytes;
    return s->left-- > 0 ? TN_OK : tn_error(TN_INTERRUPTED, "enough");
}

static tn_talk_report turn(stage *s, const char *text, int64_t max_tokens)
{
    tn_talk_report r;
    const tn_sample_options o = { .pick = { .temperature = 1, .top_p = 1 }, .seed = 3, .max_tokens = max_tokens };
    assert_ok(tn_talk_turn(s->talk, text, strlen(text), &o, &r));
    return r;
}

/* The tokens of a message in the template, by asking a talk that begins with it. */
static void turns(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 400, "Be kind.");
    const tn_talk_report a = turn(&s, "hello", 0), b = turn(&s, "hello", 0);
    assert_int_equal(a.read, a.prompt);
    assert_true(b.prompt > a.prompt);
    assert_true(b.read < b.prompt); /* an empty answer: the first prompt goes on */
    assert_int_equal(a.forgotten + b.forgotten, 0);
    tn_talk_clear(s.talk);
    const tn_talk_report c = turn(&s, "hello", 0);
    assert_int_equal(c.prompt, a.prompt); /* with the system text */
    assert_int_equal(c.read, c.prompt);
    close_stage(&s);
}

static void full(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 100, NULL);
    int64_t forgotten = 0;
    tn_talk_report r = { 0 };
    char text[400];
    for (int i = 0; i < 8; i++) {
        r = turn(&s, "something to say", 8);
        assert_true(r.prompt + 8 <= 100);
        forgotten += r.forgotten;
    }
    assert_true(forgotten > 0);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    const tn_sample_options o = { .max_tokens = 8 };
    assert_fails(tn_talk_turn(s.talk, text, sizeof text - 1, &o, &r), TN_USAGE, "and the context has 100: shorten it");
    (void)turn(&s, "a", 4); /* the talk goes on */
    close_stage(&s);
}

static void interrupted(void **state)
{
    (void)state;
    stage s;
    tn_talk_report r;
    open_stage(&s, 400, NULL);
    const tn_talk_report first = turn(&s, "hello", 0);
    tn_talk_clear(s.talk);
    s.left = 2;
    const tn_sample_options o = {
        .pick = { .temperature = 1, .top_p = 1 }, .seed = 3, .max_tokens = 50, .ctx = &s, .text = stop
    };
    assert_fails(tn_talk_turn(s.talk, "hello", 5, &o, &r), TN_INTERRUPTED, "enough");
    const tn_talk_report next = turn(&s, "hello", 0);
    assert_true(next.prompt > 2 * first.prompt - 3); /* the stopped turn is part of the talk */
    assert_int_equal(next.read, next.prompt);
    close_stage(&s);
}

static void refused(void **state)
{
    (void)state;
    stage s;
    tn_talk *other = NULL;
    tn_chat_template form;
    open_stage(&s, 100, NULL);
    assert_ok(tn_chat_template_named("llama3", &form));
    assert_fails(tn_talk_new(s.sampler, s.tokenizer, &form, NULL, &other), TN_USAGE,
                 "needs the token <|begin_of_text|>");
    assert_null(other);
    close_stage(&s);
}

void tn_tests_talk(tn_test_list *l)
{
    tn_test_add(l, turns, NULL, "talk: what is read in a turn");
    tn_test_add(l, full, NULL, "talk: the oldest turns are forgotten");
    tn_test_add(l, interrupted, NULL, "talk: an interrupted answer stays");
    tn_test_add(l, refused, NULL, "talk: a template that does not suit");
}
