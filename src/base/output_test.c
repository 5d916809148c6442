/* Asking before writing: every kind of name, as the superuser and as a user whom permissions bind; nothing is left behind. */
#include "base/output.h"
#include "tempdir.h"

#include <sys/wait.h>

static void files(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    const char *fresh = tn_tempdir_file(&d, "new.svg"), *there = tn_tempdir_file(&d, "there"),
               *pipe = tn_tempdir_file(&d, "pipe");
    assert_ok(tn_file_write_atomic(there, "kept", 4));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_ok(tn_output_file_check(fresh));
    assert_ok(tn_output_file_check(there));
    assert_ok(tn_output_file_check(pipe)); /* does not wait for a reader */
    assert_ok(tn_output_file_check("/dev/null"));
    assert_ok(tn_output_file_check("bare-name.svg"));
    assert_int_not_equal(access("bare-name.svg", F_OK), 0);
    assert_int_not_equal(access(fresh, F_OK), 0);
    struct stat st;
    assert_int_equal(stat(there, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_fails(tn_output_file_check(""), TN_USAGE, "names no file");
    assert_fails(tn_output_file_check(d.path), TN_DISK, "directory");
    assert_fails(tn_output_file_check(tn_tempdir_file(&d, "new/")), TN_DISK, "directory");
    assert_fails(tn_output_file_check(tn_tempdir_file(&d, "no/x.svg")), TN_DISK, "its directory must exist");
    assert_fails(tn_output_file_check(tn_tempdir_file(&d, "there/x.svg")), TN_DISK, "a part of the path is a file");
    assert_true(tn_output_in_place(pipe) && tn_output_in_place("/dev/null"));
    assert_false(tn_output_in_place(there) || tn_output_in_place(fresh));
    tn_tempdir_remove_all(&d);
}

static void directories(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, "file"), "x", 1));
    assert_ok(tn_output_dir_check(d.path));
    assert_ok(tn_output_dir_check(tn_tempdir_file(&d, "a//b/c/")));
    assert_ok(tn_output_dir_check("a/b"));
    assert_ok(tn_output_dir_check("/"));
    assert_int_not_equal(access(tn_tempdir_file(&d, "a"), F_OK), 0);
    assert_fails(tn_output_dir_check(""), TN_USAGE, "names no directory");
    assert_fails(tn_output_dir_check(tn_tempdir_file(&d, "file")), TN_DISK, "it is a file; name a folder");
    assert_fails(tn_output_dir_check(tn_tempdir_file(&d, "file/a/b")), TN_DISK, "a part of the path is a file");
    tn_tempdir_remove_all(&d);
}

/* Permissions do not bind the superuser: a child asks as somebody else. */
static int ask_as_nobody(const tn_tempdir *d)
{
    char shut[512], file[512], below[512];
    snprintf(shut, sizeof shut, "%s/shut", d->path);
    snprintf(file, sizeof file, "%s/shut/own", d->path);
    snprintf(below, sizeof below, "%s/shut/a/b", d->path);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 9;
    if (tn_output_dir_check(shut) != TN_DISK || tn_output_dir_check(below) != TN_DISK) return 1;
    if (tn_output_file_check(file) != TN_OK || !tn_output_in_place(file))
        return 2; /* it can be written, but not replaced */
    snprintf(file, sizeof file, "%s/shut/new", d->path);
    if (tn_output_file_check(file) != TN_DISK || !strstr(tn_error_text(), "permissions")) return 3;
    snprintf(file, sizeof file, "%s/read-only", d->path);
    return tn_output_file_check(file) == TN_DISK ? 0 : 4;
}

static void permissions(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_tempdir_make(&d);
    int status = 0;
    assert_int_equal(mkdir(tn_tempdir_file(&d, "shut"), 0755), 0);
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, "shut/own"), "x", 1));
    assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, "read-only"), "x", 1));
    assert_int_equal(chmod(tn_tempdir_file(&d, "shut/own"), 0666), 0);
    assert_int_equal(chmod(tn_tempdir_file(&d, "read-only"), 0444), 0);
    assert_int_equal(chmod(tn_tempdir_file(&d, "shut"), 0555), 0);
    const pid_t child = fork();
    if (child == 0) _exit(ask_as_nobody(&d));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(chmod(tn_tempdir_file(&d, "shut"), 0755), 0);
    tn_tempdir_remove_all(&d);
}

void tn_tests_output(tn_test_list *l)
{
    tn_test_add(l, files, NULL, "output: files");
    tn_test_add(l, directories, NULL, "output: directories");
    tn_test_add(l, permissions, NULL, "output: permissions");
}
