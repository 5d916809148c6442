/* Examples of all tasks with texts: what they say, that they are functions of their index, that splits share nothing, and files that are
 * refused. */
#include "wire_world.h"

#include "tasks/wire/wire_words.h"

#include <ctype.h>

/* --- words ---------------------------------------------------------------------------------------------------------------------- */

static void words_by_count(void **state)
{
    (void)state;
    static const char text[] =
        "the Cat saw the dog, the cat; don't saw 3cats caf\xc3\xa9 elephants it dog the abc123 under_score dog";
    static const char *const wanted[] = { "the", "dog", "saw", "cat" };
    tn_word *w = NULL;
    size_t n = 10;
    assert_ok(tn__words_of_text(text, sizeof text - 1, &n, &w));
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        char letters[TN_WORD_MOST + 1] = "";
        assert_int_equal(tn__word_write(w[i], letters), strlen(wanted[i]));
        assert_string_equal(letters, wanted[i]);
    }
    tn_free(w);
    n = 2;
    assert_ok(tn__words_of_text(text, sizeof text - 1, &n, &w));
    assert_int_equal(n, 2);
    tn_free(w);
}

static int by_number(const void *a, const void *b)
{
    const tn_word *x = a, *y = b;
    return *x > *y ? 1 : *x < *y ? -1 : 0;
}

static void made_words_differ(void **state)
{
    (void)state;
    enum { N = 400000 }; /* beyond those of two and of three syllables */
    tn_word *w = NULL;
    assert_ok(tn__words_made(N, &w));
    for (size_t i = 0; i < N; i++) {
        char letters[TN_WORD_MOST];
        const size_t n = tn__word_write(w[i], letters);
        assert_true(n == (i < 4900 ? 4u : i < 4900 + 343000 ? 6u : 8u));
        for (size_t k = 0; k < n; k++) assert_true(!strchr("aeiou", letters[k]) == (k % 2 == 0));
    }
    qsort(w, N, sizeof *w, by_number);
    for (size_t i = 1; i < N; i++) assert_true(w[i] != w[i - 1]);
    tn_free(w);
}

/* --- which questions ------------------------------------------------------------------------------------------------------------ */

static void picks(void **state)
{
    (void)state;
    int32_t a[16], b[16], more[16];
    int64_t asked[16] = { 0 }, differ = 0;
    for (int64_t c = 0; c < 200; c++)
        for (int64_t step = -1; step < 3; step++) {
            assert_int_equal(tn_wire_pick(7, step, TN_TRAIN, c, 16, 4, a), 4);
            assert_int_equal(tn_wire_pick(7, step, TN_TRAIN, c, 16, 4, b), 4);
            assert_memory_equal(a, b, 4 * sizeof *a); /* a function of its arguments */
            for (int k = 0; k < 4; k++) {
                assert_in_range(a[k], k ? a[k - 1] + 1 : 0, 15); /* none twice */
                asked[a[k]]++;
            }
            assert_int_equal(tn_wire_pick(7, step + 1, TN_TRAIN, c, 16, 4, b), 4);
            differ += memcmp(a, b, 4 * sizeof *a) != 0;
        }
    for (int k = 0; k < 16; k++) assert_in_range(asked[k], 120, 280); /* 200 each */
    assert_true(differ > 750);
    assert_int_equal(tn_wire_pick(1, -1, TN_VALID, 3, 16, 4, a), 4); /* held out: no seed, and more keep fewer */
    assert_int_equal(tn_wire_pick(2, -1, TN_VALID, 3, 16, 4, b), 4);
    assert_memory_equal(a, b, 4 * sizeof *a);
    assert_int_equal(tn_wire_pick(1, -1, TN_VALID, 3, 16, 9, more), 9);
    for (int k = 0, m = 0; k < 4; k++) {
        while (m < 9 && more[m] < a[k]) m++;
        assert_true(m < 9 && more[m] == a[k]);
    }
    assert_int_equal(tn_wire_pick(1, 5, TN_TRAIN, 3, 16, 0, a), 16);
    assert_int_equal(tn_wire_pick(1, 5, TN_TRAIN, 3, 3, 4, b), 3);
    for (int k = 0; k < 16; k++) assert_int_equal(a[k], k);
    assert_int_equal(tn_wire_pick(1, 5, TN_TRAIN, 3, 0, 4, b), 0);
}

/* --- recall --------------------------------------------------------------------------------------------------------------------- */

