/* Loads weights. The order is that of the store: a file may have its tensors in any other. */
#include "train/run/weights_load.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "train/run/checkpoint_convert.h"

#include <string.h>

enum { PART = 1 << 20 }; /* numbers: 8 MB at most are held besides the store */

/* The type of all pieces, TN_F32 where they differ; false: some are in blocks. */
static bool type_of(const tn_tensors *t, const tn_file_tensor *x, tn_dtype *type)
{
    tn_tensor_piece piece[TN_PIECES];
    const int n = tn_tensors_pieces(t, x, piece);
    bool plain = true;
    *type = x->dtype;
    for (int i = 0; i < n; i++) {
        plain &= piece[i].dtype != TN_DTYPES;
        if (piece[i].dtype != *type) *type = TN_F32;
    }
    return plain;
}

tn_matrices tn_weights_matrices(const struct tn_tensors *t)
{
    tn_matrices m = { .type = TN_DTYPES };
    for (size_t i = 0; i < t->n; i++) {
        const tn_file_tensor *x = &t->tensor[i];
        tn_dtype type;
        if (x->dims.rank < 2 || !tn_dtype_is_float(x->dtype)) continue;
        m.numbers += (double)tn_dims_count(x->dims);
        m.expanded |= !type_of(t, x, &type);
        m.type = m.type == TN_DTYPES || m.type == type ? type : TN_F32;
    }
    if (m.type == TN_DTYPES || m.type == TN_F64) m.type = TN_F32;
    if (m.expanded) m.type = TN_BF16;
    return m;
}

typedef struct loading {
    const tn_tensors *file;
    const tn_store *store;
    void *aligned; /* room for PART numbers of the widest type: files promise no alignment */
} loading;

/* n numbers from `at` of a piece, which begins at number `first` of e. */
static tn_status move_part(const loading *l, const tn_entry *e, const tn_file_tensor *t, const tn_tensor_piece *piece,
                           int64_t first, int64_t at, int64_t n)
{
    if (piece->dtype == TN_DTYPES) {
        TN_RETURN_IF(tn_tensors_read(l->file, t, first + at, n, l->aligned));
        return tn_store_put(l->store, e, first + at, n, l->aligned, TN_F32);
    }
    const size_t item = tn_dtype_bytes(piece->dtype), bytes = (size_t)n * item;
    const unsigned char *from = piece->data + (size_t)at * item;
    const bool as_it_is = piece->dtype == e->dtype; /* bytes are copied, wherever they lie */
    if (!as_it_is) memcpy(l->aligned, from, bytes);
    const tn_status s = tn_store_put(l->store, e, first + at, n, as_it_is ? from : l->aligned, piece->dtype);
    tn_give_back(from, bytes);
    return s;
}

static tn_status move_tensor(const loading *l, const tn_entry *e, const tn_file_tensor *t)
{
    tn_tensor_piece piece[TN_PIECES];
    const int n = tn_tensors_pieces(l->file, t, piece);
    int64_t first = 0;
    for (int i = 0; i < n; first += piece[i++].count)
        for (int64_t at = 0; at < piece[i].count; at += PART) {
            const int64_t left = piece[i].count - at;
            TN_RETURN_IF(move_part(l, e, t, &piece[i], first, at, left < PART ? left : PART));
        }
    return TN_OK;
}

static tn_status find_tensor(const tn_tensors *f, const tn_entry *e, const char *name, const tn_file_tensor **out)
{
    char has[128], wants[128];
    const tn_file_tensor *t = tn_tensors_find(f, name);
    if (!t)
        return tn_error(TN_BAD_FILE, "tensor %.200s is missing: it belongs to another model or other settings", name);
    if (!tn_dtype_is_float(t->dtype) || !tn_dims_equal(t->dims, e->dims))
        return tn_error(
            TN_BAD_FILE,
            "%.200s is %s %s in the file and %s in the model: it belongs to another model or other settings", name,
            tn_dtype_name(t->dtype), tn_dims_text(t->dims, has, sizeof has),
            tn_dims_text(e->dims, wants, sizeof wants));
    *out = t;
    return TN_OK;
}

const char *tn_weights_part_name(const tn_weights_part *p, const tn_entry *e)
{
    const size_t n = p->scope ? strlen(p->scope) : 0;
    if (!e->weight || (p->but && strcmp(e->name, p->but) == 0)) return NULL;
    if (!p->scope) return e->name;
    if (strncmp(e->name, p->scope, n) != 0 || e->name[n] != '.') return NULL;
    return p->own ? e->name : e->name + n + 1;
}

static tn_status load_part(const loading *l, const tn_weights_part *p, bool move)
{
    const tn_file_tensor *t = NULL;
    for (size_t i = 0; i < tn_store_count(l->store); i++) {
        const tn_entry *e = tn_store_at(l->store, i);
        const char *name = tn_weights_part_name(p, e);
        if (!name) continue;
        TN_RETURN_IF(find_tensor(l->file, e, name, &t));
        if (move) TN_RETURN_IF(move_tensor(l, e, t));
    }
    return TN_OK;
}

tn_status tn_weights_load_parts(const tn_weights_part *part, size_t n, tn_store *store, char note[TN_CKPT_NOTE])
{
    tn_status s = TN_OK;
    tn_tensors f[TN_PARTS_MAX] = { 0 };
    size_t at = 0;
    loading l = { .store = store, .aligned = tn_alloc(PART * sizeof(double)) };
    if (!l.aligned) TN_TRY(TN_MEMORY);
    for (at = 0; at < n; at++) TN_TRY(tn_tensors_open(part[at].path, &f[at]));
    for (int move = 0; move < 2; move++)
        for (at = 0; at < n; at++) {
            l.file = &f[at];
            TN_TRY(load_part(&l, &part[at], move));
        }
    note[0] = 0;
    for (at = 0; at < n; at++)
        if (f[at].note[0]) memcpy(note, f[at].note, sizeof f[at].note);
done:
    if (s == TN_BAD_FILE && !strstr(tn_error_text(), part[at].path)) tn_error_prefix("%.300s", part[at].path);
    for (size_t i = 0; i < n; i++) tn_tensors_close(&f[i]);
    tn_free(l.aligned);
    return s;
}

tn_status tn_weights_load(const char *path, tn_store *store, char note[TN_CKPT_NOTE])
{
    return tn_weights_load_parts(&(tn_weights_part){ .path = path }, 1, store, note);
}
