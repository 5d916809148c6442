/* linear_xent: shape check, gradient rule, cost, row. Inputs: x, w, labels, weights, bias; outputs: loss, nll, lse. */
#include "ops/linear_xent/linear_xent.h"

#include "ops/linear/linear.h"
#include "ops/logits.h"
#include "ops/cuda_kernels.h"
#include "ops/xent/xent.h"

tn_kernel tn_linear_xent_forward_cpu, tn_linear_xent_backward_cpu;
size_t tn_linear_xent_work_cpu(const tn_sig *s, bool backward);

enum {
    X = TN_LINEAR_XENT_X,
    W = TN_LINEAR_XENT_W,
    LABELS = TN_LINEAR_XENT_LABELS,
    WEIGHTS = TN_LINEAR_XENT_WEIGHTS,
    BIAS = TN_LINEAR_XENT_BIAS
};

static tn_status linear_xent_infer(tn_sig *s)
{
    const tn_linear_xent_attr *a = s->attr;
    const tn_dims x = s->in[X].dims, w = s->in[W].dims, b = s->in[BIAS].dims;
    TN_RETURN_IF(tn_labels_infer(&s->in[X], &s->in[LABELS], &s->in[WEIGHTS]));
    if (w.rank != 2 || w.dim[1] != x.dim[x.rank - 1] || !tn_dtype_is_float(s->in[W].dtype))
        return tn_error(TN_USAGE, "w must be floats of shape (V,%lld): one row per class, as long as a row of x",
                        (long long)x.dim[x.rank - 1]);
    if (!s->in[BIAS].absent && (b.rank != 1 || b.dim[0] != w.dim[0] || !tn_dtype_is_float(s->in[BIAS].dtype)))
        return tn_error(TN_USAGE, "the bias must be floats of shape (%lld): one per class", (long long)w.dim[0]);
    if (a->tile < 0) return tn_error(TN_USAGE, "a tile of %lld tokens: take 0 for the default", (long long)a->tile);
    s->n_out = 3;
    for (int i = 0; i < 3; i++) s->out[i].dtype = TN_F32;
    s->out[0].dims = (tn_dims){ 0 };
    s->out[1].dims = s->out[2].dims = s->in[LABELS].dims;
    return TN_OK;
}

static void linear_xent_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = 1u << LABELS | (s->in[WEIGHTS].absent ? 0 : 1u << WEIGHTS);
    u->out = 4;
    if (want & (1u << X | 1u << W | 1u << BIAS)) /* each of them needs the logits again */
        u->in |= 1u << X | 1u << W | (s->in[BIAS].absent ? 0 : 1u << BIAS);
    if (want & 1u << WEIGHTS) u->out |= 1 | 2;
}

static void linear_xent_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[LABELS].dims), V = (double)s->in[W].dims.dim[0];
    const double d = (double)s->in[W].dims.dim[1];
    c->flops = n * V * (2 * d + 4);
    const double products = 1.0 + s->in[X].trainable + s->in[W].trainable; /* logits (again, or first), dx, dw */
    c->flops_backward = n * V * (2 * d * products + 3);
}

static tn_status linear_xent_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_linear_xent_attr *a = attr;
    const tn_xent_attr plain = { .ignore = a->ignore, .z_loss = a->z_loss, .sum = a->sum };
    const tn_ref logits = tn_linear(g, in[X], in[W], .bias = in[BIAS]);
    const tn_ref rest[3] = { logits, in[LABELS], in[WEIGHTS] };
    (void)n_in;
    tn_graph_add(g, __FILE__, __LINE__, &tn_op_xent, &plain, rest, 3, out);
    return tn_graph_status(g);
}

const tn_op tn_op_linear_xent = {
    .name = "linear_xent",
    .attr_bytes = sizeof(tn_linear_xent_attr),
    .flags = TN_OP_AUX_FROM_1,
    .half_in = 1u << X | 1u << W,
    .infer = linear_xent_infer,
    .grad = linear_xent_grad,
    .cost = linear_xent_cost,
    .kernel = { [TN_CPU] = { .forward = tn_linear_xent_forward_cpu,
                             .backward = tn_linear_xent_backward_cpu,
                             .work = tn_linear_xent_work_cpu },
                [TN_CUDA] = { .forward = tn_linear_xent_forward_cuda,
                              .backward = tn_linear_xent_backward_cuda,
                              .work = tn_linear_xent_work_cuda } },
    TN_OP_SWITCH("opt.linear_xent", "cross-entropy that makes the logits tile by tile (off: all of them in memory)"),
    .plain = linear_xent_plain,
    .late_out = 1u << 2,
    .fusion = { .rounded_in = 1u << W },
};

tn_ref tn_linear_xent_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref labels,
                       tn_linear_xent_options o)
{
    const tn_linear_xent_attr a = { .ignore = o.ignore_zero ? 0
                                              : o.ignore    ? o.ignore
                                                            : -1,
                                    .z_loss = o.z_loss,
                                    .sum = o.sum,
                                    .tile = o.tile };
    const tn_ref in[] = { [X] = x, [W] = w, [LABELS] = labels, [WEIGHTS] = o.weights, [BIAS] = o.bias };
    tn_ref out[3] = { { 0 } };
    tn_graph_add(g, file, line, &tn_op_linear_xent, &a, in, 5, out);
    if (o.nll) *o.nll = out[1];
    return out[0];
}
