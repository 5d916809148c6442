/* scan on the GPU, token by token: a thread per row and channel walks along time in double, straight from the
 * formula. The plain twin (opt.scan=off), and coefficients per token. Coefficients are asked for a few tokens ahead,
 * so that a walk waits for memory once per AHEAD tokens and not at each; there is no parallelism along time. */
#include "backend/cuda/device.cuh"
#include "ops/scan/scan.h"
#include "ops/scan/scan_cuda.h"
#include "ops/scan/scan_tiles.cuh"

namespace
{

enum { THREADS = 64, AHEAD = 8, SUMS = 3 };

/* (K), or (B,T,K) where per token. */
typedef struct coefficient {
    void *at; /* NULL: absent or not wanted */
    tn_dtype type;
    bool per_token, add;
} coefficient;

typedef struct steps {
    int64_t B, T, K;
    tn_tile_tensor x, c, state, final, dc, dfinal, dx, dstate;
    coefficient rho, omega, gamma, drho, domega, dgamma;
    const int32_t *reset, *live;
    double *sums; /* (B, SUMS, K) */
} steps;

/* A token of a channel, as it lies in memory. */
struct token {
    float re, im; /* x, backward dc */
    float rho, omega, gamma;
    bool starts;
};

struct eigenvalue {
    double re, im, rho, cs, sn;
};

__device__ __forceinline__ float number(const steps &s, const coefficient &a, int64_t b, int64_t t, int64_t k,
                                        float other)
{
    return a.at ? tn_load(a.at, a.type, a.per_token ? (b * s.T + t) * s.K + k : k) : other;
}

__device__ __forceinline__ token token_at(const steps &s, const tn_tile_tensor &p, int64_t b, int64_t t, int64_t k)
{
    token q = {};
    if (t < 0 || t >= s.T) return q;
    const int64_t at = b * p.b + t * p.t + k;
    if (p.at) q.re = tn_load(p.at, p.type, at), q.im = tn_load(p.at, p.type, at + s.K);
    q.rho = number(s, s.rho, b, t, k, 0);
    q.omega = number(s, s.omega, b, t, k, 0);
    q.gamma = number(s, s.gamma, b, t, k, 1);
    q.starts = s.reset && s.reset[b * s.T + t];
    return q;
}

/* Per channel lambda is rounded once, see scan.h. Its phase is only turned into a sine where it changes. */
__device__ __forceinline__ eigenvalue lambda_of(const steps &s, const token &q, const eigenvalue &last, bool first)
{
    eigenvalue l = last;
    if (first || s.omega.per_token) sincos((double)q.omega, &l.sn, &l.cs);
    l.rho = q.rho, l.re = l.rho * l.cs, l.im = l.rho * l.sn;
    if (!s.rho.per_token && !s.omega.per_token) l.re = (double)(float)l.re, l.im = (double)(float)l.im;
    return l;
}

/* The thread's row and channel; false where there is none. */
__device__ __forceinline__ bool find(const steps &s, int64_t *b, int64_t *k)
{
    const int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    *b = i / s.K, *k = i % s.K;
    return *b < (s.live && *s.live < s.B ? *s.live : s.B);
}

__global__ void __launch_bounds__(THREADS) forward_steps(steps s)
{
    int64_t b, k;
    if (!find(s, &b, &k)) return;
    double re = 0, im = 0;
    eigenvalue l = {};
    if (s.state.at) {
        re = (double)tn_load(s.state.at, s.state.type, b * s.state.b + k);
        im = (double)tn_load(s.state.at, s.state.type, b * s.state.b + s.K + k);
    }
    for (int64_t t0 = 0; t0 < s.T; t0 += AHEAD) {
        token q[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) q[i] = token_at(s, s.x, b, t0 + i, k);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (t0 + i >= s.T) break;
            l = lambda_of(s, q[i], l, t0 + i == 0);
            if (q[i].starts) re = im = 0;
            const double r = l.re * re - l.im * im + (double)q[i].gamma * (double)q[i].re;
            im = l.re * im + l.im * re + (double)q[i].gamma * (double)q[i].im;
            re = r;
            tn_store(s.c.at, s.c.type, b * s.c.b + (t0 + i) * s.c.t + k, (float)re);
            tn_store(s.c.at, s.c.type, b * s.c.b + (t0 + i) * s.c.t + s.K + k, (float)im);
        }
    }
    if (!s.final.at) return;
    tn_store(s.final.at, s.final.type, b * s.final.b + k, (float)re);
    tn_store(s.final.at, s.final.type, b * s.final.b + s.K + k, (float)im);
}

