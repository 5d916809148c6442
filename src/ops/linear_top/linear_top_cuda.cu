/* linear_top on the GPU: logits of a chunk of rows in f32, then a block to a row. Its K best are found one after another: the
 * next is the best of those that stand behind the last one, which needs no memory and no order of threads. */
#include "ops/argmax/argmax_best.cuh"
#include "ops/head.cuh"
#include "ops/linear_top/linear_top.h"

#include <limits.h>

enum { X = TN_LINEAR_TOP_X, W = TN_LINEAR_TOP_W, LABELS = TN_LINEAR_TOP_LABELS };
enum { IDS, LOGITS, LSE };
enum { THREADS = 512, WARPS = THREADS / 32, IGNORE = -1 };

static const int64_t CHUNK_BYTES = (int64_t)1 << 30;

struct space {
    int64_t chunk;
    float *logits; /* (chunk,row) */
    tn_head head;
    size_t bytes;
};

static int64_t row_count(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.rank - 1; i++) n *= d.dim[i];
    return n;
}

static space space_of(int64_t n, int64_t V, int64_t d, tn_dtype w, tn_dtype type, void *base)
{
    space s = {};
    const int64_t row = tn_head_row(V);
    s.chunk = tn_head_chunk(n, row, (int64_t)sizeof(float), CHUNK_BYTES, 0);
    s.logits = (float *)tn_d_carve(base, &s.bytes, (size_t)(s.chunk * row) * sizeof(float));
    s.head = tn_head_carve(V, d, w, type, s.chunk, false, false, base, &s.bytes);
    return s;
}

extern "C" size_t tn_linear_top_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims w = s->in[W].dims;
    (void)backward;
    return space_of(row_count(s->in[X].dims), w.dim[0], w.dim[1], s->in[W].dtype, s->in[X].dtype, NULL).bytes;
}

struct rows {
    const float *logits; /* (count,row) */
    int64_t row, first;
    tn_head_tokens t;
    int64_t k;
    float inverse;
    int32_t *ids;
    float *values, *lse;
};

/* Over the block; every thread gets it. */
__device__ __forceinline__ tn_d_best best_of_block(tn_d_best mine, tn_d_best *shared /* (WARPS) */)
{
    mine = tn_d_best_of_warp(mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
    __syncthreads();
    tn_d_best b = shared[0];
    for (int i = 1; i < WARPS; i++) b = tn_d_better(b, shared[i]);
    return b;
}

/* The best of those that stand behind `last`; last.at -1: of all. A NaN, in the first round, gives at = -1. */
__device__ __forceinline__ tn_d_best next_best(const float *s, int V, tn_d_best last, tn_d_best *shared)
{
    tn_d_best mine = { -INFINITY, INT_MAX };
    for (int i = threadIdx.x; i < V; i += THREADS) {
        const float v = s[i];
        if (last.at >= 0 && !(v < last.x || (v == last.x && i > last.at))) continue;
        const tn_d_best b = { v, v == v ? i : -1 };
        mine = tn_d_better(mine, b);
    }
    return best_of_block(mine, shared);
}

static __global__ void __launch_bounds__(THREADS) top_of_rows(const __grid_constant__ rows j)
{
    __shared__ tn_d_best shared[WARPS];
    __shared__ double total[33];
    const int64_t i = j.first + blockIdx.x, V = j.t.classes;
    const float *s = j.logits + blockIdx.x * j.row;
    int32_t *ids = j.ids + i * j.k;
    float *values = j.values + i * j.k;
    const bool counts = tn_head_counts(j.t, i);
    tn_d_best b = { 0, -1 };
    if (counts) b = next_best(s, (int)V, b, shared);
    if (!counts || b.at < 0) { /* 0, or a row with a NaN */
        const float odd = counts ? NAN : 0.f;
        for (int64_t k = threadIdx.x; k < j.k; k += THREADS) ids[k] = counts ? (int32_t)k : 0, values[k] = odd;
        if (threadIdx.x == 0) j.lse[i] = odd;
        return;
    }
    const float most = b.x == -INFINITY ? 0.f : b.x;
    double sum = 0;
    for (int64_t v = threadIdx.x; v < V; v += THREADS) sum += (double)expf(j.inverse * (s[v] - most));
    sum = tn_d_block_sum(sum, total);
    if (threadIdx.x == 0) j.lse[i] = (float)log(sum);
    for (int64_t k = 0; k < j.k; k++) {
        if (k) b = next_best(s, (int)V, b, shared);
        if (threadIdx.x == 0) ids[k] = b.at, values[k] = b.x - most;
    }
}

extern "C" tn_status tn_linear_top_forward_cuda(const tn_call *c)
{
    const tn_linear_top_attr *a = (const tn_linear_top_attr *)c->attr;
    const tn_arg *x = &c->in[X], *w = &c->in[W], *labels = &c->in[LABELS];
    tn_head_tokens t = {};
    t.label = (const int32_t *)labels->data;
    t.n = row_count(x->dims);
    t.per_live = x->dims.rank > 1 && x->dims.dim[0] > 0 ? t.n / x->dims.dim[0] : 1;
    if (x->dims.rank > 1) t.live[0] = x->live;
    if (x->dims.rank > 1 && labels->data) t.live[1] = labels->live;
    t.classes = w->dims.dim[0];
    t.ignore = IGNORE;
    space s = space_of(t.n, t.classes, w->dims.dim[1], w->dtype, x->dtype, c->work);
    TN_RETURN_IF(tn_head_open(c, &s.head, w));
    for (int64_t at = 0; at < t.n; at += s.chunk) {
        const int64_t count = t.n - at < s.chunk ? t.n - at : s.chunk;
        TN_RETURN_IF(tn_head_logits(c, &s.head, x, &t, at, count, s.logits, TN_F32));
        rows j = {};
        j.logits = s.logits, j.row = s.head.row, j.first = at, j.t = t, j.k = a->k, j.inverse = 1 / a->temperature;
        j.ids = (int32_t *)c->out[IDS].data, j.values = (float *)c->out[LOGITS].data, j.lse = (float *)c->out[LSE].data;
        top_of_rows<<<(unsigned)count, THREADS, 0, tn_cuda_stream(c)>>>(j);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}
