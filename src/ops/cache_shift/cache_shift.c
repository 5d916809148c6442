/* cache_shift: shapes, registration, public call. */
#include "ops/cache_shift/cache_shift.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_cache_shift_forward_cpu;

enum { CACHE, SHIFT };

static tn_status cache_shift_infer(tn_sig *s)
{
    const tn_dims cache = s->in[CACHE].dims, shift = s->in[SHIFT].dims;
    if (s->in[CACHE].absent || s->in[SHIFT].absent) return tn_error(TN_USAGE, "cache and shift are needed");
    if (cache.rank != 4) return tn_error(TN_USAGE, "the cache must have the shape (B,S,KV,D)");
    if (s->in[SHIFT].dtype != TN_I32 || shift.rank != 1 || shift.dim[0] != cache.dim[0])
        return tn_error(TN_USAGE, "the shift must be i32 of shape (B): one of each sequence");
    if (!tn_dtype_is_float(s->in[CACHE].dtype) || s->in[CACHE].dtype == TN_F64)
        return tn_error(TN_USAGE, "the cache is %s: use f32, bf16 or f16", tn_dtype_name(s->in[CACHE].dtype));
    s->n_out = 1;
    s->out[0].dims = cache;
    s->out[0].dtype = s->in[CACHE].dtype;
    return TN_OK;
}

static void cache_shift_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; /* bytes only */ }

const tn_op tn_op_cache_shift = {
    .name = "cache_shift",
    .flags = TN_OP_STRIDED | TN_OP_WRITES_IN0,
    .infer = cache_shift_infer,
    .cost = cache_shift_cost,
    .kernel = { [TN_CPU] = { .forward = tn_cache_shift_forward_cpu },
                [TN_CUDA] = { .forward = tn_cache_shift_forward_cuda } },
};

tn_ref tn_cache_shift_(tn_graph *g, const char *file, int line, tn_ref cache, tn_ref shift)
{
    const tn_ref in[] = { cache, shift };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_cache_shift, NULL, in, 2, &y);
}
