/* Reads the header of a GGUF file. Everything in it is untrusted: what is read next is compared with the bytes that are left,
 * and counts with the least that so many entries take, before anything is allocated for them. */
#include "io/gguf.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/lfs.h"

#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF data is little-endian, and so must the machine be"
#endif

enum { HEADER = 24, LEAST_KEY = 8 + 4 + 1, LEAST_TENSOR = 8 + 4 + 8 + 4 + 8, ALIGNMENT = 32 };

struct tn_gguf {
    char *path;
    tn_map map; /* empty for borrowed memory */
    tn_arena arena;
    tn_gguf_value *values;          /* (keys) */
    tn_gguf_tensor *tensors;        /* (count) */
    const tn_gguf_value **by_key;   /* (keys) */
    const tn_gguf_tensor **by_name; /* (count) */
    size_t keys, count;
    const unsigned char *at, *end; /* what has not been read */
    size_t total;                  /* bytes of the file */
};

#define BAD(f, fmt, ...)                                                                                               \
    tn_error(TN_BAD_FILE, "%.300s: " fmt "; the file is damaged or not GGUF", (f)->path, __VA_ARGS__)
#define BAD_KEY(f, key, fmt, ...) BAD(f, "key \"%s\"" fmt, tn_gguf_show(key).text, __VA_ARGS__)
#define BAD_TENSOR(f, name, fmt, ...) BAD(f, "tensor \"%s\"" fmt, tn_gguf_show(name).text, __VA_ARGS__)

static const struct kind {
    const char *name;
    size_t bytes; /* 0: texts and lists */
} kinds[TN_GGUF_KINDS] = {
    [TN_GGUF_U8] = { "u8", 1 },     [TN_GGUF_I8] = { "i8", 1 },     [TN_GGUF_U16] = { "u16", 2 },
    [TN_GGUF_I16] = { "i16", 2 },   [TN_GGUF_U32] = { "u32", 4 },   [TN_GGUF_I32] = { "i32", 4 },
    [TN_GGUF_F32] = { "f32", 4 },   [TN_GGUF_BOOL] = { "bool", 1 }, [TN_GGUF_TEXT] = { "text", 0 },
    [TN_GGUF_LIST] = { "list", 0 }, [TN_GGUF_U64] = { "u64", 8 },   [TN_GGUF_I64] = { "i64", 8 },
    [TN_GGUF_F64] = { "f64", 8 },
};

tn_gguf_shown tn_gguf_show(tn_gguf_text t)
{
    tn_gguf_shown r;
    size_t i = 0;
    for (; i < t.bytes && i < sizeof r.text - 4; i++)
        r.text[i] = t.data[i] >= ' ' && t.data[i] <= '~' ? t.data[i] : '?';
    if (i < t.bytes) memcpy(r.text + i, "...", 4);
    else r.text[i] = 0;
    return r;
}

bool tn_gguf_text_is(tn_gguf_text t, const char *s)
{
    return t.bytes == strlen(s) && (t.bytes == 0 || memcmp(t.data, s, t.bytes) == 0);
}

/* --- pieces ------------------------------------------------------------------------------------------------------------ */

static size_t left(const tn_gguf *f) { return (size_t)(f->end - f->at); }

static tn_status read_u32(tn_gguf *f, const char *what, uint32_t *out)
{
    if (left(f) < 4) return BAD(f, "it ends after %zu bytes, within %s", f->total, what);
    memcpy(out, f->at, 4);
    f->at += 4;
    return TN_OK;
}

static tn_status read_u64(tn_gguf *f, const char *what, uint64_t *out)
{
    if (left(f) < 8) return BAD(f, "it ends after %zu bytes, within %s", f->total, what);
    memcpy(out, f->at, 8);
    f->at += 8;
    return TN_OK;
}

static tn_status read_text(tn_gguf *f, const char *what, size_t most, tn_gguf_text *out)
{
    uint64_t n = 0;
    TN_RETURN_IF(read_u64(f, what, &n));
    if (n > left(f)) return BAD(f, "%s would have %llu bytes, and %zu are left", what, (unsigned long long)n, left(f));
    if (n > most) return BAD(f, "%s has %llu bytes and at most %zu are allowed", what, (unsigned long long)n, most);
    *out = (tn_gguf_text){ (const char *)f->at, (size_t)n };
    f->at += n;
    return TN_OK;
}

/* --- keys -------------------------------------------------------------------------------------------------------------- */

