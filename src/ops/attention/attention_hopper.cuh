/* Shared by the kernels of attention for Hopper: what they are told, the pieces of work, tiles on their way into
 * shared memory, rows on their way out.
 *
 * Here a row is a token of one query head. One block per multiprocessor takes piece after piece; its last warpgroup
 * fetches tiles, far ahead of the others, which compute, 64 rows each. What a piece is made of is worked out anew by
 * everyone who needs it. Tiles of keys start at multiples of their length: a row's sums depend on nothing else. */
#ifndef TN_OPS_ATTENTION_HOPPER_CUH
#define TN_OPS_ATTENTION_HOPPER_CUH

#include "backend/cuda/hopper.cuh"
#include "ops/attention/attention_cuda.cuh"

namespace tn_attention
{

/* A tensor to be read, whole rows by the tensor engine where it can. */
struct source {
    CUtensorMap map;
    view x;
    bool mapped;
};

struct hopper_problem {
    source q, k, v, dy;
    problem p;          /* with KV = query heads and group = 1 */
    int group;          /* query heads of a key head */
    order o;            /* of pieces */
    const float2 *stat; /* (B * query heads, stat_rows(T)): log-sum-exp in powers of 2, sum of gradient times output */
};

inline source source_of(const tn_arg *a, int rows)
{
    source s = {};
    s.x = view_of(a);
    s.mapped = s.x.vectors && tn_tensor_map(&s.map, a->data, a->dims.dim, a->stride, rows);
    return s;
}

/* By types and sizes alone, never by strides. */
inline bool hopper_takes(const tn_call *c)
{
    const tn_arg *in = c->in;
    const int64_t T = in[TN_ATT_Q].dims.dim[1], S = in[TN_ATT_K].dims.dim[1], D = in[TN_ATT_Q].dims.dim[3];
    for (int i = TN_ATT_Q; i <= TN_ATT_V; i++)
        if (in[i].dtype != TN_BF16) return false;
    return D > 32 && D <= 128 && D % 8 == 0 && T >= 128 && S >= 64 && !in[TN_ATT_DOCUMENT].data &&
           ((const tn_attention_attr *)c->attr)->scale > 0 && tn_hopper_here();
}

inline order order_by(const problem &p, int heads, int pieces)
{
    order o = order_of(p, pieces);
    o.heads = heads;
    o.section = o.section < heads ? o.section : heads;
    return o;
}

#if TN_HOPPER

/* s = 64 rows times those of a tile, begun; both in shared memory, as tn_tile_at says. */
template <int WIDTH, int BN>
__device__ __forceinline__ void begin_rows_at(float (&s)[BN / 2], uint32_t rows, uint32_t tile)
{
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++)
        tn_product<0>(s, rows + d / 4 * (64 * 128 / 16) + d % 4 * 2, tile + d / 4 * (BN * 128 / 16) + d % 4 * 2, d > 0);
    tn_products_commit();
}

template <int WIDTH, int BN>
__device__ __forceinline__ void begin_rows(float (&s)[BN / 2], const char *rows, const char *tile)
{
    begin_rows_at<WIDTH, BN>(s, tn_tile_at(rows, 0), tn_tile_at(tile, 0));
}

/* sum += x times the rows of a tile, begun; x in registers. */
template <int WIDTH, int BN>
__device__ __forceinline__ void begin_sum_at(float (&sum)[WIDTH / 2], uint32_t (&x)[BN / 4], uint32_t tile)
{
    tn_hold(x);
    tn_products_begin();
#pragma unroll
    for (int n = 0; n < BN / 16; n++) tn_product<1>(sum, x + 4 * n, tile + n * (16 * 128 / 16), 1);
    tn_products_commit();
}

template <int WIDTH, int BN>
__device__ __forceinline__ void begin_sum(float (&sum)[WIDTH / 2], uint32_t (&x)[BN / 4], const char *tile)
{
    begin_sum_at<WIDTH, BN>(sum, x, tn_tile_at(tile, BN * 128));
}

