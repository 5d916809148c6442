/* Which checkpoints a run has, which are kept, and which one a link means. A checkpoint is renamed before it is
 * deleted, so a kill never leaves half of one under its name. Incomplete ones are neither counted nor removed. */
#include "train/checkpoint/checkpoint.h"

#include "base/alloc.h"
#include "io/hf_model.h"
#include "train/checkpoint/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100 }; /* of a reader beside a process that removes what it was about to read */

/* --- the list -------------------------------------------------------------------------------------------------------- */

static tn_status step_path(const char *run, int64_t step, char path[TN_PATH_BYTES])
{
    char name[TN_CKPT_NAME];
    return tn_path_join(run, tn_ckpt_name(step, name), path, TN_PATH_BYTES);
}

/* Sizes only: checksums are tn_ckpt_verify's. */
static bool files_exist(const char *path, const json_t *manifest, uint64_t *bytes)
{
    const char *name;
    json_t *v;
    char file[TN_PATH_BYTES];
    struct stat st;
    *bytes = 0;
    json_object_foreach(json_object_get(manifest, "files"), name, v)
    {
        if (tn_path_join(path, name, file, sizeof file) != TN_OK || stat(file, &st) != 0) return false;
        if (st.st_size != json_integer_value(json_object_get(v, "bytes"))) return false;
        *bytes += (uint64_t)st.st_size;
    }
    return true;
}

static tn_status look_at(const char *run, tn_ckpt_entry *e)
{
    char path[TN_PATH_BYTES];
    json_t *manifest;
    TN_RETURN_IF(step_path(run, e->step, path));
    if (tn_ckpt_read_manifest(path, &manifest) != TN_OK) return TN_OK; /* not whole, which is an answer */
    const json_t *metrics = json_object_get(manifest, "metrics");
    const char *select = json_string_value(json_object_get(metrics, "select")),
               *unit = json_string_value(json_object_get(metrics, "unit"));
    if (!tn__ckpt_scores(metrics, "", &e->scores)) e->scores.n = 0;
    snprintf(e->select, sizeof e->select, "%s", select ? select : "");
    snprintf(e->unit, sizeof e->unit, "%s", unit ? unit : "nats");
    e->lower = json_is_true(json_object_get(metrics, "lower"));
    e->complete =
        files_exist(path, manifest, &e->bytes) && json_integer_value(json_object_get(manifest, "step")) == e->step;
    json_decref(manifest);
    const tn_status s = tn_tree_check(path, "step-0/", tn_run_owns);
    e->other = s == TN_USAGE;
    return e->other ? TN_OK : s;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = ((const tn_ckpt_entry *)a)->step, y = ((const tn_ckpt_entry *)b)->step;
    return (x > y) - (x < y);
}

