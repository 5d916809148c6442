/* scan_gated on the GPU: gates become lambda and gain in registers, inside the one-pass recurrence of
 * scan_tiles.cuh, so that neither rho nor gamma ever exists in memory. l = rate r with rate = -8 softplus(nu), rho =
 * exp(l), and 1 - rho^2 comes from a series where rho is near 1, else from rho. A piece's product of lambdas is
 * exp(sum of l) turned by 16 omega: the error of a long memory's decay does not add up factor by factor. Nodes hold
 * products too.
 *
 * Forward opens the gates once, keeps gain x and r, and needs only exp(l) again in the second run. Backward, in
 * steps of falling time: a = dc + g, g = conj(lambda) a; with m = a conj(c before) and e = Re(a conj(x)):
 *     h = dL/dl = rho Re(m e^{-i omega}) - i e rho^2 / gamma,  dr = rate h,  di = gamma e,  dx = gamma i a.
 * Bytes per token and complex channel in bf16: forward 12, backward 24, plus 2 x 37 per 128 tokens for nodes (5 %,
 * 2.5 %). Measured on an H200 at 64 rows of 1024 tokens, K = 256: 45 % of copy bandwidth forward, 46 % backward. */
#include "ops/scan/scan_setup.cuh"
#include "ops/scan_gated/scan_gated.h"

namespace
{

enum { PIECE = TN_TILE_PIECE, WORDS = 4, SUMS = 2 };

/* Of a channel: rate, and what the phase turns in one token and in a piece (backward: the other way). */
typedef struct constants {
    float rate, cs, sn, piece_cs, piece_sn, unused[3]; /* two vectors of four */
} constants;

typedef struct gated {
    tn_tile_frame f;
    tn_tile_tensor x, ri, c, final, state;
    tn_tile_tensor dc, dx, dri, dstate;
    const constants *table; /* (padded K) */
    float *partial;         /* (B, chunks, SUMS, padded K), or NULL: sums not wanted */
    tn_sum_rows sums;
} gated;

__global__ void prepare(tn_tile_tensor nu, tn_tile_tensor omega, int64_t K, int64_t columns, bool conjugate,
                        constants *table, uint4 *zero, int64_t zeros)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t j = i; j < zeros; j += step) zero[j] = make_uint4(0, 0, 0, 0);
    for (int64_t k = i; k < columns; k += step) {
        const double n = k < K ? (double)tn_load(nu.at, nu.type, k) : 0,
                     w = k < K ? (double)tn_load(omega.at, omega.type, k) : 0;
        constants q = {};
        q.rate = (float)(-8 * (n > 0 ? n + log1p(exp(-n)) : log1p(exp(n))));
        q.cs = (float)cos(w), q.sn = (float)(conjugate ? -sin(w) : sin(w));
        q.piece_cs = (float)cos(PIECE * w), q.piece_sn = (float)(conjugate ? -sin(PIECE * w) : sin(PIECE * w));
        table[k] = q;
    }
}

template <int V>
struct channel {
    float rate[V], cs[V], sn[V];
};

template <int V>
__device__ __forceinline__ channel<V> channel_of(const gated &s, const tn_tile &t)
{
    channel<V> q;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const constants &p = s.table[t.k + v];
        q.rate[v] = p.rate, q.cs[v] = p.cs, q.sn[v] = p.sn;
    }
    return q;
}

__device__ __forceinline__ float rho_of(float l) { return __expf(l); }

/* 1 - rho^2 = -expm1(2 l), not below the floor; NaN stays. */
__device__ __forceinline__ float under_root(float l, float rho)
{
    const float y = __fmul_rn(2.f, l);
    float p = __fmaf_rn(y, 1.f / 5040, 1.f / 720);
    p = __fmaf_rn(y, p, 1.f / 120);
    p = __fmaf_rn(y, p, 1.f / 24);
    p = __fmaf_rn(y, p, 1.f / 6);
    p = __fmaf_rn(y, p, 0.5f);
    p = __fmaf_rn(y, p, 1.f);
    const float v = y > -0.5f ? __fmul_rn(-y, p) : __fmaf_rn(-rho, rho, 1.f);
    return v < 1e-6f ? 1e-6f : v;
}

