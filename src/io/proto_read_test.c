/* The protobuf reader: every kind of field, and every place where a message can be cut. */
#include "io/proto_read.h"

#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static const char message[] = "\x08\x96\x01"         /* 1: 150 */
                              "\x15\x00\x00\x80\x3f" /* 2: 1.0f */
                              "\x1a\x03"
                              "abc"                                                           /* 3: "abc" */
                              "\x21\x01\x00\x00\x00\x00\x00\x00\x80"                          /* 4: 2^63 + 1 */
                              "\xf8\xff\xff\xff\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"; /* 2^29 - 1: 2^64 - 1 */
enum { BYTES = sizeof message - 1 };

static void fields(void **state)
{
    (void)state;
    tn_proto r;
    tn_proto_open(&r, message, BYTES);
    assert_true(tn_proto_next(&r) && r.field == 1 && r.wire == TN_PROTO_NUMBER && r.value == 150);
    assert_true(tn_proto_next(&r) && r.field == 2 && r.wire == TN_PROTO_4 && tn_proto_float(&r) == 1.0f);
    assert_true(tn_proto_next(&r) && r.field == 3 && r.wire == TN_PROTO_BYTES && r.bytes == 3);
    assert_memory_equal(r.data, "abc", 3);
    assert_true(tn_proto_next(&r) && r.field == 4 && r.wire == TN_PROTO_8 && r.value == (1ull << 63 | 1));
    assert_true(tn_proto_next(&r) && r.field == (1 << 29) - 1 && r.value == UINT64_MAX);
    assert_false(tn_proto_next(&r));
    assert_null(r.why);
    assert_int_equal(tn_proto_at(&r), BYTES);
}

/* Cut anywhere but between two fields, it says so. */
static void cut(void **state)
{
    (void)state;
    static const size_t ends[] = { 0, 3, 8, 13, 22, BYTES };
    for (size_t n = 0, k = 0; n <= BYTES; n++) {
        tn_proto r;
        char *copy = malloc(n + 1); /* what lies behind it is not read: the sanitizer looks */
        memcpy(copy, message, n);
        copy = realloc(copy, n ? n : 1);
        tn_proto_open(&r, copy, n);
        while (tn_proto_next(&r)) continue;
        const bool whole = n == ends[k];
        k += whole;
        assert_true(whole == (r.why == NULL));
        assert_true(tn_proto_at(&r) <= n);
        free(copy);
    }
}

static void bad(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "\x0b", "an unknown kind of field" },
        { "\x0c", "an unknown kind of field" },
        { "\x0e", "an unknown kind of field" },
        { "\x0f", "an unknown kind of field" },
        { "\x07", "a field without a number" },
        { "\x80\x80\x80\x80\x10\x01", "a field without a number" },
        { "\x0a\x02"
          "a",
          "a length beyond the end" },
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "a number of more than 64 bits" },
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number of more than 64 bits" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_proto r;
        tn_proto_open(&r, rows[i][0], strlen(rows[i][0]));
        assert_false(tn_proto_next(&r));
        assert_string_equal(r.why, rows[i][1]);
        assert_false(tn_proto_next(&r));
    }
}

void tn_tests_proto_read(tn_test_list *l)
{
    tn_test_add(l, fields, NULL, "proto fields");
    tn_test_add(l, cut, NULL, "proto cut");
    tn_test_add(l, bad, NULL, "proto bad");
}
