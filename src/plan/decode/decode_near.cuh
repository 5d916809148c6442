/* Norm and readout of a PLAIN program (decode.h), of vectors that are not too long for the front's registers: a thread has its pairs of numbers
 * from their arrival to the end, and what does not depend on them is ready before. Pairs lie at 8 bytes, or 4 of bf16. */
#ifndef TN_PLAN_DECODE_NEAR_CUH
#define TN_PLAN_DECODE_NEAR_CUH

#include "plan/decode/decode_steps.cuh"

/* Numbers of an input at a thread's pairs, asked for all at once; what stands for an absent one where there are none. */
template <int PAIRS>
struct tn_decode_asked {
    unsigned bits[PAIRS][2];
    int each; /* bytes of a number; 0: there are none */
    float absent;

    __device__ __forceinline__ tn_decode_asked(const tn_decode_step &s, const tn_decode_room &r, int k, float otherwise)
        : absent(otherwise)
    {
        const tn_decode_in from(s, r, k);
        each = from.at ? from.each : 0;
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            bits[u][0] = bits[u][1] = 0;
            if (each && tn_decode_pair_at(u) < s.n)
                asm volatile(
                    "{ .reg .pred p; setp.eq.s32 p, %3, 4; @p ld.cg.v2.u32 {%0, %1}, [%2]; @!p ld.cg.u32 %0, [%2]; }\n"
                    : "+r"(bits[u][0]), "+r"(bits[u][1])
                    : "l"(from.at + tn_decode_pair_at(u) * each), "r"(each)
                    : "memory");
        }
    }
    __device__ __forceinline__ float2 operator[](int u) const
    {
        const float2 wide = make_float2(__uint_as_float(bits[u][0]), __uint_as_float(bits[u][1]));
        const float2 narrow = make_float2(__uint_as_float(bits[u][0] << 16), __uint_as_float(bits[u][0] & 0xffff0000u));
        return !each ? make_float2(absent, absent) : each == 4 ? wide : narrow;
    }
};

/* What the step was joined to, when it has come; it is kept in its slot besides. 0 beyond its end. */
template <int PAIRS>
__device__ __forceinline__ tn_decode_pairs<PAIRS> tn_decode_arrive(const tn_decode_room &r)
{
    tn_decode_pairs<PAIRS> p = tn_decode_poll<PAIRS>(r.fetch->message, r.fetch->n, r.epoch);
#pragma unroll
    for (int u = 0; u < PAIRS; u++) {
        if (tn_decode_pair_at(u) >= r.fetch->n) p.v[u][0] = 0;
        if (tn_decode_pair_at(u) + 1 >= r.fetch->n) p.v[u][1] = 0;
    }
    tn_decode_keep(r.slots + r.fetch->out_slot[0], r.fetch->n, p);
    return p;
}

/* A step's output k at a thread's pairs: to its slot, and to memory where this block is the one that writes. */
template <int PAIRS>
__device__ __forceinline__ void tn_decode_put_pairs(const tn_decode_step &s, const tn_decode_room &r, int k,
                                                    const tn_decode_pairs<PAIRS> &x)
{
    if (!s.out[k]) return;
    const int type = s.out_type[k];
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        if (s.out_slot[k] >= 0 && tn_decode_pair_at(u) < s.n) /* a slot has room for one number more where n is odd */
            *(float2 *)(r.slots + s.out_slot[k] + tn_decode_pair_at(u)) =
                make_float2(tn_decode_rounded(type, x.v[u][0]), tn_decode_rounded(type, x.v[u][1]));
    if (!r.writes) return;
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (tn_decode_pair_at(u) + e < s.n) tn_decode_store(s.out[k], type, tn_decode_pair_at(u) + e, x.v[u][e]);
}

