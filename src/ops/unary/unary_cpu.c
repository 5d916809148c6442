/* unary on the CPU: one value loop and one slope loop per function, over pieces of contiguous numbers.
 *
 * Loops may run in place (y = x, or dx = dy), so pointers are not restrict; TN_VECTOR says that iterations are
 * independent. The slope loop's s is what unary.c says the backward pass reads: x, y or nothing (then NULL). */
#include "backend/cpu/level.h"
#include "ops/elem.h"
#include "ops/unary/unary.h"

tn_kernel tn_unary_forward_cpu, tn_unary_backward_cpu;

typedef void value_fn(float *y, const float *x, int64_t n, float a, float b);
typedef void slope_fn(float *dx, const float *dy, const float *s, int64_t n, float a, float b);

/* Long functions go block by block, short ones as one loop: f(x), value in terms of x and a, slope of s and a. */
#define VALUE_BY(name, f)                                                                                              \
    static void name##_value(float *y, const float *x, int64_t n, float a, float b)                                    \
    {                                                                                                                  \
        (void)a, (void)b;                                                                                              \
        tn_v_map(y, x, n, f);                                                                                          \
    }
#define SLOPE_BY(name, f)                                                                                              \
    static void name##_slope(float *dx, const float *dy, const float *s, int64_t n, float a, float b)                  \
    {                                                                                                                  \
        (void)a, (void)b;                                                                                              \
        tn_v_map_times(dx, dy, s, n, f);                                                                               \
    }
#define VALUE(name, value)                                                                                             \
    static void name##_value(float *y, const float *from, int64_t n, float a, float b)                                 \
    {                                                                                                                  \
        (void)a, (void)b;                                                                                              \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float x = from[i];                                                                                   \
            y[i] = (value);                                                                                            \
        }                                                                                                              \
    }
#define SLOPE(name, slope)                                                                                             \
    static void name##_slope(float *dx, const float *dy, const float *from, int64_t n, float a, float b)               \
    {                                                                                                                  \
        (void)a, (void)b;                                                                                              \
        TN_VECTOR                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float s = from[i];                                                                                   \
            dx[i] = dy[i] * (slope);                                                                                   \
        }                                                                                                              \
    }
#define FUNCTION(name, value, slope) VALUE(name, value) SLOPE(name, slope)

/* Beyond TN_V_TURN_MOST the C library reduces the argument; NaN counts as near. */
static bool all_near(const float *x, int64_t n)
{
    int far = 0;
    for (int64_t i = 0; i < n; i++) far |= fabsf(x[i]) > (float)TN_V_TURN_MOST;
    return !far;
}

TN_INLINE float minus_sin(float x) { return -tn_v_sin(x); }

static void sin_value(float *y, const float *x, int64_t n, float a, float b)
{
    (void)a, (void)b;
    if (all_near(x, n)) tn_v_map(y, x, n, tn_v_sin);
    else
        for (int64_t i = 0; i < n; i++) y[i] = sinf(x[i]);
}

static void cos_value(float *y, const float *x, int64_t n, float a, float b)
{
    (void)a, (void)b;
    if (all_near(x, n)) tn_v_map(y, x, n, tn_v_cos);
    else
        for (int64_t i = 0; i < n; i++) y[i] = cosf(x[i]);
}

static void sin_slope(float *dx, const float *dy, const float *s, int64_t n, float a, float b)
{
    (void)a, (void)b;
    if (all_near(s, n)) tn_v_map_times(dx, dy, s, n, tn_v_cos);
    else
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * cosf(s[i]);
}

static void cos_slope(float *dx, const float *dy, const float *s, int64_t n, float a, float b)
{
    (void)a, (void)b;
    if (all_near(s, n)) tn_v_map_times(dx, dy, s, n, minus_sin);
    else
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * -sinf(s[i]);
}

VALUE_BY(gelu, tn_v_gelu)
SLOPE_BY(gelu, tn_v_gelu_grad)
VALUE_BY(gelu_erf, tn_v_gelu_erf)
SLOPE_BY(gelu_erf, tn_v_gelu_erf_grad)
VALUE_BY(silu, tn_v_silu)
SLOPE_BY(silu, tn_v_silu_grad)
VALUE_BY(tanh, tn_v_tanh)
SLOPE(tanh, (1.0f - s) * (1.0f + s))
VALUE_BY(sigmoid, tn_v_sigmoid)
SLOPE(sigmoid, s *(1.0f - s))
VALUE_BY(exp, tn_v_exp)
SLOPE(exp, s)
VALUE_BY(expm1, tn_v_expm1)
SLOPE(expm1, s + 1.0f)
VALUE_BY(log, tn_v_log)
SLOPE(log, 1.0f / s)
VALUE_BY(softplus, tn_v_softplus)
SLOPE_BY(softplus, tn_v_sigmoid)
VALUE_BY(logcosh, tn_v_logcosh)
SLOPE_BY(logcosh, tn_v_tanh)
FUNCTION(relu, x<0.0f ? 0.0f : x, s> 0.0f ? 1.0f : s * 0.0f)
FUNCTION(sqrt, sqrtf(x), 0.5f / s)
FUNCTION(square, x *x, 2.0f * s)
FUNCTION(abs, fabsf(x), s > 0.0f ? 1.0f : s < 0.0f ? -1.0f : s * 0.0f)
FUNCTION(reciprocal, 1.0f / x, -s *s)
FUNCTION(clamp_min, x<a ? a : x, s> a ? 1.0f : s <= a ? 0.0f : s)

