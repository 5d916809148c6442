/* The tile of sumsq: its size decides the order of the sum, so workspace and kernels read it from here. */
#ifndef TN_OPS_SUMSQ_TILE_H
#define TN_OPS_SUMSQ_TILE_H

#include <stdint.h>

enum { TN_SUMSQ_TILE = 16384 }; /* elements */

static inline int64_t tn_sumsq_tiles(int64_t n) { return (n + TN_SUMSQ_TILE - 1) / TN_SUMSQ_TILE; }

#endif
