/* Replaces a folder atomically. flock on the temporary folder tells living processes from dead ones. Invariant: under
 * the final name is the old folder, or the new one with every file synced, or nothing. */
#define _GNU_SOURCE 1 /* renameat2 */
#include "data/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that holds `path`, and the name in it. */
static const char *parent_of(const char *path, char dir[TN_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    snprintf(dir, TN_PATH_BYTES, "%.*s", (int)n, path);
    if (!slash) snprintf(dir, TN_PATH_BYTES, ".");
    else if (n == 0) snprintf(dir, TN_PATH_BYTES, "/");
    return slash ? slash + 1 : path;
}

/* What does not go is left to whoever finds it later. */
static void remove_leftovers(const char *path, tn_tree_owns *owns)
{
    char dir[TN_PATH_BYTES], start[TN_PATH_BYTES + 8], left[2 * TN_PATH_BYTES];
    const char *name = parent_of(path, dir);
    snprintf(start, sizeof start, ".tmp-%s-", name);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t n = strlen(start);
        if (strncmp(e->d_name, start, n) != 0 || strspn(e->d_name + n, "0123456789") != strlen(e->d_name + n)) continue;
        snprintf(left, sizeof left, "%s/%s", dir, e->d_name);
        const int fd = open(left, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) (void)tn_tree_remove(left, "", owns);
        close(fd);
    }
    if (d) closedir(d);
}

static bool is_empty(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return d && n == 0;
}

static tn_status check_existing(const char *path, tn_tree_owns *owns, bool (*proves)(const char *path))
{
    struct stat st;
    if (stat(path, &st) != 0) return TN_OK;
    if (!S_ISDIR(st.st_mode)) return tn_error(TN_DISK, "cannot write to %.640s: it is a file; name a folder", path);
    if (is_empty(path)) return TN_OK;
    TN_RETURN_IF(tn_tree_check(path, "", owns));
    if (!proves || proves(path)) return TN_OK;
    return tn_error(TN_USAGE,
                    "%.640s contains files, but not a data set made by tenon: name a new folder with out=", path);
}

/* Makes and locks the temporary. One that a cleaner removed between the two calls is made again. */
static tn_status make_temp(tn_stage *s)
{
    char dir[TN_PATH_BYTES];
    const char *name = parent_of(s->final_path, dir);
    struct stat a, b;
    for (int i = 0; i < 100; i++) {
        const int n = snprintf(s->temp, sizeof s->temp, "%.*s.tmp-%s-%ld", (int)(name - s->final_path), s->final_path,
                               name, (long)getpid() + 100000000L * i);
        if (n < 0 || (size_t)n >= sizeof s->temp) return tn_fs_error(TN_DISK, ENAMETOOLONG, "write", s->final_path);
        if (mkdir(s->temp, 0777) != 0) {
            if (errno == EEXIST) continue;
            return tn_fs_error(TN_DISK, errno, "create directory", s->temp);
        }
        s->lock = open(s->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->lock >= 0 && flock(s->lock, LOCK_EX | LOCK_NB) == 0 && fstat(s->lock, &a) == 0 &&
            stat(s->temp, &b) == 0 && a.st_ino == b.st_ino)
            return TN_OK;
        if (s->lock >= 0) close(s->lock);
        s->lock = -1;
    }
    return tn_error(TN_DISK, "cannot create a temporary folder beside %.640s; remove old ones (.tmp-*)", s->final_path);
}

/* A folder that exists, without links and dots; others as they are; no slash at the end. */
static tn_status full_path(const char *path, char out[TN_PATH_BYTES])
{
    TN_RETURN_IF(tn_path_join("", path, out, TN_PATH_BYTES));
    char *real = realpath(path, NULL);
    if (real) snprintf(out, TN_PATH_BYTES, "%s", real);
    free(real);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--) out[n - 1] = 0;
    return TN_OK;
}

void tn_stage_clean(const char *path, tn_tree_owns *owns)
{
    char full[TN_PATH_BYTES];
    if (full_path(path, full) == TN_OK) remove_leftovers(full, owns);
}

tn_status tn_stage_open(const char *path, tn_tree_owns *owns, bool (*proves)(const char *path), tn_stage *s)
{
    char dir[TN_PATH_BYTES];
    s->lock = -1;
    s->owns = owns;
    TN_RETURN_IF(full_path(path, s->final_path));
    const char *name = parent_of(s->final_path, dir);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return tn_error(TN_USAGE, "out=%.640s names no folder", path);
    TN_RETURN_IF(check_existing(s->final_path, owns, proves));
    TN_RETURN_IF(tn_dir_make(dir));
    remove_leftovers(s->final_path, owns);
    return make_temp(s);
}

void tn_stage_abort(tn_stage *s)
{
    if (s->lock < 0) return;
    (void)tn_tree_remove(s->temp, "", s->owns);
    close(s->lock);
    s->lock = -1;
}

tn_status tn_stage_commit(tn_stage *s)
{
    char dir[TN_PATH_BYTES];
    (void)parent_of(s->final_path, dir);
    tn_status st = check_existing(s->final_path, s->owns, NULL); /* once more: the work may have taken hours */
    if (st == TN_OK) st = tn_dir_sync(s->temp);
    /* With an old folder there the two change places, and what is then under the temporary name is the old one. */
    if (st == TN_OK && rename(s->temp, s->final_path) != 0 &&
        renameat2(AT_FDCWD, s->temp, AT_FDCWD, s->final_path, RENAME_EXCHANGE) != 0)
        st = tn_fs_error(TN_DISK, errno, "replace", s->final_path);
    if (st == TN_OK) st = tn_dir_sync(dir);
    tn_stage_abort(s); /* nothing is left under that name, or the old folder, or what failed */
    return st;
}
