/* rollout on the GPU: products over the rows of a step in f32 arithmetic, tiles of 64 x 64, one sum of each result in the order of
 * k. For f32, and where tensor cores cannot be used as rollout_tiles.cuh wants it. */
#include "ops/rollout/rollout_tiles.cuh"

using namespace tn_rollout;

enum { SIDE = 64, DEEP = 16, THREADS = 256, EACH = 4 }; /* a thread has EACH x EACH results */

struct tile_room {
    float a[DEEP][SIDE + 4], b[DEEP][SIDE + 4];
};

/* sum += a b along k in [0,n); a(i,k) and b(k,j) give numbers, 0 outside. a_first, b_first: k is what neighbours in memory
 * differ in. */
template <class A, class W>
__device__ __forceinline__ void add_tile(float (&sum)[EACH][EACH], tile_room &room, int n, A a, W b, bool a_first,
                                         bool b_first)
{
    const int tx = threadIdx.x % 16 * EACH, ty = threadIdx.x / 16 * EACH;
    for (int k0 = 0; k0 < n; k0 += DEEP) {
        __syncthreads();
        for (int e = threadIdx.x; e < SIDE * DEEP; e += THREADS) {
            const int ka = a_first ? e % DEEP : e / SIDE, ia = a_first ? e / DEEP : e % SIDE;
            const int kb = b_first ? e % DEEP : e / SIDE, jb = b_first ? e / DEEP : e % SIDE;
            room.a[ka][ia] = k0 + ka < n ? a(ia, k0 + ka) : 0.f;
            room.b[kb][jb] = k0 + kb < n ? b(k0 + kb, jb) : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(room.a[k][ty + i], room.b[k][tx + j], sum[i][j]);
    }
}

/* --- a layer's gates ----------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS) gate_products(TN_GRID net m, int t, TN_GRID layer y)
{
    __shared__ tile_room room;
    const int32_t n = rows_at(m, t), row0 = (int32_t)blockIdx.x * SIDE;
    const int H = m.H, X = layer_inputs(m, y.l), blocks = (H + SIDE - 1) / SIDE;
    const int gate = (int)blockIdx.y / blocks, j0 = (int)blockIdx.y % blocks * SIDE;
    if (row0 >= n) return;
    const weight *w = m.p + TN_ROLLOUT_GRU + 4 * y.l;
    const int x_gate = gate < 2 ? gate : 2;
    float sum[EACH][EACH] = {};
    if (gate != 3)
        add_tile(
            sum, room, X,
            [&](int i, int k) { return row0 + i < n ? tn_load(y.x, m.type, (row0 + i) * y.x_row + k) : 0.f; },
            [&](int k, int j) { return j0 + j < H ? at(w[0], (int64_t)(x_gate * H + j0 + j) * X + k) : 0.f; }, true,
            true);
    if (gate != 2 && y.before)
        add_tile(
            sum, room, H,
            [&](int i, int k) {
                return row0 + i < n ? tn_load(y.before, m.type, (int64_t)y.from[row0 + i] * H + k) : 0.f;
            },
            [&](int k, int j) { return j0 + j < H ? at(w[1], (int64_t)(x_gate * H + j0 + j) * H + k) : 0.f; }, true,
            true);
    const int tx = threadIdx.x % 16 * EACH, ty = threadIdx.x / 16 * EACH;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int32_t row = row0 + ty + i;
            const int unit = j0 + tx + j;
            if (row >= n || unit >= H) continue;
            const float bi = gate != 3 ? at(w[2], x_gate * H + unit) : 0.f,
                        bh = gate != 2 ? at(w[3], x_gate * H + unit) : 0.f;
            y.raw[((int64_t)row * 4 + gate) * H + unit] = sum[i][j] + (bi + bh);
        }
}

tn_status tn_rollout::multiply_gates(const tn_call *c, const net &m, int t, const layer &y)
{
    const dim3 grid((unsigned)((m.C + SIDE - 1) / SIDE), (unsigned)(4 * ((m.H + SIDE - 1) / SIDE)));
    gate_products<<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, t, y);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- rows times a matrix ------------------------------------------------------------------------------------------------- */

struct products {
    product p[2];
};

static __global__ void __launch_bounds__(THREADS) row_products(TN_GRID net m, int t, TN_GRID products all)
{
    __shared__ tile_room room;
    const product &p = all.p[blockIdx.z];
    const int32_t n = rows_at(m, t), row0 = (int32_t)blockIdx.x * SIDE;
    const int j0 = (int)blockIdx.y * SIDE;
    if (row0 >= n || j0 >= p.columns) return;
    float sum[EACH][EACH] = {};
    for (int part = 0; part < p.parts; part++) {
        const product_part &w = p.part[part];
        add_tile(
            sum, room, w.k,
            [&](int i, int k) {
                const int column = w.first + k + (k >= w.gap_at ? w.gap : 0);
                return row0 + i < n ? tn_load(p.a, m.type, (row0 + i) * p.a_row + column) : 0.f;
            },
            [&](int k, int j) { return j0 + j < p.columns ? at(w.w, k * w.w_k + (j0 + j) * w.w_j) : 0.f; }, true,
            w.w_k == 1);
    }
    const int tx = threadIdx.x % 16 * EACH, ty = threadIdx.x / 16 * EACH;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            const int32_t row = row0 + ty + i;
            const int column = j0 + tx + j;
            if (row >= n || column >= p.columns) continue;
            const float x = sum[i][j] + (p.bias.data ? at(p.bias, column) : 0.f);
            tn_put(p.to, m.type, row * p.to_row + column, x, p.add);
        }
}

