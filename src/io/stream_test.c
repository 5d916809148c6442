/* Streams of bytes: what was packed comes out, in reads of any size; every cut and flip of a packed file is found. */
#include "io/stream.h"

#include "dataset_files.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

enum { N = 300000 };

static void make_text(char *text)
{
    uint32_t x = 1;
    for (size_t i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (char)('a' + (x >> 24) % 20);
    }
}

static size_t pack_gzip(const char *text, size_t n, unsigned char *out, size_t room)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t bytes = room - z.avail_out;
    deflateEnd(&z);
    return bytes;
}

static size_t pack_zstd(const char *text, size_t n, unsigned char *out, size_t room)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    const size_t bytes = ZSTD_compress2(c, out, room, text, n);
    ZSTD_freeCCtx(c);
    assert_false(ZSTD_isError(bytes));
    return bytes;
}

/* Reads all in pieces of `step` bytes; *n counts them. */
static tn_status read_all(const char *path, size_t step, char *out, size_t *n)
{
    tn_stream *s = NULL;
    size_t got = 0;
    *n = 0;
    tn_status st = tn_stream_open(path, &s);
    if (st != TN_OK) return st;
    do {
        st = tn_stream_read(s, out + *n, *n + step <= 2 * N ? step : 2 * N - *n, &got);
        if (st == TN_OK) *n += got;
    } while (st == TN_OK && got);
    if (st == TN_OK) assert_int_equal(tn_stream_position(s), *n);
    tn_stream_close(s);
    return st;
}

static void round_trip(void **state)
{
    const int kind = (int)(intptr_t)*state; /* 0 plain, 1 gzip, 2 zstd */
    tn_tempdir d;
    char *text = malloc(N), *out = malloc(2 * N + 1);
    unsigned char *file = malloc(2 * N);
    size_t n, got;
    tn_tempdir_make(&d);
    make_text(text);
    const char *path = tn_tempdir_file(&d, "f");
    /* Two members or frames, one after the other: together the text. */
    n = kind == 0 ? 0 : kind == 1 ? pack_gzip(text, 1000, file, N) : pack_zstd(text, 1000, file, N);
    if (kind == 0) memcpy(file, text, N);
    n = kind == 0 ? N : n + (kind == 1 ? pack_gzip : pack_zstd)(text + 1000, N - 1000, file + n, N);
    if (kind == 1) {
        memset(file + n, 0, 512); /* padding of a tape block */
        n += 512;
    }
    tn_put_file(path, file, n);
    static const size_t steps[] = { 2 * N, 1 << 16, 4097, 1000 };
    for (int i = 0; i < 4; i++) {
        assert_ok(read_all(path, steps[i], out, &got));
        assert_int_equal(got, N);
        assert_memory_equal(out, text, N);
    }
    tn_put_file(path, "", 0);
    assert_ok(read_all(path, 10, out, &got));
    assert_int_equal(got, 0);
    free(text);
    free(out);
    free(file);
    tn_tempdir_clear(&d);
}

static void damage(void **state)
{
    const int kind = (int)(intptr_t)*state;
    tn_tempdir d;
    char *text = malloc(N), *out = malloc(2 * N + 1);
    unsigned char *file = malloc(N);
    size_t got;
    tn_tempdir_make(&d);
    make_text(text);
    const char *path = tn_tempdir_file(&d, "f");
    const size_t n = (kind == 1 ? pack_gzip : pack_zstd)(text, 5000, file, N);
    for (size_t k = 5; k < n; k += 37) {
        tn_put_file(path, file, k);
        assert_fails(read_all(path, 4096, out, &got), TN_BAD_FILE, "download it again");
    }
    for (size_t k = 12; k < n; k += 29) {
        file[k] ^= 0x10;
        tn_put_file(path, file, n);
        assert_int_equal(read_all(path, 4096, out, &got), TN_BAD_FILE);
        file[k] ^= 0x10;
    }
    free(text);
    free(out);
    free(file);
    tn_tempdir_clear(&d);
}

static void refuses_folders(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_stream *s = NULL;
    tn_tempdir_make(&d);
    assert_fails(tn_stream_open(d.path, &s), TN_BAD_FILE, "that is a directory");
    assert_fails(tn_stream_open(tn_tempdir_file(&d, "none"), &s), TN_BAD_FILE, "No such file");
    tn_tempdir_clear(&d);
}

void tn_tests_stream(tn_test_list *l)
{
    static const char *const names[] = { "plain", "gzip", "zstd" };
    for (intptr_t k = 0; k < 3; k++) {
        tn_test_add(l, round_trip, (const void *)k, "stream: %s, reads of any size", names[k]);
        if (k) tn_test_add(l, damage, (const void *)k, "stream: %s cut or flipped anywhere", names[k]);
    }
    tn_test_add(l, refuses_folders, NULL, "stream: folders and missing files");
}
