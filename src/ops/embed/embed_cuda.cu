/* embed on the GPU. Forward: a warp a token. Backward: the tokens' positions are sorted by token with a stable radix sort
 * (so equal tokens stay in their order), the sorted list is cut into pieces of PIECE, and a block adds up the rows of one
 * piece. A run of equal tokens that lies in one piece goes straight to the table; of a longer run each piece leaves a
 * partial sum, and a second kernel adds those in order. No float atomics: the order is that of the list, and a token that
 * fills the whole batch is shared by as many blocks as any other.
 *
 * A token outside [0, V) reads nothing: its row of y is NaN, so that the loss is; it has no gradient.
 * Bytes: y twice (forward), dy once and each row of the table that occurs once (backward). */
#include "ops/embed/embed.h"

#include "backend/cuda/device.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    ROUNDS = 8,              /* tokens a thread, in the sort */
    TILE = THREADS * ROUNDS, /* tokens a block, in the sort */
    DIGIT = 8,
    BINS = 1 << DIGIT, /* one a thread */
    PIECE = 64
};

/* --- forward -------------------------------------------------------------------------------------------------------- */

/* 8 numbers a lane where VECTOR. */
template <bool VECTOR>
static __global__ void gather(const __grid_constant__ tn_arg tokens, const __grid_constant__ tn_arg table,
                              const __grid_constant__ tn_arg y)
{
    const int64_t n = tn_d_count(tokens), V = table.dims.dim[0];
    const int d = (int)table.dims.dim[1], lane = threadIdx.x & 31;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; i < n; i += (int64_t)gridDim.x * WARPS) {
        const int32_t token = ((const int32_t *)tokens.data)[i];
        const bool in = token >= 0 && token < V;
        const int64_t from = in ? (int64_t)token * d : 0;
        if (VECTOR) {
#pragma unroll 4
            for (int k = lane * 8; k < d; k += 256) {
                tn_f8 x = tn_load8(table.data, table.dtype, from + k);
                for (int m = 0; m < 8 && !in; m++) x.v[m] = NAN;
                tn_store8(y.data, y.dtype, i * d + k, x);
            }
        } else {
            for (int k = lane; k < d; k += 32)
                tn_store(y.data, y.dtype, i * d + k, in ? tn_load(table.data, table.dtype, from + k) : NAN);
        }
    }
}

extern "C" tn_status tn_embed_forward_cuda(const tn_call *c)
{
    const tn_arg *tokens = &c->in[0], *table = &c->in[1], *y = &c->out[0];
    const int64_t n = tn_all_count(tokens);
    if (!n || !tn_row_len(table)) return TN_OK;
    const unsigned blocks = tn_blocks(c, n, WARPS);
    const cudaStream_t stream = tn_cuda_stream(c);
    if (!table->dims.dim[0]) { /* no row to read from: every token is outside */
        TN_CUDA_TRY(cudaMemsetAsync(y->data, 0xff, (size_t)tn_all_count(y) * tn_dtype_bytes(y->dtype), stream));
        return TN_OK;
    }
    const bool vector = tn_vector_rows(table) && tn_vector_rows(y);
    (vector ? gather<true> : gather<false>)<<<blocks, THREADS, 0, stream>>>(*tokens, *table, *y);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- the sort ------------------------------------------------------------------------------------------------------- */

/* A list of positions with their tokens; the first pass makes it from the tokens. */
struct list {
    int32_t *token, *position; /* (n); token V: dead, or outside the table */
};

struct sorting {
    tn_arg tokens;
    bool first;
    list from, to;
    int n, tiles, shift;
    int64_t V;
    int32_t *count; /* (BINS,tiles): how many, then where they begin */
};

__device__ __forceinline__ int32_t token_at(const sorting &s, int i, int64_t live)
{
    if (!s.first) return s.from.token[i];
    const int32_t token = i < live ? ((const int32_t *)s.tokens.data)[i] : -1;
    return token >= 0 && token < s.V ? token : (int32_t)s.V;
}

static __global__ void __launch_bounds__(THREADS) count_digits(const __grid_constant__ sorting s)
{
    __shared__ int32_t count[BINS];
    const int64_t live = tn_d_count(s.tokens);
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < ROUNDS; k++) {
        const int i = blockIdx.x * TILE + k * THREADS + threadIdx.x;
        if (i < s.n) atomicAdd(&count[token_at(s, i, live) >> s.shift & (BINS - 1)], 1);
    }
    __syncthreads();
    s.count[(int64_t)threadIdx.x * s.tiles + blockIdx.x] = count[threadIdx.x];
}

