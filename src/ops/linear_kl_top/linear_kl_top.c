/* linear_kl_top: shape check, gradient rule, cost, row. Outputs: loss, KL of each row, logsumexps. */
#include "ops/linear_kl_top/linear_kl_top.h"

#include "ops/copy/copy.h"
#include "ops/cuda_kernels.h"
#include "ops/logits.h"

tn_kernel tn_linear_kl_top_forward_cpu, tn_linear_kl_top_backward_cpu;
size_t tn_linear_kl_top_work_cpu(const tn_sig *s, bool backward);

enum {
    X = TN_LINEAR_KL_TOP_X,
    W = TN_LINEAR_KL_TOP_W,
    IDS = TN_LINEAR_KL_TOP_IDS,
    LOGITS = TN_LINEAR_KL_TOP_LOGITS,
    LSE = TN_LINEAR_KL_TOP_LSE,
    LABELS = TN_LINEAR_KL_TOP_LABELS,
    WEIGHTS = TN_LINEAR_KL_TOP_WEIGHTS,
    INPUTS
};

static tn_status teacher_infer(const tn_sig *s, tn_dims rows)
{
    const tn_type *ids = &s->in[IDS], *logits = &s->in[LOGITS], *lse = &s->in[LSE];
    tn_dims of = ids->dims;
    if (of.rank > 0) of.rank--;
    if (ids->absent || ids->dtype != TN_I32 || ids->dims.rank < 1 || !tn_dims_equal(of, rows))
        return tn_error(TN_USAGE, "ids must be i32 (...,K), with a row for each row of x");
    if (logits->absent || !tn_dtype_is_float(logits->dtype) || !tn_dims_equal(logits->dims, ids->dims))
        return tn_error(TN_USAGE, "the teacher's logits must be floats, one for each of the ids");
    if (lse->absent || !tn_dtype_is_float(lse->dtype) || !tn_dims_equal(lse->dims, rows))
        return tn_error(TN_USAGE, "lse must be floats, one for each row of x");
    const int64_t K = ids->dims.dim[ids->dims.rank - 1], V = s->in[W].dims.dim[0];
    if (K < 1 || K > V)
        return tn_error(TN_USAGE, "the teacher's %lld largest logits of %lld classes: there are 1 to %lld",
                        (long long)K, (long long)V, (long long)V);
    return TN_OK;
}

static tn_status linear_kl_top_infer(tn_sig *s)
{
    const tn_linear_kl_top_attr *a = s->attr;
    const tn_type *x = &s->in[X];
    tn_dims rows;
    TN_RETURN_IF(tn_kl_infer(a->temperature, x, &s->in[LABELS], &s->in[WEIGHTS], &rows));
    TN_RETURN_IF(tn_kl_head_infer(x, &s->in[W], "w", "x"));
    TN_RETURN_IF(teacher_infer(s, rows));
    if (a->tile < 0) return tn_error(TN_USAGE, "a tile of %lld rows: take 0 for the default", (long long)a->tile);
    tn_kl_outputs(s, rows);
    return TN_OK;
}

static void linear_kl_top_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    u->in = (s->in[LABELS].absent ? 0 : 1u << LABELS) | (s->in[WEIGHTS].absent ? 0 : 1u << WEIGHTS);
    u->out = 4;
    if (want & (1u << X | 1u << W)) /* either needs the logits again */
        u->in |= 1u << X | 1u << W | 1u << IDS | 1u << LOGITS | 1u << LSE;
    if (want & 1u << WEIGHTS) u->out |= 1 | 2;
}

static void linear_kl_top_cost(const tn_sig *s, tn_cost *c)
{
    const double V = (double)s->in[W].dims.dim[0], d = (double)s->in[W].dims.dim[1];
    const double n = (double)tn_dims_count(s->out[1].dims);
    const double products = 1.0 + s->in[X].trainable + s->in[W].trainable; /* logits, dx, dw */
    c->flops = n * V * (2 * d + 6);
    c->flops_backward = n * V * (2 * d * products + 7);
}

const tn_op tn_op_linear_kl_top = {
    .name = "linear_kl_top",
    .attr_bytes = sizeof(tn_linear_kl_top_attr),
    .flags = TN_OP_AUX_FROM_1,
    .half_in = 1u << X | 1u << W,
    .infer = linear_kl_top_infer,
    .grad = linear_kl_top_grad,
    .cost = linear_kl_top_cost,
    .kernel = { [TN_CPU] = { .forward = tn_linear_kl_top_forward_cpu,
                             .backward = tn_linear_kl_top_backward_cpu,
                             .work = tn_linear_kl_top_work_cpu },
                [TN_CUDA] = { .forward = tn_linear_kl_top_forward_cuda,
                              .backward = tn_linear_kl_top_backward_cuda,
                              .work = tn_linear_kl_top_work_cuda } },
    .late_out = 1u << 2,
    .fusion = { .rounded_in = 1u << W },
};

tn_ref tn_linear_kl_top_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, tn_ref ids, tn_ref logits,
                         tn_ref lse, tn_linear_kl_top_options o)
{
    const tn_linear_kl_top_attr a = { .temperature = o.temperature == 0 ? 1 : o.temperature, .tile = o.tile };
    const tn_ref in[INPUTS] = { [X] = x,
                                [W] = w,
                                [IDS] = ids,
                                [LOGITS] = logits.id ? tn_stop_gradient(g, logits) : logits,
                                [LSE] = lse.id ? tn_stop_gradient(g, lse) : lse,
                                [LABELS] = o.labels,
                                [WEIGHTS] = o.weights };
    tn_ref out[3] = { { 0 } };
    tn_graph_add(g, file, line, &tn_op_linear_kl_top, &a, in, INPUTS, out);
    if (o.kl) *o.kl = out[1];
    return out[0];
}
