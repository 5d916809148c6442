/* Hostile and damaged tokenizer files: each must be refused with a message that names the file and the fault, or, where
 * a changed byte leaves a good file, be read; never a crash, an endless loop or memory beyond a small multiple of the
 * file. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tempdir.h"

/* A tokenizer.json around parts; @V is the vocabulary of the 256 bytes. */
#define JSON(added, normalizer, pre, post, model)                                                                      \
    "{\"added_tokens\":" added ",\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"post_processor\":" post     \
    ",\"model\":" model "}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL "{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[]}"
#define PRE(x) JSON("[]", "null", x, "null", MODEL)
#define ADDED(x) JSON("[" x "]", "null", BYTE_LEVEL, "null", MODEL)
#define WITH(model) JSON("[]", "null", BYTE_LEVEL, "null", model)
#define SPLIT(pattern, behavior)                                                                                       \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior   \
    "\"}," BYTE_LEVEL "]}"

/* One with U+2581 for a space; @B is the vocabulary of "<0x00>".."<0xFF>". */
#define MARKED(normalizer, pre, decoder, model)                                                                        \
    "{\"added_tokens\":[],\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"decoder\":" decoder                \
    ",\"post_processor\":null,\"model\":" model "}"
#define FALLBACK "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{@B,\"a\":256},\"merges\":[]}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}"
#define NORMALIZED(x) MARKED(x, "null", REPLACE, FALLBACK)
#define SPLITTING(x) MARKED("null", x, REPLACE, FALLBACK)
#define DECODED(x) MARKED("null", "null", x, FALLBACK)
#define CHAIN(x) DECODED("{\"type\":\"Sequence\",\"decoders\":[" x "]}")
#define METASPACE(mark, scheme)                                                                                        \
    "{\"type\":\"Metaspace\",\"replacement\":\"" mark "\",\"prepend_scheme\":\"" scheme "\"}"

/* Parts of a sentencepiece model, as protobuf writes them. */
#define SPM_UNKNOWN "\x0a\x09\x0a\x05<unk>\x18\x02"
#define SPM_A                                                                                                          \
    "\x0a\x03\x0a\x01"                                                                                                 \
    "a"
#define SPM_BPE "\x12\x02\x18\x02"

typedef struct attack {
    const char *name, *file, *text;
    size_t bytes;     /* 0: strlen(text) */
    const char *says; /* NULL: the file is good */
} attack;

