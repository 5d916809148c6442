/* gru: shapes, gradient rule, cost, the twin made of linear and element-wise ops, registration. */
#include "ops/gru/gru.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/cuda_kernels.h"
#include "ops/gate/gate.h"
#include "ops/linear/linear.h"
#include "ops/unary/unary.h"

tn_kernel tn_gru_forward_cpu, tn_gru_backward_cpu;
tn_kernel_work tn_gru_work_cpu;

enum { X = TN_GRU_X, H = TN_GRU_H, WI = TN_GRU_WI, WH = TN_GRU_WH, BI = TN_GRU_BI, BH = TN_GRU_BH };

static tn_status gru_infer(tn_sig *s)
{
    static const char *const names[TN_GRU_INPUTS] = { "x", "h", "w_i", "w_h", "b_i", "b_h" };
    for (int i = 0; i < TN_GRU_INPUTS; i++) {
        if (s->in[i].absent) return tn_error(TN_USAGE, "%s is needed", names[i]);
        if (!tn_dtype_is_float(s->in[i].dtype) || s->in[i].dtype == TN_F64)
            return tn_error(TN_USAGE, "%s is %s: use f32, bf16 or f16", names[i], tn_dtype_name(s->in[i].dtype));
    }
    const tn_dims x = s->in[X].dims, h = s->in[H].dims;
    if (x.rank != 2 || h.rank != 2 || x.dim[0] != h.dim[0])
        return tn_error(TN_USAGE, "x must be (N,I) and h (N,H), with the same N");
    const int64_t rows = 3 * h.dim[1];
    const tn_dims want[TN_GRU_INPUTS] = { [WI] = tn_shape(rows, x.dim[1]), [WH] = tn_shape(rows, h.dim[1]) };
    for (int i = WI; i <= WH; i++)
        if (!tn_dims_equal(s->in[i].dims, want[i]))
            return tn_error(TN_USAGE, "%s must be (%lld,%lld): three gates of h's width", names[i], (long long)rows,
                            (long long)want[i].dim[1]);
    for (int i = BI; i <= BH; i++)
        if (!tn_dims_equal(s->in[i].dims, tn_shape(rows)))
            return tn_error(TN_USAGE, "%s must be (%lld): three gates of h's width", names[i], (long long)rows);
    s->n_out = 2;
    s->out[0].dims = h;
    s->out[1].dims = tn_shape(h.dim[0], 4 * h.dim[1]);
    return TN_OK;
}

/* Every gradient passes through the gates, whose slopes need h and what output 1 holds. */
static void gru_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    u->in = 1 << H;
    u->out = 1 << 1;
    if (want >> X & 1) u->in |= 1 << WI;
    if (want >> H & 1) u->in |= 1 << WH;
    if (want >> WI & 1) u->in |= 1 << X;
}

static void gru_cost(const tn_sig *s, tn_cost *c)
{
    const double rows = (double)s->in[X].dims.dim[0];
    const double by_x = 2 * rows * (double)tn_dims_count(s->in[WI].dims),
                 by_h = 2 * rows * (double)tn_dims_count(s->in[WH].dims);
    c->flops = by_x + by_h;
    c->flops_backward = by_x * ((s->in[X].trainable ? 1 : 0) + (s->in[WI].trainable ? 1 : 0)) +
                        by_h * ((s->in[H].trainable ? 1 : 0) + (s->in[WH].trainable ? 1 : 0));
}

static tn_status gru_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    (void)attr, (void)n_in;
    const int64_t width = tn_ref_dim(g, in[H], 1);
    const tn_ref gi = tn_linear(g, in[X], in[WI], .bias = in[BI]), gh = tn_linear(g, in[H], in[WH], .bias = in[BH]);
    const tn_ref rz = tn_add(g, tn_slice(g, gi, 1, 0, 2 * width), tn_slice(g, gh, 1, 0, 2 * width));
    const tn_ref rq = tn_mul_sigmoid(g, tn_part(g, gh, 2, 3), tn_part(g, rz, 0, 2));
    const tn_ref n = tn_tanh(g, tn_add(g, tn_part(g, gi, 2, 3), rq));
    out[0] = tn_add(g, n, tn_mul_sigmoid(g, tn_sub(g, in[H], n), tn_part(g, rz, 1, 2)));
    out[1] = TN_NONE;
    return tn_graph_status(g);
}

const tn_op tn_op_gru = {
    .name = "gru",
    .flags = TN_OP_ROWWISE | TN_OP_AUX_FROM_1,
    .strided_in = 1 << X | 1 << H,
    .half_in = 1 << X | 1 << WI | 1 << WH,
    .infer = gru_infer,
    .grad = gru_grad,
    .cost = gru_cost,
    .kernel = { [TN_CPU] = { .forward = tn_gru_forward_cpu, .backward = tn_gru_backward_cpu, .work = tn_gru_work_cpu },
                [TN_CUDA] = { .forward = tn_gru_forward_cuda,
                              .backward = tn_gru_backward_cuda,
                              .work = tn_gru_work_cuda } },
    TN_OP_SWITCH("opt.gru_fused",
                 "gates of a GRU cell in the products' cache (off: two products, then element-wise ops)"),
    .plain = gru_plain,
    .fusion = { .rounded_in = 1 << WI | 1 << WH },
};

tn_ref tn_gru_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref h, tn_ref w_i, tn_ref w_h, tn_ref b_i,
               tn_ref b_h)
{
    const tn_ref in[TN_GRU_INPUTS] = { x, h, w_i, w_h, b_i, b_h };
    tn_ref out[2];
    return tn_graph_add(g, file, line, &tn_op_gru, NULL, in, TN_GRU_INPUTS, out);
}
