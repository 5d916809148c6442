/* Products in a token's kernel. A block has neighbouring rows of the weights (tn_decode_rows), which come through its warps' rooms or, where a row is
 * too long for them or every block makes all rows, from memory. A warp makes a row or two at a time, or the two rows of a pair; sums have a fixed order.
 * While the front still waits for the vector, the warps that make products have their first weights in registers and have asked for all else. */
#ifndef TN_PLAN_DECODE_LINEAR_CUH
#define TN_PLAN_DECODE_LINEAR_CUH

#include "ops/linear/linear.h"
#include "plan/decode/decode_stream.cuh"

__device__ __forceinline__ uint4 tn_decode_near16(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ float tn_decode_times(const uint4 &w, const uint4 &x, const uint4 &y, float sum)
{
    const unsigned pair[4] = { w.x, w.y, w.z, w.w }, at[8] = { x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w };
#pragma unroll
    for (int e = 0; e < 4; e++) {
        sum = fmaf(__uint_as_float(pair[e] << 16), __uint_as_float(at[2 * e]), sum);
        sum = fmaf(__uint_as_float(pair[e] & 0xffff0000u), __uint_as_float(at[2 * e + 1]), sum);
    }
    return sum;
}

/* 8 numbers each of two rows, or two parts of one: then the second is multiplied by other numbers of the vector. */
template <int SETS, int READY>
__device__ __forceinline__ void tn_decode_times_all(const uint4 (&a)[SETS][READY], const uint4 (&b)[SETS][READY], int c,
                                                    unsigned x, unsigned x1, bool other, float (&u)[SETS],
                                                    float (&v)[SETS])
{
    uint4 p = tn_decode_near16(x), q = tn_decode_near16(x + 16);
#pragma unroll
    for (int i = 0; i < SETS; i++) u[i] = tn_decode_times(a[i][c], p, q, u[i]);
    if (other) p = tn_decode_near16(x1), q = tn_decode_near16(x1 + 16);
#pragma unroll
    for (int i = 0; i < SETS; i++) v[i] = tn_decode_times(b[i][c], p, q, v[i]);
}

/* A piece each of rows, of which the first READY times 256 numbers are in registers: the same sums in the same order as any other length has, but
 * without loops and questions, which are most of the instructions then, and with what comes next on its way. */
template <int SETS, int READY>
__device__ __forceinline__ void tn_decode_times_piece(uint4 (&a)[SETS][READY], uint4 (&b)[SETS][READY],
                                                      const unsigned (&w0)[SETS], const unsigned (&w1)[SETS],
                                                      unsigned x, float (&u)[SETS], float (&v)[SETS])
{
#pragma unroll
    for (int c = 0; c < TN_DECODE_PIECE / 512; c++) {
#pragma unroll
        for (int i = 0; c >= READY && i < SETS; i++)
            a[i][c % READY] = tn_decode_near16(w0[i] + 512 * c), b[i][c % READY] = tn_decode_near16(w1[i] + 512 * c);
        tn_decode_times_all(a, b, c % READY, x + 1024 * c, x, false, u, v);
    }
}

/* Where a product's x lies in the slots. */
__device__ __forceinline__ int tn_decode_x_slot(const tn_decode_step &s)
{
    return s.flags & TN_DECODE_FETCHES ? s.out_slot[1] : s.in_slot[0];
}

/* Products one right after the other: their vectors were there when that of the first was, so that nobody waits in between. */
struct tn_decode_chain {
    bool follows, goes_on; /* whether one came before, and another one comes */
};

/* The front's share: x to its slot, where it lies in memory, and waiting. */
__device__ __forceinline__ void tn_decode_linear_front(const tn_decode_step &s, const tn_decode_room &r,
                                                       tn_decode_chain chain)
{
    if (s.flags & TN_DECODE_FETCHES) {
        const tn_decode_in from(s, r, 0);
        float *x = r.slots + s.out_slot[1];
#pragma unroll 1
        for (int i = threadIdx.x; i < s.k; i += TN_DECODE_FRONT) x[i] = from.get(i);
    }
    if (!chain.follows) tn_decode_sync(); /* x is there */
    if (!chain.goes_on) tn_decode_sync();
}

/* --- a PLAIN program's -------------------------------------------------------------------------------------------------------- */

enum { TN_DECODE_ROWS_ALONE, TN_DECODE_ROWS_PAIRED, TN_DECODE_ROWS_CONV };

/* Staged rows of bf16 that come through the warps' rooms, without residual, and where something is joined without bias and activation. A warp makes two
 * rows or one pair at once, SETS of them; lane 2 i finishes the first row of set i and lane 2 i + 1 the second, of a pair the first of them what comes
 * of both. What is joined is done by the same lane. CUT: rows may come in pieces, one after the other. */
template <int KIND, int SETS, bool CUT>
__device__ __forceinline__ void tn_decode_rows_near(const tn_decode_step &s, const tn_decode_step &then,
                                                    const tn_decode_room &r, const tn_decode_part &part,
                                                    tn_decode_stream &stream, tn_decode_chain chain)
{
    enum {
        PAIRED = KIND == TN_DECODE_ROWS_PAIRED,
        CONV = KIND == TN_DECODE_ROWS_CONV,
        ALONE = KIND == TN_DECODE_ROWS_ALONE
    };
    enum { READY = SETS == 1 ? 2 : 1 }; /* times 256 numbers of a row, of which each lane has 8, are in registers */
    const int lane = threadIdx.x & 31, k = s.k, half = s.n / 2, type = s.out_type[0], each = part.each, end = part.end,
              row = 2 * k;
    const int slot = tn_decode_x_slot(s), nth = PAIRED ? lane >> 1 : lane;
    const int reset = CONV ? tn_decode_reset(then, 3) : 0, first = CONV ? then.j : 0, channels = CONV ? then.n : 0;
    const tn_decode_in bias(s, r, 2);
    const int act = s.kind;
    uint64_t *message = s.message;
    void *out = s.out[0];
    const int piece = CUT ? part.piece : row;
    const bool single = !PAIRED && SETS == 1 && each == 1 && k % 16 == 0 && piece == row; /* a row as two halves */
    const unsigned vector = (unsigned)__cvta_generic_to_shared(r.slots + slot) + lane * 32;
    bool ready = chain.follows;
#pragma unroll 1
    for (int at = part.first + each * stream.warp(); at < end; at += each * TN_DECODE_BACK) {
        const int rows = min(each, end - at), own = at + nth + (PAIRED && lane & 1 ? half : 0), channel = own - first;
        const bool finishes = lane < 2 * SETS && nth < rows,
                   convolves = CONV && finishes && channel >= 0 && channel < channels;
        const unsigned more = ALONE && bias.at && finishes ? bias.ask(own) : 0;
        tn_decode_taps taps;
        float u[SETS] = {}, v[SETS] = {};
        if (convolves) taps = tn_decode_taps(then, r, channel);
#pragma unroll 1
        for (int from = 0; from < row; from += piece) { /* bytes; once, but for rows that are cut */
            const int bytes = CUT ? min(piece, row - from) : row, length = single ? bytes / 4 : bytes / 2;
            const unsigned w = stream.take() + lane * 16, x = vector + 2 * from, x1 = single ? x + 4 * length : x;
            const bool full =
                CUT && !single && 2 * length == TN_DECODE_PIECE; /* no lane has to look where its numbers end */
            unsigned w0[SETS], w1[SETS];
            uint4 a[SETS][READY], b[SETS][READY];
#pragma unroll
            for (int i = 0; i < SETS; i++) { /* the last of them again where there are less */
                w0[i] = w + min(PAIRED ? i : 2 * i, rows - 1) * bytes;
                w1[i] = PAIRED   ? w0[i] + rows * bytes
                        : single ? w0[i] + 2 * length
                                 : w + min(2 * i + 1, rows - 1) * bytes;
#pragma unroll
                for (int c = 0; c < READY; c++)
                    if (full || 256 * c + 8 * lane < length)
                        a[i][c] = tn_decode_near16(w0[i] + 512 * c), b[i][c] = tn_decode_near16(w1[i] + 512 * c);
            }
            const bool held = length <= 256 * READY; /* all of it is in registers, so that its place is free */
            if (held) {
                __syncwarp();
                stream.ask();
            }
            if (!ready) tn_decode_sync(); /* x is there */
            ready = true;
            if (full) {
                tn_decode_times_piece(a, b, w0, w1, x, u, v);
            } else {
#pragma unroll
                for (int c = 0; c < READY; c++)
                    if (256 * c + 8 * lane < length)
                        tn_decode_times_all(a, b, c, x + 1024 * c, x1 + 1024 * c, single, u, v);
#pragma unroll 1
                for (int c = READY; 256 * c + 8 * lane < length; c++) {
#pragma unroll
                    for (int i = 0; i < SETS; i++)
                        a[i][0] = tn_decode_near16(w0[i] + 512 * c), b[i][0] = tn_decode_near16(w1[i] + 512 * c);
                    tn_decode_times_all(a, b, 0, x + 1024 * c, x1 + 1024 * c, single, u, v);
                }
            }
            if (!held) {
                __syncwarp();
                stream.ask();
            }
        }
        if (single) u[0] += v[0];
#pragma unroll
        for (int i = 0; i < SETS; i++) u[i] = tn_warp_sum(u[i]), v[i] = tn_warp_sum(v[i]);
        float y = lane & 2 ? (lane & 1 ? v[SETS - 1] : u[SETS - 1]) : (lane & 1 ? v[0] : u[0]);
        if (ALONE && bias.at && finishes) y += bias.value(more, own);
        if (ALONE && act) y = tn_decode_gate(act == TN_ACT_SILU ? TN_GATE_SILU : TN_GATE_SIGMOID, y);
        y = tn_decode_rounded(type, y);
        const float made = y;
        if (PAIRED) {
            const float other = __shfl_xor_sync(0xffffffffu, y, 1);
            y = tn_decode_rounded(then.out_type[0],
                                  then.j ? other * tn_decode_gate(then.kind, y) : y * tn_decode_gate(then.kind, other));
        }
        if (convolves) y = tn_decode_rounded(then.out_type[0], taps.make(then, channel, y, reset, true));
        if (finishes) {
            if (message && !(PAIRED && lane & 1)) tn_decode_post(message + own, r.epoch, y); /* others wait for it */
            tn_decode_store(out, type, own, made);
            if (convolves) tn_decode_store(then.out[0], then.out_type[0], channel, y);
            if (PAIRED && !(lane & 1)) tn_decode_store(then.out[0], then.out_type[0], own, y);
        }
    }
    if (!ready) tn_decode_sync();
    if (!chain.goes_on) tn_decode_sync();
}

/* --- any other --------------------------------------------------------------------------------------------------------------- */

/* 8 weights, in shared memory or not. */
__device__ __forceinline__ tn_f8 tn_decode_weights(const char *row, int i, bool wide)
{
    return wide ? tn_load8(row, TN_F32, i) : tn_load8(row, TN_BF16, i);
}

/* Two rows, from w0 and w1 on; they are the same where there is but one. own: of lanes 0 and 1, the number that they make. */
__device__ __forceinline__ void tn_decode_two_rows(const tn_decode_step &s, const tn_decode_step &then,
                                                   const tn_decode_room &r, const char *w0, const char *w1, int own)
{
    const int lane = threadIdx.x & 31;
    const bool paired = s.flags & TN_DECODE_PAIRED, conv = (s.flags & TN_DECODE_JOINED) && !paired,
               wide = s.in_type[1] == TN_F32;
    const bool finishes = lane == 0 || (lane == 1 && w1 != w0);
    const float *x = r.slots + tn_decode_x_slot(s);
    const tn_decode_in bias(s, r, 2), more(s, r, 3);
    float u = 0, v = 0;
#pragma unroll 2
    for (int i = lane * 8; i < s.k; i += 256) {
        const tn_f8 p = tn_decode_weights(w0, i, wide), q = tn_decode_weights(w1, i, wide);
        const float4 y = *(const float4 *)(x + i), z = *(const float4 *)(x + i + 4);
        const float c[8] = { y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w };
#pragma unroll
        for (int e = 0; e < 8; e++) u = fmaf(p.v[e], c[e], u), v = fmaf(q.v[e], c[e], v);
    }
    u = tn_warp_sum(u), v = tn_warp_sum(v);
    float y = lane & 1 ? v : u;
    if (bias.at && finishes) y += bias.get(own);
    if (s.kind) y = tn_d_act((tn_act)s.kind, y);
    if (more.at && finishes) y += more.get(own);
    y = tn_decode_rounded(s.out_type[0], y);
    const float made = y, other = __shfl_xor_sync(0xffffffffu, y, 1);
    const int channel = own - then.j;
    const bool convolves = conv && finishes && channel >= 0 && channel < then.n;
    if (paired)
        y = tn_decode_rounded(then.out_type[0],
                              then.j ? other * tn_d_gate(then.kind, y) : y * tn_d_gate(then.kind, other));
    if (convolves)
        y = tn_decode_rounded(then.out_type[0],
                              tn_decode_taps(then, r, channel).make(then, channel, y, tn_decode_reset(then, 3), true));
    if (finishes) {
        if (!paired || lane == 0) tn_decode_message(s, r, own, y);
        tn_decode_out(s, r, 0).put(own, made);
        if (convolves) tn_decode_store(then.out[0], then.out_type[0], channel, y);
        if (paired && lane == 0) tn_decode_store(then.out[0], then.out_type[0], own, y);
    }
}

/* mine: all rows where the product is not staged; then bytes is 0. then: what is joined, or s. */
__device__ __forceinline__ void tn_decode_linear(const tn_decode_step &s, const tn_decode_step &then,
                                                 const tn_decode_room &r, const tn_decode_part mine,
                                                 tn_decode_stream &stream)
{
    const bool paired = s.flags & TN_DECODE_PAIRED, second = (threadIdx.x & 31) == 1;
    const int row = tn_decode_row_bytes(s), half = s.n / 2, apart = paired ? half : 1;
    tn_decode_sync(); /* x is there */
#pragma unroll 1
    for (int at = mine.first + mine.each * stream.warp(); at < mine.end; at += mine.each * TN_DECODE_BACK) {
        const int rows = min((int)mine.each, mine.end - at);
        const char *w = mine.bytes ? (const char *)__cvta_shared_to_generic(stream.take())
                                   : (const char *)s.in[1] + (int64_t)at * row;
        const int64_t next = (int64_t)(paired && mine.bytes ? rows : apart) * row;
#pragma unroll 1
        for (int i = 0; i < rows; i += paired ? 1 : 2) {
            const bool both = paired || i + 1 < rows;
            const char *w0 = w + (int64_t)i * row;
            tn_decode_two_rows(s, then, r, w0, both ? w0 + next : w0, at + i + (second && both ? apart : 0));
        }
        if (!mine.bytes) continue;
        __syncwarp();
        stream.ask();
    }
    tn_decode_sync();
}

#endif
