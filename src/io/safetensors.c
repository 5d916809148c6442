/* Reader and writer of safetensors files. Everything in a header is hostile until checked: no size is used in
 * arithmetic before tn_mul_ok or a bound, and no tensor is visible before the whole header has passed. */
#include "io/safetensors.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian, and so must the machine be"
#endif

#define META "__metadata__"
static const int64_t dim_max = (int64_t)1 << 53; /* what every JSON reader holds exactly */

static const struct {
    const char *name;
    tn_dtype dtype; /* TN_DTYPES: its size is known, but nothing here computes with it */
    size_t bytes;
} types[] = {
    { "F32", TN_F32, 4 },     { "BF16", TN_BF16, 2 },   { "F16", TN_F16, 2 },    { "F64", TN_F64, 8 },
    { "I32", TN_I32, 4 },     { "I64", TN_I64, 8 },     { "U8", TN_U8, 1 },      { "I8", TN_DTYPES, 1 },
    { "I16", TN_DTYPES, 2 },  { "U16", TN_DTYPES, 2 },  { "U32", TN_DTYPES, 4 }, { "U64", TN_DTYPES, 8 },
    { "BOOL", TN_DTYPES, 1 }, { "F8_E4M3", TN_DTYPES, 1 }, { "F8_E5M2", TN_DTYPES, 1 },
};
enum { TYPES = sizeof types / sizeof *types };

typedef struct entry {
    tn_file_tensor t;
    size_t type;       /* row of types[] */
    size_t begin, end; /* bytes in the data */
    size_t order;      /* in the header: makes the sort a total order */
} entry;

struct tn_safetensors {
    char *path;
    tn_map map; /* empty for borrowed memory */
    tn_arena arena;
    entry *entries; /* (entry_count) by offset */
    tn_file_tensor *tensors;        /* (count) the readable ones, by offset */
    const tn_file_tensor **by_name; /* (count) */
    tn_text_pair *meta;             /* (meta_count) */
    size_t entry_count, count, meta_count;
};

/* A name as a message may show it: a hostile file must not reach the terminal with control bytes. */
typedef struct shown {
    char text[96];
} shown;

static shown show(const char *name)
{
    shown r;
    size_t i = 0;
    for (; name[i] && i < sizeof r.text - 4; i++) r.text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    if (name[i]) memcpy(r.text + i, "...", 4);
    else r.text[i] = 0;
    return r;
}

/* Bytes of a shape. Partial products are bounded too: a later 0 must not hide an overflow in tn_dims_count. */
static bool dims_bytes(tn_dims d, size_t item, size_t *bytes)
{
    size_t n = 1;
    for (int i = 0; i < d.rank; i++)
        if (!tn_mul_ok(n, (size_t)d.dim[i], &n) || n > INT64_MAX) return false;
    return tn_mul_ok(n, item, bytes) && *bytes <= INT64_MAX;
}

/* What is wrong with a file, one way: "PATH: tensor "NAME": ...". */
#define BAD_TENSOR(f, name, fmt, ...)                                                                                  \
    tn_error(TN_BAD_FILE, "%.300s: tensor \"%s\"" fmt "; the file is damaged or not safetensors", (f)->path,           \
             show(name).text, __VA_ARGS__)
#define BAD(f, fmt, ...)                                                                                               \
    tn_error(TN_BAD_FILE, "%.300s: " fmt "; the file is damaged or not safetensors", (f)->path, __VA_ARGS__)

static tn_status parse_shape(const tn_safetensors *f, const char *name, const json_t *shape, tn_dims *out)
{
    const size_t rank = json_array_size(shape);
    tn_dims d = { .rank = (int)rank };
    if (!json_is_array(shape)) return BAD_TENSOR(f, name, " has %s", "no shape list");
    if (rank > TN_MAX_RANK)
        return tn_error(TN_BAD_FILE,
                        "%.300s: tensor \"%s\" has %zu dimensions and at most %d are supported; reshape it", f->path,
                        show(name).text, rank, TN_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v)) return BAD_TENSOR(f, name, ": dimension %zu is not a whole number", i);
        d.dim[i] = json_integer_value(v);
        if (d.dim[i] < 0 || d.dim[i] > dim_max)
            return BAD_TENSOR(f, name, ": dimension %zu is %lld, outside 0..2^53", i, (long long)d.dim[i]);
    }
    *out = d;
    return TN_OK;
}