/* The items of v, of which only count and kind are known yet. */
static tn_status read_items(tn_gguf *f, tn_gguf_value *v)
{
    const size_t item = kinds[v->kind].bytes, least = item ? item : 8;
    v->data = f->at;
    if (v->count > left(f) / least)
        return BAD_KEY(f, v->key, ": %llu items of %s take more than the %zu bytes that are left",
                       (unsigned long long)v->count, kinds[v->kind].name, left(f));
    if (item) f->at += v->count * item;
    else
        for (uint64_t i = 0; i < v->count; i++) {
            tn_gguf_text unused;
            TN_RETURN_IF(read_text(f, "a text of the metadata", SIZE_MAX, &unused));
        }
    v->bytes = (size_t)(f->at - v->data);
    for (size_t i = 0; v->kind == TN_GGUF_BOOL && i < v->bytes; i++)
        if (v->data[i] > 1) return BAD_KEY(f, v->key, ": %u is no bool", v->data[i]);
    return TN_OK;
}

static tn_status read_value(tn_gguf *f, tn_gguf_value *v)
{
    uint32_t kind = 0;
    v->count = 1;
    TN_RETURN_IF(read_text(f, "a key", TN_GGUF_NAME_MAX, &v->key));
    TN_RETURN_IF(read_u32(f, "a key's type", &kind));
    if (kind == TN_GGUF_LIST) {
        v->is_list = true;
        TN_RETURN_IF(read_u32(f, "a list's type", &kind));
        TN_RETURN_IF(read_u64(f, "a list's length", &v->count));
        if (kind == TN_GGUF_LIST) return BAD_KEY(f, v->key, " is a list of %s", "lists, which nobody writes");
    }
    if (kind >= TN_GGUF_KINDS) return BAD_KEY(f, v->key, " has the unknown type %u", kind);
    v->kind = (tn_gguf_kind)kind;
    return read_items(f, v);
}

