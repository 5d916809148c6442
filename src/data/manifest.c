/* Writing and reading dataset.json. Sums are checked against the shards listed, so that no number of the manifest has to be
 * believed; names are bare, so that a manifest cannot reach outside its folder. */
#include "data/manifest.h"

#include "base/fs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT "tenon-dataset"
enum { SHARDS_MAX = 100000 };

const char *const tn_data_split_names[TN_SPLITS] = { "train", "valid", "test" };

static bool is_shard_name(const char *name)
{
    for (int i = 0; i < TN_SPLITS; i++) {
        const size_t n = strlen(tn_data_split_names[i]);
        if (strncmp(name, tn_data_split_names[i], n) != 0 || name[n] != '-') continue;
        const size_t digits = strspn(name + n + 1, "0123456789");
        return digits >= 5 && digits <= 9 && strcmp(name + n + 1 + digits, ".bin") == 0;
    }
    return false;
}

static bool is_tokenizer_name(const char *name)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.bin", "tokenizer.tiktoken", "vocab.bpe",
                                         "encoder.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

bool tn_manifest_names(const char *name)
{
    return strcmp(name, TN_MANIFEST_NAME) == 0 || is_tokenizer_name(name) || is_shard_name(name);
}

bool tn_manifest_owns(const char *name, mode_t mode)
{
    return S_ISREG(mode) && (tn_manifest_names(name) || tn_is_temp_of(name, tn_manifest_names));
}

void tn_manifest_free(tn_manifest *m)
{
    for (int i = 0; i < TN_SPLITS; i++) tn_free(m->split[i].shards);
    tn_arena_free(&m->arena);
    *m = (tn_manifest){ 0 };
}

tn_status tn_manifest_add(tn_manifest *m, tn_data_split split, const char *file, uint64_t file_bytes,
                          const tn_shard_info *info)
{
    tn_manifest_split *p = &m->split[split];
    void *v = p->shards;
    TN_RETURN_IF(tn_grow(&v, &p->capacity, p->n + 1, sizeof *p->shards));
    p->shards = v;
    char *name = tn_arena_strdup(&m->arena, file), *hash = tn_arena_strdup(&m->arena, info->hash);
    if (!name || !hash) return TN_MEMORY;
    p->shards[p->n++] = (tn_manifest_shard){ name, file_bytes, info->documents, info->tokens, hash };
    p->documents += info->documents;
    p->tokens += info->tokens;
    p->text_bytes += info->text_bytes;
    if ((int64_t)info->classes > m->classes) m->classes = (int64_t)info->classes;
    return TN_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

static json_t *split_json(const tn_manifest_split *p)
{
    json_t *shards = json_array();
    for (size_t i = 0; i < p->n; i++) {
        const tn_manifest_shard *h = &p->shards[i];
        json_array_append_new(shards, json_pack("{s:s, s:I, s:I, s:I, s:s}", "file", h->file, "bytes",
                                                (json_int_t)h->bytes, "documents", (json_int_t)h->documents, "tokens",
                                                (json_int_t)h->tokens, "hash", h->hash));
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "documents", (json_int_t)p->documents, "tokens", (json_int_t)p->tokens,
                     "text_bytes", (json_int_t)p->text_bytes, "shards", shards);
}

static json_t *manifest_json(const tn_manifest *m)
{
    json_t *splits = json_object(), *shape = json_array();
    for (int i = 0; i < m->rank; i++) json_array_append_new(shape, json_integer(m->dims[i]));
    for (int i = 0; i < TN_SPLITS; i++)
        if (m->split[i].n) json_object_set_new(splits, tn_data_split_names[i], split_json(&m->split[i]));
    if (m->kind == TN_SHARD_ARRAYS)
        return json_pack("{s:s, s:i, s:s, s:s, s:o, s:I, s:o, s:s, s:s}", "format", FORMAT, "version",
                         TN_MANIFEST_VERSION, "kind", "arrays", "item", tn_item_name(m->item), "shape", shape,
                         "classes", (json_int_t)m->classes, "splits", splits, "settings", m->settings, "fingerprint",
                         m->fingerprint);
    json_decref(shape);
    return json_pack("{s:s, s:i, s:s, s:s, s:I, s:i, s:{s:s, s:s, s:s}, s:o, s:s, s:s}", "format", FORMAT, "version",
                     TN_MANIFEST_VERSION, "kind", "tokens", "item", tn_item_name(m->item), "vocab",
                     (json_int_t)m->vocab, "eot", (int)m->eot, "tokenizer", "kind", m->tokenizer_kind, "hash",
                     m->tokenizer_hash, "file", m->tokenizer_file, "splits", splits, "settings", m->settings,
                     "fingerprint", m->fingerprint);
}

tn_status tn_manifest_write(const tn_manifest *m, const char *dir)
{
    char path[TN_PATH_BYTES];
    TN_RETURN_IF(tn_path_join(dir, TN_MANIFEST_NAME, path, sizeof path));
    json_t *j = manifest_json(m);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    json_decref(j);
    if (!text) return tn_error(TN_MEMORY, "out of memory while writing %.640s", path);
    const tn_status s = tn_file_write_atomic(path, text, strlen(text));
    free(text);
    return s;
}

/* --- reading ------------------------------------------------------------------------------------------------------------ */

typedef struct reader {
    const char *path;
    tn_manifest *m;
    tn_status status; /* the first failure; later reads do nothing */
} reader;

static void bad(reader *r, const char *key, const char *why)
{
    if (r->status == TN_OK)
        r->status =
            tn_error(TN_BAD_FILE, "%.640s: \"%s\" %s; prepare the data again (tenon data prepare)", r->path, key, why);
}

static uint64_t get_count(reader *r, const json_t *o, const char *key, uint64_t most)
{
    const json_t *v = json_object_get(o, key);
    const json_int_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < 0 || (uint64_t)x > most) bad(r, key, "is missing or no possible number");
    return r->status == TN_OK ? (uint64_t)x : 0;
}

