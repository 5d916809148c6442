/* Vocabularies inside GGUF files, made here: both kinds, token types, roles, and what is refused. Ids against llama.cpp's own
 * tests: tests/peers/check_gguf_vocab.py. */
#include "token/tokenizer.h"

#include "gguf_file.h"
#include "tempdir.h"
#include "token/tokenizer_impl.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { MOST = 400 };

/* A vocabulary as a file says it; NULL or 0: the key is left out. */
typedef struct made_vocab {
    const char *model, *pre;
    const char *token[MOST];
    int type[MOST];
    float score[MOST];
    uint32_t n, types_n, scores_n;             /* items of the lists: n unless they are to be wrong */
    const char *const *merges;                 /* ends with NULL */
    int bos, eos, unknown, add_bos, add_space; /* -1: no key */
    char spelled[256][8];
} made_vocab;

static void put(made_vocab *v, const char *token, int type, float score)
{
    v->token[v->n] = token;
    v->type[v->n] = type;
    v->score[v->n++] = score;
    v->types_n = v->scores_n = v->n;
}

static void list_head(tn_made *m, const char *key, uint32_t kind, uint64_t n)
{
    made_key(m, key, TN_GGUF_LIST);
    made_u32(m, kind);
    made_u64(m, n);
}

static tn_status open_made(tn_tempdir *d, const made_vocab *v, tn_tokenizer **out)
{
    static tn_made m;
    uint32_t merges = 0, keys = 3;
    while (v->merges && v->merges[merges]) merges++;
    const struct {
        const char *key;
        int value;
    } ids[] = { { "tokenizer.ggml.bos_token_id", v->bos },
                { "tokenizer.ggml.eos_token_id", v->eos },
                { "tokenizer.ggml.unknown_token_id", v->unknown },
                { "tokenizer.ggml.add_bos_token", v->add_bos },
                { "tokenizer.ggml.add_space_prefix", v->add_space } };
    for (size_t i = 0; i < 5; i++) keys += ids[i].value >= 0;
    keys += (v->pre != NULL) + (v->merges != NULL) + (v->scores_n > 0);
    made_head(&m, 0, keys);
    made_key_text(&m, "tokenizer.ggml.model", v->model);
    if (v->pre) made_key_text(&m, "tokenizer.ggml.pre", v->pre);
    list_head(&m, "tokenizer.ggml.tokens", TN_GGUF_TEXT, v->n);
    for (uint32_t i = 0; i < v->n; i++) made_text(&m, v->token[i]);
    list_head(&m, "tokenizer.ggml.token_type", TN_GGUF_I32, v->types_n);
    for (uint32_t i = 0; i < v->types_n; i++) made_u32(&m, (uint32_t)v->type[i]);
    if (v->scores_n) list_head(&m, "tokenizer.ggml.scores", TN_GGUF_F32, v->scores_n);
    for (uint32_t i = 0; i < v->scores_n; i++) made_bytes(&m, &v->score[i], 4);
    if (v->merges) list_head(&m, "tokenizer.ggml.merges", TN_GGUF_TEXT, merges);
    for (uint32_t i = 0; i < merges; i++) made_text(&m, v->merges[i]);
    for (size_t i = 0; i < 5; i++) {
        if (ids[i].value < 0) continue;
        if (i < 3) made_key_u32(&m, ids[i].key, (uint32_t)ids[i].value);
        else {
            made_key(&m, ids[i].key, TN_GGUF_BOOL);
            made_bytes(&m, &(unsigned char){ (unsigned char)ids[i].value }, 1);
        }
    }
    made_pad(&m, 32);
    const char *path = tn_tempdir_file(d, "v.gguf");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(m.data, 1, m.n, f), m.n);
    fclose(f);
    return tn_tokenizer_open(path, out);
}

/* The 256 bytes in GPT-2's alphabet, without the byte `without`. */
static made_vocab byte_level(int without)
{
    made_vocab v = {
        .model = "gpt2", .pre = "gpt-2", .bos = -1, .eos = -1, .unknown = -1, .add_bos = -1, .add_space = -1
    };
    static const char *const none[] = { NULL };
    v.merges = none;
    for (unsigned b = 0; b < 256; b++) {
        if ((int)b == without) continue;
        const size_t n = tn_utf8_write(tn__byte_char(b), v.spelled[b]);
        v.spelled[b][n] = 0;
        put(&v, "", NORMAL, 0);
    }
    v.scores_n = 0;
    return v;
}

