/* l2norm on the GPU: a block to a row, its length in double. y may be x, and dx may be dy: a thread writes only what it
 * alone has read. Forward a x, backward a dy - b x, with b = 0 in short rows. */
#include "ops/l2norm/l2norm.h"
#include "ops/rows_block.cuh"

struct job {
    tn_arg x, dy, y; /* (rows, n); dy has no data forward; y: y, or dx */
    double eps;
    bool add, eights;
};

__global__ void l2norm_rows(const __grid_constant__ job j, bool backward)
{
    __shared__ double shared[2][33];
    const tn_arg &like = backward ? j.dy : j.x;
    const int64_t rows = tn_d_rows(like), n = tn_d_live_length(like);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const int64_t base = r * n;
        float x[8], d[8];
        double squares = 0, products = 0;
        TN_D_GROUPS(g, n)
        {
            tn_d_group_get(j.x.data, j.x.dtype, base, g, n, j.eights, 0.f, x);
            if (backward) tn_d_group_get(j.dy.data, j.dy.dtype, base, g, n, j.eights, 0.f, d);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                squares += (double)x[e] * (double)x[e];
                if (backward) products += (double)x[e] * (double)d[e];
            }
        }
        const double norm = sqrt(tn_d_block_sum(squares, shared[0]));
        if (backward) products = tn_d_block_sum(products, shared[1]);
        const double inverse = 1 / (norm < j.eps ? j.eps : norm);
        const float a = (float)inverse, b = norm < j.eps ? 0.f : (float)(products * inverse * inverse * inverse);
        TN_D_GROUPS(g, n)
        {
            tn_d_group_get(j.x.data, j.x.dtype, base, g, n, j.eights, 0.f, x);
            if (backward) tn_d_group_get(j.dy.data, j.dy.dtype, base, g, n, j.eights, 0.f, d);
#pragma unroll
            for (int e = 0; e < 8; e++) x[e] = backward ? a * d[e] - b * x[e] : a * x[e];
            tn_d_group_put(j.y.data, j.y.dtype, base, g, n, j.eights, x, j.add);
        }
        __syncthreads(); /* shared is used again */
    }
}

static tn_status run(const tn_call *c, job j, const tn_arg *like)
{
    const int64_t n = tn_row_len(like), rows = tn_all_rows(like);
    j.eps = (double)((const tn_l2norm_attr *)c->attr)->eps;
    j.eights = tn_d_row_eights(j.x.data, j.x.dtype, n) && tn_d_row_eights(j.dy.data, j.dy.dtype, n) &&
               tn_d_row_eights(j.y.data, j.y.dtype, n);
    if (n == 0 || rows == 0) return TN_OK;
    l2norm_rows<<<tn_d_row_blocks(rows), tn_d_row_threads(n), 0, tn_cuda_stream(c)>>>(j, j.dy.data != NULL);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_l2norm_forward_cuda(const tn_call *c)
{
    job j = {};
    j.x = c->in[0], j.y = c->out[0];
    return run(c, j, &c->in[0]);
}

extern "C" tn_status tn_l2norm_backward_cuda(const tn_call *c)
{
    job j = {};
    j.x = c->in[0], j.dy = c->dout[0], j.y = c->din[0], j.add = c->accumulate & 1;
    return run(c, j, &c->dout[0]);
}
