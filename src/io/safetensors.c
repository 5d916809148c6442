/* Reads safetensors files. Everything in a header is untrusted: no size is used before tn_mul_ok or a bound, and no
 * tensor is visible before the whole header has passed. The header is read twice, first for syntax and the number of
 * tensors, so that its tables have the right size. */
#include "io/safetensors_parts.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/json_read.h"
#include "io/lfs.h"

#include <stdlib.h>
#include <string.h>

const tn__safetensors_type tn__safetensors_types[] = {
    { "F32", TN_F32, 4 },     { "BF16", TN_BF16, 2 },      { "F16", TN_F16, 2 },        { "F64", TN_F64, 8 },
    { "I32", TN_I32, 4 },     { "I64", TN_I64, 8 },        { "U8", TN_U8, 1 },          { "I8", TN_DTYPES, 1 },
    { "I16", TN_DTYPES, 2 },  { "U16", TN_DTYPES, 2 },     { "U32", TN_DTYPES, 4 },     { "U64", TN_DTYPES, 8 },
    { "BOOL", TN_DTYPES, 1 }, { "F8_E4M3", TN_DTYPES, 1 }, { "F8_E5M2", TN_DTYPES, 1 }, { NULL, TN_DTYPES, 0 },
};

tn__shown_name tn__shown(const char *name)
{
    tn__shown_name r;
    size_t i = 0;
    for (; name[i] && i < sizeof r.text - 4; i++) r.text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    if (name[i]) memcpy(r.text + i, "...", 4);
    else r.text[i] = 0;
    return r;
}

bool tn__dims_bytes(tn_dims d, size_t item, size_t *bytes)
{
    size_t n = 1;
    for (int i = 0; i < d.rank; i++)
        if (!tn_mul_ok(n, (size_t)d.dim[i], &n) || n > INT64_MAX) return false;
    return tn_mul_ok(n, item, bytes) && *bytes <= INT64_MAX;
}

struct tn_safetensors {
    char *path;
    tn_map map; /* empty for borrowed memory */
    tn_arena arena;
    tn_file_tensor *tensors;        /* (all) the readable ones by offset, then those of other types */
    const tn_file_tensor **by_name; /* (all) */
    tn_text_pair *meta;             /* (meta_count) */
    size_t all, count, meta_count, meta_capacity;
    size_t meta_bytes;         /* of their texts */
    const unsigned char *data; /* (data_bytes) */
    size_t data_bytes;
};

/* What is wrong with a file, one way: "PATH: tensor "NAME": ...". */
#define BAD_TENSOR(f, name, fmt, ...)                                                                                  \
    tn_error(TN_BAD_FILE, "%.300s: tensor \"%s\"" fmt "; the file is damaged or not safetensors", (f)->path,           \
             tn__shown(name).text, __VA_ARGS__)
#define BAD(f, fmt, ...)                                                                                               \
    tn_error(TN_BAD_FILE, "%.300s: " fmt "; the file is damaged or not safetensors", (f)->path, __VA_ARGS__)

static tn_status bad_json(const tn_safetensors *f, const tn_json *r)
{
    return BAD(f, "header line %zu: %s", tn_json_line(r), r->why);
}

/* --- one tensor ------------------------------------------------------------------------------------------------------- */

static tn_status parse_shape(const tn_safetensors *f, tn_json *r, tn_file_tensor *t)
{
    int64_t x = 0;
    size_t rank = 0;
    if (!tn_json_enter(r, '[')) return BAD_TENSOR(f, t->name, " has %s", "no shape list");
    for (; tn_json_item(r); rank++) {
        if (!tn_json_integer(r, &x))
            return r->why ? bad_json(f, r) : BAD_TENSOR(f, t->name, ": dimension %zu is not an integer", rank);
        if (x < 0 || x > TN__DIM_MAX)
            return BAD_TENSOR(f, t->name, ": dimension %zu is %lld, outside 0..2^53", rank, (long long)x);
        if (rank < TN_MAX_RANK) t->dims.dim[rank] = x;
    }
    if (rank > TN_MAX_RANK)
        return tn_error(TN_BAD_FILE,
                        "%.300s: tensor \"%s\" has %zu dimensions and at most %d are supported; reshape it", f->path,
                        tn__shown(t->name).text, rank, TN_MAX_RANK);
    t->dims.rank = (int)rank;
    return TN_OK;
}

