/* take_samples on the CPU: tiles of rows. */
#include "ops/rows.h"
#include "ops/take_samples/take_samples.h"

#include <string.h>

tn_kernel tn_take_samples_forward_cpu;

typedef struct job {
    const int32_t *number; /* (n) */
    int64_t n, valid, samples, width, per_tile;
    const tn_arg *set, *y;
    tn_take_samples_attr a;
} job;

static void pad_row(const job *j, void *y)
{
    const bool whole = j->y->dtype == TN_I32;
    for (int64_t k = 0; k < j->width; k++)
        if (whole) ((int32_t *)y)[k] = (int32_t)j->a.pad;
        else ((float *)y)[k] = j->a.pad;
}

static void take_bytes(const job *j, float *restrict y, const uint8_t *restrict x)
{
    for (int64_t k = 0; k < j->width; k++) y[k] = (float)x[k] * j->a.scale;
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->n ? (t + 1) * j->per_tile : j->n;
    const size_t each = tn_dtype_bytes(j->set->dtype);
    for (int64_t i = t * j->per_tile; i < end; i++) {
        const int64_t r = j->number[i];
        float *y = (float *)j->y->data + i * j->width; /* of integers, too: they have as many bytes */
        if (i >= j->valid || r < 0 || r >= j->samples) {
            pad_row(j, y);
            continue;
        }
        const char *x = (const char *)j->set->data + (int64_t)each * r * j->width;
        if (j->set->dtype == TN_U8) take_bytes(j, y, (const uint8_t *)x);
        else memcpy(y, x, each * (size_t)j->width);
    }
}

tn_status tn_take_samples_forward_cpu(const tn_call *c)
{
    const tn_arg *set = &c->in[2], *y = &c->out[0];
    job j = { .number = c->in[0].data,
              .n = c->in[0].dims.dim[0],
              .valid = *(const int32_t *)c->in[1].data,
              .samples = set->dims.dim[0],
              .width = 1,
              .set = set,
              .y = y,
              .a = *(const tn_take_samples_attr *)c->attr };
    for (int i = 1; i < set->dims.rank; i++) j.width *= set->dims.dim[i];
    j.per_tile = tn_tile_rows(j.width);
    if (j.n && j.width) tn_pool_run(c->pool, tn_tiles(j.n, j.per_tile), tile, &j);
    return TN_OK;
}
