/* linear_kl: shape check, gradient rule, cost, row. Inputs: x, teacher, w, teacher's w, labels, weights; outputs: loss, KL of
 * each row, logsumexps. */
#include "ops/linear_kl/linear_kl.h"

#include "ops/binary/binary.h"
#include "ops/copy/copy.h"
#include "ops/cuda_kernels.h"
#include "ops/kl/kl.h"
#include "ops/linear/linear.h"
#include "ops/logits.h"
#include "ops/unary/unary.h"

tn_kernel tn_linear_kl_forward_cpu, tn_linear_kl_backward_cpu;
size_t tn_linear_kl_work_cpu(const tn_sig *s, bool backward);

enum {
    X = TN_LINEAR_KL_X,
    TEACHER = TN_LINEAR_KL_TEACHER,
    W = TN_LINEAR_KL_W,
    TEACHER_W = TN_LINEAR_KL_TEACHER_W,
    LABELS = TN_LINEAR_KL_LABELS,
    WEIGHTS = TN_LINEAR_KL_WEIGHTS,
    INPUTS
};
enum { KL_LSE = 0, KL_DIVERGENCE = 2 }; /* what the op kl leaves of a row: two logsumexps, then KL */

static tn_status linear_kl_infer(tn_sig *s)
{
    const tn_linear_kl_attr *a = s->attr;
    const tn_type *x = &s->in[X], *t = &s->in[TEACHER], *u = &s->in[TEACHER_W];
    tn_dims rows, of_teacher = t->dims;
    TN_RETURN_IF(tn_kl_infer(a->temperature, x, &s->in[LABELS], &s->in[WEIGHTS], &rows));
    if (of_teacher.rank > 0) of_teacher.rank--;
    if (t->dims.rank < 1 || !tn_dims_equal(of_teacher, rows) || !tn_dtype_is_float(t->dtype))
        return tn_error(TN_USAGE, "the teacher must be floats with a row for each row of x");
    TN_RETURN_IF(tn_kl_head_infer(x, &s->in[W], "w", "x"));
    if (u->absent) TN_RETURN_IF(tn_kl_head_infer(t, &s->in[W], "the shared head", "the teacher"));
    else TN_RETURN_IF(tn_kl_head_infer(t, u, "the teacher's head", "the teacher"));
    if (!u->absent && u->dims.dim[0] != s->in[W].dims.dim[0])
        return tn_error(TN_USAGE, "the teacher's head has %lld classes, the student's %lld: they must be the same",
                        (long long)u->dims.dim[0], (long long)s->in[W].dims.dim[0]);
    if (a->tile < 0) return tn_error(TN_USAGE, "a tile of %lld rows: take 0 for the default", (long long)a->tile);
    tn_kl_outputs(s, rows);
    return TN_OK;
}

static void linear_kl_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = (s->in[LABELS].absent ? 0 : 1u << LABELS) | (s->in[WEIGHTS].absent ? 0 : 1u << WEIGHTS);
    u->out = 4;
    if (want & (1u << X | 1u << W)) /* either needs the logits again */
        u->in |= 1u << X | 1u << TEACHER | 1u << W | (s->in[TEACHER_W].absent ? 0 : 1u << TEACHER_W);
    if (want & 1u << WEIGHTS) u->out |= 1 | 2;
}

static void linear_kl_cost(const tn_sig *s, tn_cost *c)
{
    const tn_dims t = s->in[TEACHER].dims;
    const double V = (double)s->in[W].dims.dim[0], d = (double)s->in[W].dims.dim[1];
    const double e = (double)t.dim[t.rank - 1], n = (double)tn_dims_count(s->out[1].dims);
    const double products = 1.0 + s->in[X].trainable + s->in[W].trainable; /* the student's logits, dx, dw */
    c->flops = n * V * (2 * d + 2 * e + 14);
    c->flops_backward = n * V * (2 * d * products + 2 * e + 9);
}

