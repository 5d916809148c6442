/* Training against a plain trainer that counts all pairs anew for every merge; threads; saving; what is refused. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "tempdir.h"
#include "token/tokenizer_impl.h"

typedef struct docs {
    const char *const *text;
    size_t n, next;
} docs;

static tn_status next_doc(void *user, const char **text, size_t *bytes)
{
    docs *d = user;
    *text = d->next < d->n ? d->text[d->next++] : NULL;
    *bytes = *text ? strlen(*text) : 0;
    return TN_OK;
}

static const char *const some_text[] = {
    "the cat sat on the mat. the cats sat on the mats; a catch, a match, the thatch. It's the cat's mat, isn't it?\n",
    ("a recurrence keeps a state and a gate keeps the recurrence: states, gates, gated states.\n\n  123 1234 12 "
     "caf\xc3\xa9 caf\xc3\xa9\n"),
    "abababab aaaa aaaaa aaaaaa abcabcabc bcbc abc bc ab \xff\xfe",
    "",
    "x",
};

static tn_tokenizer *train(int64_t vocab, int threads)
{
    docs d = { some_text, sizeof some_text / sizeof *some_text, 0 };
    const tn_bpe_options o = { .vocab = vocab, .threads = threads };
    tn_tokenizer *t = NULL;
    assert_ok(tn_bpe_train(next_doc, &d, &o, &t));
    return t;
}

/* --- the plain trainer -------------------------------------------------------------------------------------------- */

enum { MAX_WORDS = 512, MAX_SYMBOLS = 24, MAX_IDS = 400 };

typedef struct plain {
    int32_t symbol[MAX_WORDS][MAX_SYMBOLS];
    int n[MAX_WORDS], words;
    int64_t count[MAX_IDS][MAX_IDS];
} plain;

static void plain_words(plain *p, const tn_tokenizer *t)
{
    tn_text repaired = { 0 };
    for (size_t k = 0; k < sizeof some_text / sizeof *some_text; k++) {
        repaired.n = 0;
        assert_ok(tn_utf8_repair(some_text[k], strlen(some_text[k]), &repaired));
        const unsigned char *at = (const unsigned char *)repaired.data, *end = at + repaired.n;
        while (repaired.n && at < end) {
            const size_t n = t->split[0].known->scan(t->unicode, at, end);
            assert_true(n <= MAX_SYMBOLS && p->words < MAX_WORDS);
            for (size_t i = 0; i < n; i++) p->symbol[p->words][i] = t->byte_id[at[i]];
            p->n[p->words++] = (int)n;
            at += n;
        }
    }
    tn_text_free(&repaired);
}

/* The most frequent pair, smallest first; its count. */
static int64_t plain_best(plain *p, int32_t *a, int32_t *b)
{
    int64_t best = 0;
    memset(p->count, 0, sizeof p->count);
    for (int w = 0; w < p->words; w++)
        for (int i = 0; i + 1 < p->n[w]; i++) p->count[p->symbol[w][i]][p->symbol[w][i + 1]]++;
    for (int32_t x = 0; x < MAX_IDS; x++)
        for (int32_t y = 0; y < MAX_IDS; y++)
            if (p->count[x][y] > best) best = p->count[x][y], *a = x, *b = y;
    return best;
}

static void plain_merge(plain *p, int32_t a, int32_t b, int32_t id)
{
    for (int w = 0; w < p->words; w++) {
        int n = 0;
        for (int i = 0; i < p->n[w]; i++) {
            const bool here = p->symbol[w][i] == a && i + 1 < p->n[w] && p->symbol[w][i + 1] == b;
            p->symbol[w][n++] = here ? id : p->symbol[w][i];
            i += here;
        }
        p->n[w] = n;
    }
}

static void against_plain(void **state)
{
    (void)state;
    enum { VOCAB = 257 + 60 };
    tn_tokenizer *t = train(VOCAB, 1);
    plain *p = calloc(1, sizeof *p);
    plain_words(p, t);
    assert_int_equal(tn_tokenizer_vocab(t), VOCAB);
    int32_t next = 257;
    for (uint32_t rank = 0; next < VOCAB; rank++) {
        int32_t a = 0, b = 0;
        assert_true(plain_best(p, &a, &b) > 0);
        const tn_pair *pair = tn_vocab_pair(&t->vocab, (uint32_t)a, (uint32_t)b);
        if (!pair) fail_msg("merge %u: (%d, %d) was not merged", rank, a, b);
        assert_int_equal(pair->rank, rank);
        next += pair->id == next;
        plain_merge(p, a, b, pair->id);
    }
    free(p);
    tn_tokenizer_free(t);
}

static void same_with_threads(void **state)
{
    (void)state;
    tn_tokenizer *one = train(320, 1), *four = train(320, 4);
    assert_true(tn_tokenizer_hash(one) == tn_tokenizer_hash(four));
    tn_tokenizer_free(one);
    tn_tokenizer_free(four);
}

/* A long document is shared out in parts; the result is that of one thread. */
static void long_document(void **state)
{
    (void)state;
    enum { COPIES = 12000 };
    uint64_t hash[2];
    const size_t n = strlen(some_text[1]);
    char *text = malloc(n * COPIES + 1);
    for (size_t i = 0; i < COPIES; i++) memcpy(text + i * n, some_text[1], n);
    text[n * COPIES] = 0;
    for (int i = 0; i < 2; i++) {
        docs d = { (const char *const[]){ text }, 1, 0 };
        const tn_bpe_options o = { .vocab = 300, .threads = 1 + 2 * i, .pattern = "o200k" };
        tn_tokenizer *t = NULL;
        assert_ok(tn_bpe_train(next_doc, &d, &o, &t));
        hash[i] = tn_tokenizer_hash(t);
        tn_tokenizer_free(t);
    }
    assert_true(hash[0] == hash[1]);
    free(text);
}