static const attack attacks[] = {
    { "good", "tokenizer.json", PRE(BYTE_LEVEL), 0, NULL },
    { "empty", "tokenizer.json", "", 0, "download the file again" },
    { "not json", "tokenizer.json", "hello", 0, "download the file again" },
    { "a list", "tokenizer.json", "[]", 0, "no \"model\"" },
    { "key twice", "tokenizer.json", "{\"model\":1,\"model\":2}", 0, "duplicate" },
    { "invalid utf-8", "tokenizer.json", "{\"\xff\":1}", 0, "download the file again" },
    { "no pre-tokenizer", "tokenizer.json", PRE("null"), 0, "pre_tokenizer \"none\"" },
    { "unknown pre-tokenizer", "tokenizer.json", PRE("{\"type\":\"Whitespace\"}"), 0,
      "\"Whitespace\" is not supported" },
    { "sequence in sequence", "tokenizer.json",
      PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\"}]}"), 0, "\"Sequence\" is not" },
    { "regex that is none", "tokenizer.json", PRE(SPLIT("{\"Regex\":\"(a\"}", "Isolated")), 0,
      "split pattern is invalid at byte 2" },
    { "unknown behavior", "tokenizer.json", PRE(SPLIT("{\"Regex\":\"a\"}", "MergedWithNext")), 0, "MergedWithNext" },
    { "odd regex", "tokenizer.json", PRE(SPLIT("{\"Regex\":\"\\\\w+\"}", "Isolated")), 0, NULL },
    { "a string", "tokenizer.json", PRE(SPLIT("{\"String\":\"(.\"}", "Isolated")), 0, NULL },
    { "unknown normalizer", "tokenizer.json", JSON("[]", "{\"type\":\"Lowercase\"}", BYTE_LEVEL, "null", MODEL), 0,
      "normalizer \"Lowercase\"" },
    { "unknown post-processor", "tokenizer.json",
      JSON("[]", "null", BYTE_LEVEL, "{\"type\":\"BertProcessing\"}", MODEL), 0, "BertProcessing" },
    { "unknown model", "tokenizer.json", WITH("{\"type\":\"Unigram\",\"vocab\":[]}"), 0, "model type \"Unigram\"" },
    { "byte fallback", "tokenizer.json", WITH("{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{@V},\"merges\":[]}"),
      0, "byte_fallback" },
    { "vocab a list", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}"), 0,
      "model.vocab is not" },
    { "no vocab", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}"), 0,
      "byte 0x0a has no token" },
    { "id of text", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"ab\":\"7\"},\"merges\":[]}"), 0,
      "not an integer" },
    { "id negative", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"ab\":-1},\"merges\":[]}"), 0,
      "id -1 is outside" },
    { "id huge", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"ab\":4611686018427387904},\"merges\":[]}"),
      0, "is outside" },
    { "id past int64", "tokenizer.json",
      WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"ab\":99999999999999999999},\"merges\":[]}"), 0, "too large" },
    { "id twice", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"ab\":7},\"merges\":[]}"), 0,
      "id 7 is used twice" },
    { "merge of unknown", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[\"a zz\"]}"), 0,
      "\"zz\" is not in" },
    { "merge into unknown", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[\"a b\"]}"), 0,
      "\"ab\" is not in" },
    { "merge of one", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[\"ab\"]}"), 0,
      "merges[0] is not two" },
    { "merge of three", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[[\"a\",\"b\",\"c\"]]}"), 0,
      "merges[0] is not two" },
    { "merge of numbers", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V},\"merges\":[[1,2]]}"), 0,
      "merges[0] is not two" },
    { "merges missing", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V}}"), 0, "model.merges is not" },
    { "added without id", "tokenizer.json", ADDED("{\"content\":\"x\"}"), 0, "added_tokens[0] has no id" },
    { "added empty", "tokenizer.json", ADDED("{\"id\":300,\"content\":\"\"}"), 0, "added_tokens[0] has no id" },
    { "added id huge", "tokenizer.json", ADDED("{\"id\":4294967300,\"content\":\"<x>\"}"), 0, "its id is outside" },
    { "added over another", "tokenizer.json", ADDED("{\"id\":3,\"content\":\"<x>\"}"), 0, "another text" },
    { "single word", "tokenizer.json", ADDED("{\"id\":300,\"content\":\"<x>\",\"single_word\":true}"), 0,
      "single_word" },
    { "tiktoken without a pattern", "x.tiktoken", "IQ== 0\n", 0, "1 ranks are not a published vocabulary" },
    { "tiktoken without bytes", "x.tiktoken#gpt2", "IQ== 0\n", 0, "byte 0x00 has no token" },
    { "tiktoken no base64", "x.tiktoken#gpt2", "IQ== 0\n?!== 1\n", 0, "line 2 is not a token" },
    { "tiktoken no rank", "x.tiktoken#gpt2", "IQ==\n", 0, "line 1 is not a token" },
    { "tiktoken rank negative", "x.tiktoken#gpt2", "IQ== -1\n", 0, "line 1 is not a token" },
    { "tiktoken rank huge", "x.tiktoken#gpt2", "IQ== 999999999\n", 0, "is outside" },
    { "tiktoken rank overflow", "x.tiktoken#gpt2", "IQ== 99999999999999999999\n", 0, "line 1 is not a token" },
    { "tiktoken token twice", "x.tiktoken#gpt2", "IQ== 0\nIQ== 1\n", 0, "same bytes" },
    { "tiktoken rank twice", "x.tiktoken#gpt2", "IQ== 0\nIg== 0\n", 0, "used twice" },
    { "llama2c empty", "tokenizer.bin", "", 0, "too few" },
    { "llama2c only a head", "tokenizer.bin", "\7\0\0\0", 4, "0 tokens are too few" },
    { "llama2c longest huge", "tokenizer.bin", "\xff\xff\xff\x7f", 4, "longest token" },
    { "llama2c cut head", "tokenizer.bin", "\7\0\0\0\0\0\0\0\1", 9, "cut short in token 0 at byte 4" },
    { "llama2c length huge", "tokenizer.bin",
      "\7\0\0\0\0\0\0\0\xff\xff\xff\xff"
      "a",
      13, "would have 4294967295 bytes" },
    { "llama2c length over", "tokenizer.bin",
      "\7\0\0\0\0\0\0\0\2\0\0\0"
      "a",
      13, "would have 2 bytes" },
    { "llama2c empty token", "tokenizer.bin", "\7\0\0\0\0\0\0\0\0\0\0\0", 12, "would have 0 bytes" },
    { "llama2c NaN", "tokenizer.bin",
      "\7\0\0\0\0\0\xc0\x7f\1\0\0\0"
      "a",
      13, "no finite score" },
    { "gpt2 without merges", "encoder.json", "{@V}", 0, "vocab.bpe" },
    { "unknown name", "tokenizer.vocab", "x", 0, "unknown kind of tokenizer" },
    { "fallback good", "tokenizer.json", NORMALIZED("null"), 0, NULL },
    { "fallback without bytes", "tokenizer.json",
      MARKED("null", "null", REPLACE, "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0},\"merges\":[]}"), 0,
      "byte 0x00 has no token <0x00>" },
    { "fallback, a NUL", "tokenizer.json",
      MARKED("null", "null", REPLACE,
             "{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{@B,\"\\u0000\":256,\"b\":257},\"merges\":[]}"),
      0, NULL },
    { "byte-level, a NUL", "tokenizer.json", WITH("{\"type\":\"BPE\",\"vocab\":{@V,\"\\u0000\":256},\"merges\":[]}"), 0,
      "a NUL in a string" },
    { "fallback unknown token", "tokenizer.json",
      MARKED("null", "null", REPLACE,
             "{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"?\",\"vocab\":{@B},\"merges\":[]}"),
      0, "unk_token is not in the vocabulary" },
    { "fallback Unigram", "tokenizer.json",
      MARKED("null", METASPACE("\xe2\x96\x81", "always"), REPLACE, "{\"type\":\"Unigram\",\"vocab\":[]}"), 0,
      "model type \"Unigram\" is not supported" },
    { "fallback WordPiece", "tokenizer.json",
      MARKED("null", "{\"type\":\"BertPreTokenizer\"}", "null", "{\"type\":\"WordPiece\",\"vocab\":{}}"), 0,
      "model type \"WordPiece\" is not supported" },
    { "fallback dropout", "tokenizer.json",
      MARKED("null", "null", REPLACE,
             "{\"type\":\"BPE\",\"byte_fallback\":true,\"dropout\":0.1,\"vocab\":{@B},\"merges\":[]}"),
      0, "model option \"dropout\"" },
    { "fallback NFKC", "tokenizer.json", NORMALIZED("{\"type\":\"NFKC\"}"), 0, "normalizer \"NFKC\" is not" },
    { "fallback Precompiled", "tokenizer.json",
      NORMALIZED("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\"}]}"), 0,
      "normalizer \"Precompiled\"" },
    { "fallback Prepend", "tokenizer.json", NORMALIZED("{\"type\":\"Prepend\",\"prepend\":\"_\"}"), 0,
      "Prepend of another text" },
    { "fallback Replace", "tokenizer.json",
      NORMALIZED("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" \"},\"content\":\"_\"}"), 0, "Replace other than" },
    { "fallback pre-tokenizer", "tokenizer.json", SPLITTING("{\"type\":\"Whitespace\"}"), 0,
      "pre_tokenizer \"Whitespace\"" },
    { "fallback split", "tokenizer.json",
      SPLITTING("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\"}"), 0,
      "pre_tokenizer \"Split\"" },
    { "metaspace good", "tokenizer.json", SPLITTING(METASPACE("\xe2\x96\x81", "first")), 0, NULL },
    { "metaspace mark", "tokenizer.json", SPLITTING(METASPACE("_", "first")), 0, "Metaspace of another character" },
    { "metaspace scheme", "tokenizer.json", SPLITTING(METASPACE("\xe2\x96\x81", "last")), 0,
      "prepend_scheme \"last\"" },
    { "metaspace and more", "tokenizer.json",
      SPLITTING("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\"},{\"type\":\"Digits\"}]}"), 0,
      "Sequence of Metaspace and others" },
    { "fallback no decoder", "tokenizer.json", DECODED("null"), 0, "decoder \"none\"" },
    { "fallback decoder", "tokenizer.json", DECODED("{\"type\":\"WordPiece\"}"), 0, "decoder \"WordPiece\"" },
    { "fallback decoder order", "tokenizer.json", CHAIN("{\"type\":\"Fuse\"}," REPLACE), 0, "in another order" },
    { "fallback decoder twice", "tokenizer.json", CHAIN(REPLACE "," REPLACE), 0, "in another order" },
    { "fallback strip alone", "tokenizer.json", CHAIN("{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"),
      0, "in another order" },
    { "fallback strip two", "tokenizer.json",
      CHAIN("{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}"), 0,
      "Strip other than" },
    { "fallback decoder Replace", "tokenizer.json",
      CHAIN("{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}"), 0, "Replace other than" },
    { "spm good", "m.model", SPM_UNKNOWN SPM_A SPM_BPE, 0, NULL },
    { "spm unknown fields", "m.model",
      SPM_UNKNOWN SPM_A SPM_BPE "\xf8\x07\x01\xfa\x07\x01x\xfd\x07wxyz\xf9\x07stuvwxyz", 0, NULL },
    { "spm empty", "m.model", "", 0, "no pieces" },
    { "spm text", "m.model", "{\"model\":1}", 0, "is this a sentencepiece model?" },
    { "spm length", "m.model",
      "\x0a\x7f"
      "a",
      0, "a length beyond the end at byte 2" },
    { "spm length huge", "m.model",
      "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
      "a",
      0, "a length beyond the end" },
    { "spm number cut", "m.model", "\x08\xff", 0, "cut short in a number at byte 2" },
    { "spm number long", "m.model", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0, "more than 64 bits" },
    { "spm fixed cut", "m.model",
      "\x0d"
      "abc",
      0, "cut short in a number at byte 1" },
    { "spm group", "m.model", "\x0b", 0, "an unknown kind of field" },
    { "spm field 0", "m.model", "\0\1", 2, "a field without a number" },
    { "spm unigram", "m.model", SPM_UNKNOWN SPM_A, 0, "model type \"Unigram\" is not supported" },
    { "spm word", "m.model", SPM_UNKNOWN SPM_A "\x12\x02\x18\x03", 0, "model type \"Word\"" },
    { "spm char", "m.model", SPM_UNKNOWN SPM_A "\x12\x02\x18\x04", 0, "model type \"Char\"" },
    { "spm other type", "m.model", SPM_UNKNOWN SPM_A "\x12\x02\x18\x09", 0, "an unknown model type" },
    { "spm suffix", "m.model", SPM_UNKNOWN SPM_A "\x12\x05\x18\x02\xc0\x01\x01", 0, "treat_whitespace_as_suffix" },
    { "spm denormalizer", "m.model", SPM_UNKNOWN SPM_A SPM_BPE "\x2a\x03\x12\x01x", 0, "a denormalizer is not" },
    { "spm rules", "m.model", SPM_UNKNOWN SPM_A SPM_BPE "\x1a\x07\x0a\x01n\x12\x02xx", 0,
      "rules of the normalizer \"n\" are damaged" },
    { "spm trainer cut", "m.model", SPM_UNKNOWN SPM_A "\x12\x01\x18", 0, "cut short in a number" },
    { "spm piece empty", "m.model", "\x0a\x02\x0a\0", 4, "piece 0 is empty" },
    { "spm piece cut", "m.model", "\x0a\x02\x0a\x05", 0, "piece 0 is damaged" },
    { "spm piece bytes", "m.model", "\x0a\x03\x0a\x01\xff", 0, "piece 0 is no UTF-8" },
    { "spm piece score", "m.model",
      "\x0a\x08\x0a\x01"
      "a\x15\0\0\xc0\x7f",
      10, "piece 0 has no finite score" },
    { "spm piece type", "m.model",
      "\x0a\x05\x0a\x01"
      "a\x18\x09",
      0, "piece 0 has an unknown type" },
    { "spm piece unused", "m.model",
      "\x0a\x05\x0a\x01"
      "a\x18\x05",
      0, "type UNUSED is not supported" },
    { "spm piece twice", "m.model", SPM_UNKNOWN SPM_A SPM_A SPM_BPE, 0, "same bytes" },
    { "spm unknown twice", "m.model", SPM_UNKNOWN "\x0a\x06\x0a\x02<>\x18\x02" SPM_BPE, 0, "second unknown piece" },
    { "spm unknown missing", "m.model", SPM_A SPM_BPE, 0, "no unknown piece" },
    { "spm control as normal", "m.model", SPM_UNKNOWN "\x0a\x05\x0a\x03<s>\x0a\x07\x0a\x03<s>\x18\x03" SPM_BPE, 0,
      "have the same text" },
    { "spm byte without fallback", "m.model", SPM_UNKNOWN "\x0a\x0a\x0a\x06<0x41>\x18\x06" SPM_BPE, 0,
      "byte_fallback is off" },
    { "spm fallback without byte", "m.model", SPM_UNKNOWN SPM_A "\x12\x05\x18\x02\x98\x02\x01", 0,
      "byte_fallback is on" },
    { "spm byte that is none", "m.model", SPM_UNKNOWN "\x0a\x0a\x0a\x06<0x4G>\x18\x06" SPM_BPE, 0, "is no byte" },
};

