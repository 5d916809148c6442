/* Reads the index value by value: its table takes 16 bytes for each tensor, whatever the file contains. */
#include "io/hf_index.h"

#include "base/alloc.h"
#include "io/json_read.h"
#include "io/safetensors_parts.h"

#include <stdlib.h>
#include <string.h>

#define BAD(name, fmt, ...) tn_error(TN_BAD_FILE, "%.300s: " fmt, (name), __VA_ARGS__)

/* No path, no hidden file, and of the one format that is read. */
static bool is_plain(const char *file)
{
    static const char ending[] = ".safetensors";
    const size_t n = strlen(file), m = sizeof ending - 1;
    return n > m && n <= 200 && file[0] != '.' && !strpbrk(file, "/\\") && strcmp(file + n - m, ending) == 0;
}

static tn_status read_place(tn_json *r, const char *name, tn_hf_place *p)
{
    p->tensor = tn_json_copy(r, (char *)(uintptr_t)r->raw);
    if (tn_json_peek(r) != '"' || !tn_json_text(r))
        return BAD(name, "line %zu: the file of tensor \"%s\" is not a text", tn_json_line(r),
                   tn__shown(p->tensor).text);
    p->file = tn_json_copy(r, (char *)(uintptr_t)r->raw);
    if (!is_plain(p->file))
        return BAD(name,
                   "tensor \"%.100s\" is said to be in \"%s\": only the name of a .safetensors file beside it is "
                   "allowed",
                   tn__shown(p->tensor).text, tn__shown(p->file).text);
    return TN_OK;
}

static tn_status read_map(tn_json *r, const char *name, tn_hf_index *x)
{
    size_t capacity = 0;
    if (!tn_json_enter(r, '{')) return BAD(name, "line %zu: \"weight_map\" is not an object", tn_json_line(r));
    while (tn_json_key(r)) {
        if (x->n == TN_HF_INDEX_TENSORS) return BAD(name, "it lists more than %d tensors", TN_HF_INDEX_TENSORS);
        if (x->n == capacity)
            TN_RETURN_IF(tn_grow((void **)&x->place, &capacity, capacity ? 2 * capacity : 256, sizeof *x->place));
        TN_RETURN_IF(read_place(r, name, &x->place[x->n]));
        x->n++;
    }
    return TN_OK;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const tn_hf_place *)a)->tensor, ((const tn_hf_place *)b)->tensor);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static tn_status list_files(const char *name, tn_hf_index *x)
{
    x->file = tn_alloc(x->n * sizeof *x->file);
    if (!x->file) return TN_MEMORY;
    for (size_t i = 0; i < x->n; i++) x->file[i] = x->place[i].file;
    qsort(x->file, x->n, sizeof *x->file, by_name);
    for (size_t i = 0; i < x->n; i++)
        if (i == 0 || strcmp(x->file[i], x->file[i - 1]) != 0) x->file[x->files++] = x->file[i];
    if (x->files > TN_HF_INDEX_FILES) return BAD(name, "it names %zu files, more than %d", x->files, TN_HF_INDEX_FILES);
    return TN_OK;
}

static tn_status read_all(tn_json *r, const char *name, tn_hf_index *x)
{
    bool seen = false;
    if (!tn_json_enter(r, '{')) return BAD(name, "line %zu: it is not an object", tn_json_line(r));
    while (tn_json_key(r)) {
        if (!tn_json_is(r, "weight_map")) {
            tn_json_skip(r);
            continue;
        }
        if (seen) return BAD(name, "line %zu: \"weight_map\" comes twice", tn_json_line(r));
        seen = true;
        TN_RETURN_IF(read_map(r, name, x));
    }
    if (!tn_json_end(r)) return BAD(name, "not JSON: line %zu: %s", tn_json_line(r), r->why);
    if (x->n == 0) return BAD(name, "it lists no tensor (%s)", "weight_map");
    qsort(x->place, x->n, sizeof *x->place, by_tensor);
    for (size_t i = 1; i < x->n; i++)
        if (strcmp(x->place[i].tensor, x->place[i - 1].tensor) == 0)
            return BAD(name, "tensor \"%s\" comes twice", tn__shown(x->place[i].tensor).text);
    return list_files(name, x);
}

tn_status tn_hf_index_read(char *text, size_t bytes, const char *name, tn_hf_index *out)
{
    tn_json r;
    tn_hf_index x = { 0 };
    tn_json_open(&r, text, bytes);
    const tn_status s = read_all(&r, name, &x);
    if (s == TN_OK) *out = x;
    else tn_hf_index_free(&x);
    return s;
}

void tn_hf_index_free(tn_hf_index *x)
{
    tn_free(x->place);
    tn_free((void *)(uintptr_t)x->file);
    *x = (tn_hf_index){ 0 };
}

const tn_hf_place *tn_hf_index_find(const tn_hf_index *x, const char *tensor)
{
    const tn_hf_place key = { .tensor = tensor };
    return x->n == 0 ? NULL : bsearch(&key, x->place, x->n, sizeof *x->place, by_tensor);
}
