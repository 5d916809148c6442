/* Files: reads, maps, paths, and atomic writes under every fault that can be made without a special disk. A descriptor
 * is swapped under the writer (dup2) to make write or fsync fail; limits and permissions are set in a child. */
#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "tempdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
    assert_fails(tn_file_read_at(&f, path, 1, got, 4), TN_BAD_FILE,
                 "cut short while it was in use: it had 5 bytes and now ends before byte 4");
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

/* --- trees ----------------------------------------------------------------------------------------------------------- */

static bool owns_some(const char *name, mode_t mode)
{
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    return strncmp(name, "as/", 3) == 0 && base[0] == 'k' && (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode));
}

/* A tree of ours beside another person's files, with links from one to the other. */
static void make_tree(tn_tempdir *d)
{
    for (const char *part[] = { "t", "t/k1", "t/k1/k2", "mine", "mine/below" }, **p = part; p < part + 5; p++)
        assert_int_equal(mkdir(tn_tempdir_file(d, *p), 0777), 0);
    for (const char *part[] = { "t/k3", "t/k1/k4", "t/k1/k2/k5", "mine/a", "mine/below/b" }, **p = part; p < part + 5;
         p++)
        put_file(tn_tempdir_file(d, *p), "text", 4);
    assert_int_equal(symlink("../mine", tn_tempdir_file(d, "t/k6")), 0);
    assert_int_equal(symlink(tn_tempdir_file(d, "mine"), tn_tempdir_file(d, "t/k1/k7")), 0);
    assert_int_equal(symlink("../../../mine/a", tn_tempdir_file(d, "t/k1/k2/k8")), 0);
}

static void trees(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    char root[300]; /* names of tn_tempdir_file do not last */
    snprintf(root, sizeof root, "%s/t", d.path);
    assert_ok(tn_tree_remove(root, "as/", owns_some)); /* nothing there */
    make_tree(&d);
    put_file(tn_tempdir_file(&d, "t/k1/k2/other"), "x", 1);
    assert_fails(tn_tree_remove(root, "as/", owns_some), TN_USAGE, "t/k1/k2/other was not written by tenon");
    assert_fails(tn_tree_check(root, "as/", owns_some), TN_USAGE, "k1/k2/other");
    check_file(tn_tempdir_file(&d, "t/k1/k2/k5"), "text"); /* all or nothing */
    check_file(tn_tempdir_file(&d, "t/k3"), "text");
    assert_int_equal(unlink(tn_tempdir_file(&d, "t/k1/k2/other")), 0);
    assert_int_equal(mkfifo(tn_tempdir_file(&d, "t/k9"), 0600), 0); /* the right name, but no file */
    assert_fails(tn_tree_remove(tn_tempdir_file(&d, "t"), "as/", owns_some), TN_USAGE, "t/k9");
    assert_int_equal(unlink(tn_tempdir_file(&d, "t/k9")), 0);
    assert_fails(tn_tree_remove(tn_tempdir_file(&d, "t"), "", owns_some), TN_USAGE, "not written by tenon");
    assert_int_equal(symlink("t", tn_tempdir_file(&d, "to")), 0);
    assert_fails(tn_tree_remove(tn_tempdir_file(&d, "to"), "as/", owns_some), TN_USAGE, "is a link or a file");
    assert_fails(tn_tree_remove(tn_tempdir_file(&d, "mine/a"), "as/", owns_some), TN_USAGE, "is a link or a file");
    assert_fails(tn_tree_remove(tn_tempdir_file(&d, "t/.."), "as/", owns_some), TN_INTERNAL, "name of a directory");
    assert_ok(tn_tree_check(tn_tempdir_file(&d, "t"), "as/", owns_some));
    check_file(tn_tempdir_file(&d, "t/k1/k2/k5"), "text");
    assert_ok(tn_tree_remove(tn_tempdir_file(&d, "t"), "as/", owns_some));
    assert_int_equal(access(tn_tempdir_file(&d, "t"), F_OK), -1);
    check_file(tn_tempdir_file(&d, "mine/a"), "text");
    check_file(tn_tempdir_file(&d, "mine/below/b"), "text");
    tn_tempdir_remove_all(&d);
}