/* Every question from the context alone: the line that begins with it, whose rest is the answer. */
static void assert_recall(const tn_wire_example *e, int64_t pairs)
{
    assert_int_equal(e->questions, pairs);
    assert_int_equal(e->golds, pairs);
    for (int64_t k = 0; k < pairs; k++) {
        const tn_wire_question *q = &e->question[k];
        const tn_wire_span gold = e->gold[q->gold];
        const char *question = tn_wire_at(e, q->question), *answer = tn_wire_at(e, gold),
                   *context = tn_wire_at(e, e->context), *end = context + e->context.bytes;
        int found = 0;
        assert_int_equal(q->golds, 1);
        for (const char *line = context; line < end;
             line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1) {
            const size_t bytes = (size_t)((const char *)memchr(line, '\n', (size_t)(end - line)) - line);
            if (bytes < q->question.bytes || memcmp(line, question, q->question.bytes) != 0) continue;
            found++;
            assert_int_equal(bytes, q->question.bytes + gold.bytes);
            assert_memory_equal(line + q->question.bytes, answer, gold.bytes);
        }
        assert_int_equal(found, 1); /* keys differ */
        assert_true(question[q->question.bytes - 1] == ':' && answer[0] == ' ' && gold.bytes >= 4);
    }
}

static void recall(void **state)
{
    (void)state;
    tn_wire_example e = { 0 }, other = { 0 };
    tn_wire_texts *t = tn_wire_open("task=recall task.size=300 task.heldout=50");
    assert_int_equal(t->count[TN_TRAIN], 300);
    assert_int_equal(t->count[TN_VALID], 50);
    assert_int_equal(t->count[TN_TEST], 50);
    assert_true(t->kind == TN_WIRE_QA && strcmp(t->anchor, "\n") == 0);
    for (int split = 0; split < TN_SPLITS; split++)
        for (int64_t i = 0; i < t->count[split]; i++) {
            assert_ok(tn_wire_read(t, split, i, &e));
            assert_recall(&e, 16);
            assert_ok(tn_wire_read(t, (split + 1) % TN_SPLITS, i % 50, &other)); /* another split has others */
            assert_true(e.context.bytes != other.context.bytes ||
                        memcmp(tn_wire_at(&e, e.context), tn_wire_at(&other, other.context), e.context.bytes) != 0);
        }
    assert_ok(tn_wire_read(t, TN_TEST, 7, &e)); /* whatever was read before */
    tn_wire_texts *again = tn_wire_open("task=recall task.size=10 task.heldout=50");
    assert_ok(tn_wire_read(again, TN_TEST, 7, &other));
    assert_int_equal(e.text.n, other.text.n);
    assert_memory_equal(e.text.data, other.text.data, e.text.n);
    tn_wire_texts_free(again);
    tn_wire_texts_free(t);
    t = tn_wire_open("task=recall task.size=3 task.keys=40 task.pairs=40"); /* each word is a key */
    assert_ok(tn_wire_read(t, TN_TRAIN, 2, &e));
    assert_recall(&e, 40);
    tn_wire_texts_free(t);
    tn_wire_example_free(&e);
    tn_wire_example_free(&other);
}

static void recall_of_a_file(void **state)
{
    (void)state;
    tn_tempdir d;
    char words[600];
    tn_wire_texts *t = NULL;
    tn_wire_example e = { 0 };
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "words.txt");
    tn_put_text(path, "one two three four five six seven eight one two One TWO eleven");
    snprintf(words, sizeof words, "task=recall task.data=%s task.pairs=3", path);
    t = tn_wire_open(words);
    assert_ok(tn_wire_read(t, TN_TRAIN, 0, &e));
    assert_recall(&e, 3);
    for (size_t i = 0; i < e.context.bytes; i++) {
        const char c = tn_wire_at(&e, e.context)[i];
        assert_true(islower((unsigned char)c) || c == ':' || c == ' ' || c == '\n');
    }
    tn_wire_texts_free(t);
    snprintf(words, sizeof words, "task=recall task.data=%s task.keys=2 task.pairs=2", path); /* the frequent ones */
    t = tn_wire_open(words);
    assert_ok(tn_wire_read(t, TN_TRAIN, 0, &e));
    assert_recall(&e, 2);
    assert_true(strstr(t->about, "2 words"));
    tn_wire_texts_free(t);
    t = NULL;
    snprintf(words, sizeof words, "task=recall task.data=%s task.keys=100", path);
    assert_fails(tn_wire_try(words, &t), TN_USAGE,
                 "has 9 different words of 3 to 8 lower-case letters and task.keys is 100");
    snprintf(words, sizeof words, "task=recall task.data=%s", path);
    assert_fails(tn_wire_try(words, &t), TN_USAGE, "task.pairs=16 needs as many different keys and there are 9");
    assert_fails(tn_wire_try("task=recall task.data=/nowhere/words", &t), TN_BAD_FILE, "/nowhere/words");
    assert_fails(tn_wire_try("task=recall task.pairs=8,16", &t), TN_USAGE, "task.pairs=8,16 has more than 1 numbers");
    assert_fails(tn_wire_try("task=recall task.pairs=5000 task.keys=9000", &t), TN_USAGE, "at most 4096");
    assert_null(t);
    tn_wire_example_free(&e);
    tn_tempdir_clear(&d);
}