static const char *get_text(reader *r, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    char *copy = s ? tn_arena_strdup(&r->m->arena, s) : NULL;
    if (!s) bad(r, key, "is missing or no text");
    else if (!copy && r->status == TN_OK) r->status = TN_MEMORY;
    return copy ? copy : "";
}

static tn_item get_item(reader *r, const json_t *o)
{
    static const tn_item all[] = { TN_ITEM_U8, TN_ITEM_U16, TN_ITEM_U32, TN_ITEM_F32 };
    const char *name = get_text(r, o, "item");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(tn_item_name(all[i]), name) == 0) return all[i];
    bad(r, "item", "is no type of number");
    return TN_ITEM_U8;
}

static void read_split(reader *r, tn_data_split which, const json_t *o)
{
    const json_t *list = json_object_get(o, "shards");
    tn_manifest_split sum = r->m->split[which];
    if (!json_is_array(list) || json_array_size(list) > SHARDS_MAX) bad(r, "shards", "is no list, or a very long one");
    for (size_t i = 0; r->status == TN_OK && i < json_array_size(list); i++) {
        const json_t *h = json_array_get(list, i);
        const char *file = get_text(r, h, "file"), *hash = get_text(r, h, "hash");
        const uint64_t bytes = get_count(r, h, "bytes", INT64_MAX);
        tn_shard_info info = { .documents = get_count(r, h, "documents", INT64_MAX / SHARDS_MAX),
                               .tokens = get_count(r, h, "tokens", INT64_MAX / SHARDS_MAX) };
        snprintf(info.hash, sizeof info.hash, "%s", hash);
        if (r->status == TN_OK && !is_shard_name(file)) bad(r, "file", "is not the name of a shard");
        if (r->status == TN_OK) r->status = tn_manifest_add(r->m, which, file, bytes, &info);
    }
    r->m->split[which].text_bytes = get_count(r, o, "text_bytes", INT64_MAX);
    sum = r->m->split[which];
    if (get_count(r, o, "documents", INT64_MAX) != sum.documents || get_count(r, o, "tokens", INT64_MAX) != sum.tokens)
        bad(r, tn_data_split_names[which], "does not add up to its shards");
}

