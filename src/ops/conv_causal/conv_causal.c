/* conv_causal: shape checks, gradient rule, costs, the row. */
#include "ops/conv_causal/conv_causal.h"

#include "base/status.h"
#include "ops/absorb.h"
#include "ops/cuda_kernels.h"
#include "ops/rows.h"

tn_kernel tn_conv_causal_forward_cpu, tn_conv_causal_backward_cpu;

static tn_status conv_infer(tn_sig *s)
{
    const tn_dims x = s->in[TN_CONV_X].dims, w = s->in[TN_CONV_W].dims;
    if (x.rank != 3 || !tn_dtype_is_float(s->in[TN_CONV_X].dtype))
        return tn_error(TN_USAGE, "x must be (B,T,C), floating point");
    const int64_t B = x.dim[0], T = x.dim[1], C = x.dim[2];
    if (w.rank != 2 || w.dim[1] != C || w.dim[0] < 1 || w.dim[0] > TN_CONV_MAX_WIDTH)
        return tn_error(TN_USAGE, "w must be (W,C) with C = %lld channels and 1 <= W <= %d taps", (long long)C,
                        (int)TN_CONV_MAX_WIDTH);
    const tn_dims state = tn_shape(B, w.dim[0] - 1, C);
    if (!s->in[TN_CONV_BIAS].absent && !tn_dims_equal(s->in[TN_CONV_BIAS].dims, tn_shape(C)))
        return tn_error(TN_USAGE, "bias must be (C) = (%lld)", (long long)C);
    if (!s->in[TN_CONV_STATE].absent && !tn_dims_equal(s->in[TN_CONV_STATE].dims, state))
        return tn_error(TN_USAGE, "state must be (B,W-1,C) = (%lld,%lld,%lld)", (long long)B, (long long)state.dim[1],
                        (long long)C);
    if (!s->in[TN_CONV_RESET].absent &&
        (s->in[TN_CONV_RESET].dtype != TN_I32 || !tn_dims_equal(s->in[TN_CONV_RESET].dims, tn_shape(B, T))))
        return tn_error(TN_USAGE, "reset must be i32 (B,T) = (%lld,%lld)", (long long)B, (long long)T);
    s->n_out = 2;
    s->out[0].dims = x;
    s->out[1].dims = state;
    return TN_OK;
}

static void conv_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    if (((const tn_conv_causal_attr *)s->attr)->silu) u->in = (1u << TN_CONV_INPUTS) - 1; /* for the sum, made again */
    if (want & (1u << TN_CONV_X | 1u << TN_CONV_STATE)) u->in |= 1u << TN_CONV_W;
    if (want & ~(uint64_t)(1u << TN_CONV_BIAS) && !s->in[TN_CONV_RESET].absent) u->in |= 1u << TN_CONV_RESET;
    if (want >> TN_CONV_W & 1) {
        u->in |= 1u << TN_CONV_X;
        if (!s->in[TN_CONV_STATE].absent) u->in |= 1u << TN_CONV_STATE;
    }
}

static void conv_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[TN_CONV_X].dims) * (double)s->in[TN_CONV_W].dims.dim[0];
    c->flops = 2 * n;
    c->flops_backward = 4 * n;
}

static size_t conv_work(const tn_sig *s, bool backward)
{
    const int64_t *x = s->in[TN_CONV_X].dims.dim, W = s->in[TN_CONV_W].dims.dim[0];
    return backward ? sizeof(double) * (size_t)(x[0] * tn_tiles(x[1], TN_CONV_SUM_TOKENS) * (W + 1) * x[2]) : 0;
}

static bool take_silu(tn_absorbing *a)
{
    tn_conv_causal_attr *attr = a->attr;
    const tn_ref y = attr->silu ? TN_NONE : tn_absorb_reader(a, TN_FN_SILU);
    a->out[0] = y;
    attr->silu = true;
    return y.id;
}

static const tn_absorb_rule rules[] = { { "opt.silu_in_conv", take_silu }, { 0 } };

const tn_op tn_op_conv_causal = {
    .name = "conv_causal",
    .attr_bytes = sizeof(tn_conv_causal_attr),
    .flags = TN_OP_ROWWISE,
    .strided_in = 1u << TN_CONV_X,
    .infer = conv_infer,
    .grad = conv_grad,
    .cost = conv_cost,
    .kernel = { [TN_CPU] = { .forward = tn_conv_causal_forward_cpu,
                             .backward = tn_conv_causal_backward_cpu,
                             .work = conv_work },
                [TN_CUDA] = { .forward = tn_conv_causal_forward_cuda,
                              .backward = tn_conv_causal_backward_cuda,
                              .work = tn_conv_causal_work_cuda } },
    .fusion = { .absorbs = rules },
};

tn_ref tn_conv_causal_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_conv_causal_options o)
{
    const tn_ref in[TN_CONV_INPUTS] = { x, w, o.bias, o.state, o.reset };
    const tn_conv_causal_attr a = { .silu = false };
    tn_ref out[2] = { TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_conv_causal, &a, in, TN_CONV_INPUTS, out);
    if (o.final) *o.final = out[1];
    return out[0];
}
