/* rollout on Hopper: a layer of the GRU. A tile is 128 rows and 64 units: the products with r, z and n of these units, along x and
 * then along h, whose parts of n stay apart; then the gates, and what is stored of them, from the sums in registers. */
#include "ops/rollout/rollout_hopper.cuh"

using namespace tn_rollout;

struct gate_room {
    static const int weights = GATE_COLUMNS * TILE_ROW, stage = ROWS_BYTES + weights, barriers_at = STAGES * stage;
    static const int bytes = barriers_at + 2 * STAGES * 8 + 1024;
};

struct gate_job {
    layer y;
    const int32_t *live; /* rows of the step */
    const char *tiles;
    const float *bias;     /* (H/64,4,64) */
    int H, deep_x, deep_h; /* tiles along k; deep_h 0: there is no state before */
    int deep;              /* of the packed weights */
};

#if TN_HOPPER

__device__ __forceinline__ int tiles_in(const gate_job &j, int32_t n)
{
    return (n + TILE_ROWS - 1) / TILE_ROWS * (j.H / GATE_UNITS);
}

/* --- in ------------------------------------------------------------------------------------------------------------------ */

/* A thread's eight of 128 rows, from its piece of 16 bytes on; NULL: none. */
struct row_pieces {
    const char *at[8];
    __device__ __forceinline__ void copy(char *to)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            tn_copy16(to + i * 16 * TILE_ROW, at[i], at[i] != NULL);
            at[i] += at[i] ? TILE_ROW : 0; /* 64 columns further */
        }
    }
};

__device__ __forceinline__ row_pieces pieces_of(const void *from, int64_t row_bytes, const int32_t (&row)[8])
{
    row_pieces p;
#pragma unroll
    for (int i = 0; i < 8; i++)
        p.at[i] = row[i] < 0 ? NULL : (const char *)from + row[i] * row_bytes + threadIdx.x % 8 * 16;
    return p;
}

__device__ __forceinline__ void fetch_tiles(const gate_job &j, int32_t n, char *room, barriers b)
{
    feeder f = { b, { 0, 1 } };
    const int blocks = j.H / GATE_UNITS, total = tiles_in(j, n), first = (int)threadIdx.x % 128 / 8;
    const int own_piece = first * TILE_ROW + ((int)threadIdx.x % 8 ^ first % 8) * 16;
    for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        const int32_t row0 = tile / blocks * TILE_ROWS;
        const char *weights = j.tiles + (int64_t)(tile % blocks) * j.deep * gate_room::weights;
        int32_t own[8], before[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int32_t row = row0 + first + 16 * i;
            own[i] = row < n ? row : -1;
            before[i] = row < n && j.deep_h ? j.y.from[row] : -1;
        }
        row_pieces p = pieces_of(j.y.x, 2 * j.y.x_row, own);
        for (int k = 0; k < j.deep_x + j.deep_h; k++) {
            char *stage = room + f.now.at * gate_room::stage;
            if (k == j.deep_x) p = pieces_of(j.y.before, 2 * j.H, before);
            f.begin();
            if (threadIdx.x % 128 == 0) {
                tn_barrier_expect(b.full + f.now.at, gate_room::weights);
                tn_bulk_copy(stage + ROWS_BYTES, weights + (int64_t)k * gate_room::weights, gate_room::weights,
                             b.full + f.now.at);
            }
            p.copy(stage + own_piece);
            f.end();
        }
    }
    tn_copies_commit();
    tn_copies_wait<0>();
}

/* --- gates --------------------------------------------------------------------------------------------------------------- */

/* One instruction; an error of about 2^-11, below what bf16 keeps. */
__device__ __forceinline__ float fast_tanh(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float fast_sigmoid(float x) { return fmaf(fast_tanh(.5f * x), .5f, .5f); }

struct sums {
    float rz[64], x[32], h[32]; /* r and z; n's part from x, from h */
};

/* They begin as the biases of a thread's units. */
__device__ __forceinline__ void begin_sums(sums &s, const float *bias)
{
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float *own = bias + n * 8 + (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s.rz[4 * n + i] = own[i % 2], s.rz[32 + 4 * n + i] = own[64 + i % 2];
            s.x[4 * n + i] = own[128 + i % 2], s.h[4 * n + i] = own[192 + i % 2];
        }
    }
}

