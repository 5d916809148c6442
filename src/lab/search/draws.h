/* Random numbers of the lab, in double precision. A draw depends on (seed, name, number) and on how many were drawn
 * before it. A sampler opens a stream for each trial, so a point never depends on how often other trials drew. */
#ifndef TN_LAB_DRAWS_H
#define TN_LAB_DRAWS_H

#include "base/rng.h"

typedef struct tn_draws {
    tn_rng r;
    uint64_t next;
} tn_draws;

static inline tn_draws tn_draws_open(uint64_t seed, const char *name, uint64_t number)
{
    /* The odd factor gives every number its own stream of the generator. */
    return (tn_draws){ .r = { .seed = seed, .stream = tn_rng_stream(name) + number * 0x9E3779B97F4A7C15u } };
}

/* [0,1), 53 bits */
static inline double tn_draws_uniform(tn_draws *l)
{
    uint32_t w[4];
    tn_rng_block(l->r, l->next++, w);
    return (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
}

static inline uint64_t tn_draws_below(tn_draws *l, uint64_t n) { return tn_rng_below(l->r, l->next++, n); } /* [0,n) */

#endif
