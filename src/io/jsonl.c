/* Writes and reads JSON Lines. The writer formats its own text because jansson would allocate on every line; the reader
 * is jansson's, bounded (io/json_read.h). Invariant: between calls the file ends with a newline or is empty. */
#define _GNU_SOURCE 1 /* memmem */
#include "io/jsonl.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/json_read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tn_jsonl {
    int fd;
    bool is_long; /* the line outgrew the buffer */
    size_t n;
    size_t torn; /* bytes of half a line at the end of the file that could not be taken back yet */
    char *kept;  /* (kept_capacity): whole lines that wait, or NULL */
    size_t kept_n, kept_capacity;
    tn_jsonl_backlog behind;
    char path[TN_PATH_BYTES];
    char line[TN_JSONL_LINE_BYTES];
};

/* Repairs the end of a file that a killed writer left: completes a whole object, removes a cut one. */
static tn_status mend_end(int fd, const char *path, char *tail, size_t tail_bytes)
{
    struct stat st;
    size_t done;
    if (fstat(fd, &st) != 0) return tn_fs_error(TN_DISK, errno, "append to", path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0) return TN_OK;
    const size_t n = (uint64_t)st.st_size < tail_bytes ? (size_t)st.st_size : tail_bytes;
    const off_t from = st.st_size - (off_t)n;
    for (size_t got = 0; got < n;) {
        const ssize_t k = pread(fd, tail + got, n - got, from + (off_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return tn_fs_error(TN_DISK, k < 0 ? errno : EIO, "append to", path);
        got += (size_t)k;
    }
    size_t keep = n;
    while (keep && tail[keep - 1] != '\n') keep--;
    if (keep == n) return TN_OK;
    if (keep == 0 && from > 0)
        return tn_error(TN_BAD_FILE, "%.640s does not end in lines of JSON; move it away or start afresh", path);
    json_t *whole = tn_json_tree(tail + keep, n - keep, 0, NULL);
    const bool complete = json_is_object(whole);
    json_decref(whole);
    if (!complete)
        return ftruncate(fd, from + (off_t)keep) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "append to", path);
    const int err = tn_fd_write(fd, "\n", 1, &done);
    return err ? tn_fs_error(TN_DISK, err, "append to", path) : TN_OK;
}

tn_status tn_jsonl_open(const char *path, bool append, tn_jsonl **out)
{
    tn_status s = TN_OK;
    tn_jsonl *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    w->fd = -1;
    TN_TRY(tn_path_join("", path, w->path, sizeof w->path));
    TN_TRY(tn_file_open_own(path, (append ? O_RDWR : O_WRONLY | O_TRUNC) | O_CREAT | O_APPEND, &w->fd));
    if (append) TN_TRY(mend_end(w->fd, path, w->line, sizeof w->line));
    tn_jsonl_begin(w);
    *out = w;
    w = NULL;
done:
    if (w && w->fd >= 0) close(w->fd);
    tn_free(w);
    return s;
}

static void put(tn_jsonl *w, const char *text, size_t bytes)
{
    if (bytes > sizeof w->line - 2 - w->n) w->is_long = true; /* "}\n" always fits */
    if (w->is_long) return;
    memcpy(w->line + w->n, text, bytes);
    w->n += bytes;
}

/* Length of the well-formed UTF-8 sequence at p (ends with a NUL), 0 where there is none (Unicode, table 3-7). */
static size_t utf8_bytes(const unsigned char *p)
{
    const unsigned char c = p[0];
    const size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F)) return 0; /* overlong; surrogates */
    if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F)) return 0; /* overlong; beyond U+10FFFF */
    return n;
}

static void put_quoted(tn_jsonl *w, const char *text)
{
    put(w, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p && !w->is_long;) {
        char esc[8];
        const size_t n = utf8_bytes(p);
        if (n == 0) put(w, "\xEF\xBF\xBD", 3);
        else if (*p == '"' || *p == '\\') put(w, (const char[]){ '\\', (char)*p }, 2);
        else if (*p < 0x20) put(w, esc, (size_t)snprintf(esc, sizeof esc, "\\u%04x", *p));
        else put(w, (const char *)p, n);
        p += n ? n : 1;
    }
    put(w, "\"", 1);
}