/* Where the gradient of a token's coefficient goes: to its place, or to a sum. */
__device__ __forceinline__ void keep(const steps &s, const coefficient &to, int64_t b, int64_t t, int64_t k, double x,
                                     double &sum)
{
    if (!to.per_token) sum += x;
    else if (to.at) tn_put(to.at, to.type, (b * s.T + t) * s.K + k, (float)x, to.add);
}

/* c before token t, zero at the start of a document. */
__device__ __forceinline__ void before(const steps &s, int64_t b, int64_t t, int64_t k, bool starts, float *re,
                                       float *im)
{
    const tn_tile_tensor &p = t > 0 ? s.c : s.state;
    const int64_t at = b * p.b + (t > 0 ? (t - 1) * p.t : 0) + k;
    const bool there = p.at && t >= 0 && !starts;
    *re = there ? tn_load(p.at, p.type, at) : 0.f;
    *im = there ? tn_load(p.at, p.type, at + s.K) : 0.f;
}

/* On entry (gr, gi) is what later tokens give to c_t, on return what c_{t-1} gets. */
__device__ __forceinline__ void backward_step(const steps &s, int64_t b, int64_t t, int64_t k, const token &q,
                                              const eigenvalue &l, float cr, float ci, double *gr, double *gi,
                                              double *sum)
{
    const double ar = *gr + (double)q.re, ai = *gi + (double)q.im, gamma = (double)q.gamma;
    const double mr = ar * (double)cr + ai * (double)ci, mi = ai * (double)cr - ar * (double)ci;
    const int64_t to = b * s.dx.b + t * s.dx.t + k, from = b * s.x.b + t * s.x.t + k;
    if (s.dx.at) {
        tn_put(s.dx.at, s.dx.type, to, (float)(gamma * ar), s.dx.add);
        tn_put(s.dx.at, s.dx.type, to + s.K, (float)(gamma * ai), s.dx.add);
    }
    if (s.dgamma.at) {
        const double xr = (double)tn_load(s.x.at, s.x.type, from), xi = (double)tn_load(s.x.at, s.x.type, from + s.K);
        keep(s, s.dgamma, b, t, k, ar * xr + ai * xi, sum[2]);
    }
    if (s.drho.at) keep(s, s.drho, b, t, k, mr * l.cs + mi * l.sn, sum[0]);
    if (s.domega.at) keep(s, s.domega, b, t, k, l.rho * (mi * l.cs - mr * l.sn), sum[1]);
    *gr = q.starts ? 0 : l.re * ar + l.im * ai;
    *gi = q.starts ? 0 : l.re * ai - l.im * ar;
}

__global__ void __launch_bounds__(THREADS) backward_steps(steps s)
{
    int64_t b, k;
    if (!find(s, &b, &k)) return;
    double gr = 0, gi = 0, sum[SUMS] = {};
    eigenvalue l = {};
    if (s.dfinal.at) {
        gr = (double)tn_load(s.dfinal.at, s.dfinal.type, b * s.dfinal.b + k);
        gi = (double)tn_load(s.dfinal.at, s.dfinal.type, b * s.dfinal.b + s.K + k);
    }
    for (int64_t t0 = s.T - 1; t0 >= 0; t0 -= AHEAD) {
        token q[AHEAD];
        float cr[AHEAD], ci[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            q[i] = token_at(s, s.dc, b, t0 - i, k);
            before(s, b, t0 - i, k, q[i].starts, &cr[i], &ci[i]);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (t0 - i < 0) break;
            l = lambda_of(s, q[i], l, t0 - i == s.T - 1);
            backward_step(s, b, t0 - i, k, q[i], l, cr[i], ci[i], &gr, &gi, sum);
        }
    }
    for (int f = 0; f < SUMS; f++) s.sums[(b * SUMS + f) * s.K + k] = sum[f];
    if (!s.dstate.at) return;
    tn_put(s.dstate.at, s.dstate.type, b * s.dstate.b + k, (float)gr, s.dstate.add);
    tn_put(s.dstate.at, s.dstate.type, b * s.dstate.b + s.K + k, (float)gi, s.dstate.add);
}

