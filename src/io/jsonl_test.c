/* JSON Lines: what is written reads back equal, odd texts and numbers included; cut ends, full disks, bad lines. */
#include "base/alloc.h"
#include "base/fs.h"
#include "io/jsonl.h"
#include "tempdir.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void check_text(const char *path, const char *want)
{
    char *text;
    assert_ok(tn_file_read_all(path, 1 << 20, &text, NULL));
    assert_string_equal(text, want);
    tn_free(text);
}

static void write_line(const char *path, bool append, int64_t step)
{
    tn_jsonl *w;
    assert_ok(tn_jsonl_open(path, append, &w));
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "step", step);
    assert_ok(tn_jsonl_end(w));
    assert_ok(tn_jsonl_close(w));
}

static void exact_text(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_jsonl *w;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    assert_ok(tn_jsonl_open(path, false, &w));
    const uint64_t before = tn_alloc_count();
    assert_ok(tn_jsonl_end(w)); /* an empty line is an empty object */
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "step", INT64_MIN);
    tn_jsonl_number(w, "loss", 0.1);
    tn_jsonl_number(w, "whole", 3);
    tn_jsonl_number(w, "zero", -0.0);
    tn_jsonl_flag(w, "best", true);
    tn_jsonl_text(w, "a\"b", "tab\t \\ \x1b \xC3\xA9 \xff\xE2\x82 \xED\xA0\x80 end");
    assert_ok(tn_jsonl_end(w));
    tn_jsonl_begin(w);
    tn_jsonl_number(w, "nan", NAN);
    tn_jsonl_number(w, "up", INFINITY);
    tn_jsonl_number(w, "down", -INFINITY);
    tn_jsonl_flag(w, "last", false);
    assert_ok(tn_jsonl_end(w));
    assert_int_equal(tn_alloc_count(), before); /* nothing is allocated after the open */
    assert_ok(tn_jsonl_sync(w));
    assert_ok(tn_jsonl_close(w));
    assert_ok(tn_jsonl_close(NULL));
    check_text(path, "{}\n{\"step\":-9223372036854775808,\"loss\":0.1,\"whole\":3,\"zero\":-0.0,\"best\":true,"
                     "\"a\\\"b\":\"tab\\u0009 \\\\ \\u001b \xC3\xA9 \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD "
                     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD end\"}\n"
                     "{\"nan\":\"NaN\",\"up\":\"Infinity\",\"down\":\"-Infinity\",\"last\":false}\n");
    tn_tempdir_remove(&d);
}

