/* The store against tokenising on the fly, what its key depends on, and files that are refused. */
#include "wire_world.h"

#include "base/hash.h"

#define WORDS "task=recall task.size=900 task.heldout=60 task.pairs=5 task.keys=200"

typedef struct world {
    tn_tokenizer *tokenizer[2];
    tn_wire_reader reader[2];
    tn_wire_texts *texts;
    tn_wire_store *store;
} world;

static void begin(world *w, const char *words, const char *folder)
{
    *w = (world){ .tokenizer = { tn_wire_bpe(320) } };
    assert_ok(tn_tokenizer_open("bytes", &w->tokenizer[1]));
    for (int r = 0; r < 2; r++) w->reader[r] = tn_wire_reader_of((char)('a' + r), w->tokenizer[r]);
    w->texts = tn_wire_open(words);
    assert_ok(tn_wire_store_open(w->texts, w->reader, 2, folder, &w->store));
}

static void end(world *w)
{
    tn_wire_store_free(w->store);
    tn_wire_texts_free(w->texts);
    for (int r = 0; r < 2; r++) tn_tokenizer_free(w->tokenizer[r]);
}

static void assert_same(const tn_wire_sequence *s, const tn_wire_parts *p, const tn_wire_reader *r,
                        tn_tokenizer_scratch *x, tn_wire_tokens *work)
{
    tn_tokens ids = { 0 };
    int32_t got[4096];
    size_t answer;
    assert_ok(tn_wire_lay_out(r, x, p, work, &ids, &answer));
    assert_int_equal(tn_wire_length(s), ids.n);
    assert_int_equal(tn_wire_answer(s), answer);
    tn_wire_lay(s, got);
    assert_memory_equal(got, ids.ids, ids.n * sizeof *got);
    tn_tokens_free(&ids);
}

/* Every context and question of all splits. */
static void assert_store(const world *w, const tn_wire_store *s)
{
    tn_wire_example e = { 0 };
    tn_wire_tokens work = { 0 };
    tn_tokenizer_scratch *x;
    int64_t longest[2] = { 0 }, text[2] = { 0 }, told[2] = { 0 }, c = 0, q = 0;
    assert_ok(tn_tokenizer_scratch_new(&x));
    for (int split = 0; split < TN_SPLITS; split++)
        for (int64_t i = 0; i < s->count[split]; i++, c++) {
            assert_int_equal(c, s->first[split] + i);
            assert_ok(tn_wire_read(w->texts, split, i, &e));
            assert_int_equal(s->byte_at[c + 1] - s->byte_at[c], e.context.bytes);
            assert_memory_equal(s->bytes + s->byte_at[c], tn_wire_at(&e, e.context), e.context.bytes);
            assert_int_equal(s->question_at[c], q);
            for (size_t r = 0; r < 2; r++) {
                const tn_wire_sequence own = tn_wire_store_sequence(s, r, c, -1, true);
                tn_wire_parts p = { .context = tn_wire_at(&e, e.context), .context_bytes = e.context.bytes };
                assert_same(&own, &p, &w->reader[r], x, &work);
                if ((int64_t)tn_wire_length(&own) > text[r]) text[r] = (int64_t)tn_wire_length(&own);
                for (size_t k = 0; k < e.questions; k++) {
                    const tn_wire_span question = e.question[k].question, gold = e.gold[e.question[k].gold];
                    const tn_wire_sequence told_one = tn_wire_store_sequence(s, r, c, q + (int64_t)k, true),
                                           plain = tn_wire_store_sequence(s, r, c, q + (int64_t)k, false);
                    p.anchor = w->texts->anchor;
                    p.anchor_bytes = strlen(p.anchor);
                    p.question = tn_wire_at(&e, question);
                    p.question_bytes = question.bytes;
                    p.answer = tn_wire_at(&e, gold);
                    p.answer_bytes = gold.bytes;
                    assert_same(&told_one, &p, &w->reader[r], x, &work);
                    p.context_bytes = p.anchor_bytes = 0;
                    assert_same(&plain, &p, &w->reader[r], x, &work);
                    p.context_bytes = e.context.bytes;
                    if ((int64_t)tn_wire_length(&plain) > longest[r]) longest[r] = (int64_t)tn_wire_length(&plain);
                    if ((int64_t)tn_wire_length(&told_one) > told[r]) told[r] = (int64_t)tn_wire_length(&told_one);
                }
            }
            q += (int64_t)e.questions;
        }
    assert_int_equal(q, s->questions);
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(s->reader[r].length, longest[r]);
        assert_int_equal(s->reader[r].text, text[r]);
        assert_true(s->reader[r].told >= told[r] &&
                    s->reader[r].told == text[r] + s->reader[r].anchors + longest[r] - 2);
    }
    tn_tokenizer_scratch_free(x);
    tn_wire_tokens_free(&work);
    tn_wire_example_free(&e);
}

