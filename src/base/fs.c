/* Files: bounded reads, maps, directories and atomic replacement. Linux and POSIX calls only, no stdio, no state.
 * Every system call that can fail is checked; the one that may not be repeated (fsync) is not. */
#include "base/fs.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    int err;
    const char *text;
} remedies[] = {
    { ENOSPC, "free some space or choose another disk" },
    { EDQUOT, "the quota is used up; free some space or choose another disk" },
    { EFBIG, "the file size limit is reached; raise it (ulimit -f) or choose another filesystem" },
    { EACCES, "check the permissions or choose another place" },
    { EPERM, "check the permissions or choose another place" },
    { EROFS, "the filesystem is read-only; choose another place" },
    { ENOTDIR, "a part of the path is a file; check the path" },
    { EISDIR, "that is a directory; give the name of a file" },
    { ENAMETOOLONG, "use a shorter name" },
    { EMFILE, "too many open files; raise the limit (ulimit -n)" },
    { ENFILE, "too many open files on this machine" },
    { ELOOP, "it is a link, and none is followed here; move it away" },
    { EIO, "the disk reports a fault; check it (dmesg) and write to another one" },
};

/* What is read has to be there itself; of what is made, the directory. */
static const char *remedy_of_absent(const char *verb)
{
    static const char *const reads[] = { "open", "read", "read directory", "map" };
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (strcmp(verb, reads[i]) == 0) return "check the path";
    return "check the path; its directory must exist";
}

tn_status tn_fs_error(tn_status code, int err, const char *verb, const char *path)
{
    char reason[128];
    const char *remedy = err == ENOENT ? remedy_of_absent(verb) : "check the disk and the path";
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (remedies[i].err == err) remedy = remedies[i].text;
    if (strerror_r(err, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "error %d", err);
    /* The path is cut so that the remedy always fits. */
    return tn_error(code, "cannot %s %.640s: %s; %s", verb, path, reason, remedy);
}

ptrdiff_t tn_fd_read(int fd, void *data, size_t bytes)
{
    ssize_t k;
    do k = read(fd, data, bytes);
    while (k < 0 && errno == EINTR);
    return k;
}

int tn_fd_write(int fd, const void *data, size_t bytes, size_t *done)
{
    const size_t most = (size_t)1 << 30; /* some systems refuse more than 2 GiB in one call */
    const unsigned char *p = data;
    for (*done = 0; *done < bytes;) {
        const size_t left = bytes - *done;
        const ssize_t k = write(fd, p + *done, left < most ? left : most);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return errno;
        if (k == 0) return EIO; /* no progress and no reason: do not spin */
        *done += (size_t)k;
    }
    return 0;
}

tn_status tn_path_join(const char *dir, const char *name, char *buf, size_t bytes)
{
    const size_t nd = name[0] == '/' ? 0 : strlen(dir), nn = strlen(name);
    const size_t slash = nd && dir[nd - 1] != '/' ? 1 : 0;
    if (nd >= bytes || nn >= bytes || nd + slash + nn >= bytes)
        return tn_error(TN_USAGE, "the path %.300s/%.300s is longer than %zu bytes; use shorter names", dir, name,
                        bytes - 1);
    memmove(buf, dir, nd);
    if (slash) buf[nd] = '/';
    memmove(buf + nd + slash, name, nn + 1);
    return TN_OK;
}

/* Splits path after its last '/': *dir_bytes is 0 for a bare name. */
static const char *base_name(const char *path, size_t *dir_bytes)
{
    const char *slash = strrchr(path, '/');
    *dir_bytes = slash ? (size_t)(slash - path) + 1 : 0;
    return path + *dir_bytes;
}

tn_status tn_dir_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tn_fs_error(TN_DISK, errno, "sync directory", path);
    /* EINVAL: a filesystem that cannot sync directories; there is nothing better to do there. */
    const int err = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP ? errno : 0;
    close(fd); /* opened for reading: close has nothing to report */
    return err ? tn_fs_error(TN_DISK, err, "sync directory", path) : TN_OK;
}

