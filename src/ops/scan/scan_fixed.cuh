/* scan on the GPU with coefficients per channel: what its two ways have in common. Chunks and a look-back through a tree of
 * nodes (scan_cuda.cu) for every GPU; one pass with three tiles under way (scan_stream_cuda.cu) where there is shared memory
 * for it. */
#ifndef TN_OPS_SCAN_FIXED_CUH
#define TN_OPS_SCAN_FIXED_CUH

#include "ops/scan/scan_setup.cuh"

enum { TN_SCAN_FIXED_SUMS = 3 }; /* over tokens: of a conj(c before) (re, im), of Re(a conj(x)) */

typedef struct tn_scan_fixed {
    tn_tile_frame f;
    tn_tile_tensor x, c, final, state; /* forward; backward reads them */
    tn_tile_tensor gamma;              /* (K) */
    tn_tile_tensor dc, dx, dstate;
    const float2 *table; /* (rows, padded K): powers of lambda, backward of its conjugate; row 0: lambda */
    float *partial;      /* (B, chunks, TN_SCAN_FIXED_SUMS, padded K), or NULL: sums not wanted */
    tn_sum_rows sums;
} tn_scan_fixed;

static inline int tn_scan_fixed_choose(tn_scan_fixed *s)
{
    return tn_tile_choose(&s->f, false, { &s->x, &s->c, &s->dc, &s->dx });
}

template <int V>
struct tn_scan_channel { /* what a thread knows of its channels */
    float2 lambda[V];
    float gamma[V];
};

template <int V>
__device__ __forceinline__ tn_scan_channel<V> tn_scan_channel_of(const tn_scan_fixed &s, const tn_tile &t)
{
    tn_scan_channel<V> q;
#pragma unroll
    for (int v = 0; v < V; v++) {
        q.lambda[v] = s.table[t.k + v];
        q.gamma[v] = s.gamma.at && t.on ? tn_load(s.gamma.at, s.gamma.type, t.k + v) : 1.f;
    }
    return q;
}

/* c before token 0: the given state, which may have another type than c. */
template <int V>
__device__ __forceinline__ void tn_scan_state_before(const tn_scan_fixed &s, const tn_tile &t, float *cr, float *ci)
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        cr[v] = s.state.at && t.on ? tn_load(s.state.at, s.state.type, t.b * s.state.b + t.k + v) : 0.f;
        ci[v] = s.state.at && t.on ? tn_load(s.state.at, s.state.type, t.b * s.state.b + s.f.K + t.k + v) : 0.f;
    }
}

/* One step; sum: of a conj(c before) (re, im) and of Re(a conj(x)). wr, wi: the gradient of x. */
template <int V, bool GAIN>
__device__ __forceinline__ void tn_scan_step_back(const tn_scan_channel<V> &q, bool cut, uint32_t dr, uint32_t di,
                                                  const float *cr, const float *ci, uint32_t xr, uint32_t xi, float *re,
                                                  float *im, float (*sum)[V], float *wr, float *wi)
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float ar = __fadd_rn(re[v], tn_word_part<V>(dr, v)), ai = __fadd_rn(im[v], tn_word_part<V>(di, v));
        wr[v] = __fmul_rn(q.gamma[v], ar), wi[v] = __fmul_rn(q.gamma[v], ai);
        if (!cut) {
            sum[0][v] = __fmaf_rn(ai, ci[v], __fmaf_rn(ar, cr[v], sum[0][v]));
            sum[1][v] = __fmaf_rn(-ar, ci[v], __fmaf_rn(ai, cr[v], sum[1][v]));
        }
        if (GAIN) sum[2][v] = __fmaf_rn(ai, tn_word_part<V>(xi, v), __fmaf_rn(ar, tn_word_part<V>(xr, v), sum[2][v]));
        re[v] = cut ? 0.f : __fmaf_rn(-q.lambda[v].y, ai, __fmul_rn(q.lambda[v].x, ar));
        im[v] = cut ? 0.f : __fmaf_rn(q.lambda[v].y, ar, __fmul_rn(q.lambda[v].x, ai));
    }
}

/* From the gradient of lambda (re, im) to modulus and phase. */
struct tn_scan_gradients {
    tn_tile_tensor rho, omega, drho, domega, dgamma;
    int64_t K;

    __device__ void operator()(int64_t k, const double *total) const
    {
        if (k >= K) return;
        const double w = (double)tn_load(omega.at, omega.type, k), cs = cos(w), sn = sin(w);
        const double r = total[0] * cs + total[1] * sn;
        const double p = (double)tn_load(rho.at, rho.type, k) * (total[1] * cs - total[0] * sn);
        if (drho.at) tn_put(drho.at, drho.type, k, (float)r, drho.add);
        if (domega.at) tn_put(domega.at, domega.type, k, (float)p, domega.add);
        if (dgamma.at) tn_put(dgamma.at, dgamma.type, k, (float)total[2], dgamma.add);
    }
};

/* --- one pass, three tiles under way ------------------------------------------------------------------------------- */

size_t tn_scan_stream_work(int64_t B, int64_t T, int64_t K, bool backward);
/* Rows of how many tokens, on this GPU? */
bool tn_scan_streams(const tn_call *c, int64_t T);
/* s: its tensors. Backward sets s->sums, and s->partial where it is not NULL. */
tn_status tn_scan_stream_forward(const tn_call *c, tn_scan_fixed *s);
tn_status tn_scan_stream_backward(const tn_call *c, tn_scan_fixed *s, bool gain);

#endif