/* The piece's link: from its state after starting at zero, and the sum of l. */
template <int V>
__device__ __forceinline__ tn_link<V> link_of(const gated &s, const tn_tile &t, const tn_link<V> &from_zero,
                                              const float *sum)
{
    tn_link<V> a = from_zero;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const constants &p = s.table[t.k + v];
        const float rho = expf(sum[v]);
        a.pr[v] = __fmul_rn(rho, p.piece_cs), a.pi[v] = __fmul_rn(rho, p.piece_sn);
    }
    a.cut = t.reset != 0;
    return a;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* A piece with its gates open: what enters each state, and r. */
template <int V>
struct piece {
    float re[PIECE][V], im[PIECE][V];
    uint32_t r[PIECE];
};

template <int V>
__device__ __forceinline__ void open_gates(const gated &s, const tn_tile &t, const channel<V> &q, piece<V> &p,
                                           float *sum)
{
    uint32_t xr[PIECE], xi[PIECE], in[PIECE];
    tn_tile_load<V>(s.f, t, s.ri, 0, p.r);
    tn_tile_load<V>(s.f, t, s.ri, 1, in);
    tn_tile_load<V>(s.f, t, s.x, 0, xr);
    tn_tile_load<V>(s.f, t, s.x, 1, xi);
#pragma unroll
    for (int v = 0; v < V; v++) sum[v] = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++)
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float l = __fmul_rn(q.rate[v], tn_word_part<V>(p.r[i], v)), under = under_root(l, rho_of(l));
            const float gain = __fmul_rn(__fmul_rn(under, rsqrtf(under)), tn_word_part<V>(in[i], v));
            p.re[i][v] = __fmul_rn(gain, tn_word_part<V>(xr[i], v));
            p.im[i][v] = __fmul_rn(gain, tn_word_part<V>(xi[i], v));
            sum[v] = __fadd_rn(sum[v], l);
        }
}

template <int V, bool WRITE, bool PLAIN>
__device__ __forceinline__ void run(const gated &s, const tn_tile &t, const channel<V> &q, const piece<V> &p, float *re,
                                    float *im)
{
    enum { SIZE = V == 2 ? 2 : 4 };
    int64_t at = t.b * s.c.b + t.step * s.c.t + t.k;
    char *to = (char *)s.c.at + at * SIZE;
    tn_tile_tensor c = s.c;
    c.add = false; /* for the compiler to see */
#pragma unroll
    for (int i = 0; i < PIECE; i++, at += s.c.t, to += s.c.t * SIZE) {
        if (!PLAIN && i >= t.n) break;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float rho = rho_of(__fmul_rn(q.rate[v], tn_word_part<V>(p.r[i], v)));
            const float lr = __fmul_rn(rho, q.cs[v]), li = __fmul_rn(rho, q.sn[v]);
            if (!PLAIN && (t.reset >> i & 1)) re[v] = im[v] = 0;
            const float r = re[v];
            re[v] = __fmaf_rn(-li, im[v], __fmaf_rn(lr, r, p.re[i][v]));
            im[v] = __fmaf_rn(li, r, __fmaf_rn(lr, im[v], p.im[i][v]));
        }
        if (WRITE && PLAIN) {
            *(uint32_t *)to = tn_word_of<V>(re);
            *(uint32_t *)(to + s.f.K * SIZE) = tn_word_of<V>(im);
        } else if (WRITE && t.on) {
            tn_word_put<V>(c, at, re);
            tn_word_put<V>(c, at + s.f.K, im);
        }
    }
}

