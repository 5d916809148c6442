/* scan on the GPU, coefficients per channel: lambda^n is known beforehand, so nodes of scan_tiles.cuh hold sums
 * only. Coefficients per token, and the plain twin, go token by token: scan_step_cuda.cu. Rows of more than 128 tokens on
 * GPUs with 227 KB of shared memory a block: scan_stream_cuda.cu; the kernels here do the rest.
 *
 * Forward: c = lambda c + gamma x. Backward, in steps of falling time: a = dc + g, dx = gamma a, g = conj(lambda) a,
 * and sums over tokens of a conj(c before) and Re(a conj(x)), through sum_rows.cuh. Bytes per token and complex
 * channel in bf16: forward 8, backward 12 (16 with the gradient of gamma), plus 2 x 18 per 128 tokens for nodes (3 %
 * forward, 2 % backward) and 24 per 128 for partial sums. Look-back reads about 10 nodes, from the L2 cache.
 *
 * Forward, a block works through tiles and has the next one's words on their way while it looks back. Two blocks a
 * multiprocessor: three spill, and were slower. Measured on an H200 at 1024 rows of 1024 tokens, K = 128: 63 % of copy
 * bandwidth forward, 68 % backward; the rest is look-back and its barriers. */
#include "ops/scan/scan.h"
#include "ops/scan/scan_cuda.h"
#include "ops/scan/scan_fixed.cuh"

namespace
{

enum { PIECE = TN_TILE_PIECE, WORDS = 2, SUMS = TN_SCAN_FIXED_SUMS, ROWS = TN_TILE_LEVELS + 2 };
enum { BLOCKS = 2 };                        /* of a multiprocessor */
enum { LAMBDA, LAMBDA_PIECE, LAMBDA_NODE }; /* rows of the table; the last has one per level */

/* lambda in double, rounded once; powers of the rounded number. */
__global__ void prepare(tn_tile_tensor rho, tn_tile_tensor omega, int64_t K, int64_t columns, bool conjugate,
                        float2 *table, uint4 *zero, int64_t zeros)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t j = i; j < zeros; j += step) zero[j] = make_uint4(0, 0, 0, 0);
    for (int64_t k = i; k < columns; k += step) {
        const double r = k < K ? (double)tn_load(rho.at, rho.type, k) : 0,
                     w = k < K ? (double)tn_load(omega.at, omega.type, k) : 0;
        double re = (double)(float)(r * cos(w)), im = (double)(float)(r * sin(w));
        if (conjugate) im = -im;
        for (int row = 0; row < ROWS; row++) {
            table[row * columns + k] = make_float2((float)re, (float)im);
            const int doublings = row == LAMBDA ? 4 : 3; /* 1, 16, then eightfold */
            for (int d = 0; d < doublings; d++) {
                const double next = re * re - im * im;
                im = 2 * re * im;
                re = next;
            }
        }
    }
}

/* The piece's link from its state after starting at zero. */
template <int V>
__device__ __forceinline__ tn_link<V> link_of(const tn_scan_fixed &s, const tn_tile &t, const tn_link<V> &from_zero)
{
    tn_link<V> a = from_zero;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float2 power = s.table[LAMBDA_PIECE * s.f.columns + t.k + v];
        a.pr[v] = power.x, a.pi[v] = power.y;
    }
    a.cut = t.reset != 0;
    return a;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <int V, bool WRITE, bool PLAIN>
__device__ __forceinline__ void run(const tn_scan_fixed &s, const tn_tile &t, const tn_scan_channel<V> &q,
                                    const uint32_t *xr, const uint32_t *xi, float *re, float *im)
{
    enum { SIZE = V == 2 ? 2 : 4 };
    int64_t at = t.b * s.c.b + t.step * s.c.t + t.k;
    char *to_re = (char *)s.c.at + at * SIZE, *to_im = to_re + s.f.K * SIZE;
    tn_tile_tensor c = s.c;
    c.add = false; /* for the compiler to see */
#pragma unroll
    for (int i = 0; i < PIECE; i++, at += s.c.t, to_re += s.c.t * SIZE, to_im += s.c.t * SIZE) {
        if (!PLAIN && i >= t.n) break;
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (!PLAIN && (t.reset >> i & 1)) re[v] = im[v] = 0;
            const float r = re[v], zr = __fmul_rn(q.gamma[v], tn_word_part<V>(xr[i], v));
            const float zi = __fmul_rn(q.gamma[v], tn_word_part<V>(xi[i], v));
            re[v] = __fmaf_rn(-q.lambda[v].y, im[v], __fmaf_rn(q.lambda[v].x, r, zr));
            im[v] = __fmaf_rn(q.lambda[v].y, r, __fmaf_rn(q.lambda[v].x, im[v], zi));
        }
        if (WRITE && PLAIN) {
            *(uint32_t *)to_re = tn_word_of<V>(re);
            *(uint32_t *)to_im = tn_word_of<V>(im);
        } else if (WRITE && t.on) {
            tn_word_put<V>(c, at, re);
            tn_word_put<V>(c, at + s.f.K, im);
        }
    }
}

