/* rollout on the GPU, shared by its files: sizes, parameters, rows, workspaces, and the launches of one lattice step.
 *
 * Every kernel is launched for the most rows there can be, C, at every step, and asks LIVE in device memory how many there are.
 * So the launches are the same in every run; those of a finished batch find nothing to do. A row reads its state before the
 * step through FROM. Counts are added with integer atomics; sums of floats go in a fixed order: partial sums belong to a chunk of
 * rows, are added to step after step by whoever has the chunk, and are summed over the chunks at the end. */
#ifndef TN_OPS_ROLLOUT_CUDA_CUH
#define TN_OPS_ROLLOUT_CUDA_CUH

#include "backend/cuda/device.cuh"
#include "ops/rollout/rollout.h"

namespace tn_rollout
{

enum { NEURON = 32, FEATURES = 64, HIDDEN = 64, X_ROOM = 128 }; /* X_ROOM: columns of [f; e], padded with 0 */

/* What a sample has come to after so many steps. */
struct tally {
    int32_t asked, exited, refused, active, last, stale, taken, rows;
};

struct weight {
    const void *data;
    tn_dtype type;
};

__device__ __forceinline__ float at(const weight &w, int64_t i) { return tn_load(w.data, w.type, i); }

/* Sizes, inputs and rows. Arrays by step hold all steps where they are kept, else two in turn (`ring`). */
struct net {
    tn_rollout_attr a;
    int32_t B, S, N, C, E, H, L, F, T;
    int32_t P, X, W1, voxels; /* 3+E; 64+E; H/2+64 */
    tn_dtype type;            /* of states, gates and heads */
    weight p[TN_ROLLOUT_INPUTS], e0;
    const int32_t *number, *count;
    const int64_t *seed;
    const float *kappa, *drift, *sigma;
    float *e, *u, *v, *d; /* landings */
    int32_t *plane, *age, *landed, *counts;
    float *paths;
    float *places; /* (T or 2,C,P) */
    int32_t *slot, *from, *bits;
    bool ring;
    int32_t *live; /* (T+1,B+1) */
    /* of the forward pass */
    float *after;                       /* (C,P): place and energy after the step */
    float *phi;                         /* (C,F) */
    int32_t *born, *origin;             /* (C) by slot */
    tally *sum;                         /* (2,B) */
    unsigned long long *leaving;        /* (T,B): rows that left, and in the upper half children asked for */
    int32_t *key, *rank, *list, *start; /* (C) (C) (C) (B,voxels+1): rows by voxel */
    float *grid;                        /* (T or 2,B,voxels,F) */
    bool grid_ring;
};

__host__ __device__ __forceinline__ int64_t step_of(const net &m, int t) { return m.ring ? t & 1 : t; }
__host__ __device__ __forceinline__ float *places_of(const net &m, int t)
{
    return m.places + step_of(m, t) * m.C * m.P;
}
__host__ __device__ __forceinline__ int32_t *slots_of(const net &m, int t) { return m.slot + step_of(m, t) * m.C; }
__host__ __device__ __forceinline__ int32_t *from_of(const net &m, int t) { return m.from + step_of(m, t) * m.C; }
__host__ __device__ __forceinline__ int32_t *bits_of(const net &m, int t) { return m.bits + step_of(m, t) * m.C; }
__host__ __device__ __forceinline__ int32_t *live_of(const net &m, int t) { return m.live + (int64_t)t * (m.B + 1); }
__host__ __device__ __forceinline__ float *grid_of(const net &m, int t)
{
    return m.grid + (m.grid_ring ? t & 1 : t) * (int64_t)m.B * m.voxels * m.F;
}
__device__ __forceinline__ int32_t rows_at(const net &m, int t) { return live_of(m, t)[m.B]; }
__host__ __device__ __forceinline__ int layer_inputs(const net &m, int l) { return l ? m.H : m.X; }

/* Memory of T in the type of states. */
__host__ __device__ __forceinline__ void *item(void *base, tn_dtype type, int64_t i)
{
    return (char *)base + i * (type == TN_F32 ? 4 : 2);
}
__host__ __device__ __forceinline__ const void *item(const void *base, tn_dtype type, int64_t i)
{
    return (const char *)base + i * (type == TN_F32 ? 4 : 2);
}

/* --- types known when kernels are compiled ------------------------------------------------------------------------------- */

/* A kernel that asks for the type at every access waits for each number before it fetches the next. So kernels are compiled for
 * states of type KIND with parameters in f32; for anything else, KIND ANY, they ask. */
enum { ANY = -1 };

template <int KIND>
__device__ __forceinline__ float get(const net &m, const void *p, int64_t i)
{
    return tn_load(p, KIND == ANY ? m.type : (tn_dtype)KIND, i);
}

template <int KIND>
__device__ __forceinline__ void put(const net &m, void *p, int64_t i, float x)
{
    tn_store(p, KIND == ANY ? m.type : (tn_dtype)KIND, i, x);
}

template <int KIND>
__device__ __forceinline__ float get(const weight &w, int64_t i)
{
    return KIND == ANY ? at(w, i) : ((const float *)w.data)[i];
}

/* V neighbours, 1 or 8. */
template <int V>
struct numbers {
    float v[V];
};

/* Eights have a type that is known when the kernel is compiled, or KIND is ANY. */
template <int KIND, int V>
__device__ __forceinline__ numbers<V> load(const net &m, const void *p, int64_t i)
{
    numbers<V> r;
    if constexpr (V == 8) {
        const tn_f8 x = tn_load8(p, KIND == ANY ? m.type : (tn_dtype)KIND, i);
#pragma unroll
        for (int k = 0; k < 8; k++) r.v[k] = x.v[k];
    } else r.v[0] = get<KIND>(m, p, i);
    return r;
}

template <int KIND, int V>
__device__ __forceinline__ void store(const net &m, void *p, int64_t i, const numbers<V> &x)
{
    if constexpr (V == 8) {
        tn_f8 r;
#pragma unroll
        for (int k = 0; k < 8; k++) r.v[k] = x.v[k];
        tn_store8(p, KIND == ANY ? m.type : (tn_dtype)KIND, i, r);
    } else put<KIND>(m, p, i, x.v[0]);
}

static inline int kind_of(const net &m)
{
    for (const weight &w : m.p)
        if (w.data && w.type != TN_F32) return ANY;
    return m.type == TN_F32 || m.type == TN_BF16 ? (int)m.type : (int)ANY;
}

/* Where nobody else adds to this place in a launch: a plain sum, but one that nobody waits for. */
__device__ __forceinline__ void add_alone(float *to, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "f"(x) : "memory");
}

