/* gate: shape check, gradient rule, twin made of unary and binary, row. */
#include "ops/gate/gate.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/elem.h"
#include "ops/cuda_kernels.h"
#include "ops/unary/unary.h"

tn_kernel tn_gate_forward_cpu, tn_gate_backward_cpu;

static tn_status gate_infer(tn_sig *s)
{
    const tn_gate_attr *a = s->attr;
    if ((unsigned)a->kind >= TN_GATE_KINDS) return tn_error(TN_USAGE, "unknown kind %d: see gate.h", (int)a->kind);
    for (int i = 0; i < 2; i++)
        if (s->in[i].absent || !tn_dtype_is_float(s->in[i].dtype))
            return tn_error(TN_USAGE, "both arguments must be tensors of floats");
    if (!tn_dims_equal(s->in[0].dims, s->in[1].dims))
        return tn_error(
            TN_USAGE, "the gate must have the shape of what it gates; for another shape use tn_mul, which broadcasts");
    s->n_out = 1;
    s->out[0].dtype = tn_elem_dtype(s);
    s->out[0].dims = s->in[0].dims;
    return TN_OK;
}

static void gate_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s;
    u->in = want & 2 ? 3 : 2; /* dx needs z alone */
}

static void gate_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->out[0].dims);
    c->flops = 2 * n;
    c->flops_backward = 5 * n;
}

static tn_status gate_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    static const tn_unary_kind act[TN_GATE_KINDS] = {
        [TN_GATE_SILU] = TN_UNARY_SILU, [TN_GATE_SIGMOID] = TN_UNARY_SIGMOID, [TN_GATE_GELU] = TN_UNARY_GELU
    };
    (void)n_in;
    out[0] = tn_mul(g, in[0], tn_unary(g, act[((const tn_gate_attr *)attr)->kind], in[1], 0, 0));
    return tn_graph_status(g);
}

const tn_op tn_op_gate = {
    .name = "gate",
    .attr_bytes = sizeof(tn_gate_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_INPLACE,
    .infer = gate_infer,
    .grad = gate_grad,
    .cost = gate_cost,
    .kernel = { [TN_CPU] = { .forward = tn_gate_forward_cpu, .backward = tn_gate_backward_cpu },
                [TN_CUDA] = { .forward = tn_gate_forward_cuda, .backward = tn_gate_backward_cuda } },
    TN_OP_SWITCH("opt.gate", "x act(z) in one pass (off: the activation is stored, then multiplied)"),
    .plain = gate_plain,
};

tn_ref tn_gate_(tn_graph *g, const char *file, int line, tn_gate_kind kind, tn_ref x, tn_ref z)
{
    const tn_gate_attr attr = { .kind = kind };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_gate, &attr, (const tn_ref[]){ x, z }, 2, &y);
}
