/* clipnorm: what to multiply the gradient with, and whether to use it at all.
 *     norm = sqrt(sumsq) * scale             coefficient = scale * min(1, clip / norm)     clip <= 0: no limit
 *     ok = 1 if norm and all losses are finite, else 0
 *     r = tn_clipnorm(g, sumsq, clip, scale, .loss = l)      all f32 (1), l (n); r.coefficient, r.norm f32 (1), r.ok i32 (1)
 * `scale` undoes loss scaling and accumulation. With ok = 0 the coefficient is 0 and norm is what it is (NaN or Inf,
 * or finite when only the loss is not): nothing may be computed from the gradient then, 0 * NaN is NaN. No gradient. */
#ifndef TN_OPS_CLIPNORM_H
#define TN_OPS_CLIPNORM_H

#include <tenon/op.h>

typedef struct tn_clipnorm_options {
    int unused_;
    tn_ref loss; /* f32 (n): one of each batch that was accumulated, or one of them all */
} tn_clipnorm_options;

typedef struct tn_clipnorm_result {
    tn_ref coefficient, ok, norm;
} tn_clipnorm_result;

extern const tn_op tn_op_clipnorm;

#define tn_clipnorm(g, sumsq, clip, scale, ...)                                                                        \
    tn_clipnorm_((g), __FILE__, __LINE__, (sumsq), (clip), (scale), (tn_clipnorm_options){ .unused_ = 0, __VA_ARGS__ })
tn_clipnorm_result tn_clipnorm_(tn_graph *g, const char *file, int line, tn_ref sumsq, tn_ref clip, tn_ref scale,
                                tn_clipnorm_options o);

#endif
