/* rope: shapes, gradient rule, cost, registration. */
#include "ops/rope/rope.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

#include <math.h>

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
    if (!(a->amplitude > 0) || !isfinite(a->low) || !isfinite(a->high))
        return tn_error(TN_USAGE, "yarn needs a base other than 1, and betas and an attention_factor above 0");
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

/* The pair that turns so many times in the context, as a real number. */
static double pair_of(const tn_rope_attr *a, double turns, double D)
{
    return D * log(a->stretch_context / (turns * 2 * M_PI)) / (2 * log(a->base));
}

/* Bounds as transformers has them: whole pairs, at most D-1 although there are D/2, and never one pair alone. */
static void set_yarn(tn_rope_attr *a, const tn_rope_options *o, double D)
{
    const double fast = o->beta_fast == 0 ? 32 : o->beta_fast, slow = o->beta_slow == 0 ? 1 : o->beta_slow;
    a->low = fmax(floor(pair_of(a, fast, D)), 0);
    a->high = fmin(ceil(pair_of(a, slow, D)), D - 1);
    if (!(fast > 0 && slow > 0)) a->low = NAN; /* refused where shapes are */
    if (a->low == a->high) a->high += 0.001;
    a->amplitude = o->attention_factor != 0 ? o->attention_factor : a->stretch > 1 ? 0.1 * log(a->stretch) + 1 : 1;
}

tn_ref tn_rope_(tn_graph *g, const char *file, int line, tn_ref x, tn_rope_options o)
{
    tn_rope_attr a = { .base = o.base == 0 ? 10000 : o.base,
                       .stretch = o.stretch,
                       .stretch_context = o.stretch_context == 0 ? 8192 : o.stretch_context,
                       .amplitude = 1,
                       .scaling = o.scaling,
                       .interleaved = o.interleaved };
    const tn_ref in[] = { x, o.position };
    tn_ref y;
    if (o.scaling == TN_ROPE_YARN && o.stretch > 0 && x.id && tn_graph_status(g) == TN_OK)
        set_yarn(&a, &o, (double)tn_ref_dim(g, x, -1));
    return tn_graph_add(g, file, line, &tn_op_rope, &a, in, 2, &y);
}
