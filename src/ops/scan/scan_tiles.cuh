/* The recurrence s_i = p_i s_{i-1} + z_i on the GPU, in one pass over memory: what scan and scan_gated share. It
 * knows neither what p and z are made of nor which way time runs: a step i is token i, or T-1-i in a reverse scan.
 *
 * A block (8 warps) owns a tile: CHUNK steps of 32 V channels of one row. Each warp keeps a piece of PIECE steps in
 * registers, runs it from zero, learns what really enters it, runs it again and writes; words that only the second run
 * or the next tile needs are on their way to shared memory meanwhile. What enters a chunk (scan_nodes.cuh) comes from a tree of fixed shape: chunks publish what they leave behind (level 0), every 8th also the sum of its 8
 * (level 1), every 64th of its 64 (level 2), every 512th the state itself. A chunk combines the last such state with
 * at most 7 nodes of each level, always in the same order, so bits do not depend on who was faster; a node waits
 * only for those below it, so no chain of waits is longer than one hop per 512 chunks. Tiles are handed out by a counter in the order of time: a tile waits
 * only for tiles that are already running, so it cannot deadlock. A node's numbers travel as 64-bit words of a float
 * and a tag (0: not yet; 1; 2: a document starts inside, so what enters does not leave): a word is valid or not on
 * its own, no fence is needed.
 *
 * A row of one chunk runs its pieces one after another instead: the recurrence exactly as written.
 *
 * Rounding: f32 within a piece and between pieces, but sums of T steps are formed by a tree of depth 4 (plus one
 * addition per 512 chunks), so errors do not add up along T as they would in a loop. */
#ifndef TN_OPS_SCAN_TILES_CUH
#define TN_OPS_SCAN_TILES_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/mma.cuh"

enum {
    TN_TILE_LANES = 32,
    TN_TILE_WARPS = 8,
    TN_TILE_THREADS = TN_TILE_LANES * TN_TILE_WARPS,
    TN_TILE_PIECE = 16,                            /* steps of a warp */
    TN_TILE_CHUNK = TN_TILE_PIECE * TN_TILE_WARPS, /* steps of a block */
    TN_TILE_RADIX = 8,
    TN_TILE_LEVELS = 3, /* of sums; above them, states every RADIX^LEVELS chunks */
    TN_TILE_GROUP = 512,
    TN_TILE_PAD = 64 /* channels are padded to it in tables and nodes: V is 1 or 2 */
};

/* A tensor (B,T,2K) or (B,2K) with contiguous channels. */
typedef struct tn_tile_tensor {
    void *at; /* NULL: absent, not wanted or zero */
    tn_dtype type;
    int64_t b, t; /* from row to row, from token to token */
    bool add;
} tn_tile_tensor;

typedef struct tn_tile_frame {
    int64_t B, T;
    int K, groups, chunks; /* groups: of 32 V channels */
    bool reverse;          /* step 0 is the last token */
    /* what is read and written of all tokens are words as they lie in memory, in rows of 16-byte vectors */
    bool direct;
    const int32_t *reset; /* (B,T) or NULL */
    const int32_t *live;  /* rows alive, or NULL: all */
    tn_tile_tensor first; /* (B,2K): what enters step 0 */
    unsigned *ticket;     /* 0 before the launch */
    unsigned long long *node;
    const float2 *power; /* (LEVELS, padded K): products of nodes, where these hold sums only */
    int64_t columns;     /* padded K */
} tn_tile_frame;

static inline int tn_tile_chunks(int64_t T) { return T > 0 ? (int)((T + TN_TILE_CHUNK - 1) / TN_TILE_CHUNK) : 1; }

__host__ __device__ static inline int64_t tn_tile_nodes(int64_t chunks) /* of one row and group */
{
    return chunks < 2 ? 0 : chunks + chunks / 8 + chunks / 64 + chunks / TN_TILE_GROUP;
}

static inline int64_t tn_tile_padded(int64_t K) { return (K + TN_TILE_PAD - 1) / TN_TILE_PAD * TN_TILE_PAD; }

/* words: per channel of a node. */
static inline size_t tn_tile_node_bytes(int64_t B, int64_t T, int64_t K, int words)
{
    return (size_t)(B * tn_tile_padded(K) * tn_tile_nodes(tn_tile_chunks(T))) * (size_t)words * 8;
}

/* --- words: two bf16 numbers or one of any type, as they came from memory
 * ------------------------------------------- */

template <int V>
__device__ __forceinline__ uint32_t tn_word(const void *p, tn_dtype t, int64_t i)
{
    if (V == 2) return *(const uint32_t *)((const uint16_t *)p + i);
    return __float_as_uint(tn_load(p, t, i));
}

/* Words are opened again in the second run. Without this the compiler keeps the opened numbers of the first, twice the
 * registers, and spills. */
