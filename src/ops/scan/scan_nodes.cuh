/* What enters a piece of a tile (scan_tiles.cuh): links of pieces and chunks, the tree of nodes, and the look-back through
 * it. */
#ifndef TN_OPS_SCAN_NODES_CUH
#define TN_OPS_SCAN_NODES_CUH

#include "ops/scan/scan_tiles.cuh"

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
    float4 state[N];                /* what entered the group; in a row of one chunk, what enters the next piece */
    float2 sum[TN_TILE_LEVELS][NODES][N]; /* of the nodes before the chunk; then the first of a level has all of it */
    float2 product[TN_TILE_LEVELS][WORDS == 4 ? (int)NODES : 1][N];
    bool piece_cut[TN_TILE_WARPS], state_cut, node_cut[TN_TILE_LEVELS][NODES];
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
__device__ __forceinline__ unsigned long long *tn_node_at(const tn_tile_frame &f, const tn_tile &t, int level,
                                                          int index)
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

/* The seven nodes of a level before its last, in order, by the one warp that publishes their sum. */
template <int V, int WORDS>
__device__ __forceinline__ tn_link<V> tn_tile_seven(const tn_tile_frame &f, const tn_tile &t, int level)
{
    enum { N = V * WORDS, MANY = N < 8 ? 2 : 1 };
    const int first = (t.chunk >> (3 * level)) - (TN_TILE_RADIX - 1);
    tn_link<V> sum = tn_link_none<V>(), a = tn_link_none<V>();
    if (WORDS < 4) {
#pragma unroll
        for (int v = 0; v < V; v++) {
            const float2 power = f.power[level * f.columns + t.k + v];
            a.pr[v] = power.x, a.pi[v] = power.y;
        }
    }
#pragma unroll 1
    for (int i = 0; i < TN_TILE_RADIX - 1; i += MANY) {
        unsigned long long w[MANY][N];
#pragma unroll
        for (int j = 0; j < MANY; j++)
            if (i + j < TN_TILE_RADIX - 1) tn_node_read<N>(tn_node_at<V, WORDS>(f, t, level, first + i + j), w[j]);
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            if (i + j >= TN_TILE_RADIX - 1) break;
            tn_node_await<N>(tn_node_at<V, WORDS>(f, t, level, first + i + j), w[j]);
#pragma unroll
            for (int v = 0; v < V; v++) {
                a.re[v] = __uint_as_float((uint32_t)w[j][v * WORDS]),
                a.im[v] = __uint_as_float((uint32_t)w[j][v * WORDS + 1]);
                if (WORDS == 4)
                    a.pr[v] = __uint_as_float((uint32_t)w[j][v * WORDS + WORDS - 2]),
                    a.pi[v] = __uint_as_float((uint32_t)w[j][v * WORDS + WORDS - 1]);
            }
            a.cut = w[j][0] >> 32 == 2;
            tn_link_then(sum, a);
        }
    }
    return sum;
}

/* The last warp publishes the chunk's node and the nodes that end with it, each as soon as what it is made of is there: if
 * it waited for more, as the block does, the nodes of a level would wait for one another. Then it fetches the state that
 * entered the group. */
template <int V, int WORDS>
__device__ __forceinline__ void tn_tile_own(const tn_tile_frame &f, const tn_tile &t, tn_tile_shared<V, WORDS> &s)
{
    tn_link<V> a = tn_link_none<V>();
#pragma unroll 1
    for (int w = 0; w < TN_TILE_WARPS; w++) tn_link_then(a, tn_link_kept<V>(s.piece[w], s.piece_cut[w], t.lane));
    tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, 0, t.chunk), a);
#pragma unroll 1
    for (int level = 0; level < TN_TILE_LEVELS - 1 && (t.chunk >> (3 * level)) % TN_TILE_RADIX == TN_TILE_RADIX - 1;
         level++) {
        tn_link<V> sum = tn_tile_seven<V, WORDS>(f, t, level);
        tn_link_then(sum, a);
        tn_node_publish<V, WORDS>(tn_node_at<V, WORDS>(f, t, level + 1, t.chunk >> (3 * (level + 1))), sum);
        a = sum;
    }
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

/* Warp `level` adds up its level's nodes, in order. */
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
    return tn_tile_combine<V, WORDS>(f, t, s);
}

template <int V, int WORDS>
__device__ __forceinline__ tn_link<V> tn_tile_enter(const tn_tile_frame &f, const tn_tile &t,
                                                    tn_tile_shared<V, WORDS> &s, const tn_link<V> &mine)
{
    return tn_tile_enter<V, WORDS>(f, t, s, mine, [] {});
}

/* --- a piece, run for good ------------------------------------------------------------------------------------------ */

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