/* Makes a name in the directory of `path` durable. */
static tn_status sync_parent(const char *path)
{
    char dir[TN_PATH_BYTES];
    size_t dir_bytes;
    (void)base_name(path, &dir_bytes);
    if (dir_bytes) snprintf(dir, sizeof dir, "%.*s", (int)dir_bytes, path);
    else snprintf(dir, sizeof dir, ".");
    return tn_dir_sync(dir);
}

bool tn_path_is_below(const char *path)
{
    if (path[0] == '/') return false;
    for (const char *p = path; *p; p += strspn(p, "/")) {
        const size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') return false;
        p += n;
    }
    return true;
}

static tn_status make_one(const char *path)
{
    struct stat st;
    if (mkdir(path, 0777) == 0) return sync_parent(path);
    const int err = errno;
    if (stat(path, &st) == 0) /* a parent that exists may answer EEXIST, EACCES or EROFS */
        return S_ISDIR(st.st_mode) ? TN_OK : tn_fs_error(TN_DISK, ENOTDIR, "create directory", path);
    return tn_fs_error(TN_DISK, err, "create directory", path);
}

tn_status tn_dir_make(const char *path)
{
    char part[TN_PATH_BYTES];
    TN_RETURN_IF(tn_path_join("", path, part, sizeof part));
    if (!part[0]) return tn_error(TN_USAGE, "an empty path names no directory; give its name");
    for (char *p = part + 1; *p; p++) {
        if (*p != '/' || p[-1] == '/') continue;
        *p = 0;
        TN_RETURN_IF(make_one(part));
        *p = '/';
    }
    return make_one(part);
}

/* Opened without waiting for another end; `st` is filled. */
static tn_status open_read(const char *path, int *fd, struct stat *st)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    if (fstat(*fd, st) == 0) return TN_OK;
    const int err = errno;
    close(*fd);
    return tn_fs_error(TN_BAD_FILE, err, "read", path);
}

static tn_status not_regular(const char *path)
{
    return tn_error(TN_BAD_FILE, "%.640s is not a regular file; give the name of a file", path);
}

tn_status tn_fd_open(const char *path, int *fd)
{
    struct stat st;
    const bool stream = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
    int f;
    TN_RETURN_IF(open_read(path, &f, &st));
    tn_status s = TN_OK;
    if (S_ISDIR(st.st_mode)) s = tn_fs_error(TN_BAD_FILE, EISDIR, "read", path);
    else if (!S_ISREG(st.st_mode) && !stream) s = not_regular(path);
    else if (!S_ISREG(st.st_mode) && fcntl(f, F_SETFL, 0) != 0) s = tn_fs_error(TN_BAD_FILE, errno, "read", path);
    if (s == TN_OK) *fd = f;
    else close(f);
    return s;
}

tn_status tn_file_open_own(const char *path, int flags, int *fd)
{
    struct stat st;
    /* O_TRUNC waits until the file is known to be one. */
    const int f = open(path, (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (f < 0) return tn_fs_error(TN_DISK, errno, "write", path);
    tn_status s = TN_OK;
    if (fstat(f, &st) != 0) s = tn_fs_error(TN_DISK, errno, "write", path);
    else if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode)) /* /dev/full: who can make a device may do more */
        s = tn_error(TN_DISK, "cannot write %.640s: it is not a regular file; move it away", path);
    else if ((flags & O_TRUNC) && S_ISREG(st.st_mode) && ftruncate(f, 0) != 0)
        s = tn_fs_error(TN_DISK, errno, "write", path);
    if (s == TN_OK) *fd = f;
    else close(f);
    return s;
}

static tn_status too_long(const char *path, size_t max_bytes)
{
    return tn_error(TN_BAD_FILE, "%.640s is longer than the %zu bytes allowed here; is it the right file?", path,
                    max_bytes);
}

