/* Expands files and folders. Paths are sorted by bytes, so the data set does not depend on the filesystem's order. */
#include "data/input_files.h"

#include "base/fs.h"
#include "data/manifest.h"
#include "io/stream.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 32, SNIFF_BYTES = 4096 };

static const char *const names[TN_FORMATS] = { "auto", "txt", "jsonl", "json", "tokens", "npy", "csv", "idx" };
const char tn_format_choices[] = "auto|txt|jsonl|json|tokens|npy|csv|idx";

static const struct {
    const char *end;
    tn_format format;
} endings[] = {
    { ".txt", TN_FORMAT_TEXT },       { ".text", TN_FORMAT_TEXT },   { ".md", TN_FORMAT_TEXT },
    { ".raw", TN_FORMAT_TEXT },       { ".jsonl", TN_FORMAT_JSONL }, { ".ndjson", TN_FORMAT_JSONL },
    { ".json", TN_FORMAT_JSON },      { ".bin", TN_FORMAT_TOKENS },  { ".npy", TN_FORMAT_NPY },
    { ".csv", TN_FORMAT_CSV },        { "-ubyte", TN_FORMAT_IDX },   { ".idx", TN_FORMAT_IDX },
    { ".idx1-ubyte", TN_FORMAT_IDX },
};

const char *tn_format_name(tn_format f) { return names[f]; }

tn_format tn_format_parse(const char *name)
{
    for (int f = 0; f < TN_FORMATS; f++)
        if (strcmp(names[f], name) == 0) return (tn_format)f;
    return TN_FORMAT_AUTO;
}

tn_data_kind tn_format_kind(tn_format f)
{
    if (f == TN_FORMAT_TOKENS) return TN_KIND_TOKENS;
    return f >= TN_FORMAT_NPY ? TN_KIND_ARRAYS : TN_KIND_TEXT;
}

static bool ends(const char *s, size_t n, const char *end)
{
    const size_t k = strlen(end);
    return n > k && memcmp(s + n - k, end, k) == 0;
}

static tn_format by_name(const char *path)
{
    size_t n = strlen(path);
    if (ends(path, n, ".gz")) n -= 3;
    else if (ends(path, n, ".zst")) n -= 4;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends(path, n, endings[i].end)) return endings[i].format;
    return TN_FORMAT_AUTO;
}

const char *tn_input_files_hint(const tn_input_files *in, const char *key_value, char buf[512])
{
    if (in->as_is)
        snprintf(buf, 512, "run `tenon data prepare %.300s %.100s out=DIR`, then train with data=DIR", in->as_is,
                 key_value);
    else snprintf(buf, 512, "say %.100s", key_value);
    return buf;
}

/* A file that somebody named and whose name says nothing: text, unless its first bytes hold a NUL. */
static tn_status sniff(const tn_input_files *in, const char *path, tn_format *out)
{
    char say[512];
    char head[SNIFF_BYTES];
    size_t got = 0;
    tn_stream *s = NULL;
    TN_RETURN_IF(tn_stream_open(path, &s));
    const tn_status st = tn_stream_read(s, head, sizeof head, &got);
    tn_stream_close(s);
    TN_RETURN_IF(st);
    if (memchr(head, 0, got))
        return tn_error(TN_BAD_FILE, "%.300s is not text and its name has no known format (%s): %s", path,
                        tn_format_choices + strlen("auto|"), tn_input_files_hint(in, "format=FORMAT", say));
    *out = TN_FORMAT_TEXT;
    return TN_OK;
}

static tn_status add_file(tn_input_files *in, const char *path, const struct stat *st, tn_format format)
{
    void *p = in->v;
    TN_RETURN_IF(tn_grow(&p, &in->capacity, in->n + 1, sizeof *in->v));
    in->v = p;
    char *copy = tn_arena_strdup(&in->arena, path);
    if (!copy) return TN_MEMORY;
    const int64_t ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    in->v[in->n++] =
        (tn_input_file){ .path = copy, .format = format, .bytes = (uint64_t)st->st_size, .changed_ns = ns };
    in->total_bytes += (uint64_t)st->st_size;
    return TN_OK;
}

/* A data set made earlier, perhaps from this very folder: not text to read again. */
static bool is_prepared(const char *dir)
{
    char path[TN_PATH_BYTES];
    return tn_path_join(dir, TN_MANIFEST_NAME, path, sizeof path) == TN_OK && access(path, F_OK) == 0;
}

static tn_status add_folder(tn_input_files *in, const char *dir, tn_format format, int depth);

static tn_status add_entry(tn_input_files *in, const char *dir, const char *name, tn_format format, int depth)
{
    char path[TN_PATH_BYTES];
    struct stat st, link;
    TN_RETURN_IF(tn_path_join(dir, name, path, sizeof path));
    if (lstat(path, &link) != 0 || stat(path, &st) != 0) return tn_fs_error(TN_BAD_FILE, errno, "read", path);
    if (S_ISDIR(st.st_mode))
        return S_ISLNK(link.st_mode) || is_prepared(path) ? TN_OK : add_folder(in, path, format, depth + 1);
    const tn_format known = format ? format : by_name(path);
    if (!S_ISREG(st.st_mode) || !known) {
        in->skipped++;
        return TN_OK;
    }
    return add_file(in, path, &st, known);
}

static tn_status add_folder(tn_input_files *in, const char *dir, tn_format format, int depth)
{
    tn_status s = TN_OK;
    if (depth > DEPTH_MAX) return tn_error(TN_BAD_FILE, "%.640s: folders are nested more than %d deep", dir, DEPTH_MAX);
    DIR *d = opendir(dir);
    if (!d) return tn_fs_error(TN_BAD_FILE, errno, "read", dir);
    errno = 0;
    for (struct dirent *e; s == TN_OK && (e = readdir(d)); errno = 0)
        if (e->d_name[0] != '.') s = add_entry(in, dir, e->d_name, format, depth);
    if (s == TN_OK && errno) s = tn_fs_error(TN_BAD_FILE, errno, "read", dir);
    closedir(d);
    return s;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const tn_input_file *)a)->path, ((const tn_input_file *)b)->path);
}

tn_status tn_input_files_add(tn_input_files *in, const char *path, tn_format format)
{
    struct stat st;
    char say[512];
    const size_t before = in->n;
    if (stat(path, &st) != 0) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    if (S_ISDIR(st.st_mode)) {
        if (is_prepared(path))
            return tn_error(TN_USAGE, "%.640s is a prepared data set already: name the files it was made from", path);
        TN_RETURN_IF(add_folder(in, path, format, 0));
        if (in->n == before)
            return tn_error(
                TN_BAD_FILE,
                "%.300s contains no file of a known type (.txt .jsonl .json .bin .npy .csv -ubyte, also .gz "
                "and .zst): name the files, or %s",
                path, tn_input_files_hint(in, "format=FORMAT", say));
        qsort(in->v + before, in->n - before, sizeof *in->v, by_path);
        return TN_OK;
    }
    if (!S_ISREG(st.st_mode))
        return tn_error(TN_BAD_FILE, "%.640s is not a regular file; give the name of a file", path);
    if (!format) format = by_name(path);
    if (!format) TN_RETURN_IF(sniff(in, path, &format));
    return add_file(in, path, &st, format);
}

void tn_input_files_free(tn_input_files *in)
{
    tn_free(in->v);
    tn_arena_free(&in->arena);
    *in = (tn_input_files){ 0 };
}