/* --- pieces of a text ----------------------------------------------------------------------------------------------------------- */

/* Bytes that say where they are, with a character of several bytes now and then. */
static size_t put_numbered(const char *path, size_t bytes, char **text)
{
    char *p = tn_alloc(bytes + 16);
    size_t n = 0;
    for (int i = 0; n < bytes; i++) n += (size_t)sprintf(p + n, "%d%s ", i, i % 3 ? "\xe2\x82\xac" : "\xc3\xa9");
    tn_put_file(path, p, n);
    *text = p;
    return n;
}

static bool at_border(const char *text, size_t at) { return ((unsigned char)text[at] & 0xc0) != 0x80; }

static void check_pieces(tn_tempdir *d, const char *task, size_t length, size_t answer)
{
    char words[700], *text;
    const char *path = tn_tempdir_file(d, "text.txt");
    const size_t n = put_numbered(path, 200000, &text);
    tn_wire_example e = { 0 };
    unsigned char *taken = tn_alloc(n);
    snprintf(words, sizeof words, "task=%s task.data=%s task.heldout=7", task, path);
    tn_wire_texts *t = tn_wire_open(words);
    assert_int_equal(t->kind, answer ? TN_WIRE_LM : TN_WIRE_AE);
    assert_string_equal(t->anchor, "");
    assert_true(t->count[TN_TRAIN] == (int64_t)((n - 2 * (n / 20)) / (length + answer)));
    assert_true(t->count[TN_VALID] == 7 && t->count[TN_TEST] == 7);
    for (int split = 0; split < TN_SPLITS; split++)
        for (int64_t i = 0; i < t->count[split]; i++) {
            assert_ok(tn_wire_read(t, split, i, &e));
            assert_in_range(e.context.bytes, length - 6, length);
            const char *found = strstr(text, "");
            char *needle = tn_alloc(e.text.n + 1);
            memcpy(needle, e.text.data, e.text.n); /* context and answer stand in the file behind each other */
            assert_non_null(found = strstr(text, needle));
            const size_t at = (size_t)(found - text),
                         low = split == TN_TRAIN ? 0 : n - (split == TN_VALID ? 2 : 1) * (n / 20),
                         high = split == TN_TEST ? n : n - (split == TN_TRAIN ? 2 : 1) * (n / 20);
            assert_true(at >= low && at + e.text.n <= high);
            assert_true(at_border(text, at) && at_border(text, at + e.context.bytes) && at_border(text, at + e.text.n));
            for (size_t k = 0; k < e.text.n; k++) assert_int_equal(taken[at + k]++, 0);
            tn_free(needle);
            assert_int_equal(e.questions, answer ? 1 : 0);
            assert_int_equal(e.golds, e.questions);
            if (!answer) continue;
            assert_int_equal(e.question[0].question.bytes, 0);
            assert_in_range(e.gold[0].bytes, answer - 3, answer + 3);
        }
    tn_wire_texts_free(t);
    tn_wire_example_free(&e);
    tn_free(taken);
    tn_free(text);
}

static void pieces_of_a_text(void **state)
{
    (void)state;
    tn_tempdir d;
    char words[700];
    tn_wire_texts *t = NULL;
    tn_tempdir_make(&d);
    check_pieces(&d, "cont", 512, 96);
    check_pieces(&d, "ae", 128, 0);
    tn_put_text(tn_tempdir_file(&d, "short.txt"), "a short text");
    snprintf(words, sizeof words, "task=cont task.data=%s/short.txt", d.path);
    assert_fails(tn_wire_try(words, &t), TN_USAGE, "has 12 bytes: task=cont needs at least 12160");
    assert_fails(tn_wire_try("task=ae", &t), TN_USAGE, "task=ae needs a text: give task.data=FILE");
    assert_null(t);
    tn_tempdir_clear(&d);
}

