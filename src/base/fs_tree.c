/* Removing directories. Every name is looked at and removed through the descriptor of the directory that holds it, so that
 * nobody who puts a link there meanwhile can lead the walk elsewhere. All is looked at before anything is removed. */
#include "base/fs.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 24,
    OTHER = -1
}; /* packages nest ten deep; OTHER: in place of an errno, something that is not ours */

typedef struct walk {
    tn_tree_owns *owns;
    bool removes;
    dev_t disk;
    char name[TN_PATH_BYTES]; /* of the entry at hand, below the root; after OTHER the one that is not ours */
    size_t root_bytes;        /* of the part of it that stands for the root */
} walk;

static int walk_directory(walk *w, int fd, size_t n, int depth);

/* The entry `base` of the directory `fd`, whose own name is the first n bytes of w->name. 0, an errno or OTHER. */
static int walk_entry(walk *w, int fd, const char *base, size_t n, int depth)
{
    struct stat st;
    const size_t bytes = strlen(base);
    if (bytes + 2 > sizeof w->name - n) return ENAMETOOLONG;
    memcpy(w->name + n, base, bytes + 1);
    if (fstatat(fd, base, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
    const bool is_dir = S_ISDIR(st.st_mode);
    if (!w->owns(w->name, st.st_mode) || (is_dir && (st.st_dev != w->disk || depth == 0))) return OTHER;
    if (is_dir) {
        const int below = openat(fd, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0) return errno == ENOENT ? 0 : errno;
        memcpy(w->name + n + bytes, "/", 2);
        const int err = walk_directory(w, below, n + bytes + 1, depth - 1);
        if (err) return err;
    }
    if (!w->removes || unlinkat(fd, base, is_dir ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT) return 0;
    return errno;
}

/* Takes fd. */
static int walk_directory(walk *w, int fd, size_t n, int depth)
{
    int err = 0;
    DIR *d = fdopendir(fd);
    if (!d) {
        err = errno;
        close(fd);
        return err;
    }
    errno = 0;
    for (struct dirent *e; !err && (e = readdir(d)); errno = 0)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            err = walk_entry(w, dirfd(d), e->d_name, n, depth);
    if (!err) err = errno;
    closedir(d);
    return err;
}

/* One pass over path, which is `base` in `parent`. */
static int walk_tree(walk *w, int parent, const char *base)
{
    struct stat st;
    const int fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int err = errno;
        if (fd >= 0) close(fd);
        return err;
    }
    w->disk = st.st_dev;
    const int err = walk_directory(w, fd, w->root_bytes, DEPTH_MAX);
    if (err || !w->removes || unlinkat(parent, base, AT_REMOVEDIR) == 0) return err;
    return errno;
}

static tn_status tree(const char *path, const char *as, tn_tree_owns *owns, bool removes)
{
    walk w = { .owns = owns };
    char dir[TN_PATH_BYTES];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    TN_RETURN_IF(tn_path_join("", as, w.name, sizeof w.name));
    TN_RETURN_IF(tn_path_join("", path, dir, sizeof dir));
    w.root_bytes = strlen(as);
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return tn_error(TN_INTERNAL, "%.640s does not end in the name of a directory", path);
    dir[base - path] = 0;
    const int parent = open(dir[0] ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return errno == ENOENT ? TN_OK : tn_fs_error(TN_DISK, errno, "remove", path);
    int err = walk_tree(&w, parent, base);
    w.removes = removes;
    if (!err && removes) err = walk_tree(&w, parent, base);
    close(parent);
    if (!err || err == ENOENT) return TN_OK;
    if (err == OTHER) {
        char name[200];
        return tn_error(TN_USAGE,
                        "%.640s/%s was not written by tenon and would be lost: move it away, or name another directory",
                        path, tn_text_quote(w.name + w.root_bytes, name, sizeof name));
    }
    if (err == ELOOP || err == ENOTDIR)
        return tn_error(
            TN_USAGE,
            "%.640s is a link or a file, not a directory that tenon made: move it away, or name another directory",
            path);
    return tn_fs_error(TN_DISK, err, "remove", path);
}

tn_status tn_tree_remove(const char *path, const char *as, tn_tree_owns *owns) { return tree(path, as, owns, true); }

tn_status tn_tree_check(const char *path, const char *as, tn_tree_owns *owns) { return tree(path, as, owns, false); }

/* Cuts "-123" off the end of `name`; false where there is none. */
static bool cut_number(char *name)
{
    char *dash = strrchr(name, '-');
    if (!dash || !dash[1] || dash[1 + strspn(dash + 1, "0123456789")]) return false;
    *dash = 0;
    return true;
}

bool tn_is_temp_of(const char *name, bool (*names)(const char *name))
{
    char of[256];
    if (strncmp(name, ".tmp-", 5) != 0 || strlen(name + 5) >= sizeof of) return false;
    snprintf(of, sizeof of, "%s", name + 5);
    if (!cut_number(of)) return false; /* the process */
    return names(of) || (cut_number(of) && names(of));
}
