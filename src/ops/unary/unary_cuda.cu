/* unary on the GPU, over the walk of elem.cuh: a kernel for each of the functions that act on whole activations and for
 * its slope, one for all others. x, y, dy and dx may each be of any float type and strides. Bytes: one read and one write per element forward; one read more backward, where the
 * slope needs x or y. Arithmetic stays below the memory's time for all but sin, cos and gelu_erf in bf16. */
#include "ops/elem.cuh"
#include "ops/unary/unary_value.cuh"

/* s is what unary.c says the backward pass reads: x, y or nothing. */
__device__ __forceinline__ float slope_of(int kind, float s, float a)
{
    switch (kind) {
    case TN_UNARY_GELU: return tn_d_gelu_grad(s);
    case TN_UNARY_GELU_ERF: return tn_d_gelu_erf_grad(s);
    case TN_UNARY_SILU: return tn_d_silu_grad(s);
    case TN_UNARY_TANH: return (1.f - s) * (1.f + s);
    case TN_UNARY_SIGMOID: return s * (1.f - s);
    case TN_UNARY_RELU: return s > 0.f ? 1.f : s * 0.f;
    case TN_UNARY_EXP: return s;
    case TN_UNARY_EXPM1: return s + 1.f;
    case TN_UNARY_LOG: return 1.f / s;
    case TN_UNARY_SQRT: return 0.5f / s;
    case TN_UNARY_SQUARE: return 2.f * s;
    case TN_UNARY_ABS: return s > 0.f ? 1.f : s < 0.f ? -1.f : s * 0.f;
    case TN_UNARY_SOFTPLUS: return tn_d_sigmoid(s);
    case TN_UNARY_LOGCOSH: return tn_d_tanh(s);
    case TN_UNARY_SIN: return cosf(s);
    case TN_UNARY_COS: return -sinf(s);
    case TN_UNARY_RECIPROCAL: return -s * s;
    case TN_UNARY_CLAMP_MIN: return s > a ? 1.f : s <= a ? 0.f : s;
    default: return a; /* scale, affine */
    }
}

enum { ANY = -1 }; /* the kind is looked at for every number */

template <int KIND>
struct value_map {
    tn_unary_attr attr;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[1][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = tn_d_unary(KIND == ANY ? attr.kind : KIND, x[0][e], attr.a, attr.b);
    }
};

/* x: dy, and what the slope is computed from. The product is rounded before it is added to anything. */
template <int KIND>
struct slope_map {
    tn_unary_attr attr;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[2][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++)
            y[0][e] = __fmul_rn(x[0][e], slope_of(KIND == ANY ? attr.kind : KIND, x[1][e], attr.a));
    }
};

/* The kind as a constant, where that is worth a kernel: MAP<KIND> over IN tensors. */
template <template <int> class MAP, int IN>
static tn_status run_eights(const tn_call *c, const tn_d_space &s, unsigned add, tn_unary_attr a)
{
    switch (a.kind) {
    case TN_UNARY_GELU: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_GELU>{ a });
    case TN_UNARY_SILU: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_SILU>{ a });
    case TN_UNARY_TANH: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_TANH>{ a });
    case TN_UNARY_SIGMOID: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_SIGMOID>{ a });
    case TN_UNARY_RELU: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_RELU>{ a });
    case TN_UNARY_SQUARE: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_SQUARE>{ a });
    case TN_UNARY_SCALE: return tn_d_run_eights<IN, 1>(c, s, add, MAP<TN_UNARY_SCALE>{ a });
    default: return tn_d_run_any_eights<IN, 1>(c, s, add, MAP<ANY>{ a });
    }
}

extern "C" tn_status tn_unary_forward_cuda(const tn_call *c)
{
    const tn_unary_attr a = *(const tn_unary_attr *)c->attr;
    const tn_arg *args[] = { &c->in[0], &c->out[0] };
    const tn_d_space s = tn_d_space_make(c->in[0].dims, c->in[0].live, 2, args);
    if (tn_d_space_empty(s)) return TN_OK;
    return s.eights ? run_eights<value_map, 1>(c, s, 0, a) : tn_d_run_ones<1, 1>(c, s, 0, value_map<ANY>{ a });
}

extern "C" tn_status tn_unary_backward_cuda(const tn_call *c)
{
    const tn_unary_attr a = *(const tn_unary_attr *)c->attr;
    const tn_arg *saved = c->in[0].data ? &c->in[0] : &c->out[0]; /* neither has data where nothing is read */
    const tn_arg *args[] = { &c->dout[0], saved, &c->din[0] };
    const tn_d_space s = tn_d_space_make(c->in[0].dims, c->dout[0].live, 3, args);
    if (tn_d_space_empty(s)) return TN_OK;
    return s.eights ? run_eights<slope_map, 2>(c, s, c->accumulate & 1, a)
                    : tn_d_run_ones<2, 1>(c, s, c->accumulate & 1, slope_map<ANY>{ a });
}
