/* A random order of n things without a table: the place of each is computed, in constant time and memory, from a seed and
 * the number of the epoch (a Feistel network with Philox as its round function, walked until it falls inside n). */
#ifndef TN_DATA_ORDER_H
#define TN_DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tn_order {
    uint64_t seed, stream, n;
    int half_bits;
    bool shuffled;
} tn_order;

tn_order tn_order_of(uint64_t n, bool shuffled, uint64_t seed, uint64_t epoch);
uint64_t tn_order_at(const tn_order *o, uint64_t i); /* i < n; a permutation of 0..n-1 */

#endif