/* The tokens [x,y) that see key s; the inverse of range_of. */
__device__ __forceinline__ int2 tokens_of(const problem &p, const sequence &q, int s)
{
    if (s >= q.keys) return make_int2(0, 0);
    return make_int2(p.ahead < FAR ? max(0, s + 1 - p.ahead - q.position) : 0,
                     p.back < FAR ? min(p.T, s + p.back - q.position + 1) : p.T);
}

/* As meet, of tokens and without documents. */
__device__ __forceinline__ meeting meet_tokens(const problem &p, const sequence &q, int t0, int t1, int s0, int s1)
{
    const int2 early = range_of(p, q, t0), late = range_of(p, q, t1 - 1);
    return t0 >= t1 || s1 <= early.x || s0 >= late.y ? APART : late.x <= s0 && early.y >= s1 ? WHOLLY : PARTLY;
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

/* Rows [n0, n0 + ROWS) of a head to shared memory, zeros from N on and beyond D, as WIDTH / 64 tiles `beside` bytes
 * apart; `full` is told. By one warp. */
template <int WIDTH, int ROWS>
__device__ __forceinline__ void fetch(char *to, int beside, const source &s, int D, int b, int head, int n0, int N,
                                      uint64_t *full)
{
    const int lane = threadIdx.x & 31;
    if (s.mapped) {
        if (lane) return;
        tn_barrier_expect(full, ROWS * WIDTH * 2);
#pragma unroll
        for (int c = 0; c < WIDTH / 64; c++) tn_tensor_copy(to + c * beside, &s.map, full, c * 64, head, n0, b);
        return;
    }
#pragma unroll 1
    for (int i = lane; i < ROWS * WIDTH / 8; i += 32) {
        const int r = i / (WIDTH / 8), c = i % (WIDTH / 8);
        const bool there = n0 + r < N && c * 8 < D;
        *(uint4 *)(to + c / 8 * beside + r * 128 + (c % 8 ^ r % 8) * 16) =
            there ? eight_bf16(s.x, key_at(s.x, b, head, n0 + r), c * 8, D) : make_uint4(0, 0, 0, 0);
    }
    tn_fence_async();
    __syncwarp();
    if (lane == 0) tn_barrier_arrive(full);
}

/* Stages of a pipeline, taken in turn by all sides. */
template <int STAGES>
struct turn {
    int at;
    uint32_t phase;
    __device__ __forceinline__ void next()
    {
        if (++at == STAGES) at = 0, phase ^= 1;
    }
};

/* --- out ---------------------------------------------------------------------------------------------------------- */

/* The half h (0: row lane / 4, 1: eight below) of a warp's sums, times factor, at `row` of a tensor, where `there`.
 * All lanes call. */
template <int WIDTH>
__device__ __forceinline__ void put_row(const float (&x)[WIDTH / 2], int h, const view &to, int64_t row, int D,
                                        float factor, bool add, bool there)
{
    const int c = threadIdx.x % 4;
    if (to.vectors && !add) {
#pragma unroll
        for (int k = 0; k < WIDTH / 32; k++) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = tn_pack_bf16(factor * x[(4 * k + i) * 4 + 2 * h], factor * x[(4 * k + i) * 4 + 2 * h + 1]);
            tn_turn_words(w);
            if (there && (4 * k + c) * 8 < D)
                *(uint4 *)((__nv_bfloat16 *)to.data + row + (4 * k + c) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
        }
        return;
    }
    if (!there) return;
    float copy[WIDTH / 4];
#pragma unroll
    for (int d = 0; d < WIDTH / 8; d++)
        copy[2 * d] = factor * x[d * 4 + 2 * h], copy[2 * d + 1] = factor * x[d * 4 + 2 * h + 1];
#pragma unroll 1
    for (int i = 0; i < WIDTH / 4; i++) {
        const int d = i / 2 * 8 + c * 2 + i % 2;
        if (d < D) tn_put(to.data, to.type, row + d * to.d, copy[i], add);
    }
}

#endif /* TN_HOPPER */

} // namespace tn_attention

#endif