static tn_status parse_type(const tn_safetensors *f, const char *name, const json_t *dtype, size_t *out)
{
    const char *text = json_string_value(dtype);
    if (!text) return BAD_TENSOR(f, name, " has %s", "no dtype text");
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, text) == 0) {
            *out = i;
            return TN_OK;
        }
    return BAD_TENSOR(f, name, " has the unknown dtype \"%s\"", show(text).text);
}

static tn_status parse_offsets(const tn_safetensors *f, const json_t *v, size_t data_bytes, entry *e)
{
    const json_t *b = json_array_get(v, 0), *n = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(n))
        return BAD_TENSOR(f, e->t.name, ": data_offsets is not %s", "a list of two whole numbers");
    const json_int_t begin = json_integer_value(b), end = json_integer_value(n);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return BAD_TENSOR(f, e->t.name, ": data_offsets [%lld,%lld] lie outside the %zu bytes of data",
                          (long long)begin, (long long)end, data_bytes);
    e->begin = (size_t)begin;
    e->end = (size_t)end;
    return TN_OK;
}

static tn_status parse_entry(tn_safetensors *f, const char *key, const json_t *v, const unsigned char *data,
                             size_t data_bytes)
{
    entry *e = &f->entries[f->entry_count];
    const size_t name_bytes = strlen(key);
    if (name_bytes > TN_SAFETENSORS_NAME_MAX)
        return BAD_TENSOR(f, key, ": the name has %zu bytes and at most %d are allowed", name_bytes,
                          TN_SAFETENSORS_NAME_MAX);
    if (!(e->t.name = tn_arena_strdup(&f->arena, key))) return TN_MEMORY;
    TN_RETURN_IF(parse_type(f, key, json_object_get(v, "dtype"), &e->type)); /* a v that is no object has no keys */
    TN_RETURN_IF(parse_shape(f, key, json_object_get(v, "shape"), &e->t.dims));
    TN_RETURN_IF(parse_offsets(f, json_object_get(v, "data_offsets"), data_bytes, e));
    if (json_object_size(v) != 3) return BAD_TENSOR(f, key, " has %zu keys instead of 3", json_object_size(v));
    if (!dims_bytes(e->t.dims, types[e->type].bytes, &e->t.bytes))
        return BAD_TENSOR(f, key, ": the size of its shape overflows (%s)", types[e->type].name);
    if (e->t.bytes != e->end - e->begin)
        return BAD_TENSOR(f, key, " takes %zu bytes by its shape and %zu by its data_offsets", e->t.bytes,
                          e->end - e->begin);
    e->t.dtype = types[e->type].dtype;
    e->t.data = data + e->begin;
    e->order = f->entry_count++;
    return TN_OK;
}

static tn_status parse_meta(tn_safetensors *f, json_t *meta)
{
    const char *key;
    json_t *v;
    if (!json_is_object(meta)) return BAD(f, "%s is not an object", META);
    f->meta = tn_arena_alloc(&f->arena, (json_object_size(meta) + 1) * sizeof *f->meta);
    if (!f->meta) return TN_MEMORY;
    json_object_foreach(meta, key, v) {
        if (!json_is_string(v)) return BAD(f, "%s: the value of \"%s\" is not a text", META, show(key).text);
        tn_text_pair *p = &f->meta[f->meta_count];
        p->key = tn_arena_strdup(&f->arena, key);
        p->value = tn_arena_strdup(&f->arena, json_string_value(v));
        if (!p->key || !p->value) return TN_MEMORY;
        f->meta_count++;
    }
    return TN_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const tn_file_tensor *const *)a)->name, (*(const tn_file_tensor *const *)b)->name);
}

/* The tensors must tile the data: no hole, no overlap, nothing left over. */
static tn_status check_cover(tn_safetensors *f, size_t data_bytes)
{
    size_t at = 0;
    if (f->entry_count) qsort(f->entries, f->entry_count, sizeof *f->entries, by_offset);
    for (size_t i = 0; i < f->entry_count; i++) {
        const entry *e = &f->entries[i];
        if (e->begin < at) return BAD_TENSOR(f, e->t.name, " overlaps \"%s\"", show(f->entries[i - 1].t.name).text);
        if (e->begin > at) return BAD_TENSOR(f, e->t.name, " leaves a hole of %zu bytes before it", e->begin - at);
        at = e->end;
    }
    if (at != data_bytes) return BAD(f, "the tensors cover %zu of %zu bytes of data", at, data_bytes);
    return TN_OK;
}

