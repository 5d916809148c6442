/* xent: softmax cross-entropy of whole logits.
 *
 *     lse_t = log sum_v exp(logits[t,v])          nll_t = lse_t - logits[t,label_t]
 *     loss  = sum_t w_t (nll_t + z lse_t^2) / sum_t w_t          over the labels that count; 0 when none does
 *
 * logits (...,V), labels i32 (...), weights (...) or absent (1 each) -> loss f32, rank 0; auxiliary: nll f32 (...),
 * 0 where ignored, computed only when read, and without gradient; lse f32 (...) for the backward pass.
 *     loss = tn_xent(g, logits, labels, .weights = w, .z_loss = 1e-4f, .nll = &per_token)
 * A label that is neither in [0,V) nor ignored is an error when the step runs. A NaN in a row that counts gives NaN;
 * rows whose label is ignored are not read. Gradients: logits and weights. linear_xent is the same without the logits
 * in memory. */
#ifndef TN_OPS_XENT_H
#define TN_OPS_XENT_H

#include <tenon/op.h>

typedef struct tn_xent_options {
    int unused_;
    tn_ref weights;
    int32_t ignore;   /* the label that does not count; 0 stands for -1 */
    bool ignore_zero; /* label 0 is the one that does not count */
    float z_loss;     /* coefficient z */
    bool sum;         /* no division by the sum of the weights */
    tn_ref *nll;      /* receives the per-token output, or NULL */
} tn_xent_options;

typedef struct tn_xent_attr {
    int32_t ignore;
    float z_loss;
    bool sum;
} tn_xent_attr;

extern const tn_op tn_op_xent;

#define tn_xent(g, logits, labels, ...)                                                                                \
    tn_xent_((g), __FILE__, __LINE__, (logits), (labels), (tn_xent_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_xent_(tn_graph *g, const char *file, int line, tn_ref logits, tn_ref labels, tn_xent_options o);

#endif
