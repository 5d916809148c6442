/* How large held-out texts are, as they are and compressed: what a message has to be smaller than. */
#ifndef TN_REPORT_WIRE_TEXTS_H
#define TN_REPORT_WIRE_TEXTS_H

#include "train/run/session.h"

typedef struct tn_wire_sizes {
    int64_t contexts;
    double bytes, packed; /* of a context in the mean; packed: each by itself with zstd, level 19 */
} tn_wire_sizes;

/* Over the split of the session's task. */
tn_status tn_wire_sizes_measure(const tn_session *s, int split, tn_wire_sizes *out);

#endif
