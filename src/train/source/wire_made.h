/* Rows for readers that are made up, of shapes alone: random ids in the layout of real ones, of just the lengths that the settings say. For
 * measuring: nothing is tokenised, nothing kept, and every place of every row counts. */
#ifndef TN_TRAIN_SOURCE_WIRE_MADE_H
#define TN_TRAIN_SOURCE_WIRE_MADE_H

#include <stdint.h>

/* Of a reader; BOS and EOS are ids too. */
typedef struct tn_wire_made {
    int64_t ids, length, before, text, told;
} tn_wire_made;

enum { TN_WIRE_MADE_LEAST = 4 }; /* ids: BOS, EOS, padding and a letter */

/* Question k of context i: tokens, labels (length), told, document (told); any may be NULL. */
void tn_wire_made_question(const tn_wire_made *m, uint64_t seed, int64_t i, int64_t k, int32_t *tokens, int32_t *labels,
                           int32_t *told, int32_t *document);
/* Its text (text), and what is to be said of it. */
void tn_wire_made_text(const tn_wire_made *m, uint64_t seed, int64_t i, int32_t *text, int32_t *labels);

#endif
