/* GGUF: the decoders against bits of the format's reference (made by gguf 0.x's dequantize from the pattern below), what the
 * reader hands out, and what it refuses. */
#include "gguf_file.h"
#include "io/gguf.h"

#include <stdlib.h>

/* --- numbers ----------------------------------------------------------------------------------------------------------- */

enum { VALUES = 512, MOST_BYTES = 4 * VALUES };

typedef struct expected {
    const char *name;
    uint32_t bits[4]; /* of values 0, 31, 300, 511 */
    uint64_t hash;    /* FNV-1a of the bits of all */
} expected;

static const expected rows[] = {
    { "F32", { 0xb4815e3c, 0x048f3102, 0x9257b5e5, 0x962780ac }, 0xe7e42f841bf3a3edu },
    { "F16", { 0x3bc78000, 0xbb84a000, 0x39e12000, 0x3e04c000 }, 0x80a6dce70b69ffb0u },
    { "BF16", { 0x1e3c0000, 0x9c250000, 0x0f090000, 0x30260000 }, 0x60cbdae72868bcf0u },
    { "Q8_0", { 0xbf45f100, 0xbcf96000, 0x3d401700, 0xbf4b3400 }, 0x208469c3381bfe64u },
    { "Q4_0", { 0xbd2e9000, 0xbc95a000, 0xc0d8f000, 0x80000000 }, 0x85ecd91c23e7b3fdu },
    { "Q4_1", { 0xbe557000, 0xbe6e6000, 0xbbda6800, 0x3f9788c0 }, 0x47b6db13442d952du },
    { "Q5_0", { 0x3d15a000, 0xbdbb0800, 0x3c27b200, 0x3a100800 }, 0x48b79b9aad479effu },
    { "Q5_1", { 0xbe83a800, 0xbe1d5400, 0xbe642f00, 0x3fb6f7ea }, 0x2a088a4ee6955effu },
    { "Q4_K", { 0x40002c00, 0x40002c00, 0x4050f6d8, 0x40dc0866 }, 0x4507de6adca96ac4u },
    { "Q5_K", { 0x3fd19600, 0x400e3300, 0xbfa825b4, 0xc103aa0e }, 0x80e88f46d50be74eu },
    { "Q6_K", { 0xc5030720, 0x451d4770, 0x3e323430, 0xbe8e8470 }, 0xb52c3946e1760df8u },
};

static const tn_gguf_type *type_named(const char *name)
{
    size_t n;
    const tn_gguf_type *t = tn_gguf_types(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(t[i].name, name) == 0) return &t[i];
    fail_msg("no type %s", name);
    return NULL;
}

/* Upper bytes of a linear congruence; the top bit of the exponent of every f16, bf16 and f32 is cleared, so that all is
 * finite. */
static void pattern(const tn_gguf_type *t, unsigned char *p)
{
    uint32_t x = 1;
    const size_t bytes = (size_t)(VALUES / t->values * t->bytes);
    const int k = t->values == 1 ? t->bytes - 1 : strcmp(t->name, "Q6_K") == 0 ? 209 : 1;
    const bool two = strstr(t->name, "_1") || strcmp(t->name, "Q4_K") == 0 || strcmp(t->name, "Q5_K") == 0;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525 + 1013904223;
        p[i] = (unsigned char)(x >> 24);
        if ((int)(i % (size_t)t->bytes) == k || (two && i % (size_t)t->bytes == 3)) p[i] &= 0xbf;
    }
}

static void bits_of_the_reference(void **state)
{
    static const int at[4] = { 0, 31, 300, 511 };
    const expected *e = *state;
    const tn_gguf_type *t = type_named(e->name);
    unsigned char src[MOST_BYTES];
    float x[VALUES], part[VALUES];
    uint32_t u[VALUES];
    uint64_t hash = 0xcbf29ce484222325u;
    pattern(t, src);
    tn_gguf_decode(t, src, 0, VALUES, x);
    memcpy(u, x, sizeof u);
    for (int i = 0; i < 4; i++) assert_int_equal(u[at[i]], e->bits[i]);
    for (size_t i = 0; i < sizeof u; i++) hash = (hash ^ (unsigned char)(u[i / 4] >> i % 4 * 8)) * 0x100000001b3u;
    assert_true(hash == e->hash);
    for (int first = 0; first < VALUES; first += 7) /* blocks cut on both sides */
        for (int n = 0; n <= VALUES - first; n += 61) {
            tn_gguf_decode(t, src, first, n, part);
            assert_memory_equal(part, x + first, (size_t)n * sizeof *x);
        }
}