static void numbers_survive(void **state)
{
    (void)state;
    static const double x[] = { 0,
                                -0.0,
                                1,
                                -1,
                                0.1,
                                1.0 / 3,
                                DBL_MAX,
                                DBL_MIN,
                                0x1p-1074,
                                1e15,
                                1e17,
                                1e19,
                                1e22,
                                123456789012345678.0,
                                9007199254740993.0,
                                (double)0.1f,
                                NAN,
                                INFINITY,
                                -INFINITY };
    enum { N = sizeof x / sizeof *x };
    tn_tempdir d;
    tn_jsonl *w;
    tn_jsonl_reader *r;
    json_t *o;
    double y;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    assert_ok(tn_jsonl_open(path, false, &w));
    for (int i = 0; i < N; i++) {
        tn_jsonl_begin(w);
        tn_jsonl_number(w, "x", x[i]);
        tn_jsonl_text(w, "t", "Infinite");
        assert_ok(tn_jsonl_end(w));
    }
    assert_ok(tn_jsonl_close(w));
    assert_ok(tn_jsonl_reader_open(path, &r));
    for (int i = 0; i < N; i++) {
        assert_ok(tn_jsonl_reader_next(r, &o));
        assert_true(tn_jsonl_get_number(o, "x", &y));
        assert_true(isnan(x[i]) ? isnan(y) : y == x[i] && !signbit(y) == !signbit(x[i]));
        assert_false(tn_jsonl_get_number(o, "t", &y) || tn_jsonl_get_number(o, "none", &y));
        assert_int_equal(tn_jsonl_reader_line(r), i + 1);
    }
    assert_ok(tn_jsonl_reader_next(r, &o));
    assert_null(o);
    assert_ok(tn_jsonl_reader_next(r, &o)); /* stays at the end */
    assert_true(!o && !tn_jsonl_reader_cut(r));
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

static void long_lines(void **state)
{
    (void)state;
    static char text[TN_JSONL_LINE_BYTES + 2];
    tn_tempdir d;
    tn_jsonl *w;
    tn_jsonl_reader *r;
    json_t *o;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    assert_ok(tn_jsonl_open(path, false, &w));
    for (int more = 0; more < 2; more++) {
        const size_t n = TN_JSONL_LINE_BYTES - strlen("{\"t\":\"\"}\n") + (size_t)more;
        memset(text, 'x', n);
        text[n] = 0;
        tn_jsonl_begin(w);
        tn_jsonl_text(w, "t", text);
        if (more) assert_fails(tn_jsonl_end(w), TN_USAGE, "a line is longer than 65536 bytes");
        else assert_ok(tn_jsonl_end(w)); /* just fits */
    }
    tn_jsonl_begin(w); /* and the writer goes on */
    tn_jsonl_integer(w, "step", 2);
    assert_ok(tn_jsonl_end(w));
    assert_ok(tn_jsonl_close(w));
    assert_ok(tn_jsonl_reader_open(path, &r));
    assert_ok(tn_jsonl_reader_next(r, &o));
    assert_int_equal(json_string_length(json_object_get(o, "t")), TN_JSONL_LINE_BYTES - 9);
    assert_ok(tn_jsonl_reader_next(r, &o));
    assert_int_equal(json_integer_value(json_object_get(o, "step")), 2);
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

static void append_mends(void **state)
{
    (void)state;
    static const struct {
        const char *old, *want;
    } rows[] = {
        { "", "{\"step\":2}\n" },
        { "{\"step\":1}\n", "{\"step\":1}\n{\"step\":2}\n" },
        { "{\"step\":1}\n{\"st", "{\"step\":1}\n{\"step\":2}\n" }, /* cut */
        { "{\"st", "{\"step\":2}\n" },                             /* cut, and the only line */
        { "{\"step\":1}", "{\"step\":1}\n{\"step\":2}\n" },        /* whole, by hand, without a newline */
        { "{\"step\":1}\n12", "{\"step\":1}\n{\"step\":2}\n" },    /* JSON, but no object */
    };
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ok(tn_file_write_atomic(path, rows[i].old, strlen(rows[i].old)));
        write_line(path, true, 2);
        check_text(path, rows[i].want);
    }
    write_line(path, false, 3);
    check_text(path, "{\"step\":3}\n");
    static char binary[TN_JSONL_LINE_BYTES + 1];
    tn_jsonl *w = NULL;
    assert_ok(tn_file_write_atomic(path, binary, sizeof binary));
    assert_fails(tn_jsonl_open(path, true, &w), TN_BAD_FILE, "move it away");
    assert_fails(tn_jsonl_open(tn_tempdir_file(&d, "no/m"), true, &w), TN_DISK, "no/m");
    assert_null(w);
    tn_tempdir_remove(&d);
}

/* In a child: lines until the size limit; the one that does not fit must leave no trace, and a shorter one fits. */
static int limited_size(const char *path)
{
    tn_jsonl *w;
    struct stat st;
    const struct rlimit limit = { 100, 100 };
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (tn_jsonl_open(path, false, &w) != TN_OK) return 2;
    for (int i = 0; i < 3; i++) {
        tn_jsonl_begin(w);
        tn_jsonl_text(w, "text", "123456789012345678901234567890"); /* 42 bytes a line */
        const tn_status s = tn_jsonl_end(w);
        if (s != (i < 2 ? TN_OK : TN_DISK)) return 3;
    }
    if (!strstr(tn_error_text(), "ulimit -f") || !strstr(tn_error_text(), path)) return 4;
    if (stat(path, &st) != 0 || st.st_size != 84) return 5;
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "step", 1);
    if (tn_jsonl_end(w) != TN_OK || tn_jsonl_close(w) != TN_OK) return 6;
    return 0;
}