__device__ __forceinline__ void tn_words_anew(uint32_t *w)
{
#pragma unroll
    for (int i = 0; i < TN_TILE_PIECE; i++) asm volatile("" : "+r"(w[i]));
}

template <int V>
__device__ __forceinline__ float tn_word_part(uint32_t w, int v)
{
    return V == 2 ? __uint_as_float(v ? w & 0xffff0000u : w << 16) : __uint_as_float(w);
}

template <int V>
__device__ __forceinline__ uint32_t tn_word_of(const float *x)
{
    return V == 2 ? tn_pack_bf16(x[0], x[V - 1]) : __float_as_uint(x[0]);
}

/* x added to what a word holds. */
template <int V>
__device__ __forceinline__ uint32_t tn_word_sum(uint32_t old, const float *x)
{
    float y[V];
#pragma unroll
    for (int v = 0; v < V; v++) y[v] = __fadd_rn(x[v], tn_word_part<V>(old, v));
    return tn_word_of<V>(y);
}

template <int V>
__device__ __forceinline__ void tn_word_put(const tn_tile_tensor &p, int64_t i, const float *x)
{
    if (V == 2) {
        float a = x[0], b = x[V - 1];
        if (p.add) {
            const uint32_t old = *(const uint32_t *)((const uint16_t *)p.at + i);
            a = __fadd_rn(a, tn_word_part<2>(old, 0)), b = __fadd_rn(b, tn_word_part<2>(old, 1));
        }
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        *(uint32_t *)((uint16_t *)p.at + i) = *(const uint32_t *)&h;
        return;
    }
    tn_put(p.at, p.type, i, x[0], p.add);
}

/* May pairs of bf16 be moved at once? Tensors that are absent do not matter. */
static inline bool tn_tile_pairs(const tn_tile_tensor *p)
{
    return !p->at || (p->type == TN_BF16 && p->b % 2 == 0 && p->t % 2 == 0 && (uintptr_t)p->at % 4 == 0);
}

/* Rows of 16-byte vectors of words, all of one type? Tensors that are absent do not matter. */
static inline bool tn_tile_direct(const tn_tile_tensor *p, int V, int64_t K)
{
    const int64_t many = V == 2 ? 8 : 4;
    return !p->at || (p->type == (V == 2 ? TN_BF16 : TN_F32) && p->b % many == 0 && p->t % many == 0 && K % many == 0 &&
                      (uintptr_t)p->at % 16 == 0);
}

static inline tn_tile_tensor tn_tile_of(const tn_arg *a, bool add)
{
    tn_tile_tensor p = { a->data, a->dtype, 0, 0, add };
    if (a->dims.rank >= 2) p.b = a->stride[0];
    if (a->dims.rank == 3) p.t = a->stride[1];
    return p;
}

static inline const int32_t *tn_tile_live(const tn_call *c)
{
    const int32_t *live = c->in[0].live;
    for (int k = 0; !live && c->dout && k < c->n_out; k++) live = c->dout[k].live;
    return live;
}

/* --- a tile
 * -------------------------------------------------------------------------------------------------------- */

struct tn_tile {
    int b, group, chunk, lane, warp;
    int k;          /* the thread's first channel */
    bool lives;     /* the row is alive */
    bool on;        /* the channel exists */
    int step;       /* first step of the warp's piece */
    int n;          /* its steps that exist, 0..PIECE */
    uint32_t reset; /* bit i: a document starts at step i's token */
    bool plain;     /* nothing to ask at a step: direct, all steps and channels exist, no document starts */
};

/* Tile i in the order of time. */
template <int V>
__device__ __forceinline__ tn_tile tn_tile_at(const tn_tile_frame &f, unsigned i)
{
    tn_tile t;
    const unsigned rows = (unsigned)(f.B * f.groups), r = i % rows;
    t.chunk = (int)(i / rows), t.b = (int)(r / (unsigned)f.groups), t.group = (int)(r % (unsigned)f.groups);
    t.lane = threadIdx.x % TN_TILE_LANES, t.warp = threadIdx.x / TN_TILE_LANES;
    t.k = (t.group * TN_TILE_LANES + t.lane) * V;
    t.on = t.k < f.K;
    t.lives = !f.live || t.b < *f.live;
    t.step = t.chunk * TN_TILE_CHUNK + t.warp * TN_TILE_PIECE;
    const int64_t left = f.T - t.step;
    t.n = left <= 0 ? 0 : left < TN_TILE_PIECE ? (int)left : (int)TN_TILE_PIECE;
    t.reset = 0;
    t.plain = f.direct && t.n == TN_TILE_PIECE && (t.group + 1) * TN_TILE_LANES * V <= f.K;
    return t;
}

