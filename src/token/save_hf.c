/* Writing tokenizer.json in the form `tokenizers` reads: byte-level BPE with one known split pattern. The file is a
 * function of the tokenizer alone: the same one gives the same bytes. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
    tn_text text;
    tn_status s; /* the first failure; later calls do nothing */
} writer;

static void put(writer *w, const char *text)
{
    if (w->s == TN_OK) w->s = tn_text_append(&w->text, text, strlen(text));
}

static void put_number(writer *w, int64_t x)
{
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", (long long)x);
    put(w, buf);
}

/* Text inside quotes; it is valid UTF-8. */
static void put_escaped(writer *w, const char *text, size_t n)
{
    char buf[8];
    for (size_t i = 0; i < n && w->s == TN_OK; i++) {
        if (text[i] == '"' || text[i] == '\\') snprintf(buf, sizeof buf, "\\%c", text[i]);
        else if ((unsigned char)text[i] < 0x20) snprintf(buf, sizeof buf, "\\u%04x", (unsigned)text[i]);
        else snprintf(buf, sizeof buf, "%c", text[i]);
        put(w, buf);
    }
}

/* A token in GPT-2's alphabet. */
static void put_token(writer *w, const tn_vocab *v, uint32_t id)
{
    char utf8[4];
    for (uint32_t i = 0; i < v->piece[id].bytes; i++)
        put_escaped(w, utf8, tn_utf8_write(tn__byte_char((unsigned char)tn_vocab_bytes(v, (int32_t)id)[i]), utf8));
}

static void put_added(writer *w, const tn_tokenizer *t)
{
    static const char *const word[] = { "false", "true" };
    put(w, "  \"added_tokens\": [");
    for (size_t i = 0; i < t->n_added; i++) {
        const tn_added *a = t->added + i;
        put(w, i ? ",\n    { \"id\": " : "\n    { \"id\": ");
        put_number(w, a->id);
        put(w, ", \"content\": \"");
        put_escaped(w, tn_vocab_bytes(&t->vocab, a->id), a->bytes);
        put(w, "\", \"single_word\": false, \"lstrip\": ");
        put(w, word[a->lstrip]);
        put(w, ", \"rstrip\": ");
        put(w, word[a->rstrip]);
        put(w, ", \"normalized\": ");
        put(w, word[a->normalized]);
        put(w, ", \"special\": ");
        put(w, word[a->special]);
        put(w, " }");
    }
    put(w, t->n_added ? "\n  ],\n" : "],\n");
}

static void put_pre_tokenizer(writer *w, const tn_tokenizer *t)
{
    const tn_split_pattern *p = t->split[0].known;
    if (strcmp(p->name, "gpt2") == 0) {
        put(w, "  \"pre_tokenizer\": { \"type\": \"ByteLevel\", \"add_prefix_space\": ");
        put(w, t->prefix_space ? "true" : "false");
        put(w, ", \"trim_offsets\": true, \"use_regex\": true },\n");
        return;
    }
    put(w, "  \"pre_tokenizer\": { \"type\": \"Sequence\", \"pretokenizers\": [\n    { \"type\": \"Split\", "
           "\"pattern\": { \"Regex\": \"");
    put_escaped(w, p->regex, strlen(p->regex));
    put(w, "\" }, \"behavior\": \"Isolated\", \"invert\": false },\n    { \"type\": \"ByteLevel\", "
           "\"add_prefix_space\": false, "
           "\"trim_offsets\": true, \"use_regex\": false }\n  ] },\n");
}

/* Which tokens are the model's own: all but the added ones that only lie beside it. */
static void put_vocab(writer *w, const tn_tokenizer *t)
{
    bool first = true;
    put(w, "    \"vocab\": {");
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        const uint32_t n = t->vocab.piece[id].bytes;
        if (n == 0) continue;
        const bool added = tn_vocab_find(&t->vocab, tn_vocab_bytes(&t->vocab, (int32_t)id), n) != (int32_t)id;
        put(w, first ? "\n      \"" : ",\n      \"");
        if (added) put_escaped(w, tn_vocab_bytes(&t->vocab, (int32_t)id), n);
        else put_token(w, &t->vocab, id);
        put(w, "\": ");
        put_number(w, id);
        first = false;
    }
    put(w, "\n    },\n");
}

static void put_merges(writer *w, const tn_vocab *v, const tn_pair *const *by_rank)
{
    put(w, "    \"merges\": [");
    for (size_t i = 0; i < v->n_pairs; i++) {
        put(w, i ? ",\n      \"" : "\n      \"");
        put_token(w, v, by_rank[i]->left);
        put(w, " ");
        put_token(w, v, by_rank[i]->right);
        put(w, "\"");
    }
    put(w, v->n_pairs ? "\n    ]\n" : "]\n");
}

static tn_status sort_merges(const tn_vocab *v, const tn_pair **by_rank)
{
    for (size_t i = 0; i < v->n_pairs; i++) {
        const tn_pair *p = v->pair + i;
        if (p->rank >= v->n_pairs || by_rank[p->rank])
            return tn_error(TN_USAGE,
                            "its merges have gaps in their order; only a tokenizer without repeated merges is written");
        by_rank[p->rank] = p;
    }
    return TN_OK;
}

static tn_status check_kind(const tn_tokenizer *t)
{
    if (t->kind == TN_KIND_BYTES) return tn_error(TN_USAGE, "tokens are bytes, and the value of a byte is its id");
    if (t->kind != TN_KIND_BPE || t->from_pieces)
        return tn_error(
            TN_USAGE,
            "only byte-level BPE with a list of merges is written as tokenizer.json; copy the file it came from");
    if (t->n_splits != 1 || !t->split[0].known || t->split[0].known == &tn_split_digits[0] ||
        t->split[0].known == &tn_split_digits[1])
        return tn_error(TN_USAGE,
                        "only one known split pattern is written as tokenizer.json; copy the file it came from");
    if (t->template_bos >= 0)
        return tn_error(TN_USAGE, "templates are not written; copy the tokenizer.json it came from");
    return TN_OK;
}

tn_status tn_tokenizer_save(const tn_tokenizer *t, const char *path)
{
    tn_status s = TN_OK;
    writer w = { .s = TN_OK };
    const tn_pair **by_rank = NULL;
    TN_TRY(check_kind(t));
    by_rank = tn_alloc((t->vocab.n_pairs + 1) * sizeof *by_rank);
    if (!by_rank) return TN_MEMORY;
    TN_TRY(sort_merges(&t->vocab, by_rank));
    put(&w, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(&w, t);
    put(&w, t->nfc ? "  \"normalizer\": { \"type\": \"NFC\" },\n" : "  \"normalizer\": null,\n");
    put_pre_tokenizer(&w, t);
    put(&w, "  \"post_processor\": { \"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, "
            "\"use_regex\": true },\n"
            "  \"decoder\": { \"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
            "\"use_regex\": true },\n"
            "  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
            "\"continuing_subword_prefix\": null,\n"
            "    \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": ");
    put(&w, t->whole_first ? "true,\n" : "false,\n");
    put_vocab(&w, t);
    put_merges(&w, &t->vocab, by_rank);
    put(&w, "  }\n}\n");
    TN_TRY(w.s);
    TN_TRY(tn_file_write_atomic(path, w.text.data, w.text.n));
done:
    tn_free(by_rank);
    tn_text_free(&w.text);
    return s;
}
