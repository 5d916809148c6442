/* A hash table with open addressing, at most half full. */
#include "backend/span_marks.h"

#include "base/alloc.h"

enum { FIRST = 1024 };

/* The place of a node, or the free one where it would be. */
static size_t place(const tn_span_marks *m, uint64_t node)
{
    size_t i = (size_t)(node * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (m->capacity - 1);
    while (m->row[i].node && m->row[i].node != node) i = (i + 1) & (m->capacity - 1);
    return i;
}

static tn_status grow(tn_span_marks *m)
{
    tn_span_marks wide = { .capacity = m->capacity ? 2 * m->capacity : FIRST, .n = m->n };
    size_t bytes;
    if (!tn_mul_ok(wide.capacity, sizeof *wide.row, &bytes) || !(wide.row = tn_alloc(bytes))) return TN_MEMORY;
    for (size_t i = 0; i < m->capacity; i++)
        if (m->row[i].node) wide.row[place(&wide, m->row[i].node)] = m->row[i];
    tn_free(m->row);
    *m = wide;
    return TN_OK;
}

tn_status tn_span_marks_add(tn_span_marks *m, uint64_t node, uint64_t mark)
{
    if (!node || !mark) return TN_OK;
    if (2 * (m->n + 1) > m->capacity) TN_RETURN_IF(grow(m));
    struct tn_span_mark *row = &m->row[place(m, node)];
    m->n += row->node == 0;
    *row = (struct tn_span_mark){ node, mark };
    return TN_OK;
}

tn_status tn_span_marks_copy(tn_span_marks *m, uint64_t copy, uint64_t node)
{
    return tn_span_marks_add(m, copy, tn_span_marks_find(m, node));
}

uint64_t tn_span_marks_find(const tn_span_marks *m, uint64_t node)
{
    return m->capacity && node ? m->row[place(m, node)].mark : 0;
}

void tn_span_marks_free(tn_span_marks *m)
{
    tn_free(m->row);
    *m = (tn_span_marks){ .n = 0 };
}