static tn_status make_index(tn_safetensors *f)
{
    f->tensors = tn_alloc((f->entry_count + 1) * sizeof *f->tensors);
    f->by_name = tn_alloc((f->entry_count + 1) * sizeof *f->by_name);
    if (!f->tensors || !f->by_name) return TN_MEMORY;
    for (size_t i = 0; i < f->entry_count; i++) {
        if (f->entries[i].t.dtype == TN_DTYPES) continue;
        f->tensors[f->count] = f->entries[i].t;
        f->by_name[f->count] = &f->tensors[f->count];
        f->count++;
    }
    if (f->count) qsort(f->by_name, f->count, sizeof *f->by_name, by_name);
    return TN_OK;
}

static tn_status parse_header(tn_safetensors *f, json_t *root, const unsigned char *data, size_t data_bytes)
{
    const char *key;
    json_t *v, *meta = json_object_get(root, META);
    const size_t n = json_object_size(root) - (meta ? 1 : 0);
    if (n > TN_SAFETENSORS_COUNT_MAX)
        return BAD(f, "%zu tensors are more than the %d allowed", n, TN_SAFETENSORS_COUNT_MAX);
    if (!(f->entries = tn_alloc((n + 1) * sizeof *f->entries))) return TN_MEMORY;
    if (meta) TN_RETURN_IF(parse_meta(f, meta));
    json_object_foreach(root, key, v) {
        if (v != meta) TN_RETURN_IF(parse_entry(f, key, v, data, data_bytes));
    }
    TN_RETURN_IF(check_cover(f, data_bytes));
    return make_index(f);
}

/* Checks the frame (length, brace, JSON syntax, duplicate keys) and hands the header on. */
static tn_status parse_file(tn_safetensors *f, const unsigned char *p, size_t bytes)
{
    uint64_t header;
    json_error_t err;
    if (bytes < 8) return BAD(f, "%zu bytes cannot hold a header", bytes);
    memcpy(&header, p, 8);
    if (header > TN_SAFETENSORS_HEADER_MAX)
        return BAD(f, "the header would have %llu bytes, more than the %d allowed", (unsigned long long)header,
                   TN_SAFETENSORS_HEADER_MAX);
    if (header > bytes - 8)
        return BAD(f, "the header has %llu bytes and the file ends after %zu", (unsigned long long)header, bytes - 8);
    if (header < 2 || p[8] != '{') return BAD(f, "the header does not begin with '%c'", '{');
    json_t *root = json_loadb((const char *)p + 8, (size_t)header, JSON_REJECT_DUPLICATES, &err);
    if (!root) return BAD(f, "header line %d column %d: %s", err.line, err.column, show(err.text).text);
    const tn_status s = parse_header(f, root, p + 8 + header, bytes - 8 - (size_t)header);
    json_decref(root);
    return s;
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
    tn_free(f->entries);
    tn_free(f->tensors);
    tn_free(f->by_name);
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
    const tn_file_tensor *const *p = f->count ? bsearch(&k, f->by_name, f->count, sizeof *f->by_name, by_name) : NULL;
    return p ? *p : NULL;
}

bool tn_safetensors_has(const tn_safetensors *f, const char *name) { return lookup(f, name) != NULL; }

tn_status tn_safetensors_find(const tn_safetensors *f, const char *name, const tn_file_tensor **out)
{
    const tn_file_tensor *t = lookup(f, name);
    if (t) {
        *out = t;
        return TN_OK;
    }
    for (size_t i = 0; i < f->entry_count; i++)
        if (strcmp(f->entries[i].t.name, name) == 0)
            return tn_error(TN_BAD_FILE,
                            "%.300s: tensor \"%s\" is %s, which is not supported; store it as F32, BF16, F16, "
                            "F64, I32, I64 or U8",
                            f->path, show(name).text, types[f->entries[i].type].name);
    return tn_error(TN_BAD_FILE, "%.300s has no tensor \"%s\" among its %zu; is it the right file?", f->path,
                    show(name).text, f->entry_count);
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
                        show(t->name).text, tn_dtype_name(t->dtype));
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

/* Writer. The header grows as a JSON object, which also finds names that come twice or are no UTF-8. */
typedef struct slot {
    const char *name;
    size_t bytes;
} slot;

