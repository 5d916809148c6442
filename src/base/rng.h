/* Counter-based random numbers (Philox 4x32-10, Salmon et al. 2011): a number is a function of (seed, stream, index),
 * so it is the same whatever the order, the thread count, or a recomputed forward pass. */
#ifndef TN_BASE_RNG_H
#define TN_BASE_RNG_H

#include <stdint.h>

typedef struct tn_rng {
    uint64_t seed, stream;
} tn_rng;

void tn_rng_block(tn_rng r, uint64_t index, uint32_t out[4]);           /* four independent 32-bit words */
void tn_rng_blocks(tn_rng r, uint64_t first, int64_t n, uint32_t *out); /* blocks first .. first + n - 1; out[4 n] */
float tn_rng_uniform(tn_rng r, uint64_t index);                         /* [0,1), 24 bits */
float tn_rng_normal(tn_rng r, uint64_t index);                          /* mean 0, variance 1 (Box-Muller) */
void tn_rng_normals(tn_rng r, float *x, int64_t n); /* x[i] = tn_rng_normal(r, i), four to a block */
void tn_rng_normals_from(tn_rng r, uint64_t first, float *x,
                         int64_t n); /* ... tn_rng_normal(r, first + i); first: a multiple of 4 */
uint64_t tn_rng_below(tn_rng r, uint64_t index, uint64_t n); /* [0,n) */
uint64_t tn_rng_stream(const char *name);                    /* a stream number from a name */

#endif
