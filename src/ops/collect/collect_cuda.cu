/* collect on the GPU, without float atomics. A block orders one sample's landings by the cell where their place begins: warps take
 * turns, so that a cell's list is in the order of slots. Then a thread a cell adds up the lists of the cells from which it is
 * reached (one in nearest, four in splat). Backward: the same lists give the sums of weights; a block a sample adds up what M
 * gets; a thread a landing adds up what comes from the cells it reaches.
 *
 * Bytes: inputs, lists and surface a few times, a few kB a sample; a thread goes through a whole list, so a surface where all
 * flows land on one cell takes longest. */
#include "ops/collect/collect_place.h"
#include "ops/sum_before.cuh"

#include "backend/cuda/device.cuh"

enum { ORDER = 1024, WARPS = ORDER / 32, THREADS = 128 };

struct job {
    tn_collect_attr a;
    const float *e, *u, *v, *d;          /* (B,N,E); (B,N) */
    const int32_t *plane, *age, *landed; /* (B,N); landed NULL: all */
    float *O;                            /* (B,cells,E) */
    const float *dO;
    float *de, *du, *dv, *dd;
    uint64_t add;
    const int32_t *live;
    int64_t B, N, E, cells;
    int32_t *key, *rank,
        *list;      /* (B,N): cell where the place begins (-1: nothing landed), its number there; slots by cell */
    int32_t *start; /* (B,cells + 1): where a cell's list begins */
    int32_t *best;  /* (B): slot with the largest score, -1: none */
    float *score, *M, *sum, *most; /* (B,N) (B) (B,cells) (B,cells) */
    float *of_M;                   /* (B): gradient by M */
};

__device__ __forceinline__ int64_t alive(const job &j)
{
    return j.live && *j.live < j.B ? (*j.live < 0 ? 0 : *j.live) : j.B;
}

__device__ __forceinline__ tn_collect_place place_of(const job &j, int64_t i)
{
    return tn_collect_find(&j.a, j.u[i], j.v[i], j.plane[i]);
}

/* --- the lists -------------------------------------------------------------------------------------------------------- */

/* Keys and scores of a sample; the first slot with the largest score. */
__device__ void find_scores(const job &j, int64_t b, float *shared_score, int32_t *shared_slot)
{
    float most = -INFINITY;
    int32_t best = -1;
    for (int64_t i = threadIdx.x; i < j.N; i += ORDER) {
        const int64_t at = b * j.N + i;
        if (j.landed && j.landed[at] == 0) {
            j.key[at] = -1;
            continue;
        }
        const float x = tn_collect_norm(j.e + at * j.E, j.E) * tn_collect_factor(&j.a, j.age[at], j.d[at]);
        j.key[at] = place_of(j, at).first;
        j.score[at] = x;
        if (best < 0 ? !isnan(x) : x > most) most = x, best = (int32_t)i;
    }
    shared_score[threadIdx.x] = most;
    shared_slot[threadIdx.x] = best;
    __syncthreads();
    for (int n = ORDER / 2; n; n >>= 1) {
        if (threadIdx.x < n) {
            const float other = shared_score[threadIdx.x + n];
            const int32_t slot = shared_slot[threadIdx.x + n], mine = shared_slot[threadIdx.x];
            const float own = shared_score[threadIdx.x];
            if (slot >= 0 && (mine < 0 || other > own || (other == own && slot < mine)))
                shared_score[threadIdx.x] = other, shared_slot[threadIdx.x] = slot;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) j.best[b] = shared_slot[0], j.M[b] = shared_slot[0] < 0 ? 0.f : shared_score[0];
}

/* rank: how many slots before have the same key; count: how many have it. Warps take turns. */
__device__ void rank_keys(const job &j, int64_t b, int32_t *count)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (int64_t base = 0; base < j.N; base += ORDER) {
        const int64_t i = base + threadIdx.x;
        const int32_t key = i < j.N ? j.key[b * j.N + i] : -1;
        const unsigned same = __match_any_sync(0xffffffffu, key), before = same & ((1u << lane) - 1);
        for (int w = 0; w < WARPS && base + w * 32 < j.N; w++) {
            if (w == warp && key >= 0) j.rank[b * j.N + i] = count[key] + __popc(before);
            if (w == warp) __syncwarp();
            if (w == warp && key >= 0 && !before) count[key] += __popc(same);
            __syncthreads();
        }
    }
}

static __global__ void __launch_bounds__(ORDER) order_landings(const __grid_constant__ job j)
{
    __shared__ float score[ORDER];
    __shared__ int32_t slot[ORDER];
    const int64_t b = blockIdx.x;
    if (b >= alive(j)) return;
    int32_t *start = j.start + b * (j.cells + 1);
    for (int64_t c = threadIdx.x; c <= j.cells; c += ORDER) start[c] = 0;
    find_scores(j, b, score, slot);
    __syncthreads();
    rank_keys(j, b, start);
    tn_sum_before<ORDER>(start, j.cells, slot);
    for (int64_t i = threadIdx.x; i < j.N; i += ORDER) {
        const int32_t key = j.key[b * j.N + i];
        if (key >= 0) j.list[b * j.N + start[key] + j.rank[b * j.N + i]] = (int32_t)i;
    }
}

