/* The recurrence s_i = p_i s_{i-1} + z_i on the GPU, in one pass over memory: what scan and scan_gated share. It
 * knows neither what p and z are made of nor which way time runs: a step i is token i, or T-1-i in a reverse scan.
 *
 * A block (8 warps) owns a tile: CHUNK steps of 32 V channels of one row. Each warp keeps a piece of PIECE steps in
 * registers, runs it from zero, learns what really enters it, runs it again and writes. What enters a chunk comes
 * from a tree of fixed shape: chunks publish what they leave behind (level 0), every 8th also the sum of its 8
 * (level 1), every 64th of its 64 (level 2), every 512th the state itself. A chunk combines the last such state with
 * at most 7 nodes of each level, always in the same order, so bits do not depend on who was faster; and no chain of
 * waits is longer than one hop per 512 chunks. Tiles are handed out by a counter in the order of time: a tile waits
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
    bool direct; /* what is read and written of all tokens are words as they lie in memory, in rows of 16-byte vectors */
    const int32_t *reset;  /* (B,T) or NULL */
    const int32_t *live;   /* rows alive, or NULL: all */
    tn_tile_tensor first;  /* (B,2K): what enters step 0 */
    unsigned *ticket;      /* 0 before the launch */
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
template <int V>
__device__ __forceinline__ void tn_tile_send(const tn_tile_frame &f, const tn_tile &t, const tn_tile_tensor &p, int plane,
                                             int before, uint32_t *to)
{
    enum { SIZE = V == 2 ? 2 : 4, VECTORS = TN_TILE_LANES / 4 };
    const int64_t token = tn_tile_token(f, t, 0) - before, step = f.reverse ? -p.t : p.t,
                  row = t.b * p.b + token * p.t + plane * (int64_t)f.K;
    const int n = f.reverse && token - t.n + 1 < 0 ? (int)(token + 1) : t.n;
    if (f.direct) {
        const int k = (t.group * TN_TILE_LANES + t.lane % VECTORS * 4) * V;
        const char *from = (const char *)p.at + (row + k) * SIZE;
#pragma unroll
        for (int j = 0; j < TN_TILE_PIECE * VECTORS / TN_TILE_LANES; j++) {
            const int i = t.lane / VECTORS + j * (TN_TILE_LANES / VECTORS);
            const bool there = p.at && k < f.K && i < n;
            tn_copy16(to + i * TN_TILE_LANES + t.lane % VECTORS * 4, there ? from + i * step * SIZE : (const char *)p.at, there);
        }
        return;
    }
#pragma unroll 4
    for (int i = 0; i < TN_TILE_PIECE; i++)
        to[i * TN_TILE_LANES + t.lane] = p.at && t.on && i < n ? tn_word<V>(p.at, p.type, row + i * step + t.k) : 0u;
}

/* For the warp that sent them. */
__device__ __forceinline__ void tn_tile_arrived()
{
    tn_copies_wait<0>();
    __syncwarp();
}

/* --- what pieces, chunks and nodes leave behind
 * ---------------------------------------------------------------------- */

/* s becomes (cut ? 0 : p s) + z. */
template <int V>
struct tn_link {
    float re[V], im[V], pr[V], pi[V];
    bool cut;
};

template <int V>
__device__ __forceinline__ tn_link<V> tn_link_none()
{
    tn_link<V> a;
    for (int v = 0; v < V; v++) a.re[v] = a.im[v] = a.pi[v] = 0, a.pr[v] = 1;
    a.cut = false;
    return a;
}

/* First a, then b. */
template <int V>
__device__ __forceinline__ void tn_link_then(tn_link<V> &a, const tn_link<V> &b)
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float re = a.re[v], im = a.im[v], pr = a.pr[v], pi = a.pi[v];
        a.re[v] = b.cut ? b.re[v] : __fmaf_rn(-b.pi[v], im, __fmaf_rn(b.pr[v], re, b.re[v]));
        a.im[v] = b.cut ? b.im[v] : __fmaf_rn(b.pi[v], re, __fmaf_rn(b.pr[v], im, b.im[v]));
        a.pr[v] = __fmaf_rn(-b.pi[v], pi, __fmul_rn(b.pr[v], pr));
        a.pi[v] = __fmaf_rn(b.pi[v], pr, __fmul_rn(b.pr[v], pi));
    }
    a.cut = a.cut || b.cut;
}