static void put_key(tn_jsonl *w, const char *key)
{
    if (w->n > 1) put(w, ",", 1);
    put_quoted(w, key);
    put(w, ":", 1);
}

void tn_jsonl_begin(tn_jsonl *w)
{
    w->n = 0;
    w->is_long = false;
    put(w, "{", 1);
}

void tn_jsonl_number(tn_jsonl *w, const char *key, double x)
{
    char text[40], plain[40];
    size_t n = 0;
    if (isnan(x)) tn_jsonl_text(w, key, "NaN");
    else if (isinf(x)) tn_jsonl_text(w, key, x > 0 ? "Infinity" : "-Infinity");
    else {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, x);
            if (strtod(text, NULL) == x) break;
        }
        for (const char *p = text; *p; p++) { /* a locale may have its own decimal point, even of several bytes */
            const bool known = strchr("0123456789+-e", *p) != NULL;
            if (known) plain[n++] = *p;
            else if (n == 0 || plain[n - 1] != '.') plain[n++] = '.';
        }
        put_key(w, key);
        put(w, plain, n);
        if (x == 0 && signbit(x)) put(w, ".0", 2); /* "-0" would be read as the integer 0 */
    }
}

void tn_jsonl_integer(tn_jsonl *w, const char *key, int64_t x)
{
    char text[32];
    put_key(w, key);
    put(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)x));
}

void tn_jsonl_text(tn_jsonl *w, const char *key, const char *text)
{
    put_key(w, key);
    put_quoted(w, text);
}

void tn_jsonl_flag(tn_jsonl *w, const char *key, bool x)
{
    put_key(w, key);
    if (x) put(w, "true", 4);
    else put(w, "false", 5);
}

/* Takes back the half line at the end. Where even that fails, nothing may follow it; the next open mends it. */
static int take_back(tn_jsonl *w)
{
    struct stat st;
    if (w->torn == 0) return 0;
    if (fstat(w->fd, &st) != 0) return errno;
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size >= w->torn) {
        int r;
        do r = ftruncate(w->fd, st.st_size - (off_t)w->torn);
        while (r != 0 && errno == EINTR);
        if (r != 0) return errno;
    }
    w->torn = 0;
    return 0;
}

/* Appends whole lines; *done: bytes of those that are in the file for good. 0 or an errno. */
static int append(tn_jsonl *w, const char *text, size_t bytes, size_t *done)
{
    *done = 0;
    int err = take_back(w);
    if (err) return err;
    err = tn_fd_write(w->fd, text, bytes, done);
    if (!err) return 0;
    while (*done && text[*done - 1] != '\n') {
        w->torn++;
        --*done;
    }
    (void)take_back(w);
    return err;
}

static size_t count_lines(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += text[i] == '\n';
    return n;
}

static int write_kept(tn_jsonl *w)
{
    size_t done;
    if (w->kept_n == 0) return take_back(w);
    const int err = append(w, w->kept, w->kept_n, &done);
    w->behind.waiting -= count_lines(w->kept, done);
    w->kept_n -= done;
    memmove(w->kept, w->kept + done, w->kept_n);
    return err;
}

static void keep_line(tn_jsonl *w, size_t bytes)
{
    if (!w->kept) return;
    if (bytes > w->kept_capacity - w->kept_n) {
        w->behind.lost++;
        return;
    }
    memcpy(w->kept + w->kept_n, w->line, bytes);
    w->kept_n += bytes;
    w->behind.waiting++;
}

tn_status tn_jsonl_buffer(tn_jsonl *w, size_t bytes)
{
    if (w->kept) return TN_OK;
    w->kept = tn_alloc(bytes);
    if (!w->kept) return TN_MEMORY;
    w->kept_capacity = bytes;
    return TN_OK;
}

tn_jsonl_backlog tn_jsonl_backlog_of(const tn_jsonl *w) { return w->behind; }