/* One tile, whose words are in registers. */
template <int V, class Note, class Meanwhile>
__device__ __forceinline__ void forward_tile(const tn_scan_fixed &s, const tn_tile &t, tn_tile_shared<V, WORDS> &shared,
                                             uint32_t *xr, uint32_t *xi, Note note, Meanwhile meanwhile)
{
    const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
    tn_link<V> a = tn_link_none<V>();
    if (s.f.chunks > 1) {
        if (t.plain) run<V, false, true>(s, t, q, xr, xi, a.re, a.im);
        else run<V, false, false>(s, t, q, xr, xi, a.re, a.im);
        tn_words_anew(xr), tn_words_anew(xi);
        note();
        a = tn_tile_enter<V, WORDS>(s.f, t, shared, link_of(s, t, a), meanwhile);
    } else {
        note();
        __syncthreads();
        meanwhile();
    }
    tn_tile_apply<V, WORDS>(s.f, t, shared, a, [&](float *re, float *im) {
        if (t.plain) run<V, true, true>(s, t, q, xr, xi, re, im);
        else run<V, true, false>(s, t, q, xr, xi, re, im);
    });
    if (tn_tile_ends(s.f, t)) tn_tile_leave<V>(s.f, t, s.final, a.re, a.im);
}

enum { AHEAD_BYTES = 2 * TN_TILE_PLANE_BYTES };

template <int V>
__device__ __forceinline__ void send_ahead(const tn_scan_fixed &s, unsigned i, unsigned tiles, uint32_t *ahead)
{
    if (i < tiles) {
        const tn_tile t = tn_tile_at<V>(s.f, i);
        tn_tile_send<V>(s.f, t, s.x, 0, 0, tn_tile_plane(ahead, t, 0));
        tn_tile_send<V>(s.f, t, s.x, 1, 0, tn_tile_plane(ahead, t, 1));
    }
    tn_copies_commit();
}

/* A block works through tiles; while it looks back from one, the words of the next are on their way. */
template <int V>
__global__ void __launch_bounds__(TN_TILE_THREADS, BLOCKS) forward_kernel(tn_scan_fixed s, unsigned tiles)
{
    extern __shared__ __align__(16) uint32_t ahead[];
    __shared__ tn_tile_shared<V, WORDS> shared;
    __shared__ unsigned next;
    if (threadIdx.x == 0) next = tn_tile_ticket(s.f, 0);
    __syncthreads();
    unsigned mine = next;
    send_ahead<V>(s, mine, tiles, ahead);
    __syncthreads();
    for (unsigned n = 1; mine < tiles; n++) {
        tn_tile t = tn_tile_at<V>(s.f, mine);
        uint32_t xr[PIECE], xi[PIECE];
        const uint32_t *from = tn_tile_plane(ahead, t, 0) + t.lane, *from_im = tn_tile_plane(ahead, t, 1) + t.lane;
        const unsigned taken = threadIdx.x == 0 ? tn_tile_ticket(s.f, n) : 0; /* on its way; nobody waits for it yet */
        const auto note = [&] {
            if (threadIdx.x == 0) next = taken;
        };
        const auto meanwhile = [&] { mine = next, send_ahead<V>(s, mine, tiles, ahead); };
        tn_tile_resets(s.f, t);
        tn_tile_arrived();
#pragma unroll
        for (int i = 0; i < PIECE; i++) xr[i] = from[i * TN_TILE_LANES], xi[i] = from_im[i * TN_TILE_LANES];
        if (t.lives) forward_tile<V>(s, t, shared, xr, xi, note, meanwhile);
        else {
            note();
            __syncthreads();
            meanwhile();
        }
        __syncthreads();
    }
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

template <int V>
struct reverse_words {
    uint32_t dr[PIECE], di[PIECE]; /* gradient of c */
};

/* What only the second run needs waits in shared memory: c before the token; x. */
enum { C_RE, C_IM, X_RE, X_IM };

static constexpr int late_bytes(bool gain) { return (gain ? 4 : 2) * TN_TILE_PLANE_BYTES; }

template <int V, bool PLAIN>
__device__ __forceinline__ void run_back(const tn_tile &t, const tn_scan_channel<V> &q, const reverse_words<V> &w,
                                         float *re, float *im)
{
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
        if (!PLAIN && i >= t.n) break;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float ar = __fadd_rn(re[v], tn_word_part<V>(w.dr[i], v)),
                        ai = __fadd_rn(im[v], tn_word_part<V>(w.di[i], v));
            const bool cut = !PLAIN && (t.reset >> i & 1);
            re[v] = cut ? 0.f : __fmaf_rn(-q.lambda[v].y, ai, __fmul_rn(q.lambda[v].x, ar));
            im[v] = cut ? 0.f : __fmaf_rn(q.lambda[v].y, ar, __fmul_rn(q.lambda[v].x, ai));
        }
    }
}