static tn_status parse_type(const tn_safetensors *f, tn_json *r, tn_file_tensor *t)
{
    char text[64] = "";
    if (!tn_json_text(r)) return BAD_TENSOR(f, t->name, " has %s", "no dtype text");
    for (size_t i = 0; tn__safetensors_types[i].name; i++)
        if (tn_json_is(r, tn__safetensors_types[i].name)) {
            t->type = (unsigned char)i;
            t->dtype = tn__safetensors_types[i].dtype;
            return TN_OK;
        }
    if (r->bytes < sizeof text) tn_json_copy(r, text);
    return BAD_TENSOR(f, t->name, " has the unknown dtype \"%s\"", tn__shown(text).text);
}

static tn_status parse_offsets(const tn_safetensors *f, tn_json *r, tn_file_tensor *t)
{
    int64_t x[2] = { 0, 0 }, unused;
    size_t n = 0;
    bool whole = tn_json_enter(r, '[');
    if (!whole) (void)tn_json_skip(r);
    else
        for (; tn_json_item(r); n++) whole = tn_json_integer(r, n < 2 ? &x[n] : &unused) && whole;
    if (r->why) return bad_json(f, r);
    if (!whole || n != 2) return BAD_TENSOR(f, t->name, ": data_offsets is not %s", "a list of two integers");
    if (x[0] < 0 || x[1] < x[0] || (uint64_t)x[1] > f->data_bytes)
        return BAD_TENSOR(f, t->name, ": data_offsets [%lld,%lld] lie outside the %zu bytes of data", (long long)x[0],
                          (long long)x[1], f->data_bytes);
    t->data = f->data + x[0];
    t->bytes = (size_t)(x[1] - x[0]);
    return TN_OK;
}

/* The object of a tensor: its three keys, once each. */
static tn_status parse_keys(const tn_safetensors *f, tn_json *r, tn_file_tensor *t)
{
    static const struct {
        const char *key, *missing;
        tn_status (*parse)(const tn_safetensors *f, tn_json *r, tn_file_tensor *t);
    } rows[] = { { "dtype", " has no dtype text", parse_type },
                 { "shape", " has no shape list", parse_shape },
                 { "data_offsets", ": data_offsets is not a list of two integers", parse_offsets } };
    bool seen[3] = { false };
    size_t keys = 0;
    for (const bool is_object = tn_json_enter(r, '{'); is_object && tn_json_key(r); keys++) {
        size_t i = 0;
        while (i < 3 && !tn_json_is(r, rows[i].key)) i++;
        if (i < 3 && seen[i]) return BAD_TENSOR(f, t->name, " has a duplicate \"%s\"", rows[i].key);
        if (i < 3) TN_RETURN_IF(rows[i].parse(f, r, t));
        else (void)tn_json_skip(r);
        if (i < 3) seen[i] = true;
    }
    for (size_t i = 0; i < 3; i++)
        if (!seen[i]) return BAD_TENSOR(f, t->name, "%s", rows[i].missing);
    return keys == 3 ? TN_OK : BAD_TENSOR(f, t->name, " has %zu keys instead of 3", keys);
}

/* The last key or text in the arena. */
static const char *keep_text(tn_safetensors *f, const tn_json *r)
{
    char *p = tn_arena_alloc(&f->arena, r->bytes + 1);
    return p ? tn_json_copy(r, p) : NULL;
}

