/* tiktoken rank files: a token in base64 and its rank a line; the rank is the id and the order of merging. The file
 * says neither pattern nor special tokens: both follow from its size where that is a published one. */
#include "token/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <string.h>

typedef struct special {
    const char *text;
    int32_t id;
} special;

/* Published files by their number of ranks. */
static const struct published {
    size_t ranks;
    const char *pattern;
    special specials[6];
} published[] = {
    { 50256, "gpt2", { { "<|endoftext|>", 50256 } } },
    { 50280, "gpt2", { { "<|endoftext|>", 50256 } } },
    { 100256,
      "cl100k",
      { { "<|endoftext|>", 100257 },
        { "<|fim_prefix|>", 100258 },
        { "<|fim_middle|>", 100259 },
        { "<|fim_suffix|>", 100260 },
        { "<|endofprompt|>", 100276 } } },
    { 128000,
      "llama3",
      { { "<|begin_of_text|>", 128000 },
        { "<|end_of_text|>", 128001 },
        { "<|start_header_id|>", 128006 },
        { "<|end_header_id|>", 128007 },
        { "<|eot_id|>", 128009 } } },
    { 151643, "qwen2", { { "<|endoftext|>", 151643 }, { "<|im_start|>", 151644 }, { "<|im_end|>", 151645 } } },
    { 199998, "o200k", { { "<|endoftext|>", 199999 }, { "<|endofprompt|>", 200018 } } },
};

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* n characters of base64 with their padding; false where they are none. */
static bool from_base64(const char *text, size_t n, char *out, size_t *bytes)
{
    *bytes = 0;
    if (n == 0 || n % 4) return false;
    for (size_t i = 0; i < n; i += 4) {
        const int padding = i + 4 < n ? 0 : (text[n - 1] == '=') + (text[n - 1] == '=' && text[n - 2] == '=');
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            const int x = k >= 4 - padding ? 0 : sextet(text[i + (size_t)k]);
            if (x < 0) return false;
            bits = bits << 6 | (uint32_t)x;
        }
        for (int k = 0; k < 3 - padding; k++) out[(*bytes)++] = (char)(bits >> (16 - 8 * k));
    }
    return true;
}

static bool read_rank(const char *p, const char *end, int64_t *rank)
{
    *rank = 0;
    if (p == end || end - p > 9) return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return false;
        *rank = *rank * 10 + (*p - '0');
    }
    return true;
}

static tn_status load_lines(tn_tokenizer *t, const char *text, size_t bytes, size_t *ranks)
{
    char token[TN_PIECE_MAX_BYTES + 3];
    const char *end = text + bytes;
    *ranks = 0;
    for (const char *p = text, *next; p < end; p = next) {
        const char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline : end;
        next = newline ? newline + 1 : end;
        if (stop > p && stop[-1] == '\r') stop--;
        if (stop == p) continue;
        const char *space = memchr(p, ' ', (size_t)(stop - p));
        const size_t n = space ? (size_t)(space - p) : 0;
        size_t k;
        int64_t rank;
        if (!space || n / 4 * 3 > sizeof token || !from_base64(p, n, token, &k) || !read_rank(space + 1, stop, &rank))
            return tn_error(TN_BAD_FILE, "line %zu is not a token in base64 and its rank; download the file again",
                            *ranks + 1);
        const tn_status s = tn_vocab_put(&t->vocab, rank, token, k, true);
        if (s != TN_OK) {
            tn_error_prefix("line %zu", *ranks + 1);
            return s;
        }
        ++*ranks;
    }
    return TN_OK;
}

/* Llama 3 fills its 256 special ids with reserved ones. */
static tn_status add_reserved(tn_tokenizer *t)
{
    char name[48];
    int k = 0;
    for (int32_t id = 128000; id < 128256; id++) {
        if ((size_t)id < t->vocab.n && t->vocab.piece[id].bytes) continue;
        const int n = snprintf(name, sizeof name, "<|reserved_special_token_%d|>", k++);
        TN_RETURN_IF(tn__tokenizer_add(t, (tn_added){ .id = id, .special = true }, name, (size_t)n));
    }
    return TN_OK;
}

static tn_status set_pattern(tn_tokenizer *t, const char *pattern, size_t ranks)
{
    const struct published *p = NULL;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (published[i].ranks == ranks && (!pattern || strcmp(pattern, published[i].pattern) == 0)) p = published + i;
    if (!p && !pattern)
        return tn_error(TN_BAD_FILE,
                        "%zu ranks are not a published vocabulary; add the pattern's name: FILE.tiktoken#cl100k "
                        "(or gpt2, llama3, qwen2, o200k)",
                        ranks);
    TN_RETURN_IF(tn__tokenizer_split(t, tn_split_named(pattern ? pattern : p->pattern), NULL, true));
    if (!p) return tn__tokenizer_add(t, (tn_added){ .id = (int32_t)t->vocab.n, .special = true }, "<|endoftext|>", 13);
    for (const special *s = p->specials; s < p->specials + 6 && s->text; s++)
        TN_RETURN_IF(tn__tokenizer_add(t, (tn_added){ .id = s->id, .special = true }, s->text, strlen(s->text)));
    return ranks == 128000 ? add_reserved(t) : TN_OK;
}

tn_status tn__load_tiktoken(const char *path, const char *pattern, tn_tokenizer **out)
{
    tn_status s = TN_OK;
    char *text = NULL;
    size_t bytes, ranks;
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_BPE, &t));
    TN_TRY(tn_file_read_all(path, TN_TOKENIZER_FILE_MAX_BYTES, &text, &bytes));
    t->vocab.most_bytes = bytes + TN_TABLES_BYTES;
    TN_TRY(load_lines(t, text, bytes, &ranks));
    t->whole_first = t->from_pieces = true;
    TN_TRY(tn_vocab_pairs_from_pieces(&t->vocab, NULL));
    TN_TRY(set_pattern(t, pattern, ranks));
    TN_TRY(tn__tokenizer_finish(t));
    *out = t;
    t = NULL;
done:
    if (s == TN_BAD_FILE && text) tn_error_prefix("%.400s", path);
    tn_free(text);
    tn_tokenizer_free(t);
    return s;
}
