/* Writes and reads dataset.json. Totals are checked against the shards; names are bare, so a manifest cannot point
 * outside its folder. */
#include "data/manifest.h"

#include "base/fs.h"
#include "io/json_read.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT "tenon-dataset"
enum {
    SHARDS_MAX = 100000,
    SHARD_TEXT = 4 << 10,  /* bytes of one shard's object, */
    SMALL_TEXT = 32 << 10, /* and of one of the other values: trees take up to 80 times their text */
    SMALL_ALL = 128 << 10
};

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
    static const char *const names[] = { "tokenizer.json",     "tokenizer.bin", "tokenizer.model",
                                         "tokenizer.tiktoken", "vocab.bpe",     "encoder.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Whether a name may belong to a prepared folder: the manifest, shards, tokenizer files. */
static bool is_file(const char *name)
{
    return strcmp(name, TN_MANIFEST_NAME) == 0 || is_tokenizer_name(name) || is_shard_name(name);
}

bool tn_manifest_owns(const char *name, mode_t mode)
{
    return S_ISREG(mode) && (is_file(name) || tn_is_temp_of(name, is_file));
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
    json_t *small;    /* all of it but the lists of shards, which may be long */
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
    if (!json_is_integer(v) || x < 0 || (uint64_t)x > most) bad(r, key, "is missing or not a valid number");
    return r->status == TN_OK ? (uint64_t)x : 0;
}

static const char *get_text(reader *r, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    char *copy = s ? tn_arena_strdup(&r->m->arena, s) : NULL;
    if (!s) bad(r, key, "is missing or not a string");
    else if (!copy && r->status == TN_OK) r->status = TN_MEMORY;
    return copy ? copy : "";
}

static tn_item get_item(reader *r, const json_t *o)
{
    static const tn_item all[] = { TN_ITEM_U8, TN_ITEM_U16, TN_ITEM_U32, TN_ITEM_F32 };
    const char *name = get_text(r, o, "item");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(tn_item_name(all[i]), name) == 0) return all[i];
    bad(r, "item", "is not a number type");
    return TN_ITEM_U8;
}

static void read_shard(reader *r, tn_data_split which, const json_t *h)
{
    const char *file = get_text(r, h, "file"), *hash = get_text(r, h, "hash");
    const uint64_t bytes = get_count(r, h, "bytes", INT64_MAX);
    tn_shard_info info = { .documents = get_count(r, h, "documents", INT64_MAX / SHARDS_MAX),
                           .tokens = get_count(r, h, "tokens", INT64_MAX / SHARDS_MAX) };
    snprintf(info.hash, sizeof info.hash, "%s", hash);
    if (r->status == TN_OK && !is_shard_name(file)) bad(r, "file", "is not the name of a shard");
    if (r->status == TN_OK && r->m->split[which].n == SHARDS_MAX) bad(r, "shards", "is a very long list");
    if (r->status == TN_OK) r->status = tn_manifest_add(r->m, which, file, bytes, &info);
}

/* The list of a split, shard by shard: a tree of all of them would take six times the file. */
static void read_shards(reader *r, tn_data_split which, tn_json *from)
{
    if (!tn_json_enter(from, '[')) {
        (void)tn_json_skip(from);
        bad(r, "shards", "is not a list");
        return;
    }
    while (r->status == TN_OK && tn_json_item(from)) {
        json_t *h = NULL;
        const char *text;
        size_t bytes;
        json_error_t err;
        if (tn_json_extent(from, &text, &bytes) && bytes <= SHARD_TEXT)
            h = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
        if (h) read_shard(r, which, h);
        else bad(r, "shards", "contains an entry that is not a shard");
        json_decref(h);
    }
}

/* The value of the key that was just read becomes a member of `to`. */
static void take_small(reader *r, tn_json *from, json_t *to)
{
    char key[64] = "";
    const char *text;
    size_t bytes;
    json_error_t err;
    if (from->bytes >= sizeof key) bad(r, "a key", "is too long");
    else tn_json_copy(from, key);
    if (!tn_json_extent(from, &text, &bytes) || r->status != TN_OK) return;
    json_t *v = bytes <= SMALL_TEXT ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err) : NULL;
    if (!v) bad(r, "a value", "is too long, or damaged");
    else if (json_object_get(to, key)) bad(r, "a key", "appears twice");
    else if (json_object_set(to, key, v) != 0)
        r->status = tn_error(TN_MEMORY, "out of memory while reading %.640s", r->path);
    json_decref(v);
}