/* Rows in order. */
__global__ void __launch_bounds__(THREADS) add_rows(steps s)
{
    const int64_t k = blockIdx.x * (int64_t)THREADS + threadIdx.x, rows = s.live && *s.live < s.B ? *s.live : s.B;
    if (k >= s.K) return;
    double sum[SUMS] = {};
    for (int64_t b = 0; b < rows; b++)
        for (int f = 0; f < SUMS; f++) sum[f] += s.sums[(b * SUMS + f) * s.K + k];
    const coefficient *to[SUMS] = { &s.drho, &s.domega, &s.dgamma };
    for (int f = 0; f < SUMS; f++)
        if (to[f]->at && !to[f]->per_token) tn_put(to[f]->at, to[f]->type, k, (float)sum[f], to[f]->add);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

size_t tn_scan_step_work_cuda(int64_t B, int64_t K) { return sizeof(double) * (size_t)(B * SUMS * K); }

static coefficient coefficient_of(const tn_arg *a, const tn_arg *shape, bool add)
{
    const coefficient q = { a->data, a->dtype, shape->dims.rank == 3, add };
    return q;
}

static steps set_up(const tn_call *c)
{
    const int64_t *d = c->in[TN_SCAN_X].dims.dim;
    steps s = {};
    s.B = d[0], s.T = d[1], s.K = d[2] / 2;
    s.live = tn_tile_live(c);
    s.reset = (const int32_t *)c->in[TN_SCAN_RESET].data;
    s.x = tn_tile_of(&c->in[TN_SCAN_X], false);
    s.c = tn_tile_of(&c->out[0], false);
    s.state = tn_tile_of(&c->in[TN_SCAN_STATE], false);
    s.rho = coefficient_of(&c->in[TN_SCAN_RHO], &c->in[TN_SCAN_RHO], false);
    s.omega = coefficient_of(&c->in[TN_SCAN_OMEGA], &c->in[TN_SCAN_OMEGA], false);
    s.gamma = coefficient_of(&c->in[TN_SCAN_GAMMA], &c->in[TN_SCAN_GAMMA], false);
    s.sums = (double *)c->work;
    return s;
}

static unsigned blocks_for(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

tn_status tn_scan_step_forward_cuda(const tn_call *c)
{
    steps s = set_up(c);
    s.final = tn_tile_of(&c->out[1], false);
    if (!s.B || !s.K) return TN_OK;
    forward_steps<<<blocks_for(s.B * s.K), THREADS, 0, tn_cuda_stream(c)>>>(s);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_scan_step_backward_cuda(const tn_call *c)
{
    steps s = set_up(c);
    if (!s.K) return TN_OK;
    s.dc = tn_tile_of(&c->dout[0], false);
    s.dfinal = tn_tile_of(&c->dout[1], false);
    s.dx = tn_tile_of(&c->din[TN_SCAN_X], c->accumulate >> TN_SCAN_X & 1);
    s.dstate = tn_tile_of(&c->din[TN_SCAN_STATE], c->accumulate >> TN_SCAN_STATE & 1);
    s.drho = coefficient_of(&c->din[TN_SCAN_RHO], &c->in[TN_SCAN_RHO], c->accumulate >> TN_SCAN_RHO & 1);
    s.domega = coefficient_of(&c->din[TN_SCAN_OMEGA], &c->in[TN_SCAN_OMEGA], c->accumulate >> TN_SCAN_OMEGA & 1);
    s.dgamma = coefficient_of(&c->din[TN_SCAN_GAMMA], &c->in[TN_SCAN_GAMMA], c->accumulate >> TN_SCAN_GAMMA & 1);
    if (!s.drho.at && !s.domega.at) s.c.at = s.state.at = NULL;
    if (s.B) {
        backward_steps<<<blocks_for(s.B * s.K), THREADS, 0, tn_cuda_stream(c)>>>(s);
        TN_CUDA_LAUNCHED();
    }
    if (!s.drho.at && !s.domega.at && !s.dgamma.at) return TN_OK;
    add_rows<<<blocks_for(s.K), THREADS, 0, tn_cuda_stream(c)>>>(s);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
