/* compact: where a list of flags is set.      tn_compact(g, keep, &index, &count)
 *
 *     keep (n) i32      index (n) i32: the positions with keep != 0 in order, then -1      count (1) i32: how many
 *
 * Only flags below keep's live extent are looked at. tn_gather_rows(g, x, tn_live(g, index, count)) then gives the kept
 * rows of x. No gradient. */
#ifndef TN_OPS_COMPACT_H
#define TN_OPS_COMPACT_H

#include <tenon/op.h>

extern const tn_op tn_op_compact;

#define tn_compact(g, keep, index, count) tn_compact_((g), __FILE__, __LINE__, (keep), (index), (count))
void tn_compact_(tn_graph *g, const char *file, int line, tn_ref keep, tn_ref *index, tn_ref *count);

#endif