/* What passes through b, of a alone. */
template <int V>
__device__ __forceinline__ void tn_link_pass(float *re, float *im, const tn_link<V> &b)
{
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float r = re[v], i = im[v];
        re[v] = b.cut ? b.re[v] : __fmaf_rn(-b.pi[v], i, __fmaf_rn(b.pr[v], r, b.re[v]));
        im[v] = b.cut ? b.im[v] : __fmaf_rn(b.pi[v], r, __fmaf_rn(b.pr[v], i, b.im[v]));
    }
}

/* WORDS: of a channel in a node. */
template <int V, int WORDS>
struct tn_tile_shared {
    enum { N = TN_TILE_LANES * V, NODES = TN_TILE_RADIX - 1 };
    float4 piece[TN_TILE_WARPS][N]; /* re, im, pr, pi */
    float4 own[N];                  /* of all pieces */
    float4 state[N];                /* what entered the group; in a row of one chunk, what enters the next piece */
    float2 sum[TN_TILE_LEVELS][NODES][N]; /* of the nodes before the chunk; then the first of a level has all of it */
    float2 product[TN_TILE_LEVELS][WORDS == 4 ? (int)NODES : 1][N];
    bool piece_cut[TN_TILE_WARPS], own_cut, state_cut, node_cut[TN_TILE_LEVELS][NODES];
};

template <int V>
__device__ __forceinline__ void tn_link_keep(float4 *row, bool *cut, int lane, const tn_link<V> &a)
{
#pragma unroll
    for (int v = 0; v < V; v++) row[lane * V + v] = make_float4(a.re[v], a.im[v], a.pr[v], a.pi[v]);
    if (lane == 0) *cut = a.cut;
}

template <int V>
__device__ __forceinline__ tn_link<V> tn_link_kept(const float4 *row, bool cut, int lane)
{
    tn_link<V> a;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float4 q = row[lane * V + v];
        a.re[v] = q.x, a.im[v] = q.y, a.pr[v] = q.z, a.pi[v] = q.w;
    }
    a.cut = cut;
    return a;
}

/* --- nodes
 * ---------------------------------------------------------------------------------------------------------- */

/* Level 0..LEVELS-1: sums; LEVELS: states, the one that enters group i + 1 at index i. */
template <int V, int WORDS>
__device__ __forceinline__ unsigned long long *tn_node_at(const tn_tile_frame &f, const tn_tile &t, int level, int index)
{
    const int n = f.chunks, first = level == 0 ? 0 : level == 1 ? n : level == 2 ? n + n / 8 : n + n / 8 + n / 64;
    const int64_t at = ((int64_t)t.b * f.groups + t.group) * tn_tile_nodes(n) + first + index;
    return f.node + (at * TN_TILE_LANES + t.lane) * V * WORDS;
}

/* WORDS 2: the sum; 4: the product too. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_node_publish(unsigned long long *at, const tn_link<V> &a)
{
    const unsigned long long tag = (unsigned long long)(a.cut ? 2 : 1) << 32;
    volatile unsigned long long *w = at;
#pragma unroll
    for (int v = 0; v < V; v++, w += WORDS) {
        w[0] = tag | __float_as_uint(a.re[v]);
        w[1] = tag | __float_as_uint(a.im[v]);
        if (WORDS == 4) w[2] = tag | __float_as_uint(a.pr[v]), w[WORDS - 1] = tag | __float_as_uint(a.pi[v]);
    }
}

/* N words of a node, valid or not; N is even. */
template <int N>
__device__ __forceinline__ void tn_node_read(const unsigned long long *at, unsigned long long *w)
{
#pragma unroll
    for (int i = 0; i < N; i += 2)
        asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(w[i]), "=l"(w[i + 1]) : "l"(at + i) : "memory");
}

template <int N>
__device__ __forceinline__ void tn_node_await(const unsigned long long *at, unsigned long long *w)
{
    bool ready;
    do {
        ready = true;
#pragma unroll
        for (int i = 0; i < N; i++) ready = ready && w[i] >> 32;
        if (!ready) tn_node_read<N>(at, w);
    } while (!ready);
}

