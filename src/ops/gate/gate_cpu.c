/* gate on the CPU: pieces of contiguous numbers; both gradients of an element come from one evaluation of act and act'.
 * y may be x, and dx may be dy when dz is not wanted: pointers are not restrict. */
#include "ops/elem.h"
#include "ops/gate/gate.h"

tn_kernel tn_gate_forward_cpu, tn_gate_backward_cpu;

typedef void value_fn(float *y, const float *x, const float *z, int64_t n);
typedef void single_fn(float *d, const float *dy, const float *x, const float *z, int64_t n);
typedef void both_fn(float *dx, float *dz, const float *dy, const float *x, const float *z, int64_t n);

/* act(v), and act'(v) with it. */
TN_INLINE float silu_both(float v, float *slope)
{
    float t;
    const float low = tn_v_at_least(v, -87.0f), c = tn_v_at_most(low, 87.0f), s = tn_v_sigmoid_pair(c, &t);
    *slope = s + s * t * c;
    return low * s;
}

TN_INLINE float sigmoid_both(float v, float *slope)
{
    float t;
    const float s = tn_v_sigmoid_pair(v, &t);
    *slope = s * t;
    return s;
}

TN_INLINE float gelu_both(float v, float *slope)
{
    *slope = tn_v_gelu_grad(v);
    return tn_v_gelu(v);
}

#define GATE(name, act)                                                                                                \
    static void name##_value(float *y, const float *x, const float *z, int64_t n)                                     \
    {                                                                                                                  \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * act(z[i]);                                                       \
    }                                                                                                                  \
    static void name##_dx(float *dx, const float *dy, const float *x, const float *z, int64_t n)                      \
    {                                                                                                                  \
        (void)x;                                                                                                       \
        name##_value(dx, dy, z, n);                                                                                    \
    }                                                                                                                  \
    static void name##_dz(float *dz, const float *dy, const float *x, const float *z, int64_t n)                      \
    {                                                                                                                  \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float slope;                                                                                               \
            (void)name##_both(z[i], &slope);                                                                           \
            dz[i] = dy[i] * x[i] * slope;                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_grads(float *dx, float *dz, const float *dy, const float *x, const float *z, int64_t n)        \
    {                                                                                                                  \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float slope;                                                                                               \
            const float value = name##_both(z[i], &slope);                                                             \
            dz[i] = dy[i] * x[i] * slope;                                                                              \
            dx[i] = dy[i] * value;                                                                                     \
        }                                                                                                              \
    }

GATE(silu, tn_v_silu)
GATE(sigmoid, tn_v_sigmoid)
GATE(gelu, tn_v_gelu)
#undef GATE

static const struct {
    value_fn *value;
    single_fn *dx, *dz;
    both_fn *grads;
} table[TN_GATE_KINDS] = {
    [TN_GATE_SILU] = { silu_value, silu_dx, silu_dz, silu_grads },
    [TN_GATE_SIGMOID] = { sigmoid_value, sigmoid_dx, sigmoid_dz, sigmoid_grads },
    [TN_GATE_GELU] = { gelu_value, gelu_dx, gelu_dz, gelu_grads },
};

enum { FX, FZ, FY };              /* arguments of the forward walk */
enum { DY, X, Z, DX, DZ, ARGS };  /* and of the backward walk */

typedef struct job {
    tn_gate_kind kind;
    bool add_x, add_z;
} job;

static void forward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const job *j = arg;
    float first[TN_ELEM_PIECE], second[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const float *x = tn_elem_load(e, FX, at, n, first), *z = tn_elem_load(e, FZ, at, n, second);
    float *y = tn_elem_target(e, FY, at, false, out);
    table[j->kind].value(y, x, z, n);
    tn_elem_store(e, FY, at, n, false, y);
}

static void backward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const job *j = arg;
    float seed[TN_ELEM_PIECE], first[TN_ELEM_PIECE], second[TN_ELEM_PIECE], out[2][TN_ELEM_PIECE];
    const float *dy = tn_elem_load(e, DY, at, n, seed), *z = tn_elem_load(e, Z, at, n, second);
    const float *x = e->data[X] ? tn_elem_load(e, X, at, n, first) : NULL;
    float *dx = e->data[DX] ? tn_elem_target(e, DX, at, j->add_x, out[0]) : NULL;
    float *dz = e->data[DZ] ? tn_elem_target(e, DZ, at, j->add_z, out[1]) : NULL;
    if (dx && dz) table[j->kind].grads(dx, dz, dy, x, z, n);
    else if (dx) table[j->kind].dx(dx, dy, x, z, n);
    else table[j->kind].dz(dz, dy, x, z, n);
    if (dx) tn_elem_store(e, DX, at, n, j->add_x, dx);
    if (dz) tn_elem_store(e, DZ, at, n, j->add_z, dz);
}

tn_status tn_gate_forward_cpu(const tn_call *c)
{
    const job j = { .kind = ((const tn_gate_attr *)c->attr)->kind };
    tn_elem e;
    tn_elem_make(&e, c->out[0].dims, c->out[0].live, 3, (const tn_arg *[]){ &c->in[0], &c->in[1], &c->out[0] });
    tn_elem_run(&e, c->pool, forward_piece, &j);
    return TN_OK;
}

tn_status tn_gate_backward_cpu(const tn_call *c)
{
    const tn_gate_kind kind = ((const tn_gate_attr *)c->attr)->kind;
    const job j = { .kind = kind, .add_x = c->accumulate & 1, .add_z = c->accumulate & 2 };
    const tn_arg *dy = &c->dout[0];
    tn_elem e;
    tn_elem_make(&e, dy->dims, dy->live, ARGS,
                 (const tn_arg *[]){ dy, &c->in[0], &c->in[1], &c->din[0], &c->din[1] });
    tn_elem_run(&e, c->pool, backward_piece, &j);
    return TN_OK;
}
