/* tenon data inspect: what a prepared folder, one shard, or a raw file holds. Changes nothing. */
#include "cli/data/data_view.h"

#include "base/text.h"
#include "data/documents.h"
#include "data/prepare.h"
#include "io/array_file.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN_TOKENS = 32, SHOWN_BYTES = 96 };

static tn_status show_text(tn_cli *c, const char *name, const char *text, size_t bytes)
{
    char cut[SHOWN_BYTES + 1], quoted[SHOWN_BYTES + 8];
    size_t n = 0;
    for (; n < bytes && n < SHOWN_BYTES; n++) cut[n] = text[n] ? text[n] : ' ';
    cut[n] = 0;
    tn_text_quote(cut, quoted, sizeof quoted);
    if (!c->json) fprintf(c->out, "%s: %s\n", name, quoted);
    return tn_data_emit_text(c, name, quoted);
}

/* The first tokens as numbers, and as text where the tokenizer is known. */
static tn_status show_first(tn_cli *c, const tn_dataset *d)
{
    tn_status s = TN_OK;
    tn_tokenizer *t = NULL;
    tn_text text = { 0 };
    int32_t ids[SHOWN_TOKENS];
    uint64_t start, tokens;
    char list[16 * SHOWN_TOKENS] = "";
    TN_TRY(tn_dataset_document(d, TN_TRAIN, 0, &start, &tokens));
    const size_t n = tokens < SHOWN_TOKENS ? (size_t)tokens : SHOWN_TOKENS;
    TN_TRY(tn_dataset_read(d, TN_TRAIN, start, n, ids));
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", i ? " " : "", ids[i]);
    TN_TRY(show_text(c, "first tokens", list, strlen(list)));
    if (!tn_dataset_about(d)->tokenizer[0]) goto done;
    TN_TRY(tn_tokenizer_open(tn_dataset_about(d)->tokenizer, &t));
    TN_TRY(tn_tokenizer_decode(t, ids, n, &text));
    s = show_text(c, "as text", text.data, text.n);
done:
    tn_text_free(&text);
    tn_tokenizer_free(t);
    return s;
}

static tn_status inspect_dataset(tn_cli *c, const char *path)
{
    tn_status s = TN_OK;
    tn_dataset *d = NULL;
    tn_lengths h = { .n = 0 };
    uint64_t start, tokens;
    TN_TRY(tn_dataset_open(path, NULL, &d));
    if (tn_args_flag(&c->args, "verify")) TN_TRY(tn_dataset_verify(d));
    TN_TRY(tn_data_print(c, path, d));
    const uint64_t n = tn_dataset_count(d, TN_TRAIN).documents;
    for (uint64_t i = 0; tn_dataset_about(d)->kind == TN_SHARD_TOKENS && i < n; i++) {
        TN_TRY(tn_dataset_document(d, TN_TRAIN, i, &start, &tokens));
        tn_lengths_add(&h, tokens);
    }
    TN_TRY(tn_lengths_print(c, &h, "tokens"));
    if (h.n) TN_TRY(show_first(c, d));
    if (tn_args_flag(&c->args, "verify")) {
        if (!c->json) fputs("verified: all hashes, tables and tokens are valid\n", c->out);
        TN_TRY(tn_data_emit_text(c, "verified", "yes"));
    }
done:
    tn_dataset_close(d);
    return s;
}

static tn_status inspect_shard(tn_cli *c, const char *path)
{
    tn_status s = TN_OK;
    tn_shard h = { 0 };
    TN_TRY(tn_shard_open(path, &h));
    if (tn_args_flag(&c->args, "verify")) TN_TRY(tn_shard_verify(&h));
    const bool tokens = h.info.kind == TN_SHARD_TOKENS;
    if (!c->json)
        fprintf(c->out, "%s: a shard of %s: %llu %s, %llu %s as %s, hash %s%s\n", path, tokens ? "tokens" : "arrays",
                (unsigned long long)h.info.documents, tokens ? "documents" : "samples",
                (unsigned long long)h.info.tokens, tokens ? "tokens" : "features", tn_item_name(h.info.item),
                h.info.hash, tn_args_flag(&c->args, "verify") ? ", verified" : "");
    TN_TRY(tn_data_emit_text(c, "kind", tokens ? "shard of tokens" : "shard of arrays"));
    TN_TRY(tn_data_emit(c, tokens ? "documents" : "samples", h.info.documents, tokens ? "documents" : "samples"));
    TN_TRY(tn_data_emit(c, tokens ? "tokens" : "features", h.info.tokens, tokens ? "tokens" : "numbers"));
    s = tn_data_emit_text(c, "hash", h.info.hash);
done:
    tn_shard_close(&h);
    return s;
}

