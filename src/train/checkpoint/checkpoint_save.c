/* Saves a checkpoint, in an order that survives a crash: sync the files, sync their directory, rename, sync the run's
 * directory, then the link. A failure removes what was begun. */
#include "train/checkpoint/checkpoint.h"

#include "base/alloc.h"
#include "io/tensor_file.h"
#include "train/checkpoint/run_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = TN_SAFETENSORS_NAME_MAX + 16, FILES = 3 };

/* --- links ----------------------------------------------------------------------------------------------------------- */

const char *tn_ckpt_name(int64_t step, char name[TN_CKPT_NAME])
{
    snprintf(name, TN_CKPT_NAME, "step-%lld", (long long)step);
    return name;
}

int64_t tn__ckpt_step_of(const char *name)
{
    char again[TN_CKPT_NAME];
    if (strncmp(name, "step-", 5) != 0) return -1;
    const int64_t step = strtoll(name + 5, NULL, 10);
    return step >= 0 && strcmp(tn_ckpt_name(step, again), name) == 0 ? step : -1;
}

/* Only the name of a checkpoint beside the link is taken: one that leads elsewhere names none. */
int64_t tn__ckpt_pointed(const char *run, const char *link)
{
    char path[TN_PATH_BYTES], text[64];
    if (tn_path_join(run, link, path, sizeof path) != TN_OK) return -1;
    ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0 && errno != EINVAL) return -1;
    if (n < 0) { /* a small file where the filesystem has no links */
        char *whole;
        if (tn_file_read_all(path, sizeof text - 1, &whole, NULL) != TN_OK) return -1;
        n = (ssize_t)strcspn(whole, "\n");
        memcpy(text, whole, (size_t)n);
        tn_free(whole);
    }
    text[n] = 0;
    return tn__ckpt_step_of(text);
}

tn_status tn__ckpt_point(const char *run, const char *link, int64_t step)
{
    char name[TN_CKPT_NAME], path[TN_PATH_BYTES], temp[TN_PATH_BYTES], base[64];
    tn_ckpt_name(step, name);
    if (tn__ckpt_pointed(run, link) == step) return TN_OK;
    snprintf(base, sizeof base, ".tmp-%s-%ld", link, (long)getpid());
    TN_RETURN_IF(tn_path_join(run, link, path, sizeof path));
    TN_RETURN_IF(tn_path_join(run, base, temp, sizeof temp));
    (void)unlink(temp);
    if (symlink(name, temp) != 0) {
        if (errno == EPERM || errno == ENOSYS || errno == ENOTSUP)
            return tn_file_write_atomic(path, name, strlen(name));
        return tn_fs_error(TN_DISK, errno, "write", path);
    }
    if (rename(temp, path) != 0) {
        const int err = errno;
        (void)unlink(temp);
        return tn_fs_error(TN_DISK, err, "replace", path);
    }
    return tn_dir_sync(run);
}

/* --- tensors --------------------------------------------------------------------------------------------------------- */

/* A tensor of the file: its name there and where its bytes are. */
typedef struct item {
    char name[NAME];
    tn_dtype dtype;
    tn_dims dims;
    const void *data; /* (dims), in the store unless on_host */
    bool on_host;
} item;

typedef struct item_list {
    item *item;
    size_t n, capacity;
} item_list;

static tn_status add(item_list *l, const char *lead, const char *name, tn_dtype dtype, tn_dims dims, const void *data)
{
    TN_RETURN_IF(tn_grow((void **)&l->item, &l->capacity, l->n + 1, sizeof *l->item));
    item *it = &l->item[l->n++];
    if (snprintf(it->name, sizeof it->name, "%s%s", lead, name) >= (int)sizeof it->name)
        return tn_error(TN_USAGE, "the name of tensor %.100s... is too long to be saved", name);
    it->dtype = dtype;
    it->dims = dims;
    it->data = data;
    it->on_host = false;
    return TN_OK;
}

static tn_status list_model(const tn_ckpt_what *w, item_list *l)
{
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->weight) TN_RETURN_IF(add(l, "", e->name, e->dtype, e->dims, e->data));
    }
    return TN_OK;
}

