/* delta on the GPU, gradients (delta_cuda.cuh has what is common; the formulas are in delta_back.c). After pairs and a walk
 * forwards, which keeps S before every chunk and U:
 *
 *   back_kernel   a block per head and 32 columns, along the chunks from the last: Y, dV = diag(beta) Y, and dL/dS behind
 *                 every chunk; the gradient of the state before all
 *   token_kernel  a block per chunk: all other gradients, from what the walks kept. 16 columns of the states at a time;
 *                 every thread has one row of the state for some of the tokens in registers. */
#include "ops/delta/delta_cuda.cuh"

namespace
{

enum { C = TN_DELTA_C, THREADS = TN_DELTA_THREADS, SLICE = TN_DELTA_SLICE, SIDE = C + 1, WARPS = TN_DELTA_WARPS };
enum { MINE = TN_DELTA_MINE, SHARERS = THREADS / C };
enum { FEW = 16, STEP = 20 }; /* columns at a time; numbers from row to row: no bank twice */

/* --- along the chunks --------------------------------------------------------------------------------------------- */

template <int N>
struct room {
    float key[C * N], query[C * N], led[C * N], g[N * SLICE], all[N];
    union {
        float decay[C * N];
        float asked[C * SLICE]; /* when decays have been multiplied in: dL/dW by outputs and the state behind */
    };
    float d_o[C * SLICE], x[C * SLICE]; /* x: diag(beta) Y */
    float backward[TN_DELTA_ALL], m[TN_DELTA_ALL], beta[C];
    uint32_t starts;
};
static_assert(sizeof(room<TN_DELTA_MOST>) <= TN_SHARED_BYTES, "a block's shared memory on every GPU");

template <int N>
__device__ __forceinline__ void load_chunk(const tn_delta_walk &w, const tn_delta_place &at, int column, room<N> &r)
{
    if (threadIdx.x < 32) {
        const uint32_t found = tn_delta_starts(w.z, at);
        if (threadIdx.x == 0) r.starts = found;
        r.beta[threadIdx.x] = tn_delta_get(w.z, w.z.beta, at, threadIdx.x, 0);
    }
    tn_delta_rows<N>(w.z, w.z.k, at, r.key);
    tn_delta_rows<N>(w.z, w.z.q, at, r.query);
    tn_delta_decays<N>(w.z, at, r.decay);
    tn_delta_columns(w.z, w.d_o, at, column, r.d_o);
    tn_delta_square(w.z, at, w.z.backward, r.backward);
    tn_delta_square(w.z, at, w.z.m, r.m);
    __syncthreads();
    tn_delta_spread<N>(r.key, r.query, r.decay, r.led, r.all);
    __syncthreads();
}

template <int N>
__device__ __forceinline__ void solve_back(const tn_delta_walk &w, const tn_delta_place &at, int column, room<N> &r)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool there = column + lane < w.z.P;
    float left[MINE];
    tn_delta_read<N>(r.key, r.g, left);
#pragma unroll
    for (int x = 0; x < MINE; x++) {
        const int j = warp + x * WARPS, end = tn_delta_end(r.starts, j);
        float sum = tn_delta_leaves(r.starts, j) ? left[x] : 0.f;
        for (int i = j; i < end; i++) sum = __fmaf_rn(r.m[i * SIDE + j], r.d_o[i * SLICE + lane], sum);
        r.asked[j * SLICE + lane] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int x = 0; x < MINE; x++) {
        const int j = warp + x * WARPS, end = tn_delta_end(r.starts, j);
        float y = 0;
        for (int i = j; i < end; i++) y = __fmaf_rn(r.backward[i * SIDE + j], r.asked[i * SLICE + lane], y);
        const float by_beta = __fmul_rn(r.beta[j], y);
        r.x[j * SLICE + lane] = by_beta;
        if (!there) continue;
        if (w.y) w.y[((at.head * w.z.chunks + at.chunk) * C + j) * w.z.P + column + lane] = y;
        tn_delta_set(w.z, w.dv, at, j, column + lane, by_beta);
    }
    __syncthreads();
}

