/* Documents against the layout that the same model sees later: the ids of their parts are the same. */
#include "tasks/wire/wire_document.h"
#include "wire_world.h"

typedef struct world {
    tn_wire_texts *texts;
    tn_tokenizer *tokenizer;
    tn_wire_reader reader;
    tn_tokenizer_scratch *scratch;
    tn_wire_tokens work;
    tn_tokens laid, ids;
    tn_wire_document d;
} world;

static void begin(world *w, const char *words)
{
    *w = (world){ .texts = tn_wire_open(words), .tokenizer = tn_wire_bpe(320) };
    w->reader = tn_wire_reader_of('a', w->tokenizer);
    assert_ok(tn_tokenizer_scratch_new(&w->scratch));
}

static void end(world *w)
{
    tn_wire_document_free(&w->d);
    tn_wire_tokens_free(&w->work);
    tn_tokens_free(&w->laid);
    tn_tokens_free(&w->ids);
    tn_tokenizer_scratch_free(w->scratch);
    tn_tokenizer_free(w->tokenizer);
    tn_wire_texts_free(w->texts);
}

/* Parts of the document as the layout has them. Returns where the answer begins in laid. */
static size_t lay(world *w)
{
    const tn_wire_document *d = &w->d;
    const char *at = d->text.data;
    size_t answer;
    const tn_wire_parts p = { .context = at + d->context.at,
                              .context_bytes = d->context.bytes,
                              .anchor = at + d->anchor.at,
                              .anchor_bytes = d->anchor.bytes,
                              .question = at + d->question.at,
                              .question_bytes = d->question.bytes,
                              .answer = at + d->answer.at,
                              .answer_bytes = d->answer.bytes };
    assert_ok(tn_wire_lay_out(&w->reader, w->scratch, &p, &w->work, &w->laid, &answer));
    return answer;
}

static void document_has_the_ids_of_the_layout(void **state)
{
    (void)state;
    static const int64_t repeats[] = { 0, 1, 7 };
    world w;
    begin(&w, "task=recall task.pairs=5 task.size=3");
    for (int64_t i = 0; i < 6; i++) /* twice as many as the task has */
        for (int k = 0; k < 3; k++) {
            assert_ok(tn_wire_document_make(w.texts, i, repeats[k], &w.d));
            lay(&w);
            w.ids.n = 0;
            assert_ok(tn_tokenizer_encode(w.tokenizer, w.scratch, w.d.text.data, w.d.text.n, 0, &w.ids));
            const size_t context = w.work.context.n, tail = w.laid.n - 2 - context; /* without BOS, EOS */
            assert_true(tail > 0 && context > 0 && w.ids.n >= context + tail);
            if (!repeats[k]) assert_int_equal(w.ids.n, context + tail);
            assert_memory_equal(w.ids.ids, w.laid.ids + 1, context * sizeof *w.ids.ids);
            assert_memory_equal(w.ids.ids + w.ids.n - tail, w.laid.ids + 1 + context, tail * sizeof *w.ids.ids);
        }
    end(&w);
}

/* Lines between context and anchor are lines of the context, as many as were asked for; the last question is one of it too. */
static void recall_repeats_its_lines(void **state)
{
    (void)state;
    world w;
    char line[64], first[4096];
    begin(&w, "task=recall task.pairs=4");
    assert_ok(tn_wire_document_make(w.texts, 11, 9, &w.d));
    const char *at = w.d.text.data, *const end_of = at + w.d.repeated.at + w.d.repeated.bytes;
    assert_int_equal(w.d.context.at, 0);
    assert_int_equal(w.d.repeated.at, w.d.context.bytes);
    assert_true(w.d.text.n < sizeof first);
    memcpy(first, at, w.d.text.n);
    first[w.d.context.bytes] = 0;
    int lines = 0;
    for (const char *p = at + w.d.repeated.at; p < end_of; lines++) {
        const char *stop = memchr(p, '\n', (size_t)(end_of - p));
        assert_non_null(stop);
        snprintf(line, sizeof line, "%.*s", (int)(stop + 1 - p), p);
        assert_non_null(strstr(first, line));
        p = stop + 1;
    }
    assert_int_equal(lines, 9);
    assert_int_equal(*end_of, '\n');
    snprintf(line, sizeof line, "%.*s%.*s\n", (int)w.d.question.bytes, at + w.d.question.at, (int)w.d.answer.bytes,
             at + w.d.answer.at);
    assert_non_null(strstr(first, line));
    assert_int_equal(w.d.answer.at + w.d.answer.bytes, w.d.text.n);
    assert_int_equal(at[w.d.text.n], 0);
    end(&w);
}

/* The same document again; others differ, also behind the end of the split; questions are drawn anew where contexts come again. */
static void documents_are_functions_of_their_number(void **state)
{
    (void)state;
    world w;
    tn_wire_document other = { 0 };
    begin(&w, "task=recall task.pairs=64 task.size=2");
    assert_ok(tn_wire_document_make(w.texts, 5, 8, &w.d));
    for (int64_t i = 0; i < 6; i++) {
        assert_ok(tn_wire_document_make(w.texts, i, 8, &other));
        const bool same = other.text.n == w.d.text.n && memcmp(other.text.data, w.d.text.data, other.text.n) == 0;
        assert_int_equal(same, i == 5);
    }
    w.texts->endless = false; /* as files are: document 5 has context 1 */
    assert_ok(tn_wire_document_make(w.texts, 5, 8, &w.d));
    assert_ok(tn_wire_document_make(w.texts, 1, 8, &other));
    assert_int_equal(w.d.context.bytes, other.context.bytes);
    assert_memory_equal(w.d.text.data, other.text.data, other.context.bytes);
    assert_false(w.d.repeated.bytes == other.repeated.bytes &&
                 memcmp(w.d.text.data + w.d.repeated.at, other.text.data + other.repeated.at, other.repeated.bytes) ==
                     0);
    tn_wire_document_free(&other);
    end(&w);
}

static void continuation_follows_its_context(void **state)
{
    (void)state;
    char words[2048];
    tn_tempdir dir;
    world w;
    tn_tempdir_make(&dir);
    const char *path = tn_tempdir_file(&dir, "t.txt");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 4000; i++) fprintf(f, "%d ", i);
    fclose(f);
    snprintf(words, sizeof words, "task=cont task.length=32 task.data=%s", path);
    begin(&w, words);
    assert_ok(tn_wire_document_make(w.texts, 0, 0, &w.d));
    assert_int_equal(w.d.context.bytes, 32);
    assert_int_equal(w.d.text.n, 32 + 96);
    assert_int_equal(strncmp(w.d.text.data, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 ", 40), 0);
    assert_fails(tn_wire_document_make(w.texts, 0, 2, &w.d), TN_USAGE, "task=cont have no questions");
    end(&w);
    tn_tempdir_remove_all(&dir);
}

void tn_tests_wire_document(tn_test_list *l)
{
    tn_test_add(l, document_has_the_ids_of_the_layout, NULL, "wire document: ids of the layout");
    tn_test_add(l, recall_repeats_its_lines, NULL, "wire document: recall repeats its lines");
    tn_test_add(l, documents_are_functions_of_their_number, NULL, "wire document: a function of its number");
    tn_test_add(l, continuation_follows_its_context, NULL, "wire document: a continuation follows its context");
}