static tn_status inspect_array(tn_cli *c, const tn_input_file *in)
{
    tn_array *a = NULL;
    const tn_array_format f = in->format == TN_FORMAT_NPY   ? TN_ARRAY_NPY
                              : in->format == TN_FORMAT_IDX ? TN_ARRAY_IDX
                                                            : TN_ARRAY_CSV;
    TN_RETURN_IF(tn_array_open(in->path, f, &a));
    const tn_array_info i = *tn_array_about(a);
    tn_array_close(a);
    if (!c->json) {
        fprintf(c->out, "%s: an array (%s), samples of", in->path, tn_format_name(in->format));
        for (int r = 0; r < i.rank; r++) fprintf(c->out, "%s%lld", r ? "x" : " ", (long long)i.dims[r]);
        fprintf(c->out, "%s numbers", i.rank ? "" : " 1");
        if (i.rows >= 0) fprintf(c->out, ", %lld samples", (long long)i.rows);
        fputc('\n', c->out);
    }
    TN_RETURN_IF(tn_data_emit_text(c, "kind", tn_format_name(in->format)));
    if (i.rows >= 0) TN_RETURN_IF(tn_data_emit(c, "samples", (uint64_t)i.rows, "samples"));
    return tn_data_emit(c, "sample", i.sample, "numbers");
}

static tn_status inspect_tokens(tn_cli *c, const tn_input_file *in)
{
    tn_stream *s = NULL;
    int32_t head[3] = { 0 };
    size_t got;
    TN_RETURN_IF(tn_stream_open(in->path, &s));
    const tn_status st = tn_stream_read(s, head, sizeof head, &got);
    tn_stream_close(s);
    TN_RETURN_IF(st);
    const bool narrow = head[0] == 20240520, wide = head[0] == 20240801;
    const uint64_t n = narrow || wide ? (uint64_t)(head[2] < 0 ? 0 : head[2]) : in->bytes / 2;
    const char *what = narrow ? "llm.c, uint16" : wide ? "llm.c, uint32" : "no header: uint16 as nanoGPT writes them";
    if (!c->json) fprintf(c->out, "%s: %llu tokens (%s)\n", in->path, (unsigned long long)n, what);
    TN_RETURN_IF(tn_data_emit_text(c, "kind", what));
    return tn_data_emit(c, "tokens", n, "tokens");
}

static tn_status inspect_text(tn_cli *c, const tn_input_files *in, const tn_settings *st)
{
    tn_status s = TN_OK;
    tn_documents *d = NULL;
    tn_piece p;
    tn_lengths h = { .n = 0 };
    uint64_t length = 0, bytes = 0;
    const tn_documents_options o = { .doc_sep = tn_settings_text(st, "doc_sep"),
                                     .text_key = tn_settings_text(st, "text_key") };
    TN_TRY(tn_documents_open(in, &o, &d));
    for (bool first = true;; first = false) {
        TN_TRY(tn_documents_next(d, &p));
        if ((p.first || !p.text) && length) tn_lengths_add(&h, length);
        if (!p.text) break;
        if (first) TN_TRY(show_text(c, "begins", p.text, p.bytes));
        length = p.first ? p.bytes : length + p.bytes;
        bytes += p.bytes;
    }
    if (!c->json)
        fprintf(c->out, "%s%s: text (%s), %llu documents, %llu bytes\n", in->v[0].path, in->n > 1 ? " and others" : "",
                tn_format_name(in->v[0].format), (unsigned long long)h.n, (unsigned long long)bytes);
    TN_TRY(tn_data_emit_text(c, "kind", tn_format_name(in->v[0].format)));
    TN_TRY(tn_data_emit(c, "documents", h.n, "documents"));
    TN_TRY(tn_data_emit(c, "text", bytes, "bytes"));
    s = tn_lengths_print(c, &h, "bytes");
done:
    tn_documents_close(d);
    return s;
}

static tn_status inspect_raw(tn_cli *c, const char *path)
{
    tn_status s = TN_OK;
    tn_input_files in = { 0 };
    tn_settings *st = NULL;
    TN_TRY(tn_prepare_settings(&st));
    for (size_t i = 0; i < c->args.overrides_n; i++) TN_TRY(tn_settings_override(st, c->args.overrides[i]));
    TN_TRY(tn_input_files_add(&in, path, tn_format_parse(tn_settings_text(st, "format"))));
    const tn_data_kind kind = tn_format_kind(in.v[0].format);
    if (kind == TN_KIND_TEXT) {
        for (size_t i = 1; i < in.n; i++)
            if (tn_format_kind(in.v[i].format) != TN_KIND_TEXT)
                TN_FAIL(TN_USAGE,
                        "%.640s contains files of several kinds: inspect them one by one, or set format=", path);
        TN_TRY(inspect_text(c, &in, st));
    } else
        for (size_t i = 0; i < in.n; i++)
            TN_TRY(kind == TN_KIND_ARRAYS ? inspect_array(c, &in.v[i]) : inspect_tokens(c, &in.v[i]));
done:
    tn_settings_free(st);
    tn_input_files_free(&in);
    return s;
}

tn_status tn_data_inspect(tn_cli *c)
{
    char manifest[TN_PATH_BYTES];
    struct stat info;
    TN_RETURN_IF(tn_args_expect(&c->args, 2, 2));
    const char *path = tn_args_positional(&c->args, 1);
    TN_RETURN_IF(tn_path_join(path, TN_MANIFEST_NAME, manifest, sizeof manifest));
    if (stat(manifest, &info) == 0) return inspect_dataset(c, path);
    if (tn_shard_is(path)) return inspect_shard(c, path);
    return inspect_raw(c, path);
}
