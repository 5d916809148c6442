/* Prepares text: documents are read, assigned to a split, tokenized by several threads and written in order. Training a
 * tokenizer first reads the train split once. */
#include "data/prepare_parts.h"

#include "data/encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job ends with either: a piece takes 40 bytes beside its text, which may be one letter. */
enum { JOB_BYTES = 256 << 10, JOB_PIECES = 8 << 10, AUTO_LEAST = 1 << 10, AUTO_MOST = 64 << 10 };

/* A few text files would be a few documents, and there would be nothing to hold out: they are cut so that a split of the
 * smallest fraction gets about two documents or more. */
static int64_t automatic_bytes(const tn_preparing *w, const tn_prepare_part *part)
{
    const double *frac = w->splitter.frac;
    const double least =
        frac[TN_VALID] > 0 && (frac[TN_TEST] <= 0 || frac[TN_VALID] < frac[TN_TEST]) ? frac[TN_VALID] : frac[TN_TEST];
    if (part->fixed || least <= 0 || (double)part->in.n * least >= 2) return 0;
    for (size_t i = 0; i < part->in.n; i++)
        if (part->in.v[i].format != TN_FORMAT_TEXT) return 0;
    const double bytes = (double)part->in.total_bytes * least / 2;
    return bytes < AUTO_LEAST ? AUTO_LEAST : bytes > AUTO_MOST ? AUTO_MOST : (int64_t)bytes;
}

static tn_status open_documents(tn_preparing *w, const tn_prepare_part *part, tn_cut_fn *cut, const void *ctx,
                                tn_documents **out)
{
    const tn_settings *st = w->p->settings;
    tn_documents_options o = { .doc_sep = tn_settings_text(st, "doc_sep"),
                               .text_key = tn_settings_text(st, "text_key"),
                               .doc_bytes = tn_settings_int(st, "doc_bytes"),
                               .cut = cut,
                               .cut_ctx = ctx };
    if (tn_settings_is_auto(st, "doc_bytes")) o.doc_bytes = automatic_bytes(w, part);
    return tn_documents_open(&part->in, &o, out);
}

static size_t cut_for(const void *tokenizer, const char *text, size_t bytes)
{
    return tn_tokenizer_cut(tokenizer, text, bytes);
}

static tn_data_split split_of(tn_splitter *s, const tn_prepare_part *part, const tn_piece *p)
{
    return part->fixed ? part->split : tn_splitter_document(s, p->text, p->bytes);
}

static tn_status write_job(tn_preparing *w, const tn_encode_job *j)
{
    const int32_t *ids = j->ids.ids;
    for (size_t i = 0; i < j->n; i++) {
        const tn_encode_piece *p = &j->pieces[i];
        TN_RETURN_IF(tn_sink_tokens(&w->sink, p->split, p->first, ids, p->tokens, p->bytes));
        ids += p->tokens;
        w->written += p->tokens;
    }
    return TN_OK;
}

tn_status tn__prepare_text(tn_preparing *w, const tn_prepare_part *part)
{
    tn_status s = TN_OK;
    tn_encoder *e = NULL;
    tn_documents *d = NULL;
    tn_encode_job *j;
    tn_piece p = { .text = "" };
    tn_data_split split = TN_TRAIN;
    tn_splitter splitter = w->splitter;
    TN_TRY(tn_encoder_new(w->tokenizer, w->threads, &e));
    TN_TRY(open_documents(w, part, cut_for, w->tokenizer, &d));
    while (p.text) {
        TN_TRY(tn_encoder_claim(e, &j));
        TN_TRY(write_job(w, j));
        tn_encode_job_clear(j);
        do {
            TN_TRY(tn_documents_next(d, &p));
            if (!p.text) break;
            if (p.first) split = split_of(&splitter, part, &p);
            TN_TRY(tn_encode_job_add(j, p.text, p.bytes, p.first, split));
        } while (j->text.n < JOB_BYTES && j->n < JOB_PIECES);
        tn_encoder_submit(e);
        TN_TRY(tn__prepare_tell(w, "prepare", w->done_bytes + tn_documents_consumed(d), w->total_bytes));
    }
    for (int i = 0; i < tn_encoder_depth(e); i++) {
        TN_TRY(tn_encoder_claim(e, &j));
        TN_TRY(write_job(w, j));
        tn_encode_job_clear(j);
    }
    w->done_bytes += tn_documents_consumed(d);
done:
    tn_encoder_free(e);
    tn_documents_close(d);
    return s;
}

/* --- training a tokenizer on the train split ------------------------------------------------------------------------------ */

typedef struct corpus {
    tn_preparing *w;
    const tn_prepare_part *part;
    tn_documents *d;
    tn_splitter splitter;
    tn_data_split split; /* of the open document */
    uint64_t left;       /* bytes that may still be read */
} corpus;

static tn_status corpus_next(void *user, const char **text, size_t *bytes)
{
    corpus *c = user;
    tn_piece p;
    *text = NULL;
    do {
        TN_RETURN_IF(tn_documents_next(c->d, &p));
        if (!p.text || c->left == 0) return TN_OK;
        if (p.first) c->split = split_of(&c->splitter, c->part, &p);
    } while (c->split != TN_TRAIN);
    c->left -= c->left < p.bytes ? c->left : p.bytes;
    *text = p.text;
    *bytes = p.bytes;
    return TN_OK;
}

