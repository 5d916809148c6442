/* Files: reads, maps, paths, and atomic writes under every fault that can be made without a special disk. A descriptor
 * is swapped under the writer (dup2) to make write or fsync fail; limits and permissions are set in a child. */
#include "base/alloc.h"
#include "base/fs.h"
#include "tempdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

static void put_file(const char *path, const void *data, size_t n) { assert_ok(tn_file_write_atomic(path, data, n)); }

static void check_file(const char *path, const char *want)
{
    char *text = NULL;
    size_t n = 0;
    assert_ok(tn_file_read_all(path, 1 << 20, &text, &n));
    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
    tn_free(text);
}

static void read_and_map(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    char *text = (char *)&d; /* must stay untouched on failure */
    size_t n = 77;
    tn_map m = { 0 };
    tn_file_unmap(&m);
    assert_fails(tn_file_read_all(path, 10, &text, &n), TN_BAD_FILE, path);
    assert_fails(tn_file_map(path, &m), TN_BAD_FILE, "check the path");
    assert_fails(tn_file_read_all(d.path, 10, &text, &n), TN_BAD_FILE, "directory");
    assert_fails(tn_file_map(d.path, &m), TN_BAD_FILE, "not a regular file");
    put_file(path, "hello", 5);
    assert_fails(tn_file_read_all(path, 4, &text, &n), TN_BAD_FILE, "4 bytes");
    assert_fails(tn_file_read_all("/dev/zero", 100000, &text, &n), TN_BAD_FILE, "100000");
    assert_true(text == (char *)&d && n == 77);
    check_file(path, "hello");
    assert_ok(tn_file_map(path, &m));
    assert_int_equal(truncate(path, 0), 0); /* by somebody else, while it is in use */
    assert_true(m.bytes == 5 && memcmp(m.data, "hello", 5) == 0);
    tn_file_unmap(&m);
    put_file(path, "", 0);
    check_file(path, "");
    assert_ok(tn_file_map(path, &m));
    assert_true(m.data && m.bytes == 0);
    tn_file_unmap(&m);
    const char *pipe_path = tn_tempdir_file(&d, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_fails(tn_file_map(pipe_path, &m), TN_BAD_FILE, "not a regular file"); /* and must not block */
    tn_tempdir_remove(&d);
}

static void read_parts(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a"), *pipe_path = tn_tempdir_file(&d, "pipe");
    char got[8] = "";
    tn_file f = { 0 };
    tn_file_close(&f);
    assert_fails(tn_file_open(path, &f), TN_BAD_FILE, "check the path");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_fails(tn_file_open(pipe_path, &f), TN_BAD_FILE, "not a regular file");
    assert_false(f.is_open);
    put_file(path, "hello", 5);
    assert_ok(tn_file_open(path, &f));
    assert_ok(tn_file_read_at(&f, path, 1, got, 3));
    assert_string_equal(got, "ell");
    assert_ok(tn_file_read_at(&f, path, 5, got, 0));
    assert_fails(tn_file_read_at(&f, path, 3, got, 3), TN_INTERNAL, path);
    assert_int_equal(truncate(path, 3), 0); /* what a mapping dies of */
    assert_ok(tn_file_read_at(&f, path, 0, got, 3));
    assert_fails(tn_file_read_at(&f, path, 1, got, 4), TN_BAD_FILE, "cut short while it was in use: it had 5 bytes and now ends before byte 4");
    tn_file_close(&f);
    tn_tempdir_remove(&d);
}

static void read_grows(void **state)
{
    (void)state;
    int fd[2];
    char path[64], big[50000], *text;
    size_t n;
    assert_int_equal(pipe(fd), 0);
    memset(big, 'x', sizeof big);
    assert_int_equal(write(fd[1], big, sizeof big), sizeof big);
    close(fd[1]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd[0]); /* no size to go by */
    assert_ok(tn_file_read_all(path, 50000, &text, &n));
    assert_true(n == sizeof big && memcmp(text, big, n) == 0 && text[n] == 0);
    tn_free(text);
    close(fd[0]);
}

static void paths(void **state)
{
    (void)state;
    char p[8], one[1] = "?";
    assert_ok(tn_path_join("a", "b", p, sizeof p));
    assert_string_equal(p, "a/b");
    assert_ok(tn_path_join("a/", "b", p, sizeof p));
    assert_string_equal(p, "a/b");
    assert_ok(tn_path_join("", "b", p, sizeof p));
    assert_string_equal(p, "b");
    assert_ok(tn_path_join("abc", "/d", p, sizeof p));
    assert_string_equal(p, "/d");
    assert_ok(tn_path_join("abc", "def", p, sizeof p)); /* just fits */
    assert_string_equal(p, "abc/def");
    assert_fails(tn_path_join("abc", "defg", p, sizeof p), TN_USAGE, "shorter");
    assert_fails(tn_path_join("", "a", one, sizeof one), TN_USAGE, "shorter");
    assert_string_equal(p, "abc/def");
}

static void directories(void **state)
{
    (void)state;
    tn_tempdir d;
    struct stat st;
    char deep[512];
    tn_tempdir_make(&d);
    snprintf(deep, sizeof deep, "%s/x//y/z/", d.path);
    assert_ok(tn_dir_make(deep));
    assert_ok(tn_dir_make(deep));
    assert_true(stat(deep, &st) == 0 && S_ISDIR(st.st_mode));
    assert_fails(tn_dir_make(""), TN_USAGE, "empty");
    const char *file = tn_tempdir_file(&d, "file");
    put_file(file, "a", 1);
    assert_fails(tn_dir_make(file), TN_DISK, "file");
    assert_fails(tn_dir_make(tn_tempdir_file(&d, "file/below")), TN_DISK, file);
    assert_fails(tn_dir_make("/proc/nothing/here"), TN_DISK, "/proc/nothing");
    for (const char *part[] = { "x/y/z", "x/y", "x" }, **p = part; p < part + 3; p++)
        assert_int_equal(rmdir(tn_tempdir_file(&d, *p)), 0);
    tn_tempdir_remove(&d);
}

static void atomic_replaces(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_atomic_file f = { 0 }, g;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    const int flags = fcntl(0, F_GETFD);
    tn_atomic_abort(&f); /* a zeroed one is closed: descriptor 0 stays as it is */
    assert_int_equal(fcntl(0, F_GETFD), flags);
    assert_fails(tn_atomic_write(&f, "x", 1), TN_INTERNAL, "before it was opened");
    assert_ok(tn_atomic_open(path, &f));
    assert_ok(tn_atomic_write(&f, "one ", 4));
    assert_int_equal(access(path, F_OK), -1); /* not there before it is whole */
    assert_ok(tn_atomic_open(path, &g));      /* a second writer steps over the first one's temporary */
    assert_string_not_equal(f.temp, g.temp);
    assert_ok(tn_atomic_write(&g, "other", 5));
    assert_ok(tn_atomic_write(&f, "two", 3));
    assert_ok(tn_atomic_finish(&f));
    check_file(path, "one two");
    tn_atomic_abort(&f); /* no effect after the finish */
    assert_fails(tn_atomic_finish(&f), TN_INTERNAL, "after it was closed");
    tn_atomic_abort(&g);
    check_file(path, "one two");
    put_file(path, "three", 5);
    check_file(path, "three");
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    assert_fails(tn_file_write_atomic(d.path, "x", 1), TN_DISK, "not a regular file");
    assert_fails(tn_file_write_atomic("/dev/full", "x", 1), TN_DISK, "not a regular file");
    assert_fails(tn_file_write_atomic(tn_tempdir_file(&d, ""), "x", 1), TN_USAGE, "names no file");
    assert_fails(tn_file_write_atomic(tn_tempdir_file(&d, "no/a"), "x", 1), TN_DISK, "directory must exist");
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_fails(tn_file_write_atomic(tn_tempdir_file(&d, name), "x", 1), TN_DISK, "shorter name");
    tn_tempdir_remove(&d);
}

enum fault { FAULT_WRITE, FAULT_SYNC, FAULT_RENAME };

/* Each fault must leave the old file as it was and no temporary. */
static void atomic_faults(void **state)
{
    const enum fault fault = *(const enum fault *)*state;
    tn_tempdir d;
    tn_atomic_file f;
    int pipes[2];
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    put_file(path, "old", 3);
    assert_ok(tn_atomic_open(path, &f));
    assert_ok(tn_atomic_write(&f, "new", 3));
    if (fault == FAULT_WRITE) {
        const int full = open("/dev/full", O_WRONLY);
        assert_true(full >= 0 && dup2(full, f.fd) == f.fd);
        close(full);
        assert_fails(tn_atomic_write(&f, "more", 4), TN_DISK, "free some space");
        assert_non_null(strstr(tn_error_text(), path));
        assert_fails(tn_atomic_write(&f, "more", 4), TN_DISK, "earlier write");
        assert_fails(tn_atomic_finish(&f), TN_DISK, "earlier write");
    } else if (fault == FAULT_SYNC) { /* a pipe cannot be synced */
        assert_int_equal(pipe(pipes), 0);
        assert_true(dup2(pipes[1], f.fd) == f.fd);
        assert_fails(tn_atomic_finish(&f), TN_DISK, "cannot sync");
        assert_fails(tn_atomic_finish(&f), TN_DISK, "start the file again");
        close(pipes[0]);
        close(pipes[1]);
    } else {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_fails(tn_atomic_finish(&f), TN_DISK, "that is a directory");
        assert_int_equal(rmdir(path), 0);
        put_file(path, "old", 3);
    }
    tn_atomic_abort(&f);
    check_file(path, "old");
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    tn_tempdir_remove(&d);
}

/* Runs in a child, which must not return to the test driver. 0, or the line that was wrong. */
#define CHILD_CHECK(x)                                                                                                 \
    do {                                                                                                               \
        if (!(x)) return __LINE__ & 255 ? __LINE__ & 255 : 1;                                                          \
    } while (0)

static int limited_size(const char *path)
{
    tn_atomic_file f;
    static char block[10000];
    const struct rlimit limit = { 25000, 25000 };
    CHILD_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHILD_CHECK(tn_atomic_open(path, &f) == TN_OK);
    CHILD_CHECK(tn_atomic_write(&f, block, sizeof block) == TN_OK);
    CHILD_CHECK(tn_atomic_write(&f, block, sizeof block) == TN_OK);
    CHILD_CHECK(tn_atomic_write(&f, block, sizeof block) == TN_DISK); /* short at 5000, then EFBIG */
    CHILD_CHECK(f.bytes == 25000 && strstr(tn_error_text(), "ulimit -f"));
    CHILD_CHECK(tn_atomic_finish(&f) == TN_DISK);
    return 0;
}

static int read_only(const char *path)
{
    if (geteuid() == 0) CHILD_CHECK(setgid(65534) == 0 && setuid(65534) == 0); /* root may write anywhere */
    CHILD_CHECK(tn_file_write_atomic(path, "x", 1) == TN_DISK);
    CHILD_CHECK(strstr(tn_error_text(), "permissions") && strstr(tn_error_text(), path));
    return 0;
}

static void in_child(int (*body)(const char *path), const char *path)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child failed near line %d", WEXITSTATUS(status));
}