/* token[] points into a copy's own letters: after every copy. */
static void spell(made_vocab *v, int without)
{
    uint32_t id = 0;
    for (int b = 0; b < 256; b++)
        if (b != without) v->token[id++] = v->spelled[b];
}

static made_vocab pieces(void)
{
    made_vocab v = { .model = "llama", .bos = 1, .eos = 2, .unknown = 0, .add_bos = -1, .add_space = -1 };
    put(&v, "<unk>", UNKNOWN, 0);
    put(&v, "<s>", CONTROL, 0);
    put(&v, "</s>", CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        snprintf(v.spelled[b], sizeof v.spelled[b], "<0x%02X>", b);
        put(&v, "", BYTE, 0);
    }
    put(&v, "\xe2\x96\x81", NORMAL, -10); /* 259 */
    put(&v, "a", NORMAL, -11);            /* 260 */
    put(&v, "b", NORMAL, -12);            /* 261 */
    put(&v, "ab", NORMAL, -1);            /* 262 */
    put(&v,
        "\xe2\x96\x81"
        "a",
        NORMAL, -2); /* 263 */
    put(&v,
        "\xe2\x96\x81"
        "ab",
        NORMAL, -3);                   /* 264 */
    put(&v, "<sep>", USER_DEFINED, 0); /* 265 */
    put(&v, "[PAD266]", UNUSED, 0);    /* 266 */
    put(&v, "[PAD267]", UNKNOWN, 0);   /* 267 */
    return v;
}

static void spell_pieces(made_vocab *v)
{
    for (int b = 0; b < 256; b++) v->token[3 + b] = v->spelled[b];
}

static void check_ids(tn_tokenizer *t, const char *text, unsigned flags, const int32_t *want, size_t n)
{
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    assert_ok(tn_tokenizer_scratch_new(&x));
    assert_ok(tn_tokenizer_encode(t, x, text, strlen(text), flags, &ids));
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids.ids[i], want[i]);
    tn_tokens_free(&ids);
    tn_tokenizer_scratch_free(x);
}

#define IDS(...) (const int32_t[]){ __VA_ARGS__ }, sizeof((int32_t[]){ __VA_ARGS__ }) / 4

static void scored(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    tn_text text = { 0 };
    made_vocab v = pieces();
    tn_tempdir_make(&d);
    spell_pieces(&v);
    assert_ok(open_made(&d, &v, &t));
    assert_string_equal(tn_tokenizer_kind(t), "sentencepiece");
    assert_int_equal(tn_tokenizer_vocab(t), 268);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), 1);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_EOS), 2);
    check_ids(t, "ab", 0, IDS(264));
    check_ids(t, "ab", TN_ENCODE_BOS, IDS(1, 264));
    check_ids(t, "a  b", 0, IDS(263, 259, 259, 261)); /* spaces are not squeezed */
    check_ids(t, "a<sep>b", 0, IDS(263, 265, 261));
    check_ids(t, "\n", 0, IDS(259, 3 + 10));
    check_ids(t, "</s>a", TN_ENCODE_SPECIAL, IDS(2, 263));
    check_ids(t, "[PAD266]", TN_ENCODE_SPECIAL,
              IDS(259, 3 + '[', 3 + 'P', 3 + 'A', 3 + 'D', 3 + '2', 3 + '6', 3 + '6', 3 + ']'));
    assert_ok(tn_tokenizer_decode(t, (int32_t[]){ 1, 264, 259, 13 }, 4, &text));
    assert_memory_equal(text.data, "ab \n", 4);
    tn_tokenizer_free(t);
    v.add_space = v.add_bos = 0;
    assert_ok(open_made(&d, &v, &t));
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), -1);
    check_ids(t, "ab", 0, IDS(262));
    tn_tokenizer_free(t);
    tn_text_free(&text);
    tn_tempdir_remove(&d);
}

