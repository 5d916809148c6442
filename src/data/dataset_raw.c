/* Raw text as a data set of bytes or tokens, without `tenon data prepare`. A plain text file of bytes stays where it
 * is, its end held out; other text (compressed, JSON, folders, separators) is read into memory, whole documents held
 * out, and tokenized as preparing would. */
#include "data/dataset_parts.h"

#include "data/documents.h"
#include "data/sink.h"

#include <string.h>

static tn_status one_extent(tn_dataset *d, tn_data_split k, const void *items, uint64_t documents)
{
    tn_split_extents *p = &d->split[k];
    const uint64_t tokens = d->starts[k][documents];
    p->v = tn_alloc(sizeof *p->v);
    if (!p->v) return TN_MEMORY;
    p->v[0] = (tn_extent){
        .items = items, .starts = d->starts[k], .tokens = tokens, .documents = documents, .path = d->path
    };
    p->n = documents ? 1 : 0;
    p->counts = (tn_dataset_counts){ documents, tokens, tokens };
    return TN_OK;
}

static bool is_tokenized(const tn_dataset_options *o)
{
    return o->tokenizer && *o->tokenizer && strcmp(o->tokenizer, "bytes") != 0;
}

/* How much of the end of `bytes` is a part of its own: at least a window, and as much is left; not cut inside a character where
 * the text is to be tokenized. */
static size_t tail_of(const unsigned char *text, size_t bytes, size_t wanted, const tn_dataset_options *o)
{
    const size_t most = bytes > o->window ? bytes - (size_t)o->window : 0;
    size_t held = wanted < o->window ? (size_t)o->window : wanted;
    if (held > most) held = most;
    while (is_tokenized(o) && held && held < bytes && (text[bytes - held] & 0xC0) == 0x80) held++;
    return held;
}

/* One document: training text, then what is held out, then the test, where one is asked for. NULL: it is in d->file. */
static tn_status split_tail(tn_dataset *d, const unsigned char *text, size_t bytes, const tn_dataset_options *o)
{
    const int parts = o->test_frac > 0 ? 3 : 2;
    if (bytes < (uint64_t)parts * o->window)
        return tn_error(TN_BAD_FILE,
                        "%.640s has %zu bytes, too few for windows of %llu tokens: use a smaller train.context or more "
                        "text",
                        d->path, bytes, (unsigned long long)(o->window - 1));
    size_t test = 0;
    if (parts == 3) { /* a window for each of the other two is left */
        const size_t most = bytes - 2 * (size_t)o->window, wanted = (size_t)((double)bytes * o->test_frac);
        test = tail_of(text, bytes, wanted < most ? wanted : most, o);
    }
    const size_t held = tail_of(text, bytes - test, (size_t)((double)bytes * o->holdout_frac), o);
    const size_t sizes[TN_SPLITS] = { bytes - test - held, held, test };
    size_t at = 0;
    for (int k = 0; k < TN_SPLITS; at += sizes[k++]) {
        if (k == TN_TEST && !test) break;
        d->starts[k] = tn_alloc(2 * sizeof(uint64_t));
        if (!d->starts[k]) return TN_MEMORY;
        d->starts[k][1] = sizes[k];
        TN_RETURN_IF(one_extent(d, (tn_data_split)k, text ? text + at : NULL, sizes[k] ? 1 : 0));
        if (!text) d->split[k].v[0].file = &d->file;
        d->split[k].v[0].items_at = at;
    }
    return TN_OK;
}

typedef struct raw_split {
    size_t n, capacity, documents, table_capacity;
} raw_split;

static tn_status append(tn_dataset *d, raw_split *r, tn_data_split k, const tn_piece *p)
{
    void *text = d->text[k], *starts = d->starts[k];
    TN_RETURN_IF(tn_grow(&text, &r->capacity, r->n + p->bytes, 1));
    d->text[k] = text;
    TN_RETURN_IF(tn_grow(&starts, &r->table_capacity, r->documents + 2, sizeof(uint64_t)));
    d->starts[k] = starts;
    if (p->first) d->starts[k][r->documents++] = r->n;
    memcpy(d->text[k] + r->n, p->text, p->bytes);
    r->n += p->bytes;
    d->starts[k][r->documents] = r->n;
    return TN_OK;
}

static tn_status too_large(const tn_dataset *d)
{
    return tn_error(TN_USAGE,
                    "%.640s contains more than %d MiB of text, too much to keep in memory: run `tenon data "
                    "prepare %.200s out=DIR` first",
                    d->path, TN_DATASET_RAW_BYTES >> 20, d->path);
}