static bool is_directory(DIR *d, const char *name)
{
    struct stat st;
    return fstatat(dirfd(d), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* *again: those that were seen have all been removed meanwhile, so that there are others. */
static tn_status read_list(const char *run, tn_ckpt_list *out, bool *again)
{
    tn_status s = TN_OK;
    tn_ckpt_list l = { 0 };
    char path[TN_PATH_BYTES];
    tn_ckpt_id here;
    const int64_t latest = tn__ckpt_pointed(run, "latest"), best = tn__ckpt_pointed(run, "best");
    DIR *d = opendir(run);
    if (!d && errno != ENOENT) return tn_fs_error(TN_BAD_FILE, errno, "read directory", run);
    for (struct dirent *e; d && (e = readdir(d));) {
        const int64_t step = tn__ckpt_step_of(e->d_name);
        if (step < 0 || !is_directory(d, e->d_name)) continue; /* a link is no checkpoint of this run */
        TN_TRY(tn_grow((void **)&l.entry, &l.capacity, l.n + 1, sizeof *l.entry));
        l.entry[l.n++] = (tn_ckpt_entry){ .step = step, .latest = step == latest, .best = step == best };
    }
    if (l.n) qsort(l.entry, l.n, sizeof *l.entry, by_step);
    const size_t seen = l.n;
    l.n = 0;
    for (size_t i = 0; i < seen; i++) {
        tn_ckpt_entry e = l.entry[i];
        TN_TRY(look_at(run, &e));
        TN_TRY(step_path(run, e.step, path));
        if (tn__ckpt_id_read(path, &here)) l.entry[l.n++] = e; /* or it went while it was looked at: no damage */
    }
    *again = seen > 0 && l.n == 0;
    *out = l;
    l.entry = NULL;
done:
    tn_free(l.entry);
    if (d) closedir(d);
    return s;
}

tn_status tn_ckpt_list_read(const char *run, tn_ckpt_list *out)
{
    tn_ckpt_list l = { 0 };
    bool again = false;
    int tries = 0;
    do {
        tn_ckpt_list_free(&l);
        TN_RETURN_IF(read_list(run, &l, &again));
    } while (again && ++tries < TRIES);
    *out = l;
    return TN_OK;
}

void tn_ckpt_list_free(tn_ckpt_list *l)
{
    tn_free(l->entry);
    *l = (tn_ckpt_list){ 0 };
}

/* --- what stays ------------------------------------------------------------------------------------------------------ */

static bool counts(const tn_ckpt_entry *e, int64_t upto) { return e->complete && e->step <= upto; }

static bool is_evaluated(const tn_ckpt_entry *e) { return !isnan(tn_scores_first(&e->scores)); }

static bool is_better(const tn_ckpt_entry *a, const tn_ckpt_entry *b)
{
    return tn_scores_better(&a->scores, &b->scores, strcmp(a->select, b->select) == 0 ? a->select : "", a->lower);
}

/* The best held-out result among those that count, but not `tried` (may be NULL); the earlier of equals. NULL: none was
 * evaluated. */
static const tn_ckpt_entry *best_of(const tn_ckpt_list *l, int64_t upto, const bool *tried, bool kept_only)
{
    const tn_ckpt_entry *found = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const tn_ckpt_entry *e = &l->entry[i];
        if (!counts(e, upto) || !is_evaluated(e) || (tried && tried[i]) || (kept_only && !e->keep)) continue;
        if (!found || is_better(e, found)) found = e;
    }
    return found;
}

static tn_ckpt_entry *newest(const tn_ckpt_list *l, int64_t upto, bool kept_only)
{
    for (size_t i = l->n; i > 0; i--)
        if (counts(&l->entry[i - 1], upto) && (!kept_only || l->entry[i - 1].keep)) return &l->entry[i - 1];
    return NULL;
}

/* How many of those that count are better: a checkpoint stays when they are fewer than `best`. */
static int64_t rank_of(const tn_ckpt_list *l, const tn_ckpt_entry *e, int64_t upto)
{
    int64_t better = 0;
    for (size_t i = 0; i < l->n; i++) {
        const tn_ckpt_entry *o = &l->entry[i];
        if (!counts(o, upto) || !is_evaluated(o)) continue;
        better += is_better(o, e) || (!is_better(e, o) && o->step < e->step);
    }
    return better;
}

void tn_ckpt_list_mark(tn_ckpt_list *l, int64_t latest, int64_t best, int64_t upto)
{
    int64_t seen = 0;
    for (size_t i = l->n; i > 0; i--) {
        tn_ckpt_entry *e = &l->entry[i - 1];
        e->keep = true;
        if (!counts(e, upto)) continue;
        e->keep = seen++ < latest || e->other || (is_evaluated(e) && rank_of(l, e, upto) < best);
    }
    if (!newest(l, upto, true) && newest(l, upto, false)) newest(l, upto, false)->keep = true;
}

static tn_status remove_one(const char *run, int64_t step)
{
    char name[TN_CKPT_NAME], base[80], path[TN_PATH_BYTES], aside[TN_PATH_BYTES];
    TN_RETURN_IF(step_path(run, step, path));
    snprintf(base, sizeof base, ".tmp-old-%s-%ld", tn_ckpt_name(step, name), (long)getpid());
    TN_RETURN_IF(tn_path_join(run, base, aside, sizeof aside));
    if (rename(path, aside) != 0) return tn_fs_error(TN_DISK, errno, "remove", path);
    return tn_run_part_remove(aside, "step-0/");
}

tn_status tn_ckpt_list_prune(const char *run, const tn_ckpt_list *l, int64_t upto)
{
    const int64_t latest = tn__ckpt_pointed(run, "latest"), was_best = tn__ckpt_pointed(run, "best");
    const tn_ckpt_entry *last = newest(l, upto, true), *best = best_of(l, upto, NULL, true);
    char path[TN_PATH_BYTES];
    if (!last) return TN_OK;
    if (best) TN_RETURN_IF(tn__ckpt_point(run, "best", best->step));
    for (size_t i = 0; i < l->n; i++) {
        const tn_ckpt_entry *e = &l->entry[i];
        if (e->keep) continue;
        if (e->step == latest) TN_RETURN_IF(tn__ckpt_point(run, "latest", last->step));
        if (e->step != was_best || best) continue;
        TN_RETURN_IF(tn_path_join(run, "best", path, sizeof path));
        if (unlink(path) != 0) return tn_fs_error(TN_DISK, errno, "remove", path);
    }
    for (size_t i = 0; i < l->n; i++)
        if (!l->entry[i].keep) TN_RETURN_IF(remove_one(run, l->entry[i].step));
    return TN_OK;
}

/* --- which one is meant ---------------------------------------------------------------------------------------------- */

/* The order in which checkpoints are tried: the one the link names, then by loss or by age. */
static int64_t next_choice(const tn_ckpt_list *l, const char *link, const bool *tried)
{
    if (strcmp(link, "best") == 0) {
        for (size_t i = 0; i < l->n; i++)
            if (l->entry[i].best && !tried[i]) return (int64_t)i;
        const tn_ckpt_entry *e = best_of(l, INT64_MAX, tried, false);
        if (e) return e - l->entry;
    } else {
        for (size_t i = 0; i < l->n; i++)
            if (l->entry[i].latest && !tried[i]) return (int64_t)i;
    }
    for (size_t i = l->n; i > 0; i--)
        if (!tried[i - 1]) return (int64_t)i - 1;
    return -1;
}

/* Whether the link names a checkpoint that is not in the list. A run that prunes moves its links first: a link that was moved since the
 * list was read is none of these. */
static bool is_gone(const tn_ckpt_list *l, const char *run, const char *link, int64_t named)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->entry[i].step == named) return false;
    return named >= 0 && tn__ckpt_pointed(run, link) == named;
}