/* Keeps a node's words. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_keep(const unsigned long long *w, int level, const tn_tile &t,
                                             tn_tile_shared<V, WORDS> &s)
{
#pragma unroll
    for (int v = 0; v < V; v++, w += WORDS) {
        const int at = t.lane * V + v;
        s.sum[level][t.warp][at] = make_float2(__uint_as_float((uint32_t)w[0]), __uint_as_float((uint32_t)w[1]));
        if (WORDS == 4)
            s.product[level][WORDS == 4 ? t.warp : 0][at] =
                make_float2(__uint_as_float((uint32_t)w[WORDS - 2]), __uint_as_float((uint32_t)w[WORDS - 1]));
    }
    if (t.lane == 0) s.node_cut[level][t.warp] = w[-1] >> 32 == 2;
}

/* Warp w fetches the w-th node before the chunk of each level; all levels at once where there are registers for it: their
 * way from memory is the price. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_fetch(const tn_tile_frame &f, const tn_tile &t, tn_tile_shared<V, WORDS> &s)
{
    enum { N = V * WORDS, AT_ONCE = N < 8 ? (int)TN_TILE_LEVELS : 1 };
    unsigned long long w[AT_ONCE][N];
#pragma unroll
    for (int first = 0; first < TN_TILE_LEVELS; first += AT_ONCE) {
#pragma unroll
        for (int l = first; l < first + AT_ONCE; l++) {
            const int i = t.chunk >> (3 * l), n = i % TN_TILE_RADIX;
            if (t.warp < n) tn_node_read<N>(tn_node_at<V, WORDS>(f, t, l, i - n + t.warp), w[l - first]);
        }
#pragma unroll
        for (int l = first; l < first + AT_ONCE; l++) {
            const int i = t.chunk >> (3 * l), n = i % TN_TILE_RADIX;
            if (t.warp >= n) continue;
            tn_node_await<N>(tn_node_at<V, WORDS>(f, t, l, i - n + t.warp), w[l - first]);
            tn_tile_keep<V, WORDS>(w[l - first], l, t, s);
        }
    }
}

/* What enters step 0 of the row; zero where it is not given. */
template <int V>
__device__ __forceinline__ tn_link<V> tn_tile_first(const tn_tile_frame &f, const tn_tile &t)
{
    tn_link<V> a = tn_link_none<V>();
    if (!f.first.at || !t.on) return a;
#pragma unroll
    for (int v = 0; v < V; v++) {
        a.re[v] = tn_load(f.first.at, f.first.type, t.b * f.first.b + t.k + v);
        a.im[v] = tn_load(f.first.at, f.first.type, t.b * f.first.b + f.K + t.k + v);
    }
    return a;
}

/* The last warp publishes the chunk's node and fetches the state that entered the group. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_own(const tn_tile_frame &f, const tn_tile &t, tn_tile_shared<V, WORDS> &s)
{
    tn_link<V> a = tn_link_none<V>();
#pragma unroll 1
    for (int w = 0; w < TN_TILE_WARPS; w++) tn_link_then(a, tn_link_kept<V>(s.piece[w], s.piece_cut[w], t.lane));
    tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, 0, t.chunk), a);
    tn_link_keep<V>(s.own, &s.own_cut, t.lane, a);
    a = tn_tile_first<V>(f, t);
    if (t.chunk >= TN_TILE_GROUP) {
        const unsigned long long *at = tn_node_at<V, WORDS>(f, t, TN_TILE_LEVELS, t.chunk / TN_TILE_GROUP - 1);
        unsigned long long w[V * WORDS] = {};
        tn_node_await<V * WORDS>(at, w);
#pragma unroll
        for (int v = 0; v < V; v++)
            a.re[v] = __uint_as_float((uint32_t)w[v * WORDS]), a.im[v] = __uint_as_float((uint32_t)w[v * WORDS + 1]);
    }
    tn_link_keep<V>(s.state, &s.state_cut, t.lane, a);
}

/* A node that was fetched, or what a level adds up to. */
template <int V, int WORDS>
__device__ __forceinline__ tn_link<V> tn_tile_node(const tn_tile_shared<V, WORDS> &s, int level, int i, int lane)
{
    tn_link<V> a;
#pragma unroll
    for (int v = 0; v < V; v++) {
        const float2 z = s.sum[level][i][lane * V + v], p = s.product[level][WORDS == 4 ? i : 0][lane * V + v];
        a.re[v] = z.x, a.im[v] = z.y, a.pr[v] = p.x, a.pi[v] = p.y;
    }
    a.cut = s.node_cut[level][i];
    return a;
}

