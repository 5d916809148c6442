/* attention on the GPU, forward, of at most 16 rows of a key head (decoding): what limits is how many bytes are under way.
 * All rows fit one fragment, so a block's warps have the same rows and share out the keys: each has a ring of tiles of its
 * own, reads the ring's next tiles while it works on one, and waits for nobody. At the end the first warp joins what all
 * have, in order. A tile's warp follows from its place alone. */
#include "ops/attention/attention_rows.cuh"

using namespace tn_attention;

enum {
    ROWS = 16,
    KEYS = 16,           /* of a tile */
    SPAN = WARPS * KEYS, /* of a tile each of all warps */
};

/* Shared memory of a block. */
template <int WIDTH>
struct few_room {
    static const int stages = WIDTH <= 80 ? 3 : 2, tile = KEYS * tile_of<WIDTH>::row;
    static const int bytes = WARPS * stages * 2 * tile * 2;
    static const int blocks = WIDTH <= 64 ? 4 : 3; /* of a multiprocessor with 228 KiB, for which there are registers */
    __nv_bfloat16 *mine;                           /* the warp's */
    __device__ __forceinline__ __nv_bfloat16 *k(int stage) const { return mine + stage * 2 * tile; }
    __device__ __forceinline__ __nv_bfloat16 *v(int stage) const { return mine + (stage * 2 + 1) * tile; }
};

/* Two numbers of a row of q from d on, with the sign of the scale: the maximum of scores is then that of their products
 * with its size. Zeros beyond rows and D. */
__device__ __forceinline__ uint32_t two_of_row(const problem &p, int b, int kv, int r, int d)
{
    if (r >= p.rows) return 0;
    const int64_t at = row_at(p.q, p, b, kv, r);
    const auto number = [&](int i) { return i < p.D ? tn_load(p.q.data, p.q.type, at + i * p.q.d) : 0.f; };
    uint32_t two = 0;
    if (!p.q.pairs) two = tn_pack_bf16(number(d), number(d + 1));
    else if (d < p.D) two = *(const uint32_t *)((const __nv_bfloat16 *)p.q.data + at + d);
    return p.scale < 0 ? two ^ 0x80008000u : two;
}

/* All rows as fragments. */
template <int WIDTH>
__device__ __forceinline__ void load_rows(uint32_t (&to)[1][WIDTH / 16][4], const problem &p, int b, int kv)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[0][d][i] = two_of_row(p, b, kv, lane / 4 + i % 2 * 8, d * 16 + i / 2 * 8 + lane % 4 * 2);
}

/* What the other warps have, to the first one's; `room` is free. */
template <int WIDTH>
__device__ __forceinline__ void join_warps(rows_state<WIDTH, 1> &r, float *room, float scale2)
{
    enum { N = WIDTH / 2 + 4 };
    const int warp = threadIdx.x / 32;
    float *const to = room + (warp - 1) * N * 32 + threadIdx.x % 32;
    if (warp) {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) to[i * 32] = r.o[0][i / 4][i % 4];
#pragma unroll
        for (int h = 0; h < 2; h++) to[(WIDTH / 2 + h) * 32] = r.max[0][h], to[(WIDTH / 2 + 2 + h) * 32] = r.sum[0][h];
    }
    __syncthreads();
    if (warp) return;
#pragma unroll 1
    for (int w = 1; w < WARPS; w++) {
        const float *from = room + (w - 1) * N * 32 + threadIdx.x;
        float mine[2], theirs[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float max = from[(WIDTH / 2 + h) * 32], top = fmaxf(r.max[0][h], max), base = base_of(top, scale2);
            mine[h] = r.max[0][h] == top ? 1.f : tn_exp2(__fmul_rn(r.max[0][h], scale2) - base);
            theirs[h] = max == top ? 1.f : tn_exp2(__fmul_rn(max, scale2) - base);
            r.max[0][h] = top;
            r.sum[0][h] = r.sum[0][h] * mine[h] + from[(WIDTH / 2 + 2 + h) * 32] * theirs[h];
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) {
            float &o = r.o[0][i / 4][i % 4];
            o = o * mine[i % 4 / 2] + from[i * 32] * theirs[i % 4 / 2];
        }
    }
}

