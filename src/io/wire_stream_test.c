/* Wire messages one after another, through a pipe: ends between messages and inside them, and what a header's promise costs. */
#include "wire_golden.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

static const tn_wire_limits any = { 0 };

/* A thread writes the bytes in small pieces, so that messages and reads do not begin together. */
typedef struct feed {
    const unsigned char *data;
    size_t n, piece;
    int fd;
    pthread_t thread;
} feed;

static void *feeding(void *arg)
{
    feed *f = arg;
    for (size_t at = 0; at < f->n;) {
        const ssize_t k = write(f->fd, f->data + at, f->n - at < f->piece ? f->n - at : f->piece);
        if (k < 0 && errno != EINTR) break;
        at += k > 0 ? (size_t)k : 0;
    }
    close(f->fd);
    return NULL;
}

static int feed_begin(feed *f, const unsigned char *data, size_t n, size_t piece)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    *f = (feed){ .data = data, .n = n, .piece = piece, .fd = fd[1] };
    assert_int_equal(pthread_create(&f->thread, NULL, feeding, f), 0);
    return fd[0];
}

static void feed_end(feed *f, int fd)
{
    char rest[4096];
    while (read(fd, rest, sizeof rest) > 0) continue; /* what a reader left would keep the thread waiting */
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    close(fd);
}

/* All golden messages in a row; `end` (GOLDENS) is where each ends. */
static size_t row_of_messages(unsigned char *to, size_t *end)
{
    size_t n = 0;
    for (int i = 0; i < GOLDENS; i++) {
        n += golden_bytes(i, to + n);
        end[i] = n;
    }
    return n;
}

/* Reads all of n bytes; *count is how many messages came. */
static tn_status read_row(const unsigned char *data, size_t n, size_t piece, int *count)
{
    feed f;
    tn_wire_stream *r;
    tn_wire_message m = { 0 }, one = { 0 };
    bool more = true;
    tn_status s = TN_OK;
    unsigned char golden[GOLDEN_MOST_BYTES];
    const int fd = feed_begin(&f, data, n, piece);
    assert_ok(tn_wire_stream_open(fd, "row", &any, &r));
    for (*count = 0;; ++*count) {
        s = tn_wire_stream_next(r, &m, &more);
        if (s != TN_OK || !more) break;
        const size_t bytes = golden_bytes(*count, golden);
        assert_ok(tn_wire_decode("one", golden, bytes, &any, &one));
        assert_true(same_options(&m.about, &one.about));
        assert_memory_equal(m.z, one.z, GOLDEN_VALUES * sizeof *m.z);
    }
    if (s == TN_OK) assert_ok(tn_wire_stream_next(r, &m, &more)); /* still the end */
    assert_true(!more || s != TN_OK);
    tn_wire_stream_close(r);
    tn_wire_message_free(&m);
    tn_wire_message_free(&one);
    feed_end(&f, fd);
    return s;
}

static void a_row_of_messages(void **state)
{
    (void)state;
    static const size_t pieces[] = { 1, 7, 48, 73, 1000 };
    unsigned char row[GOLDENS * GOLDEN_MOST_BYTES];
    size_t end[GOLDENS];
    int count;
    const size_t n = row_of_messages(row, end);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_ok(read_row(row, n, pieces[i], &count));
        assert_int_equal(count, GOLDENS);
    }
    assert_ok(read_row(row, 0, 1, &count));
    assert_int_equal(count, 0);
}

static void an_end_inside_a_message(void **state)
{
    (void)state;
    unsigned char row[GOLDENS * GOLDEN_MOST_BYTES];
    size_t end[GOLDENS];
    int count;
    (void)row_of_messages(row, end);
    for (size_t n = end[0]; n < end[1]; n++) { /* all of the second */
        const tn_status s = read_row(row, n, 1000, &count);
        assert_int_equal(count, 1);
        if (n == end[0]) assert_ok(s);
        else {
            char says[120];
            snprintf(says, sizeof says, "row, message 2 (at byte %zu): cut short: %zu bytes of", end[0], n - end[0]);
            assert_fails(s, TN_BAD_FILE, says);
        }
    }
}

static void nothing_behind_a_bad_message(void **state)
{
    (void)state;
    unsigned char row[GOLDENS * GOLDEN_MOST_BYTES];
    size_t end[GOLDENS];
    feed f;
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    bool more;
    const size_t n = row_of_messages(row, end);
    for (size_t k = 8 * end[0]; k < 8 * end[1]; k++) { /* every bit of the second */
        row[k / 8] ^= (unsigned char)(1u << k % 8);
        const int fd = feed_begin(&f, row, n, 1000);
        assert_ok(tn_wire_stream_open(fd, "row", &any, &r));
        assert_ok(tn_wire_stream_next(r, &m, &more));
        assert_fails(tn_wire_stream_next(r, &m, &more), TN_BAD_FILE, "row, message 2 (at byte 82): ");
        assert_fails(tn_wire_stream_next(r, &m, &more), TN_BAD_FILE, "nothing can be read behind a bad message");
        assert_true(m.about.bits == 16);
        tn_wire_stream_close(r);
        feed_end(&f, fd);
        row[k / 8] ^= (unsigned char)(1u << k % 8);
    }
    tn_wire_message_free(&m);
}