static tn_status parse_entry(tn_safetensors *f, tn_json *r)
{
    tn_file_tensor *t = &f->tensors[f->all];
    size_t bytes;
    if (r->bytes > TN_SAFETENSORS_NAME_MAX)
        return BAD_TENSOR(f, "...", ": the name has %zu bytes and at most %d are allowed", r->bytes,
                          TN_SAFETENSORS_NAME_MAX);
    if (!(t->name = keep_text(f, r))) return TN_MEMORY;
    TN_RETURN_IF(parse_keys(f, r, t));
    if (!tn__dims_bytes(t->dims, tn__safetensors_types[t->type].bytes, &bytes))
        return BAD_TENSOR(f, t->name, ": the size of its shape overflows (%s)", tn__safetensors_types[t->type].name);
    if (bytes != t->bytes)
        return BAD_TENSOR(f, t->name, " takes %zu bytes by its shape and %zu by its data_offsets", bytes, t->bytes);
    f->all++;
    return TN_OK;
}

/* --- metadata --------------------------------------------------------------------------------------------------------- */

static tn_status parse_meta(tn_safetensors *f, tn_json *r)
{
    if (!tn_json_enter(r, '{')) return BAD(f, "%s is not an object", TN__META);
    while (tn_json_key(r)) {
        void *v = f->meta;
        if (f->meta_count == TN_SAFETENSORS_META_MAX)
            return BAD(f, "%s has more than %d keys", TN__META, TN_SAFETENSORS_META_MAX);
        TN_RETURN_IF(tn_grow(&v, &f->meta_capacity, f->meta_count + 1, sizeof *f->meta));
        f->meta = v;
        tn_text_pair *p = &f->meta[f->meta_count];
        const size_t key_bytes = r->bytes;
        if (key_bytes > TN_SAFETENSORS_META_BYTES - f->meta_bytes)
            return BAD(f, "%s has more than %d bytes of text", TN__META, TN_SAFETENSORS_META_BYTES);
        if (!(p->key = keep_text(f, r))) return TN_MEMORY;
        if (!tn_json_text(r)) return BAD(f, "%s: the value of \"%s\" is not a text", TN__META, tn__shown(p->key).text);
        if (r->bytes > TN_SAFETENSORS_META_BYTES - key_bytes - f->meta_bytes)
            return BAD(f, "%s has more than %d bytes of text", TN__META, TN_SAFETENSORS_META_BYTES);
        if (!(p->value = keep_text(f, r))) return TN_MEMORY;
        f->meta_bytes += key_bytes + r->bytes;
        f->meta_count++;
    }
    return TN_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const tn_text_pair *const *)a)->key, (*(const tn_text_pair *const *)b)->key);
}

static tn_status check_meta(const tn_safetensors *f)
{
    tn_status s = TN_OK;
    if (f->meta_count < 2) return TN_OK;
    const tn_text_pair **sorted = tn_alloc(f->meta_count * sizeof *sorted);
    if (!sorted) return TN_MEMORY;
    for (size_t i = 0; i < f->meta_count; i++) sorted[i] = &f->meta[i];
    qsort(sorted, f->meta_count, sizeof *sorted, by_key);
    for (size_t i = 1; i < f->meta_count && s == TN_OK; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            s = BAD(f, "%s: duplicate key \"%s\"", TN__META, tn__shown(sorted[i]->key).text);
    tn_free(sorted);
    return s;
}

/* --- all of it -------------------------------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const tn_file_tensor *x = a, *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name); /* empty ones */
}

static int by_use(const void *a, const void *b)
{
    const bool x = ((const tn_file_tensor *)a)->dtype == TN_DTYPES, y = ((const tn_file_tensor *)b)->dtype == TN_DTYPES;
    return x != y ? (x ? 1 : -1) : by_offset(a, b);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tn_file_tensor *const *)a)->name, (*(const tn_file_tensor *const *)b)->name);
}

