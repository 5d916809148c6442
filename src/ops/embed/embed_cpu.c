/* embed on the CPU: rows copied (and widened from halves), gradients added up by columns (see indexed.h). */
#include "backend/cpu/level.h"
#include "ops/indexed.h"

tn_kernel tn_embed_forward_cpu, tn_embed_backward_cpu;

typedef struct wide {
    const int32_t *tokens; /* (n) */
    const uint16_t *table; /* (V,d) bf16 or f16 */
    float *y;              /* (n,d) */
    int64_t n, d, per_tile;
    tn_dtype dtype;
} wide;

static void widen_tile(void *arg, int64_t tile)
{
    const wide *w = arg;
    const int64_t end = (tile + 1) * w->per_tile;
    for (int64_t i = tile * w->per_tile; i < (end < w->n ? end : w->n); i++)
        tn_convert(w->y + i * w->d, TN_F32, w->table + w->tokens[i] * w->d, w->dtype, w->d);
}

TN_LEVELED_KERNEL(tn_embed_forward_cpu)
{
    const tn_arg *table = &c->in[1];
    const int64_t n = tn_arg_count(&c->in[0]), V = table->dims.dim[0], d = table->dims.dim[1];
    TN_RETURN_IF(tn_index_check(c->in[0].data, n, V, "token", "the tokenizer's vocabulary and the table's must agree"));
    if (table->dtype == TN_F32) {
        tn_index_gather(
            c->pool,
            (tn_index_job){
                .index = c->in[0].data, .from = table->data, .to = c->out[0].data, .n = n, .rows = V, .width = d });
        return TN_OK;
    }
    wide w = { c->in[0].data, table->data, c->out[0].data, n, d, tn_tile_rows(d), table->dtype };
    if (n && d) tn_pool_run(c->pool, tn_tiles(n, w.per_tile), widen_tile, &w);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_embed_backward_cpu)
{
    tn_index_scatter_back(c);
    return TN_OK;
}