template <int V>
__global__ void __launch_bounds__(TN_TILE_THREADS, 2) forward_kernel(gated s)
{
    __shared__ tn_tile_shared<V, WORDS> shared;
    const tn_tile t = tn_tile_take<V>(s.f);
    if (!t.lives) return;
    piece<V> p;
    float sum[V];
    const channel<V> q = channel_of<V>(s, t);
    tn_link<V> a = tn_link_none<V>();
    open_gates<V>(s, t, q, p, sum);
    if (s.f.chunks > 1) {
        if (t.plain) run<V, false, true>(s, t, q, p, a.re, a.im);
        else run<V, false, false>(s, t, q, p, a.re, a.im);
        tn_words_anew(p.r);
        a = tn_tile_enter<V, WORDS>(s.f, t, shared, link_of<V>(s, t, a, sum));
    }
    tn_tile_apply<V, WORDS>(s.f, t, shared, a, [&](float *re, float *im) {
        if (t.plain) run<V, true, true>(s, t, q, p, re, im);
        else run<V, true, false>(s, t, q, p, re, im);
    });
    if (tn_tile_ends(s.f, t)) tn_tile_leave<V>(s.f, t, s.final, a.re, a.im);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

template <int V>
struct reverse_words {
    uint32_t dr[PIECE], di[PIECE], r[PIECE]; /* gradient of c, and the gate r */
};

/* What only the second run needs waits in shared memory: c before the token, x, and the gate i. */
enum { C_RE, C_IM, X_RE, X_IM, GATE, PLANES };
enum { LATE_BYTES = PLANES * TN_TILE_PLANE_BYTES };

/* g = conj(lambda) a; q's phase is the conjugate's. */
template <int V>
__device__ __forceinline__ void retreat(const channel<V> &q, int v, float rho, float ar, float ai, bool cut, float *re,
                                        float *im)
{
    const float lr = __fmul_rn(rho, q.cs[v]), li = __fmul_rn(rho, q.sn[v]);
    re[v] = cut ? 0.f : __fmaf_rn(-li, ai, __fmul_rn(lr, ar));
    im[v] = cut ? 0.f : __fmaf_rn(li, ar, __fmul_rn(lr, ai));
}

template <int V, bool PLAIN>
__device__ __forceinline__ void run_back(const tn_tile &t, const channel<V> &q, const reverse_words<V> &w, float *re,
                                         float *im, float *sum)
{
#pragma unroll
    for (int v = 0; v < V; v++) sum[v] = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        if (!PLAIN && i >= t.n) break;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float ar = __fadd_rn(re[v], tn_word_part<V>(w.dr[i], v)),
                        ai = __fadd_rn(im[v], tn_word_part<V>(w.di[i], v));
            const float l = __fmul_rn(q.rate[v], tn_word_part<V>(w.r[i], v));
            sum[v] = __fadd_rn(sum[v], l);
            retreat<V>(q, v, rho_of(l), ar, ai, !PLAIN && (t.reset >> i & 1), re, im);
        }
    }
}

template <int V>
__device__ __forceinline__ void send_late(const gated &s, const tn_tile &t, uint32_t *late)
{
    tn_tile_send<V>(s.f, t, s.c, 0, 1, tn_tile_plane(late, t, C_RE));
    tn_tile_send<V>(s.f, t, s.c, 1, 1, tn_tile_plane(late, t, C_IM));
    tn_tile_send<V>(s.f, t, s.x, 0, 0, tn_tile_plane(late, t, X_RE));
    tn_tile_send<V>(s.f, t, s.x, 1, 0, tn_tile_plane(late, t, X_IM));
    tn_tile_send<V>(s.f, t, s.ri, 1, 0, tn_tile_plane(late, t, GATE));
    tn_copies_commit();
}

/* c before token 0: the given state, which may have another type than c. */
__device__ __forceinline__ float2 state_before(const gated &s, const tn_tile &t, int v)
{
    if (!s.state.at || !t.on) return make_float2(0, 0);
    const int64_t at = t.b * s.state.b + t.k + v;
    return make_float2(tn_load(s.state.at, s.state.type, at), tn_load(s.state.at, s.state.type, at + s.f.K));
}

/* What a step's adjoint gives; (V) each. */
template <int V>
struct given {
    float xr[V], xi[V], r[V], in[V];
};

