/* Safetensors: round trips, a gallery of hostile files, truncation, failing memory and disks. Every refusal must come
 * before any tensor is visible, with a message that names the file and the fault. */
#include "base/alloc.h"
#include "base/fs.h"
#include "io/safetensors.h"
#include "tempdir.h"

#include <math.h>

/* A file in memory from a header text and `data` zero bytes; header_bytes < 0: the true length. */
static unsigned char *craft(const char *header, int64_t header_bytes, size_t data, size_t *bytes)
{
    const size_t n = strlen(header);
    const uint64_t stated = header_bytes < 0 ? n : (uint64_t)header_bytes;
    unsigned char *p = calloc(1, 8 + n + data + 1);
    assert_non_null(p);
    memcpy(p, &stated, 8);
    memcpy(p + 8, header, n);
    *bytes = 8 + n + data;
    return p;
}

/* Opens the bytes in a block of exactly their size, so that the address sanitizer sees any read beyond them. */
static tn_status open_exact(const unsigned char *p, size_t bytes, tn_safetensors **out)
{
    unsigned char *exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, p, bytes);
    const tn_status s = tn_safetensors_open_memory(exact, bytes, "crafted", out);
    free(exact); /* only the header may be looked at afterwards, and that was copied */
    return s;
}

#define T(name, dtype, shape, offsets)                                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define T1(dtype, shape, offsets) "{" T("a", dtype, shape, offsets) "}"

typedef struct attack {
    const char *name, *header;
    int64_t header_bytes; /* -1: the true length */
    size_t data;
    const char *says; /* part of the message; NULL: the file is good */
} attack;