/* 1 where the label counts, 0 where it does not: min(|label - ignore|, 1), and labels are whole numbers. */
static tn_ref mask_of(tn_graph *g, tn_ref labels, int32_t ignore)
{
    const tn_ref apart = tn_abs(g, tn_affine(g, tn_cast(g, labels, TN_F32), 1, -(float)ignore));
    return tn_neg(g, tn_clamp_min(g, tn_neg(g, apart), -1));
}

static tn_status linear_kl_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_linear_kl_attr *a = attr;
    const tn_kl_attr plain = { .temperature = a->temperature };
    const tn_ref head = in[TEACHER_W].id ? in[TEACHER_W] : tn_stop_gradient(g, in[W]);
    tn_ref weights = in[WEIGHTS], mask = TN_NONE, made[2] = { { 0 } };
    (void)n_in;
    if (in[LABELS].id) mask = mask_of(g, in[LABELS], a->ignore);
    if (mask.id) weights = weights.id ? tn_mul(g, weights, mask) : mask;
    const tn_ref rest[3] = { tn_linear(g, in[TEACHER], head), tn_linear(g, in[X], in[W]), weights };
    tn_graph_add(g, __FILE__, __LINE__, &tn_op_kl, &plain, rest, 3, made);
    TN_RETURN_IF(tn_graph_status(g));
    const tn_ref each = tn_slice(g, made[1], -1, KL_DIVERGENCE, 1);
    tn_dims rows = tn_ref_dims(g, each);
    rows.rank--;
    out[0] = made[0];
    out[1] = tn_reshape(g, each, rows);
    if (mask.id) out[1] = tn_mul(g, out[1], mask);
    out[2] = tn_slice(g, made[1], -1, KL_LSE, 2);
    return tn_graph_status(g);
}

const tn_op tn_op_linear_kl = {
    .name = "linear_kl",
    .attr_bytes = sizeof(tn_linear_kl_attr),
    .flags = TN_OP_AUX_FROM_1,
    .half_in = 1u << X | 1u << TEACHER | 1u << W | 1u << TEACHER_W,
    .infer = linear_kl_infer,
    .grad = linear_kl_grad,
    .cost = linear_kl_cost,
    .kernel = { [TN_CPU] = { .forward = tn_linear_kl_forward_cpu,
                             .backward = tn_linear_kl_backward_cpu,
                             .work = tn_linear_kl_work_cpu },
                [TN_CUDA] = { .forward = tn_linear_kl_forward_cuda,
                              .backward = tn_linear_kl_backward_cuda,
                              .work = tn_linear_kl_work_cuda } },
    TN_OP_SWITCH("opt.linear_kl", "distillation that makes the logits tile by tile (off: all of them in memory)"),
    .plain = linear_kl_plain,
    .late_out = 1u << 2,
    .fusion = { .rounded_in = 1u << W | 1u << TEACHER_W },
};

tn_ref tn_linear_kl_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref teacher, tn_ref w,
                     tn_linear_kl_options o)
{
    const tn_linear_kl_attr a = { .temperature = o.temperature == 0 ? 1 : o.temperature,
                                  .ignore = o.ignore_zero ? 0
                                            : o.ignore    ? o.ignore
                                                          : -1,
                                  .tile = o.tile };
    const tn_ref in[INPUTS] = { [X] = x,
                                [TEACHER] = teacher.id ? tn_stop_gradient(g, teacher) : teacher,
                                [W] = w,
                                [TEACHER_W] = o.teacher_w.id ? tn_stop_gradient(g, o.teacher_w) : o.teacher_w,
                                [LABELS] = o.labels,
                                [WEIGHTS] = o.weights };
    tn_ref out[3] = { { 0 } };
    tn_graph_add(g, file, line, &tn_op_linear_kl, &a, in, INPUTS, out);
    if (o.kl) *o.kl = out[1];
    return out[0];
}
