/* The layout against the ways in which it was wrong elsewhere: labels that are shifted (D1), BOS as a target (D2), an anchor that differs
 * between losses (D5), an answer without its blank (D7), no end (D15). */
#include "wire_world.h"

enum { VOCAB = 320 };

typedef struct world {
    tn_tokenizer *tokenizer;
    tn_wire_reader reader;
    tn_tokenizer_scratch *scratch;
    tn_wire_tokens work;
    tn_tokens ids;
    size_t answer;
} world;

static void begin(world *w, tn_tokenizer *t)
{
    *w = (world){ .tokenizer = t, .reader = tn_wire_reader_of('a', t) };
    assert_ok(tn_tokenizer_scratch_new(&w->scratch));
}

static void end(world *w)
{
    tn_wire_tokens_free(&w->work);
    tn_tokens_free(&w->ids);
    tn_tokenizer_scratch_free(w->scratch);
    tn_tokenizer_free(w->tokenizer);
}

static void lay(world *w, const char *context, const char *anchor, const char *question, const char *answer)
{
    const tn_wire_parts p = { context,
                              anchor,
                              question,
                              answer,
                              context ? strlen(context) : 0,
                              anchor ? strlen(anchor) : 0,
                              question ? strlen(question) : 0,
                              answer ? strlen(answer) : 0 };
    assert_ok(tn_wire_lay_out(&w->reader, w->scratch, &p, &w->work, &w->ids, &w->answer));
}

static void assert_says(const world *w, size_t from, size_t to, const char *wanted)
{
    tn_text text = { 0 };
    assert_ok(tn_tokenizer_decode(w->tokenizer, w->ids.ids + from, to - from, &text));
    if (text.n != strlen(wanted) || (text.n && memcmp(text.data, wanted, text.n) != 0))
        fail_msg("\"%.*s\" instead of \"%s\"", (int)text.n, text.data ? text.data : "", wanted);
    tn_text_free(&text);
}

/* D1: what is to be said begins with the answer's first token, not the one before or behind. */
static void answer_is_not_shifted(void **state)
{
    (void)state;
    world w;
    begin(&w, tn_wire_bpe(VOCAB));
    lay(&w, NULL, NULL, "Question: where is the cat? Answer:", " on the mat");
    assert_says(&w, 1, w.answer, "Question: where is the cat? Answer:");
    assert_says(&w, w.answer, w.ids.n - 1, " on the mat");
    lay(&w, "the dog ran", "\n", "cat:", " sat");
    assert_says(&w, 1, w.answer, "the dog ran\ncat:");
    assert_says(&w, w.answer, w.ids.n - 1, " sat");
    lay(&w, NULL, NULL, NULL, "and so on"); /* a continuation is an answer from the start */
    assert_int_equal(w.answer, 1);
    assert_says(&w, 1, w.ids.n - 1, "and so on");
    end(&w);
}

/* D2: one token at position 0, in no answer. */
static void bos_is_first_and_no_target(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        { NULL, NULL, "cat:", " sat" },  { "the cat: sat\n", "\n", "cat:", " sat" },
        { "the cat", NULL, NULL, NULL }, { NULL, NULL, NULL, " is on the mat" },
        { NULL, NULL, NULL, NULL },
    };
    world w;
    begin(&w, tn_wire_bpe(VOCAB));
    w.reader.bos = 300; /* a token of its own */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lay(&w, rows[i][0], rows[i][1], rows[i][2], rows[i][3]);
        assert_int_equal(w.ids.ids[0], 300);
        assert_true(w.answer >= 1);
        for (size_t k = w.answer; k < w.ids.n; k++) assert_int_not_equal(w.ids.ids[k], 300);
    }
    end(&w);
}

/* D7: the blank belongs to the answer's first token. */
static void answer_keeps_its_blank(void **state)
{
    (void)state;
    world w;
    begin(&w, tn_wire_bpe(VOCAB));
    const int32_t paris = tn_tokenizer_find(w.tokenizer, "\xc4\xa0Paris") >= 0
                              ? tn_tokenizer_find(w.tokenizer, "\xc4\xa0Paris")
                              : tn_tokenizer_find(w.tokenizer, " Paris");
    assert_true(paris >= 0);
    lay(&w, NULL, NULL, "Answer:", " Paris");
    assert_int_equal(w.ids.n - 1 - w.answer, 1);
    assert_int_equal(w.ids.ids[w.answer], paris);
    lay(&w, NULL, NULL, "Answer: ", "Paris"); /* a blank at the question's end is taken back into the answer */
    assert_int_equal(w.ids.ids[w.answer], paris);
    end(&w);
}