static tn_status read_documents(tn_dataset *d, const tn_input_files *in, const tn_dataset_options *o)
{
    tn_status s = TN_OK;
    raw_split r[TN_SPLITS] = { { 0 } };
    tn_documents *docs = NULL;
    tn_piece p;
    tn_data_split k = TN_TRAIN;
    tn_splitter rule = { .seed = o->seed, .frac = { 0, o->holdout_frac, o->test_frac } };
    const tn_documents_options how = { .doc_sep = o->doc_sep, .text_key = o->text_key };
    TN_TRY(tn_documents_open(in, &how, &docs));
    for (;;) {
        TN_TRY(tn_documents_next(docs, &p));
        if (!p.text) break;
        if (p.first) k = tn_splitter_document(&rule, p.text, p.bytes);
        if (r[0].n + r[1].n + r[2].n + p.bytes > TN_DATASET_RAW_BYTES) TN_TRY(too_large(d));
        TN_TRY(append(d, &r[k], k, &p));
    }
    if (r[0].documents + r[1].documents + r[2].documents == 1) { /* too few to hold one out: the end of it */
        tn_free(d->starts[TN_TRAIN]);
        d->starts[TN_TRAIN] = NULL;
        s = split_tail(d, d->text[TN_TRAIN], r[TN_TRAIN].n, o);
        goto done;
    }
    for (int i = 0; i < TN_SPLITS; i++)
        if (r[i].documents) TN_TRY(one_extent(d, (tn_data_split)i, d->text[i], r[i].documents));
done:
    tn_documents_close(docs);
    return s;
}

/* One plain file: of bytes it is read where it is, text to be tokenized once and whole. */
static tn_status open_plain(tn_dataset *d, const char *path, const tn_dataset_options *o, bool *packed)
{
    unsigned char head[4] = { 0 };
    char *text;
    size_t bytes;
    TN_RETURN_IF(tn_file_open(path, &d->file));
    TN_RETURN_IF(tn_file_read_at(&d->file, path, 0, head, d->file.bytes < 4 ? d->file.bytes : 4));
    *packed = memcmp(head, "\x1F\x8B", 2) == 0 || memcmp(head, "\x28\xB5\x2F\xFD", 4) == 0;
    if (*packed) return TN_OK;
    if (!is_tokenized(o)) return split_tail(d, NULL, d->file.bytes, o);
    if (d->file.bytes > TN_DATASET_RAW_BYTES) return too_large(d);
    TN_RETURN_IF(tn_file_read_all(path, TN_DATASET_RAW_BYTES, &text, &bytes));
    d->text[TN_TRAIN] = (unsigned char *)text;
    return split_tail(d, d->text[TN_TRAIN], bytes, o);
}

/* --- tokens --------------------------------------------------------------------------------------------------------------- */

typedef struct encoding {
    const tn_tokenizer *t;
    tn_tokenizer_scratch *scratch;
} encoding;

static tn_status encode_document(const encoding *e, const char *text, size_t bytes, int32_t eot, tn_tokens *ids)
{
    if (eot >= 0) {
        void *p = ids->ids;
        TN_RETURN_IF(tn_grow(&p, &ids->capacity, ids->n + 1, sizeof *ids->ids));
        ids->ids = p;
        ids->ids[ids->n++] = eot;
    }
    while (bytes) { /* in pieces, for the scratch memory grows with the text */
        const size_t cut = bytes > TN_PIECE_BYTES ? tn_tokenizer_cut(e->t, text, TN_PIECE_BYTES) : 0;
        const size_t n = cut ? cut : bytes;
        TN_RETURN_IF(tn_tokenizer_encode(e->t, e->scratch, text, n, 0, ids));
        text += n;
        bytes -= n;
    }
    return TN_OK;
}

/* The table of a split, which is one extent, turns from places of bytes into places of tokens. */
static tn_status encode_split(tn_dataset *d, const encoding *e, tn_data_split k)
{
    tn_split_extents *p = &d->split[k];
    tn_tokens *ids = &d->ids[k];
    uint64_t from = 0;
    if (p->n == 0) return TN_OK;
    const char *text = p->v[0].items;
    uint64_t *starts = d->starts[k];
    for (uint64_t i = 0; i < p->v[0].documents; i++) {
        const uint64_t to = starts[i + 1];
        TN_RETURN_IF(encode_document(e, text + from, (size_t)(to - from), d->info.eot, ids));
        starts[i + 1] = ids->n;
        from = to;
    }
    p->v[0].items = ids->ids;
    p->v[0].tokens = p->counts.tokens = ids->n;
    return TN_OK;
}