static void affine_value(float *y, const float *x, int64_t n, float a, float b)
{
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b;
}

static void scale_value(float *y, const float *x, int64_t n, float a, float b)
{
    (void)b;
    TN_VECTOR
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}

static void scale_slope(float *dx, const float *dy, const float *s, int64_t n, float a, float b)
{
    (void)s;
    scale_value(dx, dy, n, a, b);
}

static const struct {
    value_fn *value;
    slope_fn *slope;
} table[TN_UNARY_KINDS] = {
    [TN_UNARY_GELU] = { gelu_value, gelu_slope },
    [TN_UNARY_GELU_ERF] = { gelu_erf_value, gelu_erf_slope },
    [TN_UNARY_SILU] = { silu_value, silu_slope },
    [TN_UNARY_TANH] = { tanh_value, tanh_slope },
    [TN_UNARY_SIGMOID] = { sigmoid_value, sigmoid_slope },
    [TN_UNARY_RELU] = { relu_value, relu_slope },
    [TN_UNARY_EXP] = { exp_value, exp_slope },
    [TN_UNARY_EXPM1] = { expm1_value, expm1_slope },
    [TN_UNARY_LOG] = { log_value, log_slope },
    [TN_UNARY_SQRT] = { sqrt_value, sqrt_slope },
    [TN_UNARY_SQUARE] = { square_value, square_slope },
    [TN_UNARY_ABS] = { abs_value, abs_slope },
    [TN_UNARY_SOFTPLUS] = { softplus_value, softplus_slope },
    [TN_UNARY_LOGCOSH] = { logcosh_value, logcosh_slope },
    [TN_UNARY_SIN] = { sin_value, sin_slope },
    [TN_UNARY_COS] = { cos_value, cos_slope },
    [TN_UNARY_RECIPROCAL] = { reciprocal_value, reciprocal_slope },
    [TN_UNARY_CLAMP_MIN] = { clamp_min_value, clamp_min_slope },
    [TN_UNARY_SCALE] = { scale_value, scale_slope },
    [TN_UNARY_AFFINE] = { affine_value, scale_slope },
};

enum { X, Y };                /* arguments of the forward walk */
enum { DY, SAVED, DX, ARGS }; /* and of the backward walk */

typedef struct job {
    tn_unary_attr attr;
    bool add;
} job;

static void forward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const job *j = arg;
    float in[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const float *x = tn_elem_load(e, X, at, n, in);
    float *y = tn_elem_target(e, Y, at, false, out);
    table[j->attr.kind].value(y, x, n, j->attr.a, j->attr.b);
    tn_elem_store(e, Y, at, n, false, y);
}

static void backward_piece(const void *arg, const tn_elem *e, const int64_t *at, int64_t n, int64_t index)
{
    (void)index;
    const job *j = arg;
    float seed[TN_ELEM_PIECE], saved[TN_ELEM_PIECE], out[TN_ELEM_PIECE];
    const float *dy = tn_elem_load(e, DY, at, n, seed);
    const float *s = e->data[SAVED] ? tn_elem_load(e, SAVED, at, n, saved) : NULL;
    float *dx = tn_elem_target(e, DX, at, j->add, out);
    table[j->attr.kind].slope(dx, dy, s, n, j->attr.a, j->attr.b);
    tn_elem_store(e, DX, at, n, j->add, dx);
}

TN_LEVELED_KERNEL(tn_unary_forward_cpu)
{
    const job j = { .attr = *(const tn_unary_attr *)c->attr };
    tn_elem e;
    tn_elem_make(&e, c->in[0].dims, c->in[0].live, 2, (const tn_arg *[]){ &c->in[0], &c->out[0] });
    tn_elem_run(&e, c->pool, forward_piece, &j);
    return TN_OK;
}

TN_LEVELED_KERNEL(tn_unary_backward_cpu)
{
    const job j = { .attr = *(const tn_unary_attr *)c->attr, .add = c->accumulate & 1 };
    const tn_arg *saved = c->in[0].data ? &c->in[0] : &c->out[0]; /* neither has data where nothing is read */
    tn_elem e;
    tn_elem_make(&e, c->in[0].dims, c->dout[0].live, ARGS, (const tn_arg *[]){ &c->dout[0], saved, &c->din[0] });
    tn_elem_run(&e, c->pool, backward_piece, &j);
    return TN_OK;
}
