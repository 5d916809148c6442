/* cache_write: shapes, registration, public call. */
#include "ops/cache_write/cache_write.h"

#include "base/status.h"
#include "ops/cuda_kernels.h"

tn_kernel tn_cache_write_forward_cpu;

enum { CACHE, X, POSITION };

static tn_status cache_write_infer(tn_sig *s)
{
    const tn_dims cache = s->in[CACHE].dims, x = s->in[X].dims, p = s->in[POSITION].dims;
    for (int i = 0; i < 3; i++)
        if (s->in[i].absent) return tn_error(TN_USAGE, "cache, x and position are needed");
    bool same = cache.rank >= 2 && cache.rank == x.rank;
    for (int i = 0; same && i < cache.rank; i++) same = i == 1 ? x.dim[1] <= cache.dim[1] : x.dim[i] == cache.dim[i];
    if (!same) return tn_error(TN_USAGE, "x must have the cache's shape (B,S,...) but for a T <= S on axis 1");
    if (s->in[POSITION].dtype != TN_I32 || p.rank != 1 || (p.dim[0] != 1 && p.dim[0] != x.dim[0]))
        return tn_error(TN_USAGE, "the position must be i32 of shape (1), or (B): one of each sequence");
    if (!tn_dtype_is_float(s->in[CACHE].dtype) || s->in[CACHE].dtype == TN_F64)
        return tn_error(TN_USAGE, "the cache is %s: use f32, bf16 or f16", tn_dtype_name(s->in[CACHE].dtype));
    s->n_out = 1;
    s->out[0].dims = cache;
    s->out[0].dtype = s->in[CACHE].dtype;
    return TN_OK;
}

static void cache_write_cost(const tn_sig *s, tn_cost *c) { (void)s, (void)c; /* bytes only */ }

const tn_op tn_op_cache_write = {
    .name = "cache_write",
    .flags = TN_OP_STRIDED | TN_OP_WRITES_IN0,
    .infer = cache_write_infer,
    .cost = cache_write_cost,
    .kernel = { [TN_CPU] = { .forward = tn_cache_write_forward_cpu },
                [TN_CUDA] = { .forward = tn_cache_write_forward_cuda } },
};

tn_ref tn_cache_write_(tn_graph *g, const char *file, int line, tn_ref cache, tn_ref x, tn_ref position)
{
    const tn_ref in[] = { cache, x, position };
    tn_ref y;
    return tn_graph_add(g, file, line, &tn_op_cache_write, NULL, in, 3, &y);
}