/* A piece with all that is wanted of it. late: this thread's words. */
template <int V, bool GAIN, bool PLAIN>
__device__ __forceinline__ void write_back(const tn_scan_fixed &s, const tn_tile &t, const tn_scan_channel<V> &q,
                                           const reverse_words<V> &w, const uint32_t *late, float *re, float *im,
                                           float (*sum)[V])
{
    enum { SIZE = V == 2 ? 2 : 4, PLANE = TN_TILE_CHUNK * TN_TILE_LANES };
    int64_t at = t.b * s.dx.b + tn_tile_token(s.f, t, 0) * s.dx.t + t.k;
    char *to_re = (char *)s.dx.at + at * SIZE, *to_im = to_re + s.f.K * SIZE;
#pragma unroll
    for (int i = 0; i < PIECE;
         i++, late += TN_TILE_LANES, at -= s.dx.t, to_re -= s.dx.t * SIZE, to_im -= s.dx.t * SIZE) {
        float cr[V], ci[V], wr[V], wi[V];
        if (!PLAIN && i >= t.n) break;
        const uint32_t xr = GAIN ? late[X_RE * PLANE] : 0u, xi = GAIN ? late[X_IM * PLANE] : 0u;
#pragma unroll
        for (int v = 0; v < V; v++)
            cr[v] = tn_word_part<V>(late[C_RE * PLANE], v), ci[v] = tn_word_part<V>(late[C_IM * PLANE], v);
        if ((!PLAIN || i == PIECE - 1) && t.step + i == s.f.T - 1) tn_scan_state_before<V>(s, t, cr, ci);
        tn_scan_step_back<V, GAIN>(q, !PLAIN && (t.reset >> i & 1), w.dr[i], w.di[i], cr, ci, xr, xi, re, im, sum, wr,
                                   wi);
        if (!s.dx.at || !t.on) continue;
        if (PLAIN && !s.dx.add) {
            *(uint32_t *)to_re = tn_word_of<V>(wr);
            *(uint32_t *)to_im = tn_word_of<V>(wi);
        } else {
            tn_word_put<V>(s.dx, at, wr);
            tn_word_put<V>(s.dx, at + s.f.K, wi);
        }
    }
}

template <int V, bool GAIN>
__device__ __forceinline__ void send_late(const tn_scan_fixed &s, const tn_tile &t, uint32_t *late)
{
    tn_tile_send<V>(s.f, t, s.c, 0, 1, tn_tile_plane(late, t, C_RE));
    tn_tile_send<V>(s.f, t, s.c, 1, 1, tn_tile_plane(late, t, C_IM));
    if (GAIN) {
        tn_tile_send<V>(s.f, t, s.x, 0, 0, tn_tile_plane(late, t, X_RE));
        tn_tile_send<V>(s.f, t, s.x, 1, 0, tn_tile_plane(late, t, X_IM));
    }
    tn_copies_commit();
}

