/* Ranks from the scores of a vocabulary: merging takes the lowest rank first. */
#include "token/tokenizer_impl.h"

#include <stdlib.h>

static int by_score(const void *a, const void *b)
{
    const tn_scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

void tn__rank_scores(tn_scored *list, size_t n, uint32_t *rank)
{
    uint32_t r = 0;
    qsort(list, n, sizeof *list, by_score);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && list[i].score != list[i - 1].score) r++;
        rank[list[i].id] = r;
    }
}