static void every_type_has_a_row(void **state)
{
    (void)state;
    size_t n;
    const tn_gguf_type *t = tn_gguf_types(&n);
    assert_int_equal(n, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        assert_true(tn_gguf_type_of(t[i].id) == &t[i]);
        assert_true(t[i].values <= TN_GGUF_BLOCK_MAX);
    }
    assert_null(tn_gguf_type_of(10));
    assert_string_equal(tn_gguf_type_name(10), "Q2_K");
    assert_string_equal(tn_gguf_type_name(4), "?");
}

/* --- a whole file ------------------------------------------------------------------------------------------------------ */

/* Ten keys of every kind, two tensors. */
static void make_good(tn_made *m)
{
    static const uint64_t wide[2] = { 32, 3 }, small[1] = { 5 };
    const double pi = 3.25;
    made_head(m, 2, 10);
    made_key_text(m, "general.architecture", "llama");
    made_key(m, "minus", TN_GGUF_I8);
    made_bytes(m, "\xfe", 1);
    made_key(m, "short", TN_GGUF_I16);
    made_bytes(m, "\x00\x80", 2);
    made_key(m, "large", TN_GGUF_U64);
    made_u64(m, UINT64_MAX);
    made_key(m, "double", TN_GGUF_F64);
    made_bytes(m, &pi, 8);
    made_key(m, "yes", TN_GGUF_BOOL);
    made_bytes(m, "\x01", 1);
    made_key_f32(m, "float", -0.5f);
    made_key(m, "words", TN_GGUF_LIST);
    made_u32(m, TN_GGUF_TEXT);
    made_u64(m, 3);
    made_text(m, "one");
    made_text(m, "");
    made_text(m, "three");
    made_key(m, "numbers", TN_GGUF_LIST);
    made_u32(m, TN_GGUF_U16);
    made_u64(m, 2);
    made_bytes(m, "\x01\x00\xff\xff", 4);
    made_key_u32(m, "general.alignment", 64);
    made_tensor_at(m, "q", 2, wide, 8, 64); /* Q8_0 */
    made_tensor_at(m, "f", 1, small, 0, 0); /* F32; the order in the file is another */
    made_pad(m, 64);
    const float x[16] = { 1, 2, 3, 4, 5 };
    made_bytes(m, x, sizeof x);
    for (int i = 0; i < 3 * 34; i++) made_bytes(m, &(unsigned char){ (unsigned char)(i % 34 == 1 ? 0x3c : i % 34) }, 1);
}

static void hands_out_what_is_there(void **state)
{
    (void)state;
    tn_made *m = calloc(1, sizeof *m);
    tn_gguf *f;
    int64_t x;
    double d;
    tn_gguf_text t;
    size_t at = 0;
    make_good(m);
    assert_ok(tn_gguf_open_memory(m->data, m->n, "good", &f));
    assert_int_equal(tn_gguf_key_count(f), 10);
    assert_ok(tn_gguf_text_of(f, "general.architecture", &t));
    assert_true(tn_gguf_text_is(t, "llama") && !tn_gguf_text_is(t, "llam") && !tn_gguf_text_is(t, "llamas"));
    assert_ok(tn_gguf_integer(f, "minus", &x));
    assert_int_equal(x, -2);
    assert_ok(tn_gguf_integer(f, "short", &x));
    assert_int_equal(x, -32768);
    assert_ok(tn_gguf_integer(f, "yes", &x));
    assert_int_equal(x, 1);
    assert_fails(tn_gguf_integer(f, "large", &x), TN_BAD_FILE, "18446744073709551615");
    assert_true(tn_gguf_number_at(tn_gguf_key(f, "large"), 0) > 1.8e19);
    assert_ok(tn_gguf_float(f, "double", &d));
    assert_true(d == 3.25);
    assert_ok(tn_gguf_float(f, "float", &d));
    assert_true(d == -0.5);
    assert_fails(tn_gguf_float(f, "minus", &d), TN_BAD_FILE, "is i8, and should be a float");
    assert_fails(tn_gguf_integer(f, "float", &x), TN_BAD_FILE, "is f32, and should be an integer");
    assert_fails(tn_gguf_integer(f, "numbers", &x), TN_BAD_FILE, "is a list of 2");
    assert_fails(tn_gguf_integer(f, "none", &x), TN_BAD_FILE, "has no key \"none\"");
    const tn_gguf_value *words = tn_gguf_key(f, "words");
    assert_true(words && words->is_list && words->count == 3);
    assert_true(tn_gguf_text_next(words, &at, &t) && tn_gguf_text_is(t, "one"));
    assert_true(tn_gguf_text_next(words, &at, &t) && tn_gguf_text_is(t, ""));
    assert_true(tn_gguf_text_next(words, &at, &t) && tn_gguf_text_is(t, "three"));
    assert_false(tn_gguf_text_next(words, &at, &t));
    assert_true(tn_gguf_number_at(tn_gguf_key(f, "numbers"), 1) == 65535);
    assert_int_equal(tn_gguf_count(f), 2);
    const tn_gguf_tensor *q = tn_gguf_tensor_of(f, "q"), *small = tn_gguf_tensor_of(f, "f");
    assert_true(q == tn_gguf_at(f, 0) && small == tn_gguf_at(f, 1) && !tn_gguf_tensor_of(f, "g"));
    assert_true(tn_dims_equal(q->dims, tn_shape(3, 32)) && q->bytes == 3 * 34);
    float v[32];
    tn_gguf_decode(small->type, small->data, 1, 4, v);
    assert_true(v[0] == 2 && v[3] == 5);
    tn_gguf_decode(q->type, q->data, 64, 32, v);
    assert_true(v[0] == 2 && v[31] == 33); /* a scale of 1 */
    tn_gguf_close(f);
    free(m);
}

