/* Tokenizers: opening by name, building up, asking, encoding, decoding. Formats are in load_*.c, BPE in encode.c. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "token/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "NAME" beside the file at `path`. */
static tn_status sibling_path(const char *path, const char *name, char out[TN_PATH_BYTES])
{
    const size_t dir = (size_t)(file_name(path) - path);
    const int n = snprintf(out, TN_PATH_BYTES, "%.*s%s", (int)dir, path, name);
    return n < TN_PATH_BYTES ? TN_OK : tn_error(TN_USAGE, "%.200s...: the path is too long; use a shorter one", path);
}

static tn_status open_gpt2(const char *path, tn_tokenizer **out)
{
    char encoder[TN_PATH_BYTES], merges[TN_PATH_BYTES];
    const bool hub =
        ends_with(path, "vocab.json") || ends_with(path, "merges.txt"); /* the same files by their later names */
    TN_RETURN_IF(sibling_path(path, hub ? "vocab.json" : "encoder.json", encoder));
    TN_RETURN_IF(sibling_path(path, hub ? "merges.txt" : "vocab.bpe", merges));
    return tn__load_gpt2(encoder, merges, out);
}

static tn_status open_tiktoken(const char *path, tn_tokenizer **out)
{
    char plain[TN_PATH_BYTES];
    const char *hash = strrchr(path, '#');
    if (!hash) return tn__load_tiktoken(path, NULL, out);
    if (!tn_split_named(hash + 1))
        return tn_error(TN_USAGE, "%.200s: unknown split pattern; write gpt2, cl100k, llama3, qwen2 or o200k after #",
                        path);
    const int n = snprintf(plain, sizeof plain, "%.*s", (int)(hash - path), path);
    if (n >= (int)sizeof plain) return tn_error(TN_USAGE, "%.200s...: the path is too long; use a shorter one", path);
    return tn__load_tiktoken(plain, hash + 1, out);
}

static bool is_tiktoken(const char *path)
{
    const char *hash = strrchr(path, '#');
    return ends_with(path, ".tiktoken") || (hash && hash - path > 9 && strncmp(hash - 9, ".tiktoken", 9) == 0);
}

static tn_status open_file(const char *path, tn_tokenizer **out)
{
    static const char *const gpt2[] = { "encoder.json", "vocab.bpe", "vocab.json", "merges.txt" };
    for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++)
        if (strcmp(file_name(path), gpt2[i]) == 0) return open_gpt2(path, out);
    if (is_tiktoken(path)) return open_tiktoken(path, out);
    if (ends_with(path, ".json")) return tn__load_hf(path, out);
    if (ends_with(path, ".bin")) return tn__load_llama2c(path, out);
    if (ends_with(path, ".model")) return tn__load_spm(path, out);
    if (ends_with(path, ".gguf")) return tn__load_gguf(path, out);
    return tn_error(TN_USAGE,
                    "%.400s: unknown kind of tokenizer; give \"bytes\", tokenizer.json, FILE.model, FILE.gguf, "
                    "FILE.tiktoken, tokenizer.bin, vocab.bpe, encoder.json or their folder",
                    path);
}

static tn_status open_folder(const char *folder, tn_tokenizer **out)
{
    static const char *const names[] = { "tokenizer.json",     "encoder.json",    "vocab.json",
                                         "tokenizer.tiktoken", "tokenizer.model", "tokenizer.bin" };
    char path[TN_PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        TN_RETURN_IF(tn_path_join(folder, names[i], path, sizeof path));
        if (access(path, F_OK) == 0) return open_file(path, out);
    }
    return tn_error(
        TN_BAD_FILE,
        "%.400s contains no tokenizer.json, encoder.json, vocab.json, tokenizer.tiktoken, tokenizer.model or "
        "tokenizer.bin; name the file itself",
        folder);
}

static tn_status open_bytes(tn_tokenizer **out)
{
    tn_status s = TN_OK;
    tn_tokenizer *t = NULL;
    TN_TRY(tn__tokenizer_new(TN_KIND_BYTES, &t));
    for (int b = 0; b < 256; b++) TN_TRY(tn_vocab_put(&t->vocab, b, (const char *)&t->byte_text[b], 1, true));
    TN_TRY(tn__tokenizer_finish(t));
    *out = t;
    t = NULL;
done:
    tn_tokenizer_free(t);
    return s;
}