/* --- squad ---------------------------------------------------------------------------------------------------------------------- */

static const char squad_file[] =
    "{\"version\":\"1.1\",\"data\":[{\"title\":\"x\",\"paragraphs\":["
    "{\"context\":\"The cat sat on the m\\u00e4t.\",\"qas\":[{\"id\":\"1\",\"question\":\"Who sat?\",\"answers\":["
    "{\"text\":\"cat\",\"answer_start\":4},{\"text\":\"The "
    "cat\",\"answer_start\":0},{\"text\":\"cat\",\"answer_start\":4}]},"
    "{\"id\":\"2\",\"question\":\"On what?\",\"answers\":[{\"text\":\"the m\\u00e4t\",\"answer_start\":15}]},"
    "{\"id\":\"3\",\"question\":\"Why?\",\"answers\":[]}]},"
    "{\"qas\":[{\"question\":\"Where?\",\"answers\":[{\"text\":\"here\"}]}],\"context\":\"It is here.\"}]},"
    "{\"paragraphs\":[{\"context\":\"Three is three.\",\"qas\":[{\"question\":\"What is "
    "three?\",\"answers\":[{\"text\":\"three\"}]}]},"
    "{\"context\":\"Nothing.\",\"qas\":[]},{\"context\":\"Four.\",\"qas\":[{\"question\":\"4?\",\"answers\":[{\"text\":"
    "\"Four\"}]}]},"
    "{\"context\":\"Five.\",\"qas\":[{\"question\":\"5?\",\"answers\":[{\"text\":\"Five\"}]}]}]}]}";

static void squad(void **state)
{
    (void)state;
    tn_tempdir d;
    char words[700];
    tn_wire_texts *t = NULL;
    tn_wire_example e = { 0 };
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "squad.json");
    tn_put_text(path, squad_file);
    snprintf(words, sizeof words, "task=squad task.data=%s", path);
    t = tn_wire_open(words);
    assert_true(t->count[TN_TRAIN] == 3 && t->count[TN_VALID] == 1 && t->count[TN_TEST] == 1);
    assert_true(t->cut == 0 && t->left_out == 0);
    assert_ok(tn_wire_read(t, TN_TRAIN, 0, &e));
    assert_true(tn_wire_is(&e, e.context, "The cat sat on the m\xc3\xa4t.") && e.questions == 2 && e.golds == 3);
    assert_true(tn_wire_is(&e, e.question[0].question, "Question: Who sat? Answer:") && e.question[0].golds == 2);
    assert_true(tn_wire_is(&e, e.gold[0], " cat") && tn_wire_is(&e, e.gold[1], " The cat"));
    assert_true(e.question[1].gold == 2 && tn_wire_is(&e, e.gold[2], " the m\xc3\xa4t"));
    assert_ok(tn_wire_read(t, TN_TRAIN, 1, &e)); /* the questions stand before the context */
    assert_true(tn_wire_is(&e, e.context, "It is here.") && tn_wire_is(&e, e.gold[0], " here"));
    assert_ok(tn_wire_read(t, TN_VALID, 0, &e));
    assert_true(tn_wire_is(&e, e.context, "Four."));
    assert_ok(tn_wire_read(t, TN_TEST, 0, &e));
    assert_true(tn_wire_is(&e, e.context, "Five."));
    tn_wire_texts_free(t);
    snprintf(words, sizeof words, "task=squad task.data=%s task.length=21", path); /* in the middle of a character */
    t = tn_wire_open(words);
    assert_true(t->cut == 1 && t->left_out == 1);
    assert_ok(tn_wire_read(t, TN_TRAIN, 0, &e));
    assert_true(tn_wire_is(&e, e.context, "The cat sat on the m") && e.questions == 1);
    tn_wire_texts_free(t);
    t = NULL;
    for (size_t n = 0; n + 1 < sizeof squad_file; n += 7) { /* cut anywhere */
        tn_put_file(path, squad_file, n);
        assert_int_equal(tn_wire_try(words, &t), TN_BAD_FILE);
        assert_null(t);
    }
    tn_put_text(path,
                "{\"data\":[1,{\"paragraphs\":3},{\"paragraphs\":[4,{\"context\":5,\"qas\":[6,{\"question\":7}]}]}]}");
    assert_fails(tn_wire_try(words, &t), TN_BAD_FILE, "has no paragraph with a question that is answered in it");
    assert_fails(tn_wire_try("task=squad", &t), TN_USAGE, "give task.data=FILE");
    tn_wire_example_free(&e);
    tn_tempdir_clear(&d);
}

