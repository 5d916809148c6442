/* linear_top: the K largest logits of each row, through a head whose logits are never whole in memory.
 *
 *     s[r,v] = sum_i x[r,i] w[v,i]     m_r = max_v s[r,v]
 *     ids[r,k]: the K classes with the largest s[r], in descending order, of equal ones the first
 *     logits[r,k] = s[r,ids[r,k]] - m_r     lse[r] = log sum_v exp((s[r,v] - m_r) / T)
 *     so that softmax(s[r] / T) of class ids[r,k] is exp(logits[r,k] / T - lse[r]), exactly that of all V classes
 *
 * x (...,d), w (V,d) in any float type, 1 <= K <= V; labels i32 (...) or absent: rows with label -1 are 0 everywhere and cost
 * nothing on a CPU -> ids i32 (...,K), logits f32 (...,K), lse f32 (...). Logits are taken from the largest: they are small
 * where they matter, and nothing is lost when they are stored.
 *     ids = tn_linear_top(g, x, w, 64, .labels = y, .temperature = 2, .logits = &l, .lse = &lse)
 * A row with a NaN: ids 0 .. K-1, logits and lse NaN. No gradient: this prepares a teacher (linear_kl_top). On a GPU every
 * one of the K reads the row again: for preparing, not for training steps. */
#ifndef TN_OPS_LINEAR_TOP_H
#define TN_OPS_LINEAR_TOP_H

#include <tenon/op.h>

typedef struct tn_linear_top_options {
    int unused_;
    tn_ref labels;
    float temperature;    /* T > 0; 0 stands for 1 */
    tn_ref *logits, *lse; /* receive them, or NULL */
} tn_linear_top_options;

enum { TN_LINEAR_TOP_X, TN_LINEAR_TOP_W, TN_LINEAR_TOP_LABELS }; /* inputs of the node */

typedef struct tn_linear_top_attr {
    int64_t k;
    float temperature;
} tn_linear_top_attr;

extern const tn_op tn_op_linear_top;

#define tn_linear_top(g, x, w, k, ...)                                                                                 \
    tn_linear_top_((g), __FILE__, __LINE__, (x), (w), (k), (tn_linear_top_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_linear_top_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, int64_t k, tn_linear_top_options o);

#endif
