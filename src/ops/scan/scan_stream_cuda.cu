/* scan on the GPU, coefficients per channel, rows of more than one tile: one pass over memory with three tiles under way
 * (scan_stream.cuh). Forward: c = lambda c + gamma x. Backward, in steps of falling time: a = dc + g, dx = gamma a, g =
 * conj(lambda) a, and sums over tokens of a conj(c before) and Re(a conj(x)), through sum_rows.cuh.
 *
 * Bytes per token and complex channel in bf16: forward 8, backward 12 (16 with the gradient of gamma), plus 5 x 8 per chunk
 * for what travels between blocks (256 tokens forward, 128 backward: 2 %) and 24 per chunk for partial sums.
 *
 * Measured on an H200, of copy bandwidth: one row of 1 M tokens, K = 128: 64 % forward, 68 % backward (the tree of
 * scan_cuda.cu: 15, 50); 64 rows of 1024: 47, 39 (39, 35); 1024 rows of 1024, where no block waits for another: 72, 71. A
 * warp executes 84 instructions a token forward and 191 backward, of which the two runs are about half; the rest finds addresses and
 * constants of tiles. Chunks half as long were slower: those that walk manage one in some 70 ns. */
#include "ops/scan/scan.h"
#include "ops/scan/scan_fixed.cuh"
#include "ops/scan/scan_stream.cuh"

namespace
{

enum { WARPS = 16, FORWARD_PIECE = 16, BACK_PIECE = 8 };
enum { ROWS = TN_STREAM_POWER + WARPS + 1 };
enum { OWN_CHAINS = 96 }; /* rows by groups of channels that keep the multiprocessors busy on their own */

/* lambda in double, rounded once; powers of the rounded number. */
__global__ void prepare(tn_tile_tensor rho, tn_tile_tensor omega, int64_t K, int64_t columns, int piece, int warps,
                        bool conjugate, float2 *table, double2 *wide, uint4 *zero, int64_t zeros)
{
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t j = i; j < zeros; j += step) zero[j] = make_uint4(0, 0, 0, 0);
    for (int64_t k = i; k < columns; k += step) {
        const double r = k < K ? (double)tn_load(rho.at, rho.type, k) : 0,
                     w = k < K ? (double)tn_load(omega.at, omega.type, k) : 0;
        const double2 lambda =
            make_double2((double)(float)(r * cos(w)), (conjugate ? -1 : 1) * (double)(float)(r * sin(w)));
        table[TN_STREAM_LAMBDA * columns + k] = make_float2((float)lambda.x, (float)lambda.y);
        double2 unit = lambda, power = make_double2(1, 0);
        for (int n = 1; n < piece; n *= 2) unit = make_double2(unit.x * unit.x - unit.y * unit.y, 2 * unit.x * unit.y);
        for (int row = 0; row <= warps; row++) {
            table[(TN_STREAM_POWER + row) * columns + k] = make_float2((float)power.x, (float)power.y);
            wide[k] = power;
            power = make_double2(power.x * unit.x - power.y * unit.y, power.x * unit.y + power.y * unit.x);
        }
    }
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

enum { RE, IM };

template <int V_, int PIECE_ = FORWARD_PIECE, int WARPS_ = WARPS>
struct forward {
    enum { V = V_, PIECE = PIECE_, WARPS = WARPS_, PLANES = 2, LATE = 0, SUMS = 0 };
    enum { PLANE = PIECE * TN_TILE_LANES * WARPS, SIZE = V == 2 ? 2 : 4 };
    const tn_scan_fixed &s;

    __device__ void send(const tn_tile_frame &f, const tn_tile &t, int p, uint32_t *to) const
    {
        tn_tile_send<V, PIECE>(f, t, s.x, p, 0, to);
    }
    __device__ void send_late(const tn_tile_frame &, const tn_tile &, int, uint32_t *) const {}
    __device__ void keep(float *) const {}

