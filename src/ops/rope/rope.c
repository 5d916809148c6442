/* rope: shapes, gradient rule, cost, registration. */
#include "ops/rope/rope.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_rope_forward_cpu, tn_rope_backward_cpu;

enum { X, POSITION };

static tn_status rope_infer(tn_sig *s)
{
    const tn_rope_attr *a = s->attr;
    const tn_dims x = s->in[X].dims, p = s->in[POSITION].dims;
    if (s->in[X].absent || x.rank != 4 || x.dim[3] % 2 || x.dim[3] > 1024)
        return tn_error(TN_USAGE, "x must be (B,T,H,D) with an even D of at most 1024");
    if (!s->in[POSITION].absent) {
        const bool one = p.rank == 1 && (p.dim[0] == 1 || p.dim[0] == x.dim[0]),
                   each = p.rank == 2 && p.dim[0] == x.dim[0] && p.dim[1] == x.dim[1];
        if (s->in[POSITION].dtype != TN_I32 || !(one || each))
            return tn_error(TN_USAGE, "the position must be i32 of shape (1), (B) or (B,T)");
    }
    if (!(a->base > 0) || !(a->stretch >= 0) || !(a->stretch_context > 0))
        return tn_error(TN_USAGE, "base and stretch_context must be positive, stretch not negative");
    s->n_out = 1;
    s->out[0].dims = x;
    return TN_OK;
}

static void rope_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)want;
    if (!s->in[POSITION].absent) u->in |= 1 << POSITION;
}

static void rope_cost(const tn_sig *s, tn_cost *c)
{
    c->flops = c->flops_backward = 3.0 * (double)tn_dims_count(s->in[X].dims);
}

const tn_op tn_op_rope = {
    .name = "rope",
    .attr_bytes = sizeof(tn_rope_attr),
    .flags = TN_OP_STRIDED | TN_OP_ROWWISE | TN_OP_INPLACE,
    .infer = rope_infer,
    .grad = rope_grad,
    .cost = rope_cost,
    .kernel = { [TN_CPU] = { .forward = tn_rope_forward_cpu, .backward = tn_rope_backward_cpu, .work = NULL },
                [TN_CUDA] = { .forward = tn_rope_forward_cuda,
                              .backward = tn_rope_backward_cuda,
                              .work = tn_rope_work_cuda } },
};

tn_ref tn_rope_(tn_graph *g, const char *file, int line, tn_ref x, tn_rope_options o)
{
    const tn_rope_attr a = { .base = o.base == 0 ? 10000 : o.base,
                             .stretch = o.stretch,
                             .stretch_context = o.stretch_context == 0 ? 8192 : o.stretch_context,
                             .interleaved = o.interleaved };
    const tn_ref in[] = { x, o.position };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_rope, &a, in, 2, &y);
}