template <int V, bool PLAIN>
__device__ __forceinline__ void step_back(const gated &s, const tn_tile &t, const channel<V> &q, int i,
                                          const reverse_words<V> &w, const uint32_t *p, float *re, float *im,
                                          float (*sum)[V], given<V> &d)
{
    const bool cut = !PLAIN && (t.reset >> i & 1), first = (!PLAIN || i == PIECE - 1) && t.step + i == s.f.T - 1;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float ar = __fadd_rn(re[v], tn_word_part<V>(w.dr[i], v)),
                    ai = __fadd_rn(im[v], tn_word_part<V>(w.di[i], v));
        const float r = tn_word_part<V>(w.r[i], v), in = tn_word_part<V>(p[GATE], v), l = __fmul_rn(q.rate[v], r);
        const float rho = rho_of(l), under = under_root(l, rho), inverse = rsqrtf(under),
                    gamma = __fmul_rn(under, inverse);
        const float slope = under <= 1e-6f ? 0.f : __fmul_rn(__fmul_rn(rho, rho), inverse); /* the clamp has none */
        float2 c = make_float2(tn_word_part<V>(p[C_RE], v), tn_word_part<V>(p[C_IM], v));
        if (first) c = state_before(s, t, v);
        if (cut) c = make_float2(0, 0);
        const float mr = __fmaf_rn(ai, c.y, __fmul_rn(ar, c.x)), mi = __fmaf_rn(ai, c.x, -__fmul_rn(ar, c.y));
        const float e = __fmaf_rn(ai, tn_word_part<V>(p[X_IM], v), __fmul_rn(ar, tn_word_part<V>(p[X_RE], v)));
        const float along = __fmaf_rn(-mi, q.sn[v], __fmul_rn(mr, q.cs[v])); /* q.sn is -sin(omega) */
        const float across = __fmaf_rn(mr, q.sn[v], __fmul_rn(mi, q.cs[v]));
        const float h = __fmaf_rn(along, rho, -__fmul_rn(__fmul_rn(in, e), slope)), gain = __fmul_rn(gamma, in);
        sum[0][v] = __fmaf_rn(r, h, sum[0][v]);
        sum[1][v] = __fmaf_rn(rho, across, sum[1][v]);
        d.xr[v] = __fmul_rn(gain, ar), d.xi[v] = __fmul_rn(gain, ai);
        d.r[v] = __fmul_rn(q.rate[v], h), d.in[v] = __fmul_rn(gamma, e);
        retreat<V>(q, v, rho, ar, ai, cut, re, im);
    }
}

/* Two words of a token, its first plane's at `to`; of a plain piece. old: what they are added to. */
template <int V>
__device__ __forceinline__ void put_two(char *to, int64_t plane, bool add, const uint32_t *old, const float *x,
                                        const float *y)
{
    *(uint32_t *)to = add ? tn_word_sum<V>(old[0], x) : tn_word_of<V>(x);
    *(uint32_t *)(to + plane) = add ? tn_word_sum<V>(old[1], y) : tn_word_of<V>(y);
}

/* A piece with all that is wanted of it. late: this thread's words. */
template <int V, bool PLAIN>
__device__ __forceinline__ void write_back(const gated &s, const tn_tile &t, const channel<V> &q,
                                           const reverse_words<V> &w, const uint32_t *late, float *re, float *im,
                                           float (*sum)[V])
{
    enum { SIZE = V == 2 ? 2 : 4, PLANE = TN_TILE_CHUNK * TN_TILE_LANES, PART = 4 };
    const int64_t token = tn_tile_token(s.f, t, 0), plane = s.f.K * SIZE;
    int64_t x_at = t.b * s.dx.b + token * s.dx.t + t.k, ri_at = t.b * s.dri.b + token * s.dri.t + t.k;
    char *x_to = (char *)s.dx.at + x_at * SIZE, *ri_to = (char *)s.dri.at + ri_at * SIZE;
    uint32_t old_x[PART][2], old_ri[PART][2];
#pragma unroll
    for (int i = 0; i < PIECE; i++, late += TN_TILE_LANES, x_at -= s.dx.t, ri_at -= s.dri.t) {
        uint32_t p[PLANES];
        given<V> d;
        if (!PLAIN && i >= t.n) break;
#pragma unroll
        for (int j = 0; PLAIN && i % PART == 0 && j < PART; j++) {
            const char *x_old = x_to - j * s.dx.t * SIZE, *ri_old = ri_to - j * s.dri.t * SIZE;
            if (s.dx.add) old_x[j][0] = *(const uint32_t *)x_old, old_x[j][1] = *(const uint32_t *)(x_old + plane);
            if (s.dri.add) old_ri[j][0] = *(const uint32_t *)ri_old, old_ri[j][1] = *(const uint32_t *)(ri_old + plane);
        }
#pragma unroll
        for (int k = 0; k < PLANES; k++) p[k] = late[k * PLANE];
        step_back<V, PLAIN>(s, t, q, i, w, p, re, im, sum, d);
        if (PLAIN) {
            if (s.dx.at) put_two<V>(x_to, plane, s.dx.add, old_x[i % PART], d.xr, d.xi);
            if (s.dri.at) put_two<V>(ri_to, plane, s.dri.add, old_ri[i % PART], d.r, d.in);
            x_to -= s.dx.t * SIZE, ri_to -= s.dri.t * SIZE;
            continue;
        }
        if (!t.on) continue;
        if (s.dx.at) tn_word_put<V>(s.dx, x_at, d.xr), tn_word_put<V>(s.dx, x_at + s.f.K, d.xi);
        if (s.dri.at) tn_word_put<V>(s.dri, ri_at, d.r), tn_word_put<V>(s.dri, ri_at + s.f.K, d.in);
    }
}