tn_status tn_tokenizer_open(const char *spec, tn_tokenizer **out)
{
    struct stat st;
    if (strcmp(spec, "bytes") == 0) return open_bytes(out);
    if (stat(spec, &st) == 0 && S_ISDIR(st.st_mode)) return open_folder(spec, out);
    return open_file(spec, out);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

tn_status tn__tokenizer_new(tn_token_kind kind, tn_tokenizer **out)
{
    tn_tokenizer *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    t->kind = kind;
    t->role[0] = t->role[1] = t->role[2] = t->template_bos = -1;
    for (int b = 0; b < 256; b++) t->byte_text[b] = (unsigned char)b;
    *out = t;
    return TN_OK;
}

void tn_tokenizer_free(tn_tokenizer *t)
{
    if (!t) return;
    tn_vocab_free(&t->vocab);
    for (int i = 0; i < t->n_splits; i++) tn_regex_free(t->split[i].regex);
    tn__trie_free(&t->raw);
    tn__trie_free(&t->normalized);
    tn_unicode_free(t->unicode);
    tn_free(t->added);
    tn_free(t->marked.type);
    tn_free(t->marked.charsmap);
    tn_free(t->marked.unknown_text);
    tn_free(t->marked.shown);
    tn_free(t);
}

tn_status tn__tokenizer_add(tn_tokenizer *t, tn_added a, const char *text, size_t bytes)
{
    void *p = t->added;
    const tn_piece old = a.id >= 0 && (size_t)a.id < t->vocab.n ? t->vocab.piece[a.id] : (tn_piece){ 0, 0 };
    if (old.bytes && (old.bytes != bytes || memcmp(tn_vocab_bytes(&t->vocab, a.id), text, bytes) != 0))
        return tn_error(TN_BAD_FILE,
                        "added token %d has another text than the vocabulary gives it; the file is damaged", a.id);
    if (!old.bytes) TN_RETURN_IF(tn_vocab_put(&t->vocab, a.id, text, bytes, false));
    if (t->n_added == TN_ADDED_MAX)
        return tn_error(TN_BAD_FILE, "more than %d added tokens; the file is damaged", TN_ADDED_MAX);
    if (t->n_added == t->added_capacity) {
        TN_RETURN_IF(tn_grow(&p, &t->added_capacity, t->n_added ? 2 * t->n_added : 64, sizeof *t->added));
        t->added = p;
    }
    a.bytes = (uint32_t)bytes;
    t->added[t->n_added++] = a;
    return TN_OK;
}

tn_status tn__tokenizer_split(tn_tokenizer *t, const tn_split_pattern *known, const char *regex, bool drop_rest)
{
    tn_split *s = t->split + t->n_splits;
    if (t->n_splits == TN_SPLITS_MAX)
        return tn_error(TN_BAD_FILE, "more than %d pre-tokenizers in a row", TN_SPLITS_MAX);
    const char *name = known ? known->name : regex;
    if (!known) TN_RETURN_IF(tn_regex_new(regex, &s->regex));
    s->known = known;
    s->drop_rest = drop_rest && !known; /* the known patterns leave no rest */
    s->hash = XXH64(name, strlen(name), s->drop_rest);
    t->n_splits++;
    return TN_OK;
}

static tn_status index_added(tn_tokenizer *t)
{
    tn_status s = TN_OK;
    tn_tokenizer_scratch *x = NULL;
    TN_TRY(tn_tokenizer_scratch_new(&x));
    for (size_t i = 0; i < t->n_added; i++) {
        const tn_added *a = t->added + i;
        const char *text = tn_vocab_bytes(&t->vocab, a->id);
        size_t bytes = a->bytes;
        if (a->normalized && t->nfc) {
            x->normalized.n = 0;
            TN_TRY(tn_nfc(t->unicode, &x->nfc, text, bytes, &x->normalized));
            text = x->normalized.data;
            bytes = x->normalized.n;
        } else if (a->normalized) TN_TRY(tn__marked_normalize(t, x, &text, &bytes));
        TN_TRY(tn__trie_put(a->normalized ? &t->normalized : &t->raw, text, bytes, (uint32_t)i));
        if (a->normalized && t->marked.n_steps) TN_TRY(tn__marked_show(t, a->id, text, bytes));
    }
    tn__marked_sort(t);
done:
    tn_tokenizer_scratch_free(x);
    return s;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether a letter before whitespace is always the end of a piece. */
static bool find_cut_safe(const tn_tokenizer *t)
{
    if (t->kind == TN_KIND_BYTES) return true;
    if (t->kind != TN_KIND_BPE || t->prefix_space || t->n_splits == 0) return false;
    for (int i = 0; i < t->n_splits; i++)
        if (!t->split[i].known || !t->split[i].known->cut_safe) return false;
    for (size_t i = 0; i < t->n_added; i++) {
        const char *text = tn_vocab_bytes(&t->vocab, t->added[i].id);
        if (t->added[i].rstrip) return false;
        for (size_t k = 1; k < t->added[i].bytes; k++)
            if (is_letter(text[k - 1]) && is_blank(text[k])) return false;
    }
    return true;
}

static void hash_number(XXH64_state_t *h, uint64_t x)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(x >> (8 * i));
    (void)XXH64_update(h, bytes, sizeof bytes);
}

/* The sum over pairs does not depend on where they lie in the table. */
static uint64_t hash_pairs(const tn_vocab *v)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < v->n_pairs; i++)
        sum +=
            XXH64((uint32_t[]){ v->pair[i].left, v->pair[i].right, v->pair[i].rank, (uint32_t)v->pair[i].id }, 16, 0);
    return sum;
}