/* The same with a published vocabulary: " Paris" is 6342, "Paris" 40313. */
static void blank_of_gpt2(void **state)
{
    (void)state;
    tn_tokenizer *t = NULL;
    world w;
    const char *folder = tn_test_data("tokenizers/gpt2");
    if (!folder) skip();
    assert_ok(tn_tokenizer_open(folder, &t));
    begin(&w, t);
    lay(&w, "Where is the tower?", "\n", "Answer:", " Paris");
    assert_int_equal(w.ids.n - w.answer, 2);
    assert_int_equal(w.ids.ids[w.answer], 6342);
    end(&w);
}

/* D5: the ids of question and answer are the same whatever stands before them. */
static void text_mode_has_the_same_end(void **state)
{
    (void)state;
    static const char *const files[] = { NULL, "bytes", "tests/token/mini_llama2.json", "tests/token/mini_llama2c.bin",
                                         "tests/token/mini_spm.model" };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        tn_tokenizer *t = NULL;
        world w;
        if (files[f]) assert_ok(tn_tokenizer_open(files[f], &t));
        begin(&w, files[f] ? t : tn_wire_bpe(VOCAB));
        lay(&w, NULL, NULL, "the cat:", " on the mat");
        const size_t n = w.ids.n, answer = w.answer;
        int32_t *latent = tn_alloc(n * sizeof *latent);
        memcpy(latent, w.ids.ids, n * sizeof *latent);
        lay(&w, "the cat: on the mat\nthe dog: ran\n", "\n", "the cat:", " on the mat");
        assert_true(w.ids.n > n);
        assert_memory_equal(w.ids.ids + w.ids.n - (n - 1), latent + 1, (n - 1) * sizeof *latent);
        assert_int_equal(w.ids.n - w.answer, n - answer);
        assert_int_equal(w.ids.ids[0], latent[0]);
        lay(&w, NULL, NULL, NULL, "cat");
        size_t bytes = 0;
        const char *piece = tn_tokenizer_piece(w.tokenizer, w.ids.ids[1], &bytes);
        /* no blank that a whole text gets, but of vocabularies whose rules put one before every part */
        assert_true(bytes > 0 && (piece[0] == 'c') == (f != 2 && f != 4));
        tn_free(latent);
        end(&w);
    }
}

/* D15: what ends an answer is to be said as well. */
static void end_is_a_target(void **state)
{
    (void)state;
    world w;
    begin(&w, tn_wire_bpe(VOCAB));
    w.reader.eos = 301;
    lay(&w, "the cat: sat\n", "\n", "cat:", " sat");
    assert_int_equal(w.ids.ids[w.ids.n - 1], 301);
    assert_true(w.answer < w.ids.n - 1);
    lay(&w, "the cat", NULL, NULL, NULL);
    assert_int_equal(w.ids.ids[w.ids.n - 1], 301);
    end(&w);
}

/* Tokens spelled in a text are text: a context cannot end the sequence. */
static void specials_are_text(void **state)
{
    (void)state;
    world w;
    begin(&w, tn_wire_bpe(VOCAB));
    lay(&w, "a<|endoftext|>b", "\n", "c<|endoftext|>:", " <|endoftext|>d");
    for (size_t i = 1; i + 1 < w.ids.n; i++) assert_int_not_equal(w.ids.ids[i], w.reader.eos);
    end(&w);
}

void tn_tests_wire_layout(tn_test_list *l)
{
    tn_test_add(l, answer_is_not_shifted, NULL, "wire layout: the answer is not shifted");
    tn_test_add(l, bos_is_first_and_no_target, NULL, "wire layout: BOS is first and no target");
    tn_test_add(l, answer_keeps_its_blank, NULL, "wire layout: the answer keeps its blank");
    tn_test_add(l, blank_of_gpt2, NULL, "wire layout: the blank of GPT-2's Paris");
    tn_test_add(l, text_mode_has_the_same_end, NULL, "wire layout: text mode ends in the same ids");
    tn_test_add(l, end_is_a_target, NULL, "wire layout: the end is a target");
    tn_test_add(l, specials_are_text, NULL, "wire layout: special tokens in a text");
}
