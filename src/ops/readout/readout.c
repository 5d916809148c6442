/* readout: shape check, gradient rule, cost, twin made of plain ops, row. */
#include "ops/readout/readout.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/elem.h"
#include "ops/norm/norm.h"
#include "ops/cuda_kernels.h"
#include "ops/readout/readout_args.h"
#include "ops/unary/unary.h"

tn_kernel tn_readout_forward_cpu, tn_readout_backward_cpu;

static tn_status check_shape(const tn_type *t, const char *name, tn_dims want)
{
    char have[96], wanted[96];
    if (t->absent) return TN_OK;
    if (!tn_dtype_is_float(t->dtype)) return tn_error(TN_USAGE, "%s must be a tensor of floats", name);
    if (tn_dims_equal(t->dims, want)) return TN_OK;
    return tn_error(TN_USAGE, "%s has shape %s, it must be %s", name, tn_dims_text(t->dims, have, sizeof have),
                    tn_dims_text(want, wanted, sizeof wanted));
}

static tn_status readout_infer(tn_sig *s)
{
    const tn_readout_attr *a = s->attr;
    const tn_type *in = s->in;
    if (in[TN_READOUT_C].absent || in[TN_READOUT_Z].absent || in[TN_READOUT_C].dims.rank < 1)
        return tn_error(TN_USAGE, "c and z are required, and c needs at least one axis");
    const tn_dims dims = in[TN_READOUT_C].dims;
    const int64_t W = dims.dim[dims.rank - 1];
    if ((unsigned)a->act >= TN_GATE_KINDS) return tn_error(TN_USAGE, "unknown activation %d: see gate.h", (int)a->act);
    TN_RETURN_IF(check_shape(&in[TN_READOUT_C], "c", dims));
    TN_RETURN_IF(check_shape(&in[TN_READOUT_Z], "the gate", dims));
    TN_RETURN_IF(check_shape(&in[TN_READOUT_X], "x", dims));
    TN_RETURN_IF(check_shape(&in[TN_READOUT_SKIP], "skip", tn_shape(W)));
    TN_RETURN_IF(check_shape(&in[TN_READOUT_GAIN], "gain", tn_shape(W)));
    if (in[TN_READOUT_X].absent != in[TN_READOUT_SKIP].absent)
        return tn_error(TN_USAGE, "x and skip go together: give both");
    if (a->group < 0 || a->group > TN_READOUT_GROUP || (a->group && W % a->group))
        return tn_error(TN_USAGE, "group=%lld must divide the %lld numbers of a row and be at most %d",
                        (long long)a->group, (long long)W, TN_READOUT_GROUP);
    if (!a->group && !in[TN_READOUT_GAIN].absent) return tn_error(TN_USAGE, "gain is for a norm: give a group too");
    if (!(a->eps > 0)) return tn_error(TN_USAGE, "eps=%g must be above 0: 1e-6 is usual", (double)a->eps);
    s->n_out = 1;
    s->out[0].dims = dims;
    s->out[0].dtype = tn_elem_dtype(s);
    s->mixes_rows = dims.rank == 1;
    return TN_OK;
}

static void readout_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = (1u << TN_READOUT_INPUTS) - 1;
}

static void readout_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->out[0].dims);
    c->flops = (((const tn_readout_attr *)s->attr)->group ? 8 : 4) * n;
    c->flops_backward = 3 * c->flops;
}

/* Partial gradients of skip and gain, a pair for each tile of rows. */
static size_t readout_work(const tn_sig *s, bool backward)
{
    const tn_dims dims = s->in[TN_READOUT_C].dims;
    const int64_t rows = tn_readout_rows(dims), W = dims.dim[dims.rank - 1], each = tn_readout_tile(rows, W);
    return backward ? (size_t)((rows + each - 1) / each * 2 * W) * sizeof(float) : 0;
}

static tn_status readout_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_readout_attr *a = attr;
    const tn_dims dims = tn_ref_dims(g, in[TN_READOUT_C]);
    tn_dims groups = dims;
    tn_ref s = a->scale == 1 ? in[TN_READOUT_C] : tn_scale(g, in[TN_READOUT_C], a->scale);
    (void)n_in;
    if (in[TN_READOUT_X].id) s = tn_add(g, s, tn_mul(g, in[TN_READOUT_X], in[TN_READOUT_SKIP]));
    if (a->group && dims.rank && dims.rank < TN_MAX_RANK) {
        groups.dim[dims.rank - 1] = dims.dim[dims.rank - 1] / a->group;
        groups.dim[groups.rank++] = a->group;
        s = tn_reshape(g, tn_rmsnorm(g, tn_reshape(g, s, groups), TN_NONE, .eps = a->eps), dims);
    }
    if (in[TN_READOUT_GAIN].id) s = tn_mul(g, s, in[TN_READOUT_GAIN]);
    out[0] = tn_gate(g, a->act, s, in[TN_READOUT_Z]);
    return tn_graph_status(g);
}

const tn_op tn_op_readout = {
    .name = "readout",
    .attr_bytes = sizeof(tn_readout_attr),
    .flags = TN_OP_ROWWISE,
    .infer = readout_infer,
    .grad = readout_grad,
    .cost = readout_cost,
    .kernel = { [TN_CPU] = { .forward = tn_readout_forward_cpu,
                             .backward = tn_readout_backward_cpu,
                             .work = readout_work },
                [TN_CUDA] = { .forward = tn_readout_forward_cuda,
                              .backward = tn_readout_backward_cuda,
                              .work = tn_readout_work_cuda } },
    .switch_name = "opt.readout",
    .switch_row = &(
        const tn_setting)TN_SETTING_SWITCH("opt.readout", "on",
                                           "skip, norm and gate behind a recurrence in one pass (off: an op for each)"),
    .plain = readout_plain,
    .strided_in = 1u << TN_READOUT_C | 1u << TN_READOUT_Z | 1u << TN_READOUT_X,
};

tn_ref tn_readout_(tn_graph *g, const char *file, int line, tn_ref c, tn_ref z, tn_readout_options o)
{
    const tn_readout_attr a = {
        .act = o.act, .scale = o.scale != 0 ? o.scale : 1, .eps = o.eps != 0 ? o.eps : 1e-6f, .group = o.group
    };
    const tn_ref in[TN_READOUT_INPUTS] = { c, z, o.x, o.skip, o.gain };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_readout, &a, in, TN_READOUT_INPUTS, &y);
}
