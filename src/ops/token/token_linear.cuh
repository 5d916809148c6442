/* Products in a token's kernel. A block has neighbouring rows of the weights (tn_token_rows), which come through its warps' rooms or, where a row is
 * too long for them or every block makes all rows, from memory. A warp makes a row or two at a time, or the two rows of a pair; sums have a fixed order.
 * While the front still waits for the vector, the warps that make products have their first weights in registers and have asked for all else. */
#ifndef TN_OPS_TOKEN_LINEAR_CUH
#define TN_OPS_TOKEN_LINEAR_CUH

#include "ops/linear/linear.h"
#include "ops/token/token_stream.cuh"

enum { TN_TOKEN_READY = 2 }; /* times 256 numbers of a row, of which each lane has 8, are in registers */

__device__ __forceinline__ uint4 tn_token_near16(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

__device__ __forceinline__ float tn_token_times(const uint4 &w, const uint4 &x, const uint4 &y, float sum)
{
    const unsigned pair[4] = { w.x, w.y, w.z, w.w }, at[8] = { x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w };
#pragma unroll
    for (int e = 0; e < 4; e++) {
        sum = fmaf(__uint_as_float(pair[e] << 16), __uint_as_float(at[2 * e]), sum);
        sum = fmaf(__uint_as_float(pair[e] & 0xffff0000u), __uint_as_float(at[2 * e + 1]), sum);
    }
    return sum;
}

/* 8 numbers each of two rows, or two parts of one: then the second meets other numbers of the vector. */
__device__ __forceinline__ void tn_token_times_two(const uint4 &a, const uint4 &b, unsigned x, unsigned x1, bool other, float &u, float &v)
{
    uint4 p = tn_token_near16(x), q = tn_token_near16(x + 16);
    u = tn_token_times(a, p, q, u);
    if (other) p = tn_token_near16(x1), q = tn_token_near16(x1 + 16);
    v = tn_token_times(b, p, q, v);
}

/* The front's share: x to its slot, where it lies in memory, and waiting. */
__device__ __forceinline__ void tn_token_linear_front(const tn_token_step &s, const tn_token_room &r)
{
    if (s.flags & TN_TOKEN_FETCHES) {
        const tn_token_in from(s, r, 0);
        float *x = r.slots + s.out_slot[1];
#pragma unroll 1
        for (int i = threadIdx.x; i < s.k; i += TN_TOKEN_FRONT) x[i] = from.get(i);
    }
    tn_token_sync(); /* x is there */
    tn_token_sync();
}

/* --- a PLAIN program's -------------------------------------------------------------------------------------------------------- */

enum { TN_TOKEN_ROWS_ALONE, TN_TOKEN_ROWS_PAIRED, TN_TOKEN_ROWS_CONV };

/* Staged rows of bf16 that come through the warps' rooms, without residual, and where something is joined without bias and activation; lane 0 finishes the first of two rows and lane 1 the second, or
 * lane 0 both of a pair. What is joined is done by the same lane. */
template <int KIND>
__device__ __forceinline__ void tn_token_rows_near(const tn_token_step &s, const tn_token_step &then, const tn_token_room &r, const tn_token_part &part,
                                                   tn_token_stream &stream)
{
    enum { PAIRED = KIND == TN_TOKEN_ROWS_PAIRED, CONV = KIND == TN_TOKEN_ROWS_CONV, ALONE = KIND == TN_TOKEN_ROWS_ALONE };
    const int lane = threadIdx.x & 31, k = s.k, half = s.n / 2, type = s.out_type[0], each = part.each, end = part.end, row = 2 * k;
    const int slot = s.flags & TN_TOKEN_FETCHES ? s.out_slot[1] : s.in_slot[0];
    const int reset = CONV ? tn_token_reset(then, 3) : 0, first = CONV ? then.j : 0, channels = CONV ? then.n : 0;
    uint64_t *mail = s.mail;
    void *out = s.out[0];
    const tn_token_in bias(s, r, 2);
    const int act = s.kind;
    const unsigned x = (unsigned)__cvta_generic_to_shared(r.slots + slot) + lane * 32;
    const bool single = !PAIRED && each == 1 && k % 16 == 0; /* a row as two halves */
    const int length = single ? k / 2 : k;
    const unsigned x1 = single ? x + 4 * length : x;
    bool ready = false;
#pragma unroll 1
    for (int at = part.first + each * stream.warp(); at < end; at += each * TN_TOKEN_BACK) {
        const bool both = PAIRED || (each == 2 && at + 1 < end), finishes = lane == 0 || (lane == 1 && both);
        const int own = lane == 1 && both ? at + (PAIRED ? half : 1) : at, channel = own - first;
        const bool convolves = CONV && finishes && channel >= 0 && channel < channels;
        const unsigned w0 = stream.take() + lane * 16, w1 = single ? w0 + 2 * length : both ? w0 + row : w0;
        uint4 a[TN_TOKEN_READY], b[TN_TOKEN_READY];
        tn_token_taps taps;
        float u = 0, v = 0;
#pragma unroll
        for (int c = 0; c < TN_TOKEN_READY; c++)
            if (256 * c + 8 * lane < length) a[c] = tn_token_near16(w0 + 512 * c), b[c] = tn_token_near16(w1 + 512 * c);
        if (convolves) taps = tn_token_taps(then, r, channel);
        const unsigned more = ALONE && bias.at && finishes ? bias.ask(own) : 0;
        if (length <= 256 * TN_TOKEN_READY) { /* all of them are in registers */
            __syncwarp();
            stream.ask();
        }
        if (!ready) tn_token_sync(); /* x is there */
        ready = true;
#pragma unroll
        for (int c = 0; c < TN_TOKEN_READY; c++)
            if (256 * c + 8 * lane < length) tn_token_times_two(a[c], b[c], x + 1024 * c, x1 + 1024 * c, single, u, v);
#pragma unroll 1
        for (int c = TN_TOKEN_READY; 256 * c + 8 * lane < length; c++)
            tn_token_times_two(tn_token_near16(w0 + 512 * c), tn_token_near16(w1 + 512 * c), x + 1024 * c, x1 + 1024 * c, single, u, v);
        if (single) u += v;
        u = tn_warp_sum(u), v = tn_warp_sum(v);
        float y = lane & 1 ? v : u;
        if (ALONE && bias.at && finishes) y += bias.value(more, own);
        if (ALONE && act) y = tn_token_gate<true>(act == TN_ACT_SILU ? TN_GATE_SILU : TN_GATE_SIGMOID, y);
        y = tn_token_rounded(type, y);
        const float made = y;
        if (PAIRED) {
            const float other = __shfl_xor_sync(0xffffffffu, y, 1);
            y = tn_token_rounded(then.out_type[0], then.j ? other * tn_token_gate<true>(then.kind, y) : y * tn_token_gate<true>(then.kind, other));
        }
        if (convolves) y = tn_token_rounded(then.out_type[0], taps.make(then, channel, y, reset, true));
        if (finishes) {
            if (mail && (!PAIRED || lane == 0)) tn_token_post(mail + own, (uint64_t)r.epoch << 32 | __float_as_uint(y)); /* others wait for it */
            tn_token_store(out, type, own, made);
            if (convolves) tn_token_store(then.out[0], then.out_type[0], channel, y);
            if (PAIRED && lane == 0) tn_token_store(then.out[0], then.out_type[0], at, y);
        }
        if (length > 256 * TN_TOKEN_READY) {
            __syncwarp();
            stream.ask();
        }
    }
    if (!ready) tn_token_sync();
    tn_token_sync();
}

/* --- any other --------------------------------------------------------------------------------------------------------------- */

/* 8 weights, in shared memory or not. */
__device__ __forceinline__ tn_f8 tn_token_weights(const char *row, int i, bool wide) { return wide ? tn_load8(row, TN_F32, i) : tn_load8(row, TN_BF16, i); }

/* mine: all rows where the product is not staged; then bytes is 0. then: what is joined, or s. */
__device__ __forceinline__ void tn_token_linear(const tn_token_step &s, const tn_token_step &then, const tn_token_room &r, const tn_token_part mine,
                                                tn_token_stream &stream)
{
    const int lane = threadIdx.x & 31, k = s.k, half = s.n / 2, each = mine.each;
    const bool paired = s.flags & TN_TOKEN_PAIRED, conv = (s.flags & TN_TOKEN_JOINED) && !paired, wide = s.in_type[1] == TN_F32;
    const int row = tn_token_row_bytes(s), joined = paired || conv ? then.j : 0, channels = conv ? then.n : 0;
    const float *x = r.slots + (s.flags & TN_TOKEN_FETCHES ? s.out_slot[1] : s.in_slot[0]);
    const tn_token_in bias(s, r, 2), more(s, r, 3);
    tn_token_sync(); /* x is there */
#pragma unroll 1
    for (int at = mine.first + each * stream.warp(); at < mine.end; at += each * TN_TOKEN_BACK) {
        const bool both = paired || (each == 2 && at + 1 < mine.end), finishes = lane == 0 || (lane == 1 && both);
        const int own = lane == 1 && both ? at + (paired ? half : 1) : at, channel = own - joined;
        const bool convolves = finishes && channel >= 0 && channel < channels;
        const char *w0 = mine.bytes ? (const char *)__cvta_shared_to_generic(stream.take()) : (const char *)s.in[1] + (int64_t)at * row;
        const char *w1 = !both ? w0 : w0 + (paired && !mine.bytes ? (int64_t)half * row : row);
        float u = 0, v = 0;
#pragma unroll 1
        for (int i = lane * 8; i < k; i += 256) {
            const tn_f8 p = tn_token_weights(w0, i, wide), q = tn_token_weights(w1, i, wide);
#pragma unroll
            for (int e = 0; e < 8; e++) u = fmaf(p.v[e], x[i + e], u), v = fmaf(q.v[e], x[i + e], v);
        }
        u = tn_warp_sum(u), v = tn_warp_sum(v);
        if (mine.bytes) stream.ask();
        float y = lane & 1 ? v : u;
        if (bias.at && finishes) y += bias.get(own);
        if (s.kind) y = tn_d_act((tn_act)s.kind, y);
        if (more.at && finishes) y += more.get(own);
        y = tn_token_rounded(s.out_type[0], y);
        const float made = y, other = __shfl_xor_sync(0xffffffffu, y, 1);
        if (paired) y = tn_token_rounded(then.out_type[0], joined ? other * tn_d_gate(then.kind, y) : y * tn_d_gate(then.kind, other));
        if (convolves) y = tn_token_rounded(then.out_type[0], tn_token_taps(then, r, channel).make(then, channel, y, tn_token_reset(then, 3), true));
        if (!finishes) continue;
        if (!paired || lane == 0) tn_token_mail(s, r, own, y);
        tn_token_out(s, r, 0).put(own, made);
        if (convolves) tn_token_store(then.out[0], then.out_type[0], channel, y);
        if (paired && lane == 0) tn_token_store(then.out[0], then.out_type[0], at, y);
    }
    tn_token_sync();
}

#endif