/* Warp `level` adds up its level's nodes, in order; at every eighth chunk the first also publishes the sum of eight. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_level(const tn_tile_frame &f, const tn_tile &t, tn_tile_shared<V, WORDS> &s)
{
    const int level = t.warp, n = (t.chunk >> (3 * level)) % TN_TILE_RADIX;
    tn_link<V> sum = tn_link_none<V>();
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        tn_link<V> a = tn_tile_node<V, WORDS>(s, level, i, t.lane);
        if (WORDS < 4) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                const float2 power = f.power[level * f.columns + t.k + v];
                a.pr[v] = power.x, a.pi[v] = power.y;
            }
        }
        tn_link_then(sum, a);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        s.sum[level][0][t.lane * V + v] = make_float2(sum.re[v], sum.im[v]);
        s.product[level][0][t.lane * V + v] = make_float2(sum.pr[v], sum.pi[v]);
    }
    __syncwarp();
    if (t.lane == 0) s.node_cut[level][0] = sum.cut;
    if (level || n < TN_TILE_RADIX - 1) return;
    tn_link_then(sum, tn_link_kept<V>(s.own, s.own_cut, t.lane));
    tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, 1, t.chunk / 8), sum);
}

/* At every 64th chunk, the sum of 64. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_publish_64(const tn_tile_frame &f, const tn_tile &t,
                                                   const tn_tile_shared<V, WORDS> &s)
{
    if (t.chunk % 64 != 63) return;
    tn_link<V> all = tn_tile_node<V, WORDS>(s, 1, 0, t.lane), last = tn_tile_node<V, WORDS>(s, 0, 0, t.lane);
    tn_link_then(last, tn_link_kept<V>(s.own, s.own_cut, t.lane));
    tn_link_then(all, last);
    tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, 2, t.chunk / 64), all);
}

/* What enters the warp's piece. The chunk's last warp publishes the state that leaves the group. */
template <int V, int WORDS>
__device__ __forceinline__ tn_link<V> tn_tile_combine(const tn_tile_frame &f, const tn_tile &t,
                                                      const tn_tile_shared<V, WORDS> &s)
{
    tn_link<V> a = tn_link_kept<V>(s.state, false, t.lane);
#pragma unroll 1
    for (int l = TN_TILE_LEVELS - 1; l >= 0; l--)
        if (t.chunk >> (3 * l) & 7) tn_link_pass<V>(a.re, a.im, tn_tile_node<V, WORDS>(s, l, 0, t.lane));
#pragma unroll 1
    for (int w = 0; w < t.warp; w++) tn_link_pass<V>(a.re, a.im, tn_link_kept<V>(s.piece[w], s.piece_cut[w], t.lane));
    if (t.warp == TN_TILE_WARPS - 1 && t.chunk % TN_TILE_GROUP == TN_TILE_GROUP - 1) {
        tn_link<V> state = a;
        tn_link_pass<V>(state.re, state.im, tn_link_kept<V>(s.piece[t.warp], s.piece_cut[t.warp], t.lane));
        tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, TN_TILE_LEVELS, t.chunk / TN_TILE_GROUP), state);
    }
    return a;
}

/* What enters the warp's piece, where `mine` is what the piece makes of what enters it. For rows of several chunks; all
 * threads of the block call it. meanwhile(): called behind the first barrier. */
