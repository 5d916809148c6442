/* rollout on the GPU: features, the GRU's layers and the heads' first products of one step. Where the weights were packed into
 * tiles a layer is one kernel (rollout_gates_hopper_cuda.cu); else a product of f32 results, then the gates. */
#include "ops/rollout/rollout_neuron.cuh"
#include "ops/rollout/rollout_tiles.cuh"

using namespace tn_rollout;

enum { THREADS = 256, FEATURE_BLOCKS = 4 }; /* FEATURE_BLOCKS: of a multiprocessor, each loads the neuron's weights */

/* --- features ------------------------------------------------------------------------------------------------------------ */

struct feature_room {
    neuron w;
    float v3[NEURON * FEATURES], b3[FEATURES];
    neuron_rows rows;
};

/* Inputs and a2 have the same place: nobody needs the inputs when a2 is written. */
template <int KIND>
static __global__ void __launch_bounds__(NEURON_THREADS, FEATURE_BLOCKS) make_features(TN_GRID net m, int t, void *x)
{
    __shared__ __align__(16) feature_room room;
    const int32_t n = rows_at(m, t), step = (int32_t)gridDim.x * NEURON_ROWS;
    const int own = own_row(), half = own_half();
    if ((int32_t)blockIdx.x * NEURON_ROWS >= n) return;
    load_neuron<KIND>(m, &room.w);
    load_turned<KIND, NEURON, FEATURES>(room.v3, m.p[TN_ROLLOUT_V3], NEURON);
    if (threadIdx.x < FEATURES) room.b3[threadIdx.x] = get<KIND>(m.p[TN_ROLLOUT_V3B], threadIdx.x);
    __syncthreads();
    for (int32_t row0 = (int32_t)blockIdx.x * NEURON_ROWS; row0 < n; row0 += step) {
        const int32_t row = row0 + own < n ? row0 + own : n - 1;
        neuron_units s1, s2;
        float f[32];
        run_neuron<KIND>(m, &room.w, t, row, &room.rows, room.rows.in, &s1, &s2);
#pragma unroll
        for (int j = 0; j < 32; j++) f[j] = room.b3[half * 32 + j];
        add_products(f, room.rows.in + own, room.v3 + half * 32, NEURON, FEATURES);
        if (row0 + own < n) put_inputs<KIND>(m, t, row, f, x);
        __syncthreads();
    }
}

static tn_status run_features(const tn_call *c, const net &m, int t, void *x)
{
    const unsigned most = (unsigned)tn_cuda_queue_of(c)->multiprocessors * FEATURE_BLOCKS,
                   want = tn_blocks(c, m.C, NEURON_ROWS), blocks = want < most ? want : most;
    TN_ROLLOUT_LAUNCH(make_features, kind_of(m), <<<blocks, NEURON_THREADS, 0, tn_cuda_stream(c)>>>(m, t, x));
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
