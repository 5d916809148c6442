/* Checksums: known answers of XXH3-128, and that pieces, memory and files agree. */
#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "tempdir.h"

static void known_answers(void **state)
{
    (void)state;
    char hex[TN_HASH_BYTES];
    tn_hash_memory("", 0, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    tn_hash_memory("tenon", 5, hex);
    assert_string_equal(hex, "9886abf3370a77038baeca8257c6445d");
}

static void pieces(void **state)
{
    (void)state;
    tn_tempdir d;
    static unsigned char data[300001];
    char whole[TN_HASH_BYTES], hex[TN_HASH_BYTES];
    tn_hash *h = NULL;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i >> 3);
    tn_hash_memory(data, sizeof data, whole);
    assert_ok(tn_hash_begin(&h));
    for (size_t i = 0, k; i < sizeof data; i += k) {
        k = i * 7 % 1000 + 1 < sizeof data - i ? i * 7 % 1000 + 1 : sizeof data - i;
        tn_hash_add(h, data + i, k);
        tn_hash_text(h, hex); /* looking on the way changes nothing */
    }
    assert_string_equal(hex, whole);
    tn_hash_free(h);
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    assert_ok(tn_file_write_atomic(path, data, sizeof data));
    assert_ok(tn_hash_file(path, hex));
    assert_string_equal(hex, whole);
    data[sizeof data / 2] ^= 1;
    tn_hash_memory(data, sizeof data, hex);
    assert_string_not_equal(hex, whole);
    assert_fails(tn_hash_file(tn_tempdir_file(&d, "b"), hex), TN_BAD_FILE, "check the path");
    assert_fails(tn_hash_file(d.path, hex), TN_BAD_FILE, "directory");
    for (uint64_t n = 1; n <= 2; n++) {
        tn_alloc_fail_at(n);
        assert_fails(tn_hash_file(path, hex), TN_MEMORY, "memory");
    }
    tn_alloc_fail_at(0);
    tn_tempdir_remove(&d);
}

void tn_tests_hash(tn_test_list *l)
{
    tn_test_add(l, known_answers, NULL, "hash: known answers");
    tn_test_add(l, pieces, NULL, "hash: pieces, memory and file agree");
}
