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

typedef enum tn_token_kind {
    TN_KIND_BYTES,
    TN_KIND_BPE, /* byte-level */
    TN_KIND_LLAMA2C,
    TN_KIND_METASPACE, /* tokenizer.json: BPE of characters, U+2581 for a space */
    TN_KIND_SPM        /* sentencepiece's .model, or a GGUF file's "llama": BPE by scores */
} tn_token_kind;

#define TN_SPACE_MARK "\xe2\x96\x81" /* U+2581, a space inside a vocabulary */
enum { TN_SPACE_MARK_BYTES = 3 };
enum {
    TN_UNKNOWN_CHAR = 1 << 30
}; /* in sentencepiece's pairs: this and the code point of a character that is no piece */

/* Steps of a tokenizer.json's normalizer, in its order. */
typedef enum tn_normal_step { TN_NORMAL_PREPEND, TN_NORMAL_REPLACE, TN_NORMAL_NFC } tn_normal_step;
typedef enum tn_prepend { TN_PREPEND_NEVER, TN_PREPEND_FIRST, TN_PREPEND_ALWAYS } tn_prepend;
/* What decoding takes away at a text's start: nothing; one space; every mark of the first token (Metaspace); or the
 * mark of the first piece that has text (sentencepiece). */
typedef enum tn_strip { TN_STRIP_NONE, TN_STRIP_ONE, TN_STRIP_FIRST_TOKEN, TN_STRIP_PIECE } tn_strip;

enum { TN_SPM_NORMAL = 1, TN_SPM_UNKNOWN, TN_SPM_CONTROL, TN_SPM_USER_DEFINED, TN_SPM_UNUSED, TN_SPM_BYTE }; /* types */

typedef struct tn_shown {
    int32_t id;
    uint32_t at, bytes; /* in vocab.text */
} tn_shown;

/* Of the kinds METASPACE and SPM. */
typedef struct tn_marked {
    tn_normal_step step[TN_SPLITS_MAX];
    int n_steps;
    bool metaspace, split; /* a Metaspace pre-tokenizer; it cuts before every mark */
    tn_prepend prepend;
    int32_t unknown; /* -1: unknown characters are left out */
    bool fuse_unknown, fallback;
    bool shows_spaces, shows_bytes; /* decoding writes a mark as a space, <0xNN> as its byte */
    tn_strip strip;
    bool dummy_prefix, squeeze,
        escape;     /* sentencepiece: add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces */
    uint8_t *type;  /* (vocab.n) sentencepiece's piece types; NULL: METASPACE */
    char *charsmap; /* (charsmap_bytes): a trie of trie_units words, and the texts it points to */
    size_t charsmap_bytes, trie_units;
    char *unknown_text; /* what an unknown piece decodes to */
    tn_shown *shown;    /* (n_shown) by id: METASPACE's added tokens that decode to what the normalizer makes of them */
    size_t n_shown, shown_capacity;
} tn_marked;

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
    bool skips_bytes; /* BPE: a byte that is no token is left out, as the reference does; -1 in byte_id */
    tn_split split[TN_SPLITS_MAX];
    int n_splits;
    bool nfc, prefix_space;
    bool whole_first; /* a piece that is a token stays whole (tiktoken; ignore_merges) */
    bool from_pieces; /* pairs come from the pieces, not from a list of merges */
    tn_added *added;  /* (n_added) */
    size_t n_added, added_capacity;
    tn_trie raw, normalized; /* added tokens looked for before and after normalizing */
    int32_t role[3];
    bool roles_given;     /* by the file: none is looked for by its name */
    int32_t template_bos; /* from the post-processor; -1: none */
    tn_unicode *unicode;
    unsigned char byte_text[256]; /* byte_text[b] = b: the pieces of llama2.c's <0xNN> */
    tn_marked marked;
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
tn_status tn__load_spm(const char *path, tn_tokenizer **out);
tn_status tn__load_gguf(const char *path, tn_tokenizer **out);

/* Ranks (n) by id of n scores: the best is 0, equal scores have equal ranks. Sorts the list. */
typedef struct tn_scored {
    float score;
    uint32_t id;
} tn_scored;
void tn__rank_scores(tn_scored *list, size_t n, uint32_t *rank);

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
    tn_text step[2];   /* of the normalizer's steps */
    tn_tokens symbols; /* of sentencepiece, before unknown ones are taken apart */
    tn_nfc_space nfc;
    tn_merge_space merge;
    tn_encode_part part;    /* of the call */
    const void *matches_of; /* the tokenizer that `match` belongs to */
    tn_regex_match *match[TN_SPLITS_MAX];
};

static inline bool tn__is_plain(const tn_tokenizer_scratch *x, int32_t id)
{
    for (size_t i = 0; i < x->part.n_plain; i++)
        if (x->part.plain[i] == id) return true;
    return false;
}

tn_status tn__encode_llama2c(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes,
                             tn_tokens *out);
/* --- U+2581 for spaces (marked.c) and sentencepiece (spm.c) ------------------------------------------------------- */

/* The text after the normalizer of a METASPACE tokenizer; *text and *n are changed where it differs. */
tn_status tn__marked_normalize(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char **text, size_t *n);
/* Its pre-tokenizer: *text and *n likewise. first: the text begins here. */
tn_status tn__marked_prepend(const tn_tokenizer *t, tn_tokenizer_scratch *x, bool first, const char **text, size_t *n);
/* An added token is shown as this text, not as its own; then all of them in order, and the one of an id (NULL: none). */
tn_status tn__marked_show(tn_tokenizer *t, int32_t id, const char *text, size_t n);
void tn__marked_sort(tn_tokenizer *t);
const tn_shown *tn__marked_shown(const tn_tokenizer *t, int32_t id);
/* A word's characters into x->merge: tokens, bytes or the unknown token. */
tn_status tn__marked_symbols(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *word, size_t n);
/* Ids of "<0x00>".."<0xFF>"; fails where one is missing. */
tn_status tn__marked_bytes(tn_tokenizer *t);
/* The byte of a token "<0xNN>"; -1: it is another. */
int tn__marked_byte(const char *text, size_t n);
tn_status tn__spm_encode(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t n, tn_tokens *out);

tn_status tn__encode_bpe(const tn_tokenizer *t, tn_tokenizer_scratch *x, const char *text, size_t bytes, unsigned flags,
                         tn_tokens *out);

#endif
