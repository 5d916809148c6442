/* Prepares token files of llm.c (header of 256 int32: magic, version, count) and nanoGPT (bare uint16). bin_eot names
 * the token that separates documents; each document then begins with it, as ours do. */
#include "data/prepare_parts.h"

#include "io/stream.h"

#include <string.h>

enum { MAGIC_U16 = 20240520, MAGIC_U32 = 20240801, HEADER_INTS = 256, BLOCK = 1 << 16 };

typedef struct token_file {
    tn_stream *stream;
    size_t item_bytes;
    uint64_t left; /* tokens that the header promises; UINT64_MAX: to the end */
    const char *path;
    union {
        uint16_t narrow[BLOCK];
        uint32_t wide[BLOCK];
        int32_t header[HEADER_INTS];
    } raw;
    size_t kept; /* bytes at the start of raw that were read while looking for a header */
} token_file;

static tn_status read_header(token_file *f)
{
    size_t got;
    const int32_t *h = f->raw.header;
    TN_RETURN_IF(tn_stream_read(f->stream, f->raw.header, sizeof f->raw.header, &got));
    f->item_bytes = 2;
    f->left = UINT64_MAX;
    f->kept = got;
    if (got < 4 || (h[0] != MAGIC_U16 && h[0] != MAGIC_U32)) return TN_OK;
    if (got < sizeof f->raw.header)
        return tn_error(TN_BAD_FILE,
                        "%.640s ends inside its header of 1024 bytes; the file was cut short, download it again",
                        f->path);
    const bool narrow = h[0] == MAGIC_U16;
    if (h[1] != (narrow ? 1 : 7) || h[2] < 0)
        return tn_error(TN_BAD_FILE,
                        "%.640s: version %d with %d tokens is not what llm.c writes (version %d); download it again",
                        f->path, h[1], h[2], narrow ? 1 : 7);
    f->item_bytes = narrow ? 2 : 4;
    f->left = (uint64_t)h[2];
    f->kept = 0;
    return TN_OK;
}

static tn_status token_file_open(const char *path, token_file **out)
{
    tn_status s = TN_OK;
    token_file *f = tn_alloc(sizeof *f);
    if (!f) return TN_MEMORY;
    f->path = path;
    TN_TRY(tn_stream_open(path, &f->stream));
    TN_TRY(read_header(f));
    *out = f;
    return TN_OK;
done:
    tn_stream_close(f->stream);
    tn_free(f);
    return s;
}

static void token_file_close(token_file *f)
{
    if (!f) return;
    tn_stream_close(f->stream);
    tn_free(f);
}

/* Up to BLOCK tokens into ids; *n is 0 at the end. */
static tn_status token_file_next(token_file *f, int32_t *ids, size_t *n)
{
    size_t got = 0;
    const size_t want = BLOCK * f->item_bytes - f->kept;
    TN_RETURN_IF(tn_stream_read(f->stream, (unsigned char *)&f->raw + f->kept, want, &got));
    got += f->kept;
    f->kept = 0;
    *n = got / f->item_bytes;
    const bool counted = f->left != UINT64_MAX, at_end = *n < BLOCK;
    if (got % f->item_bytes || (counted && (*n > f->left || (at_end && *n < f->left))))
        return tn_error(TN_BAD_FILE,
                        "%.640s does not end with the last of its tokens (%zu bytes each); it was cut short or is not "
                        "a file of tokens",
                        f->path, f->item_bytes);
    if (counted) f->left -= *n;
    for (size_t i = 0; i < *n; i++) ids[i] = f->item_bytes == 2 ? f->raw.narrow[i] : (int32_t)f->raw.wide[i];
    return TN_OK;
}

