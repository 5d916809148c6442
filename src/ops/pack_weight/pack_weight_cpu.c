/* pack_weight on the CPU: w as operand B of the products of linear, which see the same strides and choice of kernel. */
#include "backend/cpu/gemm.h"
#include "ops/pack_weight/pack_weight.h"

size_t tn_pack_weight_bytes_cpu(const tn_sig *s);
tn_kernel tn_pack_weight_forward_cpu;

/* Sizes of B: (k,n) for x w^T, (n,k) for dy w. */
static void set_sizes(tn_gemm *g, const void *attr, tn_dims w)
{
    const bool backward = ((const tn_pack_weight_attr *)attr)->backward;
    g->k = w.dim[backward ? 0 : 1];
    g->n = w.dim[backward ? 1 : 0];
}

size_t tn_pack_weight_bytes_cpu(const tn_sig *s)
{
    tn_gemm g = { .round = s->round, .bf16x3 = s->bf16x3, .portable_only = s->portable };
    set_sizes(&g, s->attr, s->in[0].dims);
    return tn_gemm_packed_bytes(&g);
}

tn_status tn_pack_weight_forward_cpu(const tn_call *c)
{
    const bool backward = ((const tn_pack_weight_attr *)c->attr)->backward;
    const tn_arg *w = &c->in[0];
    tn_gemm g = { .b = w->data,
                  .b_row = w->stride[backward ? 0 : 1],
                  .b_col = w->stride[backward ? 1 : 0],
                  .b_type = w->dtype,
                  .batch = 1,
                  .round = c->round,
                  .bf16x3 = c->bf16x3,
                  .portable_only = c->portable };
    set_sizes(&g, c->attr, w->dims);
    tn_gemm_pack_b(c->pool, &g, c->out[0].data);
    return TN_OK;
}