/* A mapped file is read for it and not through its map: one that is cut meanwhile is an error then, not a signal. */
static tn_status hash_text(tn_dataset *d, const char *file)
{
    tn_status s = TN_OK;
    tn_hash *h = NULL;
    char of_file[TN_HASH_BYTES] = "";
    if (d->file.is_open) TN_TRY(tn_hash_file(file, of_file));
    TN_TRY(tn_hash_begin(&h));
    tn_hash_add(h, of_file, sizeof of_file);
    for (int k = 0; k < TN_SPLITS; k++) {
        const tn_split_extents *p = &d->split[k];
        tn_hash_add(h, &p->counts.documents, sizeof p->counts.documents);
        if (p->n == 0) continue;
        tn_hash_add(h, p->v[0].starts, (size_t)(p->v[0].documents + 1) * sizeof *p->v[0].starts);
        if (p->v[0].items) tn_hash_add(h, p->v[0].items, (size_t)p->v[0].tokens);
    }
    tn_hash_text(h, d->info.content);
done:
    tn_hash_free(h);
    return s;
}

/* The same text is other tokens by another tokenizer. */
static void hash_tokenizer(tn_dataset *d, uint64_t tokenizer)
{
    char all[TN_HASH_BYTES + sizeof tokenizer];
    memcpy(all, d->info.content, TN_HASH_BYTES);
    memcpy(all + TN_HASH_BYTES, &tokenizer, sizeof tokenizer);
    if (d->info.content[0]) tn_hash_memory(all, sizeof all, d->info.content);
}

static tn_status encode_all(tn_dataset *d, const char *spec)
{
    tn_status s = TN_OK;
    tn_tokenizer *t = NULL;
    encoding e = { 0 };
    TN_TRY(tn_tokenizer_open(spec, &t));
    e.t = t;
    TN_TRY(tn_tokenizer_scratch_new(&e.scratch));
    TN_TRY(tn_path_join("", spec, d->info.tokenizer, sizeof d->info.tokenizer));
    hash_tokenizer(d, tn_tokenizer_hash(t));
    d->info.vocab = tn_tokenizer_vocab(t);
    d->info.eot = tn_tokenizer_special(t, TN_TOKEN_END);
    d->info.item = TN_ITEM_U32;
    for (int k = 0; k < TN_SPLITS; k++) TN_TRY(encode_split(d, &e, (tn_data_split)k));
    for (int k = 0; k < TN_SPLITS; k++) { /* all parts may lie in one text */
        tn_free(d->text[k]);
        d->text[k] = NULL;
    }
done:
    tn_tokenizer_scratch_free(e.scratch);
    tn_tokenizer_free(t);
    return s;
}

/* A file that is not text is among them: data sets are prepared from files of one kind. */
static tn_status not_text(const char *path, const tn_input_files *in)
{
    const tn_input_file *first = in->v;
    for (const tn_input_file *f = first; f < first + in->n; f++)
        if (tn_format_kind(f->format) != tn_format_kind(first->format))
            return tn_error(
                TN_BAD_FILE,
                "%.300s has files of several kinds (%.300s is %s, %.300s is %s): name a file or a subfolder", path,
                first->path, tn_format_name(first->format), f->path, tn_format_name(f->format));
    return tn_error(TN_BAD_FILE, "%.640s is %s, which has to be prepared first: tenon data prepare %.200s out=DIR",
                    first->path, tn_format_name(first->format), path);
}

tn_status tn__dataset_open_raw(tn_dataset *d, const tn_dataset_options *o)
{
    tn_status s = TN_OK;
    tn_input_files in = { .as_is = d->path };
    d->info = (tn_dataset_info){ .kind = TN_SHARD_TOKENS,
                                 .is_raw = true,
                                 .vocab = 256,
                                 .eot = -1,
                                 .item = TN_ITEM_U8,
                                 .sample = 1,
                                 .tokenizer = "bytes" };
    if (o->test_frac > 0 && o->holdout_frac + o->test_frac >= 1)
        TN_FAIL(TN_USAGE, "train.holdout_frac and train.test_frac together leave nothing of %.640s to train on",
                d->path);
    TN_TRY(tn_input_files_add(&in, d->path, TN_FORMAT_AUTO));
    for (size_t i = 0; i < in.n; i++)
        if (tn_format_kind(in.v[i].format) != TN_KIND_TEXT) TN_TRY(not_text(d->path, &in));
    const bool plain = in.n == 1 && in.v[0].format == TN_FORMAT_TEXT &&
                       (!o->doc_sep || !*o->doc_sep || strcmp(o->doc_sep, "none") == 0);
    bool packed = true;
    if (plain) TN_TRY(open_plain(d, in.v[0].path, o, &packed));
    if (packed) TN_TRY(read_documents(d, &in, o));
    if (d->split[TN_TRAIN].counts.tokens == 0) TN_FAIL(TN_BAD_FILE, "%.640s contains no text", d->path);
    if (o->content) TN_TRY(hash_text(d, in.v[0].path));
    if (is_tokenized(o)) TN_TRY(encode_all(d, o->tokenizer));
done:
    tn_input_files_free(&in);
    return s;
}