template <int WIDTH>
__global__ void __launch_bounds__(THREADS, few_room<WIDTH>::blocks)
    attend_few(const __grid_constant__ problem p, const shares share)
{
    typedef few_room<WIDTH> few;
    extern __shared__ uint4 shared[];
    const int head = blockIdx.x / share.n, part = blockIdx.x % share.n, b = head / p.KV, kv = head % p.KV;
    const int warp = threadIdx.x / 32;
    const few room = { (__nv_bfloat16 *)shared + warp * few::stages * 2 * few::tile };
    if (dead(p.live, b)) return;
    const sequence q = sequence_of(p, b);
    const int2 early = range_of(p, q, 0), late = range_of(p, q, p.T - 1); /* of the first and the last row */
    const int start = early.x / SPAN * SPAN,
              each = (max(0, late.y - start) + SPAN * share.n - 1) / (SPAN * share.n) * SPAN;
    const int first = start + part * each + warp * KEYS, stop = min(late.y, start + (part + 1) * each);
    const float scale2 = fabsf(p.scale) * LOG2E;
    rows_state<WIDTH, 1> r;
    uint32_t rows[1][WIDTH / 16][4];

    const auto fetch = [&](int s0, int stage) {
        if (s0 < stop) {
            load_tile<WIDTH, KEYS, 32, false>(room.k(stage), p.k, p, b, kv, s0, late.y, threadIdx.x % 32);
            load_tile<WIDTH, KEYS, 32, false>(room.v(stage), p.v, p, b, kv, s0, late.y, threadIdx.x % 32);
        }
        tn_copies_commit();
    };
    for (bool apart = false;; apart = true) {
#pragma unroll
        for (int i = 0; i < few::stages; i++) fetch(first + i * SPAN, i);
        if (!apart) load_rows<WIDTH>(rows, p, b, kv);
        clear<WIDTH, 1>(r);
        for (int s0 = first, stage = 0; s0 < stop; s0 += SPAN) {
            float s[1][KEYS / 8][4];
            uint32_t w[1][KEYS / 16][4];
            tn_copies_wait<few::stages - 1>();
            __syncwarp();
            scores<WIDTH, 1, KEYS, true>(s, rows, nullptr, room.k(stage));
            if (s0 < late.x || s0 + KEYS > early.y) hide<1, KEYS>(s, p, q, 0, s0, nullptr);
            soften<WIDTH, 1, KEYS>(r, s, w, scale2);
            if (apart) add_values_apart<WIDTH, 1, KEYS>(r, w, room.v(stage));
            else add_values<WIDTH, 1, KEYS>(r, w, room.v(stage));
            __syncwarp(); /* nobody reads the tile any more */
            fetch(s0 + few::stages * SPAN, stage);
            stage = stage + 1 == few::stages ? 0 : stage + 1;
        }
        if (!__syncthreads_or(!apart && !finite<WIDTH, 1>(r))) break;
    }
    join_warps<WIDTH>(r, (float *)shared, scale2);
    if (warp == 0) finish<WIDTH, 1>(r, p, q, head, kv, 0, share, part);
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

template <int WIDTH>
static tn_status forward(const tn_call *c, const problem *p, shares share)
{
    const int bytes = few_room<WIDTH>::bytes;
    static_assert(bytes <= (int)TN_SHARED_BYTES, "a block's shared memory on every GPU");
    TN_RETURN_IF(tn_attention_room_cuda((const void *)attend_few<WIDTH>, bytes));
    attend_few<WIDTH><<<(unsigned)(p->B * p->KV * share.n), THREADS, bytes, tn_cuda_stream(c)>>>(*p, share);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

bool tn_attention_few_takes(const problem *p) { return p->rows <= ROWS && !p->document; }

tn_status tn_attention_few_forward_cuda(const tn_call *c, const problem *p, shares share)
{
    return p->D <= 32   ? forward<32>(c, p, share)
           : p->D <= 64 ? forward<64>(c, p, share)
           : p->D <= 80 ? forward<80>(c, p, share)
           : p->D <= 96 ? forward<96>(c, p, share)
                        : forward<128>(c, p, share);
}