tn_status tn_file_read_all(const char *path, size_t max_bytes, char **text, size_t *bytes)
{
    tn_status s = TN_OK;
    struct stat st;
    int fd;
    void *p = NULL;
    size_t capacity = 0, n = 0, want = 4096;
    TN_RETURN_IF(tn_fd_open(path, &fd));
    if (fstat(fd, &st) != 0) TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "read", path));
    if (S_ISREG(st.st_mode) && st.st_size > 0) {
        if ((uint64_t)st.st_size > max_bytes) TN_TRY(too_long(path, max_bytes));
        want = (size_t)st.st_size + 2; /* one byte that proves the end, one for the NUL */
    }
    for (;;) {
        TN_TRY(tn_grow(&p, &capacity, want, 1));
        const ptrdiff_t k = tn_fd_read(fd, (char *)p + n, capacity - 1 - n);
        if (k < 0) TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "read", path));
        if (k == 0) break;
        n += (size_t)k;
        if (n > max_bytes) TN_TRY(too_long(path, max_bytes));
        if (n == capacity - 1) want = capacity + 1;
    }
    ((char *)p)[n] = 0;
    *text = p;
    if (bytes) *bytes = n;
    p = NULL;
done:
    tn_free(p);
    close(fd);
    return s;
}

static tn_status open_regular(const char *path, int *fd, struct stat *st)
{
    TN_RETURN_IF(open_read(path, fd, st));
    tn_status s = TN_OK;
    if (!S_ISREG(st->st_mode)) s = not_regular(path);
    else if ((uint64_t)st->st_size > SIZE_MAX / 2) s = too_long(path, SIZE_MAX / 2);
    if (s != TN_OK) close(*fd);
    return s;
}

tn_status tn_file_open(const char *path, tn_file *out)
{
    struct stat st;
    int fd;
    TN_RETURN_IF(open_regular(path, &fd, &st));
    *out = (tn_file){ .is_open = true, .fd = fd, .bytes = (size_t)st.st_size };
    return TN_OK;
}

tn_status tn_file_read_at(const tn_file *f, const char *path, uint64_t at, void *data, size_t bytes)
{
    unsigned char *p = data;
    if (at > f->bytes || bytes > f->bytes - at)
        return tn_error(TN_INTERNAL, "%.640s: bytes beyond its end were asked for", path);
    while (bytes) {
        const ssize_t k = pread(f->fd, p, bytes, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return tn_fs_error(TN_BAD_FILE, errno, "read", path);
        if (k == 0)
            return tn_error(TN_BAD_FILE,
                            "%.640s was cut short while it was in use: it had %zu bytes and now ends before byte %llu; "
                            "restore the whole file",
                            path, f->bytes, (unsigned long long)at + 1);
        p += k;
        at += (uint64_t)k;
        bytes -= (size_t)k;
    }
    return TN_OK;
}

void tn_file_close(tn_file *f)
{
    if (f->is_open) close(f->fd);
    *f = (tn_file){ 0 };
}

static const unsigned char nothing[1];

/* Memory of its own with what the file holds; munmap takes it as it takes a mapping. */
static tn_status map_copy(const tn_file *f, const char *path, void **out)
{
    void *p = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return tn_error(TN_MEMORY, "out of memory for the %zu bytes of %.640s", f->bytes, path);
    const tn_status s = tn_file_read_at(f, path, 0, p, f->bytes);
    if (s == TN_OK) *out = p;
    else munmap(p, f->bytes);
    return s;
}

tn_status tn_file_map(const char *path, tn_map *out)
{
    tn_status s = TN_OK;
    tn_file f = { 0 };
    void *p = NULL;
    TN_RETURN_IF(tn_file_open(path, &f));
    if (f.bytes == 0) {
        *out = (tn_map){ nothing, 0 };
        goto done;
    }
    if (f.bytes <= TN_MAP_COPIED_BYTES) TN_TRY(map_copy(&f, path, &p));
    else p = mmap(NULL, f.bytes, PROT_READ, MAP_PRIVATE, f.fd, 0);
    if (p == MAP_FAILED) TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "map", path));
    *out = (tn_map){ p, f.bytes };
