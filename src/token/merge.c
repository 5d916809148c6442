/* Merging a word: the pair of lowest rank first, the leftmost of equals. Short words (nearly all) look for the lowest
 * rank in an array; long ones keep a heap, so that a run of a million letters stays O(n log n). Both give the same ids.
 */
#include "token/vocab.h"

#include "base/alloc.h"
#include "token/unicode.h"

#include <string.h>

enum { SHORT = 32 };

static const uint32_t none = UINT32_MAX; /* no pair here, or no neighbour */

void tn_merge_space_free(tn_merge_space *m)
{
    tn_free(m->id);
    tn_free(m->rank);
    tn_free(m->next);
    tn_free(m->previous);
    tn_free(m->heap);
    *m = (tn_merge_space){ 0 };
}

static tn_status grow_u32(uint32_t **p, size_t capacity, size_t n)
{
    void *q = *p;
    TN_RETURN_IF(tn_grow(&q, &capacity, n, sizeof **p));
    *p = q;
    return TN_OK;
}

tn_status tn_merge_begin(tn_merge_space *m, size_t n)
{
    size_t capacity = m->capacity;
    if (n >= none) return tn_error(TN_USAGE, "a word of %zu bytes is too long to encode; cut the text", n);
    if (n > m->capacity) {
        void *p = m->id;
        const size_t more = n + n / 2 + SHORT;
        TN_RETURN_IF(grow_u32(&m->rank, m->capacity, more));
        TN_RETURN_IF(grow_u32(&m->next, m->capacity, more));
        TN_RETURN_IF(grow_u32(&m->previous, m->capacity, more));
        TN_RETURN_IF(tn_grow(&p, &capacity, more, sizeof *m->id));
        m->id = p;
        m->capacity = more;
    }
    m->n = n;
    return TN_OK;
}

static void merge_short(const tn_vocab *v, tn_merge_space *m)
{
    const tn_pair *pair[SHORT] = { NULL }; /* of place i and i+1 */
    int32_t *id = m->id;
    size_t n = m->n;
    for (size_t i = 0; i + 1 < n; i++) pair[i] = tn_vocab_pair(v, (uint32_t)id[i], (uint32_t)id[i + 1]);
    for (;;) {
        size_t best = n;
        uint32_t rank = none;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        if (best == n) break;
        id[best] = pair[best]->id;
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        memmove(pair + best, pair + best + 1, (n - best) * sizeof *pair);
        if (best + 1 < n) pair[best] = tn_vocab_pair(v, (uint32_t)id[best], (uint32_t)id[best + 1]);
        if (best > 0) pair[best - 1] = tn_vocab_pair(v, (uint32_t)id[best - 1], (uint32_t)id[best]);
    }
    m->n = n;
}

static tn_status heap_push(tn_merge_space *m, uint32_t rank, uint32_t place)
{
    const uint64_t key = (uint64_t)rank << 32 | place;
    if (m->heap_n == m->heap_capacity) {
        void *p = m->heap;
        TN_RETURN_IF(tn_grow(&p, &m->heap_capacity, m->heap_n ? 2 * m->heap_n : 256, sizeof *m->heap));
        m->heap = p;
    }
    size_t i = m->heap_n++;
    for (; i > 0 && m->heap[(i - 1) / 2] > key; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = key;
    return TN_OK;
}

static uint64_t heap_pop(tn_merge_space *m)
{
    const uint64_t top = m->heap[0], last = m->heap[--m->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->heap_n; i = child) {
        if (child + 1 < m->heap_n && m->heap[child + 1] < m->heap[child]) child++;
        if (m->heap[child] >= last) break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* The rank of the pair at a place anew; an older heap entry of that place no longer equals it and is passed over. */
static tn_status renew(const tn_vocab *v, tn_merge_space *m, uint32_t i)
{
    const tn_pair *p = m->next[i] == none ? NULL : tn_vocab_pair(v, (uint32_t)m->id[i], (uint32_t)m->id[m->next[i]]);
    m->rank[i] = p ? p->rank : none;
    return p ? heap_push(m, p->rank, i) : TN_OK;
}

static tn_status merge_long(const tn_vocab *v, tn_merge_space *m)
{
    const uint32_t n = (uint32_t)m->n;
    m->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        m->next[i] = i + 1 < n ? i + 1 : none;
        m->previous[i] = i > 0 ? i - 1 : none;
    }
    for (uint32_t i = 0; i < n; i++) TN_RETURN_IF(renew(v, m, i));
    while (m->heap_n) {
        const uint64_t key = heap_pop(m);
        const uint32_t i = (uint32_t)key, j = m->next[i];
        if (m->rank[i] == none || m->rank[i] != key >> 32) continue;
        m->id[i] = tn_vocab_pair(v, (uint32_t)m->id[i], (uint32_t)m->id[j])->id;
        m->rank[j] = none; /* j is gone */
        m->next[i] = m->next[j];
        if (m->next[i] != none) m->previous[m->next[i]] = i;
        TN_RETURN_IF(renew(v, m, i));
        if (m->previous[i] != none) TN_RETURN_IF(renew(v, m, m->previous[i]));
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != none; i = m->next[i]) m->id[kept++] = m->id[i];
    m->n = kept;
    return TN_OK;
}

tn_status tn_merge_run(const tn_vocab *v, tn_merge_space *m, tn_tokens *out)
{
    if (m->n == 0) return TN_OK;
    if (m->n <= SHORT) merge_short(v, m);
    else TN_RETURN_IF(merge_long(v, m));
    TN_RETURN_IF(tn_tokens_reserve(out, m->n));
    memcpy(out->ids + out->n, m->id, m->n * sizeof *m->id);
    out->n += m->n;
    return TN_OK;
}
