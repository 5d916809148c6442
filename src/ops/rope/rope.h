/* rope: rotary position embedding. Pairs of numbers of each head are turned by an angle that grows with the position:
 *
 *     (a, b) -> (a cos t - b sin t, b cos t + a sin t),    t = p * base^(-2j/D) for pair j = 0 .. D/2-1
 *
 *     tn_rope(g, x, .base = 10000, .position = p, .interleaved = false, .stretch = 0, .stretch_context = 8192)
 *     x (B,T,H,D), D even, at most 1024    position i32 (1): of token 0, (B): of token 0 of each sequence, or (B,T): of each token; none: starts at 0
 *
 * Pairs are (j, j+D/2), or (2j, 2j+1) when interleaved. stretch > 1 divides slow frequencies as Llama 3 does:
 * wavelengths above stretch_context by stretch, below a quarter of it not at all, between them by a blend. Angles are
 * computed in double, so far positions are as exact as near ones. Gradient: the inverse rotation; none for position.
 * NaN stays in its pair. Any strides; may work in place. */
#ifndef TN_OPS_ROPE_H
#define TN_OPS_ROPE_H

#include <tenon/op.h>

typedef struct tn_rope_options {
    int unused_;
    tn_ref position;
    double base; /* 0 = 10000 */
    bool interleaved;
    double stretch, stretch_context; /* 0 = none; 0 = 8192 */
} tn_rope_options;

typedef struct tn_rope_attr {
    double base, stretch, stretch_context;
    bool interleaved;
} tn_rope_attr;

extern const tn_op tn_op_rope;

#define tn_rope(g, x, ...) tn_rope_((g), __FILE__, __LINE__, (x), (tn_rope_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_rope_(tn_graph *g, const char *file, int line, tn_ref x, tn_rope_options o);

#endif
