/* rollout on the GPU: weights packed into tiles for tensor cores, and the kernels that take them (Hopper, bf16, H a multiple of
 * 64). A tile is 64 steps along k of so many columns of a product, in shared memory's order (backend/cuda/hopper.cuh): one copy
 * brings it there. Columns and steps beyond the weight are 0. */
#ifndef TN_OPS_ROLLOUT_TILES_CUH
#define TN_OPS_ROLLOUT_TILES_CUH

#include "ops/rollout/rollout_cuda.cuh"

namespace tn_rollout
{

enum { TILE_K = 64, TILE_ROW = TILE_K * 2, GATE_UNITS = 64, GATE_COLUMNS = 3 * GATE_UNITS, WIDE = 256, NARROW = 128 };

/* The products whose weights are packed; of layer l: + l. */
enum {
    TILES_GATES,
    TILES_E1 = TILES_GATES + TN_ROLLOUT_LAYERS,
    TILES_D1,
    TILES_DX,
    TILES_DH = TILES_DX + TN_ROLLOUT_LAYERS,
    TILES_HEADS_BACK = TILES_DH + TN_ROLLOUT_LAYERS,
    TILES
};

/* Of one product: `columns` of a tile, `across` tiles, `deep` tiles along k, tile (i,k) at first + (i deep + k) columns TILE_ROW. */
struct tile_set {
    int columns, across, deep;
    int64_t first; /* bytes */
};

tile_set tiles_of(const net &m, int product);
/* (L,H/64,4,64) f32 behind the tiles: b_i + b_h of r, of z, b_i of n, b_h of n. */
int64_t biases_at(const net &m);

/* Types, sizes and device allow it. */
bool takes_tiles(tn_dtype type, int64_t H);
size_t packed_bytes(const net &m);
/* backward: those of the backward pass too. */
tn_status pack_tiles(const tn_call *c, const net &m, void *packed, bool backward);
tn_status run_tiled_layer(const tn_call *c, const net &m, int t, const layer &y, const void *packed);
tn_status multiply_tiled_rows(const tn_call *c, const net &m, int t, const product *p, int n, const void *packed);
/* sum is (outer_shares,..) of each; no `from`. */
tn_status add_tiled_outer(const tn_call *c, const net &m, int t, const outer *o, int n);
int outer_shares(const net &m);

} // namespace tn_rollout

#endif
