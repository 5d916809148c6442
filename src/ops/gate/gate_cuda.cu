/* gate on the GPU: the walk of elem.cuh; both gradients of an element come from one evaluation of act and act'. Any
 * float types and strides; parts of one projection are read 8 at a time where their rows begin at 16 bytes. Bytes: 3
 * tensors forward, 5 backward. */
#include "ops/elem.cuh"
#include "ops/gate/gate_value.cuh"

enum { ANY = -1 }; /* the kind is looked at for every number */

template <int KIND>
struct value_map {
    int kind;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[2][N], float (&y)[1][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) y[0][e] = x[0][e] * tn_d_gate(KIND == ANY ? kind : KIND, x[1][e]);
    }
};

/* x: dy, x (0 where dz is not wanted), z. y: dx, dz; products are rounded before they are added to anything. */
template <int KIND>
struct slopes_map {
    int kind;
    template <int N>
    __device__ __forceinline__ void operator()(int64_t, const float (&x)[3][N], float (&y)[2][N]) const
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            float slope;
            const float value = tn_d_gate_slope(KIND == ANY ? kind : KIND, x[2][e], &slope);
            y[0][e] = __fmul_rn(x[0][e], value);
            y[1][e] = __fmul_rn(x[0][e] * x[1][e], slope);
        }
    }
};

extern "C" tn_status tn_gate_forward_cuda(const tn_call *c)
{
    const int kind = ((const tn_gate_attr *)c->attr)->kind;
    const tn_arg *args[] = { &c->in[0], &c->in[1], &c->out[0] };
    const tn_d_space s = tn_d_space_make(c->out[0].dims, c->out[0].live, 3, args);
    if (tn_d_space_empty(s)) return TN_OK;
    if (!s.eights) return tn_d_run_ones<2, 1>(c, s, 0, value_map<ANY>{ kind });
    if (kind == TN_GATE_SILU) return tn_d_run_eights<2, 1>(c, s, 0, value_map<TN_GATE_SILU>{ kind });
    if (kind == TN_GATE_SIGMOID) return tn_d_run_eights<2, 1>(c, s, 0, value_map<TN_GATE_SIGMOID>{ kind });
    return tn_d_run_eights<2, 1>(c, s, 0, value_map<TN_GATE_GELU>{ kind });
}

extern "C" tn_status tn_gate_backward_cuda(const tn_call *c)
{
    const int kind = ((const tn_gate_attr *)c->attr)->kind;
    const unsigned add = c->accumulate & 3;
    const tn_arg *dy = &c->dout[0], *args[] = { dy, &c->in[0], &c->in[1], &c->din[0], &c->din[1] };
    const tn_d_space s = tn_d_space_make(dy->dims, dy->live, 5, args);
    if (tn_d_space_empty(s)) return TN_OK;
    if (!s.eights) return tn_d_run_ones<3, 2>(c, s, add, slopes_map<ANY>{ kind });
    if (kind == TN_GATE_SILU) return tn_d_run_eights<3, 2>(c, s, add, slopes_map<TN_GATE_SILU>{ kind });
    if (kind == TN_GATE_SIGMOID) return tn_d_run_eights<3, 2>(c, s, add, slopes_map<TN_GATE_SIGMOID>{ kind });
    return tn_d_run_eights<3, 2>(c, s, add, slopes_map<TN_GATE_GELU>{ kind });
}
