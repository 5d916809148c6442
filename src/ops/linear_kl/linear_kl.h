/* linear_kl: distillation through a head whose logits are never whole in memory (Hinton et al. 2015, section 2).
 *
 *     s[r,v] = sum_i x[r,i] w[v,i]     t[r,v] = sum_i teacher[r,i] u[v,i]     u: the teacher's own head, or w
 *     p = softmax(t[r] / T)     q = softmax(s[r] / T)     KL_r = sum_v p_v (log p_v - log q_v)
 *     loss = T^2 sum_r weight_r KL_r / sum_r weight_r     over the rows that count; 0 when none does
 *
 * x (...,d), teacher (...,e), w (V,d), u (V,e) in any float type; u absent: w, and then e = d. labels i32 (...) or absent:
 * rows with the ignored label do not count, other labels are not looked at. weights (...) or absent (1 each) -> loss f32,
 * rank 0; auxiliary: KL_r f32 (...), 0 where ignored, computed only when read, and without gradient; f32 (...,2), the
 * logsumexps of t[r] / T and s[r] / T for the backward pass, which makes the logits again.
 *     loss = tn_linear_kl(g, x, teacher, w, .labels = y, .temperature = 2, .kl = &per_row)
 * Where nothing in the step reads the loss, the backward kernel makes it too, from the same logits (opt.late_loss).
 * Workspace: twice a tile of rows by a block of the vocabulary (4 MiB; with opt.late_loss by all of it, at most 64 MiB or 32
 * rows) and the rows of x and teacher that go with it; on a GPU as many rows by all of the vocabulary as 2 GiB hold, logits
 * in f32. Rows that do not count are left out before anything is multiplied: on a CPU they cost nothing, and what x and
 * teacher hold there is not read.
 * A class with p_v = 0 adds nothing, whatever q_v; q_v = 0 where p_v > 0 (a logit of -infinity) gives infinity. A NaN in a
 * row that counts gives NaN. Gradients: x, weights, and w as the student's head alone; the teacher and u get none.
 * Plain twin (opt.linear_kl=off): linear twice and kl; there rows that do not count have the weight 0, and must be finite. */
#ifndef TN_OPS_LINEAR_KL_H
#define TN_OPS_LINEAR_KL_H

#include <tenon/op.h>

typedef struct tn_linear_kl_options {
    int unused_;
    tn_ref labels, weights;
    tn_ref teacher_w;  /* (V,e): the teacher's head, where it is not w */
    float temperature; /* T > 0; 0 stands for 1 */
    int32_t ignore;    /* the label that does not count; 0 stands for -1 */
    bool ignore_zero;  /* label 0 is the one that does not count: labels are a mask */
    int64_t tile;      /* rows per tile; 0 = 256. More of them read w less often and take more workspace */
    tn_ref *kl;        /* receives KL of each row, or NULL */
} tn_linear_kl_options;

/* Inputs of the node. */
enum {
    TN_LINEAR_KL_X,
    TN_LINEAR_KL_TEACHER,
    TN_LINEAR_KL_W,
    TN_LINEAR_KL_TEACHER_W,
    TN_LINEAR_KL_LABELS,
    TN_LINEAR_KL_WEIGHTS
};

typedef struct tn_linear_kl_attr {
    float temperature;
    int32_t ignore;
    int64_t tile;
} tn_linear_kl_attr;

extern const tn_op tn_op_linear_kl;

#define tn_linear_kl(g, x, teacher, w, ...)                                                                            \
    tn_linear_kl_((g), __FILE__, __LINE__, (x), (teacher), (w), (tn_linear_kl_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_linear_kl_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref teacher, tn_ref w,
                     tn_linear_kl_options o);

#endif