    template <bool WRITE, bool PLAIN>
    __device__ __forceinline__ void run(const tn_tile &t, const tn_scan_channel<V> &q, const uint32_t *w, float *re,
                                        float *im) const
    {
        int64_t at = t.b * s.c.b + t.step * s.c.t + t.k;
        char *to_re = (char *)s.c.at + at * SIZE, *to_im = to_re + s.f.K * SIZE;
        tn_tile_tensor c = s.c;
        c.add = false; /* for the compiler to see */
#pragma unroll
        for (int i = 0; i < PIECE; i++, w += TN_TILE_LANES) {
            if (WRITE && !PLAIN && i >= t.n) break;
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (!PLAIN && (t.reset >> i & 1)) re[v] = im[v] = 0;
                const float r = re[v], x = tn_word_part<V>(w[RE * PLANE], v), y = tn_word_part<V>(w[IM * PLANE], v);
                const float zr = WRITE ? __fmul_rn(q.gamma[v], x) : x, zi = WRITE ? __fmul_rn(q.gamma[v], y) : y;
                re[v] = __fmaf_rn(-q.lambda[v].y, im[v], __fmaf_rn(q.lambda[v].x, r, zr));
                im[v] = __fmaf_rn(q.lambda[v].y, r, __fmaf_rn(q.lambda[v].x, im[v], zi));
            }
            if (WRITE && PLAIN) {
                *(uint32_t *)to_re = tn_word_of<V>(re);
                *(uint32_t *)to_im = tn_word_of<V>(im);
                to_re += s.c.t * SIZE, to_im += s.c.t * SIZE;
            } else if (WRITE && t.on) {
                tn_word_put<V>(c, at, re);
                tn_word_put<V>(c, at + s.f.K, im);
                at += s.c.t;
            }
        }
    }

    /* From zero; gamma once, at the end. */
    __device__ __forceinline__ void first(const tn_tile &t, const uint32_t *w, float *re, float *im) const
    {
        const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
#pragma unroll
        for (int v = 0; v < V; v++) re[v] = im[v] = 0;
        if (t.plain) run<false, true>(t, q, w, re, im);
        else run<false, false>(t, q, w, re, im);
#pragma unroll
        for (int v = 0; v < V; v++) re[v] = __fmul_rn(q.gamma[v], re[v]), im[v] = __fmul_rn(q.gamma[v], im[v]);
    }

    __device__ __forceinline__ void second(const tn_tile &t, const uint32_t *w, const uint32_t *, float *re,
                                           float *im) const
    {
        const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
        if (t.plain) run<true, true>(t, q, w, re, im);
        else run<true, false>(t, q, w, re, im);
        if (t.n > 0 && t.step + t.n == s.f.T) tn_tile_leave<V>(s.f, t, s.final, re, im);
    }
};

