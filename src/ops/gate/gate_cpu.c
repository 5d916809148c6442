/* gate on the CPU: pieces of contiguous numbers; both gradients of an element come from one evaluation of act and act'.
 * y may be x, and dx may be dy when dz is not wanted: pointers are not restrict. */
#include "backend/cpu/level.h"
#include "ops/elem.h"
#include "ops/gate/gate.h"

tn_kernel tn_gate_forward_cpu, tn_gate_backward_cpu;

typedef float slope_fn(float v, float *slope);
typedef void value_fn(float *y, const float *x, const float *z, int64_t n);
typedef void grads_fn(float *dx, float *dz, const float *dy, const float *x, const float *z, int64_t n);

/* dx = dy act(z) unless dx is NULL, and dz = dy x act'(z), for one block. dx may be dy. */
TN_INLINE void grads_block(float *dx, float *dz, const float *dy, const float *x, const float *z, slope_fn *f)
{
    float value[TN_V_BLOCK], slope[TN_V_BLOCK];
    TN_UNROLL
    for (int k = 0; k < TN_V_BLOCK; k++) {
        float s;
        value[k] = dy[k] * f(z[k], &s);
        slope[k] = dy[k] * x[k] * s;
    }
    if (dx) memcpy(dx, value, sizeof value);
    memcpy(dz, slope, sizeof slope);
}

TN_INLINE void map_grads(float *dx, float *dz, const float *dy, const float *x, const float *z, int64_t n, slope_fn *f)
{
    int64_t i = 0;
    for (; i + TN_V_BLOCK <= n; i += TN_V_BLOCK) grads_block(dx ? dx + i : NULL, dz + i, dy + i, x + i, z + i, f);
    if (i == n) return;
    const size_t bytes = sizeof(float) * (size_t)(n - i);
    float last[3][TN_V_BLOCK] = { { 0 } };
    memcpy(last[0], dy + i, bytes);
    memcpy(last[1], x + i, bytes);
    memcpy(last[2], z + i, bytes);
    grads_block(dx ? last[0] : NULL, last[1], last[0], last[1], last[2], f);
    if (dx) memcpy(dx + i, last[0], bytes);
    memcpy(dz + i, last[1], bytes);
}

#define GATE(name)                                                                                                     \
    static void name##_value(float *y, const float *x, const float *z, int64_t n)                                      \
    {                                                                                                                  \
        tn_v_map_times(y, x, z, n, tn_v_##name);                                                                       \
    }                                                                                                                  \
    static void name##_grads(float *dx, float *dz, const float *dy, const float *x, const float *z, int64_t n)         \
    {                                                                                                                  \
        if (!dz) tn_v_map_times(dx, dy, z, n, tn_v_##name);                                                            \
        else if (dx) map_grads(dx, dz, dy, x, z, n, tn_v_##name##_slope);                                              \
        else map_grads(NULL, dz, dy, x, z, n, tn_v_##name##_slope);                                                    \
    }

GATE(silu)
GATE(sigmoid)
GATE(gelu)
#undef GATE

static const struct {
    value_fn *value;
    grads_fn *grads; /* dx or dz may be NULL */
} table[TN_GATE_KINDS] = {
    [TN_GATE_SILU] = { silu_value, silu_grads },
    [TN_GATE_SIGMOID] = { sigmoid_value, sigmoid_grads },
    [TN_GATE_GELU] = { gelu_value, gelu_grads },
};

enum { FX, FZ, FY };             /* arguments of the forward walk */
enum { DY, X, Z, DX, DZ, ARGS }; /* and of the backward walk */

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
    table[j->kind].grads(dx, dz, dy, x, z, n);
    if (dx) tn_elem_store(e, DX, at, n, j->add_x, dx);
    if (dz) tn_elem_store(e, DZ, at, n, j->add_z, dz);
}

TN_LEVELED_KERNEL(tn_gate_forward_cpu)
{
    const job j = { .kind = ((const tn_gate_attr *)c->attr)->kind };
    tn_elem e;
    tn_elem_make(&e, c->out[0].dims, c->out[0].live, 3, (const tn_arg *[]){ &c->in[0], &c->in[1], &c->out[0] });
    tn_elem_run(&e, c->pool, forward_piece, &j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_gate_backward_cpu)
{
    const tn_gate_kind kind = ((const tn_gate_attr *)c->attr)->kind;
    const job j = { .kind = kind, .add_x = c->accumulate & 1, .add_z = c->accumulate & 2 };
    const tn_arg *dy = &c->dout[0];
    tn_elem e;
    tn_elem_make(&e, dy->dims, dy->live, ARGS, (const tn_arg *[]){ dy, &c->in[0], &c->in[1], &c->din[0], &c->din[1] });
    tn_elem_run(&e, c->pool, backward_piece, &j);
    return TN_OK;
}
