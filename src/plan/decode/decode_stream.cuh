/* Weights on their way through shared memory. Each warp that makes products has a room of its own there, cut into places: while it works on the rows
 * in one, those that it will make next, of this product and of the ones after it, come into the others. So memory is read while blocks wait for
 * each other, and no warp waits for another one's copies. */
#ifndef TN_PLAN_DECODE_STREAM_CUH
#define TN_PLAN_DECODE_STREAM_CUH

#include "plan/decode/decode_steps.cuh"

/* What is a block's of a product: rows, or pairs of rows that lie half of them apart. */
struct tn_decode_part {
    const char *from; /* all weights */
    int64_t apart;    /* of the rows of a pair, in bytes */
    int first, end;
    short
        each; /* 1, 2 or 4 (no more than 2 where something is joined) of neighbouring ones that a warp makes at once: with those of the other warps, its turn comes again after TN_DECODE_BACK times as many */
    short paired;
    int bytes; /* of a row, 0: they are too long for a place and are read where they lie */
    int piece; /* ... of it in a place: all, but for the pieces of rows that are cut */
};

/* Bytes of a row of weights. */
__device__ __forceinline__ int tn_decode_row_bytes(const tn_decode_step &s)
{
    return s.k * (s.in_type[1] == TN_F32 ? 4 : 2);
}

/* The parts of all staged products, by all threads; a block barrier follows. */
__device__ __forceinline__ void tn_decode_share_out(tn_decode_part *part, const tn_decode_program &p,
                                                    const tn_decode_step *step)
{
    const int i = threadIdx.x;
    if (i >= p.staged_n) return;
    const tn_decode_step &s = step[p.staged[i]];
    const bool paired = s.flags & TN_DECODE_PAIRED;
    const tn_decode_rows rows(paired ? s.n / 2 : s.n);
    const int bytes = tn_decode_row_bytes(s);
    const int piece = p.piece_bytes && bytes > p.piece_bytes ? p.piece_bytes : bytes;
    const int count = rows.end - rows.first, most = p.place_bytes / piece; /* rows of a place */
    short each = 1;
    if (count > TN_DECODE_BACK && most >= (paired ? 4 : 2) && (!paired || p.sets > 1))
        each = !(s.flags & TN_DECODE_JOINED) && p.sets > 1 && count > 4 * TN_DECODE_BACK && most >= 4 ? 4 : 2;
    part[i] = { (const char *)s.in[1],
                (int64_t)bytes * (s.n / 2),
                rows.first,
                rows.end,
                each,
                paired,
                (paired ? 2 : 1) * piece <= p.place_bytes ? bytes : 0,
                piece };
}

