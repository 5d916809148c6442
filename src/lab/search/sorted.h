/* Sorting indices by a key, ties by index: a stable order on every machine, which qsort alone does not promise. */
#ifndef TN_LAB_SORTED_H
#define TN_LAB_SORTED_H

#include <stddef.h>
#include <stdlib.h>

typedef struct tn_keyed {
    double key; /* never NaN */
    size_t at;
} tn_keyed;

static inline int tn_keyed_compare(const void *a, const void *b)
{
    const tn_keyed *p = a, *q = b;
    return p->key != q->key ? (p->key < q->key ? -1 : 1) : (p->at > q->at) - (p->at < q->at);
}

static inline void tn_keyed_sort(tn_keyed *v, size_t n) { qsort(v, n, sizeof *v, tn_keyed_compare); }

#endif
