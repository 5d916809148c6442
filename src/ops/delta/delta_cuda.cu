/* delta on the GPU, forwards, for states of up to 128 x 128 (delta_cuda.cuh has what is common).
 *
 *   pairs_kernel  a block per chunk: A and M pair by pair, decays of each row of the state along the way; then the two
 *                 inverses of triangles, so that what follows is products only
 *   walk_kernel   a block per head and 32 columns of its state, which stays in shared memory along the chunks:
 *                 U = (I + A diag(beta))^-1 (V - Gamma K S),  O = Gamma Q S + M W,  S from before the chunk to behind it
 *
 * Columns of a state know nothing of each other, so a head is shared by P/32 blocks without another sum. */
#include "ops/delta/delta_cuda.cuh"

namespace
{

enum { C = TN_DELTA_C, THREADS = TN_DELTA_THREADS, SLICE = TN_DELTA_SLICE, SIDE = C + 1, WARPS = TN_DELTA_WARPS };
enum { SHARERS = THREADS / C, MINE = TN_DELTA_MINE }; /* threads that share a token's row; tokens of a warp */

/* The earlier token j of eight threads, of which each has every eighth row; a and m (C,SIDE) by later token. */
template <int N>
__device__ __forceinline__ void fill_pairs(const float *key, const float *query, const float *decay, uint32_t starts,
                                           float *a, float *m)
{
    const int j = threadIdx.x / SHARERS, part = threadIdx.x % SHARERS;
    float on_its_way[N / SHARERS];
#pragma unroll
    for (int x = 0; x < N / SHARERS; x++) on_its_way[x] = key[j * N + x * SHARERS + part];
    for (int i = 0; i < C; i++) {
        const bool sees = i > j && tn_delta_begin(starts, i) <= j;
        float by_key = 0, by_query = 0;
        if (sees || i == j) {
#pragma unroll
            for (int x = 0; x < N / SHARERS; x++) {
                const int at = i * N + x * SHARERS + part;
                if (sees) on_its_way[x] = __fmul_rn(on_its_way[x], decay[at]);
                by_key = __fmaf_rn(key[at], on_its_way[x], by_key);
                by_query = __fmaf_rn(query[at], on_its_way[x], by_query);
            }
        }
#pragma unroll
        for (int s = 1; s < SHARERS; s *= 2) {
            by_key += __shfl_xor_sync(0xffffffffu, by_key, s);
            by_query += __shfl_xor_sync(0xffffffffu, by_query, s);
        }
        if (part) continue;
        a[i * SIDE + j] = sees ? by_key : 0.f;
        m[i * SIDE + j] = by_query;
    }
}

/* Column `lane` of the inverse of I + A diag(beta), or of I + diag(beta) A: rows in turn, each in the order of tokens. */
__device__ __forceinline__ void invert(const float *a, const float *beta, uint32_t starts, bool by_later, float *x)
{
    const int column = threadIdx.x % 32;
    for (int i = 0; i < C; i++) {
        float sum = i == column ? 1.f : 0.f;
        for (int j = tn_delta_begin(starts, i); j < i; j++)
            sum = __fmaf_rn(-__fmul_rn(by_later ? beta[i] : beta[j], a[i * SIDE + j]), x[j * SIDE + column], sum);
        x[i * SIDE + column] = sum;
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS) pairs_kernel(TN_GRID tn_delta_shape z)
{
    extern __shared__ __align__(16) float memory[];
    __shared__ float a[TN_DELTA_ALL], m[TN_DELTA_ALL], inverse[2][TN_DELTA_ALL], beta[C];
    __shared__ uint32_t starts;
    float *key = memory, *query = key + C * N, *decay = query + C * N;
    const tn_delta_place at = tn_delta_place_of(z, blockIdx.x / z.chunks, (int)(blockIdx.x % z.chunks));
    if (threadIdx.x < 32) {
        const uint32_t found = tn_delta_starts(z, at);
        if (threadIdx.x == 0) starts = found;
        beta[threadIdx.x] = tn_delta_get(z, z.beta, at, threadIdx.x, 0);
    }
    tn_delta_rows<N>(z, z.k, at, key);
    tn_delta_rows<N>(z, z.q, at, query);
    tn_delta_decays<N>(z, at, decay);
    __syncthreads();
    fill_pairs<N>(key, query, decay, starts, a, m);
    __syncthreads();
    if (threadIdx.x < 64) invert(a, beta, starts, threadIdx.x / 32, inverse[threadIdx.x / 32]);
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * C * C;
    for (int k = threadIdx.x; k < C * C; k += THREADS) {
        const int from = k / C * SIDE + k % C;
        z.forward[first + k] = inverse[0][from];
        z.backward[first + k] = inverse[1][from];
        z.m[first + k] = m[from];
    }
}

/* A chunk in the walk's shared memory. */
template <int N>
struct room {
    float key[C * N], query[C * N], led[C * N], state[N * SLICE], all[N];
    union {
        float decay[C * N];
        float missing[C * SLICE]; /* when decays have been multiplied in: V - Gamma K S, what is not held yet */
    };
    float v[C * SLICE], written[C * SLICE];
    float forward[TN_DELTA_ALL], m[TN_DELTA_ALL], beta[C];
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
    tn_delta_columns(w.z, w.z.v, at, column, r.v);
    tn_delta_square(w.z, at, w.z.forward, r.forward);
    tn_delta_square(w.z, at, w.z.m, r.m);
    __syncthreads();
    tn_delta_spread<N>(r.key, r.query, r.decay, r.led, r.all);
    __syncthreads();
}

/* Of this warp's tokens i = warp, warp + 8, ...: U and what is written, and outputs. */
template <int N>
__device__ __forceinline__ void solve_chunk(const tn_delta_walk &w, const tn_delta_place &at, int column, room<N> &r)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool there = column + lane < w.z.P;
    float held[MINE], o[MINE] = {};
    tn_delta_read<N>(r.led, r.state, held);
    if (w.o.at) tn_delta_read<N>(r.query, r.state, o);
#pragma unroll
    for (int x = 0; x < MINE; x++) {
        const int i = warp + x * WARPS;
        const bool reads = tn_delta_reads(r.starts, i);
        r.missing[i * SLICE + lane] = r.v[i * SLICE + lane] - (reads ? held[x] : 0.f);
        if (!reads) o[x] = 0;
    }
    __syncthreads();
#pragma unroll
    for (int x = 0; x < MINE; x++) {
        const int i = warp + x * WARPS;
        float u = 0;
        for (int j = tn_delta_begin(r.starts, i); j <= i; j++)
            u = __fmaf_rn(r.forward[i * SIDE + j], r.missing[j * SLICE + lane], u);
        r.written[i * SLICE + lane] = __fmul_rn(r.beta[i], u);
        if (w.u && there) w.u[((at.head * w.z.chunks + at.chunk) * C + i) * w.z.P + column + lane] = u;
    }
    __syncthreads();
    if (!w.o.at) return;
#pragma unroll
    for (int x = 0; x < MINE; x++) {
        const int i = warp + x * WARPS;
        for (int j = tn_delta_begin(r.starts, i); j <= i; j++)
            o[x] = __fmaf_rn(r.m[i * SIDE + j], r.written[j * SLICE + lane], o[x]);
        if (there) tn_delta_set(w.z, w.o, at, i, column + lane, o[x]);
    }
}

/* The state of this warp's rows from before the chunk to behind it. */
template <int N>
__device__ __forceinline__ void carry(const tn_delta_walk &w, const tn_delta_place &at, int column, room<N> &r)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, begin = tn_delta_begin(r.starts, C - 1);
    for (int n = warp * 4; n < N; n += WARPS * 4) {
        float *s = &r.state[n * SLICE + lane], sum[4];
        for (int e = 0; e < 4; e++) {
            if (w.states && n + e < w.z.N && column + lane < w.z.P)
                w.states[((at.head * w.z.chunks + at.chunk) * w.z.N + n + e) * w.z.P + column + lane] = s[e * SLICE];
            sum[e] = r.starts ? 0.f : __fmul_rn(r.all[n + e], s[e * SLICE]);
        }
        for (int j = begin; j < C; j++) tn_delta_add4(sum, r.key + j * N + n, r.written[j * SLICE + lane]);
        for (int e = 0; e < 4; e++) s[e * SLICE] = sum[e];
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS) walk_kernel(TN_GRID tn_delta_walk w)
{
    extern __shared__ __align__(16) float memory[];
    room<N> &r = *(room<N> *)memory;
    const int column = blockIdx.y * SLICE, lane = threadIdx.x % 32;
    const tn_delta_place all = tn_delta_place_of(w.z, blockIdx.x, 0);
    const bool there = column + lane < w.z.P;
    for (int n = threadIdx.x / 32; n < N; n += WARPS) {
        const bool given = there && n < w.z.N && w.z.state.at;
        const int64_t from = tn_head_place(w.z.state, all.b, all.h, n, column + lane);
        r.state[n * SLICE + lane] = given ? tn_load(w.z.state.at, w.z.state.type, from) : 0.f;
    }
    for (int chunk = 0; chunk < w.z.chunks; chunk++) {
        const tn_delta_place at = tn_delta_place_of(w.z, blockIdx.x, chunk);
        load_chunk(w, at, column, r);
        solve_chunk(w, at, column, r);
        carry(w, at, column, r);
        __syncthreads();
    }
    for (int n = threadIdx.x / 32; w.final.at && there && n < w.z.N; n += WARPS)
        tn_store(w.final.at, w.final.type, tn_head_place(w.final, all.b, all.h, n, column + lane),
                 r.state[n * SLICE + lane]);
}

} // namespace