/* Cut anywhere before its end it is refused: the last byte belongs to a tensor. */
static void every_cut_is_refused(void **state)
{
    (void)state;
    tn_made *m = calloc(1, sizeof *m);
    make_good(m);
    for (size_t n = 0; n < m->n; n++) {
        unsigned char *copy = malloc(n + 1); /* as long as the file, for sanitizers */
        tn_gguf *f = NULL;
        memcpy(copy, m->data, n);
        if (tn_gguf_open_memory(copy, n, "cut", &f) != TN_BAD_FILE) fail_msg("%zu bytes were taken", n);
        free(copy);
    }
    free(m);
}

/* --- what is refused --------------------------------------------------------------------------------------------------- */

/* A file of one tensor x, F32 (4, 2) unless a row says otherwise, at offset 0, with 64 bytes of data. */
typedef struct attack {
    const char *says;
    uint32_t rank, type, version;
    uint64_t dims[5], offset, tensors, keys;
} attack;

static const attack attacks[] = {
    { .says = "has 0 dimensions", .rank = 0, .type = 0, .version = 3, .tensors = 1 },
    { .says = "has 5 dimensions, outside 1 to 4", .rank = 5, .dims = { 1, 1, 1, 1, 1 }, .version = 3, .tensors = 1 },
    { .says = "dimension 1 is 0", .rank = 2, .dims = { 4, 0 }, .version = 3, .tensors = 1 },
    { .says = "dimension 0 is 18446744073709551615", .rank = 1, .dims = { UINT64_MAX }, .version = 3, .tensors = 1 },
    { .says = "overflows", .rank = 2, .dims = { 1ull << 32, 1ull << 32 }, .version = 3, .tensors = 1 },
    { .says = "overflows", .rank = 1, .dims = { 1ull << 62 }, .version = 3, .tensors = 1 },
    { .says = "type 10 (Q2_K)", .rank = 1, .dims = { 256 }, .type = 10, .version = 3, .tensors = 1 },
    { .says = "type 99 (?)", .rank = 1, .dims = { 4 }, .type = 99, .version = 3, .tensors = 1 },
    { .says = "no whole blocks of 32", .rank = 1, .dims = { 33 }, .type = 8, .version = 3, .tensors = 1 },
    { .says = "no multiple of the alignment 32", .rank = 1, .dims = { 4 }, .offset = 4, .version = 3, .tensors = 1 },
    { .says = "outside the 64 bytes", .rank = 1, .dims = { 4 }, .offset = 1ull << 63, .version = 3, .tensors = 1 },
    { .says = "outside the 64 bytes", .rank = 1, .dims = { 9 }, .offset = 32, .version = 3, .tensors = 1 },
    { .says = "version 1 of GGUF", .rank = 1, .dims = { 4 }, .version = 1, .tensors = 1 },
    { .says = "big-endian", .rank = 1, .dims = { 4 }, .version = 3u << 24, .tensors = 1 },
    { .says = "more than the 64000 allowed", .rank = 1, .dims = { 4 }, .version = 3, .tensors = UINT64_MAX },
    { .says = "tensors take more than", .rank = 1, .dims = { 4 }, .version = 3, .tensors = 60000 },
    { .says = "more than the 16000 allowed", .rank = 1, .dims = { 4 }, .version = 3, .keys = 1ull << 60 },
    { .says = "keys take more than", .rank = 1, .dims = { 4 }, .version = 3, .keys = 15000 },
};

