/* binary on the CPU: one loop per function and per gradient, over pieces of contiguous numbers (a repeated scalar is
 * spread into a piece first). Gradients of repeated inputs go through tn_elem_sum_run.
 *
 * y may be a, and da may be dy: pointers are not restrict, TN_VECTOR says that iterations are independent. */
#include "backend/cpu/level.h"
#include "ops/binary/binary.h"
#include "ops/elem.h"

tn_kernel tn_binary_forward_cpu, tn_binary_backward_cpu;

typedef void value_fn(float *y, const float *p, const float *q, int64_t n);
typedef void slope_fn(float *d, const float *dy, const float *p, const float *q, int64_t n);

#define VALUE(name, expression)                                                                                        \
    static void name(float *y, const float *p, const float *q, int64_t n)                                              \
    {                                                                                                                  \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = p[i], b = q[i];                                                                            \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }

VALUE(add, a + b)
VALUE(sub, a - b)
VALUE(mul, a *b)
VALUE(quotient, a / b)
VALUE(maximum, a > b || a != a ? a : b) /* NaN on either side passes */
VALUE(minimum, a < b || a != a ? a : b)
VALUE(rsub, b - a)
VALUE(rquotient, b / a)
#undef VALUE

/* d = dy times the slope by a or by b; only what `declare` reads need be there. */
#define SLOPE(name, declare, expression)                                                                               \
    static void name(float *d, const float *dy, const float *p, const float *q, int64_t n)                             \
    {                                                                                                                  \
        (void)p, (void)q;                                                                                              \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            declare;                                                                                                   \
            d[i] = (expression);                                                                                       \
        }                                                                                                              \
    }
#define READ_A const float a = p[i]
#define READ_B const float b = q[i]

SLOPE(pass, (void)0, dy[i])
SLOPE(negate, (void)0, -dy[i])
SLOPE(times_a, READ_A, dy[i] * a)
SLOPE(times_b, READ_B, dy[i] * b)
SLOPE(over_a, READ_A, dy[i] / a)
SLOPE(over_b, READ_B, dy[i] / b)
SLOPE(quotient_b, READ_A; READ_B, -dy[i] * (a / b) / b)
SLOPE(quotient_a, READ_A; READ_B, -dy[i] * (b / a) / a)
SLOPE(above, READ_A; READ_B, a > b ? dy[i] : a == b ? 0.5f * dy[i] : 0.0f)
SLOPE(below, READ_A; READ_B, a < b ? dy[i] : a == b ? 0.5f * dy[i] : 0.0f)
#undef SLOPE
#undef READ_A
#undef READ_B

static const struct {
    value_fn *value;
    slope_fn *slope[2]; /* by in[0], by in[1] */
} table[TN_BINARY_KINDS] = {
    [TN_BINARY_ADD] = { add, { pass, pass } },           [TN_BINARY_SUB] = { sub, { pass, negate } },
    [TN_BINARY_MUL] = { mul, { times_b, times_a } },     [TN_BINARY_DIV] = { quotient, { over_b, quotient_b } },
    [TN_BINARY_MAXIMUM] = { maximum, { above, below } }, [TN_BINARY_MINIMUM] = { minimum, { below, above } },
    [TN_BINARY_RSUB] = { rsub, { negate, pass } },       [TN_BINARY_RDIV] = { rquotient, { quotient_a, over_a } },
};

enum { FA, FB, FY };        /* arguments of the forward walk */
enum { DY, A, B, D, ARGS }; /* and of the backward walk: D is the gradient being made */

typedef struct job {
    slope_fn *slope;
    bool add;
} job;

static void forward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    float first[TN_ELEM_PIECE], second[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const float *a = tn_elem_load(e, FA, at, n, first), *b = tn_elem_load(e, FB, at, n, second);
    float *y = tn_elem_target(e, FY, at, false, out);
    (*(value_fn *const *)arg)(y, a, b, n);
    tn_elem_store(e, FY, at, n, false, y);
}

TN_LEVELED_KERNEL(tn_binary_forward_cpu)
{
    value_fn *const value = table[((const tn_binary_attr *)c->attr)->kind].value;
    tn_elem e;
    tn_elem_make(&e, c->out[0].dims, c->out[0].live, 3, (const tn_arg *[]){ &c->in[0], &c->in[1], &c->out[0] });
    tn_elem_run(&e, c->pool, forward_piece, &value);
    return TN_OK;
}

/* Applies the slope to a piece, writing at d. */
static void slope_piece(const job *j, const tn_elem *e, const int64_t *at, int64_t n, float *d)
{
    float seed[TN_ELEM_PIECE], first[TN_ELEM_PIECE], second[TN_ELEM_PIECE];
    const float *dy = tn_elem_load(e, DY, at, n, seed);
    const float *a = e->data[A] ? tn_elem_load(e, A, at, n, first) : NULL;
    const float *b = e->data[B] ? tn_elem_load(e, B, at, n, second) : NULL;
    j->slope(d, dy, a, b, n);
}

static void backward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const job *j = arg;
    float out[TN_ELEM_PIECE];
    float *d = tn_elem_target(e, D, at, j->add, out);
    slope_piece(j, e, at, n, d);
    tn_elem_store(e, D, at, n, j->add, d);
}

static const float *sum_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, float *buf)
{
    const job *j = arg;
    if (j->slope == pass) return tn_elem_load(e, DY, at, n, buf);
    slope_piece(j, e, at, n, buf);
    return buf;
}

/* The gradient is dy, in its memory: nothing to do. */
static bool in_place(const job *j, const tn_arg *d, const tn_arg *dy)
{
    return j->slope == pass && !j->add && d->data == dy->data && d->dtype == dy->dtype && tn_arg_contiguous(d) &&
           tn_arg_contiguous(dy);
}

TN_LEVELED_KERNEL(tn_binary_backward_cpu)
{
    const tn_binary_kind kind = ((const tn_binary_attr *)c->attr)->kind;
    const tn_arg *dy = &c->dout[0];
    for (int i = 0; i < 2; i++) {
        if (!c->din[i].data) continue;
        const job j = { .slope = table[kind].slope[i], .add = c->accumulate >> i & 1 };
        if (in_place(&j, &c->din[i], dy)) continue;
        tn_elem e;
        tn_elem_make(&e, dy->dims, dy->live, ARGS, (const tn_arg *[]){ dy, &c->in[0], &c->in[1], &c->din[i] });
        if (tn_dims_count(c->din[i].dims) == tn_dims_count(dy->dims)) {
            tn_elem_run(&e, c->pool, backward_piece, &j);
            continue;
        }
        const tn_elem_sum s = { .target = D, .add = j.add, .factor = 1, .fn = sum_piece, .job = &j, .work = c->work };
        tn_elem_sum_run(&e, c->pool, &s);
    }
    return TN_OK;
}