tn_status tn_rollout::multiply_rows(const tn_call *c, const net &m, int t, const product *p, int n, const void *packed)
{
    products all = {};
    int most = 0;
    if (packed) return multiply_tiled_rows(c, m, t, p, n, packed);
    for (int i = 0; i < n; i++) {
        all.p[i] = p[i];
        most = p[i].columns > most ? p[i].columns : most;
    }
    const dim3 grid((unsigned)((m.C + SIDE - 1) / SIDE), (unsigned)((most + SIDE - 1) / SIDE), (unsigned)n);
    row_products<<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, t, all);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- sums over rows ------------------------------------------------------------------------------------------------------ */

struct outers {
    outer o[MOST_OUTER];
};

/* Rows in pieces, each summed on its own first. */
static __global__ void __launch_bounds__(THREADS) outer_products(TN_GRID net m, int t, TN_GRID outers all)
{
    __shared__ tile_room room;
    const outer &o = all.o[blockIdx.z];
    const int32_t n = rows_at(m, t);
    const int i0 = (int)blockIdx.x * SIDE, j0 = (int)blockIdx.y * SIDE;
    const int tx = threadIdx.x % 16 * EACH, ty = threadIdx.x / 16 * EACH;
    if (i0 >= o.rows || j0 >= o.columns || n == 0) return;
    float total[EACH][EACH] = {};
    for (int32_t first = 0; first < n; first += TN_ROLLOUT_PIECE) {
        float sum[EACH][EACH] = {};
        add_tile(
            sum, room, n - first < TN_ROLLOUT_PIECE ? n - first : TN_ROLLOUT_PIECE,
            [&](int i, int k) {
                const int column = o.d_first + i0 + i + (i0 + i >= o.gap_at ? o.gap : 0);
                return i0 + i < o.rows ? tn_load(o.d, m.type, (first + k) * o.d_row + column) : 0.f;
            },
            [&](int k, int j) {
                const int64_t row = o.from ? o.from[first + k] : first + k;
                return j0 + j < o.columns ? tn_load(o.a, m.type, row * o.a_row + j0 + j) : 0.f;
            },
            false, false);
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) total[i][j] += sum[i][j];
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            if (i0 + ty + i < o.rows && j0 + tx + j < o.columns)
                o.sum[(int64_t)(i0 + ty + i) * o.columns + j0 + tx + j] += total[i][j];
}

tn_status tn_rollout::add_outer(const tn_call *c, const net &m, int t, const outer *o, int n, bool tiles)
{
    outers all = {};
    int rows = 0, columns = 0;
    if (tiles) return add_tiled_outer(c, m, t, o, n);
    for (int i = 0; i < n; i++) {
        all.o[i] = o[i];
        rows = o[i].rows > rows ? o[i].rows : rows;
        columns = o[i].columns > columns ? o[i].columns : columns;
    }
    const dim3 grid((unsigned)((rows + SIDE - 1) / SIDE), (unsigned)((columns + SIDE - 1) / SIDE), (unsigned)n);
    outer_products<<<grid, THREADS, 0, tn_cuda_stream(c)>>>(m, t, all);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
