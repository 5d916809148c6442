/* How long the rows of a batch are. Those of most batches are shorter than the longest of all, which tn_wire_ids has. */
#ifndef TN_TASKS_WIRE_SIZES_H
#define TN_TASKS_WIRE_SIZES_H

#include "tasks/wire/wire_store.h"

typedef struct tn_wire_sizes {
    int64_t bytes, questions;
    int64_t length[TN_WIRE_READERS], text[TN_WIRE_READERS], told[TN_WIRE_READERS]; /* by reader, as tn_wire_ids */
    int64_t sent; /* tokens of a text with its question that a sender reads; 0: there are no such */
} tn_wire_sizes;

/* Of rows that hold everything, with so many questions. */
tn_wire_sizes tn_wire_sizes_whole(const tn_wire_store *s, int64_t questions);

/* Sizes as a vector: bytes, questions, then length and text of each reader, from which `told` follows, then `sent` where there is such. */
enum { TN_WIRE_SIZES = 3 + 2 * TN_WIRE_READERS };
static inline bool tn_wire_sends_asked(const tn_wire_store *s) { return s->seen && s->seen->sender >= 0; }
static inline int tn_wire_sizes_count(const tn_wire_store *s)
{
    return 2 + 2 * (int)s->readers + tn_wire_sends_asked(s);
}
/* What context `context` needs when these n of its questions are asked. */
void tn_wire_sizes_of(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n, int32_t *size);
/* Of rows that hold such, but no smaller than a reader takes, nor larger than the whole ones. */
tn_wire_sizes tn_wire_sizes_hold(const tn_wire_store *s, const tn_wire_sizes *whole, const int32_t *size);

/* Tokens and bytes, by what reads them. */
typedef struct tn_wire_places {
    double bytes, asked[TN_WIRE_READERS], text[TN_WIRE_READERS], told[TN_WIRE_READERS], sent;
} tn_wire_places;

/* += of a row of a batch of such sizes, padding included. */
void tn_wire_places_add(const tn_wire_store *s, const tn_wire_sizes *size, tn_wire_places *sum);
/* += of what is no padding when these n questions are asked. */
void tn_wire_places_used(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n,
                         tn_wire_places *sum);

#endif
