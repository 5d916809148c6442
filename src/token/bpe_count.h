/* Counting words for training: which pieces the split pattern makes of all the text, and how often. Threads share the
 * reading; the counts are sums, so neither their number nor their order shows. */
#ifndef TN_TOKEN_BPE_COUNT_H
#define TN_TOKEN_BPE_COUNT_H

#include "token/split.h"

typedef struct tn_outcome {
    uint64_t at; /* in text */
    uint32_t bytes;
    int64_t count;
} tn_outcome;

typedef struct tn_words {
    tn_text text;
    tn_outcome *word; /* (n) */
    size_t n, capacity;
    uint32_t *slot; /* (slots) 1 + index */
    size_t slots;
} tn_words;

void tn_words_free(tn_words *w);
/* All words of the source into *out (zeroed before). */
tn_status tn_words_count(tn_text_source *source, void *user, const tn_bpe_options *o, const tn_split_pattern *pattern,
                         tn_words *out);

#endif
