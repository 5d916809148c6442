/* Tokenizers against the ids of the reference libraries (tests/token, written by make_golden.py), and what holds for
 * every one of them: round trips, streams, cuts, threads, failing memory. Published vocabularies come from the data
 * folder. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "tempdir.h"
#include "token/unicode.h"

#include <pthread.h>

enum { MAX_CASES = 400, MAX_IDS = 512 };

typedef struct cases {
    char text[MAX_CASES][512];
    size_t bytes[MAX_CASES];
    int n;
} cases;

static unsigned hex_digit(char c) { return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a' + 10); }

static void read_cases(cases *c)
{
    char *text, *line;
    assert_ok(tn_file_read_all("tests/token/strings.txt", 1 << 20, &text, NULL));
    c->n = 0;
    for (line = text; *line; line = strchr(line, '\n') + 1) {
        size_t k = 0;
        for (const char *p = line; *p != '\n'; p++, k++) {
            const bool escaped = *p == '\\';
            c->text[c->n][k] = escaped ? (char)(hex_digit(p[2]) << 4 | hex_digit(p[3])) : *p;
            if (escaped) p += 3;
            assert_true(k + 1 < sizeof c->text[0]);
        }
        c->bytes[c->n++] = k;
        assert_true(c->n < MAX_CASES);
    }
    tn_free(text);
    assert_true(c->n >= 200);
}

/* "data:PATH" is in the data folder (NULL where that is not there), other names are in tests/token. A .gz is unpacked.
 */
static const char *find_file(const char *name, char path[1024], tn_tempdir *d)
{
    if (strncmp(name, "data:", 5) != 0) {
        snprintf(path, 1024, strcmp(name, "bytes") == 0 ? "%s" : "tests/token/%s", name);
        return path;
    }
    const char *found = tn_test_data(name + 5);
    if (!found) return NULL;
    snprintf(path, 1024, "%s", found);
    const size_t n = strlen(path);
    if (n < 3 || strcmp(path + n - 3, ".gz") != 0) return path;
    char command[2600];
    path[n - 3] = 0;
    const char *out = tn_tempdir_file(d, strrchr(path, '/') + 1);
    snprintf(command, sizeof command, "gzip -dc '%s.gz' > '%s'", path, out);
    if (system(command) != 0) fail_msg("%s", command);
    snprintf(path, 1024, "%s", out);
    return path;
}

typedef struct row {
    const char *name, *spec, *ids; /* ids: without .ids; NULL: no golden ids */
    unsigned flags;
    bool keeps_text; /* decoding gives the text back, repaired */
} row;

static const row rows[] = {
    { "bytes", "bytes", NULL, 0, true },
    { "llama3 json", "mini_llama3.json", "mini_llama3", TN_ENCODE_SPECIAL,
      false }, /* lstrip and rstrip eat whitespace */
    { "llama3 json plain", "mini_llama3.json", "mini_llama3_plain", 0, false },
    { "qwen2 json", "mini_qwen2.json", "mini_qwen2", TN_ENCODE_SPECIAL, false }, /* NFC */
    { "qwen2 json plain", "mini_qwen2.json", "mini_qwen2_plain", 0, false },
    { "tiktoken gpt2", "mini.tiktoken#gpt2", "mini_tiktoken_gpt2", TN_ENCODE_SPECIAL, true },
    { "tiktoken cl100k", "mini.tiktoken#cl100k", "mini_tiktoken_cl100k", TN_ENCODE_SPECIAL, true },
    { "tiktoken llama3", "mini.tiktoken#llama3", "mini_tiktoken_llama3", TN_ENCODE_SPECIAL, true },
    { "tiktoken o200k", "mini.tiktoken#o200k", "mini_tiktoken_o200k", TN_ENCODE_SPECIAL, true },
    { "llama2c", "mini_llama2c.bin", "mini_llama2c", 0, true },
    { "published gpt2", "data:tokenizers/gpt2", "gpt2", TN_ENCODE_SPECIAL, true },
    { "published qwen2.5", "data:tokenizers/qwen2.5/tokenizer.json.gz", "qwen2.5", TN_ENCODE_SPECIAL, false },
    { "published tok512", "data:models/stories260K/tok512.bin", "tok512", 0, true },
    { "llama2 json", "mini_llama2.json", "mini_llama2", TN_ENCODE_SPECIAL,
      false }, /* a space comes after special tokens, as in the reference */
    { "llama2 json plain", "mini_llama2.json", "mini_llama2_plain", 0, true },
    { "mistral json", "mini_mistral.json", "mini_mistral", TN_ENCODE_SPECIAL,
      false }, /* one space at the start is lost */
    { "mistral json plain", "mini_mistral.json", "mini_mistral_plain", 0, false },
    { "metaspace json", "mini_metaspace.json", "mini_metaspace", TN_ENCODE_SPECIAL, false },
    { "metaspace json plain", "mini_metaspace.json", "mini_metaspace_plain", 0, false },
    { "sentencepiece", "mini_spm.model", "mini_spm", 0, false }, /* bad bytes are replaced one by one */
    { "sentencepiece rules", "mini_rules.model", "mini_rules", 0, false },
};

