/* A directory of its own for a test that writes files, and what such a test asks of it. Header only. */
#ifndef TN_TEMPDIR_H
#define TN_TEMPDIR_H

#include "base/fs.h"
#include "testlib.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tn_tempdir {
    char path[256], file[8][1024]; /* file: names made by tn_tempdir_file, used in turn */
    unsigned next;
} tn_tempdir;

static inline void tn_tempdir_make_in(tn_tempdir *d, const char *root)
{
    d->next = 0;
    snprintf(d->path, sizeof d->path, "%s/tenon-test-XXXXXX", root && *root && strlen(root) < 200 ? root : "/tmp");
    if (!mkdtemp(d->path)) fail_msg("cannot make %s", d->path);
    assert_int_equal(chmod(d->path, 0777), 0); /* for tests that run as another user */
}

static inline void tn_tempdir_make(tn_tempdir *d) { tn_tempdir_make_in(d, getenv("TMPDIR")); }

/* In memory where the machine has such a place: for tests that sync often. */
static inline void tn_tempdir_make_quick(tn_tempdir *d)
{
    tn_tempdir_make_in(d, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR"));
}

/* With all below it. */
static inline void tn_tempdir_remove_all(tn_tempdir *d)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    assert_int_equal(system(command), 0);
}

static inline const char *tn_tempdir_file(tn_tempdir *d, const char *name)
{
    char *p = d->file[d->next++ % 8];
    assert_ok(tn_path_join(d->path, name, p, sizeof d->file[0]));
    return p;
}

/* Entries in the directory, removed one by one where `remove_them` (flat directories only). */
static inline int tn_tempdir_entries(const tn_tempdir *d, bool remove_them)
{
    int n = 0;
    DIR *dir = opendir(d->path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[768];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", d->path, e->d_name);
        if (remove_them) assert_int_equal(remove(path), 0);
    }
    closedir(dir);
    return n;
}

static inline void tn_tempdir_remove(tn_tempdir *d)
{
    (void)tn_tempdir_entries(d, true);
    assert_int_equal(rmdir(d->path), 0);
}

#endif
