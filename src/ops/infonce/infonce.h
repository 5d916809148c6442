/* infonce: symmetric contrastive loss over the pairs of a batch (van den Oord et al. 2018; both ways as in CLIP, 2021).
 *
 *     l_ij = <a_i, b_j> / T
 *     loss = 1/(2N) sum_i (log sum_j exp(l_ij) - l_ii) + 1/(2N) sum_j (log sum_i exp(l_ij) - l_jj)
 *
 * a, b (N,d) -> loss f32, rank 0 (0 for N = 0); auxiliary: f32 (2,N), logsumexps of rows and columns for the backward
 * pass, which makes the similarities again: at most 256 rows of them exist at a time.
 *     loss = tn_infonce(g, a, b, .temperature = 0.07f)          a number, 0 = 1
 *     loss = tn_infonce(g, a, b, .temperature_tensor = t)       a tensor of shape (1): run-time scalar or parameter
 * a and b are used as they are: normalise them before for cosine similarity. T must be positive, else the step fails.
 * NaN propagates. Of tensors with a live count the rows alive in both count. Gradients: a, b, temperature_tensor. */
#ifndef TN_OPS_INFONCE_H
#define TN_OPS_INFONCE_H

#include <tenon/op.h>

typedef struct tn_infonce_options {
    int unused_;
    float temperature;
    tn_ref temperature_tensor;
} tn_infonce_options;

typedef struct tn_infonce_attr {
    float temperature; /* not read when the tensor is there */
} tn_infonce_attr;

extern const tn_op tn_op_infonce;

#define tn_infonce(g, a, b, ...)                                                                                       \
    tn_infonce_((g), __FILE__, __LINE__, (a), (b), (tn_infonce_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_infonce_(tn_graph *g, const char *file, int line, tn_ref a, tn_ref b, tn_infonce_options o);

#endif