/* Where documents start in the piece. */
__device__ __forceinline__ void tn_tile_resets(const tn_tile_frame &f, tn_tile &t)
{
    const int64_t at = t.step + t.lane;
    if (!f.reset) return;
    const bool starts = t.lives && t.lane < t.n && f.reset[(int64_t)t.b * f.T + (f.reverse ? f.T - 1 - at : at)];
    t.reset = __ballot_sync(0xffffffffu, starts);
    t.plain = t.plain && !t.reset;
}

/* The next tile of a block that works through several, its n-th; by one thread. */
__device__ __forceinline__ unsigned tn_tile_ticket(const tn_tile_frame &f, unsigned n)
{
    return f.chunks > 1 ? atomicAdd(f.ticket, 1u) : blockIdx.x + n * gridDim.x;
}

/* The one tile of a block. */
template <int V>
__device__ __forceinline__ tn_tile tn_tile_take(const tn_tile_frame &f)
{
    __shared__ unsigned mine;
    unsigned i = blockIdx.x;
    if (f.chunks > 1) {
        if (threadIdx.x == 0) mine = tn_tile_ticket(f, 0);
        __syncthreads();
        i = mine;
    }
    tn_tile t = tn_tile_at<V>(f, i);
    tn_tile_resets(f, t);
    return t;
}

__device__ __forceinline__ int64_t tn_tile_token(const tn_tile_frame &f, const tn_tile &t, int i)
{
    return f.reverse ? f.T - 1 - (t.step + i) : t.step + i;
}

/* The piece's words of a tensor (B,T,2K), plane 0 or 1; zero where there are none. */
template <int V>
__device__ __forceinline__ void tn_tile_load(const tn_tile_frame &f, const tn_tile &t, const tn_tile_tensor &p,
                                             int plane, uint32_t *w)
{
    const int64_t step = f.reverse ? -p.t : p.t,
                  at = t.b * p.b + tn_tile_token(f, t, 0) * p.t + plane * (int64_t)f.K + t.k;
    if (t.plain && p.at) {
        const char *from = (const char *)p.at + at * (V == 2 ? 2 : 4);
#pragma unroll
        for (int i = 0; i < TN_TILE_PIECE; i++, from += step * (V == 2 ? 2 : 4)) w[i] = *(const uint32_t *)from;
        return;
    }
#pragma unroll
    for (int i = 0; i < TN_TILE_PIECE; i++)
        w[i] = p.at && t.on && i < t.n ? tn_word<V>(p.at, p.type, at + i * step) : 0u;
}

/* Words that wait in shared memory: planes of the block's pieces, one word a lane and step. */
enum { TN_TILE_PLANE_BYTES = TN_TILE_CHUNK * TN_TILE_LANES * 4 };

__device__ __forceinline__ uint32_t *tn_tile_plane(uint32_t *memory, const tn_tile &t, int plane)
{
    return memory + (plane * TN_TILE_WARPS + t.warp) * (TN_TILE_PIECE * TN_TILE_LANES);
}

/* Sends the piece's words on their way there; `before`: of how many tokens earlier. Zero where there are none. They can be
 * read after tn_tile_arrived. */
template <int V, int PIECE = TN_TILE_PIECE>
__device__ __forceinline__ void tn_tile_send(const tn_tile_frame &f, const tn_tile &t, const tn_tile_tensor &p,
                                             int plane, int before, uint32_t *to)
{
    enum { SIZE = V == 2 ? 2 : 4, VECTORS = TN_TILE_LANES / 4 };
    const int64_t token = tn_tile_token(f, t, 0) - before, step = f.reverse ? -p.t : p.t,
                  row = t.b * p.b + token * p.t + plane * (int64_t)f.K;
    const int n = f.reverse && token - t.n + 1 < 0 ? (int)(token + 1) : t.n;
    if (f.direct) {
        const int k = (t.group * TN_TILE_LANES + t.lane % VECTORS * 4) * V;
        const char *from = (const char *)p.at + (row + k) * SIZE;
#pragma unroll
        for (int j = 0; j < PIECE * VECTORS / TN_TILE_LANES; j++) {
            const int i = t.lane / VECTORS + j * (TN_TILE_LANES / VECTORS);
            const bool there = p.at && k < f.K && i < n;
            tn_copy16(to + i * TN_TILE_LANES + t.lane % VECTORS * 4,
                      there ? from + i * step * SIZE : (const char *)p.at, there);
        }
        return;
    }
#pragma unroll 4
    for (int i = 0; i < PIECE; i++)
        to[i * TN_TILE_LANES + t.lane] = p.at && t.on && i < n ? tn_word<V>(p.at, p.type, row + i * step + t.k) : 0u;
}

/* For the warp that sent them. */
__device__ __forceinline__ void tn_tile_arrived()
{
    tn_copies_wait<0>();
    __syncwarp();
}

#endif