static bool has_marks(const tn_tokenizer *t) { return t->kind == TN_KIND_METASPACE || t->kind == TN_KIND_SPM; }

static void hash_marked(XXH64_state_t *h, const tn_tokenizer *t)
{
    const tn_marked *m = &t->marked;
    const int facts[] = { m->n_steps,  m->metaspace,    m->split,        m->prepend, m->unknown,
                          m->fallback, m->fuse_unknown, m->dummy_prefix, m->squeeze, m->escape };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash_number(h, (uint64_t)facts[i]);
    for (int i = 0; i < m->n_steps; i++) hash_number(h, m->step[i]);
    if (m->type) (void)XXH64_update(h, m->type, t->vocab.n);
    if (m->charsmap) (void)XXH64_update(h, m->charsmap, m->charsmap_bytes);
}

static tn_status hash_all(tn_tokenizer *t)
{
    XXH64_state_t *h = XXH64_createState();
    if (!h) return tn_error(TN_MEMORY, "out of memory for a checksum; free memory and try again");
    (void)XXH64_reset(h, 0);
    hash_number(h, (uint64_t)t->kind << 8 | (uint64_t)t->nfc << 3 | (uint64_t)t->prefix_space << 2 |
                       (uint64_t)t->whole_first << 1);
    for (size_t i = 0; i < t->vocab.n; i++) {
        hash_number(h, t->vocab.piece[i].bytes);
        (void)XXH64_update(h, t->vocab.text.data + t->vocab.piece[i].at, t->vocab.piece[i].bytes);
    }
    hash_number(h, hash_pairs(&t->vocab));
    for (int i = 0; i < t->n_splits; i++) hash_number(h, t->split[i].hash);
    for (size_t i = 0; i < t->n_added; i++) {
        const tn_added *a = t->added + i;
        hash_number(h, (uint64_t)a->id << 4 | a->special << 3 | a->normalized << 2 | a->lstrip << 1 | a->rstrip);
    }
    if (has_marks(t)) hash_marked(h, t);
    t->hash = XXH64_digest(h);
    XXH64_freeState(h);
    return TN_OK;
}

/* Roles by the names that published vocabularies use; the first that is there wins. */
static void find_roles(tn_tokenizer *t)
{
    static const char *const names[3][8] = {
        { "<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", NULL },
        { "<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", NULL },
        { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", NULL },
    };
    for (int r = 0; r < 3; r++)
        for (int i = 0; names[r][i] && t->role[r] < 0; i++)
            for (size_t k = 0; k < t->n_added && t->role[r] < 0; k++) {
                const tn_added *a = t->added + k;
                if (a->bytes == strlen(names[r][i]) &&
                    memcmp(tn_vocab_bytes(&t->vocab, a->id), names[r][i], a->bytes) == 0)
                    t->role[r] = a->id;
            }
    if (t->template_bos >= 0) t->role[TN_TOKEN_BOS] = t->template_bos;
}

tn_status tn__tokenizer_finish(tn_tokenizer *t)
{
    if (t->kind == TN_KIND_BYTES || t->kind == TN_KIND_BPE)
        for (int b = 0; b < 256; b++) {
            t->byte_id[b] = tn_vocab_find(&t->vocab, (const char *)&t->byte_text[b], 1);
            if (t->byte_id[b] >= 0) continue;
            if (!t->skips_bytes)
                return tn_error(TN_BAD_FILE, "byte 0x%02x has no token; only vocabularies with all 256 bytes are read",
                                b);
            if (b == '\n' || (b >= ' ' && b <= '~'))
                return tn_error(TN_BAD_FILE, "byte 0x%02x has no token; a vocabulary without ASCII is not read", b);
        }
    if (t->kind == TN_KIND_METASPACE && t->marked.fallback) TN_RETURN_IF(tn__marked_bytes(t));
    if (t->kind == TN_KIND_BPE || has_marks(t)) {
        TN_RETURN_IF(tn_unicode_new(&t->unicode));
        TN_RETURN_IF(index_added(t));
        if (t->kind != TN_KIND_SPM && !t->roles_given) find_roles(t);
    }
    t->cut_safe = find_cut_safe(t);
    return hash_all(t);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

int64_t tn_tokenizer_vocab(const tn_tokenizer *t) { return (int64_t)t->vocab.n; }
uint64_t tn_tokenizer_hash(const tn_tokenizer *t) { return t->hash; }
int32_t tn_tokenizer_special(const tn_tokenizer *t, tn_token_role role) { return t->role[role]; }

const char *tn_tokenizer_kind(const tn_tokenizer *t)
{
    static const char *const names[] = { "bytes", "bpe", "llama2c", "metaspace", "sentencepiece" };
    return names[t->kind];
}

const char *tn_tokenizer_pattern(const tn_tokenizer *t)
{
    if (t->n_splits == 0) return "none";
    const tn_split *last = t->split + t->n_splits - 1;
    return last->known ? last->known->name : "regex";
}

int32_t tn_tokenizer_find(const tn_tokenizer *t, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].bytes == n && memcmp(tn_vocab_bytes(&t->vocab, t->added[i].id), text, n) == 0)
            return t->added[i].id;
    return tn_vocab_find(&t->vocab, text, n);
}