template <int V, bool GAIN>
__global__ void __launch_bounds__(TN_TILE_THREADS, BLOCKS) backward_kernel(tn_scan_fixed s)
{
    extern __shared__ __align__(16) uint32_t late[];
    __shared__ tn_tile_shared<V, WORDS> shared;
    const tn_tile t = tn_tile_take<V>(s.f);
    if (s.partial) tn_sum_clear(s.sums);
    if (!t.lives) return;
    reverse_words<V> w;
    float sum[SUMS][V] = {};
    tn_tile_load<V>(s.f, t, s.dc, 0, w.dr);
    tn_tile_load<V>(s.f, t, s.dc, 1, w.di);
    send_late<V, GAIN>(s, t, late);
    const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
    tn_link<V> a = tn_link_none<V>();
    if (s.f.chunks > 1) {
        if (t.plain) run_back<V, true>(t, q, w, a.re, a.im);
        else run_back<V, false>(t, q, w, a.re, a.im);
        tn_words_anew(w.dr), tn_words_anew(w.di);
        a = tn_tile_enter<V, WORDS>(s.f, t, shared, link_of(s, t, a));
    }
    tn_tile_arrived();
    const uint32_t *mine = tn_tile_plane(late, t, 0) + t.lane;
    tn_tile_apply<V, WORDS>(s.f, t, shared, a, [&](float *re, float *im) {
        if (t.plain) write_back<V, GAIN, true>(s, t, q, w, mine, re, im, sum);
        else write_back<V, GAIN, false>(s, t, q, w, mine, re, im, sum);
    });
    if (tn_tile_ends(s.f, t)) tn_tile_leave<V>(s.f, t, s.dstate, a.re, a.im);
    if (s.partial) tn_tile_leave_sums<V, WORDS, SUMS>(s.f, t, sum, shared, s.partial);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static tn_tile_layout layout_of(int64_t B, int64_t T, int64_t K, bool backward)
{
    return tn_tile_layout_of(B, T, K, WORDS, sizeof(float2) * ROWS, SUMS, backward);
}

static bool per_channel(const tn_dims *rho, const tn_dims *omega, const tn_dims *gamma)
{
    return rho->rank == 1 && omega->rank == 1 && gamma->rank < 3;
}

extern "C" size_t tn_scan_work_cuda(const tn_sig *s, bool backward)
{
    const int64_t *d = s->in[TN_SCAN_X].dims.dim;
    const bool tiles = per_channel(&s->in[TN_SCAN_RHO].dims, &s->in[TN_SCAN_OMEGA].dims, &s->in[TN_SCAN_GAMMA].dims);
    if (!tiles || ((const tn_scan_attr *)s->attr)->plain) return tn_scan_step_work_cuda(d[0], d[2] / 2);
    const size_t tree = layout_of(d[0], d[1], d[2] / 2, backward).bytes,
                 stream = tn_scan_stream_work(d[0], d[1], d[2] / 2, backward);
    return tree > stream ? tree : stream;
}

static bool by_tiles(const tn_call *c)
{
    return !((const tn_scan_attr *)c->attr)->plain &&
           per_channel(&c->in[TN_SCAN_RHO].dims, &c->in[TN_SCAN_OMEGA].dims, &c->in[TN_SCAN_GAMMA].dims);
}

static tn_scan_fixed set_up(const tn_call *c, bool backward)
{
    const int64_t *d = c->in[TN_SCAN_X].dims.dim;
    char *work = (char *)c->work;
    tn_scan_fixed s = {};
    const tn_tile_layout l = layout_of(d[0], d[1], d[2] / 2, backward);
    s.f = tn_tile_frame_of(c, &c->in[TN_SCAN_X], &c->in[TN_SCAN_RESET], backward);
    s.x = tn_tile_of(&c->in[TN_SCAN_X], false);
    s.c = tn_tile_of(&c->out[0], false);
    s.gamma = tn_tile_of(&c->in[TN_SCAN_GAMMA], false);
    s.state = tn_tile_of(&c->in[TN_SCAN_STATE], false);
    s.table = (const float2 *)(work + l.table);
    s.f.power = s.table + LAMBDA_NODE * s.f.columns;
    s.sums = tn_tile_sums_of(c, &s.f, &l, SUMS, backward);
    return s;
}

static tn_status launch_prepare(const tn_call *c, const tn_scan_fixed *s)
{
    const tn_tile_layout l = layout_of(s->f.B, s->f.T, s->f.K, false);
    return tn_tile_prepare(c, &s->f, &l, &c->in[TN_SCAN_RHO], &c->in[TN_SCAN_OMEGA], prepare);
}

static tn_status launch_forward(const tn_call *c, tn_scan_fixed *s)
{
    const int V = tn_scan_fixed_choose(s);
    const unsigned tiles = tn_tile_blocks(&s->f, V);
    const unsigned most = (unsigned)tn_cuda_queue_of(c)->multiprocessors * BLOCKS, blocks = tiles < most ? tiles : most;
    void (*const kernel)(tn_scan_fixed, unsigned) = V == 2 ? forward_kernel<2> : forward_kernel<1>;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)kernel, AHEAD_BYTES));
    kernel<<<blocks, TN_TILE_THREADS, AHEAD_BYTES, tn_cuda_stream(c)>>>(*s, tiles);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_scan_forward_cuda(const tn_call *c)
{
    if (!by_tiles(c)) return tn_scan_step_forward_cuda(c);
    tn_scan_fixed s = set_up(c, false);
    if (!s.f.B || !s.f.K) return TN_OK;
    s.f.first = s.state;
    s.final = tn_tile_of(&c->out[1], false);
    if (tn_scan_streams(c, s.f.T)) return tn_scan_stream_forward(c, &s);
    TN_RETURN_IF(launch_prepare(c, &s));
    return launch_forward(c, &s);
}