template <class Op, int BLOCKS>
__global__ void __launch_bounds__(Op::WARPS *TN_TILE_LANES, BLOCKS)
    kernel(TN_GRID tn_scan_fixed s, TN_GRID tn_stream_frame q)
{
    extern __shared__ __align__(16) char memory[];
    Op op = { s };
    if (Op::SUMS > 0 && s.partial) tn_sum_clear(s.sums);
    tn_stream_run(op, q, *(tn_stream_memory<Op> *)memory, s.partial);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* What only the second run needs: c before the token; x. */
enum { C_RE, C_IM, X_RE, X_IM };

template <int V_, bool GAIN, int PIECE_ = BACK_PIECE, int WARPS_ = WARPS>
struct backward {
    enum { V = V_, PIECE = PIECE_, WARPS = WARPS_, PLANES = 2, LATE = GAIN ? 4 : 2, SUMS = TN_SCAN_FIXED_SUMS };
    enum { PLANE = PIECE * TN_TILE_LANES * WARPS, SIZE = V == 2 ? 2 : 4 };
    const tn_scan_fixed &s;
    float sum[SUMS][V];

    __device__ void send(const tn_tile_frame &f, const tn_tile &t, int p, uint32_t *to) const
    {
        tn_tile_send<V, PIECE>(f, t, s.dc, p, 0, to);
    }

    __device__ void send_late(const tn_tile_frame &f, const tn_tile &t, int p, uint32_t *to) const
    {
        if (p < X_RE) tn_tile_send<V, PIECE>(f, t, s.c, p, 1, to);
        else tn_tile_send<V, PIECE>(f, t, s.x, p - X_RE, 0, to);
    }

    __device__ void keep(float *to) const
    {
#pragma unroll
        for (int i = 0; i < SUMS; i++)
#pragma unroll
            for (int v = 0; v < V; v++) to[i * TN_TILE_LANES * V + v] = sum[i][v];
    }

    template <bool PLAIN>
    __device__ __forceinline__ void run(const tn_tile &t, const tn_scan_channel<V> &q, const uint32_t *w, float *re,
                                        float *im) const
    {
#pragma unroll
        for (int i = 0; i < PIECE; i++, w += TN_TILE_LANES)
#pragma unroll
            for (int v = 0; v < V; v++) {
                const float ar = __fadd_rn(re[v], tn_word_part<V>(w[RE * PLANE], v)),
                            ai = __fadd_rn(im[v], tn_word_part<V>(w[IM * PLANE], v));
                const bool cut = !PLAIN && (t.reset >> i & 1);
                re[v] = cut ? 0.f : __fmaf_rn(-q.lambda[v].y, ai, __fmul_rn(q.lambda[v].x, ar));
                im[v] = cut ? 0.f : __fmaf_rn(q.lambda[v].y, ar, __fmul_rn(q.lambda[v].x, ai));
            }
    }

    __device__ __forceinline__ void first(const tn_tile &t, const uint32_t *w, float *re, float *im) const
    {
        const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
#pragma unroll
        for (int v = 0; v < V; v++) re[v] = im[v] = 0;
        if (t.plain) run<true>(t, q, w, re, im);
        else run<false>(t, q, w, re, im);
    }

    /* A piece with all that is wanted of it. */
    template <bool PLAIN>
    __device__ __forceinline__ void write(const tn_tile &t, const tn_scan_channel<V> &q, const uint32_t *w,
                                          const uint32_t *late, float *re, float *im)
    {
        int64_t at = t.b * s.dx.b + tn_tile_token(s.f, t, 0) * s.dx.t + t.k;
        char *to_re = (char *)s.dx.at + at * SIZE, *to_im = to_re + s.f.K * SIZE;
#pragma unroll
        for (int i = 0; i < PIECE; i++, w += TN_TILE_LANES, late += TN_TILE_LANES) {
            float cr[V], ci[V], wr[V], wi[V];
            if (!PLAIN && i >= t.n) break;
            const uint32_t xr = GAIN ? late[X_RE * PLANE] : 0u, xi = GAIN ? late[X_IM * PLANE] : 0u;
#pragma unroll
            for (int v = 0; v < V; v++)
                cr[v] = tn_word_part<V>(late[C_RE * PLANE], v), ci[v] = tn_word_part<V>(late[C_IM * PLANE], v);
            if ((!PLAIN || i == PIECE - 1) && t.step + i == s.f.T - 1) tn_scan_state_before<V>(s, t, cr, ci);
            tn_scan_step_back<V, GAIN>(q, !PLAIN && (t.reset >> i & 1), w[RE * PLANE], w[IM * PLANE], cr, ci, xr, xi,
                                       re, im, sum, wr, wi);
            if (s.dx.at && PLAIN && !s.dx.add) {
                *(uint32_t *)to_re = tn_word_of<V>(wr);
                *(uint32_t *)to_im = tn_word_of<V>(wi);
            } else if (s.dx.at && t.on) {
                tn_word_put<V>(s.dx, at, wr);
                tn_word_put<V>(s.dx, at + s.f.K, wi);
            }
            at -= s.dx.t, to_re -= s.dx.t * SIZE, to_im -= s.dx.t * SIZE;
        }
    }

    __device__ __forceinline__ void second(const tn_tile &t, const uint32_t *w, const uint32_t *late, float *re,
                                           float *im)
    {
        const tn_scan_channel<V> q = tn_scan_channel_of<V>(s, t);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
#pragma unroll
            for (int v = 0; v < V; v++) sum[i][v] = 0;
        if (t.plain) write<true>(t, q, w, late, re, im);
        else write<false>(t, q, w, late, re, im);
        if (t.n > 0 && t.step + t.n == s.f.T) tn_tile_leave<V>(s.f, t, s.dstate, re, im);
    }
};

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int chunk_of(bool backward) { return WARPS * (backward ? BACK_PIECE : FORWARD_PIECE); }

static int64_t chunks_of(int64_t T, bool backward)
{
    return T > 0 ? (T + chunk_of(backward) - 1) / chunk_of(backward) : 1;
}

typedef struct layout {
    size_t left, enter, table, wide, partial, sums, bytes; /* from the start to table: zeros before a launch */
} layout;

static layout layout_of(int64_t B, int64_t T, int64_t K, bool backward)
{
    const int64_t columns = tn_tile_padded(K), chunks = chunks_of(T, backward);
    const size_t words = chunks > 1 ? sizeof(unsigned long long) * (size_t)(B * chunks * columns) : 0;
    layout l = { 64 };
    l.enter = l.left + words;
    l.table = l.enter + words;
    l.wide = l.table + sizeof(float2) * (size_t)(ROWS * columns);
    l.partial = l.wide + sizeof(double2) * (size_t)columns;
    l.sums = l.partial + (backward ? sizeof(float) * (size_t)(B * chunks * TN_SCAN_FIXED_SUMS * columns) : 0);
    l.bytes = l.sums + (backward ? tn_sum_bytes(TN_SCAN_FIXED_SUMS, columns) : 0);
    return l;
}

size_t tn_scan_stream_work(int64_t B, int64_t T, int64_t K, bool backward)
{
    return layout_of(B, T, K, backward).bytes;
}

bool tn_scan_streams(const tn_call *c, int64_t T)
{
    const int major = tn_cuda_queue_of(c)->major;
    return (major == 9 || major == 10) && T > TN_TILE_CHUNK;
}

/* Where things lie, and who adds up; then the table, and zeros where they are needed. */
static tn_status prepare_stream(const tn_call *c, tn_scan_fixed *s, int V, tn_stream_frame *q)
{
    enum { THREADS = 256 };
    char *work = (char *)c->work;
    const bool backward = s->f.reverse;
    const layout l = layout_of(s->f.B, s->f.T, s->f.K, backward);
    s->f.chunks = (int)chunks_of(s->f.T, backward);
    s->f.groups = (s->f.K + TN_TILE_LANES * V - 1) / (TN_TILE_LANES * V);
    s->table = (const float2 *)(work + l.table);
    q->own = s->f.chunks == 1 || s->f.B * s->f.groups >= OWN_CHAINS;
    q->walkers = q->own ? 0 : tn_stream_walkers(s->f.K, WARPS);
    q->left = (unsigned long long *)(work + l.left), q->enter = (unsigned long long *)(work + l.enter);
    q->table = s->table, q->wide = (const double2 *)(work + l.wide);
    q->f = s->f;
    const int64_t zeros = (int64_t)((q->own ? l.left : l.table) / 16),
                  most = zeros > s->f.columns ? zeros : s->f.columns;
    prepare<<<tn_blocks(c, most, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(
        tn_tile_of(&c->in[TN_SCAN_RHO], false), tn_tile_of(&c->in[TN_SCAN_OMEGA], false), s->f.K, s->f.columns,
        backward ? BACK_PIECE : FORWARD_PIECE, WARPS, backward, (float2 *)(uintptr_t)s->table,
        (double2 *)(uintptr_t)q->wide, (uint4 *)work, zeros);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <class Op>
static tn_status launch(const tn_call *c, const tn_scan_fixed *s, const tn_stream_frame *q)
{
    enum { BYTES = sizeof(tn_stream_memory<Op>) };
    static_assert((int)BYTES <= 227 * 1024, "shared memory");
    const int64_t tiles = s->f.B * s->f.groups * (q->own ? 1 : s->f.chunks) + q->walkers,
                  most = tn_cuda_queue_of(c)->multiprocessors;
    void (*const run)(tn_scan_fixed, tn_stream_frame) = kernel<Op, 1>;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)run, BYTES));
    run<<<(unsigned)(tiles < most ? tiles : most), WARPS * TN_TILE_LANES, BYTES, tn_cuda_stream(c)>>>(*s, *q);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_scan_stream_forward(const tn_call *c, tn_scan_fixed *s)
{
    const int V = tn_scan_fixed_choose(s);
    tn_stream_frame q = {};
    TN_RETURN_IF(prepare_stream(c, s, V, &q));
    return V == 2 ? launch<forward<2>>(c, s, &q) : launch<forward<1>>(c, s, &q);
}

tn_status tn_scan_stream_backward(const tn_call *c, tn_scan_fixed *s, bool gain)
{
    const int V = tn_scan_fixed_choose(s);
    tn_stream_frame q = {};
    TN_RETURN_IF(prepare_stream(c, s, V, &q));
    const layout l = layout_of(s->f.B, s->f.T, s->f.K, true);
    s->sums.partial = (const float *)((char *)c->work + l.partial), s->sums.parts = s->f.chunks;
    tn_sum_place(&s->sums, TN_SCAN_FIXED_SUMS, (char *)c->work + l.sums);
    if (s->partial) s->partial = (float *)(uintptr_t)s->sums.partial;
    if (V == 2) return gain ? launch<backward<2, true>>(c, s, &q) : launch<backward<2, false>>(c, s, &q);
    return gain ? launch<backward<1, true>>(c, s, &q) : launch<backward<1, false>>(c, s, &q);
}
