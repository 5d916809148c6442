/* A Feistel network with Philox as its round function, applied again until the result is below n: a permutation whatever the
 * round function is. */
#include "data/loader_parts.h"

#include "base/rng.h"

enum { ROUNDS = 6 };

tn_order tn_order_of(uint64_t n, bool shuffled, uint64_t seed, uint64_t epoch)
{
    tn_order o = { .seed = seed,
                   .stream = tn_rng_stream("data.order") + epoch * 0x9E3779B97F4A7C15u,
                   .n = n,
                   .half_bits = 1,
                   .shuffled = shuffled };
    while (o.half_bits < 32 && (n - 1) >> (2 * o.half_bits) != 0) o.half_bits++;
    return o;
}

uint64_t tn_order_at(const tn_order *o, uint64_t i)
{
    const tn_rng r = { o->seed, o->stream };
    const uint64_t mask = ((uint64_t)1 << o->half_bits) - 1;
    if (!o->shuffled || o->n < 2) return i;
    do { /* the domain is less than four times n: a few walks on average */
        uint64_t left = i >> o->half_bits, right = i & mask;
        for (uint64_t k = 0; k < ROUNDS; k++) {
            uint32_t w[4];
            tn_rng_block(r, k << 32 | right, w);
            const uint64_t next = (left ^ w[0]) & mask;
            left = right;
            right = next;
        }
        i = left << o->half_bits | right;
    } while (i >= o->n);
    return i;
}
