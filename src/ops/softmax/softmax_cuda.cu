/* softmax on the GPU: a block to a row, three passes over it (largest, sum, weights), two backward. y may be x, and dx
 * may be dy: a thread writes only what it alone has read. Rows up to some ten thousand numbers are read from memory
 * once, then from the cache. */
#include "ops/rows_block.cuh"
#include "ops/softmax/softmax.h"

struct job {
    tn_arg x, mask, y, dy, dx; /* (rows, n); the mask broadcasts */
    float sign, scale;         /* scale x = scale (sign x), scale > 0 */
    bool log, add, eights;
};

/* Offset of row r of x in the mask. */
__device__ __forceinline__ int64_t mask_row(const job &j, int64_t r)
{
    int64_t off = 0;
    for (int i = j.x.dims.rank - 2; i >= 0; i--) {
        const int own = i - (j.x.dims.rank - j.mask.dims.rank);
        const int64_t d = j.x.dims.dim[i];
        if (own >= 0 && j.mask.dims.dim[own] != 1) off += r % d * j.mask.stride[own];
        r /= d;
    }
    return off;
}

struct row {
    int64_t base, n;
    int64_t mask, step; /* first of the mask, and from one to the next */
};

/* sign x of a group; -inf where it is masked and beyond the end. */
__device__ __forceinline__ void get(const job &j, const row &w, int64_t g, float (&v)[8])
{
    tn_d_group_get(j.x.data, j.x.dtype, w.base, g, w.n, j.eights, -INFINITY * j.sign, v);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        v[e] *= j.sign;
        if (j.mask.data && g + e < w.n && !(tn_d_weight(j.mask, w.mask + (g + e) * w.step) != 0.f)) v[e] = -INFINITY;
    }
}

__global__ void softmax_forward(const __grid_constant__ job j)
{
    __shared__ float most[33], total[33];
    const int64_t rows = tn_d_rows(j.x), m_rank = j.mask.dims.rank;
    row w = { 0, tn_d_live_length(j.x), 0, m_rank && j.mask.dims.dim[m_rank - 1] != 1 };
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float v[8], m = -INFINITY, s = 0;
        w.base = r * w.n;
        w.mask = j.mask.data ? mask_row(j, r) : 0;
        TN_D_GROUPS(g, w.n)
        {
            get(j, w, g, v);
#pragma unroll
            for (int e = 0; e < 8; e++) m = fmaxf(m, v[e]);
        }
        m = tn_d_block_max(m, most);
        if (m == -INFINITY) m = 0; /* nothing left: every weight is 0 */
        TN_D_GROUPS(g, w.n)
        {
            get(j, w, g, v);
#pragma unroll
            for (int e = 0; e < 8; e++) s += expf(j.scale * (v[e] - m));
        }
        s = tn_block_sum(s, total);
        const float inverse = s == 0 ? 0.f : 1.f / s, shift = s == 0 ? 0.f : logf(s);
        TN_D_GROUPS(g, w.n)
        {
            get(j, w, g, v);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float z = j.scale * (v[e] - m);
                v[e] = j.log ? z - shift : expf(z) * inverse;
            }
            tn_d_group_put(j.y.data, j.y.dtype, w.base, g, w.n, j.eights, v, false);
        }
    }
}

__global__ void softmax_backward(const __grid_constant__ job j)
{
    __shared__ float total[33];
    const int64_t rows = tn_d_rows(j.dy), n = tn_d_live_length(j.dy);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const int64_t base = r * n;
        float y[8], d[8], s = 0;
        TN_D_GROUPS(g, n)
        {
            tn_d_group_get(j.dy.data, j.dy.dtype, base, g, n, j.eights, 0.f, d);
            if (!j.log) tn_d_group_get(j.y.data, j.y.dtype, base, g, n, j.eights, 0.f, y);
#pragma unroll
            for (int e = 0; e < 8; e++) s += j.log ? d[e] : d[e] * y[e];
        }
        s = tn_block_sum(s, total);
        TN_D_GROUPS(g, n)
        {
            tn_d_group_get(j.dy.data, j.dy.dtype, base, g, n, j.eights, 0.f, d);
            tn_d_group_get(j.y.data, j.y.dtype, base, g, n, j.eights, 0.f, y);
#pragma unroll
            for (int e = 0; e < 8; e++) d[e] = j.sign * j.scale * (j.log ? d[e] - expf(y[e]) * s : y[e] * (d[e] - s));
            tn_d_group_put(j.dx.data, j.dx.dtype, base, g, n, j.eights, d, j.add);
        }
        __syncthreads(); /* total is used again */
    }
}

static job make_job(const tn_call *c)
{
    const tn_softmax_attr *a = (const tn_softmax_attr *)c->attr;
    job j = {};
    j.sign = a->scale < 0 ? -1.f : 1.f;
    j.scale = a->scale < 0 ? -a->scale : a->scale;
    j.log = a->log;
    return j;
}

extern "C" tn_status tn_softmax_forward_cuda(const tn_call *c)
{
    job j = make_job(c);
    const int64_t n = tn_row_len(&c->in[0]), rows = tn_all_rows(&c->in[0]);
    j.x = c->in[0], j.mask = c->in[1], j.y = c->out[0];
    j.eights = tn_d_row_eights(j.x.data, j.x.dtype, n) && tn_d_row_eights(j.y.data, j.y.dtype, n);
    if (n == 0 || rows == 0) return TN_OK;
    softmax_forward<<<tn_d_row_blocks(rows), tn_d_row_threads(n), 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_softmax_backward_cuda(const tn_call *c)
{
    job j = make_job(c);
    const int64_t n = tn_row_len(&c->dout[0]), rows = tn_all_rows(&c->dout[0]);
    j.y = c->out[0], j.dy = c->dout[0], j.dx = c->din[0], j.add = c->accumulate & 1;
    j.eights = tn_d_row_eights(j.y.data, j.y.dtype, n) && tn_d_row_eights(j.dy.data, j.dy.dtype, n) &&
               tn_d_row_eights(j.dx.data, j.dx.dtype, n);
    if (n == 0 || rows == 0) return TN_OK;
    softmax_backward<<<tn_d_row_blocks(rows), tn_d_row_threads(n), 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