/* --- sums of a cell --------------------------------------------------------------------------------------------------- */

/* The cell whose landings reach cell c as their n-th, or -1: beyond the edge. */
__device__ __forceinline__ int64_t origin_of(const job &j, int64_t c, int n)
{
    const int64_t x = c % j.a.width - (n & 1), y = c / j.a.width % j.a.height - (n >> 1);
    return x < 0 || y < 0 ? -1 : c - tn_collect_offset(&j.a, n);
}

/* Sum of weights, or with m >= 0 of weights times energy m. */
__device__ __forceinline__ float add_cell(const job &j, int64_t b, int64_t c, float most, int64_t m)
{
    const int32_t *start = j.start + b * (j.cells + 1);
    const int reach = tn_collect_reach(&j.a);
    float sum = m < 0 && !j.a.nearest ? j.a.eps : 0.f;
    for (int n = 0; n < reach; n++) {
        const int64_t from = origin_of(j, c, n);
        if (from < 0) continue;
        for (int32_t k = start[from]; k < start[from + 1]; k++) {
            const int64_t i = b * j.N + j.list[b * j.N + k];
            const float weight = place_of(j, i).k[n];
            if (weight == 0.f) continue;
            const float w = weight * expf(j.score[i] - most);
            sum += m < 0 ? w : w * j.e[i * j.E + m];
        }
    }
    return sum;
}

/* What stands for M at a cell. */
__device__ __forceinline__ float most_of(const job &j, int64_t b, int64_t c)
{
    if (!j.a.nearest) return j.M[b];
    const int32_t *start = j.start + b * (j.cells + 1);
    float most = -INFINITY;
    for (int32_t k = start[c]; k < start[c + 1]; k++) {
        const float x = j.score[b * j.N + j.list[b * j.N + k]];
        if (x > most) most = x;
    }
    return most;
}

/* The sums of weights; O too, where it is to be written. */
static __global__ void __launch_bounds__(THREADS) add_cells(const __grid_constant__ job j, bool write)
{
    const int64_t n = alive(j) * j.cells;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const int64_t b = i / j.cells, c = i % j.cells;
        const float most = most_of(j, b, c), sum = add_cell(j, b, c, most, -1);
        j.sum[i] = sum;
        j.most[i] = most;
        for (int64_t m = 0; write && m < j.E; m++)
            j.O[i * j.E + m] = sum == 0.f ? 0.f : add_cell(j, b, c, most, m) / sum;
    }
}

/* --- backward --------------------------------------------------------------------------------------------------------- */

/* dO_c/dM = -O_c eps / (eps + sum) */
static __global__ void __launch_bounds__(THREADS) add_of_M(const __grid_constant__ job j)
{
    __shared__ float shared[33];
    const int64_t b = blockIdx.x;
    float sum = 0;
    if (b >= alive(j)) return;
    for (int64_t i = b * j.cells + threadIdx.x; i < (b + 1) * j.cells; i += THREADS)
        for (int64_t m = 0; m < j.E; m++) sum -= j.dO[i * j.E + m] * j.O[i * j.E + m] * j.a.eps / j.sum[i];
    sum = tn_block_sum(sum, shared);
    if (threadIdx.x == 0) j.of_M[b] = sum;
}

__device__ __forceinline__ void put(float *to, int64_t i, float x, const job &j, int input)
{
    if (to) to[i] = j.add >> input & 1 ? to[i] + x : x;
}

__device__ void flow_back(const job &j, int64_t b, int64_t i)
{
    const tn_collect_place p = place_of(j, i);
    const int reach = tn_collect_reach(&j.a);
    const float *e = j.e + i * j.E;
    const bool best = !j.a.nearest && j.best[b] == i - b * j.N;
    float w[TN_COLLECT_REACH], ds = best ? j.of_M[b] : 0.f, du = 0, dv = 0;
    for (int n = 0; n < reach; n++) {
        const int64_t c = b * j.cells + p.first + tn_collect_offset(&j.a, n);
        float dw = 0;
        w[n] = expf(j.score[i] - j.most[c]) / j.sum[c];
        for (int64_t m = 0; m < j.E; m++) dw += j.dO[c * j.E + m] * (e[m] - j.O[c * j.E + m]);
        ds += dw * w[n] * p.k[n];
        du += dw * w[n] * p.k_u[n];
        dv += dw * w[n] * p.k_v[n];
    }
    const float factor = tn_collect_factor(&j.a, j.age[i], j.d[i]), size = tn_collect_norm(e, j.E);
    put(j.du, i, du, j, TN_COLLECT_U);
    put(j.dv, i, dv, j, TN_COLLECT_V);
    put(j.dd, i, -ds * size * factor / (1 + j.d[i]), j, TN_COLLECT_D);
    for (int64_t m = 0; j.de && m < j.E; m++) {
        float x = size > 0.f ? ds * factor * e[m] / size : 0.f;
        for (int n = 0; n < reach; n++)
            x += j.dO[(b * j.cells + p.first + tn_collect_offset(&j.a, n)) * j.E + m] * p.k[n] * w[n];
        put(j.de, i * j.E + m, x, j, TN_COLLECT_E);
    }
}

