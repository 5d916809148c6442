/* The tokenizer's inside, for its loaders, the encoder and the trainer. Nobody outside src/token includes it. */
#ifndef TN_TOKEN_TOKENIZER_IMPL_H
#define TN_TOKEN_TOKENIZER_IMPL_H

#include "token/split.h"
#include "token/tokenizer.h"
#include "token/unicode.h"
#include "token/vocab.h"

enum {
    TN_SPLITS_MAX = 8,
    TN_ADDED_MAX = 1 << 16,
    TN_TRIE_NODES_MAX = 1 << 18, /* at up to 36 bytes a node a trie stays below 10 MB, whatever the file's size */
    TN_TABLES_BYTES = 13 << 20, /* what a vocabulary may take beside the bytes of its file (and 3 MiB are the rest's) */
    TN_TOKENIZER_FILE_MAX_BYTES = 64 << 20
};

typedef enum tn_token_kind { TN_KIND_BYTES, TN_KIND_BPE, TN_KIND_LLAMA2C } tn_token_kind;

/* One pre-tokenizer of the chain. */
typedef struct tn_split {
    const tn_split_pattern *known; /* or NULL and: */
    tn_regex *regex;
    uint64_t hash;  /* of what decides the pieces */
    bool drop_rest; /* text between matches is dropped (tiktoken; Removed with invert), not kept as pieces */
} tn_split;

typedef struct tn_added {
    int32_t id;
    uint32_t bytes; /* of its text: tn_vocab_bytes(id) */
    bool special, normalized, lstrip, rstrip;
} tn_added;

/* Added tokens by their text: a trie of bytes, its edges in one table. */
typedef struct tn_trie {
    struct tn_trie_edge {
        uint32_t node, to; /* node << 8 | byte, plus 1; 0: free */
    } * edge;              /* (slots) */
    uint32_t *added;       /* (nodes) 1 + index of the added token that ends here */
    size_t slots, nodes, node_capacity;
    bool starts[256]; /* bytes a token begins with */
} tn_trie;

struct tn_tokenizer {
    tn_token_kind kind;
    tn_vocab vocab;
    int32_t byte_id[256];
    tn_split split[TN_SPLITS_MAX];
    int n_splits;
    bool nfc, prefix_space;
    bool whole_first; /* a piece that is a token stays whole (tiktoken; ignore_merges) */
    bool from_pieces; /* pairs come from the pieces, not from a list of merges */
    tn_added *added;  /* (n_added) */
    size_t n_added, added_capacity;
    tn_trie raw, normalized; /* added tokens looked for before and after normalizing */
    int32_t role[3];
    int32_t template_bos; /* from the post-processor; -1: none */
    tn_unicode *unicode;
    unsigned char byte_text[256]; /* byte_text[b] = b: the pieces of llama2.c's <0xNN> */
    bool cut_safe;
    uint64_t hash;
};

/* --- for loaders: a tokenizer is made, filled, finished ----------------------------------------------------------- */

tn_status tn__tokenizer_new(tn_token_kind kind, tn_tokenizer **out);
/* A token that is looked for in the text itself; its id may be in the vocabulary already with the same text. */
tn_status tn__tokenizer_add(tn_tokenizer *t, tn_added a, const char *text, size_t bytes);
/* Appends a split to the chain: a pattern with a scanner, or else `regex`. */
tn_status tn__tokenizer_split(tn_tokenizer *t, const tn_split_pattern *known, const char *regex, bool drop_rest);
/* Checks that the 256 bytes have tokens, finds the roles, builds what encoding needs, hashes. */
tn_status tn__tokenizer_finish(tn_tokenizer *t);

tn_status tn__load_hf(const char *path, tn_tokenizer **out);
tn_status tn__load_gpt2(const char *encoder, const char *merges, tn_tokenizer **out);
tn_status tn__load_tiktoken(const char *path, const char *pattern, tn_tokenizer **out); /* pattern NULL: by size */
tn_status tn__load_llama2c(const char *path, tn_tokenizer **out);

/* The last place between an ASCII letter and whitespace after it, where every cut_safe pattern ends a piece; 0: none.
 */
size_t tn__cut_letters(const char *text, size_t bytes);

/* Added tokens: the trie, and the longest one that starts at p (NULL: none). */
tn_status tn__trie_put(tn_trie *x, const char *text, size_t bytes, uint32_t index);
void tn__trie_free(tn_trie *x);
int64_t tn__trie_match(const tn_trie *x, const char *p, size_t left, size_t *bytes); /* its index; -1: none */

/* --- GPT-2's alphabet: a printable character for every byte ------------------------------------------------------- */

uint32_t tn__byte_char(unsigned byte);
int tn__char_byte(uint32_t code); /* -1: none */
/* A token in that alphabet as bytes, at most `bytes` of them; false where a character is not of it. */
bool tn__bytes_from_alphabet(const char *text, size_t bytes, char *out, size_t *n);

/* --- scratch ------------------------------------------------------------------------------------------------------ */

enum { TN_CACHE_KEY_WORDS = 4, TN_CACHE_IDS = 7, TN_CACHE_SLOTS = 1 << 16 };

typedef struct tn_cached {
    uint64_t key[TN_CACHE_KEY_WORDS]; /* the word, zeros after it */
    uint16_t bytes, n;                /* of the word, of ids; bytes = 0: free */
    int32_t ids[TN_CACHE_IDS];
} tn_cached;

struct tn_tokenizer_scratch {
    tn_cached *cache; /* (TN_CACHE_SLOTS) sets of two */
    uint64_t owner;   /* hash of the tokenizer whose words it holds */
    tn_text repaired, normalized, prefixed;
    tn_nfc_space nfc;
    tn_merge_space merge;
    const void *matches_of; /* the tokenizer that `match` belongs to */
    tn_regex_match *match[TN_SPLITS_MAX];
};

tn_status tn__encode_llama2c(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                             tn_tokens *out);
tn_status tn__encode_bpe(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes, unsigned flags,
                         tn_tokens *out);

#endif
