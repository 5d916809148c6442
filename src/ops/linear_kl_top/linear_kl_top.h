/* linear_kl_top: distillation from what was kept of a teacher, the K largest of its logits (linear_top), through a head whose
 * logits are never whole in memory. The classes outside the top are one bucket.
 *
 *     s[r,v] = sum_i x[r,i] w[v,i]     q = softmax(s[r] / T)     q_rest: sum of q_v outside ids[r]
 *     p_k = exp(logits[r,k] / T - lse[r])     p_rest = max(0, 1 - sum_k p_k); 0 where K = V
 *     KL_r = sum_k p_k (log p_k - log q_ids[r,k]) + p_rest (log p_rest - log q_rest)
 *     loss = T^2 sum_r weight_r KL_r / sum_r weight_r     over the rows that count; 0 when none does
 *
 * KL_r is at most that of linear_kl, and equal where K = V or where teacher and student agree about the tail. Gradient of KL_r:
 *     T dKL/ds_v = P q_v - p_v in the top, P q_v - p_rest q_v / q_rest in the tail; P = sum_k p_k + p_rest, which is 1
 *
 * x (...,d), w (V,d) in any float type; ids i32 (...,K), all different within a row and in [0,V); logits f32 (...,K); lse f32 (...);
 * labels i32 (...) or absent: rows with label -1 do not count, and nothing of them is read; weights (...) or absent (1 each) -> loss
 * f32, rank 0; auxiliary: KL_r f32 (...), 0 where it does not count, without gradient; f32 (...,2), the logsumexps of s[r] / T
 * over all classes and over the tail, for the backward pass.
 *     loss = tn_linear_kl_top(g, x, w, ids, logits, lse, .labels = y, .temperature = 2, .kl = &per_row)
 * Where nothing in the step reads the loss, the backward kernel makes it too, from the same logits (opt.late_loss). Workspace: as
 * linear_kl's of one side.
 * A class with p_k = 0 adds nothing, nor does a tail with p_rest = 0, whatever q; q_rest = 0 where p_rest > 0 gives infinity, and no
 * gradient by the tail. A NaN in a row that counts gives NaN. Gradients: x, w and weights. */
#ifndef TN_OPS_LINEAR_KL_TOP_H
#define TN_OPS_LINEAR_KL_TOP_H

#include <tenon/op.h>

typedef struct tn_linear_kl_top_options {
    int unused_;
    tn_ref labels, weights;
    float temperature; /* T > 0, that of lse; 0 stands for 1 */
    int64_t tile;      /* rows per tile; 0 = 256 */
    tn_ref *kl;        /* receives KL of each row, or NULL */
} tn_linear_kl_top_options;

/* Inputs of the node. */
enum {
    TN_LINEAR_KL_TOP_X,
    TN_LINEAR_KL_TOP_W,
    TN_LINEAR_KL_TOP_IDS,
    TN_LINEAR_KL_TOP_LOGITS,
    TN_LINEAR_KL_TOP_LSE,
    TN_LINEAR_KL_TOP_LABELS,
    TN_LINEAR_KL_TOP_WEIGHTS
};

typedef struct tn_linear_kl_top_attr {
    float temperature;
    int64_t tile;
} tn_linear_kl_top_attr;

extern const tn_op tn_op_linear_kl_top;

#define tn_linear_kl_top(g, x, w, ids, logits, lse, ...)                                                               \
    tn_linear_kl_top_((g), __FILE__, __LINE__, (x), (w), (ids), (logits), (lse),                                       \
                      (tn_linear_kl_top_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_linear_kl_top_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref ids, tn_ref logits,
                         tn_ref lse, tn_linear_kl_top_options o);

#endif
