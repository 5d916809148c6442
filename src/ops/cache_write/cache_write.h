/* cache_write: puts x into rows position .. position+T-1 of axis 1 of a cache, where it lies.
 *
 *     tn_cache_write(g, cache, x, position)
 *     cache (B,S,...) a tn_state or tn_cache, f32, bf16 or f16    x (B,T,...)    position i32 (1), or (B): of each sequence
 *     ->  the cache itself, as a tensor that depends on the write: read this one, not the old handle
 *
 * Rows that do not fit (position < 0 or position+T > S) are a usage error when the step runs; nothing is written then. A GPU, where
 * the host does not see positions, has no error: the T nearest rows of each sequence that has this position become NaN. The other rows
 * stay. Writes and moves (cache_shift) happen in the order of the calls. No gradient passes. */
#ifndef TN_OPS_CACHE_WRITE_H
#define TN_OPS_CACHE_WRITE_H

#include <tenon/op.h>

extern const tn_op tn_op_cache_write;

#define tn_cache_write(g, cache, x, position) tn_cache_write_((g), __FILE__, __LINE__, (cache), (x), (position))
tn_ref tn_cache_write_(tn_graph *g, const char *file, int line, tn_ref cache, tn_ref x, tn_ref position);

#endif
