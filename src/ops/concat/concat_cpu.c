/* concat on the CPU: each input is copied to (or its gradient from) a part of the result, seen as a strided tensor. */
#include "ops/concat/concat.h"
#include "ops/elem.h"

tn_kernel tn_concat_forward_cpu, tn_concat_backward_cpu;

enum { FROM, TO };

static void copy_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    float buf[TN_ELEM_PIECE];
    tn_elem_store(e, TO, at, n, *(const bool *)arg, tn_elem_load(e, FROM, at, n, buf));
}

static void zero_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)arg, (void)index;
    static const float zeros[TN_ELEM_PIECE];
    tn_elem_store(e, TO, at, n, false, zeros);
}

/* The part of `whole` that belongs to a tensor shaped like x, `start` elements along the axis. */
static tn_arg part_of(const tn_arg *whole, const tn_arg *x, int axis, int64_t start)
{
    tn_arg p = *whole;
    p.dims = x->dims;
    p.data = (float *)whole->data + start * whole->stride[axis];
    return p;
}

/* Rows of x that are not alive, at the end of its part. */
static void zero_dead(const tn_call *c, const tn_arg *x, tn_arg part)
{
    const int64_t alive = *x->live < 0 ? 0 : *x->live;
    tn_elem e;
    if (alive >= x->dims.dim[0]) return;
    part.data = (float *)part.data + alive * part.stride[0];
    part.dims.dim[0] -= alive;
    tn_elem_make(&e, part.dims, NULL, 2, (const tn_arg *[]){ &part, &part });
    tn_elem_run(&e, c->pool, zero_piece, NULL);
}

static int axis_of(const tn_call *c)
{
    const int axis = ((const tn_concat_attr *)c->attr)->axis;
    return axis < 0 ? axis + c->in[0].dims.rank : axis;
}

tn_status tn_concat_forward_cpu(const tn_call *c)
{
    const int axis = axis_of(c);
    const bool add = false;
    int64_t start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const tn_arg *x = &c->in[i], part = part_of(&c->out[0], x, axis, start);
        tn_elem e;
        tn_elem_make(&e, x->dims, axis ? c->out[0].live : x->live, 2, (const tn_arg *[]){ x, &part });
        tn_elem_run(&e, c->pool, copy_piece, &add);
        if (!axis && x->live) zero_dead(c, x, part);
        start += x->dims.dim[axis];
    }
    return TN_OK;
}

tn_status tn_concat_backward_cpu(const tn_call *c)
{
    const int axis = axis_of(c);
    int64_t start = 0;
    for (int i = 0; i < c->n_in; i++) {
        const tn_arg *dx = &c->din[i];
        const int64_t width = c->in[i].dims.dim[axis];
        if (dx->data) {
            const tn_arg part = part_of(&c->dout[0], dx, axis, start);
            const bool add = c->accumulate >> i & 1;
            tn_elem e;
            tn_elem_make(&e, dx->dims, axis ? c->dout[0].live : dx->live, 2, (const tn_arg *[]){ &part, dx });
            tn_elem_run(&e, c->pool, copy_piece, &add);
        }
        start += width;
    }
    return TN_OK;
}
