/* Statistics of rows for attention_backward_once_hopper_cuda.cu, tile after tile as it copies them: the log-sum-exp in powers
 * of 2, then the sum of gradient times output. As many bytes are under way as the memory needs. */
#include "ops/attention/attention_cuda.cuh"

using namespace tn_attention;

enum { ROWS = 64, THREADS = 256, AT_A_TIME = THREADS / 8, HEADS = 4 };

/* Eight products of a row, added up in order. */
__device__ __forceinline__ float eight_products(const view &x, int64_t i, const view &y, int64_t j, int d, int D)
{
    float sum = 0;
    if (x.eights && y.eights) {
        const tn_f8 u = tn_load8(x.data, x.type, i + d), v = tn_load8(y.data, y.type, j + d);
#pragma unroll
        for (int e = 0; e < 8; e++) sum = fmaf(u.v[e], v.v[e], sum);
    } else {
        for (int e = d; e < min(d + 8, D); e++)
            sum = fmaf(tn_load(x.data, x.type, i + e * x.d), tn_load(y.data, y.type, j + e * y.d), sum);
    }
    return sum;
}

/* stat (heads, tiles, 2, ROWS). Infinity for rows that see nothing or are not there, so that their weights are 0. Eight lanes
 * have a row, of HEADS heads at a time; the sums are those of row_stats. */
__global__ void __launch_bounds__(THREADS) once_stats(const __grid_constant__ problem p, float *stat, int tiles)
{
    const int b = blockIdx.x / (tiles * (ROWS / AT_A_TIME)), d = threadIdx.x % 8 * 8;
    const int t = blockIdx.x % (tiles * (ROWS / AT_A_TIME)) * AT_A_TIME + threadIdx.x / 8;
    const bool there = t < p.T && !dead(p.live, b), plain = p.y.vectors && p.dy.vectors;
    const __nv_bfloat16 *const y = (const __nv_bfloat16 *)p.y.data + key_at(p.y, b, 0, t) + d,
                               *const g = (const __nv_bfloat16 *)p.dy.data + key_at(p.dy, b, 0, t) + d;
    for (int h0 = 0; h0 < p.KV; h0 += HEADS) {
        float sum[HEADS] = {}, lse[HEADS];
        uint4 u[HEADS], v[HEADS];
#pragma unroll
        for (int e = 0; e < HEADS; e++) {
            const bool wanted = there && h0 + e < p.KV;
            u[e] = v[e] = make_uint4(0, 0, 0, 0), lse[e] = INFINITY;
            if (wanted && plain && d < p.D) {
                u[e] = *(const uint4 *)(y + (h0 + e) * p.y.h);
                v[e] = *(const uint4 *)(g + (h0 + e) * p.dy.h);
            }
            if (wanted && d == 0) lse[e] = p.lse[b * p.lse_b + (h0 + e) * p.lse_h + t * p.lse_t];
        }
#pragma unroll
        for (int e = 0; e < HEADS; e++) {
            const int h = h0 + e;
            if (plain) {
                const __nv_bfloat162 *a = (const __nv_bfloat162 *)&u[e], *c = (const __nv_bfloat162 *)&v[e];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 m = __bfloat1622float2(a[i]), n = __bfloat1622float2(c[i]);
                    sum[e] = fmaf(m.y, n.y, fmaf(m.x, n.x, sum[e]));
                }
            } else if (there && h < p.KV && d < p.D) {
                sum[e] = eight_products(p.y, key_at(p.y, b, h, t), p.dy, key_at(p.dy, b, h, t), d, p.D);
            }
#pragma unroll
            for (int k = 4; k; k >>= 1) sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], k);
            if (d || h >= p.KV) continue;
            float *const to = stat + ((int64_t)(b * p.KV + h) * tiles + t / ROWS) * (2 * ROWS) + t % ROWS;
            to[0] = lse[e] == -INFINITY ? INFINITY : lse[e] * LOG2E;
            to[ROWS] = sum[e];
        }
    }
}

tn_status tn_attention_once_stats_cuda(const tn_call *c, const problem *p, float *stat)
{
    const int tiles = (p->T + ROWS - 1) / ROWS;
    once_stats<<<(unsigned)(p->B * tiles * (ROWS / AT_A_TIME)), THREADS, 0, tn_cuda_stream(c)>>>(*p, stat, tiles);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