static void read_split(reader *r, tn_data_split which, tn_json *from)
{
    json_t *sums = json_object();
    bool shards = false;
    if (!tn_json_enter(from, '{')) (void)tn_json_skip(from);
    else
        while (r->status == TN_OK && tn_json_key(from)) {
            if (!tn_json_is(from, "shards")) take_small(r, from, sums);
            else if (shards) bad(r, "shards", "appears twice");
            else read_shards(r, which, from), shards = true;
        }
    if (!from->why) { /* what is no JSON is said as such */
        if (!shards) bad(r, "shards", "is missing");
        r->m->split[which].text_bytes = get_count(r, sums, "text_bytes", INT64_MAX);
        const tn_manifest_split sum = r->m->split[which];
        if (get_count(r, sums, "documents", INT64_MAX) != sum.documents ||
            get_count(r, sums, "tokens", INT64_MAX) != sum.tokens)
            bad(r, tn_data_split_names[which], "does not add up to its shards");
    }
    json_decref(sums);
}

static void read_splits(reader *r, tn_json *from)
{
    bool seen[TN_SPLITS] = { false };
    if (!tn_json_enter(from, '{')) {
        (void)tn_json_skip(from);
        bad(r, "splits", "is missing");
        return;
    }
    while (r->status == TN_OK && tn_json_key(from)) {
        int i = 0;
        while (i < TN_SPLITS && !tn_json_is(from, tn_data_split_names[i])) i++;
        if (i == TN_SPLITS) (void)tn_json_skip(from);
        else if (seen[i]) bad(r, tn_data_split_names[i], "appears twice");
        else seen[i] = true, read_split(r, (tn_data_split)i, from);
    }
}

static void read_arrays(reader *r, const json_t *j)
{
    const json_t *shape = json_object_get(j, "shape");
    size_t sample = 1;
    if (!json_is_array(shape) || json_array_size(shape) > TN_SHARD_RANK_MAX)
        bad(r, "shape", "is not a list of at most 8 numbers");
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
        bad(r, "eot", "is not a token");
    else m->eot = (int32_t)json_integer_value(eot);
    if (*m->tokenizer_file && !is_tokenizer_name(m->tokenizer_file)) bad(r, "tokenizer", "names an unknown file");
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
}

/* The whole file but "splits" as a tree; where that is, in *splits. */
static tn_status read_small(reader *r, const char *text, size_t bytes, tn_json *splits)
{
    tn_json from;
    size_t all = 0;
    bool found = false;
    tn_json_open(&from, text, bytes);
    tn_json_open(splits, "", 0);
    if (!tn_json_enter(&from, '{')) (void)tn_json_skip(&from);
    else
        while (r->status == TN_OK && tn_json_key(&from)) {
            const char *begin = from.at;
            if (tn_json_is(&from, "splits")) {
                if (found) bad(r, "splits", "appears twice");
                found = true;
                *splits = from;
                (void)tn_json_skip(&from);
                continue;
            }
            take_small(r, &from, r->small);
            all += (size_t)(from.at - begin);
            if (all > SMALL_ALL) bad(r, "settings", "and the rest are too long");
        }
    if (r->status != TN_OK) return r->status;
    (void)tn_json_end(&from);
    const char *format = json_string_value(json_object_get(r->small, "format"));
    if (from.why || !format || strcmp(format, FORMAT) != 0)
        return tn_error(
            TN_BAD_FILE,
            "%.640s:%zu: not the manifest of a prepared data set, or damaged; prepare the data again (tenon "
            "data prepare)",
            r->path, from.why ? tn_json_line(&from) : 1);
    return TN_OK;
}

tn_status tn_manifest_read(const char *dir, tn_manifest *out)
{
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes;
    tn_json splits;
    tn_manifest m = { 0 };
    reader r = { .path = path, .m = &m, .small = json_object() };
    if (!r.small) TN_FAIL(TN_MEMORY, "out of memory while reading %.640s", dir);
    TN_TRY(tn_path_join(dir, TN_MANIFEST_NAME, path, sizeof path));
    TN_TRY(tn_file_read_all(path, TN_MANIFEST_BYTES_MAX, &text, &bytes));
    TN_TRY(read_small(&r, text, bytes, &splits));
    const json_int_t version = json_integer_value(json_object_get(r.small, "version"));
    if (version != TN_MANIFEST_VERSION)
        TN_FAIL(TN_BAD_FILE,
                "%.640s has format version %lld, this program reads %d: use a newer tenon or prepare the data again",
                path, (long long)version, TN_MANIFEST_VERSION);
    read_all(&r, r.small);
    if (r.status == TN_OK) read_splits(&r, &splits);
    TN_TRY(r.status);
    *out = m;
    m = (tn_manifest){ 0 };
done:
    json_decref(r.small);
    tn_free(text);
    tn_manifest_free(&m);
    return s;
}
