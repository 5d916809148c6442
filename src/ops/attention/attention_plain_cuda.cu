/* attention the plain way on the GPU, the twin of the tiled kernels when opt.flash is off: whole matrices of scores,
 * a softmax over their rows, and products of 64 x 64 tiles in f32. The probabilities (B,H,T,S) are kept for the
 * backward pass; their gradient, of the same size, is in the workspace. Slow by intent: it shows what the tiled
 * kernels are worth, and it must be easy to believe. */
#include "ops/attention/attention_tiles.cuh"

using namespace tn_attention;

enum { ROOM = 2 * TILE_FLOATS * (int)sizeof(float) };

/* (B,H,T,S) as rows of queries with S numbers each. */
static view matrix_of(float *data, const int64_t *stride)
{
    view v = { data, stride[0], stride[2], stride[1], stride[3], TN_F32, false, false, false };
    return v;
}

static view probabilities_of(const tn_call *c, const problem *p)
{
    const int64_t H = (int64_t)p->KV * p->group, dense[4] = { H * p->T * p->S, (int64_t)p->T * p->S, p->S, 1 };
    return c->out[1].data ? matrix_of((float *)c->out[1].data, c->out[1].stride) : matrix_of((float *)c->work, dense);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* to = scale * rows of x times keys of y, hidden pairs at -infinity where `masked`. blockIdx: row tile and head, key
 * tile. */
__global__ void __launch_bounds__(TILE_THREADS)
    plain_pairs(const __grid_constant__ problem p, const view x, const view y, const view to, float scale, bool masked)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS;
    const int tiles = (p.rows + SIDE - 1) / SIDE, head = blockIdx.x / tiles, seq = head / p.KV, kv = head % p.KV;
    const int r0 = blockIdx.x % tiles * SIDE, s0 = blockIdx.y * SIDE;
    if (dead(p.live, seq)) return;
    const sequence q = sequence_of(p, seq);
    sums s;
    tile_products(s, a, b, x, y, p, seq, kv, r0, s0);
    for (int i = 0; i < 16; i++) {
        const int row = r0 + (int)threadIdx.x / 16 * 4 + i / 4, key = s0 + (int)threadIdx.x % 16 * 4 + i % 4;
        if (row >= p.rows || key >= p.S) continue;
        const bool hidden = masked && !row_sees(p, q, sight_of(p, q, row), key);
        ((float *)to.data)[row_at(to, p, seq, kv, row) + key * to.d] = hidden  ? -INFINITY
                                                                       : q.bad ? NAN
                                                                               : scale * s[i / 4][i % 4];
    }
}

/* A warp per row: scores become probabilities. Rows that see nothing become 0. */
__global__ void plain_softmax(const __grid_constant__ problem p, const view x)
{
    const int64_t n = (int64_t)p.B * p.KV * p.rows, step = (int64_t)gridDim.x * (blockDim.x / 32);
    const int lane = threadIdx.x & 31;
    for (int64_t i = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int head = (int)(i / p.rows), b = head / p.KV;
        if (dead(p.live, b)) continue;
        float *row = (float *)x.data + row_at(x, p, b, head % p.KV, (int)(i % p.rows));
        float top = -INFINITY, sum = 0;
        for (int s = lane; s < p.S; s += 32) top = fmaxf(top, row[s * x.d]);
        top = tn_warp_max(top);
        for (int s = lane; s < p.S; s += 32) {
            const float v = row[s * x.d], e = v == -INFINITY ? 0.f : expf(v - top);
            row[s * x.d] = e;
            sum += e;
        }
        sum = tn_warp_sum(sum);
        for (int s = lane; s < p.S && sum != 0; s += 32) row[s * x.d] /= sum;
    }
}

/* A warp per row: gradients g of probabilities x become those of scores. */
__global__ void plain_softmax_back(const __grid_constant__ problem p, const view x, const view g)
{
    const int64_t n = (int64_t)p.B * p.KV * p.rows, step = (int64_t)gridDim.x * (blockDim.x / 32);
    const int lane = threadIdx.x & 31;
    for (int64_t i = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32; i < n; i += step) {
        const int head = (int)(i / p.rows), b = head / p.KV, row = (int)(i % p.rows);
        if (dead(p.live, b)) continue;
        const float *w = (const float *)x.data + row_at(x, p, b, head % p.KV, row);
        float *d = (float *)g.data + row_at(g, p, b, head % p.KV, row), delta = 0;
        for (int s = lane; s < p.S; s += 32)
            if (w[s * x.d] != 0) delta = fmaf(w[s * x.d], d[s * g.d], delta);
        delta = tn_warp_sum(delta);
        for (int s = lane; s < p.S; s += 32) d[s * g.d] = w[s * x.d] == 0 ? 0.f : w[s * x.d] * (d[s * g.d] - delta);
    }
}

/* to (rows) (+)= scale * matrix w times keys of x, without terms of weight 0. blockIdx: row tile and head, numbers
 * of D. */
__global__ void __launch_bounds__(TILE_THREADS)
    plain_rows(const __grid_constant__ problem p, const view w, const view x, const view to, float scale, bool add)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS;
    const int tiles = (p.rows + SIDE - 1) / SIDE, head = blockIdx.x / tiles, seq = head / p.KV, kv = head % p.KV;
    const int r0 = blockIdx.x % tiles * SIDE, d0 = blockIdx.y * SIDE;
    if (dead(p.live, seq)) return;
    sums s;
    sums_clear(s);
    for (int s0 = 0; s0 < p.S; s0 += SIDE) {
        __syncthreads();
        tile_load<true, true>(a, w, p, seq, kv, r0, p.rows, s0, p.S);
        tile_load<false, false>(b, x, p, seq, kv, s0, p.S, d0, p.D);
        __syncthreads();
        tile_multiply<true>(s, a, b);
    }
    for (int i = 0; i < 16; i++) {
        const int row = r0 + (int)threadIdx.x / 16 * 4 + i / 4, d = d0 + (int)threadIdx.x % 16 * 4 + i % 4;
        if (row < p.rows && d < p.D)
            tn_put(to.data, to.type, row_at(to, p, seq, kv, row) + d * to.d, scale * s[i / 4][i % 4], add);
    }
}