/* 16 bytes of each lane to shared memory. */
__device__ __forceinline__ void tn_decode_copy16(unsigned to, const char *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

/* Of a warp. Addresses are those of shared memory. */
struct tn_decode_stream {
    const tn_decode_program &p;
    const tn_decode_part *part;
    unsigned room;
    int put, get; /* places: where the next rows will come to, and those that were asked for first are */
    int product, at, end,
        cut; /* next rows that will be asked for, where the warp's end, and from which of their bytes on */

    __device__ __forceinline__ tn_decode_stream(const tn_decode_program &program, const tn_decode_part *parts,
                                                const char *memory)
        : p(program), part(parts), put(0), get(0), product(-1), at(0), end(0), cut(0)
    {
        room = (unsigned)__cvta_generic_to_shared(memory) + warp() * p.places * p.place_bytes;
    }
    __device__ __forceinline__ static int warp() { return (threadIdx.x >> 5) - TN_DECODE_FRONT / 32; }

    /* The next product that has rows for this warp's places. */
    __device__ __forceinline__ void go_on()
    {
#pragma unroll 1
        while (at >= end && ++product < p.staged_n) {
            const tn_decode_part &next = part[product];
            at = next.first + next.each * warp();
            end = next.bytes ? next.end : at;
        }
    }

    /* bytes at `from`, and where there are two as many `apart` from them: the rows, then the others of their pairs; or a piece each of two. */
    __device__ __forceinline__ void copy(unsigned to, const char *from, int bytes, bool two, int64_t apart) const
    {
        const int lane = (threadIdx.x & 31) * 16;
        const char *const other = from + apart;
        if (bytes == TN_DECODE_PIECE && two) { /* of few instructions: nearly all places, where rows are cut */
#pragma unroll
            for (int i = 0; i < TN_DECODE_PIECE; i += 32 * 16) {
                tn_decode_copy16(to + lane + i, from + lane + i);
                tn_decode_copy16(to + lane + TN_DECODE_PIECE + i, other + lane + i);
            }
            return;
        }
#pragma unroll 1
        for (int i = lane; i < bytes; i += 32 * 16) {
            tn_decode_copy16(to + i, from + i);
            if (two) tn_decode_copy16(to + bytes + i, other + i);
        }
    }

    /* Asks for the next rows, if there are any, into the place that has been free for the longest time. */
    __device__ __forceinline__ void ask()
    {
        if (at >= end && product < p.staged_n) go_on();
        if (at < end) {
            const tn_decode_part mine = part[product];
            const int rows = min((int)mine.each, end - at);
            const bool whole = mine.piece == mine.bytes;
            copy(room + put * p.place_bytes, mine.from + (int64_t)at * mine.bytes + cut,
                 whole ? rows * mine.bytes : min(mine.piece, mine.bytes - cut), mine.paired || (!whole && rows > 1),
                 mine.paired ? mine.apart : mine.bytes);
            cut += mine.piece;
            if (cut >= mine.bytes) cut = 0, at += mine.each * TN_DECODE_BACK;
        }
        asm volatile("cp.async.commit_group;\n" ::: "memory");
        if (++put == p.places) put = 0;
    }

    /* The rows that were asked for first, when they have come; their place is free at the next ask. There are as many asks under way as places. */
    __device__ __forceinline__ unsigned take()
    {
        if (p.places == 4) asm volatile("cp.async.wait_group 3;\n" ::: "memory");
        else if (p.places == 3) asm volatile("cp.async.wait_group 2;\n" ::: "memory");
        else if (p.places == 2) asm volatile("cp.async.wait_group 1;\n" ::: "memory");
        else asm volatile("cp.async.wait_group 0;\n" ::: "memory");
        __syncwarp();
        const unsigned place = room + get * p.place_bytes;
        if (++get == p.places) get = 0;
        return place;
    }
};

/* Asks the L2 cache for weights that will go through shared memory later. There is room for little in shared memory; so while blocks wait for each
 * other, which is nearly half of the time, memory would rest. One warp of a block asks, for the block's rows alone, whenever a product is done. */
struct tn_decode_ahead {
    enum { WINDOW = 192 << 10 }; /* bytes of a block; those of all blocks are half of the cache */
    int product, row, bytes;     /* next to be asked for, and how much has been of what is not in use yet */

    __device__ __forceinline__ tn_decode_ahead() : product(0), row(0), bytes(0) {}

    /* Product `done` is made; -1: none. */
    __device__ __forceinline__ void ask(const tn_decode_part *part, int n, int done)
    {
#if __CUDA_ARCH__ >= 900
        if (product <= done) {
            product = done + 1, row = bytes = 0;
        } else if (done >= 0) {
            bytes -= (part[done].end - part[done].first) * part[done].bytes << part[done].paired;
        }
#pragma unroll 1
        while (product < n && bytes < WINDOW) {
            const tn_decode_part &p = part[product];
            const int left = p.end - p.first - row, each = p.bytes << p.paired,
                      rows = each ? min(left, (WINDOW - bytes + each - 1) / each) : left;
            const char *from = p.from + (int64_t)(p.first + row) * p.bytes;
#pragma unroll 1
            for (int i = threadIdx.x & 31; each && i < rows; i += 32) {
                asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from + (int64_t)i * p.bytes),
                             "r"(p.bytes)
                             : "memory");
                if (p.paired)
                    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from + p.apart +
                                                                                      (int64_t)i * p.bytes),
                                 "r"(p.bytes)
                                 : "memory");
            }
            bytes += rows * each;
            row += rows;
            if (rows == left) product++, row = 0;
        }
#else
        (void)part, (void)n, (void)done;
#endif
    }
};

/* How many numbers of input k a step reads that are not vectors of this token: parameters and states, and small weights. */
__device__ __forceinline__ int64_t tn_decode_kept(const tn_decode_step &s, int k)
{
    switch (s.op) {
    case TN_DECODE_NORM: return k >= 2 ? s.n : 0;
    case TN_DECODE_CONV: return k == 1 ? (int64_t)s.n * s.k : k == 2 ? s.n : k == 3 ? (int64_t)s.n * (s.k - 1) : 0;
    case TN_DECODE_SCAN: return k == 2 || k == 3 ? s.n : k == 4 ? 2 * s.n : 0;
    case TN_DECODE_READOUT: return k >= 3 ? s.n : 0;
    case TN_DECODE_OUTER: return k == 4 ? (int64_t)s.n * s.k * s.m : 0;
    case TN_DECODE_LINEAR: return k == 1 && !(s.flags & TN_DECODE_SHARED) ? (int64_t)s.n * s.k : k == 2 ? s.n : 0;
    default: return 0;
    }
}

/* Asks the L2 cache for them, each warp that makes products for some of the steps. */
__device__ __forceinline__ void tn_decode_ask_ahead(const tn_decode_program &p, const tn_decode_step *step)
{
#pragma unroll 1
    for (int i = blockIdx.x + tn_decode_stream::warp() * gridDim.x; i < p.n; i += gridDim.x * TN_DECODE_BACK) {
        const tn_decode_step &s = step[i];
#pragma unroll 1
        for (int k = 0; k < TN_DECODE_IN; k++) {
            if (!s.in[k] || s.in_slot[k] >= 0) continue;
            const int64_t bytes = tn_decode_kept(s, k) * (s.in_type[k] == TN_F32 ? 4 : 2);
#pragma unroll 1
            for (int64_t at = (threadIdx.x & 31) * 128; at < bytes; at += 32 * 128)
                asm volatile("prefetch.global.L2 [%0];\n" ::"l"((const char *)s.in[k] + at));
        }
    }
}

#endif