static void read_arrays(reader *r, const json_t *j)
{
    const json_t *shape = json_object_get(j, "shape");
    size_t sample = 1;
    if (!json_is_array(shape) || json_array_size(shape) > TN_SHARD_RANK_MAX)
        bad(r, "shape", "is no list of at most 8 numbers");
    for (size_t i = 0; r->status == TN_OK && i < json_array_size(shape); i++) {
        const json_int_t d = json_integer_value(json_array_get(shape, i));
        if (d < 1 || d > INT32_MAX || !tn_mul_ok(sample, (size_t)d, &sample) || sample > INT32_MAX)
            bad(r, "shape", "has an impossible number");
        r->m->dims[r->m->rank++] = d;
    }
    r->m->classes = (int64_t)get_count(r, j, "classes", INT32_MAX);
}

static void read_tokens(reader *r, const json_t *j)
{
    tn_manifest *m = r->m;
    const json_t *t = json_object_get(j, "tokenizer"), *eot = json_object_get(j, "eot");
    m->vocab = (int64_t)get_count(r, j, "vocab", INT32_MAX);
    m->tokenizer_kind = get_text(r, t, "kind");
    m->tokenizer_hash = get_text(r, t, "hash");
    m->tokenizer_file = get_text(r, t, "file");
    if (!json_is_integer(eot) || json_integer_value(eot) < -1 || json_integer_value(eot) >= m->vocab)
        bad(r, "eot", "is no token");
    else m->eot = (int32_t)json_integer_value(eot);
    if (*m->tokenizer_file && !is_tokenizer_name(m->tokenizer_file))
        bad(r, "tokenizer", "names a file that is none of ours");
    if (m->vocab == 0) bad(r, "vocab", "is 0");
}

static void read_all(reader *r, const json_t *j)
{
    tn_manifest *m = r->m;
    const char *kind = get_text(r, j, "kind");
    m->item = get_item(r, j);
    m->settings = get_text(r, j, "settings");
    m->fingerprint = get_text(r, j, "fingerprint");
    m->eot = -1;
    m->tokenizer_kind = m->tokenizer_hash = m->tokenizer_file = "";
    if (strcmp(kind, "tokens") == 0) m->kind = TN_SHARD_TOKENS;
    else if (strcmp(kind, "arrays") == 0) m->kind = TN_SHARD_ARRAYS;
    else bad(r, "kind", "is neither tokens nor arrays");
    if (m->kind == TN_SHARD_ARRAYS) read_arrays(r, j);
    else read_tokens(r, j);
    const json_t *splits = json_object_get(j, "splits");
    if (!json_is_object(splits)) bad(r, "splits", "is missing");
    for (int i = 0; r->status == TN_OK && i < TN_SPLITS; i++) {
        const json_t *o = json_object_get(splits, tn_data_split_names[i]);
        if (o) read_split(r, (tn_data_split)i, o);
    }
}

tn_status tn_manifest_read(const char *dir, tn_manifest *out)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes;
    json_t *j = NULL;
    json_error_t err;
    tn_manifest m = { 0 };
    TN_TRY(tn_path_join(dir, TN_MANIFEST_NAME, path, sizeof path));
    TN_TRY(tn_file_read_all(path, TN_MANIFEST_BYTES_MAX, &text, &bytes));
    j = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    const char *format = json_string_value(json_object_get(j, "format"));
    if (!j || !format || strcmp(format, FORMAT) != 0)
        TN_FAIL(TN_BAD_FILE,
                "%.640s:%d: not the manifest of a prepared data set, or damaged; prepare the data again (tenon data "
                "prepare)",
                path, j ? 1 : err.line);
    const json_int_t version = json_integer_value(json_object_get(j, "version"));
    if (version != TN_MANIFEST_VERSION)
        TN_FAIL(TN_BAD_FILE,
                "%.640s has format version %lld, this program reads %d: use a newer tenon or prepare the data again",
                path, (long long)version, TN_MANIFEST_VERSION);
    reader r = { .path = path, .m = &m };
    read_all(&r, j);
    TN_TRY(r.status);
    *out = m;
    m = (tn_manifest){ 0 };
done:
    json_decref(j);
    tn_free(text);
    tn_manifest_free(&m);
    return s;
}