static struct {
    int calls, at; /* at: the call that swaps */
    char dir[300], aside[300], mine[300];
} swap;

/* Asked about the directory, puts a link in its place: what another process would have to do just then. */
static bool owns_and_swaps(const char *name, mode_t mode)
{
    if (strcmp(name, "as/k1") == 0 && ++swap.calls == swap.at) {
        assert_int_equal(rename(swap.dir, swap.aside), 0);
        assert_int_equal(symlink(swap.mine, swap.dir), 0);
    }
    return owns_some(name, mode);
}

static void trees_under_attack(void **state)
{
    (void)state;
    for (int at = 1; at <= 2; at++) { /* while it is looked through, and while it is removed */
        tn_tempdir d;
        tn_tempdir_make(&d);
        make_tree(&d);
        put_file(tn_tempdir_file(&d, "mine/k4"), "mine", 4); /* as if it were ours */
        swap.calls = 0;
        swap.at = at;
        snprintf(swap.dir, sizeof swap.dir, "%s/t/k1", d.path);
        snprintf(swap.aside, sizeof swap.aside, "%s/aside", d.path);
        snprintf(swap.mine, sizeof swap.mine, "%s/mine", d.path);
        assert_int_equal(unlink(tn_tempdir_file(&d, "mine/a")), 0); /* all in it has names of ours, but for `below` */
        assert_fails(tn_tree_remove(tn_tempdir_file(&d, "t"), "as/", owns_and_swaps), TN_USAGE, "is a link or a file");
        assert_int_equal(swap.calls, at);
        check_file(tn_tempdir_file(&d, "mine/k4"), "mine");
        check_file(tn_tempdir_file(&d, "aside/k4"), "text");
        tn_tempdir_remove_all(&d);
    }
}

static bool is_name(const char *name) { return strcmp(name, "name") == 0 || strcmp(name, "step-5") == 0; }

static void temporaries(void **state)
{
    (void)state;
    tn_atomic_file f, g;
    tn_tempdir d;
    static const char *const yes[] = { ".tmp-name-1", ".tmp-name-123-2", ".tmp-step-5-7", ".tmp-step-5-7-1000" };
    static const char *const no[] = { "name",        ".tmp-name",    ".tmp-name-",
                                      ".tmp-name-x", ".tmp-name-1x", ".tmp-other-1",
                                      ".tmp-step-5", ".tmp-1-2",     ".tmp-name-1-2-3",
                                      "tmp-name-1",  ".tmp-",        "" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) assert_true(tn_is_temp_of(yes[i], is_name));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_false(tn_is_temp_of(no[i], is_name));
    tn_tempdir_make(&d);
    assert_ok(tn_atomic_open(tn_tempdir_file(&d, "name"), &f)); /* the names that are really made */
    assert_ok(tn_atomic_open(tn_tempdir_file(&d, "name"), &g));
    assert_true(tn_is_temp_of(strrchr(f.temp, '/') + 1, is_name) && tn_is_temp_of(strrchr(g.temp, '/') + 1, is_name));
    tn_atomic_abort(&f);
    tn_atomic_abort(&g);
    tn_tempdir_remove(&d);
}

/* --- what is no file ------------------------------------------------------------------------------------------------- */

