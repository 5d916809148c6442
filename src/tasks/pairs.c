/* Reading pairs; task_snli.c makes them. */
#include "tasks/pairs.h"

#include "base/alloc.h"

#include <string.h>

void tn_pairs_free(tn_pairs *p)
{
    if (!p) return;
    tn_tokenizer_free(p->tokenizer);
    tn_free(p->at);
    tn_free(p->ids);
    tn_free(p);
}

static const size_t *place(const tn_pairs *p, int split, int64_t i, int which)
{
    return p->at + 2 * (p->first[split] + i) + which;
}

int64_t tn_pairs_length(const tn_pairs *p, int split, int64_t i, int which)
{
    const size_t *at = place(p, split, i, which);
    return (int64_t)(at[1] - at[0]);
}

int64_t tn_pairs_read(const tn_pairs *p, int split, int64_t i, int which, int32_t *ids)
{
    const size_t n = (size_t)tn_pairs_length(p, split, i, which);
    memcpy(ids, p->ids + *place(p, split, i, which), sizeof *ids * n);
    memset(ids + n, 0, sizeof *ids * ((size_t)p->text - n));
    return (int64_t)n;
}

tn_status tn_pairs_hash(const tn_pairs *p, char hash[TN_HASH_BYTES])
{
    const int64_t sizes[] = { p->text, p->vocab, p->count[0], p->count[1], p->count[2] };
    const size_t sentences = 2 * (size_t)(p->count[0] + p->count[1] + p->count[2]);
    const uint64_t tokenizer = tn_tokenizer_hash(p->tokenizer);
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, sizes, sizeof sizes);
    tn_hash_add(h, &tokenizer, sizeof tokenizer);
    tn_hash_add(h, p->at, sizeof *p->at * (sentences + 1));
    tn_hash_add(h, p->ids, sizeof *p->ids * p->at[sentences]);
    tn_hash_text(h, hash);
    tn_hash_free(h);
    return TN_OK;
}