static tn_tokenizer *open_row(const char *spec)
{
    char path[1024];
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    tn_tempdir_make(&d);
    if (find_file(spec, path, &d)) assert_ok(tn_tokenizer_open(path, &t));
    tn_tempdir_remove(&d);
    return t;
}

/* One line of ids; false for "-", a string the reference cannot be asked about. */
static bool read_ids(char **line, int32_t *ids, size_t *n)
{
    char *p = *line, *end = strchr(p, '\n');
    assert_non_null(end);
    *line = end + 1;
    *n = 0;
    if (*p == '-') return false;
    while (p < end && *n < MAX_IDS) ids[(*n)++] = (int32_t)strtol(p, &p, 10);
    return true;
}

static void golden(void **state)
{
    const row *r = *state;
    cases *c = malloc(sizeof *c);
    char path[256], *text, *line;
    int32_t want[MAX_IDS];
    size_t n;
    int compared = 0;
    tn_tokenizer_scratch *x;
    tn_tokens got = { 0 };
    tn_tokenizer *t = open_row(r->spec);
    if (!t) return free(c);
    read_cases(c);
    snprintf(path, sizeof path, "tests/token/%s.ids", r->ids);
    assert_ok(tn_file_read_all(path, 1 << 20, &text, NULL));
    assert_ok(tn_tokenizer_scratch_new(&x));
    line = text;
    for (int i = 0; i < c->n; i++) {
        if (!read_ids(&line, want, &n)) continue;
        got.n = 0;
        assert_ok(tn_tokenizer_encode(t, x, c->text[i], c->bytes[i], r->flags, &got));
        const bool same = got.n == n && (n == 0 || memcmp(got.ids, want, n * sizeof *want) == 0);
        if (!same) fail_msg("string %d: %zu ids differ from the reference's %zu", i + 1, got.n, n);
        compared++;
    }
    assert_true(compared >= 200 && *line == 0);
    tn_tokens_free(&got);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    tn_free(text);
    free(c);
}

static void assert_same_text(const tn_text *a, const tn_text *b, int i)
{
    if (a->n != b->n || (a->n && memcmp(a->data, b->data, a->n) != 0)) fail_msg("string %d: the texts differ", i + 1);
}