/* x (n) becomes the sums of all before: one block of 1024, 8 numbers a thread at a time. */
static __global__ void __launch_bounds__(1024) sum_before(int32_t *x, int n)
{
    __shared__ int32_t of_warp[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    int32_t carry = 0;
    for (int base = 0; base < n; base += 8192) {
        int32_t v[8], sum = 0;
        const int at = base + threadIdx.x * 8;
        for (int k = 0; k < 8; k++) v[k] = at + k < n ? x[at + k] : 0, sum += v[k];
        int32_t to_here = sum;
        for (int k = 1; k < 32; k *= 2) {
            const int32_t other = __shfl_up_sync(0xffffffffu, to_here, k);
            if (lane >= k) to_here += other;
        }
        if (lane == 31) of_warp[warp] = to_here;
        __syncthreads();
        int32_t before = carry + to_here - sum;
        for (int k = 0; k < 32; k++) {
            if (k < warp) before += of_warp[k];
            carry += of_warp[k];
        }
        for (int k = 0; k < 8; k++) {
            if (at + k < n) x[at + k] = before;
            before += v[k];
        }
        __syncthreads();
    }
}

/* Each warp has TILE / WARPS neighbours and takes 32 of them at a time: an element's rank is what the warp met before. */
static __global__ void __launch_bounds__(THREADS) place_digits(const __grid_constant__ sorting s)
{
    __shared__ int32_t met[WARPS][BINS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32,
              begin = blockIdx.x * TILE + warp * (TILE / WARPS) + lane;
    const int64_t live = tn_d_count(s.tokens);
    int32_t token[ROUNDS], rank[ROUNDS];
    for (int w = 0; w < WARPS; w++) met[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const int i = begin + k * 32;
        token[k] = i < s.n ? token_at(s, i, live) : 0;
        const int bin = i < s.n ? token[k] >> s.shift & (BINS - 1) : BINS; /* BINS: beyond the end */
        const unsigned same = __match_any_sync(0xffffffffu, bin), before = same & ((1u << lane) - 1);
        rank[k] = bin < BINS ? met[warp][bin] + __popc(before) : 0;
        __syncwarp();
        if (bin < BINS && !before) met[warp][bin] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    int32_t at = s.count[(int64_t)threadIdx.x * s.tiles + blockIdx.x];
    for (int w = 0; w < WARPS; w++) {
        const int32_t here = met[w][threadIdx.x];
        met[w][threadIdx.x] = at;
        at += here;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const int i = begin + k * 32;
        if (i >= s.n) continue;
        const int32_t to = met[warp][token[k] >> s.shift & (BINS - 1)] + rank[k];
        s.to.token[to] = token[k];
        s.to.position[to] = s.first ? i : s.from.position[i];
    }
}

/* --- the sums ------------------------------------------------------------------------------------------------------- */

struct adding {
    list sorted;
    tn_arg dy, table;
    int n, d;
    int64_t V;
    bool add;
    float *partial; /* (pieces,2,d): of the run that comes from the piece before, of the one that goes on in the next */
};

/* W columns of one thread. */
template <int W>
struct columns {
    float v[W];
};

template <int W>
__device__ __forceinline__ columns<W> load_columns(const void *p, tn_dtype t, int64_t i)
{
    columns<W> x;
    if constexpr (W == 8) {
        const tn_f8 y = tn_load8(p, t, i);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] = y.v[k];
    } else {
        x.v[0] = tn_load(p, t, i);
    }
    return x;
}

template <int W>
__device__ __forceinline__ void put_columns(void *p, tn_dtype t, int64_t i, const columns<W> &x, bool add)
{
    if constexpr (W == 8) {
        tn_f8 y;
#pragma unroll
        for (int k = 0; k < 8; k++) y.v[k] = x.v[k];
        tn_put8(p, t, i, y, add);
    } else {
        tn_put(p, t, i, x.v[0], add);
    }
}

template <int W>
__device__ __forceinline__ void add_columns(columns<W> *x, const columns<W> &y)
{
#pragma unroll
    for (int k = 0; k < W; k++) x->v[k] += y.v[k];
}

/* The run of `token` in piece blockIdx.x is complete, or a part. */
template <int W>
__device__ __forceinline__ void put_run(const adding &a, int32_t token, int i, const columns<W> &sum, bool begins,
                                        bool ends)
{
    if (begins && ends) put_columns<W>(a.table.data, a.table.dtype, (int64_t)token * a.d + i, sum, a.add);
    else put_columns<W>(a.partial, TN_F32, ((int64_t)blockIdx.x * 2 + begins) * a.d + i, sum, false);
}

/* Piece blockIdx.x, columns by blockIdx.y. */
template <int W>
static __global__ void __launch_bounds__(THREADS) add_pieces(const __grid_constant__ adding a)
{
    __shared__ int32_t token[PIECE + 2], position[PIECE]; /* token: one before and one after the piece as well */
    enum { AHEAD = W == 8 ? 4 : 8 };
    const int first = blockIdx.x * PIECE, n = min(PIECE, a.n - first);
    for (int k = threadIdx.x; k < PIECE + 2; k += blockDim.x) {
        const int at = first + k - 1;
        token[k] = at >= 0 && at < a.n ? a.sorted.token[at] : -1;
        if (k < n) position[k] = a.sorted.position[first + k];
    }
    __syncthreads();
    const int i = (blockIdx.y * blockDim.x + threadIdx.x) * W;
    if (i >= a.d || token[1] == a.V) return;
    int32_t run = token[1];
    bool begins = token[0] != run;
    columns<W> sum = {};
    for (int k = 0; k < n; k += AHEAD) {
        columns<W> x[AHEAD];
#pragma unroll
        for (int m = 0; m < AHEAD; m++)
            if (k + m < n && token[k + m + 1] != a.V)
                x[m] = load_columns<W>(a.dy.data, a.dy.dtype, (int64_t)position[k + m] * a.d + i);
#pragma unroll
        for (int m = 0; m < AHEAD; m++) {
            if (k + m >= n) continue;
            const int32_t now = token[k + m + 1];
            if (now != run) {
                if (run != a.V) put_run<W>(a, run, i, sum, begins, true);
                run = now, begins = true, sum = {};
            }
            if (now != a.V) add_columns<W>(&sum, x[m]);
        }
    }
    if (run != a.V) put_run<W>(a, run, i, sum, begins, token[n + 1] != run);
}

/* The first place in the sorted list behind all of `token`. */
__device__ __forceinline__ int end_of(const adding &a, int32_t token, int from)
{
    int lo = from, hi = a.n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        if (a.sorted.token[mid] > token) hi = mid;
        else lo = mid + 1;
    }
    return lo;
}

/* A run that begins in piece blockIdx.x and goes on in the next: its partial sums, in order. */
template <int W>
static __global__ void __launch_bounds__(THREADS) join_pieces(const __grid_constant__ adding a)
{
    const int first = blockIdx.x * PIECE, next = first + PIECE, i = (blockIdx.y * blockDim.x + threadIdx.x) * W;
    if (i >= a.d || next >= a.n) return;
    const int32_t token = a.sorted.token[next];
    if (token == a.V || a.sorted.token[next - 1] != token) return;
    if (first > 0 && a.sorted.token[first - 1] == token) return; /* it began earlier */
    const int last = (end_of(a, token, next) - 1) / PIECE;
    columns<W> sum = load_columns<W>(a.partial, TN_F32, ((int64_t)blockIdx.x * 2 + 1) * a.d + i);
#pragma unroll 8
    for (int p = blockIdx.x + 1; p <= last; p++)
        add_columns<W>(&sum, load_columns<W>(a.partial, TN_F32, (int64_t)p * 2 * a.d + i));
    put_columns<W>(a.table.data, a.table.dtype, (int64_t)token * a.d + i, sum, a.add);
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

struct workspace {
    list l[2];
    int32_t *count;
    float *partial;
    size_t bytes;
};

/* base NULL only measures. */
static workspace carve(char *base, int64_t n, int64_t d)
{
    workspace w = {};
    const int64_t tiles = (n + TILE - 1) / TILE, pieces = (n + PIECE - 1) / PIECE;
    const size_t column = ((size_t)n * 4 + 63) / 64 * 64;
    for (int k = 0; k < 2; k++) {
        w.l[k] = { (int32_t *)(base + w.bytes), (int32_t *)(base + w.bytes + column) };
        w.bytes += 2 * column;
    }
    w.count = (int32_t *)(base + w.bytes);
    w.bytes += (size_t)(BINS * tiles) * 4;
    w.partial = (float *)(base + w.bytes);
    w.bytes += (size_t)(pieces * 2 * d) * 4;
    return w;
}

extern "C" size_t tn_embed_work_cuda(const tn_sig *s, bool backward)
{
    return backward ? carve(NULL, tn_dims_count(s->in[0].dims), s->in[1].dims.dim[1]).bytes : 0;
}

/* Launches the sort; the result is in the list returned. */
static list sort_tokens(const tn_call *c, const workspace &w, int n, int64_t V)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    sorting s = {};
    s.tokens = c->in[0];
    s.n = n, s.tiles = (n + TILE - 1) / TILE, s.V = V, s.count = w.count;
    s.to = w.l[0];
    for (int shift = 0; shift == 0 || V >> shift; shift += DIGIT) {
        s.first = shift == 0, s.shift = shift;
        if (shift) s.from = s.to, s.to = w.l[shift / DIGIT % 2];
        count_digits<<<(unsigned)s.tiles, THREADS, 0, stream>>>(s);
        sum_before<<<1, 1024, 0, stream>>>(w.count, BINS * s.tiles);
        place_digits<<<(unsigned)s.tiles, THREADS, 0, stream>>>(s);
    }
    return s.to;
}

template <int W>
static void add_rows(const tn_call *c, const adding &a)
{
    const int wanted = (a.d + W - 1) / W, threads = wanted < THREADS ? (wanted + 31) / 32 * 32 : THREADS;
    const dim3 grid((unsigned)((a.n + PIECE - 1) / PIECE), (unsigned)((wanted + threads - 1) / threads));
    add_pieces<W><<<grid, threads, 0, tn_cuda_stream(c)>>>(a);
    join_pieces<W><<<grid, threads, 0, tn_cuda_stream(c)>>>(a);
}

extern "C" tn_status tn_embed_backward_cuda(const tn_call *c)
{
    const tn_arg *dy = &c->dout[0], *table = &c->din[1];
    const int64_t n = tn_all_count(&c->in[0]), size = table->data ? tn_all_count(table) : 0;
    if (!size) return TN_OK;
    const bool add = c->accumulate >> 1 & 1;
    if (!add)
        TN_CUDA_TRY(cudaMemsetAsync(table->data, 0, (size_t)size * tn_dtype_bytes(table->dtype), tn_cuda_stream(c)));
    if (!n || !dy->data) return TN_OK;
    const workspace w = carve((char *)c->work, n, table->dims.dim[1]);
    adding a = {};
    a.dy = *dy, a.table = *table, a.n = (int)n, a.d = (int)table->dims.dim[1], a.V = table->dims.dim[0], a.add = add;
    a.partial = w.partial;
    a.sorted = sort_tokens(c, w, (int)n, a.V);
    if (tn_vector_rows(dy) && tn_vector_rows(table)) add_rows<8>(c, a);
    else add_rows<1>(c, a);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