static void put_vocab(char *out, size_t *n)
{
    for (int b = 0, id = 0; b < 512; b++) { /* GPT-2's alphabet in its order, quotes and backslashes escaped */
        const bool self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
        if (!self && (b < 256 || b >= 256 + 68)) continue;
        *n += (size_t)sprintf(out + *n, "%s\"\\u%04x\":%d", id ? "," : "", b, id);
        id++;
    }
}

static void put_bytes(char *out, size_t *n)
{
    for (int b = 0; b < 256; b++) *n += (size_t)sprintf(out + *n, "%s\"<0x%02X>\":%d", b ? "," : "", b, b);
}

static void attacked(void **state)
{
    const attack *a = *state;
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    char spec[1100], *text = malloc(strlen(a->text) + (1 << 16));
    size_t n = 0;
    tn_tempdir_make(&d);
    if (a->bytes) memcpy(text, a->text, n = a->bytes);
    for (const char *p = a->text; a->bytes == 0 && *p; p++) {
        if (strncmp(p, "@V", 2) == 0) put_vocab(text, &n), p++;
        else if (strncmp(p, "@B", 2) == 0) put_bytes(text, &n), p++;
        else text[n++] = *p;
    }
    snprintf(spec, sizeof spec, "%s", tn_tempdir_file(&d, a->file));
    char plain[1100];
    snprintf(plain, sizeof plain, "%s", spec);
    if (strchr(plain, '#')) *strchr(plain, '#') = 0;
    assert_ok(tn_file_write_atomic(plain, text, n));
    if (!a->says) {
        assert_ok(tn_tokenizer_open(spec, &t));
    } else {
        const tn_status s = tn_tokenizer_open(spec, &t);
        assert_true(s == TN_BAD_FILE || s == TN_USAGE);
        if (!strstr(tn_error_text(), a->says)) fail_msg("\"%s\" does not say \"%s\"", tn_error_text(), a->says);
        if (!strstr(tn_error_text(), d.path)) fail_msg("\"%s\" does not name the file", tn_error_text());
        assert_null(t);
    }
    tn_tokenizer_free(t);
    tn_tempdir_remove(&d);
    free(text);
}