/* A pipe that nobody writes to, a link, a directory: an answer at once. An alarm ends the test where one waits. */
static void no_files(void **state)
{
    (void)state;
    tn_tempdir d;
    char *text = NULL;
    char hash[TN_HASH_BYTES];
    int fd = -7, pipes[2];
    tn_tempdir_make(&d);
    const char *fifo = tn_tempdir_file(&d, "fifo"), *file = tn_tempdir_file(&d, "file"),
               *link = tn_tempdir_file(&d, "link");
    const char *to_fifo = tn_tempdir_file(&d, "to");
    put_file(file, "text", 4);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(symlink("fifo", to_fifo), 0);
    alarm(20);
    for (int i = 0; i < 2; i++) {
        const char *path = i ? to_fifo : fifo;
        assert_fails(tn_fd_open(path, &fd), TN_BAD_FILE, "not a regular file");
        assert_fails(tn_file_read_all(path, 10, &text, NULL), TN_BAD_FILE, "not a regular file");
        assert_fails(tn_hash_file(path, hash), TN_BAD_FILE, "not a regular file");
    }
    assert_fails(tn_fd_open(d.path, &fd), TN_BAD_FILE, "directory");
    assert_ok(tn_fd_open(link, &fd)); /* reading through a link is fine */
    close(fd);
    fd = -7;
    assert_fails(tn_file_open_own(link, O_WRONLY | O_TRUNC, &fd), TN_DISK, "it is a link");
    assert_fails(tn_file_open_own(fifo, O_RDWR | O_CREAT, &fd), TN_DISK, "not a regular file");
    assert_fails(tn_file_open_own(d.path, O_RDONLY, &fd), TN_DISK, "not a regular file");
    assert_true(fd == -7);
    check_file(file, "text");
    assert_ok(tn_file_open_own(file, O_WRONLY | O_TRUNC, &fd));
    close(fd);
    check_file(file, "");
    assert_int_equal(pipe(pipes), 0); /* what a shell makes of <(...) is read, and waited for */
    char name[40];
    snprintf(name, sizeof name, "/dev/fd/%d", pipes[0]);
    assert_ok(tn_fd_open(name, &fd));
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
    alarm(0);
    tn_tempdir_remove(&d);
}

/* --- what is synced -------------------------------------------------------------------------------------------------- */

static struct {
    bool on;
    size_t n;
    ino_t ino[64];
} syncs;

/* In place of libc's: notes what is synced while somebody asks. */
int fsync(int fd)
{
    struct stat st;
    if (syncs.on && syncs.n < 64 && fstat(fd, &st) == 0) syncs.ino[syncs.n++] = st.st_ino;
    return (int)syscall(SYS_fsync, fd);
}

static bool was_synced(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (size_t i = 0; i < syncs.n; i++)
        if (syncs.ino[i] == st.st_ino) return true;
    return false;
}

/* A power cut must not take a directory away from under files that were synced: each is synced into its parent. */
static void parents_are_synced(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    syncs.n = 0;
    syncs.on = true;
    assert_ok(tn_dir_make(tn_tempdir_file(&d, "x/y/z")));
    syncs.on = false;
    assert_true(was_synced(d.path) && was_synced(tn_tempdir_file(&d, "x")) && was_synced(tn_tempdir_file(&d, "x/y")));
    assert_false(was_synced(tn_tempdir_file(&d, "x/y/z"))); /* nothing is in it yet */
    syncs.n = 0;
    syncs.on = true;
    assert_ok(tn_dir_make(tn_tempdir_file(&d, "x/y/z")));
    syncs.on = false;
    assert_int_equal(syncs.n, 0); /* all there */
    tn_tempdir_remove_all(&d);
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
    tn_test_add(l, parents_are_synced, NULL, "fs: new directories are synced");
    tn_test_add(l, trees, NULL, "fs: trees");
    tn_test_add(l, trees_under_attack, NULL, "fs: trees, while links are put there");
    tn_test_add(l, temporaries, NULL, "fs: names of temporaries");
    tn_test_add(l, no_files, NULL, "fs: pipes, links and directories in place of files");
    tn_test_add(l, atomic_replaces, NULL, "fs: atomic replace");
    for (int i = 0; i < 3; i++) tn_test_add(l, atomic_faults, &faults[i], "fs: atomic write, %s", fault_names[i]);
    tn_test_add(l, atomic_limits, NULL, "fs: atomic write, size limit and read-only directory");
    tn_test_add(l, interrupted_writes, NULL, "fs: interrupted and short writes");
    tn_test_add(l, no_memory, NULL, "fs: out of memory");
}