/* --- on the host -------------------------------------------------------------------------------------------------- */

static size_t pairs_floats(tn_dims q)
{
    const int64_t chunks = (q.dim[1] + C - 1) / C;
    return (size_t)(q.dim[0] * q.dim[2] * chunks * C * C);
}

extern "C" size_t tn_delta_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims q = s->in[TN_DELTA_Q].dims, v = s->in[TN_DELTA_V].dims;
    return 3 * pairs_floats(q) * sizeof(float) + (backward ? tn_delta_backward_bytes(q, v) : 0);
}

tn_delta_shape tn_delta_shape_of(const tn_call *c)
{
    const tn_arg *r = &c->in[TN_DELTA_RESET];
    const tn_dims q = c->in[TN_DELTA_Q].dims;
    tn_delta_shape z = {};
    z.B = q.dim[0], z.T = q.dim[1], z.H = q.dim[2], z.N = (int)q.dim[3], z.P = (int)c->in[TN_DELTA_V].dims.dim[3];
    z.chunks = (int)((z.T + C - 1) / C);
    z.stateless = c->in[TN_DELTA_STATE].dims.rank == 0;
    z.by_row = c->in[TN_DELTA_ALPHA].dims.rank == 4;
    z.q = tn_head_of(&c->in[TN_DELTA_Q], false);
    z.k = tn_head_of(&c->in[TN_DELTA_K], false);
    z.v = tn_head_of(&c->in[TN_DELTA_V], false);
    z.alpha = tn_head_of(&c->in[TN_DELTA_ALPHA], false);
    z.beta = tn_head_of(&c->in[TN_DELTA_BETA], false);
    z.state = tn_head_state_of(&c->in[TN_DELTA_STATE], false);
    z.reset = (const int32_t *)r->data;
    if (z.reset) z.reset_b = r->stride[0], z.reset_t = r->stride[1];
    z.forward = (float *)c->work;
    z.backward = z.forward + pairs_floats(q);
    z.m = z.backward + pairs_floats(q);
    return z;
}

