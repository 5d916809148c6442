/* scan_gated: shape checks, gradient rule, costs, the row, and the twin of plain ops around scan. */
#include "ops/scan_gated/scan_gated.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/cuda_kernels.h"
#include "ops/scan/scan.h"
#include "ops/scan/scan_core.h"
#include "ops/unary/unary.h"

tn_kernel tn_scan_gated_forward_cpu, tn_scan_gated_backward_cpu;
size_t tn_scan_gated_work_cpu(const tn_sig *s, bool backward);

static tn_status gated_infer(tn_sig *s)
{
    TN_RETURN_IF(tn_scan_infer_frame(s, ((const tn_scan_gated_attr *)s->attr)->chunk, TN_GATED_STATE, TN_GATED_RESET));
    const tn_dims x = s->in[TN_GATED_X].dims, K = tn_shape(x.dim[2] / 2);
    if (!tn_dims_equal(s->in[TN_GATED_RI].dims, x) || !tn_dtype_is_float(s->in[TN_GATED_RI].dtype))
        return tn_error(TN_USAGE, "ri must be floating point and have the shape of x: gates r (K) and i (K) per token");
    if (!tn_dims_equal(s->in[TN_GATED_NU].dims, K) || !tn_dims_equal(s->in[TN_GATED_OMEGA].dims, K))
        return tn_error(TN_USAGE, "nu and omega must be (K), with x (B,T,2K): K = %lld", (long long)K.dim[0]);
    return TN_OK;
}

/* The reverse scan needs lambda, so ri, nu and omega, whatever is wanted; gates and phases need c too; gates need x. */
static void gated_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const uint64_t gates = 1u << TN_GATED_RI | 1u << TN_GATED_NU, lambda = gates | 1u << TN_GATED_OMEGA;
    u->in |= lambda;
    if (!s->in[TN_GATED_RESET].absent) u->in |= 1u << TN_GATED_RESET;
    if (want & gates) u->in |= 1u << TN_GATED_X;
    if (want & lambda) {
        u->out |= 1;
        if (!s->in[TN_GATED_STATE].absent) u->in |= 1u << TN_GATED_STATE;
    }
}

/* An exponential and a root count as ten operations each. */
static void gated_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[TN_GATED_X].dims) / 2;
    c->flops = n * (10 + 26);
    c->flops_backward = n * (20 + 26 + 12);
}

static tn_status gated_as_ops(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    (void)n_in;
    const tn_ref r = tn_part(g, in[TN_GATED_RI], 0, 2), i = tn_part(g, in[TN_GATED_RI], 1, 2);
    const tn_ref l = tn_scale(g, tn_mul(g, r, tn_softplus(g, in[TN_GATED_NU])), -8);
    const tn_ref gamma = tn_sqrt(g, tn_clamp_min(g, tn_neg(g, tn_expm1(g, tn_scale(g, l, 2))), 1e-6f));
    out[0] = tn_scan(g, in[TN_GATED_X], tn_exp(g, l), in[TN_GATED_OMEGA], .gamma = tn_mul(g, gamma, i),
                     .state = in[TN_GATED_STATE], .reset = in[TN_GATED_RESET], .final = &out[1],
                     .chunk = ((const tn_scan_gated_attr *)attr)->chunk);
    return tn_graph_status(g);
}

const tn_op tn_op_scan_gated = {
    .name = "scan_gated",
    .attr_bytes = sizeof(tn_scan_gated_attr),
    .flags = TN_OP_ROWWISE,
    .strided_in = 1u << TN_GATED_X | 1u << TN_GATED_RI,
    .infer = gated_infer,
    .grad = gated_grad,
    .cost = gated_cost,
    .kernel = { [TN_CPU] = { .forward = tn_scan_gated_forward_cpu,
                             .backward = tn_scan_gated_backward_cpu,
                             .work = tn_scan_gated_work_cpu },
                [TN_CUDA] = { .forward = tn_scan_gated_forward_cuda,
                              .backward = tn_scan_gated_backward_cuda,
                              .work = tn_scan_gated_work_cuda } },
    TN_OP_SWITCH("opt.scan_gated", "gates and scan in one op (off: element-wise ops, then scan)"),
    .plain = gated_as_ops,
};

tn_ref tn_scan_gated_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref ri, tn_ref nu, tn_ref omega,
                      tn_scan_gated_options o)
{
    const tn_scan_gated_attr a = { .chunk = o.chunk ? o.chunk : TN_SCAN_CHUNK };
    const tn_ref in[TN_GATED_INPUTS] = { x, ri, nu, omega, o.state, o.reset };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_scan_gated, &a, in, TN_GATED_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