template <int V>
__global__ void __launch_bounds__(TN_TILE_THREADS, 2) backward_kernel(gated s)
{
    extern __shared__ __align__(16) uint32_t late[];
    __shared__ tn_tile_shared<V, WORDS> shared;
    const tn_tile t = tn_tile_take<V>(s.f);
    if (s.partial) tn_sum_clear(s.sums);
    if (!t.lives) return;
    reverse_words<V> w;
    float sum[SUMS][V] = {}, logs[V];
    tn_tile_load<V>(s.f, t, s.dc, 0, w.dr);
    tn_tile_load<V>(s.f, t, s.dc, 1, w.di);
    tn_tile_load<V>(s.f, t, s.ri, 0, w.r);
    send_late<V>(s, t, late);
    const channel<V> q = channel_of<V>(s, t);
    tn_link<V> a = tn_link_none<V>();
    if (s.f.chunks > 1) {
        if (t.plain) run_back<V, true>(t, q, w, a.re, a.im, logs);
        else run_back<V, false>(t, q, w, a.re, a.im, logs);
        tn_words_anew(w.dr), tn_words_anew(w.di), tn_words_anew(w.r);
        a = tn_tile_enter<V, WORDS>(s.f, t, shared, link_of<V>(s, t, a, logs));
    }
    tn_tile_arrived();
    const uint32_t *mine = tn_tile_plane(late, t, 0) + t.lane;
    tn_tile_apply<V, WORDS>(s.f, t, shared, a, [&](float *re, float *im) {
        if (t.plain) write_back<V, true>(s, t, q, w, mine, re, im, sum);
        else write_back<V, false>(s, t, q, w, mine, re, im, sum);
    });
    if (tn_tile_ends(s.f, t)) tn_tile_leave<V>(s.f, t, s.dstate, a.re, a.im);
    if (s.partial) tn_tile_leave_sums<V, WORDS, SUMS>(s.f, t, sum, shared, s.partial);
}

struct to_gradients {
    tn_tile_tensor nu, dnu, domega;
    int64_t K;

    __device__ void operator()(int64_t k, const double *total) const
    {
        if (k >= K) return;
        if (dnu.at) {
            const double slope = -8 / (1 + exp(-(double)tn_load(nu.at, nu.type, k))); /* of -8 softplus(nu) */
            tn_put(dnu.at, dnu.type, k, (float)(slope * total[0]), dnu.add);
        }
        if (domega.at) tn_put(domega.at, domega.type, k, (float)total[1], domega.add);
    }
};

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static tn_tile_layout layout_of(int64_t B, int64_t T, int64_t K, bool backward)
{
    return tn_tile_layout_of(B, T, K, WORDS, sizeof(constants), SUMS, backward);
}

extern "C" size_t tn_scan_gated_work_cuda(const tn_sig *s, bool backward)
{
    const int64_t *d = s->in[TN_GATED_X].dims.dim;
    return layout_of(d[0], d[1], d[2] / 2, backward).bytes;
}

