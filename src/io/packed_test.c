/* Packed files: what goes in comes out, smaller where it can be; a byte changed or cut anywhere is noticed. */
#include "io/packed.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tempdir.h"

static tn_status to_file(void *file, const void *data, size_t bytes) { return tn_atomic_write(file, data, bytes); }

static void pack(const char *path, const unsigned char *data, size_t bytes, size_t piece)
{
    tn_atomic_file f;
    tn_packer *p;
    assert_ok(tn_atomic_open(path, &f));
    assert_ok(tn_packer_begin((tn_sink){ to_file, &f }, &p));
    for (size_t at = 0; at < bytes; at += piece)
        assert_ok(tn_packer_add(p, data + at, bytes - at < piece ? bytes - at : piece));
    assert_ok(tn_packer_finish(p));
    tn_packer_free(p);
    assert_ok(tn_atomic_finish(&f));
}

/* Numbers as weights are: of one size, with random last digits. */
static unsigned char *weights(size_t bytes)
{
    unsigned char *data = tn_alloc(bytes + 4);
    assert_non_null(data);
    for (size_t i = 0; i * 4 < bytes; i++) {
        const float x = 0.02f * tn_rng_normal((tn_rng){ 1, 2 }, i);
        memcpy(data + 4 * i, &x, 4);
    }
    return data;
}

static void round_trip(void **state)
{
    const size_t bytes = *(const size_t *)*state;
    tn_tempdir d;
    unsigned char *in = weights(bytes), *out;
    size_t n;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "x.zst");
    pack(path, in, bytes, bytes > 100000 ? 99991 : 7);
    assert_ok(tn_packed_read(path, bytes, &out, &n));
    assert_int_equal(n, bytes);
    assert_memory_equal(in, out, bytes);
    tn_free(out);
    if (bytes) assert_fails(tn_packed_read(path, bytes - 1, &out, &n), TN_BAD_FILE, "unpacks to more than");
    if (bytes > 1000) {
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_true((double)st.st_size < 0.95 * (double)bytes);
    }
    tn_free(in);
    tn_tempdir_remove(&d);
}

static void damage(void **state)
{
    (void)state;
    tn_tempdir d;
    unsigned char *in = weights(400), *out;
    char *file;
    size_t n, bytes;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "x.zst"), *bad = tn_tempdir_file(&d, "bad.zst");
    pack(path, in, 400, 400);
    assert_ok(tn_file_read_all(path, 1 << 20, &file, &bytes));
    for (size_t i = 0; i < bytes; i++) {
        file[i] = (char)(file[i] ^ 0x20);
        assert_ok(tn_file_write_atomic(bad, file, bytes));
        const tn_status changed = tn_packed_read(bad, 1 << 20, &out, &n);
        if (changed != TN_BAD_FILE && !(changed == TN_OK && i >= 12 && i < 16)) /* the limit of a block may be raised */
            fail_msg("byte %zu changed: status %d", i, (int)changed);
        if (changed == TN_OK) tn_free(out);
        file[i] = (char)(file[i] ^ 0x20);
        assert_ok(tn_file_write_atomic(bad, file, i));
        assert_fails(tn_packed_read(bad, 1 << 20, &out, &n), TN_BAD_FILE, "bad.zst");
    }
    assert_ok(tn_file_write_atomic(bad, file, bytes + 1)); /* with its NUL */
    assert_fails(tn_packed_read(bad, 1 << 20, &out, &n), TN_BAD_FILE, "data follows the end");
    tn_free(file);
    tn_free(in);
    tn_tempdir_remove(&d);
}

void tn_tests_packed(tn_test_list *l)
{
    static const size_t sizes[] = { 0, 1, 5, 4096, (1 << 20) - 1, (1 << 20) + 3, 3 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        tn_test_add(l, round_trip, &sizes[i], "packed: %zu bytes there and back", sizes[i]);
    tn_test_add(l, damage, NULL, "packed: a byte changed, a byte missing");
}
