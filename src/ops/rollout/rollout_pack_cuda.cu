/* rollout on the GPU: the weights as tiles of bf16, once a call. A thread writes 8 steps along k of one column. */
#include "backend/cuda/hopper.cuh"
#include "ops/rollout/rollout_tiles.cuh"

using namespace tn_rollout;

enum { THREADS = 256, PIECES = TILE_K / 8 };

static int upward(int x, int unit) { return (x + unit - 1) / unit; }

/* Without its place. */
static tile_set shape_of(const net &m, int product)
{
    tile_set s = {};
    int columns = m.H, k = m.H;
    if (product < TILES_E1) {
        s.columns = GATE_COLUMNS, s.across = m.H / GATE_UNITS;
        s.deep = (product == TILES_GATES ? X_ROOM / TILE_K : m.H / TILE_K) + m.H / TILE_K;
        return s;
    }
    if (product == TILES_E1) columns = m.H / 2;
    else if (product == TILES_D1) columns = HIDDEN;
    else if (product == TILES_HEADS_BACK) k = m.W1;
    else k = 3 * m.H, columns = product == TILES_DX ? m.X : m.H;
    s.columns = columns <= NARROW ? NARROW : WIDE;
    s.across = upward(columns, s.columns), s.deep = upward(k, TILE_K);
    return s;
}

/* Is it there in this net? */
static bool exists(const net &m, int product)
{
    const int l = product < TILES_E1   ? product - TILES_GATES
                  : product < TILES_DX ? 0
                  : product < TILES_DH ? product - TILES_DX
                                       : product - TILES_DH;
    return product == TILES_HEADS_BACK || l < m.L;
}

tile_set tn_rollout::tiles_of(const net &m, int product)
{
    int64_t first = 0;
    tile_set s = {};
    for (int i = 0; i <= product; i++) {
        if (!exists(m, i)) continue;
        s = shape_of(m, i);
        s.first = first;
        first += (int64_t)s.across * s.deep * s.columns * TILE_ROW;
    }
    return s;
}

int64_t tn_rollout::biases_at(const net &m)
{
    const tile_set s = tiles_of(m, TILES_HEADS_BACK);
    return s.first + (int64_t)s.across * s.deep * s.columns * TILE_ROW;
}

size_t tn_rollout::packed_bytes(const net &m) { return (size_t)(biases_at(m) + 16ll * m.L * m.H); }

bool tn_rollout::takes_tiles(tn_dtype type, int64_t H) { return type == TN_BF16 && H % 64 == 0 && tn_hopper_here(); }

/* Weight of column j and step k of a product. */
__device__ __forceinline__ float element(const net &m, int product, int j, int k)
{
    const int H = m.H, half = m.H / 2;
    if (product < TILES_E1) {
        const int l = product - TILES_GATES, X = layer_inputs(m, l), room = l ? H : X_ROOM;
        const int line = j % GATE_COLUMNS / GATE_UNITS * H + j / GATE_COLUMNS * GATE_UNITS + j % GATE_UNITS;
        const weight *w = m.p + TN_ROLLOUT_GRU + 4 * l;
        if (k >= room) return at(w[1], (int64_t)line * H + k - room);
        return k < X ? at(w[0], (int64_t)line * X + k) : 0.f;
    }
    if (product == TILES_E1) return j < half ? at(m.p[TN_ROLLOUT_E1], (int64_t)j * H + k) : 0.f;
    if (product == TILES_D1) return j < HIDDEN ? at(m.p[TN_ROLLOUT_D1], (int64_t)j * H + k) : 0.f;
    if (product == TILES_HEADS_BACK) {
        if (j >= H || k >= m.W1) return 0.f;
        return k < half ? at(m.p[TN_ROLLOUT_E1], (int64_t)k * H + j)
                        : at(m.p[TN_ROLLOUT_D1], (int64_t)(k - half) * H + j);
    }
    const bool own = product >= TILES_DH;
    const int l = product - (own ? TILES_DH : TILES_DX), columns = own ? H : layer_inputs(m, l);
    if (j >= columns || k >= 3 * H) return 0.f;
    return at(m.p[TN_ROLLOUT_GRU + 4 * l + (own ? 1 : 0)], (int64_t)k * columns + j);
}

/* turned: neighbours in memory differ in the column. */
static __global__ void __launch_bounds__(THREADS)
    pack_product(TN_GRID net m, TN_GRID tile_set s, int product, bool turned, char *packed)
{
    const int64_t total = (int64_t)s.across * s.deep * s.columns * PIECES;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < total; i += (int64_t)gridDim.x * THREADS) {
        const int within = (int)(i % (s.columns * PIECES)), deep = (int)(i / (s.columns * PIECES) % s.deep),
                  across = (int)(i / (s.columns * PIECES) / s.deep);
        const int row = turned ? within % s.columns : within / PIECES,
                  piece = turned ? within / s.columns : within % PIECES;
        tn_f8 x;
        for (int k = 0; k < 8; k++)
            x.v[k] = element(m, product, across * s.columns + row, deep * TILE_K + piece * 8 + k);
        const int64_t tile = s.first + (int64_t)(across * s.deep + deep) * s.columns * TILE_ROW;
        tn_store8(packed + tile + row * TILE_ROW + (piece ^ row % 8) * 16, TN_BF16, 0, x);
    }
}

static __global__ void __launch_bounds__(THREADS) pack_biases(TN_GRID net m, float *to)
{
    const int32_t i = (int32_t)blockIdx.x * THREADS + (int32_t)threadIdx.x, l = i / (4 * m.H);
    const int gate = i / GATE_UNITS % 4, unit = i / (4 * GATE_UNITS) % (m.H / GATE_UNITS) * GATE_UNITS + i % GATE_UNITS;
    if (l >= m.L) return;
    const weight *b = m.p + TN_ROLLOUT_GRU + 4 * l + 2;
    const int line = (gate < 2 ? gate : 2) * m.H + unit;
    to[i] = (gate != 3 ? at(b[0], line) : 0.f) + (gate != 2 ? at(b[1], line) : 0.f);
}

tn_status tn_rollout::pack_tiles(const tn_call *c, const net &m, void *packed, bool backward)
{
    for (int i = 0; i < TILES; i++) {
        const bool wanted = i < TILES_DX ? !backward || m.a.keep : backward;
        if (!exists(m, i) || !wanted) continue;
        const tile_set s = tiles_of(m, i);
        const int64_t n = (int64_t)s.across * s.deep * s.columns * PIECES;
        pack_product<<<tn_blocks(c, n, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(m, s, i, i >= TILES_DX,
                                                                                  (char *)packed);
    }
    pack_biases<<<(unsigned)((4 * m.L * m.H + THREADS - 1) / THREADS), THREADS, 0, tn_cuda_stream(c)>>>(
        m, (float *)((char *)packed + biases_at(m)));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
