/* cache_shift on the CPU: bytes move, one tile of work per sequence and head. */
#include "base/status.h"
#include "ops/cache_shift/cache_shift.h"
#include "ops/rows.h"

#include <string.h>

tn_kernel tn_cache_shift_forward_cpu;

enum { CACHE, SHIFT };

typedef struct job {
    const tn_arg *cache;
    const int32_t *shift;
} job;

/* Upwards, so that every row is read before it is written. */
static void tile(void *arg, int64_t t)
{
    const tn_arg *c = ((const job *)arg)->cache;
    const int64_t S = c->dims.dim[1], KV = c->dims.dim[2], D = c->dims.dim[3], each = (int64_t)tn_dtype_bytes(c->dtype);
    const int64_t b = t / KV, by = ((const job *)arg)->shift[b], row = c->stride[1] * each, step = c->stride[3] * each;
    char *to = (char *)c->data + (b * c->stride[0] + t % KV * c->stride[2]) * each;
    if (by == 0) return;
    if (c->stride[3] == 1 && c->stride[1] == D) {
        memmove(to, to + by * row, (size_t)((S - by) * row));
        return;
    }
    for (int64_t s = 0; s < S - by; s++, to += row) {
        if (c->stride[3] == 1) memcpy(to, to + by * row, (size_t)(D * each));
        else
            for (int64_t d = 0; d < D; d++) memcpy(to + d * step, to + by * row + d * step, (size_t)each);
    }
}

tn_status tn_cache_shift_forward_cpu(const tn_call *c)
{
    job j = { .cache = &c->out[0], .shift = c->in[SHIFT].data };
    const tn_dims dims = c->out[0].dims;
    for (int64_t b = 0; b < dims.dim[0]; b++)
        if (j.shift[b] < 0 || j.shift[b] > dims.dim[1])
            return tn_error(TN_USAGE, "a cache of %lld rows cannot move by %lld", (long long)dims.dim[1],
                            (long long)j.shift[b]);
    tn_pool_run(c->pool, dims.dim[0] * dims.dim[2], tile, &j);
    return TN_OK;
}