/* Wide types first, so that every tensor is aligned: moments are f32, states may be anything, the snapshot is bytes. */
static tn_status list_state(const tn_ckpt_what *w, item_list *l)
{
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->role != TN_ROLE_PARAM) continue;
        const tn_bucket *b = tn_store_bucket(w->store, e->bucket);
        if (b->m) TN_RETURN_IF(add(l, "moment1.", e->name, TN_F32, e->dims, b->m + e->offset));
        if (b->v) TN_RETURN_IF(add(l, "moment2.", e->name, TN_F32, e->dims, b->v + e->offset));
    }
    for (size_t i = 0; i < tn_store_count(w->store); i++) {
        const tn_entry *e = tn_store_at(w->store, i);
        if (e->role == TN_ROLE_STATE) TN_RETURN_IF(add(l, "state.", e->name, e->dtype, e->dims, e->data));
    }
    for (size_t i = 0; w->guard && i < tn_guard_parts(w->guard); i++) {
        char number[24];
        size_t bytes;
        const void *data = tn_guard_part(w->guard, i, &bytes);
        snprintf(number, sizeof number, "%zu", i);
        TN_RETURN_IF(add(l, "rollback.", number, TN_U8, tn_shape((int64_t)bytes), data));
        l->item[l->n - 1].on_host = true;
    }
    return TN_OK;
}

static tn_status write_tensors(const char *dir, const tn_store *st, const item_list *l, tn_ckpt_file *f)
{
    tn_status s = TN_OK;
    tn_host_copy copy = { 0 };
    char path[TN_PATH_BYTES];
    tn_tensor_writer *w = NULL;
    TN_TRY(tn_path_join(dir, f->name, path, sizeof path));
    TN_TRY(tn_tensor_writer_begin(path, NULL, 0, &w));
    for (size_t i = 0; i < l->n; i++)
        TN_TRY(tn_tensor_writer_declare(w, l->item[i].name, l->item[i].dtype, l->item[i].dims));
    for (size_t i = 0; i < l->n; i++) {
        const item *it = &l->item[i];
        const size_t bytes = (size_t)tn_dims_count(it->dims) * tn_dtype_bytes(it->dtype);
        const void *data = it->on_host ? it->data : tn_store_read(st, it->data, bytes, &copy);
        if (!data) TN_TRY(TN_MEMORY);
        TN_TRY(tn_tensor_writer_put(w, it->name, data, bytes));
    }
    s = tn_tensor_writer_finish(w, f->hash, &f->bytes);
    w = NULL;
done:
    tn_tensor_writer_abort(w);
    tn_host_copy_free(&copy);
    return s;
}

/* --- the rest -------------------------------------------------------------------------------------------------------- */

/* Takes the JSON; f (may be NULL) gets size and checksum. */
static tn_status write_json(const char *dir, const char *name, json_t *root, tn_ckpt_file *f)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) TN_FAIL(TN_MEMORY, "out of memory while writing %s of a checkpoint", name);
    TN_TRY(tn_path_join(dir, name, path, sizeof path));
    TN_TRY(tn_file_write_atomic(path, text, strlen(text)));
    if (f) {
        f->bytes = strlen(text);
        tn_hash_memory(text, strlen(text), f->hash);
    }
done:
    free(text);
    return s;
}

static tn_status write_all(const char *dir, const tn_ckpt_what *w)
{
    tn_status s = TN_OK;
    item_list model = { 0 }, state = { 0 };
    const char *end = w->compress ? ".safetensors.zst" : ".safetensors";
    tn_ckpt_file file[FILES] = { 0 };
    snprintf(file[0].name, sizeof file[0].name, "model%s", end);
    snprintf(file[1].name, sizeof file[1].name, "state%s", end);
    snprintf(file[2].name, sizeof file[2].name, "state.json");
    TN_TRY(list_model(w, &model));
    TN_TRY(list_state(w, &state));
    TN_TRY(write_tensors(dir, w->store, &model, &file[0]));
    TN_TRY(write_tensors(dir, w->store, &state, &file[1]));
    TN_TRY(write_json(dir, file[2].name, tn__ckpt_state_json(w->state), &file[2]));
    TN_TRY(write_json(dir, "manifest.json", tn__ckpt_manifest_json(w->state, file, FILES), NULL));
    TN_TRY(tn_dir_sync(dir));
done:
    tn_free(model.item);
    tn_free(state.item);
    return s;
}