static tn_status numbered(tn_jsonl *w, int i)
{
    tn_jsonl_begin(w);
    tn_jsonl_integer(w, "i", i);
    tn_jsonl_text(w, "text", "12345678901234567890"); /* 38 bytes a line */
    return tn_jsonl_end(w);
}

static bool is_behind(const tn_jsonl *w, size_t waiting, size_t lost)
{
    const tn_jsonl_backlog b = tn_jsonl_backlog_of(w);
    return b.waiting == waiting && b.lost == lost;
}

/* In a child: lines wait while the limit stands, up to the room they were given, and are written in their order, whole ones as far as the
 * limit lets them. */
static int waiting_lines(const char *path)
{
    tn_jsonl *w;
    struct stat st;
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100, RLIM_INFINITY }) != 0)
        return 1;
    if (tn_jsonl_open(path, false, &w) != TN_OK || tn_jsonl_buffer(w, 130) != TN_OK) return 2;
    for (int i = 0; i < 7; i++) /* two fit the file, three the memory */
        if (numbered(w, i) != (i < 2 ? TN_OK : TN_DISK)) return 3;
    if (!is_behind(w, 3, 2) || stat(path, &st) != 0 || st.st_size != 76) return 4;
    if (tn_jsonl_flush(w) != TN_DISK || !is_behind(w, 3, 2)) return 5;
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 130, RLIM_INFINITY }) != 0) return 6;
    if (tn_jsonl_flush(w) != TN_DISK || !is_behind(w, 2, 2) || stat(path, &st) != 0 || st.st_size != 114) return 7;
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY }) != 0) return 8;
    if (numbered(w, 7) != TN_OK || !is_behind(w, 0, 2) || tn_jsonl_close(w) != TN_OK) return 9;
    return 0;
}

