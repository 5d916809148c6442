/* cache_write on the CPU: rows of any strides into the cache's own type. */
#include "base/status.h"
#include "ops/cache_write/cache_write.h"
#include "ops/rows.h"

tn_kernel tn_cache_write_forward_cpu;

enum { CACHE, X, POSITION };

typedef struct job {
    const tn_arg *x;
    tn_arg to; /* the rows of the cache that x would replace at position 0, with x's shape */
    int64_t rows, length, per_tile;
    const int32_t *position;
    int64_t each, further; /* rows of a sequence; from its position to that of the next: 0, all have one */
} job;

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows;
    const int64_t sx = tn_row_step(j->x), sy = tn_row_step(&j->to);
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const float *x = (const float *)j->x->data + tn_row_offset(j->x, r);
        const int64_t at = tn_row_offset(&j->to, r) + j->position[r / j->each * j->further] * j->to.stride[1];
        switch (j->to.dtype) {
        case TN_BF16:
            for (int64_t i = 0; i < j->length; i++) ((uint16_t *)j->to.data)[at + i * sy] = tn_f32_to_bf16(x[i * sx]);
            break;
        case TN_F16:
            for (int64_t i = 0; i < j->length; i++) ((uint16_t *)j->to.data)[at + i * sy] = tn_f32_to_f16(x[i * sx]);
            break;
        default:
            for (int64_t i = 0; i < j->length; i++) ((float *)j->to.data)[at + i * sy] = x[i * sx];
        }
    }
}

tn_status tn_cache_write_forward_cpu(const tn_call *c)
{
    const tn_arg *x = &c->in[X], *position = &c->in[POSITION];
    const int64_t B = x->dims.dim[0], T = x->dims.dim[1], S = c->out[0].dims.dim[1];
    job j = { .x = x, .to = c->out[0], .length = tn_row_length(x), .position = position->data };
    for (int64_t b = 0; b < position->dims.dim[0]; b++) {
        const int64_t p = j.position[b];
        if (p < 0 || p + T > S)
            return tn_error(TN_USAGE,
                            "rows %lld to %lld do not fit a cache of %lld: make it longer or start again at 0",
                            (long long)p, (long long)(p + T - 1), (long long)S);
    }
    j.to.dims = x->dims;
    j.rows = j.length ? tn_dims_count(j.to.dims) / j.length : 0;
    j.each = B && j.rows ? j.rows / B : 1;
    j.further = position->dims.dim[0] > 1;
    j.per_tile = tn_tile_rows(j.length);
    tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), tile, &j);
    return TN_OK;
}