/* to (keys) (+)= scale * matrix w, turned, times rows of x. blockIdx: key tile and head, numbers of D. */
__global__ void __launch_bounds__(TILE_THREADS)
    plain_keys(const __grid_constant__ problem p, const view w, const view x, const view to, const int32_t *live,
               float scale, bool add)
{
    extern __shared__ float4 shared[];
    float *const a = (float *)shared, *const b = a + TILE_FLOATS;
    const int tiles = (p.S + SIDE - 1) / SIDE, head = blockIdx.x / tiles, seq = head / p.KV, kv = head % p.KV;
    const int s0 = blockIdx.x % tiles * SIDE, d0 = blockIdx.y * SIDE;
    if (dead(live, seq)) return;
    sums s;
    sums_clear(s);
    for (int r0 = 0; r0 < p.rows && !dead(p.live, seq); r0 += SIDE) {
        __syncthreads();
        tile_load<true, false>(a, w, p, seq, kv, r0, p.rows, s0, p.S);
        tile_load<true, false>(b, x, p, seq, kv, r0, p.rows, d0, p.D);
        __syncthreads();
        tile_multiply<true>(s, a, b);
    }
    for (int i = 0; i < 16; i++) {
        const int key = s0 + (int)threadIdx.x / 16 * 4 + i / 4, d = d0 + (int)threadIdx.x % 16 * 4 + i % 4;
        if (key < p.S && d < p.D)
            tn_put(to.data, to.type, key_at(to, seq, kv, key) + d * to.d, scale * s[i / 4][i % 4], add);
    }
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

extern "C" size_t tn_attention_plain_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims q = s->in[TN_ATT_Q].dims;
    (void)backward; /* the probabilities when nobody keeps them, or their gradient */
    return sizeof(float) * (size_t)(q.dim[0] * q.dim[2] * q.dim[1] * s->in[TN_ATT_K].dims.dim[1]);
}

static unsigned tiles_of(int64_t n) { return (unsigned)((n + SIDE - 1) / SIDE); }

static dim3 grid_of(const problem *p, int64_t along, int64_t wide)
{
    return dim3((unsigned)(p->B * p->KV) * tiles_of(along), tiles_of(wide));
}

static unsigned row_blocks(const tn_call *c, const problem *p)
{
    return tn_blocks(c, (int64_t)p->B * p->KV * p->rows, TILE_THREADS / 32);
}

extern "C" tn_status tn_attention_plain_forward_cuda(const tn_call *c)
{
    const problem p = problem_of(c, &c->in[TN_ATT_Q]);
    const cudaStream_t stream = tn_cuda_stream(c);
    const view w = probabilities_of(c, &p);
    if (p.B == 0 || p.rows == 0 || p.D == 0) return TN_OK;
    if (p.S > 0) {
        plain_pairs<<<grid_of(&p, p.rows, p.S), TILE_THREADS, ROOM, stream>>>(p, p.q, p.k, w, p.scale, true);
        plain_softmax<<<row_blocks(c, &p), TILE_THREADS, 0, stream>>>(p, w);
    }
    plain_rows<<<grid_of(&p, p.rows, p.D), TILE_THREADS, ROOM, stream>>>(p, w, p.v, p.y, 1, false);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_attention_plain_backward_cuda(const tn_call *c)
{
    const tn_arg *din = c->din;
    const problem p = problem_of(c, &c->dout[0]);
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t H = (int64_t)p.KV * p.group, dense[4] = { H * p.T * p.S, (int64_t)p.T * p.S, p.S, 1 };
    const view w = probabilities_of(c, &p), g = matrix_of((float *)c->work, dense), dy = view_of(&c->dout[0]);
    const bool add[3] = { (c->accumulate >> TN_ATT_Q & 1) != 0, (c->accumulate >> TN_ATT_K & 1) != 0,
                          (c->accumulate >> TN_ATT_V & 1) != 0 };
    if (p.B == 0 || p.D == 0) return TN_OK;
    if (din[TN_ATT_V].data && p.S > 0)
        plain_keys<<<grid_of(&p, p.S, p.D), TILE_THREADS, ROOM, stream>>>(p, w, dy, view_of(&din[TN_ATT_V]),
                                                                          din[TN_ATT_V].live, 1, add[TN_ATT_V]);
    if ((din[TN_ATT_Q].data || din[TN_ATT_K].data) && p.rows > 0 && p.S > 0) {
        plain_pairs<<<grid_of(&p, p.rows, p.S), TILE_THREADS, ROOM, stream>>>(p, dy, p.v, g, 1, false);
        plain_softmax_back<<<row_blocks(c, &p), TILE_THREADS, 0, stream>>>(p, w, g);
    }
    if (din[TN_ATT_Q].data && p.rows > 0)
        plain_rows<<<grid_of(&p, p.rows, p.D), TILE_THREADS, ROOM, stream>>>(p, g, p.k, view_of(&din[TN_ATT_Q]),
                                                                             p.scale, add[TN_ATT_Q]);
    if (din[TN_ATT_K].data && p.S > 0)
        plain_keys<<<grid_of(&p, p.S, p.D), TILE_THREADS, ROOM, stream>>>(p, g, p.q, view_of(&din[TN_ATT_K]),
                                                                          din[TN_ATT_K].live, p.scale, add[TN_ATT_K]);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