template <int V, int WORDS, class Meanwhile>
__device__ __forceinline__ tn_link<V> tn_tile_enter(const tn_tile_frame &f, const tn_tile &t,
                                                    tn_tile_shared<V, WORDS> &s, const tn_link<V> &mine,
                                                    Meanwhile meanwhile)
{
    tn_link_keep<V>(s.piece[t.warp], &s.piece_cut[t.warp], t.lane, mine);
    __syncthreads();
    meanwhile();
    if (t.warp == TN_TILE_WARPS - 1) tn_tile_own<V, WORDS>(f, t, s);
    else tn_tile_fetch<V, WORDS>(f, t, s);
    __syncthreads();
    if (t.warp < TN_TILE_LEVELS) tn_tile_level<V, WORDS>(f, t, s);
    __syncthreads();
    if (t.warp == 0) tn_tile_publish_64<V, WORDS>(f, t, s);
    return tn_tile_combine<V, WORDS>(f, t, s);
}

template <int V, int WORDS>
__device__ __forceinline__ tn_link<V> tn_tile_enter(const tn_tile_frame &f, const tn_tile &t,
                                                    tn_tile_shared<V, WORDS> &s, const tn_link<V> &mine)
{
    return tn_tile_enter<V, WORDS>(f, t, s, mine, [] {});
}

/* Runs the warp's piece with what enters it, a: at once; or in a row of one chunk, one piece after another. Behind
 * the row's last step the state is in that step's warp, or, in a row of one chunk, in the last warp, steps or none. */
template <int V, int WORDS, class Run>
__device__ __forceinline__ void tn_tile_apply(const tn_tile_frame &f, const tn_tile &t, tn_tile_shared<V, WORDS> &s,
                                              tn_link<V> &a, Run run)
{
    const bool one = f.chunks == 1;
    for (int w = 0; one && w < t.warp; w++) __syncthreads(); /* every warp passes as many barriers as there are warps */
    if (one) a = t.warp ? tn_link_kept<V>(s.state, false, t.lane) : tn_tile_first<V>(f, t);
    run(a.re, a.im);
    if (one) tn_link_keep<V>(s.state, &s.state_cut, t.lane, a);
    for (int w = t.warp; one && w < TN_TILE_WARPS; w++) __syncthreads();
}

/* The state of a row's end into a tensor (B,2K). */
template <int V>
__device__ __forceinline__ void tn_tile_leave(const tn_tile_frame &f, const tn_tile &t, const tn_tile_tensor &to,
                                              const float *re, const float *im)
{
    if (!to.at || !t.on) return;
#pragma unroll
    for (int v = 0; v < V; v++) {
        tn_put(to.at, to.type, t.b * to.b + t.k + v, re[v], to.add);
        tn_put(to.at, to.type, t.b * to.b + f.K + t.k + v, im[v], to.add);
    }
}

/* Is the state behind the row's last step in this warp? */
__device__ __forceinline__ bool tn_tile_ends(const tn_tile_frame &f, const tn_tile &t)
{
    return f.chunks > 1 ? t.n > 0 && t.step + t.n == f.T : t.warp == TN_TILE_WARPS - 1;
}

/* Sums of a tile's warps, in order, into its row of partial sums (B, chunks, F, padded K). All threads call it; they pass
 * through where the nodes were. */
template <int V, int WORDS, int F>
__device__ __forceinline__ void tn_tile_leave_sums(const tn_tile_frame &f, const tn_tile &t, const float (*sum)[V],
                                                   tn_tile_shared<V, WORDS> &s, float *partial)
{
    typedef float rows[F][TN_TILE_LANES * V];
    rows *shared = (rows *)s.sum;
    static_assert(sizeof(rows) * TN_TILE_WARPS <= sizeof s.sum, "sums fit where the nodes were");
    __syncthreads();
#pragma unroll
    for (int i = 0; i < F; i++)
#pragma unroll
        for (int v = 0; v < V; v++) shared[t.warp][i][t.lane * V + v] = sum[i][v];
    __syncthreads();
    float *to = partial + ((int64_t)t.b * f.chunks + t.chunk) * F * f.columns + t.group * (TN_TILE_LANES * V);
    for (int j = threadIdx.x; j < F * TN_TILE_LANES * V; j += TN_TILE_THREADS) {
        const int i = j / (TN_TILE_LANES * V), k = j % (TN_TILE_LANES * V);
        float all = 0;
        for (int w = 0; w < TN_TILE_WARPS; w++) all += shared[w][i][k];
        to[i * f.columns + k] = all;
    }
}

#endif
