/* Loads weights. The order is that of the store: a file may have its tensors in any other. */
#include "train/run/weights_load.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "train/run/checkpoint_convert.h"

#include <string.h>

enum { PART = 1 << 20 }; /* numbers: 8 MB at most are held besides the store */

tn_matrices tn_weights_matrices(const struct tn_tensors *t)
{
    tn_matrices m = { .type = TN_DTYPES };
    for (size_t i = 0; i < t->n; i++) {
        const tn_file_tensor *x = &t->tensor[i];
        if (x->dims.rank < 2 || !tn_dtype_is_float(x->dtype)) continue;
        m.numbers += (double)tn_dims_count(x->dims);
        m.expanded |= t->gguf && tn_gguf_model_blocks(x);
        m.type = m.type == TN_DTYPES || m.type == x->dtype ? x->dtype : TN_F32;
    }
    if (m.type == TN_DTYPES || m.type == TN_F64) m.type = TN_F32;
    if (m.expanded) m.type = TN_BF16;
    return m;
}

/* Numbers at .. at+n-1 of t; `aligned` has room for PART of the widest type, as files promise no alignment. */
static tn_status move_part(const tn_tensors *f, const tn_store *st, const tn_entry *e, const tn_file_tensor *t,
                           int64_t at, int64_t n, void *aligned)
{
    if (f->gguf) {
        tn_gguf_model_read(f->gguf, t, at, n, aligned);
        return tn_store_put(st, e, at, n, aligned, TN_F32);
    }
    const size_t item = tn_dtype_bytes(t->dtype), bytes = (size_t)n * item;
    const unsigned char *from = (const unsigned char *)t->data + (size_t)at * item;
    const bool as_it_is = t->dtype == e->dtype; /* bytes are copied, wherever they lie */
    if (!as_it_is) memcpy(aligned, from, bytes);
    const tn_status s = tn_store_put(st, e, at, n, as_it_is ? (const void *)from : aligned, t->dtype);
    tn_give_back(from, bytes);
    return s;
}

static tn_status move_tensor(const tn_tensors *f, const tn_store *st, const tn_entry *e, const tn_file_tensor *t,
                             void *aligned)
{
    const int64_t count = tn_dims_count(e->dims);
    for (int64_t at = 0; at < count; at += PART)
        TN_RETURN_IF(move_part(f, st, e, t, at, count - at < PART ? count - at : PART, aligned));
    return TN_OK;
}

static tn_status find_tensor(const tn_tensors *f, const tn_entry *e, const tn_file_tensor **out)
{
    char has[128], wants[128];
    const tn_file_tensor *t = tn_tensors_find(f, e->name);
    if (!t)
        return tn_error(TN_BAD_FILE, "tensor %.200s is missing: it belongs to another model or other settings",
                        e->name);
    if (!tn_dtype_is_float(t->dtype) || !tn_dims_equal(t->dims, e->dims))
        return tn_error(
            TN_BAD_FILE,
            "%.200s is %s %s in the file and %s in the model: it belongs to another model or other settings", e->name,
            tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has),
            tn_dims_text(e->dims, wants, sizeof wants));
    *out = t;
    return TN_OK;
}

tn_status tn_weights_load(const char *path, tn_store *store, char note[TN_CKPT_NOTE])
{
    tn_status s = TN_OK;
    tn_tensors f = { 0 };
    const tn_file_tensor *t = NULL;
    void *aligned = tn_alloc(PART * sizeof(double));
    if (!aligned) TN_TRY(TN_MEMORY);
    TN_TRY(tn_tensors_open(path, &f));
    for (int move = 0; move < 2; move++)
        for (size_t i = 0; i < tn_store_count(store); i++) {
            const tn_entry *e = tn_store_at(store, i);
            if (!e->weight) continue;
            TN_TRY(find_tensor(&f, e, &t));
            if (move) TN_TRY(move_tensor(&f, store, e, t, aligned));
        }
    memcpy(note, f.note, sizeof f.note);
done:
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), path)) tn_error_prefix("%.300s", path);
    tn_tensors_close(&f);
    tn_free(aligned);
    return s;
}
