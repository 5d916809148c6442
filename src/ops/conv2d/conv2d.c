/* conv2d: shapes, gradient rule, cost, registration. */
#include "ops/conv2d/conv2d.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_conv2d_forward_cpu, tn_conv2d_backward_cpu;
size_t tn_conv2d_work_cpu(const tn_sig *s, bool backward);

enum { X, W, BIAS };

static tn_status conv2d_infer(tn_sig *s)
{
    const tn_conv2d_attr *a = s->attr;
    const tn_dims x = s->in[X].dims, w = s->in[W].dims, b = s->in[BIAS].dims;
    if (s->in[X].absent || s->in[W].absent || x.rank != 4 || w.rank != 4)
        return tn_error(TN_USAGE, "x must be (B,C,H,W) and w (O,C,kh,kw)");
    for (int i = X; i <= W; i++)
        if (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64)
            return tn_error(TN_USAGE, "input %d is %s: use f32, bf16 or f16", i, tn_dtype_name(s->in[i].dtype));
    if (x.dim[1] != w.dim[1])
        return tn_error(TN_USAGE, "x has %lld channels, w takes %lld", (long long)x.dim[1], (long long)w.dim[1]);
    if (a->stride < 1 || a->pad < 0) return tn_error(TN_USAGE, "the stride must be positive, the padding not negative");
    if (w.dim[2] < 1 || w.dim[3] < 1 || x.dim[2] + 2 * a->pad < w.dim[2] || x.dim[3] + 2 * a->pad < w.dim[3])
        return tn_error(TN_USAGE, "the kernel does not fit into the padded image");
    if (!s->in[BIAS].absent && (b.rank != 1 || b.dim[0] != w.dim[0]))
        return tn_error(TN_USAGE, "the bias must be (%lld)", (long long)w.dim[0]);
    s->n_out = 1;
    s->out[0].dims = tn_shape(x.dim[0], w.dim[0], (x.dim[2] + 2 * a->pad - w.dim[2]) / a->stride + 1,
                              (x.dim[3] + 2 * a->pad - w.dim[3]) / a->stride + 1);
    return TN_OK;
}

static void conv2d_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    if (want >> X & 1) u->in |= 1 << W;
    if (want >> W & 1) u->in |= 1 << X;
}

static void conv2d_cost(const tn_sig *s, tn_cost *c)
{
    const tn_dims w = s->in[W].dims;
    c->flops = 2 * (double)tn_dims_count(s->out[0].dims) * (double)(w.dim[1] * w.dim[2] * w.dim[3]);
    c->flops_backward = c->flops * ((s->in[X].trainable ? 1 : 0) + (s->in[W].trainable ? 1 : 0));
}

const tn_op tn_op_conv2d = {
    .name = "conv2d",
    .attr_bytes = sizeof(tn_conv2d_attr),
    .flags = TN_OP_ROWWISE,
    .half_in = 1 << W,
    .infer = conv2d_infer,
    .grad = conv2d_grad,
    .cost = conv2d_cost,
    .kernel = { [TN_CPU] = { .forward = tn_conv2d_forward_cpu,
                             .backward = tn_conv2d_backward_cpu,
                             .work = tn_conv2d_work_cpu },
                [TN_CUDA] = { .forward = tn_conv2d_forward_cuda,
                              .backward = tn_conv2d_backward_cuda,
                              .work = tn_conv2d_work_cuda } },
};

tn_ref tn_conv2d_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_conv2d_options o)
{
    const tn_conv2d_attr a = { .stride = o.stride == 0 ? 1 : o.stride, .pad = o.pad };
    const tn_ref in[] = { x, w, o.bias };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_conv2d, &a, in, 3, &y);
}