tn_status tn_jsonl_flush(tn_jsonl *w)
{
    const int err = write_kept(w);
    return err ? tn_fs_error(TN_DISK, err, "append to", w->path) : TN_OK;
}

tn_status tn_jsonl_end(tn_jsonl *w)
{
    size_t done = 0;
    const size_t n = w->n;
    const bool is_long = w->is_long;
    memcpy(w->line + n, "}\n", 2); /* put() keeps the room */
    int err = is_long ? 0 : write_kept(w);
    if (!err && !is_long) err = append(w, w->line, n + 2, &done);
    if (err) keep_line(w, n + 2);
    tn_jsonl_begin(w);
    if (is_long)
        return tn_error(TN_USAGE,
                        "%.640s: a line is longer than %d bytes and was not written; log fewer or shorter values",
                        w->path, TN_JSONL_LINE_BYTES);
    return err ? tn_fs_error(TN_DISK, err, "append to", w->path) : TN_OK;
}

tn_status tn_jsonl_sync(tn_jsonl *w)
{
    return fsync(w->fd) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "sync", w->path);
}

tn_status tn_jsonl_close(tn_jsonl *w)
{
    if (!w) return TN_OK;
    const tn_status s = close(w->fd) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "close", w->path);
    tn_free(w->kept);
    tn_free(w);
    return s;
}

struct tn_jsonl_reader {
    int fd;
    bool at_end, cut, forgives; /* at_end: no more bytes in the file */
    char *buffer;               /* (capacity); the bytes not yet taken are begin..end */
    size_t capacity, begin, end;
    int64_t line;
    int64_t damaged, first_damaged; /* lines passed over */
    int64_t every, most;            /* thinned: 0: not */
    const char *keeps;
    json_t *object; /* handed out last */
    char path[TN_PATH_BYTES];
};

tn_status tn_jsonl_reader_open(const char *path, tn_jsonl_reader **out)
{
    tn_status s = TN_OK;
    tn_jsonl_reader *r = tn_alloc(sizeof *r);
    if (!r) return TN_MEMORY;
    r->fd = -1;
    TN_TRY(tn_path_join("", path, r->path, sizeof r->path));
    TN_TRY(tn_fd_open(path, &r->fd));
    *out = r;
    r = NULL;
done:
    tn_jsonl_reader_close(r);
    return s;
}

/* More bytes into the buffer: moves what is left to its front, grows it where it is full. */
static tn_status fill(tn_jsonl_reader *r)
{
    void *p = r->buffer;
    const size_t left = r->end - r->begin;
    if (left > TN_JSONL_READ_BYTES)
        return tn_error(TN_BAD_FILE, "%.640s:%lld: the line is longer than %d bytes; is the file JSON Lines?", r->path,
                        (long long)r->line + 1, TN_JSONL_READ_BYTES);
    if (r->begin && left) memmove(r->buffer, r->buffer + r->begin, left);
    r->begin = 0;
    r->end = left;
    if (left == r->capacity) TN_RETURN_IF(tn_grow(&p, &r->capacity, left ? 2 * left : 64 << 10, 1));
    r->buffer = p;
    const ptrdiff_t k = tn_fd_read(r->fd, r->buffer + left, r->capacity - left);
    if (k < 0) return tn_fs_error(TN_BAD_FILE, errno, "read", r->path);
    r->end += (size_t)k;
    r->at_end = k == 0;
    return TN_OK;
}