tn_status tn__prepare_tokens_about(tn_preparing *w)
{
    tn_manifest *m = &w->manifest;
    const int64_t given = tn_settings_int(w->p->settings, "vocab");
    bool narrow = true;
    for (int k = 0; k < TN_SPLITS; k++)
        for (size_t i = 0; i < w->part[k].in.n; i++) {
            token_file *f = NULL;
            TN_RETURN_IF(token_file_open(w->part[k].in.v[i].path, &f));
            narrow = narrow && f->item_bytes == 2;
            token_file_close(f);
        }
    m->vocab = w->tokenizer ? tn_tokenizer_vocab(w->tokenizer) : given > 0 ? given : narrow ? 50257 : 128256;
    m->item = m->vocab <= 65536 ? TN_ITEM_U16 : TN_ITEM_U32;
    const bool is_auto = tn_settings_is_auto(w->p->settings, "bin_eot");
    m->eot = is_auto ? (narrow ? 50256 : 128000) : (int32_t)tn_settings_int(w->p->settings, "bin_eot");
    if (m->eot >= m->vocab && is_auto) m->eot = -1; /* a small vocabulary of its own, as of characters */
    if (m->eot < -1 || m->eot >= m->vocab)
        return tn_error(TN_USAGE, "bin_eot=%d is beyond the vocabulary of %lld", m->eot, (long long)m->vocab);
    return TN_OK;
}

/* Bytes of text that tokens stand for; 0 where no tokenizer says. */
static uint64_t text_bytes(const tn_preparing *w, const int32_t *ids, size_t n)
{
    uint64_t sum = 0;
    size_t bytes;
    for (size_t i = 0; w->tokenizer && i < n; i++)
        if (tn_tokenizer_piece(w->tokenizer, ids[i], &bytes)) sum += bytes;
    return sum;
}

typedef struct state {
    const tn_prepare_part *part;
    tn_splitter splitter;
    tn_data_split split;
    bool inside; /* a document is open */
} state;

/* A run of tokens of one document. */
static tn_status put_run(tn_preparing *w, state *st, const int32_t *ids, size_t n)
{
    if (n == 0) return TN_OK;
    if (!st->inside)
        st->split = st->part->fixed ? st->part->split : tn_splitter_document(&st->splitter, ids, n * sizeof *ids);
    TN_RETURN_IF(tn_sink_tokens(&w->sink, st->split, !st->inside, ids, n, text_bytes(w, ids, n)));
    st->inside = true;
    w->written += n;
    return TN_OK;
}

static tn_status put_block(tn_preparing *w, state *st, const char *path, const int32_t *ids, size_t n)
{
    const int32_t eot = w->manifest.eot;
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->manifest.vocab)
            return tn_error(TN_BAD_FILE,
                            "%.640s: token %u is beyond the vocabulary of %lld; set vocab= or tokenizer=", path,
                            (unsigned)ids[i], (long long)w->manifest.vocab);
        if (ids[i] != eot) continue;
        TN_RETURN_IF(put_run(w, st, ids + from, i - from));
        st->inside = false;
        from = i + 1;
    }
    return put_run(w, st, ids + from, n - from);
}

tn_status tn__prepare_tokens(tn_preparing *w, const tn_prepare_part *part)
{
    tn_status s = TN_OK;
    token_file *f = NULL;
    state st = { .part = part, .splitter = w->splitter };
    int32_t *ids = tn_alloc(BLOCK * sizeof *ids);
    if (!ids) return TN_MEMORY;
    for (size_t i = 0; i < part->in.n; i++) {
        size_t n;
        st.inside = false;
        TN_TRY(token_file_open(part->in.v[i].path, &f));
        do {
            TN_TRY(token_file_next(f, ids, &n));
            TN_TRY(put_block(w, &st, f->path, ids, n));
            TN_TRY(tn__prepare_tell(w, "prepare", w->done_bytes + tn_stream_consumed(f->stream), w->total_bytes));
        } while (n);
        w->done_bytes += tn_stream_consumed(f->stream);
        token_file_close(f);
        f = NULL;
    }
done:
    token_file_close(f);
    tn_free(ids);
    return s;
}
