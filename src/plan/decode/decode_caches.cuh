/* What a token's kernel puts into caches: keys are turned by their position first, and so are queries. */
#ifndef TN_PLAN_DECODE_CACHES_CUH
#define TN_PLAN_DECODE_CACHES_CUH

#include "plan/decode/decode_rope.h"
#include "plan/decode/decode_steps.cuh"

__device__ __forceinline__ void tn_decode_rope(const tn_decode_step &s, const tn_decode_room &r)
{
    const int pairs = s.k / 2, mixed = s.kind & 1, shift = 31 - __clz(pairs), whole = pairs == 1 << shift;
    const tn_decode_in x(s, r, 0);
    const tn_decode_out y(s, r, 0);
    if (!(s.flags & TN_DECODE_SAME)) {
        if (threadIdx.x < pairs) {
            const double position = s.in[1] ? tn_decode_integer(s, 1) : 0, amplitude = tn_decode_amplitude(&s);
            double sn, cs;
            sincos(position * tn_decode_frequency(&s, threadIdx.x), &sn, &cs);
            r.known->angle[threadIdx.x] = make_float2((float)(amplitude * cs), (float)(amplitude * sn));
        }
        tn_decode_front_sync();
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < s.n * pairs; i += TN_DECODE_FRONT) {
        const int h = whole ? i >> shift : i / pairs, j = i - h * pairs;
        const int p = h * s.k + (mixed ? 2 * j : j), q = mixed ? p + 1 : p + pairs;
        const float a = x.get(p), b = x.get(q);
        const float2 t = r.known->angle[j];
        y.put(p, a * t.x - b * t.y);
        y.put(q, b * t.x + a * t.y);
    }
}

/* As cache_write does, NaN in the nearest row where there is none. Every block writes it, the same bits: so none waits for another one's. */
__device__ __forceinline__ void tn_decode_place(const tn_decode_step &s, const tn_decode_room &r)
{
    const int given = tn_decode_integer_known(s, 1, r.known->place), row = given < 0     ? 0
                                                                           : given < s.k ? given
                                                                                         : s.k - 1;
    const int shift = 31 - __clz(s.m);
    const bool whole = s.m == 1 << shift; /* a division takes as long as all else here */
    const tn_decode_in x(s, r, 0);
#pragma unroll 1
    for (int i = threadIdx.x; i < s.n; i += TN_DECODE_FRONT) {
        const int head = whole ? i >> shift : i / s.m;
        tn_decode_store(s.out[0], s.out_type[0], ((int64_t)head * s.k + row) * s.m + (i - head * s.m),
                        row == given ? x.get(i) : NAN);
    }
}

#endif