/* The next line without its newline; *text is NULL at the end. *whole is false for a last line without a newline. */
static tn_status next_line(tn_jsonl_reader *r, const char **text, size_t *bytes, bool *whole)
{
    const char *newline = NULL;
    size_t seen = 0; /* bytes after begin that hold no newline */
    *text = NULL;
    for (;;) {
        if (r->end - r->begin > seen) newline = memchr(r->buffer + r->begin + seen, '\n', r->end - r->begin - seen);
        if (newline || r->at_end) break;
        seen = r->end - r->begin;
        TN_RETURN_IF(fill(r));
    }
    *whole = newline != NULL;
    if (!newline && r->begin == r->end) return TN_OK;
    *text = r->buffer + r->begin;
    *bytes = newline ? (size_t)(newline - *text) : r->end - r->begin;
    r->begin += *bytes + (newline ? 1 : 0);
    r->line++;
    return TN_OK;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

void tn_jsonl_reader_thin(tn_jsonl_reader *r, int64_t every, const char *text, int64_t most)
{
    r->every = every;
    r->keeps = text;
    r->most = most;
}

void tn_jsonl_reader_forgive(tn_jsonl_reader *r) { r->forgives = true; }

tn_status tn_jsonl_reader_tail(tn_jsonl_reader *r, size_t bytes)
{
    const char *text;
    bool whole;
    const off_t end = lseek(r->fd, 0, SEEK_END), from = end - (off_t)bytes - 1; /* 1: a newline there begins a line */
    if (end < 0 || lseek(r->fd, from > 0 ? from : 0, SEEK_SET) < 0)
        return tn_fs_error(TN_BAD_FILE, errno, "read", r->path);
    if (from <= 0) return TN_OK;
    TN_RETURN_IF(next_line(r, &text, &bytes, &whole));
    r->line = 0;
    return TN_OK;
}

static bool passes_over(tn_jsonl_reader *r, const char *text, size_t bytes)
{
    if (r->every < 2 || r->line % r->every == 0) return false;
    return !(r->most > 0 && memmem(text, bytes, r->keeps, strlen(r->keeps)) && r->most--);
}

/* A line into r->object, NULL where it is none but may be passed over. */
static tn_status parse(tn_jsonl_reader *r, const char *text, size_t bytes, bool whole)
{
    json_error_t err;
    r->object = tn_json_tree(text, bytes, JSON_REJECT_DUPLICATES, &err);
    if (json_is_object(r->object)) return TN_OK;
    for (char *p = err.text; !r->object && *p; p++)
        if (*p < ' ' || *p > '~') *p = '?'; /* it quotes the file, which must not reach a terminal raw */
    if (whole && !r->forgives)
        return tn_error(TN_BAD_FILE, "%.640s:%lld: %s; each line must be one JSON object", r->path, (long long)r->line,
                        r->object ? "not an object" : err.text);
    json_decref(r->object);
    r->object = NULL;
    if (!whole) r->cut = true;
    else if (r->damaged++ == 0) r->first_damaged = r->line;
    return TN_OK;
}

tn_status tn_jsonl_reader_next(tn_jsonl_reader *r, json_t **object)
{
    const char *text;
    size_t bytes = 0;
    bool whole;
    json_decref(r->object);
    r->object = NULL;
    do {
        TN_RETURN_IF(next_line(r, &text, &bytes, &whole));
        if (text && !is_blank(text, bytes) && !passes_over(r, text, bytes)) TN_RETURN_IF(parse(r, text, bytes, whole));
    } while (text && !r->object);
    *object = r->object;
    return TN_OK;
}

int64_t tn_jsonl_reader_damaged(const tn_jsonl_reader *r, int64_t *first)
{
    *first = r->first_damaged;
    return r->damaged;
}

int64_t tn_jsonl_reader_line(const tn_jsonl_reader *r) { return r->line; }

bool tn_jsonl_reader_cut(const tn_jsonl_reader *r) { return r->cut; }

void tn_jsonl_reader_close(tn_jsonl_reader *r)
{
    if (!r) return;
    json_decref(r->object);
    if (r->fd >= 0) close(r->fd);
    tn_free(r->buffer);
    tn_free(r);
}

bool tn_jsonl_get_number(const json_t *object, const char *key, double *out)
{
    static const struct {
        const char *text;
        double x;
    } special[] = { { "NaN", NAN }, { "Infinity", INFINITY }, { "-Infinity", -INFINITY } };
    const json_t *v = json_object_get(object, key);
    const char *text = json_string_value(v);
    if (json_is_number(v)) {
        *out = json_number_value(v);
        return true;
    }
    for (size_t i = 0; text && i < sizeof special / sizeof *special; i++)
        if (strcmp(special[i].text, text) == 0) {
            *out = special[i].x;
            return true;
        }
    return false;
}
