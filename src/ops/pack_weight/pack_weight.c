/* pack_weight: size of the packed form, row. */
#include "ops/pack_weight/pack_weight.h"

#include "base/status.h"

tn_kernel tn_pack_weight_forward_cpu;
size_t tn_pack_weight_bytes_cpu(const tn_sig *s);

static tn_status pack_weight_infer(tn_sig *s)
{
    const tn_type *w = &s->in[0];
    if (w->absent || w->dims.rank != 2) return tn_error(TN_USAGE, "w must be (n,k)");
    if (!tn_dtype_is_float(w->dtype) || w->dtype == TN_F64)
        return tn_error(TN_USAGE, "w is %s: use f32, bf16 or f16", tn_dtype_name(w->dtype));
    s->n_out = 1;
    s->out[0].dtype = TN_U8;
    s->out[0].dims = tn_shape((int64_t)tn_pack_weight_bytes_cpu(s));
    return TN_OK;
}

static void pack_weight_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; /* bytes only */ }

const tn_op tn_op_pack_weight = {
    .name = "pack_weight",
    .attr_bytes = sizeof(tn_pack_weight_attr),
    .flags = TN_OP_STRIDED,
    .half_in = 1,
    .infer = pack_weight_infer,
    .cost = pack_weight_cost,
    .kernel = { [TN_CPU] = { .forward = tn_pack_weight_forward_cpu } },
};

tn_ref tn_pack_weight_(tn_graph *g, const char *file, int line, tn_ref w, bool backward)
{
    const tn_pack_weight_attr a = { .backward = backward };
    tn_ref p;
    return tn_graph_add(g, file, line, &tn_op_pack_weight, &a, &w, 1, &p);
}