struct tn_safetensors_writer {
    tn_atomic_file file;
    tn_sink into; /* where the bytes go: the file, or what the caller named */
    json_t *header;
    tn_arena arena;
    slot *slots; /* (count) in declared order */
    size_t count, capacity;
    size_t end;     /* bytes declared */
    size_t current; /* slot that takes the next bytes, */
    size_t filled;  /* and how many of its bytes are there */
    bool started;   /* the header is written */
};

static void writer_free(tn_safetensors_writer *w)
{
    json_decref(w->header);
    tn_arena_free(&w->arena);
    tn_free(w->slots);
    tn_free(w);
}

void tn_safetensors_writer_abort(tn_safetensors_writer *w)
{
    if (!w) return;
    tn_atomic_abort(&w->file);
    writer_free(w);
}

static tn_status put_meta(tn_safetensors_writer *w, const tn_text_pair *meta, size_t n)
{
    json_t *o = json_object();
    if (!o || json_object_set_new(w->header, META, o) != 0)
        return tn_error(TN_MEMORY, "out of memory for a file header");
    for (size_t i = 0; i < n; i++)
        if (json_object_get(o, meta[i].key) || json_object_set_new(o, meta[i].key, json_string(meta[i].value)) != 0)
            return tn_error(TN_USAGE, "%.300s: metadata \"%s\" comes twice or is not UTF-8 text", w->file.path,
                            show(meta[i].key).text);
    return TN_OK;
}

static tn_status write_file(void *file, const void *data, size_t bytes) { return tn_atomic_write(file, data, bytes); }

static tn_status begin(const char *path, const tn_sink *into, const tn_text_pair *meta, size_t meta_count,
                       tn_safetensors_writer **out)
{
    tn_status s = TN_OK;
    tn_safetensors_writer *w = tn_alloc(sizeof *w);
    if (!w) return TN_MEMORY;
    if (into) TN_TRY(tn_path_join("", path, w->file.path, sizeof w->file.path));
    else TN_TRY(tn_atomic_open(path, &w->file));
    w->into = into ? *into : (tn_sink){ write_file, &w->file };
    if (!(w->header = json_object())) TN_FAIL(TN_MEMORY, "out of memory for the header of %.300s", path);
    if (meta_count) TN_TRY(put_meta(w, meta, meta_count));
    *out = w;
    w = NULL;
done:
    tn_safetensors_writer_abort(w);
    return s;
}

tn_status tn_safetensors_writer_begin(const char *path, const tn_text_pair *meta, size_t meta_count,
                                      tn_safetensors_writer **out)
{
    return begin(path, NULL, meta, meta_count, out);
}

tn_status tn_safetensors_writer_begin_into(tn_sink into, const char *name, const tn_text_pair *meta, size_t meta_count,
                                           tn_safetensors_writer **out)
{
    return begin(name, &into, meta, meta_count, out);
}

static const char *type_name(tn_dtype t)
{
    for (size_t i = 0; i < TYPES && t != TN_DTYPES; i++)
        if (types[i].dtype == t) return types[i].name;
    return NULL;
}

/* What the reader would refuse must not be written. */
static tn_status check_declared(const tn_safetensors_writer *w, const char *name, tn_dtype dtype, tn_dims d,
                                size_t *bytes)
{
    bool ok = d.rank >= 0 && d.rank <= TN_MAX_RANK;
    for (int i = 0; ok && i < d.rank; i++) ok = d.dim[i] >= 0 && d.dim[i] <= dim_max;
    if (w->started)
        return tn_error(TN_USAGE, "tensor \"%s\" is declared after data was written; declare all first",
                        show(name).text);
    if (strlen(name) > TN_SAFETENSORS_NAME_MAX || strcmp(name, META) == 0)
        return tn_error(TN_USAGE, "\"%s\" cannot name a tensor; use at most %d bytes", show(name).text,
                        TN_SAFETENSORS_NAME_MAX);
    if (json_object_get(w->header, name))
        return tn_error(TN_USAGE, "tensor \"%s\" is declared twice; give each its own name", show(name).text);
    if (w->count == TN_SAFETENSORS_COUNT_MAX)
        return tn_error(TN_USAGE, "more than %d tensors; split the file", TN_SAFETENSORS_COUNT_MAX);
    if (!type_name(dtype)) return tn_error(TN_USAGE, "tensor \"%s\" has no known type", show(name).text);
    if (!ok || !dims_bytes(d, tn_dtype_bytes(dtype), bytes) || *bytes > (size_t)INT64_MAX - w->end)
        return tn_error(TN_USAGE, "tensor \"%s\" has a shape no file can hold; check its dimensions", show(name).text);
    return TN_OK;
}