static __global__ void __launch_bounds__(THREADS) flows_back(const __grid_constant__ job j)
{
    const int64_t n = alive(j) * j.N;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        if (j.key[i] >= 0) {
            flow_back(j, i / j.N, i);
            continue;
        }
        put(j.du, i, 0.f, j, TN_COLLECT_U);
        put(j.dv, i, 0.f, j, TN_COLLECT_V);
        put(j.dd, i, 0.f, j, TN_COLLECT_D);
        for (int64_t m = 0; m < j.E; m++) put(j.de, i * j.E + m, 0.f, j, TN_COLLECT_E);
    }
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

/* base NULL only measures. */
static size_t carve(job *j, void *base)
{
    const size_t slots = (size_t)(j->B * j->N) * 4, cells = (size_t)(j->B * j->cells) * 4, samples = (size_t)j->B * 4;
    size_t used = 0;
    j->key = (int32_t *)tn_d_carve(base, &used, slots);
    j->rank = (int32_t *)tn_d_carve(base, &used, slots);
    j->list = (int32_t *)tn_d_carve(base, &used, slots);
    j->score = (float *)tn_d_carve(base, &used, slots);
    j->start = (int32_t *)tn_d_carve(base, &used, cells + samples);
    j->sum = (float *)tn_d_carve(base, &used, cells);
    j->most = (float *)tn_d_carve(base, &used, cells);
    j->best = (int32_t *)tn_d_carve(base, &used, samples);
    j->M = (float *)tn_d_carve(base, &used, samples);
    j->of_M = (float *)tn_d_carve(base, &used, samples);
    return used;
}

extern "C" size_t tn_collect_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims e = s->in[TN_COLLECT_E].dims;
    job j = {};
    (void)backward;
    j.B = e.dim[0], j.N = e.dim[1];
    j.cells = tn_collect_cells((const tn_collect_attr *)s->attr);
    return carve(&j, NULL);
}

static job make_job(const tn_call *c)
{
    const tn_arg *in = c->in;
    job j = {};
    j.a = *(const tn_collect_attr *)c->attr;
    j.e = (const float *)in[TN_COLLECT_E].data, j.u = (const float *)in[TN_COLLECT_U].data;
    j.v = (const float *)in[TN_COLLECT_V].data, j.d = (const float *)in[TN_COLLECT_D].data;
    j.plane = (const int32_t *)in[TN_COLLECT_PLANE].data, j.age = (const int32_t *)in[TN_COLLECT_AGE].data;
    j.landed = (const int32_t *)in[TN_COLLECT_LANDED].data;
    j.O = (float *)c->out[0].data;
    j.live = in[TN_COLLECT_E].live;
    j.B = in[TN_COLLECT_E].dims.dim[0], j.N = in[TN_COLLECT_E].dims.dim[1], j.E = in[TN_COLLECT_E].dims.dim[2];
    j.cells = tn_collect_cells(&j.a);
    carve(&j, c->work);
    return j;
}

static void launch_sums(const tn_call *c, const job &j, bool write)
{
    order_landings<<<(unsigned)j.B, ORDER, 0, tn_cuda_stream(c)>>>(j);
    add_cells<<<tn_blocks(c, j.B * j.cells, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(j, write);
}

extern "C" tn_status tn_collect_forward_cuda(const tn_call *c)
{
    const job j = make_job(c);
    if (j.B == 0) return TN_OK;
    launch_sums(c, j, true);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_collect_backward_cuda(const tn_call *c)
{
    job j = make_job(c);
    if (j.B == 0 || j.N == 0) return TN_OK;
    if (!c->dout[0].data) {
        for (int i = 0; i <= TN_COLLECT_D; i++) TN_RETURN_IF(tn_clear_gradient(c, &c->din[i], c->accumulate >> i & 1));
        return TN_OK;
    }
    j.dO = (const float *)c->dout[0].data;
    j.de = (float *)c->din[TN_COLLECT_E].data, j.du = (float *)c->din[TN_COLLECT_U].data;
    j.dv = (float *)c->din[TN_COLLECT_V].data, j.dd = (float *)c->din[TN_COLLECT_D].data;
    j.add = c->accumulate;
    launch_sums(c, j, false);
    if (!j.a.nearest) add_of_M<<<(unsigned)j.B, THREADS, 0, tn_cuda_stream(c)>>>(j);
    flows_back<<<tn_blocks(c, j.B * j.N, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