static const attack attacks[] = {
    /* the frame */
    { "header length beyond the file", "{}", 100, 0, "ends after 2" },
    { "header length just beyond", "{}", 3, 0, "ends after 2" },
    { "header length over 100 MB", "{}", 100000001, 0, "more than the 100000000" },
    { "header length 2^63", "{}", INT64_MAX, 0, "more than the 100000000" },
    { "header length 0", "{}", 0, 0, "does not begin with '{'" },
    { "header length 1", "{}", 1, 1, "does not begin with '{'" },
    { "header cut in the middle", T1("F32", "[1]", "[0,4]"), 20, 4, "header line 1" },
    { "leading space", " {}", -1, 0, "does not begin with '{'" },
    { "a list", "[]", -1, 0, "does not begin with '{'" },
    { "not JSON", "{hello}", -1, 0, "header line 1" },
    { "two objects", "{}{}", -1, 0, "header line 1" },
    { "invalid UTF-8", "{\"\xff\":1}", -1, 0, "header line 1" },
    { "a NUL in a name", "{\"a\\u0000b\":1}", -1, 0, "header line 1" },
    { "name twice", "{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", -1, 2, "duplicate" },
    { "key twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1,
      "duplicate" },
    { "metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", -1, 0, "duplicate" },
    /* metadata */
    { "metadata is a list", "{\"__metadata__\":[]}", -1, 0, "not an object" },
    { "metadata is null", "{\"__metadata__\":null}", -1, 0, "not an object" },
    { "metadata with a number", "{\"__metadata__\":{\"step\":3}}", -1, 0, "\"step\" is not a text" },
    { "metadata nested", "{\"__metadata__\":{\"x\":{}}}", -1, 0, "\"x\" is not a text" },
    /* entries */
    { "entry is a number", "{\"a\":1}", -1, 0, "no dtype" },
    { "entry is null", "{\"a\":null}", -1, 0, "no dtype" },
    { "no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", -1, 0, "no shape" },
    { "no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", -1, 0, "data_offsets" },
    { "an extra key", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}", -1, 0, "4 keys" },
    { "unknown dtype", T1("F31", "[1]", "[0,4]"), -1, 4, "unknown dtype \"F31\"" },
    { "dtype in lower case", T1("f32", "[1]", "[0,4]"), -1, 4, "unknown dtype" },
    { "dtype is a number", "{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "no dtype" },
    { "dtype with control bytes", T1("\\u001b[31m", "[1]", "[0,4]"), -1, 4, "\"?[31m\"" },
    /* shapes */
    { "rank 7", T1("F32", "[1,1,1,1,1,1,1]", "[0,4]"), -1, 4, "7 dimensions and at most 6" },
    { "shape is an object", T1("F32", "{}", "[0,4]"), -1, 4, "no shape" },
    { "negative dimension", T1("F32", "[-1]", "[0,4]"), -1, 4, "is -1" },
    { "two negative dimensions", T1("F32", "[-1,-1]", "[0,4]"), -1, 4, "is -1" },
    { "fractional dimension", T1("F32", "[1.5]", "[0,4]"), -1, 4, "not an integer" },
    { "real dimension", T1("F32", "[1.0]", "[0,4]"), -1, 4, "not an integer" },
    { "text dimension", T1("F32", "[\"1\"]", "[0,4]"), -1, 4, "not an integer" },
    { "dimension 2^53+1", T1("F32", "[9007199254740993]", "[0,4]"), -1, 4, "outside 0..2^53" },
    { "dimension 2^64", T1("F32", "[18446744073709551616]", "[0,4]"), -1, 4, "header line 1" },
    { "product overflows", T1("U8", "[4294967296,4294967296]", "[0,0]"), -1, 0, "overflows" },
    { "bytes overflow", T1("F64", "[4503599627370496,512]", "[0,0]"), -1, 0, "overflows" },
    { "a zero hides an overflow", T1("U8", "[9007199254740992,1024,0]", "[0,0]"), -1, 0, "overflows" },
    { "refused type, wrong size", T1("BOOL", "[2]", "[0,1]"), -1, 1, "2 bytes by its shape" },
    /* offsets */
    { "one offset", T1("F32", "[1]", "[4]"), -1, 4, "two integers" },
    { "three offsets", T1("F32", "[1]", "[0,4,8]"), -1, 4, "two integers" },
    { "real offsets", T1("F32", "[1]", "[0.0,4.0]"), -1, 4, "two integers" },
    { "offsets are an object", T1("F32", "[1]", "{}"), -1, 4, "two integers" },
    { "negative begin", T1("F32", "[1]", "[-4,0]"), -1, 4, "outside the 4 bytes" },
    { "end before begin", T1("F32", "[1]", "[4,0]"), -1, 4, "outside the 4 bytes" },
    { "end beyond the data", T1("F32", "[2]", "[0,8]"), -1, 7, "outside the 7 bytes" },
    { "huge end", T1("U8", "[9007199254740992]", "[0,9007199254740992]"), -1, 4, "outside the 4 bytes" },
    { "size differs from the shape", T1("F32", "[1]", "[0,3]"), -1, 3, "4 bytes by its shape and 3" },
    { "scalar of no bytes", T1("F32", "[]", "[0,0]"), -1, 0, "4 bytes by its shape and 0" },
    /* cover */
    { "bytes left over", T1("F32", "[1]", "[0,4]"), -1, 5, "cover 4 of 5" },
    { "data without tensors", "{}", -1, 1, "cover 0 of 1" },
    { "hole at the start", T1("F32", "[1]", "[4,8]"), -1, 8, "hole of 4" },
    { "hole between", "{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", -1, 3, "hole of 1" },
    { "overlap", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", -1, 3, "overlaps" },
    { "the same bytes twice", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", -1, 2,
      "overlaps" },
    { "empty tensor inside another", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[0]", "[1,1]") "}", -1, 2,
      "overlaps" },
    /* good ones that look odd */
    { "good: nothing", "{}", -1, 0, NULL },
    { "good: padded with spaces", "{}      ", -1, 0, NULL },
    { "good: scalar", T1("F64", "[]", "[0,8]"), -1, 8, NULL },
    { "good: empty tensor", T1("F32", "[3,0]", "[0,0]"), -1, 0, NULL },
    { "good: order differs from offsets", "{" T("a", "U8", "[1]", "[1,2]") "," T("b", "U8", "[1]", "[0,1]") "}", -1, 2,
      NULL },
    { "good: rank 6", T1("U8", "[1,1,1,1,1,1]", "[0,1]"), -1, 1, NULL },
    { "good: empty name", "{" T("", "U8", "[1]", "[0,1]") "}", -1, 1, NULL },
    { "good: empty metadata", "{\"__metadata__\":{}}", -1, 0, NULL },
};

static void gallery(void **state)
{
    const attack *a = *state;
    size_t bytes;
    tn_safetensors *f = NULL;
    unsigned char *p = craft(a->header, a->header_bytes, a->data, &bytes);
    if (a->says) {
        assert_fails(open_exact(p, bytes, &f), TN_BAD_FILE, a->says);
        assert_non_null(strstr(tn_error_text(), "crafted: "));
        assert_null(f);
    } else {
        assert_ok(open_exact(p, bytes, &f));
        tn_safetensors_close(f);
    }
    free(p);
}

static void long_name(void **state)
{
    (void)state;
    char header[2000], name[1100];
    for (size_t n = TN_SAFETENSORS_NAME_MAX; n <= TN_SAFETENSORS_NAME_MAX + 1; n++) {
        size_t bytes;
        tn_safetensors *f = NULL;
        memset(name, 'n', n);
        name[n] = 0;
        snprintf(header, sizeof header, "{" T("%s", "U8", "[1]", "[0,1]") "}", name);
        unsigned char *p = craft(header, -1, 1, &bytes);
        if (n > TN_SAFETENSORS_NAME_MAX) assert_fails(open_exact(p, bytes, &f), TN_BAD_FILE, "1025 bytes");
        else assert_ok(open_exact(p, bytes, &f));
        tn_safetensors_close(f);
        free(p);
    }
}

/* A header of n pieces, `begin` before them; what is said of it. */
static void assert_too_many(const char *begin, const char *piece, const char *end, int n, const char *says)
{
    size_t bytes, at = strlen(begin);
    tn_safetensors *f = NULL;
    char *header = malloc((size_t)n * (strlen(piece) + 12) + 100);
    memcpy(header, begin, at);
    for (int i = 0; i < n; i++) {
        if (i) header[at++] = ',';
        at += (size_t)sprintf(header + at, piece, i);
    }
    strcpy(header + at, end);
    unsigned char *p = craft(header, -1, 0, &bytes);
    if (says) assert_fails(open_exact(p, bytes, &f), TN_BAD_FILE, says);
    else assert_ok(open_exact(p, bytes, &f));
    tn_safetensors_close(f);
    free(p);
    free(header);
}

static void limits(void **state)
{
    (void)state;
    static const char entry[] = T("%d", "U8", "[0]", "[0,0]"), meta[] = "{\"__metadata__\":{";
    assert_too_many("{", entry, "}", TN_SAFETENSORS_COUNT_MAX, NULL);
    assert_too_many("{", entry, "}", TN_SAFETENSORS_COUNT_MAX + 1, "100001 tensors are more");
    assert_too_many(meta, "\"%d\":\"\"", "}}", TN_SAFETENSORS_META_MAX, NULL);
    assert_too_many(meta, "\"%d\":\"\"", "}}", TN_SAFETENSORS_META_MAX + 1, "more than 16000 keys");
    char long_value[1100] = "\"%d\":\"";
    memset(long_value + strlen(long_value), 'v', 1000);
    strcat(long_value, "\"");
    assert_too_many(meta, long_value, "}}", 4100, NULL);
    assert_too_many(meta, long_value, "}}", 4300, "bytes of text");
}

static void refused_types(void **state)
{
    (void)state;
    static const char *const names[] = { "I8", "I16", "U16", "U32", "U64", "BOOL", "F8_E4M3", "F8_E5M2" };
    static const int sizes[] = { 1, 2, 2, 4, 8, 1, 1, 1 };
    for (int i = 0; i < 8; i++) {
        char header[256];
        size_t bytes;
        tn_safetensors *f;
        const tn_file_tensor *t = NULL;
        snprintf(header, sizeof header, "{" T("mask", "%s", "[2]", "[0,%d]") "," T("w", "U8", "[1]", "[%d,%d]") "}",
                 names[i], 2 * sizes[i], 2 * sizes[i], 2 * sizes[i] + 1);
        unsigned char *p = craft(header, -1, (size_t)(2 * sizes[i] + 1), &bytes);
        assert_ok(open_exact(p, bytes, &f));
        assert_int_equal(tn_safetensors_count(f), 1);
        assert_string_equal(tn_safetensors_at(f, 0)->name, "w");
        assert_false(tn_safetensors_has(f, "mask"));
        assert_fails(tn_safetensors_find(f, "mask", &t), TN_BAD_FILE, names[i]);
        assert_non_null(strstr(tn_error_text(), "\"mask\""));
        assert_fails(tn_safetensors_find(f, "masks", &t), TN_BAD_FILE, "no tensor \"masks\"");
        assert_null(t);
        tn_safetensors_close(f);
        free(p);
    }
}

/* Data begins one byte after an even address, so a careless typed read is caught by the sanitizer. */
static void unaligned_copy(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        tn_dtype dtype;
        int item;
    } kinds[] = { { "F32", TN_F32, 4 }, { "F64", TN_F64, 8 }, { "F16", TN_F16, 2 }, { "BF16", TN_BF16, 2 } };
    enum { N = 2500 }; /* over two steps of the copy */
    static float want[N], got[N + 1];
    for (int k = 0; k < 4; k++) {
        char header[256];
        size_t bytes;
        tn_safetensors *f;
        const tn_file_tensor *t = NULL;
        snprintf(header, sizeof header, "{" T("b", "U8", "[1]", "[0,1]") "," T("w", "%s", "[50,50]", "[1,%d]") "}",
                 kinds[k].name, 1 + N * kinds[k].item);
        unsigned char *p = craft(header, -1, (size_t)(1 + N * kinds[k].item), &bytes);
        static double packed[N];
        for (int i = 0; i < N; i++) want[i] = (float)(i % 200) - 77; /* exact in every type */
        tn_convert(packed, kinds[k].dtype, want, TN_F32, N);
        memcpy(p + 8 + strlen(header) + 1, packed, (size_t)(N * kinds[k].item));
        assert_ok(tn_safetensors_open_memory(p, bytes, "crafted", &f));
        assert_ok(tn_safetensors_find(f, "w", &t));
        assert_true(t->dtype == kinds[k].dtype && tn_dims_equal(t->dims, tn_shape(50, 50)));
        got[N] = 12345;
        assert_ok(tn_safetensors_copy_f32(t, got));
        assert_memory_equal(got, want, sizeof want);
        assert_true(got[N] == 12345);
        assert_fails(tn_safetensors_copy_f32(tn_safetensors_at(f, 0), got), TN_USAGE, "u8");
        tn_safetensors_close(f);
        free(p);
    }
}