static tn_status launch_backward(const tn_call *c, tn_scan_fixed *s, bool gain)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int V = tn_scan_fixed_choose(s);
    const unsigned blocks = tn_tile_blocks(&s->f, V);
    const int bytes = late_bytes(gain);
    void (*const kernel)(tn_scan_fixed) = V == 2 ? gain ? backward_kernel<2, true> : backward_kernel<2, false>
                                          : gain ? backward_kernel<1, true>
                                                 : backward_kernel<1, false>;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)kernel, bytes));
    kernel<<<blocks, TN_TILE_THREADS, bytes, stream>>>(*s);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_scan_backward_cuda(const tn_call *c)
{
    if (!by_tiles(c)) return tn_scan_step_backward_cuda(c);
    tn_scan_fixed s = set_up(c, true);
    if (!s.f.K) return TN_OK;
    s.dc = tn_tile_of(&c->dout[0], false);
    s.f.first = tn_tile_of(&c->dout[1], false);
    s.dx = tn_tile_of(&c->din[TN_SCAN_X], c->accumulate >> TN_SCAN_X & 1);
    s.dstate = tn_tile_of(&c->din[TN_SCAN_STATE], c->accumulate >> TN_SCAN_STATE & 1);
    tn_scan_gradients g = {};
    g.rho = tn_tile_of(&c->in[TN_SCAN_RHO], false), g.omega = tn_tile_of(&c->in[TN_SCAN_OMEGA], false), g.K = s.f.K;
    g.drho = tn_tile_of(&c->din[TN_SCAN_RHO], c->accumulate >> TN_SCAN_RHO & 1);
    g.domega = tn_tile_of(&c->din[TN_SCAN_OMEGA], c->accumulate >> TN_SCAN_OMEGA & 1);
    g.dgamma = tn_tile_of(&c->din[TN_SCAN_GAMMA], c->accumulate >> TN_SCAN_GAMMA & 1);
    const bool lambda = g.drho.at || g.domega.at, gain = g.dgamma.at;
    if (!lambda) s.c.at = NULL;
    if (!gain) s.x.at = NULL;
    if (lambda || gain) s.partial = (float *)(uintptr_t)s.sums.partial;
    if (s.f.B && tn_scan_streams(c, s.f.T)) {
        TN_RETURN_IF(tn_scan_stream_backward(c, &s, gain));
    } else if (s.f.B) {
        TN_RETURN_IF(launch_prepare(c, &s));
        TN_RETURN_IF(launch_backward(c, &s, gain));
    }
    return s.partial ? tn_sum_rows_run<SUMS>(c, &s.sums, g) : TN_OK;
}
