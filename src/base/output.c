/* Asking before writing. access(2) answers for the real user, which is who runs the command. */
#include "base/output.h"

#include "base/fs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "." for a bare name, "/" for one below the root; slashes at the end of the path do not count. */
static tn_status parent_of(const char *path, char dir[TN_PATH_BYTES])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n >= TN_PATH_BYTES) return tn_fs_error(TN_DISK, ENAMETOOLONG, "write", path);
    memmove(dir, n ? path : ".", n ? n : 1); /* dir may be path */
    dir[n ? n : 1] = 0;
    return TN_OK;
}

static bool takes_files(const char *dir) { return access(dir, W_OK | X_OK) == 0; }

bool tn_output_in_place(const char *path)
{
    char dir[TN_PATH_BYTES];
    struct stat st;
    if (stat(path, &st) != 0) return false;
    return !S_ISREG(st.st_mode) || (parent_of(path, dir) == TN_OK && !takes_files(dir));
}

tn_status tn_output_file_check(const char *path)
{
    char dir[TN_PATH_BYTES];
    struct stat st;
    if (!*path) return tn_error(TN_USAGE, "\"\" names no file: write the name of one");
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return tn_fs_error(TN_DISK, EISDIR, "write", path);
        return access(path, W_OK) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "write", path);
    }
    if (errno != ENOENT) return tn_fs_error(TN_DISK, errno, "write", path);
    if (path[strlen(path) - 1] == '/') return tn_fs_error(TN_DISK, EISDIR, "write", path);
    TN_RETURN_IF(parent_of(path, dir));
    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode)) return tn_fs_error(TN_DISK, ENOTDIR, "write", path);
    return takes_files(dir) ? TN_OK : tn_fs_error(TN_DISK, errno, "write", path);
}

tn_status tn_output_dir_check(const char *path)
{
    char at[TN_PATH_BYTES];
    struct stat st;
    if (!*path) return tn_error(TN_USAGE, "\"\" names no directory: write the name of one");
    TN_RETURN_IF(tn_path_join("", path, at, sizeof at));
    while (stat(at, &st) != 0) {
        if (errno != ENOENT || strcmp(at, ".") == 0 || strcmp(at, "/") == 0)
            return tn_fs_error(TN_DISK, errno, "create directory", path);
        TN_RETURN_IF(parent_of(at, at));
    }
    if (!S_ISDIR(st.st_mode) && strcmp(at, path) == 0)
        return tn_error(TN_DISK, "cannot create directory %.640s: it is a file; name a folder", path);
    if (!S_ISDIR(st.st_mode)) return tn_fs_error(TN_DISK, ENOTDIR, "create directory", path);
    return takes_files(at) ? TN_OK : tn_fs_error(TN_DISK, errno, "create directory", path);
}