/* dL/dS of this warp's rows from behind the chunk to before it. */
template <int N>
__device__ __forceinline__ void carry_back(const tn_delta_walk &w, const tn_delta_place &at, int column, room<N> &r)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int end = r.starts ? __ffs((int)r.starts) - 1 : C; /* tokens up to there see the state before the chunk */
    for (int n = warp * 4; n < N; n += WARPS * 4) {
        float *g = &r.g[n * SLICE + lane], sum[4];
        for (int e = 0; e < 4; e++) {
            if (w.behind && n + e < w.z.N && column + lane < w.z.P)
                w.behind[((at.head * w.z.chunks + at.chunk) * w.z.N + n + e) * w.z.P + column + lane] = g[e * SLICE];
            sum[e] = r.starts ? 0.f : __fmul_rn(r.all[n + e], g[e * SLICE]);
        }
        for (int i = 0; i < end; i++) {
            tn_delta_add4(sum, r.query + i * N + n, r.d_o[i * SLICE + lane]);
            tn_delta_add4(sum, r.led + i * N + n, -r.x[i * SLICE + lane]);
        }
        for (int e = 0; e < 4; e++) g[e * SLICE] = sum[e];
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS) back_kernel(TN_GRID tn_delta_walk w)
{
    extern __shared__ __align__(16) float memory[];
    room<N> &r = *(room<N> *)memory;
    const int column = blockIdx.y * SLICE, lane = threadIdx.x % 32;
    const tn_delta_place all = tn_delta_place_of(w.z, blockIdx.x, 0);
    const bool there = column + lane < w.z.P;
    for (int n = threadIdx.x / 32; n < N; n += WARPS) {
        const bool given = there && n < w.z.N && w.d_final.at;
        const int64_t from = tn_head_place(w.d_final, all.b, all.h, n, column + lane);
        r.g[n * SLICE + lane] = given ? tn_load(w.d_final.at, w.d_final.type, from) : 0.f;
    }
    for (int chunk = w.z.chunks; chunk-- > 0;) {
        const tn_delta_place at = tn_delta_place_of(w.z, blockIdx.x, chunk);
        load_chunk(w, at, column, r);
        solve_back(w, at, column, r);
        carry_back(w, at, column, r);
        __syncthreads();
    }
    for (int n = threadIdx.x / 32; w.dstate.at && there && n < w.z.N; n += WARPS)
        tn_put(w.dstate.at, w.dstate.type, tn_head_place(w.dstate, all.b, all.h, n, column + lane),
               r.g[n * SLICE + lane], w.dstate.add);
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

typedef struct gradients {
    tn_delta_shape z;
    tn_head_tensor d_o, dq, dk, dalpha, dbeta;
    const float *states, *behind, *u, *y; /* as the walks left them */
} gradients;

template <int N>
struct desk {
    float key[C * N], query[C * N], decay[C * N];
    union {
        struct {
            float state[N * STEP], behind[N * STEP], u[C * STEP], y[C * STEP], d_o[C * STEP];
        } few; /* columns at a time */
        struct {
            float lead[C * N], tail[C * N];
        } along; /* decays from the chunk's beginning, to its end; then parts of alpha's gradient */
    } at;
    float by_key[TN_DELTA_ALL], by_query[TN_DELTA_ALL]; /* dL/dA, dL/dM */
    float beta[C], all[N];
    uint32_t starts;
};
static_assert(sizeof(desk<TN_DELTA_MOST>) <= TN_SHARED_BYTES, "a block's shared memory on every GPU");

/* What this thread adds up over columns: row n of the state, tokens i = group, group + GROUPS, ... */
template <int N>
struct sums {
    enum { GROUPS = THREADS / N, MANY = C / GROUPS };
    float key[MANY], query[MANY], out[MANY], through; /* dL/d of what keys and queries read, of what keys write; S G */
    float uy[C / SHARERS], du[C / SHARERS];           /* Y U^T and dO U^T of token i = thread / 8 and every eighth j */
};

template <int N>
__device__ __forceinline__ void load_few(const gradients &a, const tn_delta_place &at, int column, desk<N> &d)
{
    const tn_delta_shape &z = a.z;
    const int64_t chunk = at.head * z.chunks + at.chunk;
    for (int k = threadIdx.x; k < N * FEW; k += THREADS) {
        const int n = k / FEW, p = column + k % FEW, to = n * STEP + k % FEW;
        const bool there = n < z.N && p < z.P;
        d.at.few.state[to] = there ? a.states[(chunk * z.N + n) * z.P + p] : 0.f;
        d.at.few.behind[to] = there ? a.behind[(chunk * z.N + n) * z.P + p] : 0.f;
    }
    for (int k = threadIdx.x; k < C * FEW; k += THREADS) {
        const int i = k / FEW, p = column + k % FEW, to = i * STEP + k % FEW;
        const bool there = p < z.P;
        d.at.few.u[to] = there ? a.u[(chunk * C + i) * z.P + p] : 0.f;
        d.at.few.y[to] = there ? a.y[(chunk * C + i) * z.P + p] : 0.f;
        d.at.few.d_o[to] = there ? tn_delta_get(z, a.d_o, at, i, p) : 0.f;
    }
}

__device__ __forceinline__ float dot4(float4 a, float4 b, float sum)
{
    sum = __fmaf_rn(a.x, b.x, sum);
    sum = __fmaf_rn(a.y, b.y, sum);
    sum = __fmaf_rn(a.z, b.z, sum);
    return __fmaf_rn(a.w, b.w, sum);
}

__device__ __forceinline__ float4 four(const float *rows, int row, int p)
{
    return *(const float4 *)(rows + row * STEP + p);
}

template <int N>
__device__ __forceinline__ void add_few(const desk<N> &d, sums<N> &s)
{
    const int n = threadIdx.x % N, group = threadIdx.x / N, i = threadIdx.x / SHARERS, part = threadIdx.x % SHARERS;
    for (int p = 0; p < FEW; p += 4) {
        const float4 y = four(d.at.few.y, i, p), d_o = four(d.at.few.d_o, i, p);
#pragma unroll
        for (int x = 0; x < C / SHARERS; x++) {
            const float4 u = four(d.at.few.u, part + x * SHARERS, p);
            s.uy[x] = dot4(y, u, s.uy[x]);
            s.du[x] = dot4(d_o, u, s.du[x]);
        }
        const float4 state = four(d.at.few.state, n, p), behind = four(d.at.few.behind, n, p);
        s.through = dot4(state, behind, s.through);
#pragma unroll
        for (int x = 0; x < sums<N>::MANY; x++) {
            const int t = group + x * sums<N>::GROUPS;
            s.key[x] = dot4(four(d.at.few.y, t, p), state, s.key[x]);
            s.query[x] = dot4(four(d.at.few.d_o, t, p), state, s.query[x]);
            s.out[x] = dot4(four(d.at.few.u, t, p), behind, s.out[x]);
        }
    }
}

/* Pairs to the desk, where the later one sees the earlier; beta's gradient, the pairs of a token with itself. */
template <int N>
__device__ __forceinline__ void put_pairs(const gradients &a, const tn_delta_place &at, const sums<N> &s, desk<N> &d)
{
    const int i = threadIdx.x / SHARERS, part = threadIdx.x % SHARERS, begin = tn_delta_begin(d.starts, i);
#pragma unroll
    for (int x = 0; x < C / SHARERS; x++) {
        const int j = part + x * SHARERS;
        const bool sees = j >= begin && j <= i;
        d.by_key[i * SIDE + j] = sees && j < i ? -__fmul_rn(__fmul_rn(d.beta[i], d.beta[j]), s.uy[x]) : 0.f;
        d.by_query[i * SIDE + j] = sees ? __fmul_rn(d.beta[j], s.du[x]) : 0.f;
        if (i == j) tn_delta_set(a.z, a.dbeta, at, i, 0, s.uy[x]);
    }
}

/* Decays from the chunk's beginning and to its end, a thread for each row. */
template <int N>
__device__ __forceinline__ void put_decays(desk<N> &d)
{
    const int n = threadIdx.x;
    if (n >= N) return;
    float lead = 1, tail = 1;
    for (int i = 0; i < C; i++) {
        lead = __fmul_rn(lead, d.decay[i * N + n]);
        d.at.along.lead[i * N + n] = lead;
    }
    for (int i = C; i-- > 0;) {
        d.at.along.tail[i * N + n] = tail;
        tail = __fmul_rn(tail, d.decay[i * N + n]);
    }
    d.all[n] = lead;
}

/* Token i and row n: dq and dk; in `along`, what it has of those up to it, and of those after it. */
template <int N>
__device__ __forceinline__ void put_token(const gradients &a, const tn_delta_place &at, int i, int n, float read_key,
                                          float read_query, float out, desk<N> &d)
{
    const float key = d.key[i * N + n], query = d.query[i * N + n];
    const int begin = tn_delta_begin(d.starts, i), end = tn_delta_end(d.starts, i);
    float by_key = 0, by_query = 0, earlier = 0, decay = 1;
    for (int j = i - 1; j >= begin; j--) {
        decay = __fmul_rn(decay, d.decay[(j + 1) * N + n]);
        const float x = __fmul_rn(d.key[j * N + n], decay);
        by_key = __fmaf_rn(d.by_key[i * SIDE + j], x, by_key);
        by_query = __fmaf_rn(d.by_query[i * SIDE + j], x, by_query);
    }
    decay = 1;
    for (int j = i + 1; j < end; j++) {
        decay = __fmul_rn(decay, d.decay[j * N + n]);
        const float x = __fmaf_rn(d.by_key[j * SIDE + i], d.key[j * N + n],
                                  __fmul_rn(d.by_query[j * SIDE + i], d.query[j * N + n]));
        earlier = __fmaf_rn(x, decay, earlier);
    }
    if (tn_delta_reads(d.starts, i)) {
        const float lead = d.at.along.lead[i * N + n];
        by_key = __fmaf_rn(-__fmul_rn(d.beta[i], read_key), lead, by_key);
        by_query = __fmaf_rn(read_query, lead, by_query);
    }
    const float write =
        tn_delta_leaves(d.starts, i) ? __fmul_rn(__fmul_rn(d.beta[i], out), d.at.along.tail[i * N + n]) : 0.f;
    const float same = d.by_query[i * SIDE + i];
    d.at.along.lead[i * N + n] = __fmaf_rn(query, by_query, __fmul_rn(key, by_key - earlier));
    d.at.along.tail[i * N + n] = __fmul_rn(key, write);
    if (n >= a.z.N) return;
    tn_delta_set(a.z, a.dq, at, i, n, __fmaf_rn(same, key, by_query));
    tn_delta_set(a.z, a.dk, at, i, n, __fmaf_rn(same, query, by_key + earlier + write));
}

/* alpha_t decays what passes from before t to t or after it: by the later token, added up from the end of its document; by
 * the earlier one, and S passing through, from the chunk's beginning. Left in place of `lead`. A thread for each row. */
template <int N>
__device__ __forceinline__ void add_alpha(float through, desk<N> &d)
{
    const int n = threadIdx.x;
    double later = 0, passing = d.starts ? 0. : (double)through * (double)d.all[n];
    for (int t = C; t-- > 0;) {
        if (t + 1 < C && d.starts >> (t + 1) & 1) later = 0;
        later += (double)d.at.along.lead[t * N + n];
        d.at.along.lead[t * N + n] = (float)later;
    }
    for (int t = 0; t < C; t++) {
        const bool start = d.starts >> t & 1;
        if (start) passing = 0;
        const double sum = (double)d.at.along.lead[t * N + n] + passing;
        passing += (double)d.at.along.tail[t * N + n];
        d.at.along.lead[t * N + n] = start ? 0.f : (float)sum;
    }
}

template <int N>
__device__ __forceinline__ void put_alpha(const gradients &a, const tn_delta_place &at, const desk<N> &d)
{
    if (a.z.by_row) {
        for (int k = threadIdx.x; k < C * N; k += THREADS)
            if (k % N < a.z.N) tn_delta_set(a.z, a.dalpha, at, k / N, k % N, d.at.along.lead[k]);
        return;
    }
    for (int t = threadIdx.x / 32; t < C; t += WARPS) {
        float sum = 0;
        for (int n = threadIdx.x % 32; n < N; n += 32) sum += d.at.along.lead[t * N + n];
        sum = tn_warp_sum(sum);
        if (threadIdx.x % 32 == 0) tn_delta_set(a.z, a.dalpha, at, t, 0, sum);
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS) token_kernel(TN_GRID gradients a)
{
    extern __shared__ __align__(16) float memory[];
    desk<N> &d = *(desk<N> *)memory;
    const tn_delta_place at = tn_delta_place_of(a.z, blockIdx.x / a.z.chunks, (int)(blockIdx.x % a.z.chunks));
    sums<N> s = {};
    if (threadIdx.x < 32) {
        const uint32_t found = tn_delta_starts(a.z, at);
        if (threadIdx.x == 0) d.starts = found;
        d.beta[threadIdx.x] = tn_delta_get(a.z, a.z.beta, at, threadIdx.x, 0);
    }
    tn_delta_rows<N>(a.z, a.z.k, at, d.key);
    tn_delta_rows<N>(a.z, a.z.q, at, d.query);
    tn_delta_decays<N>(a.z, at, d.decay);
    for (int column = 0; column < a.z.P; column += FEW) {
        load_few(a, at, column, d);
        __syncthreads();
        add_few(d, s);
        __syncthreads();
    }
    if (!a.z.P) __syncthreads();
    put_pairs(a, at, s, d);
    put_decays(d);
    __syncthreads();
    const int n = threadIdx.x % N;
#pragma unroll
    for (int x = 0; x < sums<N>::MANY; x++)
        put_token(a, at, (int)(threadIdx.x / N) + x * sums<N>::GROUPS, n, s.key[x], s.query[x], s.out[x], d);
    __syncthreads();
    if (threadIdx.x < N) add_alpha(s.through, d);
    __syncthreads();
    if (a.dalpha.at) put_alpha(a, at, d);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static int64_t states_floats(tn_dims q, tn_dims v)
{
    return q.dim[0] * q.dim[2] * ((q.dim[1] + C - 1) / C) * q.dim[3] * v.dim[3];
}

static int64_t tokens_floats(tn_dims q, tn_dims v)
{
    return q.dim[0] * q.dim[2] * ((q.dim[1] + C - 1) / C) * C * v.dim[3];
}

size_t tn_delta_backward_bytes(tn_dims q, tn_dims v)
{
    return sizeof(float) * 2 * (size_t)(states_floats(q, v) + tokens_floats(q, v));
}

template <int N>
static tn_status launch_back(const tn_call *c, const tn_delta_walk *w)
{
    const int bytes = (int)sizeof(room<N>);
    const dim3 grid((unsigned)(w->z.B * w->z.H), (unsigned)((w->z.P + SLICE - 1) / SLICE));
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)back_kernel<N>, bytes));
    back_kernel<N><<<grid, THREADS, bytes, tn_cuda_stream(c)>>>(*w);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <int N>
static tn_status launch_tokens(const tn_call *c, const gradients *a)
{
    const int bytes = (int)sizeof(desk<N>);
    const unsigned blocks = (unsigned)(a->z.B * a->z.H * a->z.chunks);
    if (!blocks) return TN_OK;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)token_kernel<N>, bytes));
    token_kernel<N><<<blocks, THREADS, bytes, tn_cuda_stream(c)>>>(*a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* Where the walks keep what tokens need, behind the pairs. */
static void lay_out(const tn_call *c, tn_delta_walk *w)
{
    const tn_dims q = c->in[TN_DELTA_Q].dims, v = c->in[TN_DELTA_V].dims;
    w->states = w->z.m + (w->z.m - w->z.backward);
    w->behind = w->states + states_floats(q, v);
    w->u = w->behind + states_floats(q, v);
    w->y = w->u + tokens_floats(q, v);
}

static tn_status walk(const tn_call *c, const tn_delta_walk *w, bool tokens)
{
    if (!w->z.P) return TN_OK;
    TN_RETURN_IF(tn_delta_pairs(c, &w->z));
    if (tokens) TN_RETURN_IF(tn_delta_forward(c, w));
    return w->z.N <= 64 ? launch_back<64>(c, w) : launch_back<128>(c, w);
}

extern "C" tn_status tn_delta_backward_cuda(const tn_call *c)
{
    tn_delta_walk w = {};
    gradients a = {};
    w.z = tn_delta_shape_of(c);
    if (!w.z.B || !w.z.H) return TN_OK;
    lay_out(c, &w);
    w.d_o = tn_head_of(&c->dout[0], false);
    w.d_final = tn_head_state_of(&c->dout[1], false);
    w.dv = tn_head_of(&c->din[TN_DELTA_V], c->accumulate >> TN_DELTA_V & 1);
    w.dstate = tn_head_state_of(&c->din[TN_DELTA_STATE], c->accumulate >> TN_DELTA_STATE & 1);
    a.z = w.z, a.d_o = w.d_o, a.states = w.states, a.behind = w.behind, a.u = w.u, a.y = w.y;
    a.dq = tn_head_of(&c->din[TN_DELTA_Q], c->accumulate >> TN_DELTA_Q & 1);
    a.dk = tn_head_of(&c->din[TN_DELTA_K], c->accumulate >> TN_DELTA_K & 1);
    a.dalpha = tn_head_of(&c->din[TN_DELTA_ALPHA], c->accumulate >> TN_DELTA_ALPHA & 1);
    a.dbeta = tn_head_of(&c->din[TN_DELTA_BETA], c->accumulate >> TN_DELTA_BETA & 1);
    const bool tokens = a.dq.at || a.dk.at || a.dalpha.at || a.dbeta.at;
    TN_RETURN_IF(walk(c, &w, tokens));
    if (!tokens) return TN_OK;
    return w.z.N <= 64 ? launch_tokens<64>(c, &a) : launch_tokens<128>(c, &a);
}