tn_status tn_safetensors_writer_declare(tn_safetensors_writer *w, const char *name, tn_dtype dtype, tn_dims dims)
{
    size_t bytes;
    void *slots = w->slots;
    TN_RETURN_IF(check_declared(w, name, dtype, dims, &bytes));
    TN_RETURN_IF(tn_grow(&slots, &w->capacity, w->count + 1, sizeof *w->slots));
    w->slots = slots;
    const char *kept = tn_arena_strdup(&w->arena, name);
    if (!kept) return TN_MEMORY;
    json_t *shape = json_array();
    for (int i = 0; i < dims.rank; i++) json_array_append_new(shape, json_integer(dims.dim[i]));
    json_t *v = json_pack("{s:s,s:o,s:[I,I]}", "dtype", type_name(dtype), "shape", shape, "data_offsets",
                          (json_int_t)w->end, (json_int_t)(w->end + bytes));
    if (!v || json_array_size(json_object_get(v, "shape")) != (size_t)dims.rank ||
        json_object_set(w->header, name, v) != 0) {
        json_decref(v);
        return tn_error(TN_USAGE, "tensor \"%s\" cannot be declared: its name is not UTF-8, or memory is short",
                        show(name).text);
    }
    json_decref(v);
    w->slots[w->count++] = (slot){ kept, bytes };
    w->end += bytes;
    return TN_OK;
}

static tn_status write_header(tn_safetensors_writer *w)
{
    tn_status s = TN_OK;
    const size_t flags = JSON_COMPACT;
    const size_t text = json_dumpb(w->header, NULL, 0, flags), padded = (text + 7) & ~(size_t)7;
    if (padded > TN_SAFETENSORS_HEADER_MAX)
        return tn_error(TN_USAGE, "%.300s: the header is too long (%zu bytes); split the file", w->file.path, padded);
    unsigned char *p = tn_alloc(8 + padded);
    if (!p) return TN_MEMORY;
    const uint64_t length = padded;
    memcpy(p, &length, 8);
    memset(p + 8, ' ', padded);
    if (text == 0 || json_dumpb(w->header, (char *)p + 8, text, flags) != text)
        TN_FAIL(TN_MEMORY, "out of memory for the header of %.300s", w->file.path);
    TN_TRY(w->into.write(w->into.ctx, p, 8 + padded));
    w->started = true;
done:
    tn_free(p);
    return s;
}

static void skip_filled(tn_safetensors_writer *w, const char *until)
{
    while (w->current < w->count && w->filled == w->slots[w->current].bytes) {
        if (until && strcmp(w->slots[w->current].name, until) == 0) return;
        w->current++;
        w->filled = 0;
    }
}

tn_status tn_safetensors_writer_put(tn_safetensors_writer *w, const char *name, const void *data, size_t bytes)
{
    if (!w->started) TN_RETURN_IF(write_header(w));
    skip_filled(w, name);
    const slot *next = w->current < w->count ? &w->slots[w->current] : NULL;
    if (!next || strcmp(next->name, name) != 0)
        return tn_error(TN_USAGE, "%.300s: tensor \"%s\" was written where \"%s\" comes next; keep the declared order",
                        w->file.path, show(name).text, next ? show(next->name).text : "nothing");
    if (bytes > next->bytes - w->filled)
        return tn_error(TN_USAGE, "%.300s: tensor \"%s\" got more than its %zu bytes; check its shape", w->file.path,
                        show(name).text, next->bytes);
    TN_RETURN_IF(w->into.write(w->into.ctx, data, bytes));
    w->filled += bytes;
    return TN_OK;
}

tn_status tn_safetensors_writer_finish(tn_safetensors_writer *w)
{
    tn_status s = TN_OK;
    if (!w->started) TN_TRY(write_header(w));
    skip_filled(w, NULL);
    if (w->current < w->count)
        TN_FAIL(TN_USAGE, "%.300s: tensor \"%s\" has %zu of its %zu bytes; write all before finishing", w->file.path,
                show(w->slots[w->current].name).text, w->filled, w->slots[w->current].bytes);
    if (w->into.ctx == &w->file) TN_TRY(tn_atomic_finish(&w->file));
done:
    tn_safetensors_writer_abort(w); /* after a finish there is nothing left to remove */
    return s;
}