static void bad_tensors_are_refused(void **state)
{
    const attack *a = *state;
    tn_made *m = calloc(1, sizeof *m);
    tn_gguf *f;
    made_head(m, a->tensors, a->keys);
    memcpy(m->data + 4, &a->version, 4);
    made_tensor_at(m, "x", a->rank, a->dims, a->type, a->offset);
    made_pad(m, 32);
    m->n += 64;
    assert_fails(tn_gguf_open_memory(m->data, m->n, "bad", &f), TN_BAD_FILE, a->says);
    free(m);
}

static void refused(tn_made *m, const char *says)
{
    tn_gguf *f;
    m->n += 200; /* room for more */
    assert_fails(tn_gguf_open_memory(m->data, m->n, "bad", &f), TN_BAD_FILE, says);
    memset(m, 0, sizeof *m);
}

static void bad_keys_are_refused(void **state)
{
    (void)state;
    tn_made *m = calloc(1, sizeof *m);
    made_head(m, 0, 1);
    made_key(m, "k", 13);
    refused(m, "key \"k\" has the unknown type 13");
    made_head(m, 0, 1);
    made_key(m, "k", TN_GGUF_LIST);
    made_u32(m, TN_GGUF_LIST);
    made_u64(m, 1);
    refused(m, "is a list of lists");
    made_head(m, 0, 1);
    made_key(m, "k", TN_GGUF_LIST);
    made_u32(m, TN_GGUF_U32);
    made_u64(m, 1ull << 62);
    refused(m, "4611686018427387904 items of u32 take more");
    made_head(m, 0, 1);
    made_key(m, "k", TN_GGUF_LIST);
    made_u32(m, TN_GGUF_TEXT);
    made_u64(m, 1ull << 61);
    refused(m, "items of text take more");
    made_head(m, 0, 1);
    made_key(m, "k", TN_GGUF_TEXT);
    made_u64(m, UINT64_MAX);
    refused(m, "would have 18446744073709551615 bytes");
    made_head(m, 0, 1);
    made_key(m, "k", TN_GGUF_BOOL);
    made_bytes(m, "\x02", 1);
    refused(m, "2 is no bool");
    made_head(m, 0, 2);
    made_key_u32(m, "a\033[31m", 1);
    made_key_u32(m, "a\033[31m", 1);
    refused(m, "key \"a?[31m\" appears twice");
    made_head(m, 0, 1);
    made_u64(m, 1025);
    m->n += 2000;
    refused(m, "a key has 1025 bytes and at most 1024");
    static const uint32_t alignments[] = { 0, 3, 1u << 31 };
    for (size_t i = 0; i < 3; i++) {
        made_head(m, 0, 1);
        made_key_u32(m, "general.alignment", alignments[i]);
        refused(m, "no power of two");
    }
    made_head(m, 0, 1);
    made_key_text(m, "general.alignment", "x");
    refused(m, "is text, and should be an integer");
    memcpy(m->data, "GGML", 4);
    refused(m, "does not begin with");
    free(m);
}

static void tensors_of_one_place_or_name_are_refused(void **state)
{
    (void)state;
    static const uint64_t dims[1] = { 9 };
    tn_made *m = calloc(1, sizeof *m);
    made_head(m, 2, 0);
    made_tensor_at(m, "a", 1, dims, 0, 32);
    made_tensor_at(m, "b", 1, dims, 0, 0);
    refused(m, "tensor \"a\" overlaps \"b\"");
    made_head(m, 2, 0);
    made_tensor_at(m, "a", 1, dims, 0, 0);
    made_tensor_at(m, "a", 1, dims, 0, 64);
    refused(m, "tensor \"a\" appears twice");
    free(m);
}

void tn_tests_gguf(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tn_test_add(l, bits_of_the_reference, &rows[i], "gguf: %s has the bits of the reference", rows[i].name);
    tn_test_add(l, every_type_has_a_row, NULL, "gguf: every type has a row");
    tn_test_add(l, hands_out_what_is_there, NULL, "gguf: hands out what is there");
    tn_test_add(l, every_cut_is_refused, NULL, "gguf: every cut is refused");
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        tn_test_add(l, bad_tensors_are_refused, &attacks[i], "gguf: refused, attack %zu (%s)", i, attacks[i].says);
    tn_test_add(l, bad_keys_are_refused, NULL, "gguf: bad keys are refused");
    tn_test_add(l, tensors_of_one_place_or_name_are_refused, NULL, "gguf: one place or name for two is refused");
}