/* States before the step of a thread's rows (`row` and 8 further) and units: on their way while the last products run. */
struct states_before {
    uint4 of[4];
    __device__ __forceinline__ void fetch(const gate_job &j, int32_t row, int32_t n, int unit0)
    {
#pragma unroll
        for (int k = 0; k < 4; k++) of[k] = make_uint4(0, 0, 0, 0);
        if (!j.deep_h) return;
        const int32_t from[2] = { row < n ? j.y.from[row] : -1, row + 8 < n ? j.y.from[row + 8] : -1 };
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (from[k / 2] >= 0)
                of[k] = *(const uint4 *)((const __nv_bfloat16 *)j.y.before + (int64_t)from[k / 2] * j.H + unit0 +
                                         (4 * (k % 2) + (int)threadIdx.x % 4) * 8);
    }
};

/* A thread's half h of its rows, units 32 part on: from sums to gates, new states and what is kept. */
__device__ __forceinline__ void finish_half(const gate_job &j, const sums &s, const uint4 &state, int32_t row,
                                            bool there, int unit0, int h, int part)
{
    const int c = threadIdx.x % 4, own = unit0 + (4 * part + c) * 8;
    uint32_t before[4] = { state.x, state.y, state.z, state.w }, word[5][4]; /* r, z, n, q, h' */
    tn_turn_words(before);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int n = 4 * part + i, at = 4 * n + 2 * h;
        float r[2], z[2], q[2], a[2], y[2];
        r[0] = fast_sigmoid(s.rz[at]), r[1] = fast_sigmoid(s.rz[at + 1]);
        z[0] = fast_sigmoid(s.rz[32 + at]), z[1] = fast_sigmoid(s.rz[32 + at + 1]);
        q[0] = s.h[at], q[1] = s.h[at + 1];
        a[0] = fast_tanh(fmaf(r[0], q[0], s.x[at])), a[1] = fast_tanh(fmaf(r[1], q[1], s.x[at + 1]));
        y[0] = fmaf(z[0], low_of(before[i]) - a[0], a[0]), y[1] = fmaf(z[1], high_of(before[i]) - a[1], a[1]);
        word[0][i] = tn_pack_bf16(r[0], r[1]), word[1][i] = tn_pack_bf16(z[0], z[1]);
        word[2][i] = tn_pack_bf16(a[0], a[1]), word[3][i] = tn_pack_bf16(q[0], q[1]);
        word[4][i] = tn_pack_bf16(y[0], y[1]);
    }
#pragma unroll
    for (int g = 0; g < 5; g++) {
        if (g < 4 && !j.y.kept) continue;
        tn_turn_words(word[g]);
        __nv_bfloat16 *to = g == 4 ? (__nv_bfloat16 *)j.y.after + (int64_t)row * j.H + own
                                   : (__nv_bfloat16 *)j.y.kept + ((int64_t)row * 4 + g) * j.H + own;
        if (there) *(uint4 *)to = make_uint4(word[g][0], word[g][1], word[g][2], word[g][3]);
    }
}

/* --- products ------------------------------------------------------------------------------------------------------------ */

/* A stage's 64 steps: r and z, and n. */
__device__ __forceinline__ void begin_stage(float (&rz)[64], float (&n)[32], const char *stage, int group)
{
    const uint32_t a = tn_tile_at(stage + group * TILE64, 0), w = tn_tile_at(stage + ROWS_BYTES, 0);
    tn_products_begin();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        tn_product<0>(rz, a + 2 * k, w + 2 * k, 1);
        tn_product<0>(n, a + 2 * k, w + 2 * GATE_UNITS * TILE_ROW / 16 + 2 * k, 1);
    }
    tn_products_commit();
}