static int compare(tn_gguf_text a, tn_gguf_text b)
{
    const size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
    const int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int by_key(const void *a, const void *b)
{
    return compare((*(const tn_gguf_value *const *)a)->key, (*(const tn_gguf_value *const *)b)->key);
}

static tn_status read_keys(tn_gguf *f, uint64_t n)
{
    if (n > TN_GGUF_KEYS_MAX)
        return BAD(f, "%llu keys are more than the %d allowed", (unsigned long long)n, TN_GGUF_KEYS_MAX);
    if (n > left(f) / LEAST_KEY)
        return BAD(f, "%llu keys take more than the %zu bytes that are left", (unsigned long long)n, left(f));
    f->values = tn_alloc((size_t)(n + 1) * sizeof *f->values);
    f->by_key = tn_alloc((size_t)(n + 1) * sizeof *f->by_key);
    if (!f->values || !f->by_key) return TN_MEMORY;
    for (; f->keys < n; f->keys++) {
        TN_RETURN_IF(read_value(f, &f->values[f->keys]));
        f->by_key[f->keys] = &f->values[f->keys];
    }
    if (n) qsort(f->by_key, f->keys, sizeof *f->by_key, by_key);
    for (size_t i = 1; i < f->keys; i++)
        if (by_key(&f->by_key[i - 1], &f->by_key[i]) == 0) return BAD_KEY(f, f->by_key[i]->key, " appears %s", "twice");
    return TN_OK;
}

/* --- tensors ----------------------------------------------------------------------------------------------------------- */

static tn_status read_dims(tn_gguf *f, tn_gguf_tensor *t)
{
    uint32_t rank = 0;
    uint64_t dim = 0;
    TN_RETURN_IF(read_u32(f, "a tensor's rank", &rank));
    if (rank < 1 || rank > TN_GGUF_RANK_MAX)
        return BAD_TENSOR(f, t->name, " has %u dimensions, outside 1 to %d", rank, TN_GGUF_RANK_MAX);
    t->dims.rank = (int)rank;
    for (uint32_t i = rank; i--;) {
        TN_RETURN_IF(read_u64(f, "a tensor's dimensions", &dim));
        if (dim < 1 || dim > INT64_MAX)
            return BAD_TENSOR(f, t->name, ": dimension %u is %llu", rank - 1 - i, (unsigned long long)dim);
        t->dims.dim[i] = (int64_t)dim;
    }
    return TN_OK;
}

static tn_status read_type(tn_gguf *f, tn_gguf_tensor *t)
{
    uint32_t id = 0;
    size_t values = 1;
    TN_RETURN_IF(read_u32(f, "a tensor's type", &id));
    if (!(t->type = tn_gguf_type_of(id)))
        return tn_error(
            TN_BAD_FILE,
            "%.300s: tensor \"%s\" has the number type %u (%s), which is not supported: use a file with F32, "
            "F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K",
            f->path, tn_gguf_show(t->name).text, id, tn_gguf_type_name(id));
    const int64_t row = t->dims.dim[t->dims.rank - 1];
    if (row % t->type->values)
        return BAD_TENSOR(f, t->name, ": rows of %lld numbers are no whole blocks of %d (%s)", (long long)row,
                          t->type->values, t->type->name);
    for (int i = 0; i < t->dims.rank; i++)
        if (!tn_mul_ok(values, (size_t)t->dims.dim[i], &values) || values > INT64_MAX / 4)
            return BAD_TENSOR(f, t->name, ": the size of its shape overflows (%s)", t->type->name);
    t->bytes = values / (size_t)t->type->values; /* blocks; bytes of a value are at most 4 */
    t->bytes *= (size_t)t->type->bytes;
    return TN_OK;
}

static int by_name(const void *a, const void *b)
{
    return compare((*(const tn_gguf_tensor *const *)a)->name, (*(const tn_gguf_tensor *const *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const tn_gguf_tensor *x = *(const tn_gguf_tensor *const *)a, *y = *(const tn_gguf_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

/* Sorts the list by place, then by name, as which it stays. */
static tn_status check_tensors(tn_gguf *f)
{
    const tn_gguf_tensor **list = f->by_name;
    if (f->count < 2) return TN_OK;
    qsort(list, f->count, sizeof *list, by_place);
    for (size_t i = 1; i < f->count; i++)
        if (list[i - 1]->bytes > (size_t)(list[i]->data - list[i - 1]->data))
            return BAD_TENSOR(f, list[i]->name, " overlaps \"%s\"", tn_gguf_show(list[i - 1]->name).text);
    qsort(list, f->count, sizeof *list, by_name);
    for (size_t i = 1; i < f->count; i++)
        if (by_name(&list[i - 1], &list[i]) == 0) return BAD_TENSOR(f, list[i]->name, " appears %s", "twice");
    return TN_OK;
}

/* Until the table has been read, nobody knows where the data begins: `offsets` (count) waits for that. */
static tn_status place_tensors(tn_gguf *f, const unsigned char *file, uint64_t alignment, const uint64_t *offsets)
{
    const size_t head = (size_t)(f->at - file), pad = (size_t)(-(uint64_t)head & (alignment - 1));
    const size_t room = left(f) > pad ? left(f) - pad : 0; /* for data */
    for (size_t i = 0; i < f->count; i++) {
        tn_gguf_tensor *t = &f->tensors[i];
        if (offsets[i] & (alignment - 1))
            return BAD_TENSOR(f, t->name, ": its offset %llu is no multiple of the alignment %llu",
                              (unsigned long long)offsets[i], (unsigned long long)alignment);
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return BAD_TENSOR(f, t->name, " has %zu bytes at offset %llu, outside the %zu bytes of data", t->bytes,
                              (unsigned long long)offsets[i], room);
        t->data = f->at + pad + offsets[i];
    }
    return check_tensors(f);
}

static tn_status find_alignment(const tn_gguf *f, uint64_t *out)
{
    int64_t x = ALIGNMENT;
    if (tn_gguf_key(f, "general.alignment")) TN_RETURN_IF(tn_gguf_integer(f, "general.alignment", &x));
    if (x < 1 || x > 1 << 30 || (x & (x - 1)))
        return BAD(f, "general.alignment is %lld, no power of two up to 2^30", (long long)x);
    *out = (uint64_t)x;
    return TN_OK;
}

static tn_status read_tensors(tn_gguf *f, const unsigned char *file, uint64_t n)
{
    tn_status s = TN_OK;
    uint64_t alignment = ALIGNMENT, *offsets = NULL;
    TN_TRY(find_alignment(f, &alignment));
    if (n > left(f) / LEAST_TENSOR)
        TN_TRY(BAD(f, "%llu tensors take more than the %zu bytes that are left", (unsigned long long)n, left(f)));
    f->tensors = tn_alloc((size_t)(n + 1) * sizeof *f->tensors);
    f->by_name = tn_alloc((size_t)(n + 1) * sizeof *f->by_name);
    offsets = tn_alloc((size_t)(n + 1) * sizeof *offsets);
    if (!f->tensors || !f->by_name || !offsets) TN_TRY(TN_MEMORY);
    for (; f->count < n; f->count++) {
        tn_gguf_tensor *t = &f->tensors[f->count];
        f->by_name[f->count] = t;
        TN_TRY(read_text(f, "a tensor's name", TN_GGUF_NAME_MAX, &t->name));
        TN_TRY(read_dims(f, t));
        TN_TRY(read_type(f, t));
        TN_TRY(read_u64(f, "a tensor's offset", &offsets[f->count]));
    }
    TN_TRY(place_tensors(f, file, alignment, offsets));
done:
    tn_free(offsets);
    return s;
}

/* --- all of it --------------------------------------------------------------------------------------------------------- */

static tn_status read_file(tn_gguf *f, const unsigned char *p, size_t bytes)
{
    uint32_t version = 0;
    uint64_t tensors = 0, keys = 0;
    f->at = p;
    f->end = p + bytes;
    f->total = bytes;
    if (bytes < HEADER) return BAD(f, "%zu bytes cannot hold a header", bytes);
    if (tn_is_lfs_pointer(p, bytes)) return BAD(f, "%s", TN_LFS_REMEDY);
    if (memcmp(p, "GGUF", 4) != 0) return BAD(f, "it does not begin with \"%s\"", "GGUF");
    f->at += 4;
    TN_RETURN_IF(read_u32(f, "the header", &version));
    TN_RETURN_IF(read_u64(f, "the header", &tensors));
    TN_RETURN_IF(read_u64(f, "the header", &keys));
    if (version == 2u << 24 || version == 3u << 24)
        return tn_error(TN_BAD_FILE, "%.300s is a big-endian GGUF file, which is not supported: get the usual one",
                        f->path);
    if (version != 2 && version != 3)
        return tn_error(TN_BAD_FILE, "%.300s has version %u of GGUF, and only 2 and 3 are read: convert it anew",
                        f->path, version);
    if (tensors > TN_GGUF_TENSORS_MAX)
        return BAD(f, "%llu tensors are more than the %d allowed", (unsigned long long)tensors, TN_GGUF_TENSORS_MAX);
    TN_RETURN_IF(read_keys(f, keys));
    return read_tensors(f, p, tensors);
}

static tn_status open_map(tn_map map, bool owned, const char *name, tn_gguf **out)
{
    tn_status s = TN_OK;
    tn_gguf *f = tn_alloc(sizeof *f);
    if (!f) {
        if (owned) tn_file_unmap(&map);
        return TN_MEMORY;
    }
    if (owned) f->map = map;
    if (!(f->path = tn_arena_strdup(&f->arena, name))) TN_TRY(TN_MEMORY);
    TN_TRY(read_file(f, map.data, map.bytes));
    *out = f;
    f = NULL;
done:
    tn_gguf_close(f);
    return s;
}

tn_status tn_gguf_open(const char *path, tn_gguf **out)
{
    tn_map map;
    TN_RETURN_IF(tn_file_map(path, &map));
    return open_map(map, true, path, out);
}

tn_status tn_gguf_open_memory(const void *data, size_t bytes, const char *name, tn_gguf **out)
{
    return open_map((tn_map){ data, bytes }, false, name, out);
}

void tn_gguf_close(tn_gguf *f)
{
    if (!f) return;
    tn_file_unmap(&f->map);
    tn_free(f->values);
    tn_free(f->by_key);
    tn_free(f->tensors);
    tn_free(f->by_name);
    tn_arena_free(&f->arena);
    tn_free(f);
}

/* --- what is in it ----------------------------------------------------------------------------------------------------- */

const char *tn_gguf_path(const tn_gguf *f) { return f->path; }
size_t tn_gguf_count(const tn_gguf *f) { return f->count; }
const tn_gguf_tensor *tn_gguf_at(const tn_gguf *f, size_t i) { return i < f->count ? &f->tensors[i] : NULL; }
size_t tn_gguf_key_count(const tn_gguf *f) { return f->keys; }
const tn_gguf_value *tn_gguf_key_at(const tn_gguf *f, size_t i) { return i < f->keys ? &f->values[i] : NULL; }

const tn_gguf_tensor *tn_gguf_tensor_of(const tn_gguf *f, const char *name)
{
    const tn_gguf_tensor want = { .name = { name, strlen(name) } }, *w = &want;
    const tn_gguf_tensor *const *p = f->count ? bsearch(&w, f->by_name, f->count, sizeof *f->by_name, by_name) : NULL;
    return p ? *p : NULL;
}

const tn_gguf_value *tn_gguf_key(const tn_gguf *f, const char *key)
{
    const tn_gguf_value want = { .key = { key, strlen(key) } }, *w = &want;
    const tn_gguf_value *const *p = f->keys ? bsearch(&w, f->by_key, f->keys, sizeof *f->by_key, by_key) : NULL;
    return p ? *p : NULL;
}

static tn_status find_one(const tn_gguf *f, const char *key, const char *wanted, const tn_gguf_value **out)
{
    const tn_gguf_value *v = tn_gguf_key(f, key);
    if (!v) return tn_error(TN_BAD_FILE, "%.300s has no key \"%.100s\": is it a language model?", f->path, key);
    if (v->is_list)
        return tn_error(TN_BAD_FILE, "%.300s: key \"%.100s\" is a list of %llu, and one %s is supported", f->path, key,
                        (unsigned long long)v->count, wanted);
    *out = v;
    return TN_OK;
}

static tn_status other_kind(const tn_gguf *f, const tn_gguf_value *v, const char *wanted)
{
    return tn_error(TN_BAD_FILE, "%.300s: key \"%s\" is %s, and should be %s", f->path, tn_gguf_show(v->key).text,
                    kinds[v->kind].name, wanted);
}

static int64_t integer_at(const tn_gguf_value *v, uint64_t i)
{
    uint64_t x = 0;
    const size_t bytes = kinds[v->kind].bytes;
    memcpy(&x, v->data + i * bytes, bytes);
    switch (v->kind) {
    case TN_GGUF_I8: return (int8_t)x;
    case TN_GGUF_I16: return (int16_t)x;
    case TN_GGUF_I32: return (int32_t)x;
    default: return (int64_t)x;
    }
}

double tn_gguf_number_at(const tn_gguf_value *v, uint64_t i)
{
    float single;
    double wide;
    switch (v->kind) {
    case TN_GGUF_F32: memcpy(&single, v->data + 4 * i, 4); return (double)single;
    case TN_GGUF_F64: memcpy(&wide, v->data + 8 * i, 8); return wide;
    case TN_GGUF_U64: return (double)(uint64_t)integer_at(v, i);
    default: return (double)integer_at(v, i);
    }
}

tn_status tn_gguf_integer(const tn_gguf *f, const char *key, int64_t *out)
{
    const tn_gguf_value *v = NULL;
    TN_RETURN_IF(find_one(f, key, "integer", &v));
    if (v->kind == TN_GGUF_F32 || v->kind == TN_GGUF_F64 || v->kind == TN_GGUF_TEXT)
        return other_kind(f, v, "an integer");
    const int64_t x = integer_at(v, 0);
    if (v->kind == TN_GGUF_U64 && x < 0)
        return BAD_KEY(f, v->key, " is %llu, beyond 2^63", (unsigned long long)(uint64_t)x);
    *out = x;
    return TN_OK;
}

tn_status tn_gguf_float(const tn_gguf *f, const char *key, double *out)
{
    const tn_gguf_value *v = NULL;
    TN_RETURN_IF(find_one(f, key, "float", &v));
    if (v->kind != TN_GGUF_F32 && v->kind != TN_GGUF_F64) return other_kind(f, v, "a float");
    *out = tn_gguf_number_at(v, 0);
    return TN_OK;
}

static tn_gguf_text text_at(const unsigned char *p)
{
    uint64_t n = 0;
    memcpy(&n, p, 8);
    return (tn_gguf_text){ (const char *)p + 8, (size_t)n };
}

tn_status tn_gguf_text_of(const tn_gguf *f, const char *key, tn_gguf_text *out)
{
    const tn_gguf_value *v = NULL;
    TN_RETURN_IF(find_one(f, key, "text", &v));
    if (v->kind != TN_GGUF_TEXT) return other_kind(f, v, "a text");
    *out = text_at(v->data);
    return TN_OK;
}

bool tn_gguf_text_next(const tn_gguf_value *v, size_t *at, tn_gguf_text *out)
{
    if (v->kind != TN_GGUF_TEXT || *at >= v->bytes) return false;
    *out = text_at(v->data + *at);
    *at += 8 + out->bytes;
    return true;
}