static void split(void **state)
{
    (void)state;
    static const char *const merges[] = { "1 2", "\xc4\xa0 a", NULL }; /* U+0120 stands for a space */
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    made_vocab v = byte_level(-1);
    spell(&v, -1);
    put(&v, "12", NORMAL, 0); /* 256 */
    put(&v,
        "\xc4\xa0"
        "a",
        NORMAL, 0);                      /* 257 */
    put(&v, "<|im_end|>", CONTROL, 0);   /* 258 */
    put(&v, "<think>", USER_DEFINED, 0); /* 259 */
    put(&v, "[PAD260]", UNUSED, 0);      /* 260 */
    v.scores_n = 0;
    v.merges = merges;
    v.bos = v.eos = 258;
    v.add_bos = 0;
    tn_tempdir_make(&d);
    assert_ok(open_made(&d, &v, &t));
    assert_string_equal(tn_tokenizer_pattern(t), "gpt2");
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), -1);
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_EOS), 258);
    check_ids(t, "12 a", 0, IDS(256, 257));
    check_ids(t, "x<think>y", 0, IDS('x', 259, 'y'));
    check_ids(t, "<|im_end|>", TN_ENCODE_SPECIAL, IDS(258));
    check_ids(t, "<|im_", 0, IDS('<', '|', 'i', 'm', '_'));
    tn_tokenizer_free(t);
    v.pre = "smollm"; /* single digits */
    assert_ok(open_made(&d, &v, &t));
    check_ids(t, "12 a", 0, IDS('1', '2', 257));
    tn_tokenizer_free(t);
    v.pre = "llama-bpe";
    v.add_bos = -1; /* that kind begins with BOS unless the file says otherwise */
    assert_ok(open_made(&d, &v, &t));
    assert_string_equal(tn_tokenizer_pattern(t), "llama3");
    assert_int_equal(tn_tokenizer_special(t, TN_TOKEN_BOS), 258);
    tn_tokenizer_free(t);
    v.pre = NULL;
    assert_ok(open_made(&d, &v, &t));
    check_ids(t, "a.12", 0, IDS('a', '.', 256));
    tn_tokenizer_free(t);
    tn_tempdir_remove(&d);
}

/* A byte that is no token is left out, and what stands beside it may merge. */
static void missing_byte(void **state)
{
    (void)state;
    static const char *const merges[] = { "a b", NULL };
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    made_vocab v = byte_level(4);
    spell(&v, 4);
    put(&v, "ab", NORMAL, 0);
    v.scores_n = 0;
    v.merges = merges;
    tn_tempdir_make(&d);
    assert_ok(open_made(&d, &v, &t));
    check_ids(t, "\4", 0, NULL, 0);
    check_ids(t, "\4\4a", 0, IDS('a' - 1));
    check_ids(t, "ab", 0, IDS(255));
    tn_tokenizer_free(t);
    t = NULL;
    v = byte_level('a');
    spell(&v, 'a');
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "byte 0x61 has no token");
    tn_tempdir_remove(&d);
}

static void refused(void **state)
{
    (void)state;
    static const char *const strange[] = { "q z", "q", NULL };
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    tn_tempdir_make(&d);
    made_vocab v = byte_level(-1);
    spell(&v, -1);
    v.pre = "a-new-one";
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "tokenizer.ggml.pre is \"a-new-one\"");
    v.pre = "qwen2";
    v.model = "t5";
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "tokenizer.ggml.model is \"t5\"");
    v.model = "gpt2";
    v.types_n = 3;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "token_type has 3 items for 256 tokens");
    v.types_n = 256;
    v.eos = 256;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "eos_token_id is 256, and there are 256 tokens");
    v.eos = -1;
    v.merges = strange;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "is not in the vocabulary");
    v.merges = strange + 1;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "merges[0] is not two tokens");
    v.merges = NULL;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "no list tokenizer.ggml.merges");
    v.merges = strange + 2;
    v.type[7] = BYTE;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "token 7 has the type 6");
    v = pieces();
    spell_pieces(&v);
    v.scores_n = 0;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "no list tokenizer.ggml.scores");
    v.scores_n = v.n;
    v.type[9] = 77;
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "piece 9 has an unknown type");
    v.type[9] = BYTE;
    v.token[260] = "b"; /* as another */
    assert_fails(open_made(&d, &v, &t), TN_BAD_FILE, "same bytes");
    assert_null(t);
    tn_tempdir_remove(&d);
}

void tn_tests_load_gguf(tn_test_list *l)
{
    tn_test_add(l, scored, NULL, "tokenizer gguf: pieces with scores");
    tn_test_add(l, split, NULL, "tokenizer gguf: byte-level, its split, roles");
    tn_test_add(l, missing_byte, NULL, "tokenizer gguf: a byte that is no token");
    tn_test_add(l, refused, NULL, "tokenizer gguf: refused by name");
}