static const tn_text_pair meta[] = { { "format", "pt" }, { "note", "quote \" back \\ line \n \xC3\xA9" } };

/* Every type, a scalar, an empty tensor, data in pieces. */
static tn_status write_sample(const char *path)
{
    static const double wide[3] = { 1.5, -2.5, 1e300 };
    static const float w[6] = { 1, 2, 3, 4, 5, -0.0f };
    static const int64_t big[2] = { INT64_MIN, INT64_MAX };
    static const int32_t mid = -7;
    static const uint16_t half[4] = { 0x3c00, 0xbf80, 1, 0xffff };
    static const unsigned char bytes[3] = { 0, 127, 255 };
    tn_status s = TN_OK;
    tn_safetensors_writer *x = NULL;
    TN_TRY(tn_safetensors_writer_begin(path, meta, 2, &x));
    TN_TRY(tn_safetensors_writer_declare(x, "wide", TN_F64, tn_shape(3)));
    TN_TRY(tn_safetensors_writer_declare(x, "big", TN_I64, tn_shape(2, 1)));
    TN_TRY(tn_safetensors_writer_declare(x, "layer0.w", TN_F32, tn_shape(2, 3)));
    TN_TRY(tn_safetensors_writer_declare(x, "empty", TN_F32, tn_shape(4, 0)));
    TN_TRY(tn_safetensors_writer_declare(x, "mid", TN_I32, (tn_dims){ .rank = 0 }));
    TN_TRY(tn_safetensors_writer_declare(x, "half", TN_F16, tn_shape(2, 2)));
    TN_TRY(tn_safetensors_writer_declare(x, "brain", TN_BF16, tn_shape(1, 1, 1, 1, 1, 4)));
    TN_TRY(tn_safetensors_writer_declare(x, "\xC3\xA9", TN_U8, tn_shape(3)));
    TN_TRY(tn_safetensors_writer_put(x, "wide", wide, sizeof wide));
    TN_TRY(tn_safetensors_writer_put(x, "big", big, sizeof big));
    for (int i = 0; i < 3; i++) TN_TRY(tn_safetensors_writer_put(x, "layer0.w", w + 2 * i, 8));
    TN_TRY(tn_safetensors_writer_put(x, "mid", &mid, sizeof mid)); /* "empty" needs no call */
    TN_TRY(tn_safetensors_writer_put(x, "half", half, sizeof half));
    TN_TRY(tn_safetensors_writer_put(x, "brain", half, sizeof half));
    TN_TRY(tn_safetensors_writer_put(x, "\xC3\xA9", bytes, sizeof bytes));
    s = tn_safetensors_writer_finish(x);
    x = NULL;
done:
    tn_safetensors_writer_abort(x);
    return s;
}