/* decode(encode(s)) is s; a stream of tokens gives the same text, whole characters at a time. */
static void round_trip(void **state)
{
    const row *r = *state;
    cases *c = malloc(sizeof *c);
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_text text = { 0 }, repaired = { 0 }, streamed = { 0 }, again = { 0 };
    tn_tokenizer *t = open_row(r->spec);
    if (!t) return free(c);
    const char *kind = tn_tokenizer_kind(t);
    const bool raw = strcmp(kind, "bytes") == 0 || strcmp(kind, "llama2c") == 0; /* these keep bad bytes */
    read_cases(c);
    assert_ok(tn_tokenizer_scratch_new(&x));
    for (int i = 0; i < c->n; i++) {
        tn_token_stream d = { 0 };
        ids.n = text.n = repaired.n = streamed.n = again.n = 0;
        assert_ok(tn_tokenizer_encode(t, x, c->text[i], c->bytes[i], r->flags, &ids));
        assert_ok(tn_tokenizer_decode(t, ids.ids, ids.n, &text));
        assert_ok(tn_utf8_repair(c->text[i], c->bytes[i], &repaired));
        const tn_text source = { c->text[i], c->bytes[i], 0 };
        if (r->keeps_text) assert_same_text(&text, raw ? &source : &repaired, i);
        for (size_t k = 0; k < ids.n; k++) {
            assert_ok(tn_token_stream_put(t, &d, ids.ids[k], &streamed));
            assert_true(tn_utf8_prefix(streamed.data, streamed.n) == streamed.n);
        }
        assert_ok(tn_token_stream_end(&d, &streamed));
        assert_ok(tn_utf8_repair(text.data, text.n, &again));
        assert_same_text(&streamed, &again, i);
    }
    tn_text_free(&text);
    tn_text_free(&repaired);
    tn_text_free(&streamed);
    tn_text_free(&again);
    tn_tokens_free(&ids);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    free(c);
}

/* Whole books: number and hash (FNV-1a over ids) of what the reference makes of them. */
static void check_corpus(const tn_tokenizer *t, const char *file, size_t n, uint64_t hash)
{
    char spec[256], path[1024], *text;
    size_t bytes;
    uint64_t h = 0xcbf29ce484222325u;
    tn_tempdir d;
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_tempdir_make(&d);
    snprintf(spec, sizeof spec, "data:%s", file);
    assert_non_null(find_file(spec, path, &d));
    assert_ok(tn_file_read_all(path, 1 << 24, &text, &bytes));
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_ok(tn_tokenizer_encode(t, x, text, bytes, 0, &ids));
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < ids.n; i++) h = (h ^ (uint32_t)ids.ids[i]) * 0x100000001b3u;
    assert_true(h == hash);
    tn_tokens_free(&ids);
    tn_tokenizer_scratch_free(x);
    tn_free(text);
    tn_tempdir_remove(&d);
}

static void corpora(void **state)
{
    const row *r = *state;
    char *list, name[64], file[128];
    size_t n;
    unsigned long long hash;
    int checked = 0;
    tn_tokenizer *t = open_row(r->spec);
    if (!t) return;
    assert_ok(tn_file_read_all("tests/token/corpora.txt", 1 << 16, &list, NULL));
    for (char *line = list; *line; line = strchr(line, '\n') + 1) {
        assert_int_equal(sscanf(line, "%63s %127s %zu %llx", name, file, &n, &hash), 4);
        if (strcmp(name, r->ids) != 0) continue;
        check_corpus(t, file, n, hash);
        checked++;
    }
    assert_int_equal(checked, 2);
    tn_free(list);
    tn_tokenizer_free(t);
}

/* A text of words, marks and line ends, the same in every run. */
static char *made_text(size_t bytes)
{
    static const char *const parts[] = { "the ", "Tenon",           " trains", "\n",           "\r\n",  "  ",
                                         "123 ", "caf\xc3\xa9 ",    "'s ",     "\xe6\x97\xa5", "don't", ".\n",
                                         "A b",  "\xf0\x9f\x91\x8d" };
    char *text = malloc(bytes + 16);
    assert_non_null(text);
    size_t n = 0;
    for (uint64_t i = 0; n < bytes; i++) {
        const char *p = parts[tn_rng_below((tn_rng){ 5, 6 }, i, sizeof parts / sizeof *parts)];
        memcpy(text + n, p, strlen(p));
        n += strlen(p);
    }
    text[bytes] = 0;
    return text;
}

