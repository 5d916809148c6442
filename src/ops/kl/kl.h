/* kl: divergence of a student's distribution from a teacher's, both given as logits (Hinton et al. 2015, section 2).
 *
 *     p = softmax(teacher / T)     q = softmax(student / T)     KL_r = sum_v p_v (log p_v - log q_v)
 *     loss = T^2 sum_r w_r KL_r / sum_r w_r          over rows; 0 when there are none or the weights add up to 0
 *
 * teacher, student (...,V); weights (...) or absent (1 each) -> loss f32, rank 0; auxiliary: f32 (...,3), per row the
 * two logsumexps and KL.        loss = tn_kl(g, teacher, student, .temperature = 2, .weights = w)
 * A class with p_v = 0 adds nothing, whatever q_v; q_v = 0 where p_v > 0 gives infinity. NaN propagates. Rows alive in
 * both inputs count. Gradients, exact: teacher (stop it with tn_stop_gradient where it is only a target), student,
 * weights. linear_kl is the same without the logits in memory. */
#ifndef TN_OPS_KL_H
#define TN_OPS_KL_H

#include <tenon/op.h>

typedef struct tn_kl_options {
    int unused_;
    float temperature; /* T > 0; 0 stands for 1 */
    tn_ref weights;
} tn_kl_options;

typedef struct tn_kl_attr {
    float temperature;
} tn_kl_attr;

extern const tn_op tn_op_kl;

#define tn_kl(g, teacher, student, ...)                                                                                \
    tn_kl_((g), __FILE__, __LINE__, (teacher), (student), (tn_kl_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_kl_(tn_graph *g, const char *file, int line, tn_ref teacher, tn_ref student, tn_kl_options o);

#endif
