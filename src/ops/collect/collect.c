/* collect: shape check, gradient rule, cost, row. */
#include "ops/collect/collect.h"

#include "base/status.h"
#include "ops/collect/collect_place.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_collect_forward_cpu, tn_collect_backward_cpu;

static tn_status check_slots(const tn_type *t, const char *name, bool integer, const tn_dims *e)
{
    if (t->absent || (integer ? t->dtype != TN_I32 : !tn_dtype_is_float(t->dtype)) || t->dims.rank != 2 ||
        t->dims.dim[0] != e->dim[0] || t->dims.dim[1] != e->dim[1])
        return tn_error(TN_USAGE, "%s must be %s of shape (B,N) = (%lld,%lld)", name, integer ? "i32" : "floats",
                        (long long)e->dim[0], (long long)e->dim[1]);
    return TN_OK;
}

static tn_status collect_infer(tn_sig *s)
{
    static const char *const names[] = { "e", "u", "v", "d", "plane", "age", "landed" };
    const tn_collect_attr *a = s->attr;
    const tn_type *e = &s->in[TN_COLLECT_E];
    if (e->absent || !tn_dtype_is_float(e->dtype) || e->dims.rank != 3 || e->dims.dim[2] < 1)
        return tn_error(TN_USAGE, "e must be a tensor of floats of shape (B,N,E) with E at least 1");
    for (int i = TN_COLLECT_U; i < TN_COLLECT_INPUTS; i++)
        if (i != TN_COLLECT_LANDED || !s->in[i].absent)
            TN_RETURN_IF(check_slots(&s->in[i], names[i], i >= TN_COLLECT_PLANE, &e->dims));
    if (a->width < 2 || a->height < 2 || (int64_t)a->width * a->height > INT32_MAX / 2)
        return tn_error(TN_USAGE, "a surface of %d x %d cells: width and height must be at least 2", (int)a->width,
                        (int)a->height);
    if (!(a->eps > 0)) return tn_error(TN_USAGE, "eps=%g must be above 0: 1e-3 is usual", (double)a->eps);
    s->n_out = 1;
    s->out[0].dtype = TN_F32;
    s->out[0].dims = tn_shape(e->dims.dim[0], tn_collect_cells(a), e->dims.dim[2]);
    return TN_OK;
}

static void collect_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = (1u << TN_COLLECT_INPUTS) - 1;
    u->out = 1;
}

static void collect_cost(const tn_sig *s, tn_cost *c)
{
    const tn_dims e = s->in[TN_COLLECT_E].dims;
    const double reached = (double)(e.dim[0] * e.dim[1] * tn_collect_reach(s->attr));
    c->flops = reached * (double)(10 + 2 * e.dim[2]);
    c->flops_backward = reached * (double)(20 + 8 * e.dim[2]);
}

/* Sums of weights and largest scores of all cells; scores of all slots. */
static size_t collect_work(const tn_sig *s, bool backward)
{
    const tn_dims e = s->in[TN_COLLECT_E].dims;
    (void)backward;
    return sizeof(float) * (size_t)(e.dim[0] * (2 * tn_collect_cells(s->attr) + e.dim[1]));
}

const tn_op tn_op_collect = {
    .name = "collect",
    .attr_bytes = sizeof(tn_collect_attr),
    .flags = TN_OP_ROWWISE | TN_OP_FULL,
    .infer = collect_infer,
    .grad = collect_grad,
    .cost = collect_cost,
    .kernel = { [TN_CPU] = { .forward = tn_collect_forward_cpu,
                             .backward = tn_collect_backward_cpu,
                             .work = collect_work },
                [TN_CUDA] = { .forward = tn_collect_forward_cuda,
                              .backward = tn_collect_backward_cuda,
                              .work = tn_collect_work_cuda } },
    TN_OP_SWITCH("opt.collect_cells", "landings visit the cells that they reach (off: weights of all cells, products)"),
    .plain = tn_collect_plain,
};

tn_ref tn_collect_(tn_graph *g, const char *file, int line, const tn_ref *in, tn_collect_options o)
{
    const bool fits = o.width >= 0 && o.height >= 0 && o.width <= INT32_MAX && o.height <= INT32_MAX;
    const tn_collect_attr a = { .width = fits ? (int32_t)o.width : 0,
                                .height = fits ? (int32_t)o.height : 0,
                                .nearest = o.nearest,
                                .beside = o.beside,
                                .age_factor = o.age_factor != 0 ? o.age_factor : 0.1f,
                                .eps = o.eps != 0 ? o.eps : 1e-3f };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_collect, &a, in, TN_COLLECT_INPUTS, &y);
}
