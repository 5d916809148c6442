/* A vocabulary: the bytes of every token, finding a token by its bytes, and which two tokens merge into which.
 *
 * Filled once by a loader or the trainer, then only read. Sizes come from files: every call checks its own, and
 * messages say what is wrong with the token (the caller adds the file). Knows no file format and no text. */
#ifndef TN_TOKEN_VOCAB_H
#define TN_TOKEN_VOCAB_H

#include "token/tokenizer.h"

enum {
    TN_VOCAB_MAX = 1 << 21,       /* ids */
    TN_PIECE_MAX_BYTES = 1 << 10, /* one token */
    TN_PAIRS_MAX = (1 << 24) - 1  /* 1 + its number has 24 bits in a slot */
};

typedef struct tn_piece {
    uint32_t at, bytes; /* in text; bytes = 0: no such token */
} tn_piece;

typedef struct tn_pair {
    uint32_t left, right; /* ids */
    uint32_t rank;        /* lowest first */
    int32_t id;           /* what they become */
} tn_pair;

typedef struct tn_vocab {
    tn_text text;    /* the bytes of all pieces */
    tn_piece *piece; /* (n) by id */
    size_t n, piece_capacity;
    uint32_t longest; /* bytes of the longest piece that can be found */
    uint32_t *slot;   /* (slots) 1 + id of a piece that can be found, 0: free; open addressing */
    size_t slots, filled;
    tn_pair *pair;       /* (n_pairs) as they came; found by: */
    uint32_t *pair_slot; /* (pair_slots) 8 bits of its hash, 24 bits of 1 + its number, 0: free; open addressing */
    size_t pair_slots, n_pairs, pair_capacity;
    size_t most_bytes; /* of all tables; 0: no limit. For a file: what it may take (SECURITY.md, P6) */
} tn_vocab;

void tn_vocab_free(tn_vocab *v);
/* The piece of an id that has none yet; findable: tn_vocab_find sees it, and no other findable piece has its bytes. */
tn_status tn_vocab_put(tn_vocab *v, int64_t id, const char *bytes, size_t n, bool findable);
int32_t tn_vocab_find(const tn_vocab *v, const char *bytes, size_t n); /* -1: none */
/* A known pair gets the new rank, as in the reference. */
tn_status tn_vocab_pair_put(tn_vocab *v, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* Every split of every piece into two pieces becomes a pair; rank (n) by the id of the whole, NULL: the id.
 * UINT32_MAX: never made. */
tn_status tn_vocab_pairs_from_pieces(tn_vocab *v, const uint32_t *rank);

static inline const char *tn_vocab_bytes(const tn_vocab *v, int32_t id) { return v->text.data + v->piece[id].at; }

static inline uint64_t tn_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return x;
}

static inline const tn_pair *tn_vocab_pair(const tn_vocab *v, uint32_t left, uint32_t right) /* NULL: none */
{
    if (!v->pair_slots) return NULL;
    const uint64_t hash = tn_mix((uint64_t)left << 32 | right);
    for (size_t i = hash & (v->pair_slots - 1);; i = (i + 1) & (v->pair_slots - 1)) {
        const uint32_t slot = v->pair_slot[i];
        if (!slot) return NULL;
        if (slot >> 24 != hash >> 56) continue;
        const tn_pair *p = v->pair + (slot & 0xFFFFFF) - 1;
        if (p->left == left && p->right == right) return p;
    }
}

/* Merging one word. */
typedef struct tn_merge_space {
    int32_t *id;                      /* (n): the word in single bytes, from tn_merge_begin */
    uint32_t *rank, *next, *previous; /* (n) */
    uint64_t *heap;                   /* rank << 32 | place */
    size_t n, capacity, heap_n, heap_capacity;
} tn_merge_space;
void tn_merge_space_free(tn_merge_space *m);
/* Room for a word of n symbols in m->id. */
tn_status tn_merge_begin(tn_merge_space *m, size_t n);
/* Merges the pair of lowest rank, leftmost first, until no pair is left; appends what remains. O(n log n). */
tn_status tn_merge_run(const tn_vocab *v, tn_merge_space *m, tn_tokens *out);

#endif
