/* norm: shape check, gradient rule, cost, row. The kernels are in norm_cpu.c. */
#include "ops/norm/norm.h"

#include "base/status.h"
#include "ops/binary/binary.h"
#include "ops/norm/norm_cpu.h"
#include "ops/cuda_kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/unary/unary.h"

static tn_status check_vector(const tn_type *t, const char *name, int64_t d)
{
    char have[96];
    if (t->absent || tn_dims_equal(t->dims, tn_shape(d))) return TN_OK;
    return tn_error(TN_USAGE, "%s has shape %s, it must be (%lld), as long as x's last axis", name,
                    tn_dims_text(t->dims, have, sizeof have), (long long)d);
}

static tn_status norm_infer(tn_sig *s)
{
    const tn_norm_attr *a = s->attr;
    const tn_type *x = &s->in[TN_NORM_X], *r = &s->in[TN_NORM_RESIDUAL];
    if (x->dims.rank < 1) return tn_error(TN_USAGE, "x is a scalar: there is no axis to normalise");
    const int64_t d = x->dims.dim[x->dims.rank - 1];
    if (!r->absent && !tn_dims_equal(r->dims, x->dims)) {
        char have[96];
        return tn_error(TN_USAGE, "the residual has shape %s, not x's", tn_dims_text(r->dims, have, sizeof have));
    }
    TN_RETURN_IF(check_vector(&s->in[TN_NORM_W], "the weight", d));
    TN_RETURN_IF(check_vector(&s->in[TN_NORM_B], "the bias", d));
    if (!(a->eps > 0)) return tn_error(TN_USAGE, "eps=%g must be above 0: 1e-6 and 1e-5 are usual", (double)a->eps);
    s->n_out = r->absent ? 2 : 3;
    for (int i = 0; i < s->n_out; i++) s->out[i].dims = x->dims;
    s->out[s->n_out - 1].dims.dim[x->dims.rank - 1] = a->kind == TN_NORM_RMS ? 1 : 3;
    s->out[s->n_out - 1].dtype = TN_F32;
    s->mixes_rows = x->dims.rank == 1;
    return TN_OK;
}

static void norm_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    const bool residual = !s->in[TN_NORM_RESIDUAL].absent;
    u->equal = residual;
    if (want == 1 << TN_NORM_B) return; /* a sum of dy */
    u->out = (uint64_t)1 << (s->n_out - 1);
    if (residual) u->out |= 1 << TN_NORM_SUM;
    else u->in |= 1 << TN_NORM_X;
    if (want & (1 << TN_NORM_X | 1 << TN_NORM_RESIDUAL)) u->in |= 1 << TN_NORM_W;
}

static void norm_cost(const tn_sig *s, tn_cost *c)
{
    const double n = (double)tn_dims_count(s->in[TN_NORM_X].dims);
    c->flops = (((const tn_norm_attr *)s->attr)->kind == TN_NORM_RMS ? 4 : 7) * n;
    c->flops_backward = 10 * n;
}

/* Partial gradients of weight and bias, a pair for each tile of rows. */
static size_t norm_work(const tn_sig *s, bool backward)
{
    const tn_dims dims = s->in[TN_NORM_X].dims;
    const int64_t rows = tn_norm_rows(dims), d = dims.dim[dims.rank - 1];
    return backward ? (size_t)(tn_tiles(rows, tn_norm_tile(rows, d, true)) * 2 * d) * sizeof(float) : 0;
}

/* The mean over the last axis, which stays as an axis of 1. */
static tn_ref mean_kept(tn_graph *g, tn_ref x)
{
    tn_dims dims = tn_ref_dims(g, x);
    if (dims.rank) dims.dim[dims.rank - 1] = 1;
    return tn_reshape(g, tn_mean(g, x, -1), dims);
}

/* What opt.norm=off builds: every step a tensor of its own. The rows' numbers have no place in it. */
static tn_status norm_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_norm_attr *a = attr;
    const tn_ref s = in[TN_NORM_RESIDUAL].id ? tn_add(g, in[TN_NORM_X], in[TN_NORM_RESIDUAL]) : in[TN_NORM_X];
    const tn_ref centred = a->kind == TN_NORM_RMS ? s : tn_sub(g, s, mean_kept(g, s));
    const tn_ref square = mean_kept(g, tn_square(g, centred));
    tn_ref y = tn_mul(g, centred, tn_reciprocal(g, tn_sqrt(g, tn_affine(g, square, 1, a->eps))));
    if (in[TN_NORM_W].id) y = tn_mul(g, y, in[TN_NORM_W]);
    if (in[TN_NORM_B].id) y = tn_add(g, y, in[TN_NORM_B]);
    (void)n_in;
    out[TN_NORM_Y] = y;
    out[TN_NORM_SUM] = in[TN_NORM_RESIDUAL].id ? s : TN_NONE;
    return tn_graph_status(g);
}

const tn_op tn_op_norm = {
    .name = "norm",
    .attr_bytes = sizeof(tn_norm_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE,
    .infer = norm_infer,
    .grad = norm_grad,
    .cost = norm_cost,
    .kernel = { [TN_CPU] = { .forward = tn_norm_forward_cpu, .backward = tn_norm_backward_cpu, .work = norm_work },
                [TN_CUDA] = { .forward = tn_norm_forward_cuda,
                              .backward = tn_norm_backward_cuda,
                              .work = tn_norm_work_cuda } },
    TN_OP_SWITCH("opt.norm",
                 "normalisation and residual in one pass (off: add, square, mean, root, product one by one)"),
    .plain = norm_plain,
    .fusion = { .sum_in = TN_NORM_RESIDUAL, .sum_out = TN_NORM_SUM, .columns_in = TN_NORM_COLUMNS },
};

tn_ref tn_norm_(tn_graph *g, const char *file, int line, tn_norm_kind kind, tn_ref x, tn_ref w, tn_ref b,
                tn_norm_options o)
{
    const tn_norm_attr a = { .kind = kind, .eps = o.eps != 0 ? o.eps : kind == TN_NORM_RMS ? 1e-6f : 1e-5f };
    const tn_ref in[TN_NORM_INPUTS] = { x, o.residual, w, b };
    tn_ref out[3] = { TN_NONE, TN_NONE, TN_NONE };
    tn_graph_add(g, file, line, &tn_op_norm, &a, in, TN_NORM_INPUTS, out);
    if (o.sum) *o.sum = o.residual.id ? out[TN_NORM_SUM] : x;
    return out[TN_NORM_Y];
}
