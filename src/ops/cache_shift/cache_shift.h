/* cache_shift: moves the rows of a cache towards its start, where they lie.
 *
 *     tn_cache_shift(g, cache, shift)
 *     cache (B,S,KV,D) a tn_state or tn_cache, f32, bf16 or f16    shift i32 (B): of each sequence
 *     ->  the cache itself, as a tensor that depends on the move: read this one, not the old handle
 *
 *     cache[b,s] = cache[b,s+shift[b]] for all s + shift[b] < S;  the last shift[b] rows stay
 *
 * A shift outside 0..S is a usage error when the step runs; nothing is moved then. A GPU, where the host does not see shifts, has no
 * error: all rows of that sequence become NaN. Moves and writes (cache_write) happen in the order of the calls. No gradient passes. */
#ifndef TN_OPS_CACHE_SHIFT_H
#define TN_OPS_CACHE_SHIFT_H

#include <tenon/op.h>

extern const tn_op tn_op_cache_shift;

#define tn_cache_shift(g, cache, shift) tn_cache_shift_((g), __FILE__, __LINE__, (cache), (shift))
tn_ref tn_cache_shift_(tn_graph *g, const char *file, int line, tn_ref cache, tn_ref shift);

#endif