/* The tensors must tile the data: no hole, no overlap, nothing left over. */
static tn_status check_cover(tn_safetensors *f)
{
    size_t at = 0;
    if (f->all) qsort(f->tensors, f->all, sizeof *f->tensors, by_offset);
    for (size_t i = 0; i < f->all; i++) {
        const tn_file_tensor *t = &f->tensors[i];
        const size_t begin = (size_t)((const unsigned char *)t->data - f->data);
        if (begin < at) return BAD_TENSOR(f, t->name, " overlaps \"%s\"", tn__shown(f->tensors[i - 1].name).text);
        if (begin > at) return BAD_TENSOR(f, t->name, " leaves a hole of %zu bytes before it", begin - at);
        at = begin + t->bytes;
        if (t->dtype != TN_DTYPES) f->count++;
    }
    if (at != f->data_bytes) return BAD(f, "the tensors cover %zu of %zu bytes of data", at, f->data_bytes);
    if (f->count < f->all) qsort(f->tensors, f->all, sizeof *f->tensors, by_use);
    return TN_OK;
}

static tn_status make_index(tn_safetensors *f)
{
    if (!(f->by_name = tn_alloc((f->all + 1) * sizeof *f->by_name))) return TN_MEMORY;
    for (size_t i = 0; i < f->all; i++) f->by_name[i] = &f->tensors[i];
    if (f->all) qsort(f->by_name, f->all, sizeof *f->by_name, by_name);
    for (size_t i = 1; i < f->all; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return BAD_TENSOR(f, f->by_name[i]->name, " appears %s: a duplicate name", "twice");
    return TN_OK;
}

/* The syntax of the header, and how many tensors it has. */
static tn_status count_tensors(const tn_safetensors *f, tn_json *r, size_t *n)
{
    size_t metas = 0;
    *n = 0;
    if (tn_json_enter(r, '{'))
        while (tn_json_key(r)) {
            if (tn_json_is(r, TN__META)) metas++;
            else ++*n;
            (void)tn_json_skip(r);
        }
    if (!tn_json_end(r)) return bad_json(f, r);
    if (metas > 1) return BAD(f, "duplicate %s", TN__META);
    if (*n > TN_SAFETENSORS_COUNT_MAX)
        return BAD(f, "%zu tensors are more than the %d allowed", *n, TN_SAFETENSORS_COUNT_MAX);
    return TN_OK;
}

static tn_status parse_header(tn_safetensors *f, const char *text, size_t bytes)
{
    tn_json r;
    size_t n;
    tn_json_open(&r, text, bytes);
    TN_RETURN_IF(count_tensors(f, &r, &n));
    if (!(f->tensors = tn_alloc((n + 1) * sizeof *f->tensors))) return TN_MEMORY;
    tn_json_open(&r, text, bytes);
    (void)tn_json_enter(&r, '{');
    while (tn_json_key(&r)) TN_RETURN_IF(tn_json_is(&r, TN__META) ? parse_meta(f, &r) : parse_entry(f, &r));
    if (r.why) return bad_json(f, &r);
    TN_RETURN_IF(check_meta(f));
    TN_RETURN_IF(check_cover(f));
    return make_index(f);
}

/* Checks the frame (length, brace) and hands the header on. */
static tn_status parse_file(tn_safetensors *f, const unsigned char *p, size_t bytes)
{
    uint64_t header;
    if (bytes < 8) return BAD(f, "%zu bytes cannot hold a header", bytes);
    if (tn_is_lfs_pointer(p, bytes)) return BAD(f, "%s", TN_LFS_REMEDY);
    memcpy(&header, p, 8);
    if (header > TN_SAFETENSORS_HEADER_MAX)
        return BAD(f, "the header would have %llu bytes, more than the %d allowed", (unsigned long long)header,
                   TN_SAFETENSORS_HEADER_MAX);
    if (header > bytes - 8)
        return BAD(f, "the header has %llu bytes and the file ends after %zu", (unsigned long long)header, bytes - 8);
    if (header < 2 || p[8] != '{') return BAD(f, "the header does not begin with '%c'", '{');
    f->data = p + 8 + header;
    f->data_bytes = bytes - 8 - (size_t)header;
    return parse_header(f, (const char *)p + 8, (size_t)header);
}

static tn_status open_map(tn_map map, bool owned, const char *name, tn_safetensors **out)
{
    tn_status s = TN_OK;
    tn_safetensors *f = tn_alloc(sizeof *f);
    if (!f) {
        if (owned) tn_file_unmap(&map);
        return TN_MEMORY;
    }
    if (owned) f->map = map;
    if (!(f->path = tn_arena_strdup(&f->arena, name))) TN_TRY(TN_MEMORY);
    TN_TRY(parse_file(f, map.data, map.bytes));
    *out = f;
    f = NULL;
done:
    tn_safetensors_close(f);
    return s;
}

tn_status tn_safetensors_open(const char *path, tn_safetensors **out)
{
    tn_map map;
    TN_RETURN_IF(tn_file_map(path, &map));
    return open_map(map, true, path, out);
}

tn_status tn_safetensors_open_memory(const void *data, size_t bytes, const char *name, tn_safetensors **out)
{
    return open_map((tn_map){ data, bytes }, false, name, out);
}

void tn_safetensors_close(tn_safetensors *f)
{
    if (!f) return;
    tn_file_unmap(&f->map);
    tn_free(f->tensors);
    tn_free(f->by_name);
    tn_free(f->meta);
    tn_arena_free(&f->arena);
    tn_free(f);
}

size_t tn_safetensors_count(const tn_safetensors *f) { return f->count; }

const tn_file_tensor *tn_safetensors_at(const tn_safetensors *f, size_t i)
{
    return i < f->count ? &f->tensors[i] : NULL;
}

static const tn_file_tensor *lookup(const tn_safetensors *f, const char *name)
{
    const tn_file_tensor key = { .name = name }, *k = &key;
    const tn_file_tensor *const *p = f->all ? bsearch(&k, f->by_name, f->all, sizeof *f->by_name, by_name) : NULL;
    return p ? *p : NULL;
}

bool tn_safetensors_has(const tn_safetensors *f, const char *name)
{
    const tn_file_tensor *t = lookup(f, name);
    return t && t->dtype != TN_DTYPES;
}

tn_status tn_safetensors_find(const tn_safetensors *f, const char *name, const tn_file_tensor **out)
{
    const tn_file_tensor *t = lookup(f, name);
    if (!t)
        return tn_error(TN_BAD_FILE, "%.300s has no tensor \"%s\" among its %zu; is it the right file?", f->path,
                        tn__shown(name).text, f->all);
    if (t->dtype == TN_DTYPES)
        return tn_error(TN_BAD_FILE,
                        "%.300s: tensor \"%s\" is %s, which is not supported; store it as F32, BF16, F16, "
                        "F64, I32, I64 or U8",
                        f->path, tn__shown(name).text, tn__safetensors_types[t->type].name);
    *out = t;
    return TN_OK;
}

size_t tn_safetensors_meta_count(const tn_safetensors *f) { return f->meta_count; }

const tn_text_pair *tn_safetensors_meta_at(const tn_safetensors *f, size_t i)
{
    return i < f->meta_count ? &f->meta[i] : NULL;
}

const char *tn_safetensors_meta(const tn_safetensors *f, const char *key)
{
    for (size_t i = 0; i < f->meta_count; i++)
        if (strcmp(f->meta[i].key, key) == 0) return f->meta[i].value;
    return NULL;
}

tn_status tn_safetensors_copy_f32(const tn_file_tensor *t, float *dst)
{
    enum { STEP = 1024 };
    double aligned[STEP]; /* the widest type; tn_convert reads through typed pointers and needs alignment */
    const unsigned char *src = t->data;
    const size_t item = tn_dtype_bytes(t->dtype);
    if (!tn_dtype_is_float(t->dtype))
        return tn_error(TN_USAGE, "tensor \"%s\" is %s and cannot be read as f32; read its data as it is",
                        tn__shown(t->name).text, tn_dtype_name(t->dtype));
    if (t->dtype == TN_F32) {
        if (t->bytes) memcpy(dst, src, t->bytes);
        return TN_OK;
    }
    for (size_t left = t->bytes / item, k; left; left -= k, dst += k, src += k * item) {
        k = left < STEP ? left : STEP;
        memcpy(aligned, src, k * item);
        tn_convert(dst, TN_F32, aligned, t->dtype, (int64_t)k);
    }
    return TN_OK;
}