static void cuts(void **state)
{
    const row *r = *state;
    enum { BYTES = 20000, STEP = 700 };
    char *text = made_text(BYTES);
    tn_tokenizer_scratch *x;
    tn_tokens whole = { 0 }, parts = { 0 };
    tn_tokenizer *t = open_row(r->spec);
    if (!t) return free(text);
    assert_ok(tn_tokenizer_scratch_new(&x));
    if (tn_tokenizer_cut(t, text, STEP) == 0) { /* says so rather than giving other ids */
        assert_true(strcmp(tn_tokenizer_kind(t), "bpe") != 0 || strcmp(r->spec, "mini_llama3.json") == 0);
    } else {
        assert_ok(tn_tokenizer_encode(t, x, text, BYTES, r->flags, &whole));
        for (size_t at = 0, n; at < BYTES; at += n) {
            n = BYTES - at <= STEP ? BYTES - at : tn_tokenizer_cut(t, text + at, STEP);
            assert_true(n > 0);
            assert_ok(tn_tokenizer_encode(t, x, text + at, n, r->flags, &parts));
        }
        assert_int_equal(whole.n, parts.n);
        assert_memory_equal(whole.ids, parts.ids, whole.n * sizeof *whole.ids);
    }
    tn_tokens_free(&whole);
    tn_tokens_free(&parts);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    free(text);
}

typedef struct job {
    const tn_tokenizer *t;
    const char *text;
    size_t bytes;
    tn_tokens ids;
    tn_status s;
} job;

static void *encode_job(void *arg)
{
    job *j = arg;
    tn_tokenizer_scratch *x = NULL;
    j->s = tn_tokenizer_scratch_new(&x);
    for (int i = 0; i < 3 && j->s == TN_OK; i++) {
        j->ids.n = 0;
        j->s = tn_tokenizer_encode(j->t, x, j->text, j->bytes, 0, &j->ids);
    }
    tn_tokenizer_scratch_free(x);
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    enum { THREADS = 4, BYTES = 50000 };
    char *text = made_text(BYTES);
    tn_tokenizer *t = open_row("mini_qwen2.json");
    job jobs[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ .t = t, .text = text, .bytes = BYTES };
        assert_int_equal(pthread_create(&thread[i], NULL, encode_job, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(jobs[i].s, TN_OK);
        assert_int_equal(jobs[i].ids.n, jobs[0].ids.n);
        assert_memory_equal(jobs[i].ids.ids, jobs[0].ids.ids, jobs[0].ids.n * sizeof(int32_t));
    }
    for (int i = 0; i < THREADS; i++) tn_tokens_free(&jobs[i].ids);
    tn_tokenizer_free(t);
    free(text);
}

/* A word of a million letters: quadratic merging would take minutes. */
static void long_words(void **state)
{
    const row *r = *state;
    enum { BYTES = 1 << 20 };
    static const char *const units[] = { "a", "ab", " ", "\n", "\xcc\x81", "\xff", "A" };
    char *text = malloc(BYTES);
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_tokenizer *t = open_row(r->spec);
    if (!t) return free(text);
    assert_ok(tn_tokenizer_scratch_new(&x));
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        const size_t bytes = k == 0 ? BYTES : BYTES / 16;
        for (size_t i = 0; i < bytes; i++) text[i] = units[k][i % strlen(units[k])];
        ids.n = 0;
        const double before = tn_clock_cpu_s();
        assert_ok(tn_tokenizer_encode(t, x, text, bytes, 0, &ids));
        assert_true(tn_clock_cpu_s() - before < 30);
        assert_true(ids.n > 0 && ids.n <= 3 * bytes + 1);
    }
    tn_tokens_free(&ids);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    free(text);
}

static void questions(void **state)
{
    (void)state;
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_text text = { 0 };
    size_t n;
    tn_tokenizer *t = open_row("mini_llama3.json"), *b = open_row("bytes");
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_string_equal(tn_tokenizer_kind(t), "bpe");
    assert_string_equal(tn_tokenizer_pattern(t), "llama3");
    assert_int_equal(tn_tokenizer_vocab(t), 642);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), 0);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_EOS), 2);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_END), 1);
    assert_int_equal(tn_tokenizer_find(t, "<right>"), 641);
    assert_int_equal(tn_tokenizer_find(t, "<wrong>"), -1);
    assert_memory_equal(tn_tokenizer_piece(t, 2, &n), "<|eot_id|>", 10);
    assert_null(tn_tokenizer_piece(t, 642, &n));
    assert_ok(tn_tokenizer_encode(t, x, "x", 1, TN_ENCODE_BOS, &ids));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 0);
    assert_int_equal(tn_tokenizer_vocab(b), 256);
    assert_int_equal(tn_tokenizer_special(b, TN_TOKEN_END), -1);
    assert_true(tn_tokenizer_hash(b) != tn_tokenizer_hash(t));
    assert_fails(tn_tokenizer_encode(b, x, "x", 1, TN_ENCODE_BOS, &ids), TN_USAGE, "no start-of-text token");
    assert_int_equal(ids.n, 2);
    const int32_t wrong[] = { 5, 642 };
    assert_fails(tn_tokenizer_decode(t, wrong, 2, &text), TN_USAGE, "642");
    assert_int_equal(text.n, 0);
    tn_tokens_free(&ids);
    tn_text_free(&text);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    tn_tokenizer_free(b);
}

