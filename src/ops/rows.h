/* Helpers for CPU kernels: tensors as rows of the last axis, tiles over the thread pool. Tiles have a fixed size, so
 * results never depend on the number of threads. */
#ifndef TN_OPS_ROWS_H
#define TN_OPS_ROWS_H

#include "backend/cpu/pool.h"

#include <tenon/op.h>

/* Offset in elements of row r (all axes but the last, row-major) of a strided tensor. */
static inline int64_t tn_row_offset(const tn_arg *a, int64_t r)
{
    int64_t off = 0;
    for (int i = a->dims.rank - 2; i >= 0; i--) {
        const int64_t d = a->dims.dim[i];
        off += (r % d) * a->stride[i];
        r /= d;
    }
    return off;
}

/* Length of a row, and the step between its elements. A scalar is one row of one. */
static inline int64_t tn_row_length(const tn_arg *a) { return a->dims.rank ? a->dims.dim[a->dims.rank - 1] : 1; }

static inline int64_t tn_row_step(const tn_arg *a) { return a->dims.rank ? a->stride[a->dims.rank - 1] : 1; }

/* Rows alive of a tensor seen as rows of the last axis; the row length of a vector is cut instead. */
static inline int64_t tn_live_rows(const tn_arg *a) { return a->dims.rank < 2 ? 1 : tn_arg_rows(a); }

static inline int64_t tn_live_length(const tn_arg *a) { return a->dims.rank == 1 ? tn_arg_count(a) : tn_row_length(a); }

/* Rows per tile so that a tile has about 16384 elements. */
static inline int64_t tn_tile_rows(int64_t length)
{
    const int64_t n = length > 0 ? 16384 / length : 16384;
    return n < 1 ? 1 : n;
}

static inline int64_t tn_tiles(int64_t rows, int64_t per_tile) { return (rows + per_tile - 1) / per_tile; }

#endif