/* The new one takes its name. One of that name (damaged, or of a run that was put back) steps aside first. */
static tn_status take_name(const char *run, const char *temp, const char *path, const char *aside)
{
    struct stat st;
    const bool moved = lstat(path, &st) == 0;
    if (moved && rename(path, aside) != 0) return tn_fs_error(TN_DISK, errno, "replace", path);
    if (rename(temp, path) != 0) {
        const int err = errno;
        if (moved) (void)rename(aside, path);
        return tn_fs_error(TN_DISK, err, "name", path);
    }
    TN_RETURN_IF(tn_dir_sync(run));
    if (moved && lstat(aside, &st) == 0 && !S_ISDIR(st.st_mode))
        return unlink(aside) == 0 ? TN_OK : tn_fs_error(TN_DISK, errno, "remove", aside);
    const tn_status s = moved ? tn_run_part_remove(aside, "step-0/") : TN_OK;
    return s == TN_USAGE ? TN_OK : s; /* something else lies in it, and stays in it */
}

/* Before it counts, and before an older one may go: a disk, or what lies before it, that loses a write in silence is found out here. What
 * cannot be read back is the disk's fault, not a file's. */
static tn_status read_back(const char *dir)
{
    char why[1024];
    const tn_status s = tn_ckpt_verify(dir);
    if (s == TN_OK || s == TN_MEMORY) return s;
    snprintf(why, sizeof why, "%s", tn_error_text());
    return tn_error(TN_DISK, "what was written cannot be read back: %.*s; check the disk", (int)strcspn(why, ";"), why);
}

/* RUN/.tmp-WHAT-PID, or with -2, -3, ... after it: the first from number `from` that is not taken. */
static tn_status free_name(const char *run, const char *what, int from, char path[TN_PATH_BYTES])
{
    struct stat st;
    char base[96], more[16] = "";
    for (int i = from; i < from + 1000; i++) {
        if (i > 1) snprintf(more, sizeof more, "-%d", i);
        snprintf(base, sizeof base, ".tmp-%.60s-%ld%s", what, (long)getpid(), more);
        TN_RETURN_IF(tn_path_join(run, base, path, TN_PATH_BYTES));
        if (lstat(path, &st) != 0) return TN_OK;
    }
    return tn_error(TN_DISK, "cannot write to %.640s: too many .tmp-* files in it; remove them", run);
}

tn_status tn_ckpt_save(const char *run, const tn_ckpt_what *what)
{
    tn_status s = TN_OK;
    bool made = false;
    char name[TN_CKPT_NAME], old[TN_CKPT_NAME + 8], path[TN_PATH_BYTES], temp[TN_PATH_BYTES], aside[TN_PATH_BYTES],
        text[1024];
    tn_ckpt_name(what->state->step, name);
    snprintf(old, sizeof old, "old-%s", name);
    TN_TRY(tn_path_join(run, name, path, sizeof path));
    TN_TRY(free_name(run, name, 1 + what->failed, temp));
    TN_TRY(free_name(run, old, 1 + what->failed, aside));
    if (mkdir(temp, 0777) != 0) TN_TRY(tn_fs_error(TN_DISK, errno, "create directory", temp));
    made = true;
    TN_TRY(write_all(temp, what));
    TN_TRY(read_back(temp));
    TN_TRY(take_name(run, temp, path, aside));
    made = false;
    TN_TRY(tn__ckpt_point(run, "latest", what->state->step));
done:
    if (s == TN_OK) return s;
    snprintf(text, sizeof text, "%s", tn_error_text());
    if (made && tn_run_part_remove(temp, "step-0/") != TN_OK)
        s = tn_error(s, "%s", text); /* the first error is the one to tell */
    tn_error_prefix("checkpoint %s", name);
    return s;
}

static uint64_t bytes_of(const item_list *l)
{
    uint64_t n = 0;
    for (size_t i = 0; i < l->n; i++) n += (uint64_t)tn_dims_count(l->item[i].dims) * tn_dtype_bytes(l->item[i].dtype);
    return n;
}

tn_status tn_ckpt_bytes(const tn_ckpt_what *what, uint64_t *bytes)
{
    tn_status s = TN_OK;
    item_list all = { 0 };
    TN_TRY(list_model(what, &all));
    TN_TRY(list_state(what, &all));
    *bytes = bytes_of(&all);
done:
    tn_free(all.item);
    return s;
}