static void saved(void **state)
{
    static const char *const specials[] = { "<|endoftext|>", "<\"\\\t\xc3\xa9>" };
    const char *pattern = *state;
    tn_tempdir dir;
    docs d = { some_text, sizeof some_text / sizeof *some_text, 0 };
    const tn_bpe_options o = { .vocab = 330, .pattern = pattern, .specials = specials, .n_specials = 2 };
    tn_tokenizer *t = NULL, *again = NULL;
    tn_tempdir_make(&dir);
    const char *path = tn_tempdir_file(&dir, "tokenizer.json");
    assert_ok(tn_bpe_train(next_doc, &d, &o, &t));
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_END), 0);
    assert_int_equal(tn_tokenizer_find(t, specials[1]), 1);
    assert_ok(tn_tokenizer_save(t, path));
    assert_ok(tn_tokenizer_open(path, &again));
    assert_true(tn_tokenizer_hash(t) == tn_tokenizer_hash(again));
    assert_string_equal(tn_tokenizer_pattern(again), pattern);
    tn_tokenizer_free(t);
    tn_tokenizer_free(again);
    again = NULL;
    assert_ok(tn_tokenizer_open("bytes", &again));
    assert_fails(tn_tokenizer_save(again, path), TN_USAGE, "tokens are bytes");
    tn_tokenizer_free(again);
    tn_tempdir_remove(&dir);
}

static tn_status stop(void *user, const char *phase, int64_t done, int64_t total)
{
    (void)done;
    (void)total;
    return strcmp(phase, user) == 0 ? tn_error(TN_INTERRUPTED, "stopped in %s", phase) : TN_OK;
}

static tn_status broken(void *user, const char **text, size_t *bytes)
{
    (void)user;
    (void)text;
    (void)bytes;
    return tn_error(TN_BAD_FILE, "the disk is gone");
}

static void refused(void **state)
{
    (void)state;
    static const char *const twice[] = { "<a>", "<a>" };
    docs d = { some_text, 3, 0 };
    tn_tokenizer *t = NULL;
    assert_fails(tn_bpe_train(next_doc, &d, &(tn_bpe_options){ .vocab = 256 }, &t), TN_USAGE, "outside 257..");
    assert_fails(tn_bpe_train(next_doc, &d, &(tn_bpe_options){ .vocab = 300, .pattern = "gpt5" }, &t), TN_USAGE,
                 "gpt5");
    assert_fails(tn_bpe_train(next_doc, &d, &(tn_bpe_options){ .vocab = 300, .specials = twice, .n_specials = 2 }, &t),
                 TN_USAGE, "given twice");
    assert_fails(tn_bpe_train(broken, &d, &(tn_bpe_options){ .vocab = 300, .threads = 2 }, &t), TN_BAD_FILE,
                 "the disk is gone");
    for (int i = 0; i < 2; i++) {
        const char *phase = i ? "merge" : "count";
        d.next = 0;
        const tn_bpe_options o = { .vocab = 400, .progress = stop, .progress_user = (void *)(uintptr_t)phase };
        assert_fails(tn_bpe_train(next_doc, &d, &o, &t), TN_INTERRUPTED, phase);
    }
    assert_null(t);
}

/* No text at all, and text with fewer pairs than asked for. */
static void little_text(void **state)
{
    (void)state;
    docs none = { some_text, 0, 0 }, few = { (const char *const[]){ "ab ab" }, 1, 0 };
    tn_tokenizer *t = NULL;
    assert_ok(tn_bpe_train(next_doc, &none, &(tn_bpe_options){ .vocab = 1000 }, &t));
    assert_int_equal(tn_tokenizer_vocab(t), 257);
    tn_tokenizer_free(t);
    assert_ok(tn_bpe_train(next_doc, &few, &(tn_bpe_options){ .vocab = 1000, .min_count = 2 }, &t));
    assert_int_equal(tn_tokenizer_vocab(t), 258);
    assert_int_equal(tn_tokenizer_find(t, "ab"), 257);
    tn_tokenizer_free(t);
}

static void failing_memory(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth < 100000; nth += nth < 50 ? 1 : 41) {
        docs d = { some_text, 3, 0 };
        tn_tokenizer *t = NULL;
        tn_alloc_fail_at(tn_alloc_count() + nth);
        const tn_status s = tn_bpe_train(next_doc, &d, &(tn_bpe_options){ .vocab = 280 }, &t);
        tn_alloc_fail_at(0);
        assert_true(s == TN_OK || s == TN_MEMORY);
        tn_tokenizer_free(t);
        if (s == TN_OK) return;
    }
    fail_msg("it never succeeded");
}

void tn_tests_bpe_train(tn_test_list *l)
{
    tn_test_add(l, against_plain, NULL, "bpe train against plain");
    tn_test_add(l, same_with_threads, NULL, "bpe train threads");
    tn_test_add(l, long_document, NULL, "bpe train long document");
    for (const tn_split_pattern *p = tn_split_all(); p->name; p++)
        tn_test_add(l, saved, p->name, "bpe train saved %s", p->name);
    tn_test_add(l, refused, NULL, "bpe train refused");
    tn_test_add(l, little_text, NULL, "bpe train little text");
    tn_test_add(l, failing_memory, NULL, "bpe train failing memory");
}
