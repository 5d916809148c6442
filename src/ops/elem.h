/* Walking several strided tensors of one shape at once: the loop under every elementwise op.
 *
 * A space is a shape with up to TN_ELEM_ARGS tensors broadcast to it as numpy does (axes aligned at the end, size 1
 * repeats). Axes that lie behind one another in every tensor are merged, so that contiguous tensors become one long
 * row. Kernels get pieces of at most TN_ELEM_PIECE elements of a row; tiles have a fixed size, so results never depend
 * on the number of threads. Everything is f32. */
#ifndef TN_OPS_ELEM_H
#define TN_OPS_ELEM_H

#include "backend/cpu/vmath.h"

#include <string.h>
#include <tenon/op.h>

enum {
    TN_ELEM_ARGS = 5,
    TN_ELEM_PIECE = 512,
    TN_ELEM_TASKS = 64, /* a sum is split into at most so many tasks when it has few results */
    TN_ELEM_SUM_WORK = TN_ELEM_TASKS * TN_ELEM_PIECE * 8
};

typedef struct tn_elem {
    int n, rank;                               /* rank >= 1 */
    int64_t dim[TN_MAX_RANK];                  /* merged; axis 0 cut to what is alive */
    int64_t stride[TN_ELEM_ARGS][TN_MAX_RANK]; /* elements; 0 along broadcast axes */
    float *data[TN_ELEM_ARGS];
} tn_elem;

/* dims is the shape to walk, its axis 0 cut to *live (NULL: all). Arguments without data are never touched. */
void tn_elem_make(tn_elem *e, tn_dims dims, const int32_t *live, int n, const tn_arg *const *args);

/* One piece: n <= TN_ELEM_PIECE elements of a row. at[k]: offset of its first element in argument k; index: the same in
 * row-major order of the whole shape. */
typedef void tn_elem_fn(const void *job, const tn_elem *e, const int64_t *at, int64_t n, int64_t index);
void tn_elem_run(const tn_elem *e, struct tn_pool *pool, tn_elem_fn *fn, const void *job);

/* Argument `target` (=, or += when add) factor * the sum of fn's numbers over the axes along which it is broadcast, in
 * double and in a fixed order; 0 where there is nothing to sum. fn returns n numbers, in buf if they have to be made.
 * work: TN_ELEM_SUM_WORK bytes. */
typedef const float *tn_elem_sum_fn(const void *job, const tn_elem *e, const int64_t *at, int64_t n, float *buf);
typedef struct tn_elem_sum {
    int target;
    bool add;
    double factor;
    tn_elem_sum_fn *fn;
    const void *job;
    void *work;
} tn_elem_sum;
void tn_elem_sum_run(const tn_elem *e, struct tn_pool *pool, const tn_elem_sum *s);

static inline int64_t tn_elem_step(const tn_elem *e, int k) { return e->stride[k][e->rank - 1]; }

/* n numbers of argument k: where they lie if they are contiguous, else gathered into buf. */
static inline const float *tn_elem_load(const tn_elem *e, int k, const int64_t *at, int64_t n, float *buf)
{
    const int64_t step = tn_elem_step(e, k);
    const float *p = e->data[k] + at[k];
    if (step == 1) return p;
    for (int64_t i = 0; i < n; i++) buf[i] = p[i * step];
    return buf;
}

/* Where to compute n numbers of argument k; tn_elem_store brings them home from there. */
static inline float *tn_elem_target(const tn_elem *e, int k, const int64_t *at, bool add, float *buf)
{
    return tn_elem_step(e, k) == 1 && !add ? e->data[k] + at[k] : buf;
}

static inline void tn_elem_store(const tn_elem *e, int k, const int64_t *at, int64_t n, bool add, const float *from)
{
    const int64_t step = tn_elem_step(e, k);
    float *p = e->data[k] + at[k];
    if (p == from) return;
    if (step == 1 && add)
        for (int64_t i = 0; i < n; i++) p[i] += from[i];
    else if (step == 1) memcpy(p, from, sizeof *p * (size_t)n);
    else
        for (int64_t i = 0; i < n; i++) p[i * step] = add ? p[i * step] + from[i] : from[i];
}

/* Type of a result: f32 when every float input is f32 (parameters, losses), else the type of activations, which infer
 * finds in out[0].dtype. */
static inline tn_dtype tn_elem_dtype(const tn_sig *s)
{
    for (int i = 0; i < s->n_in; i++)
        if (!s->in[i].absent && tn_dtype_is_float(s->in[i].dtype) && s->in[i].dtype != TN_F32) return s->out[0].dtype;
    return TN_F32;
}

#endif