static void a_wrong_encoder_in_a_row(void **state)
{
    (void)state;
    unsigned char row[GOLDENS * GOLDEN_MOST_BYTES];
    size_t end[GOLDENS];
    feed f;
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    bool more;
    const int fd = feed_begin(&f, row, row_of_messages(row, end), 1000);
    assert_ok(tn_wire_stream_open(fd, "row", &(tn_wire_limits){ .encoder = "ffffffffffffffffffffffffffffffff" }, &r));
    assert_fails(tn_wire_stream_next(r, &m, &more), TN_BAD_FILE, "row, message 1 (at byte 0): made by encoder 0001");
    tn_wire_stream_close(r);
    feed_end(&f, fd);
}

/* A header that promises the most, and little behind it: memory is for what came. */
static void promises_cost_nothing(void **state)
{
    (void)state;
    tn_wire_options o = { GOLDEN_ENCODER, 8, 1, TN_F32, 2048, 0, 0, 2048 };
    tn_wire_size s;
    unsigned char head[48 + 1000] = { 0 };
    feed f;
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    bool more;
    assert_ok(tn_wire_size_of(&o, &s));
    assert_int_equal(s.payload, 20 << 20);
    (void)golden_bytes(GOLDEN_INT4, head); /* f32 scales already */
    head[6] = 8;
    for (int i = 24; i < 44; i++) head[i] = 0;
    head[25] = head[29] = head[41] = 8; /* slots, shared, width: 2048 */
    head[38] = 1;                       /* group */
    const uint32_t crc = (uint32_t)crc32(0, head, 44);
    for (int i = 0; i < 4; i++) head[44 + i] = (unsigned char)(crc >> 8 * i);
    const int fd = feed_begin(&f, head, sizeof head, 100);
    assert_ok(tn_wire_stream_open(fd, "pipe", &any, &r));
    tn_alloc_fail_above(1 << 18);
    const tn_status got = tn_wire_stream_next(r, &m, &more);
    tn_alloc_fail_above(0);
    assert_fails(got, TN_BAD_FILE, "cut short: 1048 bytes of 20971572");
    tn_wire_stream_close(r);
    feed_end(&f, fd);
}

/* Large ones, which take many reads; the second uses the memory of the first. */
static void large_messages(void **state)
{
    (void)state;
    const tn_wire_options o = { GOLDEN_ENCODER, 6, 32, TN_F16, 100, 50, 3, 999 };
    tn_wire_size s;
    feed f;
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    bool more;
    assert_ok(tn_wire_size_of(&o, &s));
    float *z = calloc(s.values, sizeof *z);
    unsigned char *bytes = malloc(2 * s.message);
    assert_true(z && bytes);
    for (size_t i = 0; i < s.values; i++) z[i] = (float)(i % 32) * (i % 2 ? -1 : 1);
    z[s.values - 1] = 31; /* now every group has the scale 1 */
    assert_ok(tn_wire_encode(&o, z, bytes));
    memcpy(bytes + s.message, bytes, s.message);
    const int fd = feed_begin(&f, bytes, 2 * s.message, 5000);
    assert_ok(tn_wire_stream_open(fd, "pipe", &any, &r));
    assert_ok(tn_wire_stream_next(r, &m, &more));
    const uint64_t allocations = tn_alloc_count();
    assert_ok(tn_wire_stream_next(r, &m, &more));
    assert_true(more && m.size.slots == 250 && tn_alloc_count() == allocations);
    assert_memory_equal(m.z, z, s.values * sizeof *z);
    assert_ok(tn_wire_stream_next(r, &m, &more));
    assert_false(more);
    tn_wire_stream_close(r);
    tn_wire_message_free(&m);
    feed_end(&f, fd);
    free(z);
    free(bytes);
}

static void a_descriptor_that_fails(void **state)
{
    (void)state;
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    bool more;
    assert_ok(tn_wire_stream_open(-1, "closed", &any, &r));
    assert_fails(tn_wire_stream_next(r, &m, &more), TN_BAD_FILE, "closed");
    tn_wire_stream_close(r);
    tn_wire_stream_close(NULL);
}

void tn_tests_wire_stream(tn_test_list *l)
{
    tn_test_add(l, a_row_of_messages, NULL, "wire: a row of messages through a pipe");
    tn_test_add(l, an_end_inside_a_message, NULL, "wire: an end inside a message is an error");
    tn_test_add(l, nothing_behind_a_bad_message, NULL, "wire: nothing is read behind a bad message");
    tn_test_add(l, a_wrong_encoder_in_a_row, NULL, "wire: a wrong encoder in a row");
    tn_test_add(l, promises_cost_nothing, NULL, "wire: a header's promise costs nothing");
    tn_test_add(l, large_messages, NULL, "wire: large messages");
    tn_test_add(l, a_descriptor_that_fails, NULL, "wire: a descriptor that fails");
}
