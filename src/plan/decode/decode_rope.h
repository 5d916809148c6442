/* The frequency of a pair of a token's rope, in radians a position: as ops/rope/rope_frequency.h has it, from what a step has room for. */
#ifndef TN_PLAN_DECODE_ROPE_H
#define TN_PLAN_DECODE_ROPE_H

#include "plan/decode/decode.h"

#include <math.h>

#ifdef __CUDACC__
#define TN_DECODE_BOTH __host__ __device__ __forceinline__
#else
#define TN_DECODE_BOTH static inline
#endif

TN_DECODE_BOTH double tn_decode_frequency(const tn_decode_step *s, int j)
{
    const double two_pi = 6.283185307179586476925, pairs = s->k / 2;
    const double f = exp2(-((double)s->a + (double)s->b) * (double)j / pairs), stretch = s->c;
    double keep = 0; /* how much of it stays as it is */
    switch (s->kind >> 1) {
    case TN_DECODE_AS_IS: return f;
    case TN_DECODE_LINEARLY: return f / stretch;
    case TN_DECODE_YARN:
        keep = 1 - (double)(j - s->m) / (double)(s->j - s->m);
        keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
        break;
    default: {
        const double ratio = (double)s->d * f / two_pi; /* wavelengths in the context */
        keep = ratio >= 4 ? 1 : ratio <= 1 ? 0 : (ratio - 1) / 3;
    }
    }
    return f * (keep + (1 - keep) / stretch);
}

/* Of cosines and sines. */
TN_DECODE_BOTH double tn_decode_amplitude(const tn_decode_step *s)
{
    return s->kind >> 1 == TN_DECODE_YARN ? (double)s->d : 1.0;
}

/* Whether two steps turn by the same angles, where they stand at one position. */
static inline bool tn_decode_turns_alike(const tn_decode_step *s, const tn_decode_step *o)
{
    return o->k == s->k && o->kind == s->kind && o->m == s->m && o->j == s->j && o->a == s->a && o->b == s->b &&
           o->c == s->c && o->d == s->d;
}

#endif