static tn_status corpus_progress(void *user, const char *phase, int64_t done, int64_t total)
{
    corpus *c = user;
    const bool counts = strcmp(phase, "count") == 0;
    return tn__prepare_tell(c->w, phase, counts ? tn_documents_consumed(c->d) : (uint64_t)done,
                            counts ? c->part->in.total_bytes : (uint64_t)total);
}

static tn_status train_tokenizer(tn_preparing *w, int64_t vocab)
{
    tn_status s = TN_OK;
    const tn_prepare_part *part = &w->part[TN_TRAIN];
    corpus c = {
        .w = w, .part = part, .splitter = w->splitter, .left = (uint64_t)tn_settings_int(w->p->settings, "train_bytes")
    };
    const tn_bpe_options o = {
        .vocab = vocab, .threads = w->threads, .progress = corpus_progress, .progress_user = &c
    };
    if (c.left == 0) c.left = UINT64_MAX;
    TN_TRY(open_documents(w, part, NULL, NULL, &c.d));
    TN_TRY(tn_bpe_train(corpus_next, &c, &o, &w->tokenizer));
done:
    tn_documents_close(c.d);
    return s;
}

tn_status tn__prepare_tokenizer(tn_preparing *w)
{
    const char *spec = tn_settings_text(w->p->settings, "tokenizer");
    char *end;
    if (w->kind == TN_KIND_ARRAYS || (w->kind == TN_KIND_TOKENS && !*spec)) return TN_OK;
    if (!w->trains_tokenizer) return tn_tokenizer_open(*spec ? spec : "bytes", &w->tokenizer);
    const long long vocab = strtoll(spec + strlen("train:"), &end, 10);
    if (*end || vocab < 257 || vocab > 10000000)
        return tn_error(TN_USAGE,
                        "tokenizer=%.64s: the number after train: is the size of the vocabulary, 257 to 10000000, for "
                        "example train:8192",
                        spec);
    if (w->kind == TN_KIND_TOKENS)
        return tn_error(TN_USAGE, "tokenizer=%.64s needs text, and the inputs are tokens", spec);
    return train_tokenizer(w, vocab);
}

/* --- its copy, so that the folder needs no other file --------------------------------------------------------------------- */

static tn_status copy_file(const char *from, const char *dir, const char *name)
{
    enum { MOST = 64 << 20 }; /* it was opened as a tokenizer, whose files have no more */
    tn_status s = TN_OK;
    char path[TN_PATH_BYTES], *text = NULL;
    size_t bytes;
    TN_TRY(tn_path_join(dir, name, path, sizeof path));
    TN_TRY(tn_file_read_all(from, MOST, &text, &bytes));
    s = tn_file_write_atomic(path, text, bytes);
done:
    tn_free(text);
    return s;
}

/* The copy must give the same tokens, or the data set would lie. */
static tn_status check_copy(const tn_preparing *w, const char *path)
{
    tn_tokenizer *t = NULL;
    TN_RETURN_IF(tn_tokenizer_open(path, &t));
    const bool same = tn_tokenizer_hash(t) == tn_tokenizer_hash(w->tokenizer);
    tn_tokenizer_free(t);
    if (same) return TN_OK;
    return tn_error(TN_USAGE,
                    "the tokenizer %.640s cannot be copied into the data set: give the tokenizer.json, .model or "
                    "tokenizer.bin itself",
                    tn_settings_text(w->p->settings, "tokenizer"));
}

tn_status tn__prepare_tokenizer_copy(tn_preparing *w, const char *dir)
{
    char path[TN_PATH_BYTES], hex[24];
    tn_manifest *m = &w->manifest;
    m->tokenizer_kind = m->tokenizer_hash = m->tokenizer_file = "";
    if (!w->tokenizer) return TN_OK;
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)tn_tokenizer_hash(w->tokenizer));
    m->tokenizer_kind = tn_tokenizer_kind(w->tokenizer);
    m->tokenizer_hash = tn_arena_strdup(&m->arena, hex);
    if (!m->tokenizer_hash) return TN_MEMORY;
    if (strcmp(m->tokenizer_kind, "bytes") == 0) return TN_OK;
    const char *spec = tn_settings_text(w->p->settings, "tokenizer");
    const bool is_bpe = strcmp(m->tokenizer_kind, "bpe") == 0;
    const bool is_json = is_bpe || strcmp(m->tokenizer_kind, "metaspace") == 0;
    const bool is_model = strcmp(m->tokenizer_kind, "sentencepiece") == 0;
    m->tokenizer_file = is_json ? "tokenizer.json" : is_model ? "tokenizer.model" : "tokenizer.bin";
    TN_RETURN_IF(tn_path_join(dir, m->tokenizer_file, path, sizeof path));
    /* A pattern we do not know by name is kept by copying the file it came in. */
    if (!is_bpe || (tn_tokenizer_save(w->tokenizer, path) != TN_OK && !w->trains_tokenizer)) {
        char inner[TN_PATH_BYTES];
        const tn_status in_folder = tn_path_join(spec, m->tokenizer_file, inner, sizeof inner);
        if (in_folder != TN_OK || copy_file(inner, dir, m->tokenizer_file) != TN_OK)
            TN_RETURN_IF(copy_file(spec, dir, m->tokenizer_file));
    }
    return check_copy(w, path);
}
