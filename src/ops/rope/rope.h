/* rope: rotary position embedding. Pairs of numbers of each head are turned by an angle that grows with the position:
 *
 *     (a, b) -> (a cos t - b sin t, b cos t + a sin t),    t = p * base^(-2j/D) for pair j = 0 .. D/2-1
 *
 *     tn_rope(g, x, .base = 10000, .position = p, .interleaved = false, .scaling = TN_ROPE_LLAMA3, .stretch = 0,
 *             .stretch_context = 8192, .beta_fast = 32, .beta_slow = 1, .attention_factor = 0)
 *     x (B,T,H,D), D even, at most 1024
 *     position i32 (1): of token 0, (B): of token 0 of each sequence, or (B,T): of each token; none: starts at 0
 *
 * Pairs are (j, j+D/2), or (2j, 2j+1) when interleaved. stretch > 1 scales the frequencies:
 *     llama3   wavelengths above stretch_context are divided by stretch, below a quarter of it not at all, between them
 *              by a blend
 *     linear   all are divided by stretch
 *     yarn     pairs that turn more than beta_fast times in stretch_context stay, those that turn less than beta_slow
 *              times are divided by stretch, and those between are blended, linearly in j. The result is multiplied by
 *              attention_factor (0: 0.1 ln(stretch) + 1), so that scores become sharper.
 * Angles are computed in double, so far positions are as exact as near ones. Gradient: the transpose, which turns
 * backwards; none for position. NaN stays in its pair. Any strides; may work in place. */
#ifndef TN_OPS_ROPE_H
#define TN_OPS_ROPE_H

#include <tenon/op.h>

typedef enum tn_rope_scaling { TN_ROPE_LLAMA3 = 0, TN_ROPE_LINEAR = 1, TN_ROPE_YARN = 2 } tn_rope_scaling;

typedef struct tn_rope_options {
    int unused_;
    tn_ref position;
    double base; /* 0 = 10000 */
    bool interleaved;
    tn_rope_scaling scaling;
    double stretch, stretch_context;               /* 0 = none; 0 = 8192 */
    double beta_fast, beta_slow, attention_factor; /* of yarn: 0 = 32; 0 = 1; 0 = by the stretch */
} tn_rope_options;

typedef struct tn_rope_attr {
    double base, stretch, stretch_context;
    double low, high; /* yarn: the pairs between which it blends */
    double amplitude; /* of cosines and sines: 1, but for yarn */
    tn_rope_scaling scaling;
    bool interleaved;
} tn_rope_attr;

extern const tn_op tn_op_rope;

#define tn_rope(g, x, ...) tn_rope_((g), __FILE__, __LINE__, (x), (tn_rope_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_rope_(tn_graph *g, const char *file, int line, tn_ref x, tn_rope_options o);

#endif
