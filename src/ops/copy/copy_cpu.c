/* copy on the CPU: rows of any strides, any pair of float types, overwriting or adding. */
#include "base/status.h"
#include "ops/copy/copy.h"
#include "ops/rows.h"

#include <string.h>

tn_kernel tn_copy_forward_cpu, tn_copy_backward_cpu;

typedef struct job {
    const tn_arg *to, *from;
    bool add;
    int64_t rows, length, per_tile;
} job;

static inline float load(const tn_arg *a, int64_t i)
{
    switch (a->dtype) {
    case TN_BF16: return tn_bf16_to_f32(((const uint16_t *)a->data)[i]);
    case TN_F16: return tn_f16_to_f32(((const uint16_t *)a->data)[i]);
    case TN_F64: return (float)((const double *)a->data)[i];
    case TN_I32: return (float)((const int32_t *)a->data)[i];
    default: return ((const float *)a->data)[i];
    }
}

static inline void store(const tn_arg *a, int64_t i, float x, bool add)
{
    if (add) x += load(a, i);
    switch (a->dtype) {
    case TN_BF16: ((uint16_t *)a->data)[i] = tn_f32_to_bf16(x); break;
    case TN_F16: ((uint16_t *)a->data)[i] = tn_f32_to_f16(x); break;
    case TN_F64: ((double *)a->data)[i] = (double)x; break;
    default: ((float *)a->data)[i] = x; break;
    }
}

/* Integers and equal types: bytes move, nothing is computed. */
static void move_row(const job *j, int64_t to, int64_t from)
{
    const size_t b = tn_dtype_bytes(j->to->dtype);
    const int64_t st = tn_row_step(j->to), sf = tn_row_step(j->from);
    char *q = (char *)j->to->data + to * (int64_t)b;
    const char *p = (const char *)j->from->data + from * (int64_t)b;
    if (st == 1 && sf == 1) {
        memmove(q, p, (size_t)j->length * b);
        return;
    }
    for (int64_t i = 0; i < j->length; i++) memcpy(q + i * st * (int64_t)b, p + i * sf * (int64_t)b, b);
}

static void add_row_f32(const job *j, int64_t to, int64_t from)
{
    float *y = (float *)j->to->data + to;
    const float *x = (const float *)j->from->data + from;
    const int64_t st = tn_row_step(j->to), sf = tn_row_step(j->from);
    if (st == 1 && sf == 1)
        for (int64_t i = 0; i < j->length; i++) y[i] += x[i];
    else
        for (int64_t i = 0; i < j->length; i++) y[i * st] += x[i * sf];
}

static void cast_row(const job *j, int64_t to, int64_t from)
{
    const int64_t st = tn_row_step(j->to), sf = tn_row_step(j->from);
    for (int64_t i = 0; i < j->length; i++) store(j->to, to + i * st, load(j->from, from + i * sf), j->add);
}

static void tile(void *arg, int64_t t)
{
    const job *j = arg;
    const int64_t end = (t + 1) * j->per_tile < j->rows ? (t + 1) * j->per_tile : j->rows;
    const bool same = j->to->dtype == j->from->dtype;
    for (int64_t r = t * j->per_tile; r < end; r++) {
        const int64_t to = tn_row_offset(j->to, r), from = tn_row_offset(j->from, r);
        if (same && !j->add) move_row(j, to, from);
        else if (same && j->to->dtype == TN_F32) add_row_f32(j, to, from);
        else cast_row(j, to, from);
    }
}

static tn_status copy(const tn_call *c, const tn_arg *to, const tn_arg *from, bool add)
{
    job j = { .to = to, .from = from, .add = add, .rows = tn_live_rows(from), .length = tn_live_length(from) };
    j.per_tile = tn_tile_rows(j.length);
    if (j.rows && j.length) tn_pool_run(c->pool, tn_tiles(j.rows, j.per_tile), tile, &j);
    return TN_OK;
}

tn_status tn_copy_forward_cpu(const tn_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        TN_RETURN_IF(copy(c, &c->out[i], &c->in[i], ((const tn_copy_attr *)c->attr)->accumulate));
    return TN_OK;
}

tn_status tn_copy_backward_cpu(const tn_call *c) { return copy(c, &c->din[0], &c->dout[0], c->accumulate & 1); }