static void lines_wait(void **state)
{
    (void)state;
    tn_tempdir d;
    int status;
    char want[400] = "";
    static const int kept[] = { 0, 1, 2, 3, 4, 7 };
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(waiting_lines(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (size_t i = 0; i < 6; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "{\"i\":%d,\"text\":\"12345678901234567890\"}\n",
                 kept[i]);
    check_text(path, want);
    tn_tempdir_remove(&d);
}

static void full_disk(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_jsonl *w;
    int status;
    tn_tempdir_make(&d);
    assert_ok(tn_jsonl_open("/dev/full", true, &w));
    tn_jsonl_begin(w);
    assert_fails(tn_jsonl_end(w), TN_DISK, "free some space");
    assert_fails(tn_jsonl_sync(w), TN_DISK, "/dev/full");
    assert_ok(tn_jsonl_close(w));
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(limited_size(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    tn_tempdir_remove(&d);
}

/* Objects before the fault, then the message (NULL: a clean end), and whether the end counts as cut. */
static void reader_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int objects;
        const char *says;
        bool cut;
    } rows[] = {
        { "", 0, NULL, false },
        { "\n \t\r\n\n", 0, NULL, false },
        { "{\"a\":1}\r\n\n{\"a\":2}\n", 2, NULL, false },
        { "{\"a\":1}\n{\"a\":2}", 2, NULL, false },
        { "{\"a\":1}\n{\"a\":", 1, NULL, true },
        { "{\"a\":1}\n{\"a\":\n", 1, ":2: ", false },
        { "{\"a\":1}\n{\"a\":\n{\"a\":3}\n", 1, ":2: ", false },
        { "\n\n[1]\n", 0, ":3: not an object", false },
        { "{\"a\":1,\"a\":2}\n", 0, "duplicate", false },
        { "{\"a\":1} x\n", 0, ":1: ", false },
        { "{\"a\":\"\x1b[31m\"}\n", 0, ":1: ", false },
        { "{\"a\":\"\xff\"}\n", 0, ":1: ", false },
    };
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_jsonl_reader *r;
        json_t *o = NULL;
        tn_status s;
        int n = 0;
        assert_ok(tn_file_write_atomic(path, rows[i].text, strlen(rows[i].text)));
        assert_ok(tn_jsonl_reader_open(path, &r));
        while ((s = tn_jsonl_reader_next(r, &o)) == TN_OK && o) n++;
        assert_int_equal(n, rows[i].objects);
        assert_int_equal(s, rows[i].says ? TN_BAD_FILE : TN_OK);
        if (rows[i].says && (!strstr(tn_error_text(), rows[i].says) || !strstr(tn_error_text(), path)))
            fail_msg("row %zu: \"%s\"", i, tn_error_text());
        assert_null(strchr(rows[i].says ? tn_error_text() : "", '\x1b'));
        assert_int_equal(tn_jsonl_reader_cut(r), rows[i].cut);
        tn_jsonl_reader_close(r);
    }
    tn_jsonl_reader *r = NULL;
    assert_fails(tn_jsonl_reader_open(tn_tempdir_file(&d, "none"), &r), TN_BAD_FILE, "none");
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

/* Lines around the size of the reader's buffer, and one beyond the limit. */
static void reader_buffers(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_jsonl_reader *r;
    json_t *o;
    char *big = calloc(1, TN_JSONL_READ_BYTES * 3);
    assert_non_null(big);
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int n = 1000; n < 300000; n = n * 3 / 2) {
        memset(big, 'x', (size_t)n);
        fprintf(out, "{\"n\":%d,\"t\":\"%.*s\"}\n", n, n, big);
    }
    fclose(out);
    assert_ok(tn_jsonl_reader_open(path, &r));
    for (int n = 1000; n < 300000; n = n * 3 / 2) {
        assert_ok(tn_jsonl_reader_next(r, &o));
        assert_int_equal(json_integer_value(json_object_get(o, "n")), n);
        assert_int_equal(json_string_length(json_object_get(o, "t")), n);
    }
    tn_jsonl_reader_close(r);
    memset(big, 'x', TN_JSONL_READ_BYTES * 3);
    assert_int_equal(unlink(path), 0);
    out = fopen(path, "wb");
    assert_int_equal(fwrite(big, 1, TN_JSONL_READ_BYTES * 3, out), TN_JSONL_READ_BYTES * 3);
    fclose(out);
    assert_ok(tn_jsonl_reader_open(path, &r));
    assert_fails(tn_jsonl_reader_next(r, &o), TN_BAD_FILE, ":1: the line is longer");
    tn_jsonl_reader_close(r);
    free(big);
    tn_tempdir_remove(&d);
}

/* Every 10th line, and the first three that have the text. */
static void reader_thinned(void **state)
{
    static const int expected[] = { 4, 8, 10, 12, 20, 30, 40 };
    (void)state;
    tn_tempdir d;
    tn_jsonl_reader *r;
    json_t *o;
    tn_tempdir_make_quick(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int n = 1; n <= 41; n++) fprintf(out, "{\"n\":%d%s}\n", n, n % 4 == 0 ? ",\"keep\":1" : "");
    fclose(out);
    assert_ok(tn_jsonl_reader_open(path, &r));
    tn_jsonl_reader_thin(r, 10, "\"keep\"", 3);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_ok(tn_jsonl_reader_next(r, &o));
        assert_int_equal(json_integer_value(json_object_get(o, "n")), expected[i]);
    }
    assert_ok(tn_jsonl_reader_next(r, &o));
    assert_null(o);
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

/* Lines that are no objects are passed over and counted, a cut one at the end is still only cut. */
static void reader_forgiving(void **state)
{
    (void)state;
    static const char text[] = "{\"n\":1}\n{\"n\":NaN}\n\n[2]\n{\"n\":3}\n{\"n\"";
    tn_tempdir d;
    tn_jsonl_reader *r;
    json_t *o;
    int64_t first;
    tn_tempdir_make_quick(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    assert_ok(tn_file_write_atomic(path, text, strlen(text)));
    assert_ok(tn_jsonl_reader_open(path, &r));
    tn_jsonl_reader_forgive(r);
    for (int n = 1; n <= 3; n += 2) {
        assert_ok(tn_jsonl_reader_next(r, &o));
        assert_int_equal(json_integer_value(json_object_get(o, "n")), n);
    }
    assert_ok(tn_jsonl_reader_next(r, &o));
    assert_null(o);
    assert_int_equal(tn_jsonl_reader_damaged(r, &first), 2);
    assert_int_equal(first, 2);
    assert_true(tn_jsonl_reader_cut(r));
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

/* Lines that begin within the last bytes: the last two have 8 and 9 of them; and all of a short file. */
static void reader_tail(void **state)
{
    static const struct {
        size_t bytes;
        int first;
    } rows[] = { { 16, 10 }, { 17, 9 }, { 18, 9 }, { 1 << 20, 1 } };
    (void)state;
    tn_tempdir d;
    tn_jsonl_reader *r;
    json_t *o;
    tn_tempdir_make_quick(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int n = 1; n <= 10; n++) fprintf(out, "{\"n\":%d}\n", n);
    fclose(out);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ok(tn_jsonl_reader_open(path, &r));
        assert_ok(tn_jsonl_reader_tail(r, rows[i].bytes));
        for (int n = rows[i].first; n <= 10; n++) {
            assert_ok(tn_jsonl_reader_next(r, &o));
            assert_int_equal(json_integer_value(json_object_get(o, "n")), n);
        }
        assert_ok(tn_jsonl_reader_next(r, &o));
        assert_null(o);
        tn_jsonl_reader_close(r);
    }
    tn_tempdir_remove(&d);
}

static void no_memory(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_jsonl *w = NULL;
    tn_jsonl_reader *r = NULL;
    json_t *o;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "m.jsonl");
    tn_alloc_fail_at(1);
    assert_fails(tn_jsonl_open(path, true, &w), TN_MEMORY, "memory");
    assert_int_equal(tn_tempdir_entries(&d, false), 0);
    tn_alloc_fail_at(0);
    write_line(path, true, 1);
    tn_alloc_fail_at(1);
    assert_fails(tn_jsonl_reader_open(path, &r), TN_MEMORY, "memory");
    tn_alloc_fail_at(2);
    assert_ok(tn_jsonl_reader_open(path, &r));
    assert_fails(tn_jsonl_reader_next(r, &o), TN_MEMORY, "memory");
    tn_alloc_fail_at(0);
    tn_jsonl_reader_close(r);
    tn_tempdir_remove(&d);
}

void tn_tests_jsonl(tn_test_list *l)
{
    tn_test_add(l, exact_text, NULL, "jsonl: exact text");
    tn_test_add(l, numbers_survive, NULL, "jsonl: numbers read back equal");
    tn_test_add(l, long_lines, NULL, "jsonl: longest line");
    tn_test_add(l, append_mends, NULL, "jsonl: append mends a cut end");
    tn_test_add(l, full_disk, NULL, "jsonl: full disk");
    tn_test_add(l, lines_wait, NULL, "jsonl: lines wait for a full disk");
    tn_test_add(l, reader_rows, NULL, "jsonl: reader");
    tn_test_add(l, reader_buffers, NULL, "jsonl: reader's buffer");
    tn_test_add(l, reader_tail, NULL, "jsonl: reader, the last lines");
    tn_test_add(l, reader_thinned, NULL, "jsonl: reader, thinned");
    tn_test_add(l, reader_forgiving, NULL, "jsonl: damaged lines passed over");
    tn_test_add(l, no_memory, NULL, "jsonl: out of memory");
}
