/* Writes safetensors files. The header grows as tensors are declared; a table of names finds duplicates. What the
 * reader would refuse is not written. */
#include "io/safetensors_parts.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "base/rng.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    const char *name;
    size_t bytes;
} slot;

struct tn_safetensors_writer {
    tn_atomic_file file;
    tn_sink into; /* where the bytes go: the file, or what the caller named */
    char *text;   /* 8 bytes for its length, then the header so far */
    size_t text_bytes, text_capacity;
    uint32_t *table; /* (table_size) 1 + index of a slot by its name, 0: free; open addressing, half full at most */
    size_t table_size;
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
    tn_free(w->text);
    tn_free(w->table);
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

/* --- the header's text ------------------------------------------------------------------------------------------------ */

static tn_status put(tn_safetensors_writer *w, const char *text, size_t bytes)
{
    void *p = w->text;
    TN_RETURN_IF(tn_grow(&p, &w->text_capacity, w->text_bytes + bytes, 1));
    w->text = p;
    memcpy(w->text + w->text_bytes, text, bytes);
    w->text_bytes += bytes;
    return TN_OK;
}

/* As JSON, by jansson, which also sees whether a text is UTF-8. */
static tn_status put_json(tn_safetensors_writer *w, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    const tn_status s = text ? put(w, text, strlen(text)) : tn_error(TN_MEMORY, "out of memory for a file header");
    free(text);
    return s;
}

/* What separates one value of the header from the one before. */
static tn_status put_comma(tn_safetensors_writer *w) { return w->text_bytes > 9 ? put(w, ",", 1) : TN_OK; }

static tn_status put_meta(tn_safetensors_writer *w, const tn_text_pair *meta, size_t n)
{
    tn_status s = TN_OK;
    json_t *o = json_object();
    if (!o) TN_FAIL(TN_MEMORY, "out of memory for a file header");
    for (size_t i = 0; i < n; i++)
        if (json_object_get(o, meta[i].key) || json_object_set_new(o, meta[i].key, json_string(meta[i].value)) != 0)
            TN_FAIL(TN_USAGE, "%.300s: metadata \"%s\" comes twice or is not UTF-8 text", w->file.path,
                    tn__shown(meta[i].key).text);
    TN_TRY(put(w, "\"" TN__META "\":", sizeof TN__META + 2));
    TN_TRY(put_json(w, o));
done:
    json_decref(o);
    return s;
}

/* "name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]} */
static tn_status put_entry(tn_safetensors_writer *w, const char *name, const char *type, tn_dims dims, size_t bytes)
{
    char text[256], *p = text;
    json_t *v = json_string(name);
    if (!v)
        return tn_error(TN_USAGE, "tensor \"%s\" cannot be declared: its name is not UTF-8, or memory is short",
                        tn__shown(name).text);
    tn_status s = put_comma(w);
    if (s == TN_OK) s = put_json(w, v);
    json_decref(v);
    TN_RETURN_IF(s);
    p += sprintf(p, ":{\"dtype\":\"%s\",\"shape\":[", type);
    for (int i = 0; i < dims.rank; i++) p += sprintf(p, "%s%lld", i ? "," : "", (long long)dims.dim[i]);
    p += sprintf(p, "],\"data_offsets\":[%zu,%zu]}", w->end, w->end + bytes);
    return put(w, text, (size_t)(p - text));
}

/* --- names ------------------------------------------------------------------------------------------------------------ */

/* Where `name` is in the table, or would be. */
static size_t place_of(const tn_safetensors_writer *w, const char *name)
{
    size_t i = tn_rng_stream(name) & (w->table_size - 1);
    while (w->table[i] && strcmp(w->slots[w->table[i] - 1].name, name) != 0) i = (i + 1) & (w->table_size - 1);
    return i;
}

static tn_status grow_table(tn_safetensors_writer *w)
{
    const size_t size = w->table_size ? 2 * w->table_size : 64;
    uint32_t *table = tn_alloc(size * sizeof *table);
    if (!table) return TN_MEMORY;
    tn_free(w->table);
    w->table = table;
    w->table_size = size;
    for (size_t i = 0; i < w->count; i++) w->table[place_of(w, w->slots[i].name)] = (uint32_t)i + 1;
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
    TN_TRY(put(w, "\0\0\0\0\0\0\0\0{", 9));
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
    for (const tn__safetensors_type *x = tn__safetensors_types; x->name && t != TN_DTYPES; x++)
        if (x->dtype == t) return x->name;
    return NULL;
}

/* What the reader would refuse must not be written. */
static tn_status check_declared(const tn_safetensors_writer *w, const char *name, tn_dtype dtype, tn_dims d,
                                size_t *bytes)
{
    bool ok = d.rank >= 0 && d.rank <= TN_MAX_RANK;
    for (int i = 0; ok && i < d.rank; i++) ok = d.dim[i] >= 0 && d.dim[i] <= TN__DIM_MAX;
    if (w->started)
        return tn_error(TN_USAGE, "tensor \"%s\" is declared after data was written; declare all first",
                        tn__shown(name).text);
    if (strlen(name) > TN_SAFETENSORS_NAME_MAX || strcmp(name, TN__META) == 0)
        return tn_error(TN_USAGE, "\"%s\" cannot name a tensor; use at most %d bytes", tn__shown(name).text,
                        TN_SAFETENSORS_NAME_MAX);
    if (w->table_size && w->table[place_of(w, name)])
        return tn_error(TN_USAGE, "tensor \"%s\" is declared twice; give each its own name", tn__shown(name).text);
    if (w->count == TN_SAFETENSORS_COUNT_MAX)
        return tn_error(TN_USAGE, "more than %d tensors; split the file", TN_SAFETENSORS_COUNT_MAX);
    if (!type_name(dtype)) return tn_error(TN_USAGE, "tensor \"%s\" has no known type", tn__shown(name).text);
    if (!ok || !tn__dims_bytes(d, tn_dtype_bytes(dtype), bytes) || *bytes > (size_t)INT64_MAX - w->end)
        return tn_error(TN_USAGE, "tensor \"%s\" has a shape no file can hold; check its dimensions",
                        tn__shown(name).text);
    return TN_OK;
}

tn_status tn_safetensors_writer_declare(tn_safetensors_writer *w, const char *name, tn_dtype dtype, tn_dims dims)
{
    size_t bytes;
    void *slots = w->slots;
    TN_RETURN_IF(check_declared(w, name, dtype, dims, &bytes));
    TN_RETURN_IF(tn_grow(&slots, &w->capacity, w->count + 1, sizeof *w->slots));
    w->slots = slots;
    if (2 * (w->count + 1) > w->table_size) TN_RETURN_IF(grow_table(w));
    const char *kept = tn_arena_strdup(&w->arena, name);
    if (!kept) return TN_MEMORY;
    TN_RETURN_IF(put_entry(w, name, type_name(dtype), dims, bytes));
    w->table[place_of(w, name)] = (uint32_t)w->count + 1;
    w->slots[w->count++] = (slot){ kept, bytes };
    w->end += bytes;
    return TN_OK;
}

static tn_status write_header(tn_safetensors_writer *w)
{
    TN_RETURN_IF(put(w, "}", 1));
    while (w->text_bytes % 8) TN_RETURN_IF(put(w, " ", 1));
    const uint64_t length = w->text_bytes - 8;
    if (length > TN_SAFETENSORS_HEADER_MAX)
        return tn_error(TN_USAGE, "%.300s: the header is too long (%llu bytes); split the file", w->file.path,
                        (unsigned long long)length);
    memcpy(w->text, &length, 8);
    TN_RETURN_IF(w->into.write(w->into.ctx, w->text, w->text_bytes));
    w->started = true;
    return TN_OK;
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
                        w->file.path, tn__shown(name).text, next ? tn__shown(next->name).text : "nothing");
    if (bytes > next->bytes - w->filled)
        return tn_error(TN_USAGE, "%.300s: tensor \"%s\" got more than its %zu bytes; check its shape", w->file.path,
                        tn__shown(name).text, next->bytes);
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
                tn__shown(w->slots[w->current].name).text, w->filled, w->slots[w->current].bytes);
    if (w->into.ctx == &w->file) TN_TRY(tn_atomic_finish(&w->file));
done:
    tn_safetensors_writer_abort(w); /* after a finish there is nothing left to remove */
    return s;
}
