/* The files of a data set out of an unpacked package: those that match the row's pattern, joined in the order of their paths or kept as they
 * are. Links are not followed, so a page that several names have is there once. */
#include "base/alloc.h"
#include "cli/data/data_sets.h"
#include "io/stream.h"

#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 16 };

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

/* All of a file into another, unpacked on the way unless it is kept as it is. */
static tn_status pour(const char *path, bool as_it_is, tn_atomic_file *to)
{
    tn_status s = TN_OK;
    char chunk[CHUNK_BYTES];
    tn_stream *in = NULL;
    tn_file raw = { 0 };
    size_t got = 1;
    if (as_it_is) TN_TRY(tn_file_open(path, &raw));
    else TN_TRY(tn_stream_open(path, &in));
    for (size_t at = 0; got; at += got) {
        if (as_it_is) {
            got = raw.bytes - at < sizeof chunk ? raw.bytes - at : sizeof chunk;
            TN_TRY(tn_file_read_at(&raw, path, at, chunk, got));
        } else TN_TRY(tn_stream_read(in, chunk, sizeof chunk, &got));
        TN_TRY(tn_atomic_write(to, chunk, got));
    }
done:
    tn_stream_close(in);
    tn_file_close(&raw);
    return s;
}

static tn_status keep(const char *path, const char *dir, const char *name, uint64_t *bytes)
{
    char to[TN_PATH_BYTES];
    tn_atomic_file f = { 0 };
    tn_status s = TN_OK;
    TN_TRY(tn_path_join(dir, name, to, sizeof to));
    TN_TRY(tn_atomic_open(to, &f));
    TN_TRY(pour(path, true, &f));
    *bytes += f.bytes;
    TN_TRY(tn_atomic_finish(&f));
done:
    tn_atomic_abort(&f);
    return s;
}

static tn_status walk(const tn_data_set *d, const char *pattern, const char *tree, const char *dir, tn_atomic_file *all,
                      uint64_t *bytes)
{
    tn_status s = TN_OK;
    char *const roots[] = { (char *)tree, NULL };
    FTS *t = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (!t) return tn_fs_error(TN_BAD_FILE, errno, "read", tree);
    for (FTSENT *e; (e = fts_read(t));) {
        const char *inside = e->fts_path + strlen(tree) + (e->fts_level > 0);
        if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR)
            TN_FAIL(TN_BAD_FILE, "cannot read %.640s: %s", e->fts_path, strerror(e->fts_errno));
        if (e->fts_info != FTS_F || fnmatch(pattern, inside, FNM_PATHNAME) != 0) continue;
        if (*d->into) TN_TRY(pour(e->fts_path, false, all));
        else TN_TRY(keep(e->fts_path, dir, e->fts_name, bytes));
    }
done:
    fts_close(t);
    return s;
}

tn_status tn_data_fill(const tn_data_set *d, const tn_data_from *from, const char *tree, const char *dir,
                       uint64_t *bytes)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES];
    tn_atomic_file all = { 0 };
    uint64_t n = 0;
    if (*d->into) {
        TN_TRY(tn_path_join(dir, d->into, path, sizeof path));
        TN_TRY(tn_atomic_open(path, &all));
    }
    TN_TRY(walk(d, from->files, tree, dir, &all, &n));
    if (*d->into) n = all.bytes;
    if (n < d->bytes - d->bytes / 8)
        TN_FAIL(TN_BAD_FILE, "this version of %s holds %llu bytes of %s (%s) instead of %llu", from->package,
                (unsigned long long)n, d->name, from->files, (unsigned long long)d->bytes);
    if (*d->into) TN_TRY(tn_atomic_finish(&all));
    *bytes = n;
done:
    tn_atomic_abort(&all);
    return s;
}
