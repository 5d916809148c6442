/* One form for sentences that come raw, tokenised as in the Penn Treebank, or something between. For files of src/tasks only. */
#ifndef TN_TASKS_SENTENCE_H
#define TN_TASKS_SENTENCE_H

#include "token/tokenizer.h" /* tn_text */

/* Appends text as people write it: single blanks, punctuation at its word, "do n't" as "don't", `` and '' as ", -LRB- as "(". What is
 * written so already stays as it is. Never longer than it was. TN_MEMORY. */
tn_status tn__sentence_write(const char *text, size_t bytes, tn_text *out);

#endif