/* *again: one that was listed, or that the link names, has been removed since, so that others may be meant now; `last`: what the link
 * names is not coming back. */
static tn_status find_once(const char *run, const char *link, char path[TN_PATH_BYTES], char *why, size_t bytes,
                           bool last, bool *again)
{
    tn_status s = TN_OK;
    tn_ckpt_list l = { 0 };
    tn_ckpt_id was;
    bool *tried = NULL;
    size_t failed = 0;
    const int64_t named = tn__ckpt_pointed(run, link);
    *again = false;
    if (why) why[0] = 0;
    TN_TRY(tn_ckpt_list_read(run, &l));
    if (l.n == 0) {
        *again = named >= 0 && !last; /* the only one is being replaced */
        TN_FAIL(TN_BAD_FILE, "%.640s contains no checkpoint", run);
    }
    tried = tn_alloc(l.n);
    if (!tried) TN_TRY(TN_MEMORY);
    if (is_gone(&l, run, link, named) && !last) { /* a save of the same step replaces it */
        *again = true;
        goto done;
    }
    if (why && is_gone(&l, run, link, named) && failed++ == 0)
        snprintf(why, bytes, "%.640s/step-%lld, the target of %s, does not exist", run, (long long)named, link);
    for (int64_t i; (i = next_choice(&l, link, tried)) >= 0;) {
        tried[i] = true;
        TN_TRY(step_path(run, l.entry[i].step, path));
        const bool seen = tn__ckpt_id_read(path, &was);
        s = tn_ckpt_verify(path);
        *again = s == TN_BAD_FILE && (!seen || tn__ckpt_gone(path, &was));
        if (s != TN_BAD_FILE || *again) goto done;
        if (why && failed++ == 0) snprintf(why, bytes, "%s", tn_error_text());
    }
    TN_FAIL(TN_BAD_FILE, "no valid checkpoint in %.640s: `tenon ckpt verify %.200s` says what is wrong with each", run,
            run);
done:
    tn_free(tried);
    tn_ckpt_list_free(&l);
    return s;
}