static void round_trip(void **state)
{
    (void)state;
    static const char *const order[] = { "wide", "big", "layer0.w", "empty", "mid", "half", "brain", "\xC3\xA9" };
    tn_tempdir d;
    tn_safetensors *f = NULL;
    const tn_file_tensor *t = NULL;
    float w[6];
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "model.safetensors");
    assert_fails(tn_safetensors_open(path, &f), TN_BAD_FILE, "check the path");
    assert_ok(write_sample(path));
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    assert_ok(tn_safetensors_open(path, &f));
    assert_int_equal(tn_safetensors_count(f), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_string_equal(tn_safetensors_at(f, i)->name, order[i]);
        assert_ok(tn_safetensors_find(f, order[i], &t));
        assert_ptr_equal(t, tn_safetensors_at(f, i));
        assert_true((uintptr_t)t->data % tn_dtype_bytes(t->dtype) == 0); /* wide types were declared first */
    }
    assert_null(tn_safetensors_at(f, 8));
    assert_int_equal(((uintptr_t)tn_safetensors_at(f, 0)->data) % 8, 0);
    assert_int_equal(tn_safetensors_meta_count(f), 2);
    assert_string_equal(tn_safetensors_meta(f, "note"), meta[1].value);
    assert_string_equal(tn_safetensors_meta_at(f, 0)->key, "format");
    assert_null(tn_safetensors_meta(f, "nothing"));
    assert_null(tn_safetensors_meta_at(f, 2));
    assert_ok(tn_safetensors_find(f, "layer0.w", &t));
    assert_ok(tn_safetensors_copy_f32(t, w));
    assert_true(w[0] == 1 && w[4] == 5 && signbit(w[5]));
    assert_ok(tn_safetensors_find(f, "mid", &t));
    assert_true(t->dims.rank == 0 && t->bytes == 4 && memcmp(t->data, &(int32_t){ -7 }, 4) == 0);
    assert_ok(tn_safetensors_find(f, "brain", &t));
    assert_true(t->dims.rank == 6 && t->dims.dim[5] == 4 && ((const unsigned char *)t->data)[0] == 0);
    tn_safetensors_close(f);
    tn_tempdir_remove(&d);
}

