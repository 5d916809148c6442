/* embed: shape check, gradient rule, row. */
#include "ops/embed/embed.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_embed_forward_cpu, tn_embed_backward_cpu;

static tn_status embed_infer(tn_sig *s)
{
    const tn_type *tokens = &s->in[0], *table = &s->in[1];
    if (tokens->dtype != TN_I32)
        return tn_error(TN_USAGE, "tokens are %s, they must be i32", tn_dtype_name(tokens->dtype));
    if (table->dims.rank != 2 || !tn_dtype_is_float(table->dtype))
        return tn_error(TN_USAGE, "the table must be a float matrix (vocabulary, size)");
    if (tokens->dims.rank >= TN_MAX_RANK)
        return tn_error(TN_USAGE, "tokens have %d axes, at most %d leave room for the table's row", tokens->dims.rank,
                        TN_MAX_RANK - 1);
    s->n_out = 1;
    s->out[0].dims = tokens->dims;
    s->out[0].dims.dim[s->out[0].dims.rank++] = table->dims.dim[1];
    return TN_OK;
}

static void embed_grad(const tn_sig *s, uint64_t want, tn_uses *u)
{
    (void)s, (void)want;
    u->in = 1; /* the tokens */
}

static void embed_cost(const tn_sig *s, tn_cost *c) { c->flops_backward = (double)tn_dims_count(s->out[0].dims); }

const tn_op tn_op_embed = {
    .name = "embed",
    .flags = TN_OP_ROWWISE,
    .half_in = 1 << 1,
    .infer = embed_infer,
    .grad = embed_grad,
    .cost = embed_cost,
    .kernel = { [TN_CPU] = { .forward = tn_embed_forward_cpu, .backward = tn_embed_backward_cpu, .work = NULL },
                [TN_CUDA] = { .forward = tn_embed_forward_cuda,
                              .backward = tn_embed_backward_cuda,
                              .work = tn_embed_work_cuda } },
    .fusion = { .some_rows = 1 << 1 },
};

tn_ref tn_embed_(tn_graph *g, const char *file, int line, tn_ref tokens, tn_ref table)
{
    const tn_ref in[] = { tokens, table };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_embed, NULL, in, 2, &y);
}
