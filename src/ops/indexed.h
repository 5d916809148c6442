/* Helpers for CPU kernels that read and write rows by number (embed, gather_rows, scatter_rows). Sums of rows with the
 * same number go in the order of the list: work is cut by columns, so the bits do not depend on the threads, and only
 * rows that occur are touched. Indices are checked here, in the calling thread, before anything is written. */
#ifndef TN_OPS_INDEXED_H
#define TN_OPS_INDEXED_H

#include "base/status.h"
#include "ops/rows.h"

#include <string.h>

/* what: "token", "index"; remedy: what to do about it. */
static inline tn_status tn_index_check(const int32_t *index, int64_t n, int64_t rows, const char *what,
                                       const char *remedy)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= rows)
            return tn_error(TN_USAGE, "%s %d at position %lld is outside [0, %lld): %s", what, (int)index[i],
                            (long long)i, (long long)rows, remedy);
    return TN_OK;
}

/* Elements of one row of a (rows, ...) tensor. */
static inline int64_t tn_index_width(tn_dims d)
{
    int64_t n = 1;
    for (int i = 1; i < d.rank; i++) n *= d.dim[i];
    return n;
}

typedef struct tn_index_job {
    const int32_t *index; /* (n) */
    const float *from;
    float *to;
    int64_t n, rows, width, per_tile;
    bool add;
} tn_index_job;

/* to[i] = or += from[index[i]]; to (n,width), from (rows,width). Without `add` the bits move: integers do as well. */
static inline void tn_index_gather_tile(void *arg, int64_t tile)
{
    const tn_index_job *j = arg;
    const int64_t end = (tile + 1) * j->per_tile;
    for (int64_t i = tile * j->per_tile; i < (end < j->n ? end : j->n); i++) {
        const float *restrict x = j->from + j->index[i] * j->width;
        float *restrict y = j->to + i * j->width;
        if (!j->add) memcpy(y, x, sizeof *y * (size_t)j->width);
        for (int64_t c = 0; j->add && c < j->width; c++) y[c] += x[c];
    }
}

static inline void tn_index_gather(struct tn_pool *pool, tn_index_job j)
{
    j.per_tile = tn_tile_rows(j.width);
    if (j.n && j.width) tn_pool_run(pool, tn_tiles(j.n, j.per_tile), tn_index_gather_tile, &j);
}

/* to[index[i]] += from[i] in the order of i; to (rows,width), from (n,width). Unless `add`, the rest of to is zero. */
static inline void tn_index_scatter_tile(void *arg, int64_t tile)
{
    const tn_index_job *j = arg;
    const int64_t c0 = tile * j->per_tile, left = j->width - c0, columns = left < j->per_tile ? left : j->per_tile;
    for (int64_t r = 0; !j->add && r < j->rows; r++)
        memset(j->to + r * j->width + c0, 0, sizeof *j->to * (size_t)columns);
    for (int64_t i = 0; i < j->n; i++) {
        const float *restrict x = j->from + i * j->width + c0;
        float *restrict y = j->to + j->index[i] * j->width + c0;
        for (int64_t c = 0; c < columns; c++) y[c] += x[c];
    }
}

static inline void tn_index_scatter(struct tn_pool *pool, tn_index_job j)
{
    j.per_tile = 64;
    tn_pool_run(pool, tn_tiles(j.width, j.per_tile), tn_index_scatter_tile, &j);
}

/* Backward of an op that takes rows of input 1 by the numbers in input 0. */
static inline void tn_index_scatter_back(const tn_call *c)
{
    const tn_arg *d = &c->din[1];
    if (d->data)
        tn_index_scatter(c->pool, (tn_index_job){ .index = c->in[0].data,
                                                  .from = c->dout[0].data,
                                                  .to = d->data,
                                                  .n = c->dout[0].data ? tn_arg_count(&c->in[0]) : 0,
                                                  .rows = d->dims.dim[0],
                                                  .width = tn_index_width(d->dims),
                                                  .add = c->accumulate >> 1 & 1 });
}

#endif