static void truncation(void **state)
{
    (void)state;
    tn_tempdir d;
    char *text;
    size_t bytes;
    tn_safetensors *f = NULL;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a"), *cut = tn_tempdir_file(&d, "cut");
    assert_ok(write_sample(path));
    assert_ok(tn_file_read_all(path, 1 << 20, &text, &bytes));
    for (size_t n = 0; n < bytes; n++) /* every length in memory, every 64th as a file */
        assert_fails(open_exact((unsigned char *)text, n, &f), TN_BAD_FILE, "crafted: ");
    for (size_t n = 0; n < bytes; n += 64) {
        FILE *out = fopen(cut, "wb");
        assert_non_null(out);
        assert_int_equal(fwrite(text, 1, n, out), n);
        assert_int_equal(fclose(out), 0);
        assert_fails(tn_safetensors_open(cut, &f), TN_BAD_FILE, cut);
    }
    assert_null(f);
    tn_free(text);
    tn_tempdir_remove(&d);
}

static void writer_refuses(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_safetensors_writer *w = NULL;
    const tn_text_pair twice[] = { { "a", "1" }, { "a", "2" } }, bad[] = { { "a", "\xff" } };
    char name[1100];
    memset(name, 'n', sizeof name);
    name[1025] = 0;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    assert_fails(tn_safetensors_writer_begin(path, twice, 2, &w), TN_USAGE, "comes twice");
    assert_fails(tn_safetensors_writer_begin(path, bad, 1, &w), TN_USAGE, "UTF-8");
    assert_fails(tn_safetensors_writer_begin(tn_tempdir_file(&d, "no/a"), NULL, 0, &w), TN_DISK, "no/a");
    assert_null(w);
    assert_ok(tn_safetensors_writer_begin(path, NULL, 0, &w));
    assert_fails(tn_safetensors_writer_declare(w, name, TN_F32, tn_shape(1)), TN_USAGE, "1024");
    assert_fails(tn_safetensors_writer_declare(w, "__metadata__", TN_F32, tn_shape(1)), TN_USAGE, "cannot name");
    assert_fails(tn_safetensors_writer_declare(w, "\xff", TN_F32, tn_shape(1)), TN_USAGE, "UTF-8");
    assert_fails(tn_safetensors_writer_declare(w, "a", TN_DTYPES, tn_shape(1)), TN_USAGE, "type");
    assert_fails(tn_safetensors_writer_declare(w, "a", TN_F32, tn_shape(-1)), TN_USAGE, "shape");
    assert_fails(tn_safetensors_writer_declare(w, "a", TN_F32, tn_shape(1, 1, 1, 1, 1, 1, 1)), TN_USAGE, "shape");
    assert_fails(tn_safetensors_writer_declare(w, "a", TN_U8, tn_shape(1ll << 53, 1024, 0)), TN_USAGE, "shape");
    assert_ok(tn_safetensors_writer_declare(w, "a", TN_U8, tn_shape(2)));
    assert_ok(tn_safetensors_writer_declare(w, "b", TN_U8, tn_shape(2)));
    assert_fails(tn_safetensors_writer_declare(w, "a", TN_U8, tn_shape(2)), TN_USAGE, "twice");
    assert_fails(tn_safetensors_writer_put(w, "b", "xy", 2), TN_USAGE, "\"a\" comes next");
    assert_fails(tn_safetensors_writer_put(w, "a", "xyz", 3), TN_USAGE, "more than its 2");
    assert_ok(tn_safetensors_writer_put(w, "a", "xy", 2));
    assert_fails(tn_safetensors_writer_put(w, "a", "z", 1), TN_USAGE, "more than its 2");
    assert_fails(tn_safetensors_writer_declare(w, "c", TN_U8, tn_shape(2)), TN_USAGE, "declare all first");
    assert_ok(tn_safetensors_writer_put(w, "b", "x", 1));
    assert_fails(tn_safetensors_writer_finish(w), TN_USAGE, "1 of its 2");
    assert_int_equal(tn_tempdir_entries(&d, false), 0); /* nothing half-written */
    tn_safetensors_writer_abort(NULL);
    tn_safetensors_close(NULL);
    tn_tempdir_remove(&d);
}