static void atomic_limits(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    put_file(path, "old", 3);
    in_child(limited_size, path);
    check_file(path, "old");
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    assert_int_equal(chmod(d.path, 0555), 0);
    in_child(read_only, path);
    check_file(path, "old");
    assert_int_equal(tn_tempdir_entries(&d, false), 1);
    assert_int_equal(chmod(d.path, 0755), 0);
    tn_tempdir_remove(&d);
}

static int drain_fd;
static volatile sig_atomic_t interrupts;
static volatile size_t drained;

static void drain(int sig)
{
    static char sink[30000];
    (void)sig;
    const int saved = errno;
    /* Two ticks in three find the pipe still full: the first cuts a write short, the next breaks one with EINTR. */
    const ssize_t k = ++interrupts % 3 == 0 ? read(drain_fd, sink, sizeof sink) : 0;
    if (k > 0) drained += (size_t)k;
    errno = saved;
}

/* A full pipe, emptied a little by each tick of a timer: write(2) returns EINTR and short counts in turn. */
static void interrupted_writes(void **state)
{
    (void)state;
    static char data[400000];
    int fd[2];
    size_t done;
    struct sigaction old, act = { .sa_handler = drain };
    const struct itimerval tick = { { 0, 1000 }, { 0, 1000 } }, stop = { { 0, 0 }, { 0, 0 } };
    assert_int_equal(pipe(fd), 0);
    drain_fd = fd[0];
    assert_int_equal(fcntl(fd[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &tick, NULL), 0);
    const int err = tn_fd_write(fd[1], data, sizeof data, &done);
    assert_int_equal(setitimer(ITIMER_REAL, &stop, NULL), 0);
    assert_int_equal(err, 0);
    assert_int_equal(done, sizeof data);
    assert_true(interrupts > 1 && drained + 65536 >= sizeof data);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
    close(fd[0]);
    close(fd[1]);
}

static void no_memory(void **state)
{
    (void)state;
    tn_tempdir d;
    char *text = NULL;
    tn_tempdir_make(&d);
    const char *path = tn_tempdir_file(&d, "a");
    tn_alloc_fail_at(1); /* the atomic writer needs none */
    put_file(path, "text", 4);
    tn_alloc_fail_at(1);
    assert_fails(tn_file_read_all(path, 10, &text, NULL), TN_MEMORY, "memory");
    tn_alloc_fail_at(0);
    assert_null(text);
    tn_tempdir_remove(&d);
}

void tn_tests_fs(tn_test_list *l)
{
    static const enum fault faults[] = { FAULT_WRITE, FAULT_SYNC, FAULT_RENAME };
    static const char *const fault_names[] = { "full disk", "failed sync", "failed rename" };
    tn_test_add(l, read_and_map, NULL, "fs: read and map");
    tn_test_add(l, read_parts, NULL, "fs: parts of a file that is cut short");
    tn_test_add(l, read_grows, NULL, "fs: read of unknown length");
    tn_test_add(l, paths, NULL, "fs: path join");
    tn_test_add(l, directories, NULL, "fs: make directories");
    tn_test_add(l, atomic_replaces, NULL, "fs: atomic replace");
    for (int i = 0; i < 3; i++) tn_test_add(l, atomic_faults, &faults[i], "fs: atomic write, %s", fault_names[i]);
    tn_test_add(l, atomic_limits, NULL, "fs: atomic write, size limit and read-only directory");
    tn_test_add(l, interrupted_writes, NULL, "fs: interrupted and short writes");
    tn_test_add(l, no_memory, NULL, "fs: out of memory");
}
