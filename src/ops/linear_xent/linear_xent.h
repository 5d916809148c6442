/* linear_xent: softmax cross-entropy of logits x w^T + bias that are never whole in memory.
 *
 *     logits[t,v] = sum_i x[t,i] w[v,i] + bias[v]     lse_t = log sum_v exp(logits[t,v])
 *     nll_t = lse_t - logits[t,label_t]
 *     loss  = sum_t weight_t (nll_t + z lse_t^2) / sum_t weight_t     over the labels that count; 0 when none does
 *
 * x (...,d), w (V,d) in any float type, labels i32 (...), weights (...) or absent (1 each), bias (V) or absent
 * -> loss f32, rank 0; auxiliary: nll f32 (...), 0 where ignored, computed only when read, and without gradient; lse
 * f32 (...) for the backward pass, which makes the logits again.
 *     loss = tn_linear_xent(g, x, w, labels, .weights = m, .z_loss = 1e-4f, .nll = &per_token)
 * Where nothing in the step reads the loss, the backward kernel makes it too, from the same logits (opt.late_loss).
 * Workspace: a tile of tokens by a block of the vocabulary (2 MiB; with opt.late_loss by all of it, at most 64 MiB or 32
 * tokens) and the rows of x that go with it, whatever the number of tokens; on a GPU as many tokens by all of the vocabulary
 * as 2 GiB hold. Tokens whose label is ignored are left out before anything is multiplied: they cost nothing, and
 * what x holds there is not read. A label that is neither in [0,V) nor ignored is an error when the step runs. A NaN in
 * a row that counts gives NaN. Gradients: x, w, weights, bias. Plain twin (opt.linear_xent=off): linear and xent. */
#ifndef TN_OPS_LINEAR_XENT_H
#define TN_OPS_LINEAR_XENT_H

#include <tenon/op.h>

typedef struct tn_linear_xent_options {
    int unused_;
    tn_ref weights, bias;
    int32_t ignore;   /* the label that does not count; 0 stands for -1 */
    bool ignore_zero; /* label 0 is the one that does not count */
    float z_loss;     /* coefficient z */
    bool sum;         /* no division by the sum of the weights */
    int64_t tile;     /* tokens per tile; 0 = 256. More of them read w less often and take more workspace */
    tn_ref *nll;      /* receives the per-token output, or NULL */
} tn_linear_xent_options;

/* Inputs of the node. */
enum { TN_LINEAR_XENT_X, TN_LINEAR_XENT_W, TN_LINEAR_XENT_LABELS, TN_LINEAR_XENT_WEIGHTS, TN_LINEAR_XENT_BIAS };

typedef struct tn_linear_xent_attr {
    int32_t ignore;
    float z_loss;
    bool sum;
    int64_t tile;
} tn_linear_xent_attr;

extern const tn_op tn_op_linear_xent;

#define tn_linear_xent(g, x, w, labels, ...)                                                                           \
    tn_linear_xent_((g), __FILE__, __LINE__, (x), (w), (labels), (tn_linear_xent_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_linear_xent_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref labels,
                       tn_linear_xent_options o);

#endif