static gated set_up(const tn_call *c, bool backward)
{
    const int64_t *d = c->in[TN_GATED_X].dims.dim;
    const tn_tile_layout l = layout_of(d[0], d[1], d[2] / 2, backward);
    char *work = (char *)c->work;
    gated s = {};
    s.f = tn_tile_frame_of(c, &c->in[TN_GATED_X], &c->in[TN_GATED_RESET], backward);
    s.x = tn_tile_of(&c->in[TN_GATED_X], false);
    s.ri = tn_tile_of(&c->in[TN_GATED_RI], false);
    s.c = tn_tile_of(&c->out[0], false);
    s.state = tn_tile_of(&c->in[TN_GATED_STATE], false);
    s.table = (const constants *)(work + l.table);
    s.sums = tn_tile_sums_of(c, &s.f, &l, SUMS, backward);
    return s;
}

static tn_status launch_prepare(const tn_call *c, const gated *s)
{
    const tn_tile_layout l = layout_of(s->f.B, s->f.T, s->f.K, false);
    return tn_tile_prepare(c, &s->f, &l, &c->in[TN_GATED_NU], &c->in[TN_GATED_OMEGA], prepare);
}

static int choose(gated *s, bool single)
{
    return tn_tile_choose(&s->f, single, { &s->x, &s->ri, &s->c, &s->dc, &s->dx, &s->dri });
}

extern "C" tn_status tn_scan_gated_forward_cuda(const tn_call *c)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    gated s = set_up(c, false);
    if (!s.f.B || !s.f.K) return TN_OK;
    s.f.first = s.state;
    s.final = tn_tile_of(&c->out[1], false);
    TN_RETURN_IF(launch_prepare(c, &s));
    if (choose(&s, false) == 2) forward_kernel<2><<<tn_tile_blocks(&s.f, 2), TN_TILE_THREADS, 0, stream>>>(s);
    else forward_kernel<1><<<tn_tile_blocks(&s.f, 1), TN_TILE_THREADS, 0, stream>>>(s);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* Pairs need 111 KB of shared memory; where a block cannot have them, single channels do with 96. */
static bool pairs_fit(void)
{
    int device = 0, most = 0;
    if (cudaGetDevice(&device) || cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device))
        return false;
    return most >= (int)sizeof(tn_tile_shared<2, WORDS>) + LATE_BYTES + 1024;
}

static tn_status launch_backward(const tn_call *c, gated *s)
{
    const int V = choose(s, !pairs_fit());
    const unsigned blocks = tn_tile_blocks(&s->f, V);
    void (*const kernel)(gated) = V == 2 ? backward_kernel<2> : backward_kernel<1>;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)kernel, LATE_BYTES));
    kernel<<<blocks, TN_TILE_THREADS, LATE_BYTES, tn_cuda_stream(c)>>>(*s);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_scan_gated_backward_cuda(const tn_call *c)
{
    gated s = set_up(c, true);
    to_gradients g = {};
    if (!s.f.K) return TN_OK;
    s.dc = tn_tile_of(&c->dout[0], false);
    s.f.first = tn_tile_of(&c->dout[1], false);
    s.dx = tn_tile_of(&c->din[TN_GATED_X], c->accumulate >> TN_GATED_X & 1);
    s.dri = tn_tile_of(&c->din[TN_GATED_RI], c->accumulate >> TN_GATED_RI & 1);
    s.dstate = tn_tile_of(&c->din[TN_GATED_STATE], c->accumulate >> TN_GATED_STATE & 1);
    g.nu = tn_tile_of(&c->in[TN_GATED_NU], false), g.K = s.f.K;
    g.dnu = tn_tile_of(&c->din[TN_GATED_NU], c->accumulate >> TN_GATED_NU & 1);
    g.domega = tn_tile_of(&c->din[TN_GATED_OMEGA], c->accumulate >> TN_GATED_OMEGA & 1);
    const bool gates = s.dri.at || g.dnu.at;
    if (!gates) s.x.at = NULL;
    if (!gates && !g.domega.at) s.c.at = s.state.at = NULL;
    if (g.dnu.at || g.domega.at) s.partial = (float *)(uintptr_t)s.sums.partial;
    if (s.f.B) {
        TN_RETURN_IF(launch_prepare(c, &s));
        TN_RETURN_IF(launch_backward(c, &s));
    }
    return s.partial ? tn_sum_rows_run<SUMS>(c, &s.sums, g) : TN_OK;
}