/* Each allocation fails once: nothing leaks (the sanitizer looks), outputs stay as they were. */
static void failing_memory(void **state)
{
    const char *file = *state;
    char path[128];
    snprintf(path, sizeof path, "tests/token/%s", file);
    static const char text[] =
        "cafe\xcc\x81 don't \xff 12345 <tool_call> a long word: abababababababababababababababababababab";
    for (uint64_t nth = 1; nth < 100000; nth += nth < 60 ? 1 : 37) {
        tn_tokenizer *t = NULL;
        tn_tokenizer_scratch *x = NULL;
        tn_tokens ids = { 0 };
        tn_alloc_fail_at(tn_alloc_count() + nth);
        tn_status s = tn_tokenizer_open(path, &t);
        if (s == TN_OK) s = tn_tokenizer_scratch_new(&x);
        if (s == TN_OK) s = tn_tokenizer_encode(t, x, text, sizeof text - 1, 0, &ids);
        tn_alloc_fail_at(0);
        assert_true(s == TN_OK || s == TN_MEMORY);
        assert_true(s == TN_OK || ids.n == 0);
        tn_tokens_free(&ids);
        tn_tokenizer_scratch_free(x);
        tn_tokenizer_free(t);
        if (s == TN_OK) return;
    }
    fail_msg("it never succeeded");
}

static void sentencepiece_questions(void **state)
{
    (void)state;
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_text text = { 0 };
    tn_tokenizer *t = open_row("mini_rules.model"), *b = open_row("mini_spm.model");
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_string_equal(tn_tokenizer_kind(t), "sentencepiece");
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), 1);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_EOS), 2);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_END), 2);
    assert_int_equal(tn_tokenizer_find(t, "<ctl>"), 3);
    assert_true(tn_tokenizer_hash(t) != tn_tokenizer_hash(b));
    /* control pieces are text unless they are asked for, and have no text of their own */
    assert_ok(tn_tokenizer_encode(t, x, "<ctl>", 5, TN_ENCODE_SPECIAL, &ids));
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.ids[0], 3);
    assert_ok(tn_tokenizer_decode(t, ids.ids, ids.n, &text));
    assert_int_equal(text.n, 0);
    ids.n = 0;
    assert_ok(tn_tokenizer_encode(t, x, "<ctl>", 5, 0, &ids));
    assert_true(ids.n > 1);
    assert_ok(tn_tokenizer_decode(t, (const int32_t[]){ 0, 4 }, 2, &text)); /* unknown, a piece of its own */
    assert_int_equal(text.n, 16);
    assert_memory_equal(text.data, " \xe2\x81\x87 <tool_call>", 16);
    text.n = ids.n = 0;
    assert_ok(tn_tokenizer_encode(b, x, "\n\0", 2, 0, &ids)); /* a mark, <0x0A>, <0x00> */
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], 3 + '\n');
    assert_int_equal(ids.ids[2], 3);
    assert_ok(tn_tokenizer_decode(b, ids.ids, ids.n, &text));
    assert_memory_equal(text.data, "\n\0", 2);
    tn_tokens_free(&ids);
    tn_text_free(&text);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
    tn_tokenizer_free(b);
}

/* The space before a text goes at its start and after BOS, not in the middle; a stream that goes on after a prompt keeps
 * it. */
