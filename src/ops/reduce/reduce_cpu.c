/* reduce on the CPU. Sums are tn_elem_sum_run over a space in which the result is repeated along the axis; their
 * gradient is the same space the other way. Maxima walk the results and look along the axis for each. */
#include "backend/cpu/level.h"
#include "ops/elem.h"
#include "ops/reduce/reduce_axis.h"

tn_kernel tn_reduce_forward_cpu, tn_reduce_backward_cpu;

static int64_t alive(const tn_arg *x, int axis)
{
    const int64_t n = x->dims.dim[axis];
    if (axis || !x->live || *x->live >= n) return n;
    return *x->live < 0 ? 0 : *x->live;
}

/* 1, or one over how many numbers a mean is of (0 for none). */
static double factor(const tn_reduce_attr *a, const tn_arg *x)
{
    const int64_t n = a->all ? tn_arg_count(x) : alive(x, tn_reduce_axis(a, x->dims.rank));
    return a->kind != TN_REDUCE_MEAN ? 1 : n ? 1 / (double)n : 0;
}

/* --- sums ------------------------------------------------------------------------------------------------------ */

static const float *load_piece(const void *job, const tn_elem *e, const int64_t *at, int64_t n, float *buf)
{
    (void)job;
    return tn_elem_load(e, 0, at, n, buf);
}

static void sum_forward(const tn_call *c, const tn_reduce_attr *a)
{
    const tn_arg *x = &c->in[0], y = tn_reduce_with_axis(&c->out[0], a, x);
    const tn_elem_sum s = { .target = 1, .factor = factor(a, x), .fn = load_piece, .work = c->work };
    tn_elem e;
    tn_elem_make(&e, x->dims, x->live, 2, (const tn_arg *[]){ x, &y });
    tn_elem_sum_run(&e, c->pool, &s);
}

typedef struct spread_job {
    float factor;
    bool add;
} spread_job;

static void spread_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const spread_job *j = arg;
    float in[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const float *dy = tn_elem_load(e, 0, at, n, in);
    float *dx = tn_elem_target(e, 1, at, j->add, out);
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * j->factor;
    tn_elem_store(e, 1, at, n, j->add, dx);
}

static void sum_backward(const tn_call *c, const tn_reduce_attr *a)
{
    const tn_arg *dx = &c->din[0], dy = tn_reduce_with_axis(&c->dout[0], a, dx);
    const spread_job j = { .factor = (float)factor(a, dx), .add = c->accumulate & 1 };
    tn_elem e;
    tn_elem_make(&e, dx->dims, dx->live, 2, (const tn_arg *[]){ &dy, dx });
    tn_elem_run(&e, c->pool, spread_piece, &j);
}

/* --- maxima ---------------------------------------------------------------------------------------------------- */

typedef struct max_job {
    int64_t n, step, dx_step; /* numbers along the axis, and from one to the next */
    bool add;
} max_job;

enum { X, Y, DX }; /* Y: the result, or its gradient */

/* Maxima and the position of the first of each, for n results. */
static void find_largest(const max_job *j, const tn_elem *e, const int64_t *at, int64_t n, float *best, int64_t *where)
{
    float buf[TN_ELEM_PIECE];
    for (int64_t i = 0; i < n; i++) best[i] = -INFINITY, where[i] = 0;
    for (int64_t k = 0; k < j->n; k++) {
        const int64_t here[1] = { at[X] + k * j->step };
        const float *x = tn_elem_load(e, X, here, n, buf);
        for (int64_t i = 0; i < n; i++) {
            const bool better = x[i] > best[i] || (x[i] != x[i] && best[i] == best[i]);
            best[i] = better ? x[i] : best[i];
            where[i] = better ? k : where[i];
        }
    }
}

static void max_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    float best[TN_ELEM_PIECE];
    int64_t where[TN_ELEM_PIECE];
    find_largest(arg, e, at, n, best, where);
    tn_elem_store(e, Y, at, n, false, best);
}

static void max_gradient_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const max_job *j = arg;
    float best[TN_ELEM_PIECE], seed[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    int64_t where[TN_ELEM_PIECE], here[TN_ELEM_ARGS];
    find_largest(j, e, at, n, best, where);
    const float *dy = tn_elem_load(e, Y, at, n, seed);
    for (int64_t k = 0; k < j->n; k++) {
        here[DX] = at[DX] + k * j->dx_step;
        for (int64_t i = 0; i < n; i++) out[i] = where[i] == k ? dy[i] : 0.0f;
        tn_elem_store(e, DX, here, n, j->add, out);
    }
}

/* One walk over the results: x (and dx) stand at the first number along the axis. */
static void max_walk(const tn_call *c, const tn_reduce_attr *a, const tn_arg *x, const tn_arg *y, const tn_arg *dx)
{
    const int axis = tn_reduce_axis(a, x->dims.rank);
    const tn_arg result = tn_reduce_with_axis(y, a, x);
    tn_arg first = *x, dfirst = dx ? *dx : *x;
    const max_job j = {
        .n = alive(x, axis), .step = x->stride[axis], .dx_step = dfirst.stride[axis], .add = dx && (c->accumulate & 1)
    };
    first.dims.dim[axis] = dfirst.dims.dim[axis] = 1;
    tn_elem e;
    tn_elem_make(&e, result.dims, axis ? x->live : NULL, 3, (const tn_arg *[]){ &first, &result, &dfirst });
    tn_elem_run(&e, c->pool, dx ? max_gradient_piece : max_piece, &j);
}

TN_LEVELED_KERNEL(tn_reduce_forward_cpu)
{
    const tn_reduce_attr *a = c->attr;
    if (a->kind == TN_REDUCE_MAX) max_walk(c, a, &c->in[0], &c->out[0], NULL);
    else sum_forward(c, a);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_reduce_backward_cpu)
{
    const tn_reduce_attr *a = c->attr;
    if (a->kind == TN_REDUCE_MAX) max_walk(c, a, &c->in[0], &c->dout[0], &c->din[0]);
    else sum_backward(c, a);
    return TN_OK;
}