static void equals_tokenising(void **state)
{
    (void)state;
    world w;
    begin(&w, WORDS, NULL); /* 1,020 contexts */
    assert_int_equal(w.store->contexts, 1020);
    assert_int_equal(w.store->questions, 5100);
    assert_store(&w, w.store);
    end(&w);
}

/* --- the file ------------------------------------------------------------------------------------------------------------------- */

static const char *file_of(const world *w, tn_tempdir *d)
{
    char name[64];
    snprintf(name, sizeof name, "wire-%s.tokens", w->store->key);
    return tn_tempdir_file(d, name);
}

static void kept_and_read_back(void **state)
{
    (void)state;
    tn_tempdir d;
    world w, again;
    struct stat before, after;
    tn_tempdir_make(&d);
    begin(&w, WORDS, d.path);
    assert_int_equal(tn_tempdir_entries(&d, false), 1); /* no temporary is left */
    assert_int_equal(stat(file_of(&w, &d), &before), 0);
    begin(&again, WORDS, d.path);
    assert_int_equal(stat(file_of(&w, &d), &after), 0);
    assert_true(before.st_ino == after.st_ino); /* read, not written again */
    assert_store(&again, again.store);
    assert_true(tn_wire_store_bytes(again.store) == tn_wire_store_bytes(w.store));
    assert_int_equal(w.store->most_bytes, again.store->most_bytes);
    end(&again);
    end(&w);
    tn_tempdir_clear(&d);
}

static void key_of(const char *words, const char *anchor, const char *form, int64_t vocab, int32_t eos, char letter,
                   char key[TN_HASH_BYTES])
{
    tn_wire_texts *t = tn_wire_open(words);
    tn_tokenizer *k = tn_wire_bpe(vocab);
    tn_wire_reader r = tn_wire_reader_of(letter, k);
    if (anchor) t->anchor = anchor;
    if (form) t->form = form;
    if (eos >= 0) r.eos = eos;
    assert_ok(tn_wire_store_key(t, &r, 1, key));
    tn_tokenizer_free(k);
    tn_wire_texts_free(t);
}

static void another_key(void **state)
{
    (void)state;
    char key[12][TN_HASH_BYTES];
    key_of(WORDS, NULL, NULL, 320, -1, 'a', key[0]);
    key_of(WORDS, NULL, NULL, 280, -1, 'a', key[1]); /* another tokenizer */
    key_of(WORDS, "\n\n", NULL, 320, -1, 'a', key[2]);
    key_of(WORDS, NULL, "key = value", 320, -1, 'a', key[3]); /* another template */
    key_of(WORDS, NULL, NULL, 320, 17, 'a', key[4]);
    key_of(WORDS, NULL, NULL, 320, -1, 'b', key[5]);
    key_of(WORDS " task.size=901", NULL, NULL, 320, -1, 'a', key[6]);
    key_of(WORDS " task.pairs=6", NULL, NULL, 320, -1, 'a', key[7]);
    key_of(WORDS " task.keys=201", NULL, NULL, 320, -1, 'a', key[8]);
    key_of(WORDS " task.split_seed=1", NULL, NULL, 320, -1, 'a', key[9]);
    key_of(WORDS " task.heldout=61", NULL, NULL, 320, -1, 'a', key[10]);
    key_of(WORDS " task.questions=2", NULL, NULL, 320, -1, 'a', key[11]); /* says nothing about tokens */
    for (int i = 0; i < 11; i++)
        for (int k = 0; k < i; k++) assert_string_not_equal(key[i], key[k]);
    assert_string_equal(key[11], key[0]);
}

typedef struct damage {
    const char *said;
    size_t at;
    unsigned char flip;
    long grow; /* of the file */
} damage;

