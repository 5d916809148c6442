/* Shared by the backward kernels of attention for Hopper: pieces of work, what is hidden, sums on their way out. */
#ifndef TN_OPS_ATTENTION_BACKWARD_HOPPER_CUH
#define TN_OPS_ATTENTION_BACKWARD_HOPPER_CUH

#include "ops/attention/attention_hopper.cuh"

#if TN_HOPPER
namespace tn_attention
{

/* --- a piece of work ---------------------------------------------------------------------------------------------- */

/* `own` [r0,r0 + BM) of a head (KEYS: of a key head), and what it meets: `tiles` tiles from `first` on, of each of
 * `heads` heads from `other` on. */
struct backward_piece {
    sequence q;
    int head, r0, other, heads, first, tiles;
};

/* The BM from r0 on of one side's head. */
template <bool KEYS, int BM, int BN>
__device__ __forceinline__ backward_piece piece_at(const hopper_problem &h, const sequence &q, int head, int r0)
{
    const problem &p = h.p;
    const int r1 = min(r0 + BM, KEYS ? p.S : p.T);
    backward_piece r = {};
    int2 seen;
    r.q = q, r.head = head, r.r0 = r0;
    if (KEYS) {
        const int last = min(r1, q.keys);
        seen = r0 < last ? make_int2(tokens_of(p, q, r0).x, tokens_of(p, q, last - 1).y) : make_int2(0, 0);
        r.other = head * h.group, r.heads = h.group;
    } else {
        seen = make_int2(range_of(p, q, r0).x, range_of(p, q, r1 - 1).y);
        r.other = head / h.group, r.heads = 1;
    }
    r.first = seen.x / BN * BN;
    r.tiles = dead(p.live, q.b) || seen.y <= seen.x ? 0 : (seen.y - r.first + BN - 1) / BN;
    return r;
}

/* By number: what takes longest comes first. */
template <bool KEYS, int BM, int BN>
__device__ __forceinline__ backward_piece piece_of(const hopper_problem &h, int i)
{
    const int2 place = place_of(h.o, i);
    const int all = KEYS ? h.p.KV / h.group : h.p.KV;
    return piece_at<KEYS, BM, BN>(h, sequence_of(h.p, place.x / all), place.x % all,
                                  (KEYS ? place.y : h.o.pieces - 1 - place.y) * BM);
}

/* --- a warpgroup and a tile --------------------------------------------------------------------------------------- */

/* Columns outside of what a lane's two rows meet become 0. */
template <int N>
__device__ __forceinline__ void hide(float (&w)[N], int2 upper, int2 lower, int c0)
{
    const int first = c0 + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int2 seen = i % 4 < 2 ? upper : lower;
        const int at = first + i / 4 * 8 + i % 2;
        if (at < seen.x || at >= seen.y) w[i] = 0;
    }
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

template <int WIDTH, bool KEYS>
__device__ __forceinline__ void store(const float (&x)[WIDTH / 2], const view &to, const problem &p, int b, int head,
                                      int row0, float factor, bool add)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int n = row0 + half * 8;
        put_row<WIDTH>(x, half, to, key_at(to, b, head, n), p.D, factor, add, n < (KEYS ? p.S : p.T));
    }
}

} // namespace tn_attention
#endif /* TN_HOPPER */

#endif