#define TN_ROLLOUT_LAUNCH(kernel, kind, ...)                                                                           \
    do {                                                                                                               \
        if ((kind) == TN_F32) kernel<TN_F32> __VA_ARGS__;                                                              \
        else if ((kind) == TN_BF16) kernel<TN_BF16> __VA_ARGS__;                                                       \
        else kernel<ANY> __VA_ARGS__;                                                                                  \
    } while (0)
#define TN_ROLLOUT_KERNEL(kernel, kind)                                                                                \
    ((kind) == TN_F32    ? (const void *)kernel<TN_F32>                                                                \
     : (kind) == TN_BF16 ? (const void *)kernel<TN_BF16>                                                               \
                         : (const void *)kernel<ANY>)

/* --- a step's numbers ---------------------------------------------------------------------------------------------------- */

/* States of one step, (L,C,H). */
struct states {
    const void *before; /* NULL: zeros */
    void *after;
};

struct cell {
    int t;
    states h;
    void *x;            /* (C,X_ROOM) */
    void *gates;        /* (L,C,4H): r, z, n, q; NULL: not wanted */
    void *heads;        /* (C,W1) */
    float *raw;         /* (C,4H): before the gates, where they are not computed with the products */
    const void *packed; /* weights as tiles, rollout_tiles.cuh; NULL: plain products */
    void *
        earlier; /* (L,C,earlier_row): backward writes the states before the step here, in this step's order; or NULL */
    int64_t earlier_row;
};

/* rollout_cell_cuda.cu: features, layers, what gelu takes of the heads. */
tn_status run_cell(const tn_call *c, const net &m, const cell &s);

/* rollout_rows_cuda.cu: the flows at the start; the end of a step: move_flows, then landings and rows of the next step. */
tn_status begin_rows(const tn_call *c, const net &m);
tn_status move_rows(const tn_call *c, const net &m, const cell &s);

/* rollout_move_cuda.cu: the heads' last products, what goes to the field, moves. */
tn_status move_flows(const tn_call *c, const net &m, const cell &s);

/* rollout_field_cuda.cu: the field after step t from phi. */
tn_status deposit_field(const tn_call *c, const net &m, int t);

/* --- products (rollout_products_cuda.cu) --------------------------------------------------------------------------------- */

/* Part of a product over rows: columns of A and the matrix they are multiplied with, element (k,j) at k w_k + j w_j. */
struct product_part {
    int first, k; /* columns of A from `first` on; from column `gap_at` of them on, `gap` further */
    int gap_at, gap;
    weight w;
    int64_t w_k, w_j;
};

/* Which tiles of a product a launch takes, where its weights are packed. FILLS: of its first as many as leave no block idle beside the
 * launch's other product, which has as many tiles; LEFT: in a later launch for the same rows, the others. */
enum product_share { WHOLE, FILLS, LEFT };

/* to (n,columns) = or += [A parts] w + bias. */
struct product {
    const void *a; /* (C,a_row) in the type of states */
    int64_t a_row;
    product_part part[2];
    int parts, columns;
    weight bias; /* data NULL: none */
    void *to;    /* in the type of states */
    int64_t to_row;
    bool add;
    int tile; /* of the packed weights: where its tiles begin */
    product_share share;
};
enum { MOST_PRODUCTS = 1 + TN_ROLLOUT_LAYERS };

/* In one launch, two at most where they are not packed. packed: as in a cell. */
tn_status multiply_rows(const tn_call *c, const net &m, int t, const product *p, int n, const void *packed);

/* A layer of the GRU for the rows of a step. */
struct layer {
    int l;
    const void *x, *before; /* (C,x_row) (C,H), read through `from`; NULL: zeros */
    int64_t x_row;
    const int32_t *from;
    void *after, *kept; /* (C,H), (C,4H) or NULL */
    float *raw;         /* (C,4H) */
};

/* raw: before r, before z, n's parts from x and from h; biases are in. */
tn_status multiply_gates(const tn_call *c, const net &m, int t, const layer &y);

/* sum (rows_out,columns) f32 += D^T A over the rows of a step: D (C,d_row) columns from d_first, A's rows by `from` where given. */
struct outer {
    const void *d, *a;
    int64_t d_row, a_row;
    int d_first, gap_at, gap; /* as above: rows of the sum to columns of D */
    const int32_t *from;
    int rows, columns;
    float *sum;
};
enum { MOST_OUTER = 2 * TN_ROLLOUT_LAYERS + 2 };

tn_status add_outer(const tn_call *c, const net &m, int t, const outer *o, int n, bool tiles);

} // namespace tn_rollout

#endif