template <int N>
static tn_status launch_pairs(const tn_call *c, const tn_delta_shape *z)
{
    const int bytes = 3 * C * N * (int)sizeof(float);
    const unsigned blocks = (unsigned)(z->B * z->H * z->chunks);
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)pairs_kernel<N>, bytes));
    pairs_kernel<N><<<blocks, THREADS, bytes, tn_cuda_stream(c)>>>(*z);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_delta_pairs(const tn_call *c, const tn_delta_shape *z)
{
    if (!z->chunks) return TN_OK;
    return z->N <= 64 ? launch_pairs<64>(c, z) : launch_pairs<128>(c, z);
}

template <int N>
static tn_status launch_walk(const tn_call *c, const tn_delta_walk *w)
{
    const int bytes = (int)sizeof(room<N>);
    const dim3 grid((unsigned)(w->z.B * w->z.H), (unsigned)((w->z.P + SLICE - 1) / SLICE));
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)walk_kernel<N>, bytes));
    walk_kernel<N><<<grid, THREADS, bytes, tn_cuda_stream(c)>>>(*w);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

tn_status tn_delta_forward(const tn_call *c, const tn_delta_walk *w)
{
    return w->z.N <= 64 ? launch_walk<64>(c, w) : launch_walk<128>(c, w);
}

extern "C" tn_status tn_delta_forward_cuda(const tn_call *c)
{
    tn_delta_walk w = {};
    w.z = tn_delta_shape_of(c);
    w.o = tn_head_of(&c->out[0], false);
    w.final = tn_head_state_of(&c->out[1], false);
    if (!w.z.B || !w.z.H || !w.z.P) return TN_OK;
    TN_RETURN_IF(tn_delta_pairs(c, &w.z));
    return tn_delta_forward(c, &w);
}
