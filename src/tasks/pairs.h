/* Pairs of sentences as tokens: a premise, and a hypothesis that follows from it. All of them lie in memory; a pair is two rows of
 * ids. The tokenizer was trained on their own training part and goes with them. */
#ifndef TN_TASKS_PAIRS_H
#define TN_TASKS_PAIRS_H

#include "base/hash.h"
#include "tasks/task.h"
#include "token/tokenizer.h"

enum { TN_PREMISE, TN_HYPOTHESIS };

typedef struct tn_pairs {
    int64_t text;  /* tokens of a sentence at most */
    int64_t vocab; /* ids are below it; 0 ends a text */
    int64_t count[TN_SPLITS];
    int64_t first[TN_SPLITS]; /* pair i of a split is pair first + i of all */
    size_t *at;               /* (2 pairs + 1): where the ids of a sentence begin, premise and hypothesis in turn */
    int32_t *ids;
    int64_t cut;      /* sentences that had more tokens */
    int64_t left_out; /* lines whose premise is in a later split too */
    tn_tokenizer *tokenizer;
} tn_pairs;

void tn_pairs_free(tn_pairs *p);                                             /* takes NULL */
int64_t tn_pairs_length(const tn_pairs *p, int split, int64_t i, int which); /* tokens of a sentence */
/* A sentence into ids (text), 0 behind its end; returns its tokens. which: TN_PREMISE or TN_HYPOTHESIS. */
int64_t tn_pairs_read(const tn_pairs *p, int split, int64_t i, int which, int32_t *ids);
tn_status tn_pairs_hash(const tn_pairs *p, char hash[TN_HASH_BYTES]); /* of all that a batch depends on */

#endif
