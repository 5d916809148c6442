/* Tokenizers: text to token ids and back, equal to the reference libraries id for id.
 *
 * Kinds: bytes; byte-level BPE (Hugging Face tokenizer.json, GPT-2 encoder.json + vocab.bpe, tiktoken rank files); BPE of
 * characters with byte fallback or Metaspace (tokenizer.json of Llama 2, Mistral, Gemma); sentencepiece's BPE (.model); the
 * vocabularies inside GGUF files, which are of the second or the last kind but one; and the scored vocabularies of llama2.c (tokenizer.bin). A tokenizer is immutable: any number of threads use one, each
 * with a scratch of its own. Not here: WordPiece, Unigram, chat templates.
 *
 * Bytes that are not UTF-8 become U+FFFD before encoding, one for each maximal part of a character, as
 * bytes.decode("utf-8", "replace") does for the reference libraries; sentencepiece has one for each byte, as it does
 * itself; "bytes" and llama2.c keep them as they are. */
#ifndef TN_TOKEN_TOKENIZER_H
#define TN_TOKEN_TOKENIZER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tn_tokenizer tn_tokenizer;
typedef struct tn_tokenizer_scratch tn_tokenizer_scratch;

/* Growable arrays; a zeroed one is empty. Calls append and grow; on failure n is what it was. Setting n = 0 reuses one.
 */
typedef struct tn_tokens {
    int32_t *ids; /* (n) */
    size_t n, capacity;
} tn_tokens;
void tn_tokens_free(tn_tokens *t); /* leaves it empty */

typedef struct tn_text {
    char *data; /* (n); no NUL at its end */
    size_t n, capacity;
} tn_text;
void tn_text_free(tn_text *t);

typedef enum tn_token_role {
    TN_TOKEN_BOS = 0, /* first of a sequence, where the tokenizer's own rules put one */
    TN_TOKEN_EOS = 1, /* ends a text or a turn */
    TN_TOKEN_END = 2  /* ends a document: what goes between documents of a data set */
} tn_token_role;

enum {
    TN_ENCODE_SPECIAL = 1, /* special tokens spelled in the text ("<|endoftext|>") become their ids; else plain text */
    TN_ENCODE_BOS = 2      /* begins with the BOS token; TN_USAGE where there is none */
};

/* spec: "bytes", or a file: tokenizer.json, *.model (sentencepiece), *.gguf, *.tiktoken, tokenizer.bin or another *.bin (llama2.c), vocab.bpe or
 * encoder.json (each with the other beside it); or a folder that holds one of these. "FILE.tiktoken#NAME" names the
 * split pattern: gpt2, cl100k, llama3, qwen2, o200k; without it the number of ranks decides. Gzipped files are not
 * read. */
tn_status tn_tokenizer_open(const char *spec, tn_tokenizer **out);
void tn_tokenizer_free(tn_tokenizer *t); /* takes NULL */

int64_t tn_tokenizer_vocab(const tn_tokenizer *t);    /* ids are below it; a vocabulary may have holes */
const char *tn_tokenizer_kind(const tn_tokenizer *t); /* "bytes", "bpe", "llama2c", "metaspace", "sentencepiece" */
const char *tn_tokenizer_pattern(
    const tn_tokenizer *t);                        /* "gpt2", "cl100k", "llama3", "qwen2", "o200k", "regex", "none" */
uint64_t tn_tokenizer_hash(const tn_tokenizer *t); /* of all that decides the ids; the same wherever it was read from */
int32_t tn_tokenizer_special(const tn_tokenizer *t, tn_token_role role); /* -1: none */
int32_t tn_tokenizer_find(const tn_tokenizer *t,
                          const char *text); /* id of a token by its text (specials too); -1: none */
/* Bytes of one token, borrowed from t (U+2581 for a space where its vocabulary has it); NULL with *bytes = 0 for a hole or an id out of range. */
const char *tn_tokenizer_piece(const tn_tokenizer *t, int32_t id, size_t *bytes);