done:
    tn_file_close(&f);
    return s;
}

void tn_file_unmap(tn_map *m)
{
    if (m->bytes) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (tn_map){ 0 };
}

void tn_give_back(const void *data, size_t bytes)
{
    const long found = sysconf(_SC_PAGESIZE);
    const uintptr_t page = found > 0 ? (uintptr_t)found : 4096, at = (uintptr_t)data;
    const uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (first < end) (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

/* Makes the temporary. O_EXCL, so that two writers never share one: a name that is taken (a process with our number
 * died, or another thread writes the same file) is stepped over, never reused. */
static tn_status open_temp(tn_atomic_file *f)
{
    size_t dir_bytes;
    const char *name = base_name(f->path, &dir_bytes);
    for (int i = 1; i <= 1000; i++) {
        char more[16] = "";
        if (i > 1) snprintf(more, sizeof more, "-%d", i);
        const int n =
            snprintf(f->temp, sizeof f->temp, "%.*s.tmp-%s-%ld%s", (int)dir_bytes, f->path, name, (long)getpid(), more);
        if (n < 0 || (size_t)n >= sizeof f->temp) return tn_fs_error(TN_DISK, ENAMETOOLONG, "write", f->path);
        f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0) return TN_OK;
        if (errno != EEXIST) return tn_fs_error(TN_DISK, errno, "write", f->path);
    }
    return tn_error(TN_DISK, "cannot write %.640s: too many .tmp-* files beside it; remove them", f->path);
}

tn_status tn_atomic_open(const char *path, tn_atomic_file *f)
{
    struct stat st;
    size_t dir_bytes;
    f->is_open = f->failed = false;
    f->bytes = 0;
    TN_RETURN_IF(tn_path_join("", path, f->path, sizeof f->path));
    if (!*base_name(path, &dir_bytes)) return tn_error(TN_USAGE, "\"%.640s\" names no file; add a file name", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* renaming over a device or a pipe would destroy it */
        return tn_error(TN_DISK, "cannot replace %.640s: it is not a regular file; choose another name", path);
    TN_RETURN_IF(open_temp(f));
    f->is_open = true;
    return TN_OK;
}

void tn_atomic_abort(tn_atomic_file *f)
{
    if (!f->is_open) return;
    if (f->fd >= 0) close(f->fd);
    unlink(f->temp);
    f->is_open = false;
}

static tn_status atomic_fail(tn_atomic_file *f, int err, const char *verb)
{
    tn_atomic_abort(f);
    f->failed = true;
    return tn_fs_error(TN_DISK, err, verb, f->path);
}

static tn_status check_open(const tn_atomic_file *f)
{
    if (f->is_open) return TN_OK;
    if (f->failed)
        return tn_error(TN_DISK, "cannot write %.640s: an earlier write failed; start the file again", f->path);
    return tn_error(TN_INTERNAL, "a file was written before it was opened or after it was closed");
}

tn_status tn_atomic_write(tn_atomic_file *f, const void *data, size_t bytes)
{
    size_t done;
    TN_RETURN_IF(check_open(f));
    const int err = tn_fd_write(f->fd, data, bytes, &done);
    f->bytes += done;
    return err ? atomic_fail(f, err, "write") : TN_OK;
}

tn_status tn_atomic_finish(tn_atomic_file *f)
{
    TN_RETURN_IF(check_open(f));
    if (fsync(f->fd) != 0) return atomic_fail(f, errno, "sync");
    const int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0) return atomic_fail(f, errno, "close");
    if (rename(f->temp, f->path) != 0) return atomic_fail(f, errno, "replace");
    f->is_open = false;
    return sync_parent(f->path);
}

tn_status tn_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    tn_atomic_file f;
    TN_RETURN_IF(tn_atomic_open(path, &f));
    TN_RETURN_IF(tn_atomic_write(&f, data, bytes)); /* a failed write has removed the temporary */
    return tn_atomic_finish(&f);
}