static void squad_as_published(void **state)
{
    (void)state;
    char words[1100];
    int64_t questions = 0;
    tn_wire_example e = { 0 };
    const char *path = tn_test_data("qa/squad-v1.1-dev.rebuilt.json.gz");
    if (!path) skip();
    snprintf(words, sizeof words, "task=squad task.length=4096 task.heldout=10000 task.data=%s", path);
    tn_wire_texts *t = tn_wire_open(words);
    assert_true(t->count[0] + t->count[1] + t->count[2] == 2067 && t->cut == 0 && t->left_out == 0);
    for (int split = 0; split < TN_SPLITS; split++)
        for (int64_t i = 0; i < t->count[split]; i++) {
            assert_ok(tn_wire_read(t, split, i, &e));
            questions += (int64_t)e.questions;
        }
    assert_int_equal(questions, 10570);
    tn_wire_texts_free(t);
    tn_wire_example_free(&e);
}

/* --- cls ------------------------------------------------------------------------------------------------------------------------ */

static void put_snli(tn_tempdir *d, const char *name, const char *rows)
{
    char text[1000];
    snprintf(text, sizeof text, "gold_label\tsentence1\tsentence2\n%s", rows);
    tn_put_text(tn_tempdir_file(d, name), text);
}

static void classes(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        { "A dog runs.", "Hypothesis: An animal runs. Answer:", " yes" },
        { "A dog runs.", "Hypothesis: A dog runs to a cat. Answer:", " maybe" },
        { "A cat sits.", "Hypothesis: No cat sits. Answer:", " no" },
    };
    tn_tempdir d;
    char words[700];
    tn_wire_texts *t = NULL;
    tn_wire_example e = { 0 };
    tn_tempdir_make(&d);
    put_snli(&d, "snli_train.tsv",
             "entailment\tA dog runs.\tAn animal runs.\nneutral\tA dog runs.\tA dog runs to a cat.\n"
             "-\tNobody knows.\tNobody agrees.\nneutral\tTwo kids play .\tIt is late.\n"
             "contradiction\tA cat sits.\tNo cat sits.\n");
    put_snli(&d, "snli_dev.tsv", "neutral\tTwo kids play .\tKids play .\n");
    put_snli(&d, "snli_test.tsv", "contradiction\tA woman sings .\tNobody sings .\n");
    snprintf(words, sizeof words, "task=cls task.data=%s", d.path);
    t = tn_wire_open(words);
    assert_true(t->count[TN_TRAIN] == 3 && t->count[TN_VALID] == 1 && t->count[TN_TEST] == 1 && t->kind == TN_WIRE_QA);
    for (int64_t i = 0; i < 3; i++) {
        assert_ok(tn_wire_read(t, TN_TRAIN, i, &e));
        assert_true(tn_wire_is(&e, e.context, rows[i][0]) && e.questions == 1 && e.golds == 1);
        assert_true(tn_wire_is(&e, e.question[0].question, rows[i][1]) && tn_wire_is(&e, e.gold[0], rows[i][2]));
    }
    assert_ok(tn_wire_read(t, TN_TEST, 0, &e));
    assert_true(tn_wire_is(&e, e.context, "A woman sings.") && tn_wire_is(&e, e.gold[0], " no"));
    tn_wire_texts_free(t);
    t = NULL;
    put_snli(&d, "snli_dev.tsv", "-\tTwo kids play .\tKids play .\n");
    assert_fails(tn_wire_try(words, &t), TN_BAD_FILE, "snli_dev.tsv has no labelled pair");
    assert_fails(tn_wire_try("task=cls", &t), TN_USAGE, "task=cls needs its files: give task.data=FOLDER");
    tn_wire_example_free(&e);
    tn_tempdir_clear(&d);
}

void tn_tests_wire_text(tn_test_list *l)
{
    tn_test_add(l, words_by_count, NULL, "wire text: words by their count");
    tn_test_add(l, made_words_differ, NULL, "wire text: made words differ");
    tn_test_add(l, picks, NULL, "wire text: which questions are asked");
    tn_test_add(l, recall, NULL, "wire text: recall");
    tn_test_add(l, recall_of_a_file, NULL, "wire text: recall with words of a file");
    tn_test_add(l, pieces_of_a_text, NULL, "wire text: cont and ae");
    tn_test_add(l, classes, NULL, "wire text: cls");
    tn_test_add(l, squad, NULL, "wire text: squad");
    tn_test_add(l, squad_as_published, NULL, "wire text: squad as published");
}