/* What is read at all must also work. */
static void use(tn_tokenizer *t)
{
    static const char text[] = "Some text, caf\xc3\xa9 123 <|endoftext|> \xff\n\n  don't";
    tn_tokenizer_scratch *x;
    tn_tokens ids = { 0 };
    tn_text out = { 0 };
    assert_ok(tn_tokenizer_scratch_new(&x));
    if (tn_tokenizer_encode(t, x, text, sizeof text - 1, TN_ENCODE_SPECIAL, &ids) == TN_OK) {
        for (size_t i = 0; i < ids.n; i++) assert_true(ids.ids[i] >= 0 && ids.ids[i] < tn_tokenizer_vocab(t));
        assert_ok(tn_tokenizer_decode(t, ids.ids, ids.n, &out));
    }
    tn_tokens_free(&ids);
    tn_text_free(&out);
    tn_tokenizer_scratch_free(x);
}

/* The file cut at many places, and with bytes changed: refused, or read and usable. */
static void damaged(void **state)
{
    const char *name = *state;
    char path[256], spec[1200], *text;
    size_t bytes;
    tn_tempdir d;
    tn_tempdir_make(&d);
    snprintf(path, sizeof path, "tests/token/%s", name);
    assert_ok(tn_file_read_all(path, 1 << 20, &text, &bytes));
    const char *file = tn_tempdir_file(&d, name);
    snprintf(spec, sizeof spec, "%s%s", file, strstr(name, "tiktoken") ? "#o200k" : "");
    for (uint64_t i = 0; i < 120; i++) {
        tn_tokenizer *t = NULL;
        char *copy = malloc(bytes);
        memcpy(copy, text, bytes);
        const size_t at = tn_rng_below((tn_rng){ 8, 9 }, 2 * i, (uint32_t)bytes);
        if (i % 2) copy[at] = (char)(copy[at] ^ (1 << tn_rng_below((tn_rng){ 8, 9 }, 2 * i + 1, 8)));
        FILE *f = fopen(file, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(copy, 1, i % 2 ? bytes : at, f), i % 2 ? bytes : at);
        fclose(f);
        const tn_status s = tn_tokenizer_open(spec, &t);
        assert_true(s == TN_OK || s == TN_BAD_FILE);
        if (s == TN_OK) use(t);
        else assert_true(strlen(tn_error_text()) > 20);
        tn_tokenizer_free(t);
        free(copy);
    }
    tn_free(text);
    tn_tempdir_remove(&d);
}

