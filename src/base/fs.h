/* Files: whole reads with a bound, read-only maps, and writes that either appear complete or not at all.
 *
 * Reads fail with TN_BAD_FILE, writes with TN_DISK; every message names the path and a remedy. Nothing here knows a
 * file format. Invariant of the writer: under the final name there is only ever a whole, synced file. */
#ifndef TN_BASE_FS_H
#define TN_BASE_FS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TN_PATH_BYTES = 4096 }; /* longest path with its NUL */

/* "dir/name" into buf; an empty dir or an absolute name leaves the name alone. Too long for buf: TN_USAGE. */
tn_status tn_path_join(const char *dir, const char *name, char *buf, size_t bytes);
bool tn_path_is_below(const char *path); /* relative, and without ".." */
/* The directory and its missing parents, each durable before the next is made. An existing one is fine. */
tn_status tn_dir_make(const char *path);
/* Makes the names in a directory durable: what was made, renamed or removed there. */
tn_status tn_dir_sync(const char *path);

/* Whether what lies at `name` (below the root of a tree: "step-3/state.json") is the caller's own; mode as in lstat. */
typedef bool tn_tree_owns(const char *name, mode_t mode);

/* Removes a directory with all below it, if all of it is the caller's own: where `owns` refuses a name, or a directory is
 * another disk's, nothing is removed (TN_USAGE names it). Names begin with `as`, which stands for the root ("" or "old/").
 * No link is followed: one below is unlinked, one in place of `path` is refused. Fine where there is nothing. */
tn_status tn_tree_remove(const char *path, const char *as, tn_tree_owns *owns);
/* Whether it would be removed; removes nothing. */
tn_status tn_tree_check(const char *path, const char *as, tn_tree_owns *owns);

/* Whether a name is that of a temporary (`.tmp-NAME-PID`, see tn_atomic_file) for a NAME that `names` knows. */
bool tn_is_temp_of(const char *name, bool (*names)(const char *name));

/* Opens a file to read. Pipes and devices are taken under /dev/ and /proc/ only (/dev/stdin, what a shell makes of <(...)):
 * anywhere else one could make its reader wait for ever. */
tn_status tn_fd_open(const char *path, int *fd);
/* Opens a file of ours to write in place, with these flags of open(2). A link is refused, and so is what could block. */
tn_status tn_file_open_own(const char *path, int flags, int *fd);

/* The whole file (or pipe, see tn_fd_open), refused beyond max_bytes. *text ends with a NUL that *bytes (may be NULL) does not count;
 * free it with tn_free. */
tn_status tn_file_read_all(const char *path, size_t max_bytes, char **text, size_t *bytes);

/* A regular file in memory. Page-aligned; data is never NULL, even for an empty file. Up to
 * TN_MAP_COPIED_BYTES it is a copy, which nobody can shorten; a larger one is mapped, and whoever shortens it then makes a later access
 * raise SIGBUS: replace such files with tn_atomic_file, never edit them in place, and read with tn_file what is used for long. */
enum { TN_MAP_COPIED_BYTES = 64 << 20 };
typedef struct tn_map {
    const unsigned char *data; /* (bytes) */
    size_t bytes;
} tn_map;

tn_status tn_file_map(const char *path, tn_map *out);
void tn_file_unmap(tn_map *m); /* takes a zeroed map */
/* Bytes of a map, or of large memory of ours, that nobody will read again: whole pages among them are given back to the system. */
void tn_give_back(const void *data, size_t bytes);

/* A regular file to read parts of, by any number of threads at once. For whatever is read while a program runs for long: a file that
 * somebody shortens meanwhile is then an error of the read, where a mapping would end the process. A zeroed one is closed. */
typedef struct tn_file {
    bool is_open;
    int fd;
    size_t bytes; /* when it was opened */
} tn_file;

tn_status tn_file_open(const char *path, tn_file *out);
/* All of the bytes from `at` on, or TN_BAD_FILE; `path` is for the message. */
tn_status tn_file_read_at(const tn_file *f, const char *path, uint64_t at, void *data, size_t bytes);
void tn_file_close(tn_file *f);

/* A file that appears under its name only when it is whole and on disk. Until then it is `.tmp-NAME-PID` in the same
 * directory (with `-N` added where a dead process left that name). The first failure removes it; later calls then fail
 * too. A zeroed struct is a closed file. An existing regular file (or link to one) is replaced, others are refused. */
typedef struct tn_atomic_file {
    bool is_open, failed;
    int fd;
    uint64_t bytes; /* written so far */
    char path[TN_PATH_BYTES], temp[TN_PATH_BYTES];
} tn_atomic_file;

tn_status tn_atomic_open(const char *path, tn_atomic_file *f);
tn_status tn_atomic_write(tn_atomic_file *f, const void *data, size_t bytes);
/* fsync, rename, fsync of the directory. The file is closed afterwards whatever happened. A failed fsync is final: the
 * kernel may have dropped the pages, so the caller has to write everything again into a new file. */
tn_status tn_atomic_finish(tn_atomic_file *f);
void tn_atomic_abort(tn_atomic_file *f); /* closes and removes the temporary; nothing to do after finish */
/* All of it at once, for small files. */
tn_status tn_file_write_atomic(const char *path, const void *data, size_t bytes);

/* For code that owns a descriptor. Writes all, over short writes and EINTR; 0 or an errno. *done counts the bytes. */
int tn_fd_write(int fd, const void *data, size_t bytes, size_t *done);
/* One read, over EINTR; -1 leaves errno. */
ptrdiff_t tn_fd_read(int fd, void *data, size_t bytes);
/* Records "cannot VERB PATH: reason; remedy" for an errno and returns `code`. */
tn_status tn_fs_error(tn_status code, int err, const char *verb, const char *path);

#endif