const char *tn_tokenizer_piece(const tn_tokenizer *t, int32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id < 0 || (size_t)id >= t->vocab.n || t->vocab.piece[id].bytes == 0) return NULL;
    const char *text = tn_vocab_bytes(&t->vocab, id);
    *bytes = t->vocab.piece[id].bytes;
    const bool escaped =
        t->kind == TN_KIND_LLAMA2C || (t->marked.type ? t->marked.type[id] == TN_SPM_BYTE : t->marked.shows_bytes);
    const int byte = escaped ? tn__marked_byte(text, *bytes) : -1;
    if (byte < 0) return text;
    *bytes = 1;
    return (const char *)&t->byte_text[byte];
}

size_t tn__cut_letters(const char *text, size_t bytes)
{
    for (size_t i = bytes; i-- > 1;)
        if (is_blank(text[i]) && is_letter(text[i - 1])) return i;
    return 0;
}

size_t tn_tokenizer_cut(const tn_tokenizer *t, const char *text, size_t bytes)
{
    if (!t->cut_safe) return 0;
    return t->kind == TN_KIND_BYTES ? bytes : tn__cut_letters(text, bytes);
}

/* --- encoding ----------------------------------------------------------------------------------------------------- */

tn_status tn_tokenizer_scratch_new(tn_tokenizer_scratch **out)
{
    tn_tokenizer_scratch *x = tn_alloc(sizeof *x);
    if (!x) return TN_MEMORY;
    *out = x;
    return TN_OK;
}

void tn_tokenizer_scratch_free(tn_tokenizer_scratch *x)
{
    if (!x) return;
    for (int i = 0; i < TN_SPLITS_MAX; i++) tn_regex_match_free(x->match[i]);
    tn_text_free(&x->repaired);
    tn_text_free(&x->normalized);
    tn_text_free(&x->prefixed);
    tn_text_free(&x->step[0]);
    tn_text_free(&x->step[1]);
    tn_tokens_free(&x->symbols);
    tn_nfc_space_free(&x->nfc);
    tn_merge_space_free(&x->merge);
    tn_free(x->cache);
    tn_free(x);
}

static tn_status encode_bytes(const char *text, size_t bytes, tn_tokens *out)
{
    TN_RETURN_IF(tn_tokens_reserve(out, bytes));
    for (size_t i = 0; i < bytes; i++) out->ids[out->n + i] = (unsigned char)text[i];
    out->n += bytes;
    return TN_OK;
}

tn_status tn_tokenizer_encode_part(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                                   const tn_encode_part *part, tn_tokens *out)
{
    x->part = *part;
    const tn_status s = tn_tokenizer_encode(t, x, text, bytes, 0, out);
    x->part = (tn_encode_part){ 0 };
    return s;
}

tn_status tn_tokenizer_encode(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                              unsigned flags, tn_tokens *out)
{
    const size_t before = out->n;
    tn_status s = TN_OK;
    if (flags & TN_ENCODE_BOS) {
        if (t->role[TN_TOKEN_BOS] < 0)
            TN_FAIL(TN_USAGE, "this tokenizer has no start-of-text token; encode without one");
        TN_TRY(tn_tokens_reserve(out, 1));
        out->ids[out->n++] = t->role[TN_TOKEN_BOS];
    }
    if (t->kind == TN_KIND_BYTES) TN_TRY(encode_bytes(text, bytes, out));
    else if (t->kind == TN_KIND_LLAMA2C) TN_TRY(tn__encode_llama2c(t, x, text, bytes, out));
    else TN_TRY(tn__encode_bpe(t, x, text, bytes, flags, out));
done:
    if (s != TN_OK) out->n = before;
    return s;
}
