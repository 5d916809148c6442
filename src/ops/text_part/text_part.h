/* text_part: in which of n equal parts of its text a token stands.      y = tn_text_part(g, lengths, T, n)
 *
 *     lengths (B) i32 or its live part      y (B,T) i32      y[b,t] = floor((t + 1/2) n / lengths[b]) for t < lengths[b], else n-1
 *
 * Lengths beyond 1 .. T are cut to it. No gradient. */
#ifndef TN_OPS_TEXT_PART_H
#define TN_OPS_TEXT_PART_H

#include <tenon/op.h>

typedef struct tn_text_part_attr {
    int64_t length, parts;
} tn_text_part_attr;

extern const tn_op tn_op_text_part;

#define tn_text_part(g, lengths, T, n) tn_text_part_((g), __FILE__, __LINE__, (lengths), (T), (n))
tn_ref tn_text_part_(tn_graph *g, const char *file, int line, tn_ref lengths, int64_t length, int64_t parts);

#ifdef __CUDACC__
#define TN_TEXT_PART_INLINE static __host__ __device__ inline
#else
#define TN_TEXT_PART_INLINE static inline
#endif
TN_TEXT_PART_INLINE int32_t tn_text_part_of(tn_text_part_attr a, int64_t t, int64_t length)
{
    const int64_t n = length < 1 ? 1 : length > a.length ? a.length : length;
    return (int32_t)(t < n ? (2 * t + 1) * a.parts / (2 * n) : a.parts - 1);
}

#endif
