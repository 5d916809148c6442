/* What the nodes of captured graphs belong to: marks by the number that the device's trace has for a node. A graph is copied when it is
 * made ready to run, and its copies are nodes of their own.
 *
 *     tn_span_marks_add(&m, node, mark), tn_span_marks_copy(&m, copy, node), then tn_span_marks_find(&m, copy) == mark */
#ifndef TN_BACKEND_SPAN_MARKS_H
#define TN_BACKEND_SPAN_MARKS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct tn_span_marks {
    struct tn_span_mark {
        uint64_t node, mark; /* node 0: the place is free */
    } * row;                 /* (capacity), hashed by node */
    size_t n, capacity;      /* a power of two, or 0 */
} tn_span_marks;

tn_status tn_span_marks_add(tn_span_marks *m, uint64_t node, uint64_t mark); /* replaces; mark 0: nothing is kept */
tn_status tn_span_marks_copy(tn_span_marks *m, uint64_t copy, uint64_t node);
uint64_t tn_span_marks_find(const tn_span_marks *m, uint64_t node); /* 0: none */
void tn_span_marks_free(tn_span_marks *m);                          /* takes a zeroed one */

#endif
