/* Loads a checkpoint. Sizes, checksums, names and shapes are checked before the store is touched. */
#include "train/checkpoint/checkpoint.h"

#include "base/alloc.h"
#include "io/tensor_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static tn_status verify_file(const char *dir, const char *name, const json_t *v)
{
    char path[TN_PATH_BYTES], hash[TN_HASH_BYTES];
    struct stat st;
    const long long bytes = json_integer_value(json_object_get(v, "bytes"));
    TN_RETURN_IF(tn_path_join(dir, name, path, sizeof path));
    if (stat(path, &st) != 0) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    if (st.st_size != bytes)
        return tn_error(TN_BAD_FILE,
                        "%.640s is damaged: it has %lld bytes, its manifest says %lld; use another checkpoint", path,
                        (long long)st.st_size, bytes);
    TN_RETURN_IF(tn_hash_file(path, hash));
    if (strcmp(hash, json_string_value(json_object_get(v, "xxh3"))) != 0)
        return tn_error(TN_BAD_FILE,
                        "%.640s is damaged: its checksum differs from its manifest; use another checkpoint", path);
    return TN_OK;
}

bool tn__ckpt_id_read(const char *path, tn_ckpt_id *out)
{
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *out = (tn_ckpt_id){ (uint64_t)st.st_dev, (uint64_t)st.st_ino };
    return true;
}

bool tn__ckpt_gone(const char *path, const tn_ckpt_id *was)
{
    tn_ckpt_id now;
    return !tn__ckpt_id_read(path, &now) || now.dev != was->dev || now.ino != was->ino;
}

static tn_status verify_once(const char *path)
{
    tn_status s = TN_OK;
    const char *name;
    json_t *manifest = NULL, *v;
    TN_TRY(tn_ckpt_read_manifest(path, &manifest));
    json_object_foreach(json_object_get(manifest, "files"), name, v) TN_TRY(verify_file(path, name, v));
done:
    json_decref(manifest);
    return s;
}

tn_status tn_ckpt_verify(const char *path)
{
    enum { TRIES = 20 };
    tn_ckpt_id was;
    for (int i = 0; i < TRIES; i++) { /* once, unless it is replaced meanwhile by another of its name */
        const bool seen = tn__ckpt_id_read(path, &was);
        const tn_status s = verify_once(path);
        if (s != TN_BAD_FILE || !seen || !tn__ckpt_gone(path, &was)) return s;
    }
    return tn_error(TN_BAD_FILE, "%.640s was removed while it was read: another process works on this run; try again",
                    path);
}

tn_status tn_ckpt_tensors_path(const char *path, const char *which, char out[TN_PATH_BYTES])
{
    char name[64];
    struct stat st;
    snprintf(name, sizeof name, "%s.safetensors.zst", which);
    TN_RETURN_IF(tn_path_join(path, name, out, TN_PATH_BYTES));
    if (stat(out, &st) == 0) return TN_OK;
    snprintf(name, sizeof name, "%s.safetensors", which);
    return tn_path_join(path, name, out, TN_PATH_BYTES);
}

/* A packed file can hold no more than the store has room for, and its header. */
static uint64_t most_bytes(const tn_store *st, const tn_guard *guard)
{
    uint64_t n = TN_SAFETENSORS_HEADER_MAX + (guard ? (uint64_t)tn_guard_bytes(guard) : 0);
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        n += 8 * (uint64_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype);
    }
    return n;
}

static tn_status open_part(const char *dir, const char *which, const tn_store *st, const tn_guard *guard,
                           tn_tensor_file *f)
{
    char path[TN_PATH_BYTES];
    TN_RETURN_IF(tn_ckpt_tensors_path(dir, which, path));
    return tn_tensor_file_open(path, most_bytes(st, guard), f);
}

/* Frozen matrices have the type of the device that they are on (frozen=auto), and a run may go on elsewhere. */
static bool is_converted(const tn_entry *e, const tn_file_tensor *t)
{
    return e->role == TN_ROLE_FROZEN && t->dtype != e->dtype && tn_dtype_is_float(t->dtype) &&
           tn_dtype_is_float(e->dtype) && tn_dims_equal(t->dims, e->dims);
}

/* One tensor into `to` in the store (st NULL: the host's memory); with to = NULL it is only looked at. */
static tn_status take(const tn_tensor_file *f, const tn_store *st, const char *lead, const char *name, tn_dtype dtype,
                      tn_dims dims, void *to)
{
    char whole[TN_SAFETENSORS_NAME_MAX + 16], has[128], wants[128];
    const tn_file_tensor *t;
    snprintf(whole, sizeof whole, "%s%s", lead, name);
    TN_RETURN_IF(tn_safetensors_find(f->tensors, whole, &t));
    if (t->dtype != dtype || !tn_dims_equal(t->dims, dims))
        return tn_error(TN_BAD_FILE,
                        "the checkpoint's %.200s is %s %s and the model's is %s %s: it belongs to another model", whole,
                        tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has), tn_dtype_name(dtype),
                        tn_dims_text(dims, wants, sizeof wants));
    if (to && st) return tn_store_write(st, to, t->data, t->bytes);
    if (to) memcpy(to, t->data, t->bytes);
    return TN_OK;
}

