/* linear_top: shape check, cost, row, public call. Outputs: ids, logits, logsumexps. */
#include "ops/linear_top/linear_top.h"

#include "ops/cuda_kernels.h"
#include "ops/logits.h"

tn_kernel tn_linear_top_forward_cpu;
size_t tn_linear_top_work_cpu(const tn_sig *s, bool backward);

enum { X = TN_LINEAR_TOP_X, W = TN_LINEAR_TOP_W, LABELS = TN_LINEAR_TOP_LABELS, INPUTS };

static tn_status linear_top_infer(tn_sig *s)
{
    const tn_linear_top_attr *a = s->attr;
    const tn_type *x = &s->in[X], *w = &s->in[W];
    tn_dims rows;
    TN_RETURN_IF(tn_kl_infer(a->temperature, x, &s->in[LABELS], &(tn_type){ .absent = true }, &rows));
    TN_RETURN_IF(tn_kl_head_infer(x, w, "w", "x"));
    if (a->k < 1 || a->k > w->dims.dim[0])
        return tn_error(TN_USAGE, "the %lld largest of %lld classes: take 1 to %lld", (long long)a->k,
                        (long long)w->dims.dim[0], (long long)w->dims.dim[0]);
    s->n_out = 3;
    for (int i = 0; i < 3; i++) s->out[i] = (tn_type){ .dtype = i ? TN_F32 : TN_I32, .dims = rows };
    for (int i = 0; i < 2; i++) s->out[i].dims.dim[s->out[i].dims.rank++] = a->k;
    return TN_OK;
}

static void linear_top_cost(const tn_sig *s, tn_cost *c)
{
    const double V = (double)s->in[W].dims.dim[0], d = (double)s->in[W].dims.dim[1];
    c->flops = (double)tn_dims_count(s->out[2].dims) * V * (2 * d + 6);
}

const tn_op tn_op_linear_top = {
    .name = "linear_top",
    .attr_bytes = sizeof(tn_linear_top_attr),
    .half_in = 1u << X | 1u << W,
    .infer = linear_top_infer,
    .cost = linear_top_cost,
    .kernel = { [TN_CPU] = { .forward = tn_linear_top_forward_cpu, .work = tn_linear_top_work_cpu },
                [TN_CUDA] = { .forward = tn_linear_top_forward_cuda, .work = tn_linear_top_work_cuda } },
    .fusion = { .rounded_in = 1u << W },
};

tn_ref tn_linear_top_(tn_graph *g, const char *file, int line, tn_ref x, tn_ref w, int64_t k, tn_linear_top_options o)
{
    const tn_linear_top_attr a = { .k = k, .temperature = o.temperature == 0 ? 1 : o.temperature };
    const tn_ref in[INPUTS] = { [X] = x, [W] = w, [LABELS] = o.labels };
    tn_ref out[3] = { { 0 } };
    tn_graph_add(g, file, line, &tn_op_linear_top, &a, in, INPUTS, out);
    if (o.logits) *o.logits = out[1];
    if (o.lse) *o.lse = out[2];
    return out[0];
}