/* Tokens of every length of one letter: the most splits a file can ask for. */
static void many_splits(void **state)
{
    (void)state;
    enum { LONGEST = 1024 };
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    tn_tempdir_make(&d);
    const char *file = tn_tempdir_file(&d, "tokenizer.bin");
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    static char letters[LONGEST];
    memset(letters, 'a', sizeof letters);
    fwrite((int32_t[]){ LONGEST }, 4, 1, f);
    for (int32_t n = 1; n <= LONGEST; n++) {
        fwrite((float[]){ -(float)n }, 4, 1, f);
        fwrite(&n, 4, 1, f);
        fwrite(letters, 1, (size_t)n, f);
    }
    fclose(f);
    assert_ok(tn_tokenizer_open(file, &t));
    use(t);
    tn_tokenizer_free(t);
    tn_tempdir_remove(&d);
}

static void folders(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tokenizer *t = NULL;
    tn_tempdir_make(&d);
    assert_fails(tn_tokenizer_open(d.path, &t), TN_BAD_FILE, "contains no tokenizer.json");
    assert_fails(tn_tokenizer_open(tn_tempdir_file(&d, "tokenizer.json"), &t), TN_BAD_FILE, "tokenizer.json");
    assert_fails(tn_tokenizer_open("tests/token/mini.tiktoken#gpt9", &t), TN_USAGE, "unknown split pattern");
    tn_tempdir_remove(&d);
}

void tn_tests_tokenizer_files(tn_test_list *l)
{
    static const char *const files[] = {
        "mini_llama3.json", "mini_qwen2.json",   "mini.tiktoken",  "mini_llama2c.bin",
        "mini_llama2.json", "mini_mistral.json", "mini_spm.model", "mini_rules.model"
    };
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        tn_test_add(l, attacked, &attacks[i], "tokenizer file %s", attacks[i].name);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        tn_test_add(l, damaged, files[i], "tokenizer file damaged %s", files[i]);
    tn_test_add(l, many_splits, NULL, "tokenizer file many splits");
    tn_test_add(l, folders, NULL, "tokenizer file folders");
}
