/* rollout on the GPU: features, the GRU's layers and the heads' first products of one step. Where the weights were packed into
 * tiles a layer is one kernel (rollout_gates_hopper_cuda.cu); else a product of f32 results, then the gates. */
#include "ops/rollout/rollout_neuron.cuh"
#include "ops/rollout/rollout_tiles.cuh"

using namespace tn_rollout;

/* FEATURE_BLOCKS: blocks a multiprocessor, each loads the neuron's weights; AT_ONCE: rows of a warp, whose waits overlap */
enum { THREADS = 256, FEATURE_BLOCKS = 4, AT_ONCE = 2 };

/* --- features ------------------------------------------------------------------------------------------------------------ */

template <int KIND>
static __global__ void __launch_bounds__(THREADS) make_features(TN_GRID net m, int t, void *x)
{
    __shared__ neuron w;
    const int lane = threadIdx.x & 31;
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * (THREADS / 32);
    const int32_t first = (int32_t)blockIdx.x * (THREADS / 32) + (int32_t)(threadIdx.x >> 5);
    if ((int32_t)blockIdx.x * (THREADS / 32) >= n) return;
    load_neuron<KIND>(m, &w);
    for (int32_t row0 = first; row0 < n; row0 += AT_ONCE * step) {
        int32_t row[AT_ONCE];
        float f[AT_ONCE][2];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            row[r] = row0 + r * step < n ? row0 + r * step : row0;
            f[r][0] = w.b3[lane], f[r][1] = w.b3[lane + 32];
        }
        const neuron_state<AT_ONCE> s = run_neuron(m, &w, t, row);
#pragma unroll 8
        for (int k = 0; k < NEURON; k++) {
            const float v[2] = { w.v3[k * ROW3 + lane], w.v3[k * ROW3 + lane + 32] };
#pragma unroll
            for (int r = 0; r < AT_ONCE; r++) {
                const float a = __shfl_sync(0xffffffffu, s.a2[r], k);
                f[r][0] = fmaf(a, v[0], f[r][0]), f[r][1] = fmaf(a, v[1], f[r][1]);
            }
        }
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            const int64_t to = (int64_t)row[r] * X_ROOM + lane;
            if (row0 + r * step >= n) break;
            put<KIND>(m, x, to, f[r][0]);
            put<KIND>(m, x, to + 32, f[r][1]);
            put<KIND>(m, x, to + 64, lane < m.E ? places_of(m, t)[(int64_t)row[r] * m.P + 3 + lane] : 0.f);
            put<KIND>(m, x, to + 96, 0.f);
        }
    }
}

tn_status tn_rollout::run_features(const tn_call *c, const net &m, int t, void *x)
{
    const unsigned most = (unsigned)tn_cuda_queue_of(c)->multiprocessors * FEATURE_BLOCKS,
                   want = tn_blocks(c, m.C, THREADS / 32), blocks = want < most ? want : most;
    TN_ROLLOUT_LAUNCH(make_features, kind_of(m), <<<blocks, THREADS, 0, tn_cuda_stream(c)>>>(m, t, x));
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- gates --------------------------------------------------------------------------------------------------------------- */

struct gates {
    const float *raw; /* (C,4H): before r, before z, n's parts from x and from h */
    const void *before;
    const int32_t *from;
    void *after, *kept; /* (C,H), (C,4H) */
};

static __global__ void __launch_bounds__(THREADS) compute_gates(TN_GRID net m, int t, TN_GRID gates g)
{
    const int64_t total = (int64_t)rows_at(m, t) * m.H, H = m.H;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < total; i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / H, j = i - row * H;
        const float *raw = g.raw + row * 4 * H + j;
        const float h = g.before ? tn_load(g.before, m.type, g.from[row] * H + j) : 0.f;
        const float r = tn_d_sigmoid(raw[0]), z = tn_d_sigmoid(raw[H]), q = raw[3 * H];
        const float n = tn_d_tanh(fmaf(r, q, raw[2 * H]));
        tn_store(g.after, m.type, i, fmaf(z, h - n, n));
        if (!g.kept) continue;
        const int64_t to = row * 4 * H + j;
        tn_store(g.kept, m.type, to, r), tn_store(g.kept, m.type, to + H, z);
        tn_store(g.kept, m.type, to + 2 * H, n), tn_store(g.kept, m.type, to + 3 * H, q);
    }
}

static tn_status run_layer(const tn_call *c, const net &m, const cell &s, int l)
{
    const int64_t states = (int64_t)m.C * m.H;
    layer y = {};
    y.l = l;
    y.x = l ? item(s.h.after, m.type, (l - 1) * states) : s.x;
    y.x_row = l ? m.H : X_ROOM;
    y.before = s.h.before ? item(s.h.before, m.type, l * states) : NULL;
    y.after = item(s.h.after, m.type, l * states);
    y.kept = s.gates ? item(s.gates, m.type, 4 * l * states) : NULL;
    y.from = from_of(m, s.t);
    if (s.packed) return run_tiled_layer(c, m, s.t, y, s.packed);
    y.raw = s.raw;
    TN_RETURN_IF(multiply_gates(c, m, s.t, y));
    const gates g = { s.raw, y.before, y.from, y.after, y.kept };
    compute_gates<<<tn_blocks(c, states, THREADS), THREADS, 0, tn_cuda_stream(c)>>>(m, s.t, g);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- a step -------------------------------------------------------------------------------------------------------------- */

static product head_of(const net &m, const cell &s, int w, int64_t first, int columns, int tile)
{
    product p = {};
    p.a = item(s.h.after, m.type, (int64_t)(m.L - 1) * m.C * m.H), p.a_row = m.H;
    p.part[0].k = m.H, p.part[0].gap_at = m.H;
    p.part[0].w = m.p[w], p.part[0].w_k = 1, p.part[0].w_j = m.H;
    p.parts = 1, p.columns = columns, p.bias = m.p[w + 1];
    p.to = item(s.heads, m.type, first), p.to_row = m.W1;
    p.tile = tile;
    return p;
}

tn_status tn_rollout::run_cell(const tn_call *c, const net &m, const cell &s)
{
    TN_RETURN_IF(run_features(c, m, s.t, s.x));
    for (int l = 0; l < m.L; l++) TN_RETURN_IF(run_layer(c, m, s, l));
    const product p[] = { head_of(m, s, TN_ROLLOUT_E1, 0, m.H / 2, TILES_E1),
                          head_of(m, s, TN_ROLLOUT_D1, m.H / 2, HIDDEN, TILES_D1) };
    return multiply_rows(c, m, s.t, p, 2, s.packed);
}