static void refused(void **state)
{
    (void)state;
    /* Offsets of the header: magic 0, version 8, readers 12, payload 16, key 24, hash 57, counts 96, readers 144. */
    static const damage rows[] = {
        { "it is no file of tokens", 0, 1, 0 },
        { "it is of another version", 8, 2, 0 },
        { "its header is damaged", 12, 64, 0 },
        { "its header is damaged", 13, 1, 0 },
        { "it was cut, or its counts", 16, 1, 0 },
        { "of other texts or models", 30, 1, 0 },
        { "not what was written", 60, 1, 0 },
        { "it was cut, or its counts", 96, 1, 0 },
        { "a count that is too large", 96 + 5, 1, 0 },
        { "a count that is too large", 96 + 7, 0x80, 0 },
        { "a count that is too large", 120 + 6, 9, 0 },
        { "a count that is too large", 128 + 6, 9, 0 },
        { "it was cut, or its counts", 144 + 24, 4, 0 },
        { "a count that is too large", 144 + 38, 4, 0 },
        { "not what was written", 144 + 8, 1, 0 }, /* what begins a text */
        { "not what was written", 136, 1, 0 },     /* the kind of the questions */
        { "not what was written", 500, 1, 0 },
        { "not what was written", 100000, 1, 0 },
        { "it was cut", 0, 0, -1 },
        { "it was cut", 0, 0, -100000 },
        { "it was cut, or its counts", 0, 0, 1 },
        { "it was cut", 0, 0, -100000000 },
    };
    tn_tempdir d;
    world w;
    char *good;
    size_t n;
    tn_tempdir_make(&d);
    begin(&w, WORDS, d.path);
    const char *path = file_of(&w, &d);
    assert_ok(tn_file_read_all(path, 1 << 28, &good, &n));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_wire_store *s = NULL;
        const long grown = (long)n + rows[i].grow;
        const size_t bytes = grown > 0 ? (size_t)grown : 0;
        char *bad = tn_alloc(bytes + n + 2);
        memcpy(bad, good, n);
        bad[rows[i].at] = (char)(bad[rows[i].at] ^ rows[i].flip);
        tn_put_file(path, bad, bytes);
        assert_fails(tn_wire_store_open(w.texts, w.reader, 2, d.path, &s), TN_BAD_FILE, rows[i].said);
        if (!strstr(tn_error_text(), "remove the file")) fail_msg("%zu: %s", i, tn_error_text());
        assert_null(s);
        tn_free(bad);
    }
    tn_free(good);
    assert_int_equal(remove(path), 0);
    tn_wire_store *s = NULL;
    assert_ok(tn_wire_store_open(w.texts, w.reader, 2, d.path, &s)); /* it is made again */
    assert_store(&w, s);
    tn_wire_store_free(s);
    end(&w);
    tn_tempdir_clear(&d);
}

/* A payload that somebody changed together with its hash: offsets and ids are looked at all the same. */
static void forged(void **state)
{
    (void)state;
    enum { PAYLOAD = 336, HASH = 57 };
    tn_tempdir d;
    world w;
    char *good, hex[TN_HASH_BYTES];
    size_t n;
    tn_tempdir_make(&d);
    begin(&w, WORDS, d.path);
    const char *path = file_of(&w, &d);
    assert_ok(tn_file_read_all(path, 1 << 28, &good, &n));
    const size_t places[] = { PAYLOAD, PAYLOAD + 8 * 1020 + 4, PAYLOAD + 8 * 1021, n - 1 };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        tn_wire_store *s = NULL;
        char *bad = tn_alloc(n + 1);
        memcpy(bad, good, n);
        bad[places[i]] = (char)(bad[places[i]] ^ 0x80);
        memset(bad + HASH, 0, sizeof hex);
        tn_hash_memory(bad, n, hex);
        memcpy(bad + HASH, hex, sizeof hex);
        tn_put_file(path, bad, n);
        assert_fails(tn_wire_store_open(w.texts, w.reader, 2, d.path, &s), TN_BAD_FILE,
                     "its offsets or ids are damaged");
        tn_free(bad);
    }
    tn_free(good);
    end(&w);
    tn_tempdir_clear(&d);
}

/* A message with its question is made with one anchor, wherever it is made. */
static void another_anchor(void **state)
{
    (void)state;
    world w;
    begin(&w, "task=recall task.size=5 task.heldout=2 task.pairs=2 task.keys=20", NULL);
    w.texts->anchor = " ";
    assert_fails(tn_wire_store_see(w.store, w.texts, &w.reader[0]), TN_INTERNAL, "recall has another anchor");
    assert_true(!w.store->seen);
    w.texts->anchor = TN_WIRE_BETWEEN;
    assert_ok(tn_wire_store_see(w.store, w.texts, &w.reader[0]));
    end(&w);
}

static void no_memory(void **state)
{
    (void)state;
    world w;
    begin(&w, "task=recall task.size=5 task.heldout=2 task.pairs=2 task.keys=20", NULL);
    for (uint64_t i = 1; i < 2000; i++) {
        tn_wire_store *s = NULL;
        tn_alloc_fail_at(i);
        const tn_status r = tn_wire_store_open(w.texts, w.reader, 2, NULL, &s);
        tn_alloc_fail_at(0);
        tn_wire_store_free(s);
        if (r == TN_OK) {
            assert_true(i > 10);
            end(&w);
            return;
        }
        assert_int_equal(r, TN_MEMORY);
    }
    fail_msg("it never succeeds");
}

void tn_tests_wire_store(tn_test_list *l)
{
    tn_test_add(l, equals_tokenising, NULL, "wire store: equals tokenising on the fly");
    tn_test_add(l, kept_and_read_back, NULL, "wire store: kept and read back");
    tn_test_add(l, another_key, NULL, "wire store: what another key comes from");
    tn_test_add(l, refused, NULL, "wire store: files that are refused");
    tn_test_add(l, forged, NULL, "wire store: forged contents");
    tn_test_add(l, another_anchor, NULL, "wire store: another anchor than that of messages");
    tn_test_add(l, no_memory, NULL, "wire store: out of memory");
}