/* Buffers and the cache of words for one thread, about 4 MiB beside the longest text. Use it with one tokenizer
 * after another if need be: the cache empties itself. */
tn_status tn_tokenizer_scratch_new(tn_tokenizer_scratch **out);
void tn_tokenizer_scratch_free(tn_tokenizer_scratch *x); /* takes NULL */

/* Appends the ids of text to out. flags: TN_ENCODE_*. */
tn_status tn_tokenizer_encode(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                              unsigned flags, tn_tokens *out);
/* A part of a text whose control tokens the caller puts between the parts by their ids: as tn_tokenizer_encode without flags,
 * but what belongs before a whole text is not put before a part with `inside`, and the added tokens `plain` (n_plain) are
 * text here like special ones, whatever their file says. */
typedef struct tn_encode_part {
    bool inside;
    const int32_t *plain;
    size_t n_plain;
} tn_encode_part;
tn_status tn_tokenizer_encode_part(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                                   const tn_encode_part *part, tn_tokens *out);
/* The last place where text may be cut so that encoding the parts one by one gives the ids of the whole; 0: none (a
 * pattern we do not know, llama2.c, metaspace, sentencepiece). For sharing a long text out to threads. */
size_t tn_tokenizer_cut(const tn_tokenizer *t, const char *text, size_t bytes);

/* Appends the bytes of all ids, special tokens by their text (sentencepiece: control pieces have none). The space that a
 * vocabulary puts before every text goes, at the start and after BOS. May end, or begin, inside a UTF-8 character if the ids
 * do. An id out of range fails with TN_USAGE. */
tn_status tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, size_t n, tn_text *out);

/* Decoding token by token, for live sampling: only whole UTF-8 characters come out; impossible bytes become U+FFFD.
 * Start with a zeroed struct. */
typedef struct tn_token_stream {
    unsigned char pending[4]; /* the begun character */
    int n;
    int32_t previous; /* 1 + the id before; 0: none yet */
    int place;        /* decode.c's: whether a text has begun */
} tn_token_stream;
tn_status tn_token_stream_put(const tn_tokenizer *t, tn_token_stream *d, int32_t id, tn_text *out);
tn_status tn_token_stream_end(tn_token_stream *d, tn_text *out); /* a cut character becomes U+FFFD */

/* Writes a Hugging Face tokenizer.json, readable by the `tokenizers` library. For byte-level BPE with a known pattern.
 */
tn_status tn_tokenizer_save(const tn_tokenizer *t, const char *path);

/* The next piece of training text: *text is NULL at the end, else borrowed until the next call. Pieces are encoded
 * apart from each other (documents, or parts at tn_tokenizer_cut). Never called by two threads at once. */
typedef tn_status tn_text_source(void *user, const char **text, size_t *bytes);
/* phase: "count" (done: bytes read, total 0) or "merge" (done: tokens, total: vocab). Any result but TN_OK ends
 * training with that status. Called from the thread that called tn_bpe_train. */
typedef tn_status tn_bpe_progress(void *user, const char *phase, int64_t done, int64_t total);

typedef struct tn_bpe_options {
    int64_t vocab;               /* ids in all: 256 bytes, merges, specials */
    int threads;                 /* for counting words; 0 is 1. The result does not depend on it. */
    const char *pattern;         /* NULL: gpt2 */
    int64_t min_count;           /* pairs seen less often are not merged; 0 is 1 */
    const char *const *specials; /* (n_specials); NULL: "<|endoftext|>" alone */
    int n_specials;
    tn_bpe_progress *progress; /* may be NULL */
    void *progress_user;
} tn_bpe_options;

/* Trains byte-level BPE. Ids: specials in their order, the 256 bytes in GPT-2's order, merges. The most frequent pair
 * is merged first; of equally frequent ones that with the smaller (left id, right id). Same ids as BpeTrainer of the
 * `tokenizers` library. The vocabulary is smaller than asked for where the text has no more pairs. */
tn_status tn_bpe_train(tn_text_source *source, void *user, const tn_bpe_options *options, tn_tokenizer **out);

#endif