/* The fault without the advice that stands behind it. */
void tn_ckpt_note(const char *link, const char *why, const char *used, char note[TN_CKPT_NOTE])
{
    note[0] = 0;
    if (!why[0]) return;
    snprintf(note, TN_CKPT_NOTE,
             "the %s checkpoint cannot be used (%.*s): using %.640s instead; restore the file, or name %.300s to "
             "accept this one",
             link, (int)strcspn(why, ";"), why, used, used);
}

tn_status tn_ckpt_find(const char *run, const char *link, char path[TN_PATH_BYTES], char *why, size_t bytes)
{
    bool again;
    int tries = 0;
    tn_status s;
    do s = find_once(run, link, path, why, bytes, ++tries == TRIES, &again);
    while (again && tries < TRIES);
    return s;
}

tn_ckpt_id tn_ckpt_id_of(const char *found)
{
    tn_ckpt_id seen = { 0 };
    return tn__ckpt_id_read(found, &seen) ? seen : (tn_ckpt_id){ 0 };
}

bool tn_ckpt_replaced(const char *path, const char *link, char found[TN_PATH_BYTES], tn_ckpt_id *seen)
{
    if (strcmp(path, found) == 0 || !tn__ckpt_gone(found, seen)) return false;
    if (tn_ckpt_find(path, link, found, NULL, 0) != TN_OK) return false;
    *seen = tn_ckpt_id_of(found);
    return true;
}

bool tn_is_hf_folder(const char *path)
{
    static const char *const ours[] = { "config.yaml", "manifest.json" };
    char file[TN_PATH_BYTES];
    struct stat st;
    for (int i = 0; i < 2; i++)
        if (tn_path_join(path, ours[i], file, sizeof file) != TN_OK || stat(file, &st) == 0) return false;
    return tn_hf_model_is(path);
}

tn_status tn_ckpt_resolve(const char *path, const char *link, char found[TN_PATH_BYTES], bool *is_file,
                          char note[TN_CKPT_NOTE])
{
    struct stat st;
    char manifest[TN_PATH_BYTES], why[1024];
    note[0] = 0;
    if (stat(path, &st) != 0) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    *is_file = S_ISREG(st.st_mode);
    if (!*is_file && !S_ISDIR(st.st_mode))
        return tn_error(TN_BAD_FILE, "%.640s is not a regular file; give the name of a file", path);
    if (!*is_file) {
        TN_RETURN_IF(tn_path_join(path, "manifest.json", manifest, sizeof manifest));
        if (tn_is_hf_folder(path)) *is_file = true;
        else if (stat(manifest, &st) != 0) {
            TN_RETURN_IF(tn_ckpt_find(path, link, found, why, sizeof why));
            tn_ckpt_note(link, why, found, note);
            return TN_OK;
        }
    }
    return tn_path_join("", path, found, TN_PATH_BYTES);
}