static tn_status take_params(const tn_tensor_file *f, const tn_store *st, bool copy)
{
    size_t n = 0;
    const tn_file_tensor *t;
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (!e->weight) continue;
        n++;
        TN_RETURN_IF(tn_safetensors_find(f->tensors, e->name, &t));
        if (!is_converted(e, t)) TN_RETURN_IF(take(f, st, "", e->name, e->dtype, e->dims, copy ? e->data : NULL));
        else if (copy) TN_RETURN_IF(tn_store_take_floats(st, e, t));
    }
    if (n != tn_safetensors_count(f->tensors))
        return tn_error(TN_BAD_FILE, "the checkpoint has %zu parameters and the model %zu: it belongs to another model",
                        tn_safetensors_count(f->tensors), n);
    return TN_OK;
}

static tn_status take_states(const tn_tensor_file *f, const tn_store *st, bool copy)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role == TN_ROLE_STATE)
            TN_RETURN_IF(take(f, st, "state.", e->name, e->dtype, e->dims, copy ? e->data : NULL));
        if (e->role != TN_ROLE_PARAM) continue;
        const tn_bucket *b = tn_store_bucket(st, e->bucket);
        if (b->m) TN_RETURN_IF(take(f, st, "moment1.", e->name, TN_F32, e->dims, copy ? b->m + e->offset : NULL));
        if (b->v) TN_RETURN_IF(take(f, st, "moment2.", e->name, TN_F32, e->dims, copy ? b->v + e->offset : NULL));
    }
    return TN_OK;
}

static tn_status take_snapshot(const tn_tensor_file *f, const tn_guard *guard, bool copy)
{
    for (size_t i = 0; i < tn_guard_parts(guard); i++) {
        char number[24];
        size_t bytes;
        void *data = tn_guard_part(guard, i, &bytes);
        snprintf(number, sizeof number, "%zu", i);
        TN_RETURN_IF(take(f, NULL, "rollback.", number, TN_U8, tn_shape((int64_t)bytes), copy ? data : NULL));
    }
    return TN_OK;
}

tn_status tn_ckpt_load(const char *path, tn_store *store, tn_guard *guard, tn_ckpt_state *out)
{
    tn_status s = TN_OK;
    tn_tensor_file model = { 0 }, state = { 0 };
    tn_ckpt_state st = { 0 };
    TN_TRY(tn_ckpt_verify(path));
    TN_TRY(tn_ckpt_read_state(path, &st));
    TN_TRY(open_part(path, "model", store, guard, &model));
    TN_TRY(open_part(path, "state", store, guard, &state));
    const bool snapshot = guard && tn_guard_parts(guard) && tn_safetensors_has(state.tensors, "rollback.0");
    for (int copy = 0; copy < 2; copy++) { /* all checks before the first byte moves */
        TN_TRY(take_params(&model, store, copy));
        TN_TRY(take_states(&state, store, copy));
        if (snapshot) TN_TRY(take_snapshot(&state, guard, copy));
    }
    if (guard) TN_TRY(tn_guard_resume(guard, &st.guard, snapshot, st.step));
    *out = st;
    st.cursor = NULL;
done:
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.300s", path);
    tn_ckpt_state_free(&st);
    tn_tensor_file_close(&model);
    tn_tensor_file_close(&state);
    return s;
}

/* --- weights alone --------------------------------------------------------------------------------------------------- */

tn_status tn_store_take_floats(const tn_store *st, const tn_entry *e, const tn_file_tensor *t)
{
    if (tn_store_device(st) == TN_CPU && e->dtype == TN_F32) return tn_safetensors_copy_f32(t, e->data);
    const int64_t n = tn_dims_count(e->dims);
    float *x = tn_alloc(sizeof *x * (size_t)n + 64);
    if (!x) return TN_MEMORY;
    tn_status s = tn_safetensors_copy_f32(t, x);
    if (s == TN_OK) s = tn_store_put(st, e, 0, n, x, TN_F32);
    tn_free(x);
    return s;
}

static tn_status take_any_float(const tn_tensor_file *f, const tn_store *st, bool copy)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        const tn_file_tensor *t;
        char has[128], wants[128];
        if (!e->weight) continue;
        TN_RETURN_IF(tn_safetensors_find(f->tensors, e->name, &t));
        if (!tn_dtype_is_float(t->dtype) || !tn_dims_equal(t->dims, e->dims))
            return tn_error(TN_BAD_FILE, "%.200s is %s %s in the file and %s in the model: it belongs to another model",
                            e->name, tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has),
                            tn_dims_text(e->dims, wants, sizeof wants));
        if (copy) TN_RETURN_IF(tn_store_take_floats(st, e, t));
    }
    return TN_OK;
}

static tn_status load_found(const char *found, bool is_file, tn_store *store)
{
    tn_status s = TN_OK;
    tn_tensor_file f = { 0 };
    if (is_file) TN_TRY(tn_tensor_file_open(found, most_bytes(store, NULL), &f));
    else {
        TN_TRY(tn_ckpt_verify(found));
        TN_TRY(open_part(found, "model", store, NULL, &f));
    }
    TN_TRY(take_any_float(&f, store, false));
    TN_TRY(take_any_float(&f, store, true));
done:
    tn_tensor_file_close(&f);
    return s;
}

tn_status tn_ckpt_load_weights(const char *path, tn_store *store, char note[TN_CKPT_NOTE])
{
    char found[TN_PATH_BYTES];
    bool is_file;
    tn_status s = tn_ckpt_resolve(path, "best", found, &is_file, note);
    tn_ckpt_id seen = s == TN_OK ? tn_ckpt_id_of(found) : (tn_ckpt_id){ 0 };
    if (s == TN_OK) do
            s = load_found(found, is_file, store);
        while (s == TN_BAD_FILE && tn_ckpt_replaced(path, "best", found, &seen));
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.300s", path);
    return s;
}