static void starts(void **state)
{
    (void)state;
    static const char *const specs[] = { "mini_llama2.json", "mini_mistral.json", "mini_metaspace.json",
                                         "mini_spm.model", "mini_rules.model" };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        tn_tokenizer *t = open_row(specs[i]);
        tn_tokenizer_scratch *x;
        tn_tokens ids = { 0 };
        tn_text text = { 0 };
        assert_ok(tn_tokenizer_scratch_new(&x));
        assert_ok(tn_tokenizer_encode(t, x, "the", 3, 0, &ids));
        assert_ok(tn_tokenizer_encode(t, x, "the", 3, 0, &ids));
        assert_ok(tn_tokenizer_decode(t, ids.ids, ids.n, &text));
        assert_int_equal(text.n, 7);
        assert_memory_equal(text.data, "the the", 7);
        tn_token_stream start = { .previous = tn_tokenizer_special(t, TN_TOKEN_BOS) + 1 },
                        after = { .previous = ids.ids[0] + 1 };
        text.n = 0;
        assert_ok(tn_token_stream_put(t, &start, ids.ids[0], &text));
        assert_true(text.n > 0 && text.data[0] == 't');
        text.n = 0;
        assert_ok(tn_token_stream_put(t, &after, ids.ids[0], &text));
        assert_true(text.n > 0 && text.data[0] == ' ');
        tn_tokens_free(&ids);
        tn_text_free(&text);
        tn_tokenizer_scratch_free(x);
        tn_tokenizer_free(t);
    }
}

/* A published sentencepiece model, with ids and text of the library. */
static void tok105(void **state)
{
    (void)state;
    static const int32_t want[] = { 1, 3, 34, 9, 22, 4, 3, 18, 20, 7,  9, 3, 5, 3,  6,  10, 16, 4, 25,
                                    3, 6, 8,  4, 13, 4, 3, 17, 5,  12, 3, 5, 3, 62, 78, 23, 13, 5, 19 };
    static const char said[] = "Once upon a time,  there was a Z\xc3\xa9"
                               "bra. ";
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_tokenizer *t = open_row("data:models/babyllama105/tok105.model");
    if (!t) return;
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_ok(tn_tokenizer_encode(t, x, said, sizeof said - 1, TN_ENCODE_BOS, &ids));
    assert_int_equal(ids.n, sizeof want / sizeof *want);
    assert_memory_equal(ids.ids, want, sizeof want);
    tn_tokens_free(&ids);
    tn_tokenizer_scratch_free(x);
    tn_tokenizer_free(t);
}

void tn_tests_tokenizer(tn_test_list *l)
{
    static const char *const failing[] = { "mini_qwen2.json", "mini_llama2.json", "mini_rules.model" };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].ids) tn_test_add(l, golden, &rows[i], "tokenizer golden %s", rows[i].name);
        tn_test_add(l, round_trip, &rows[i], "tokenizer round trip %s", rows[i].name);
        if (i < 10 || i > 12) tn_test_add(l, cuts, &rows[i], "tokenizer cuts %s", rows[i].name);
    }
    tn_test_add(l, corpora, &rows[10], "tokenizer corpora gpt2");
    tn_test_add(l, corpora, &rows[11], "tokenizer corpora qwen2.5");
    tn_test_add(l, many_threads, NULL, "tokenizer many threads");
    tn_test_add(l, long_words, &rows[3], "tokenizer long words qwen2");
    tn_test_add(l, long_words, &rows[9], "tokenizer long words llama2c");
    tn_test_add(l, long_words, &rows[13], "tokenizer long words llama2 json");
    tn_test_add(l, long_words, &rows[19], "tokenizer long words sentencepiece");
    tn_test_add(l, questions, NULL, "tokenizer questions");
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++)
        tn_test_add(l, failing_memory, (void *)failing[i], "tokenizer failing memory %s", failing[i]);
    tn_test_add(l, sentencepiece_questions, NULL, "tokenizer sentencepiece questions");
    tn_test_add(l, starts, NULL, "tokenizer starts of texts");
    tn_test_add(l, tok105, NULL, "tokenizer published tok105");
}