/* The n-th allocation fails, for every n: no leak (sanitizer), no file, the old file unharmed. */
static void no_memory(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_safetensors *f = NULL;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a"), *other = tn_tempdir_file(&d, "b");
    tn_alloc_fail_at(0);
    assert_ok(write_sample(path));
    const uint64_t writes = tn_alloc_count();
    assert_true(writes >= 4);
    for (uint64_t n = 1; n <= writes; n++) {
        tn_alloc_fail_at(n);
        assert_fails(write_sample(other), TN_MEMORY, "memory");
        assert_int_equal(tn_tempdir_entries(&d, false), 1);
    }
    tn_alloc_fail_at(0);
    assert_ok(tn_safetensors_open(path, &f));
    const uint64_t reads = tn_alloc_count();
    assert_true(reads >= 4);
    tn_safetensors_close(f);
    f = NULL;
    for (uint64_t n = 1; n <= reads; n++) {
        tn_alloc_fail_at(n);
        assert_fails(tn_safetensors_open(path, &f), TN_MEMORY, "memory");
    }
    tn_alloc_fail_at(0);
    assert_null(f);
    tn_tempdir_remove(&d);
}

static void many_tensors(void **state)
{
    (void)state;
    enum { N = 3000 };
    tn_tempdir d;
    tn_safetensors_writer *w;
    tn_safetensors *f;
    char name[32];
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    assert_ok(tn_safetensors_writer_begin(path, NULL, 0, &w));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(tn_safetensors_writer_declare(w, name, TN_I32, tn_shape(1)));
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(tn_safetensors_writer_put(w, name, &(int32_t){ i }, 4));
    }
    assert_ok(tn_safetensors_writer_finish(w));
    assert_ok(tn_safetensors_open(path, &f));
    for (int i = N - 1; i >= 0; i--) {
        const tn_file_tensor *t = NULL;
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(tn_safetensors_find(f, name, &t));
        assert_memory_equal(t->data, &(int32_t){ i }, 4);
    }
    tn_safetensors_close(f);
    tn_tempdir_remove(&d);
}

void tn_tests_safetensors(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        tn_test_add(l, gallery, &attacks[i], "safetensors: %s", attacks[i].name);
    tn_test_add(l, long_name, NULL, "safetensors: longest name");
    tn_test_add(l, limits, NULL, "safetensors: how many");
    tn_test_add(l, refused_types, NULL, "safetensors: types that are not supported");
    tn_test_add(l, unaligned_copy, NULL, "safetensors: copy of unaligned data");
    tn_test_add(l, round_trip, NULL, "safetensors: round trip");
    tn_test_add(l, truncation, NULL, "safetensors: truncation");
    tn_test_add(l, writer_refuses, NULL, "safetensors: writer refuses");
    tn_test_add(l, no_memory, NULL, "safetensors: out of memory");
    tn_test_add(l, many_tensors, NULL, "safetensors: many tensors");
}