template <int PAIRS>
__device__ __forceinline__ void tn_decode_norm_near(const tn_decode_step &s, const tn_decode_room &r)
{
    const int comes = !r.fetch ? -1 : s.in_slot[0] == r.fetch->out_slot[0] ? 0 : 1;
    const tn_decode_asked<PAIRS> gain(s, r, 2, 1.f);
    const float part = tn_d_inverse((float)s.n);
    float squares = 0;
    tn_decode_pairs<PAIRS> v = {};
#pragma unroll
    for (int k = 0; k < 2; k++) { /* x and residual */
        if (comes == k || !s.in[k]) continue;
        const tn_decode_asked<PAIRS> x(s, r, k, 0.f);
#pragma unroll
        for (int u = 0; u < PAIRS; u++) v.v[u][0] += x[u].x, v.v[u][1] += tn_decode_pair_at(u) + 1 < s.n ? x[u].y : 0.f;
    }
    if (comes >= 0) {
        const tn_decode_pairs<PAIRS> x = tn_decode_arrive<PAIRS>(r);
#pragma unroll
        for (int u = 0; u < PAIRS; u++) v.v[u][0] += x.v[u][0], v.v[u][1] += x.v[u][1];
    }
#pragma unroll
    for (int u = 0; u < PAIRS; u++) squares += v.v[u][0] * v.v[u][0] + v.v[u][1] * v.v[u][1];
    const float scale = rsqrtf(tn_decode_sum(squares, r.sums) * part + s.a);
    tn_decode_pairs<PAIRS> made;
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        made.v[u][0] = v.v[u][0] * scale * gain[u].x, made.v[u][1] = v.v[u][1] * scale * gain[u].y;
    tn_decode_put_pairs(s, r, 0, made);
    tn_decode_put_pairs(s, r, 1, v);
}

/* Squares are summed 32 by 32, by half a warp, then the sums of a group. */
template <int PAIRS>
__device__ __forceinline__ void tn_decode_readout_near(const tn_decode_step &s, const tn_decode_room &r)
{
    const int parts = s.k >> 5;
    const float each = parts ? tn_d_inverse((float)s.k) : 0.f;
    const tn_decode_asked<PAIRS> gain(s, r, 4, 1.f), z(s, r, 1, 0.f);
    tn_decode_pairs<PAIRS> v = {};
    float gate[PAIRS][2];
    if (s.in[2]) {
        const tn_decode_asked<PAIRS> x(s, r, 2, 0.f), skip(s, r, 3, 0.f);
#pragma unroll
        for (int u = 0; u < PAIRS; u++) v.v[u][0] = skip[u].x * x[u].x, v.v[u][1] = skip[u].y * x[u].y;
    }
#pragma unroll
    for (int u = 0; u < PAIRS; u++) {
        gate[u][0] = tn_decode_gate(s.kind, z[u].x), gate[u][1] = tn_decode_gate(s.kind, z[u].y);
        if (parts) gate[u][0] *= gain[u].x, gate[u][1] *= gain[u].y;
    }
    if (r.fetch) {
        const tn_decode_pairs<PAIRS> c = tn_decode_arrive<PAIRS>(r);
#pragma unroll
        for (int u = 0; u < PAIRS; u++) v.v[u][0] += s.a * c.v[u][0], v.v[u][1] += s.a * c.v[u][1];
    } else {
        const tn_decode_asked<PAIRS> c(s, r, 0, 0.f);
#pragma unroll
        for (int u = 0; u < PAIRS; u++)
            v.v[u][0] += s.a * c[u].x, v.v[u][1] += tn_decode_pair_at(u) + 1 < s.n ? s.a * c[u].y : 0.f;
    }
    if (parts) {
#pragma unroll
        for (int u = 0; u < PAIRS; u++) {
            float square = v.v[u][0] * v.v[u][0] + v.v[u][1] * v.v[u][1];
#pragma unroll
            for (int d = 8; d; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
            if ((threadIdx.x & 15) == 0 && tn_decode_pair_at(u) < s.n) r.sums[tn_decode_pair_at(u) >> 5] = square;
        }
        tn_decode_front_sync();
    }
#pragma unroll
    for (int u = 0; u < PAIRS; u++) {
        float scale = 1.f;
        if (parts && tn_decode_pair_at(u) < s.n) {
            float sum = 0;
            const float *from = r.sums + (int)(((float)tn_decode_pair_at(u) + 0.5f) * each) * parts; /* of its group */
#pragma unroll 1
            for (int j = 0; j < parts; j++) sum += from[j];
            scale = rsqrtf(sum * each + s.b);
        }
        v.v[u][0] *= scale * gate[u][0], v.v[u][1] *= scale * gate[u][1];
    }
    tn_decode_put_pairs(s, r, 0, v);
}

#endif
