/* Shared by recurrences whose state is a matrix for each head (outer, delta): checks of their inputs, and on the CPU one head of one
 * sequence as matrices over time, read and written where they lie.
 *
 *     tn_strided q = tn_strided_head(&c->in[0], b, h, false);       (T,N) of a (B,T,H,N)
 *     tn_strided_load(q, t, N, row) */
#ifndef TN_OPS_MATRIX_STATE_H
#define TN_OPS_MATRIX_STATE_H

#include "backend/cpu/gemm.h"

#include <tenon/op.h>

/* Whether input `name` has the shape `want` = dims; whether reset, where it is given, has numbers of tokens (B,T). */
tn_status tn_state_check(const tn_type *t, const char *name, const char *want, tn_dims dims);
tn_status tn_state_check_reset(const tn_type *reset, tn_dims dims);

/* A matrix with any strides: element (i,j) is data[i * row + j * col]. */
typedef struct tn_strided {
    float *data; /* NULL: absent or not wanted */
    int64_t row, col;
    bool add; /* gradients: add to what is there */
} tn_strided;

static inline float tn_strided_at(tn_strided a, int64_t i, int64_t j) { return a.data[i * a.row + j * a.col]; }

/* Row i to and from n contiguous numbers; no data reads as zeros. */
static inline void tn_strided_load(tn_strided a, int64_t i, int64_t n, float *restrict x)
{
    if (!a.data)
        for (int64_t j = 0; j < n; j++) x[j] = 0;
    else if (a.col == 1)
        for (int64_t j = 0; j < n; j++) x[j] = a.data[i * a.row + j];
    else
        for (int64_t j = 0; j < n; j++) x[j] = tn_strided_at(a, i, j);
}

static inline void tn_strided_store(tn_strided a, int64_t i, int64_t n, const float *restrict x)
{
    float *to = a.data + i * a.row;
    if (a.col == 1 && a.add)
        for (int64_t j = 0; j < n; j++) to[j] += x[j];
    else if (a.col == 1)
        for (int64_t j = 0; j < n; j++) to[j] = x[j];
    else
        for (int64_t j = 0; j < n; j++) to[j * a.col] = a.add ? to[j * a.col] + x[j] : x[j];
}

/* The first rows, to and from (rows,n); nothing is stored where there is no data. */
static inline void tn_strided_load_rows(tn_strided a, int64_t rows, int64_t n, float *x)
{
    for (int64_t i = 0; i < rows; i++) tn_strided_load(a, i, n, x + i * n);
}

static inline void tn_strided_store_rows(tn_strided a, int64_t rows, int64_t n, const float *x)
{
    for (int64_t i = 0; a.data && i < rows; i++) tn_strided_store(a, i, n, x + i * n);
}

static inline tn_strided tn_strided_dense(const float *data, int64_t columns)
{
    return (tn_strided){ (float *)(uintptr_t)data, columns, 1, false };
}

static inline tn_strided tn_strided_flipped(tn_strided a) { return (tn_strided){ a.data, a.col, a.row, false }; }

/* Head h of sequence b of a (B,T,H,n) or (B,T,H) tensor as a matrix over time. */
static inline tn_strided tn_strided_head(const tn_arg *a, int64_t b, int64_t h, bool add)
{
    if (!a->data) return (tn_strided){ 0 };
    return (tn_strided){ (float *)a->data + b * a->stride[0] + h * a->stride[2], a->stride[1],
                         a->dims.rank == 4 ? a->stride[3] : 1, add };
}

/* The (N,P) matrix of head h of sequence b of a (B,H,N,P) tensor. */
static inline tn_strided tn_strided_state(const tn_arg *a, int64_t b, int64_t h, bool add)
{
    if (!a->data) return (tn_strided){ 0 };
    return (tn_strided){ (float *)a->data + b * a->stride[0] + h * a->stride[1], a->stride[2], a->stride[3], add };
}

/* Whether a document starts at token t of sequence b; reset (B,T) i32 or absent. */
static inline bool tn_state_is_reset(const tn_arg *reset, int64_t b, int64_t t)
{
    return reset->data && ((const int32_t *)reset->data)[b * reset->stride[0] + t * reset->stride[1]];
}

/* How products are made: the first three as in tn_call. */
typedef struct tn_strided_products {
    tn_dtype round;
    bool bf16x3, portable;
    void *work; /* tn_strided_work bytes */
} tn_strided_products;

/* c (m,n), rows n apart, = or += a (m,k) b (k,n), of which only `part` is wanted or not zero. */
void tn_strided_multiply(const tn_strided_products *how, int64_t m, int64_t n, int64_t k, tn_strided a, tn_strided b,
                         float *c, bool add, tn_gemm_part part);
/* Enough for products whose c is at most one of these (m,n). */
size_t tn_strided_work(const int64_t (*most)[2], int n);

#endif