/* `deep` stages, one product of a stage under way beside the next; `last` is the stage that is not released yet, -1: none. */
__device__ __forceinline__ void add_stages(float (&rz)[64], float (&n)[32], const char *room, barriers b, turn &now,
                                           int &last, int deep, int group)
{
    for (int k = 0; k < deep; k++) {
        b.wait_full(now);
        tn_hold(rz), tn_hold(n);
        begin_stage(rz, n, room + now.at * gate_room::stage, group);
        tn_products_wait<1>();
        if (last >= 0) tn_warp_arrive(b.empty + last);
        last = now.at;
        now.next();
    }
}

__device__ __forceinline__ void compute_tiles(const gate_job &j, int32_t n, const char *room, barriers b)
{
    const int group = (int)threadIdx.x / 128 - 1, blocks = j.H / GATE_UNITS, total = tiles_in(j, n);
    const int own = group * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)(threadIdx.x & 31) / 4;
    turn now = { 0, 0 };
    for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        const int32_t row = tile / blocks * TILE_ROWS + own;
        const int block = tile % blocks;
        int last = -1;
        sums s;
        states_before h;
        begin_sums(s, j.bias + block * 4 * GATE_UNITS);
        tn_hold(s.rz), tn_hold(s.x), tn_hold(s.h);
        add_stages(s.rz, s.x, room, b, now, last, j.deep_x, group);
        add_stages(s.rz, s.h, room, b, now, last, j.deep_h, group);
        h.fetch(j, row, n, block * GATE_UNITS);
        tn_products_wait<0>();
        tn_hold(s.rz), tn_hold(s.x), tn_hold(s.h);
        tn_warp_arrive(b.empty + last);
#pragma unroll
        for (int k = 0; k < 4; k++)
            finish_half(j, s, h.of[k], row + 8 * (k / 2), row + 8 * (k / 2) < n, block * GATE_UNITS, k / 2, k % 2);
    }
}

#endif /* TN_HOPPER */

static __global__ void __launch_bounds__(BLOCK, 1) tiled_gates(TN_GRID gate_job j)
{
#if TN_HOPPER
    extern __shared__ char shared_room[];
    char *room = tn_tiles_room(shared_room);
    const barriers b = { (uint64_t *)(room + gate_room::barriers_at),
                         (uint64_t *)(room + gate_room::barriers_at) + STAGES };
    const int32_t n = *j.live;
    if ((int)blockIdx.x >= tiles_in(j, n)) return;
    if (threadIdx.x == 0) barriers(b).open(129);
    __syncthreads();
    if (threadIdx.x < 128) {
        tn_registers_less<FETCHES>();
        fetch_tiles(j, n, room, b);
    } else {
        tn_registers_more<COMPUTES>();
        compute_tiles(j, n, room, b);
    }
#else
    (void)j;
#endif
}

tn_status tn_rollout::run_tiled_layer(const tn_call *c, const net &m, int t, const layer &y, const void *packed)
{
    const tile_set s = tiles_of(m, TILES_GATES + y.l);
    const int tiles = (m.C + TILE_ROWS - 1) / TILE_ROWS * s.across, blocks = tn_cuda_queue_of(c)->multiprocessors;
    gate_job j = {};
    j.y = y, j.live = live_of(m, t) + m.B, j.H = m.H;
    j.tiles = (const char *)packed + s.first, j.deep = s.deep;
    j.bias = (const float *)((const char *)packed + biases_at(m)) + (int64_t)y.l * 4 * m.H;
    j.deep_x = (y.l ? m.H : X_ROOM) / TILE_K, j.deep_h = y.before ? m.H / TILE_K : 0;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)tiled_gates, gate_room::bytes));
    tiled_gates<<<(unsigned)(tiles < blocks ? tiles : blocks), BLOCK, gate_room::bytes, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
