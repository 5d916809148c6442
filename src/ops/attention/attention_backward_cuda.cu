/* attention on the GPU, backward, on tensor cores (Dao 2023, algorithm 2, in two kernels so that nothing is added by
 * two blocks): statistics of the rows; then a block per tile of keys, over all rows that see it, for dk and dv; then
 * a block per tile of rows, over all keys it sees, for dq. Scores are computed in both, 7 products instead of 5, and
 * every sum has one owner and one order. Both turn the products so that weights and their gradients, as they come
 * out of one product, are an operand of the next: they never leave registers.
 *
 * Weights that a row does not see are 0, and so is their gradient. NaN and infinity that a row does not see may
 * reach the gradients of others in the same tile. */
#include "ops/attention/attention_cuda.cuh"

using namespace tn_attention;

enum { WARPS = 4, THREADS = 32 * WARPS };

/* --- statistics --------------------------------------------------------------------------------------------------- */

/* stat (heads, stat_rows): log-sum-exp times `unit`, infinite for rows that see nothing, so that their weights are
 * 0; and the sum of gradient times output. `lanes` of a warp, a power of 2, take 8 numbers each in turn: the same
 * sums however the rows lie. */
__global__ void row_stats(const __grid_constant__ problem p, float2 *stat, float unit, bool scores, int lanes)
{
    const int64_t per = stat_rows(p.rows), n = (int64_t)p.B * p.KV * per;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / lanes);
    const int64_t first = (int64_t)blockIdx.x * (blockDim.x / lanes), own = threadIdx.x / lanes;
    for (int64_t i0 = first; i0 < n; i0 += step) { /* the same number of turns for all lanes of a warp */
        const int64_t i = i0 + own;
        const int head = (int)(i / per), row = (int)(i % per), b = head / p.KV, kv = head % p.KV;
        const bool there = i < n && row < p.rows && !dead(p.live, b);
        float sum = 0;
        if (there && scores) {
            const int64_t y = row_at(p.y, p, b, kv, row), g = row_at(p.dy, p, b, kv, row);
            for (int d = threadIdx.x % lanes * 8; d < p.D; d += lanes * 8) {
                if (p.y.eights && p.dy.eights) {
                    const tn_f8 u = tn_load8(p.y.data, p.y.type, y + d), v = tn_load8(p.dy.data, p.dy.type, g + d);
#pragma unroll
                    for (int e = 0; e < 8; e++) sum = fmaf(u.v[e], v.v[e], sum);
                } else {
                    for (int e = d; e < min(d + 8, p.D); e++)
                        sum = fmaf(tn_load(p.y.data, p.y.type, y + e * p.y.d),
                                   tn_load(p.dy.data, p.dy.type, g + e * p.dy.d), sum);
                }
            }
        }
        for (int k = lanes / 2; k; k >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, k);
        if (i >= n || threadIdx.x % lanes) continue;
        float lse = INFINITY;
        if (there) {
            const int t = token_of(p, row);
            lse = p.lse[b * p.lse_b + (kv * p.group + row - t * p.group) * p.lse_h + t * p.lse_t];
            lse = lse == -INFINITY ? INFINITY : lse * unit;
        }
        stat[i] = make_float2(lse, sum);
    }
}

/* --- weights and their gradients ---------------------------------------------------------------------------------- */

template <int MT, int N>
__device__ __forceinline__ void clear(float (&x)[MT][N][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N; n++) x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0;
}

/* Fragments of rows, of all of WIDTH: kept in registers, or read where they are used. */
template <int WIDTH, int MT, bool KEPT>
struct left {
    uint32_t kept[KEPT ? MT : 1][KEPT ? WIDTH / 16 : 1][4];
    const __nv_bfloat16 *tile; /* the warp's first row */

    __device__ __forceinline__ void open(const __nv_bfloat16 *at)
    {
        tile = at;
#pragma unroll
        for (int m = 0; KEPT && m < MT; m++)
#pragma unroll
            for (int d = 0; d < WIDTH / 16; d++) load_a<WIDTH>(kept[KEPT ? m : 0][KEPT ? d : 0], at, m * 16, d * 16);
    }
    __device__ __forceinline__ void get(uint32_t (&a)[4], int m, int d) const
    {
        if (!KEPT) load_a<WIDTH>(a, tile, m * 16, d * 16);
#pragma unroll
        for (int i = 0; KEPT && i < 4; i++) a[i] = kept[KEPT ? m : 0][KEPT ? d : 0][i];
    }
};

/* x (MT * 16, N) = rows of a times N rows of tile b */
template <int WIDTH, int MT, int N, bool KEPT>
__device__ __forceinline__ void products(float (&x)[MT][N / 8][4], const left<WIDTH, MT, KEPT> &a,
                                         const __nv_bfloat16 *b)
{
    clear<MT, N / 8>(x);
#pragma unroll
    for (int d = 0; d < WIDTH / 16; d++) {
        uint32_t f[MT][4], r[4];
#pragma unroll
        for (int m = 0; m < MT; m++) a.get(f[m], m, d);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            load_b_rows<WIDTH>(r, b, n * 16, d * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tn_mma(x[m][2 * n], f[m], r[0], r[1]);
                tn_mma(x[m][2 * n + 1], f[m], r[2], r[3]);
            }
        }
    }
}

/* to (MT * 16, WIDTH) += x, as bf16, times N rows of tile b */
template <int WIDTH, int MT, int N>
__device__ __forceinline__ void add_products(float (&to)[MT][WIDTH / 8][4], const float (&x)[MT][N / 8][4],
                                             const __nv_bfloat16 *b)
{
    uint32_t f[MT][N / 16][4], r[4];
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            f[m][n / 2][n % 2 * 2] = tn_pack_bf16(x[m][n][0], x[m][n][1]);
            f[m][n / 2][n % 2 * 2 + 1] = tn_pack_bf16(x[m][n][2], x[m][n][3]);
        }
#pragma unroll
    for (int n = 0; n < N / 16; n++)
#pragma unroll
        for (int d = 0; d < WIDTH / 16; d++) {
            load_b_columns<WIDTH>(r, b, n * 16, d * 16);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                tn_mma(to[m][2 * d], f[m][n], r[0], r[1]);
                tn_mma(to[m][2 * d + 1], f[m][n], r[2], r[3]);
            }
        }
}

/* --- dk and dv ---------------------------------------------------------------------------------------------------- */

template <int WIDTH, int BK, int QB>
struct keys_room {
    static const int row = tile_of<WIDTH>::row;
    static const int bytes = (2 * BK + 4 * QB) * row * 2 + 2 * QB * 8;
    __nv_bfloat16 *k; /* (BK) rows */
    __device__ __forceinline__ __nv_bfloat16 *v() const { return k + BK * row; }
    __device__ __forceinline__ __nv_bfloat16 *q(int i) const { return k + (2 * BK + i * QB) * row; }
    __device__ __forceinline__ __nv_bfloat16 *g(int i) const { return k + (2 * BK + (2 + i) * QB) * row; }
    __device__ __forceinline__ float2 *stat(int i) const { return (float2 *)(k + (2 * BK + 4 * QB) * row) + i * QB; }
};

/* The tiles [x,y) of QB rows that may see keys [s0,s1). */
template <int QB>
__device__ __forceinline__ int2 tiles_of(const problem &p, const sequence &q, int s0, int s1)
{
    const int t0 = p.ahead < FAR ? max(0, s0 + 1 - p.ahead - q.position) : 0;
    const int t1 = p.back < FAR ? min(p.T, s1 + p.back - q.position) : p.T;
    if (s0 >= q.keys || t0 >= t1) return make_int2(0, 0);
    return make_int2(t0 * p.group / QB, (t1 * p.group + QB - 1) / QB);
}

/* Which of the N rows from r0 on see this lane's keys: what is hidden becomes 0. Scores lie as (key, row). */
template <int MT, int N>
__device__ __forceinline__ void hide_rows(float (&w)[MT][N / 8][4], float (&g)[MT][N / 8][4], const problem &p,
                                          const sequence &q, int k0, int r0)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const sight x = sight_of(p, q, r0 + n * 8 + lane % 4 * 2 + e);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int s = k0 + m * 16 + h * 8 + lane / 4;
                    const bool seen =
                        s >= x.keys.x && s < x.keys.y && (!p.document || document_at(p, q.b, s) == x.document);
                    if (!seen) w[m][n][2 * h + e] = g[m][n][2 * h + e] = 0;
                }
        }
}

template <int MT, int WIDTH>
__device__ __forceinline__ void store_keys(const float (&x)[MT][WIDTH / 8][4], const view &to, const problem &p, int b,
                                           int kv, int k0, float factor, bool add)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int s = k0 + m * 16 + h * 8 + lane / 4;
            if (s >= p.S) continue;
            const int64_t at = key_at(to, b, kv, s);
            store_row<WIDTH>(x[m], 2 * h, to, at, p.D, factor, add);
        }
}

/* A chunk of N rows of a tile, rows r0 on: dv += w^T g, dk += (gradient of scores)^T q. */
template <int WIDTH, int MT, int N, bool KEPT>
__device__ __forceinline__ void keys_meet_rows(float (&dk)[MT][WIDTH / 8][4], float (&dv)[MT][WIDTH / 8][4],
                                               const left<WIDTH, MT, KEPT> &k, const left<WIDTH, MT, KEPT> &v,
                                               const __nv_bfloat16 *q, const __nv_bfloat16 *g, const float2 *stat,
                                               const problem &p, const sequence &seq, int k0, int r0, bool whole)
{
    float w[MT][N / 8][4], x[MT][N / 8][4];
    const float scale2 = p.scale * LOG2E;
    products<WIDTH, MT, N, KEPT>(w, k, q);
    if (p.dk.data) products<WIDTH, MT, N, KEPT>(x, v, g);
    else clear<MT, N / 8>(x);
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        const float4 two = *(const float4 *)(stat + n * 8 + threadIdx.x % 4 * 2); /* of this lane's two rows */
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                w[m][n][e] = tn_exp2(fmaf(w[m][n][e], scale2, -(e % 2 ? two.z : two.x)));
                x[m][n][e] = w[m][n][e] * (x[m][n][e] - (e % 2 ? two.w : two.y));
            }
    }
    if (!whole) hide_rows<MT, N>(w, x, p, seq, k0, r0);
    add_products<WIDTH, MT, N>(dv, w, g);
    if (p.dk.data) add_products<WIDTH, MT, N>(dk, x, q);
}

template <int WIDTH, int MT, int QB, int QC, bool KEPT>
__global__ void __launch_bounds__(THREADS, 2)
    keys_backward(const __grid_constant__ problem p, const order o, const float2 *stat)
{
    const int BK = WARPS * 16 * MT;
    extern __shared__ uint4 shared[];
    const keys_room<WIDTH, BK, QB> room = { (__nv_bfloat16 *)shared };
    const int2 place = place_of(o, blockIdx.x);
    const int b = place.x / p.KV, kv = place.x % p.KV, s0 = place.y * BK, k0 = s0 + threadIdx.x / 32 * 16 * MT;
    const sequence q = sequence_of(p, b);
    const int2 tiles = dead(p.live, b) ? make_int2(0, 0) : tiles_of<QB>(p, q, s0, min(s0 + BK, p.S));
    const float2 *mine = stat + place.x * stat_rows(p.rows);
    float dk[MT][WIDTH / 8][4], dv[MT][WIDTH / 8][4];
    left<WIDTH, MT, KEPT> k, v;
    clear<MT, WIDTH / 8>(dk);
    clear<MT, WIDTH / 8>(dv);

    const auto next_rows = [&](int i) {
        do i++;
        while (p.document && i < tiles.y && meet(p, q, i * QB, min(i * QB + QB, p.rows), s0, s0 + BK) == APART);
        return i;
    };
    const auto fetch = [&](int i, int stage) {
        if (i < tiles.y) {
            load_tile<WIDTH, QB, THREADS, true>(room.q(stage), p.q, p, b, kv, i * QB, p.rows);
            load_tile<WIDTH, QB, THREADS, true>(room.g(stage), p.dy, p, b, kv, i * QB, p.rows);
            if (threadIdx.x < QB / 2)
                tn_copy16(room.stat(stage) + threadIdx.x * 2, mine + i * QB + threadIdx.x * 2, true);
        }
        tn_copies_commit();
    };
    int i = next_rows(tiles.x - 1);
    if (i < tiles.y) {
        load_tile<WIDTH, BK, THREADS, false>(room.k, p.k, p, b, kv, s0, p.S);
        if (p.dk.data) load_tile<WIDTH, BK, THREADS, false>(room.v(), p.v, p, b, kv, s0, p.S);
    }
    tn_copies_commit();
    fetch(i, 0);
    tn_copies_wait<1>();
    __syncthreads();
    k.open(room.k + (k0 - s0) * tile_of<WIDTH>::row);
    v.open(room.v() + (k0 - s0) * tile_of<WIDTH>::row);

    for (int stage = 0, next; i < tiles.y; i = next, stage ^= 1) {
        tn_copies_wait<0>();
        __syncthreads();
        next = next_rows(i);
        fetch(next, stage ^ 1);
        const int r0 = i * QB;
        meeting m = meet(p, q, r0, min(r0 + QB, p.rows), k0, k0 + 16 * MT);
        if (m == APART) continue;
        if (r0 + QB > p.rows) m = PARTLY;
#pragma unroll 1
        for (int c = 0; c < QB; c += QC)
            keys_meet_rows<WIDTH, MT, QC, KEPT>(dk, dv, k, v, room.q(stage) + c * tile_of<WIDTH>::row,
                                                room.g(stage) + c * tile_of<WIDTH>::row, room.stat(stage) + c, p, q, k0,
                                                r0 + c, m == WHOLLY);
    }
    if (p.dk.data && !dead(p.live_dk, b)) store_keys<MT, WIDTH>(dk, p.dk, p, b, kv, k0, p.scale, p.add >> TN_ATT_K & 1);
    if (p.dv.data && !dead(p.live_dv, b)) store_keys<MT, WIDTH>(dv, p.dv, p, b, kv, k0, 1, p.add >> TN_ATT_V & 1);
}

/* --- dq ----------------------------------------------------------------------------------------------------------- */

template <int WIDTH, int BM, int KB>
struct rows_room {
    static const int row = tile_of<WIDTH>::row;
    static const int bytes = (2 * BM + 4 * KB) * row * 2 + 2 * KB * 4;
    __nv_bfloat16 *q; /* (BM) rows */
    __device__ __forceinline__ __nv_bfloat16 *g() const { return q + BM * row; }
    __device__ __forceinline__ __nv_bfloat16 *k(int i) const { return q + (2 * BM + i * KB) * row; }
    __device__ __forceinline__ __nv_bfloat16 *v(int i) const { return q + (2 * BM + (2 + i) * KB) * row; }
    __device__ __forceinline__ int *documents(int i) const { return (int *)(q + (2 * BM + 4 * KB) * row) + i * KB; }
};

/* A chunk of N keys from s on, s0 the tile's first: dq += (gradient of scores) k. */
template <int WIDTH, int MT, int N, bool KEPT>
__device__ __forceinline__ void rows_meet_keys(float (&dq)[MT][WIDTH / 8][4], const left<WIDTH, MT, KEPT> &q,
                                               const left<WIDTH, MT, KEPT> &g, const __nv_bfloat16 *k,
                                               const __nv_bfloat16 *v, const float2 (&stat)[MT][2], const problem &p,
                                               const sequence &seq, int w0, int s, int s0, const int *documents,
                                               bool whole)
{
    float w[MT][N / 8][4], x[MT][N / 8][4];
    const float scale2 = p.scale * LOG2E;
    const int lane = threadIdx.x & 31;
    products<WIDTH, MT, N, KEPT>(w, q, k);
    products<WIDTH, MT, N, KEPT>(x, g, v);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[m][n][e] = tn_exp2(fmaf(w[m][n][e], scale2, -stat[m][e / 2].x)) * (x[m][n][e] - stat[m][e / 2].y);
    if (!whole)
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const sight y = sight_of(p, seq, w0 + i * 8 + lane / 4);
#pragma unroll
            for (int n = 0; n < N / 4; n++) {
                const int key = s + n / 2 * 8 + lane % 4 * 2 + n % 2;
                if (!sees(p, y, key, s0, documents)) x[i / 2][n / 2][i % 2 * 2 + n % 2] = 0;
            }
        }
    add_products<WIDTH, MT, N>(dq, x, k);
}

template <int WIDTH, int MT, int KB, int KC, bool KEPT>
__global__ void __launch_bounds__(THREADS, 2)
    rows_backward(const __grid_constant__ problem p, const order o, const float2 *stat)
{
    const int BM = WARPS * 16 * MT;
    extern __shared__ uint4 shared[];
    const rows_room<WIDTH, BM, KB> room = { (__nv_bfloat16 *)shared };
    const int2 place = place_of(o, blockIdx.x);
    const int lane = threadIdx.x & 31, b = place.x / p.KV, kv = place.x % p.KV;
    const int r0 = (o.pieces - 1 - place.y) * BM, r1 = min(r0 + BM, p.rows), w0 = r0 + threadIdx.x / 32 * 16 * MT;
    if (dead(p.live, b)) return;
    const sequence seq = sequence_of(p, b);
    const int end = range_of(p, seq, token_of(p, r1 - 1)).y, start = range_of(p, seq, token_of(p, r0)).x / KB * KB;
    float dq[MT][WIDTH / 8][4];
    float2 mine[MT][2];
    left<WIDTH, MT, KEPT> q, g;
    clear<MT, WIDTH / 8>(dq);

    const auto next_keys = [&](int s) {
        do s += KB;
        while (p.document && s < end && meet(p, seq, r0, r1, s, s + KB) == APART);
        return s;
    };
    const auto fetch = [&](int s, int i) {
        if (s < end) {
            load_tile<WIDTH, KB, THREADS, false>(room.k(i), p.k, p, b, kv, s, end);
            load_tile<WIDTH, KB, THREADS, false>(room.v(i), p.v, p, b, kv, s, end);
            if (p.document && threadIdx.x < KB)
                room.documents(i)[threadIdx.x] = s + (int)threadIdx.x < p.S ? document_at(p, b, s + threadIdx.x) : 0;
        }
        tn_copies_commit();
    };
    load_tile<WIDTH, BM, THREADS, true>(room.q, p.q, p, b, kv, r0, r1);
    load_tile<WIDTH, BM, THREADS, true>(room.g(), p.dy, p, b, kv, r0, r1);
    tn_copies_commit();
    int s0 = next_keys(start - KB);
    fetch(s0, 0);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int row = w0 + i * 8 + lane / 4;
        mine[i / 2][i % 2] = row < p.rows ? stat[place.x * stat_rows(p.rows) + row] : make_float2(INFINITY, 0);
    }
    tn_copies_wait<1>();
    __syncthreads();
    q.open(room.q + (w0 - r0) * tile_of<WIDTH>::row);
    g.open(room.g() + (w0 - r0) * tile_of<WIDTH>::row);

    for (int i = 0, next; s0 < end; s0 = next, i ^= 1) {
        tn_copies_wait<0>();
        __syncthreads();
        next = next_keys(s0);
        fetch(next, i ^ 1);
        const meeting m = w0 < p.rows ? meet(p, seq, w0, min(w0 + 16 * MT, p.rows), s0, s0 + KB) : APART;
        if (m == APART) continue;
#pragma unroll 1
        for (int c = 0; c < KB; c += KC)
            rows_meet_keys<WIDTH, MT, KC, KEPT>(dq, q, g, room.k(i) + c * tile_of<WIDTH>::row,
                                                room.v(i) + c * tile_of<WIDTH>::row, mine, p, seq, w0, s0 + c, s0,
                                                room.documents(i), m == WHOLLY);
    }
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int row = w0 + i * 8 + lane / 4;
        if (row >= p.rows) continue;
        const int64_t at = row_at(p.dq, p, b, kv, row);
        store_row<WIDTH>(dq[i / 2], i % 2 * 2, p.dq, at, p.D, p.scale, p.add >> TN_ATT_Q & 1);
    }
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

/* MK: for keys, 16 each warp; QB: rows of a tile, QC: of a chunk. MR, KB, KC: the same of the kernel for rows.
 * Fragments stay in registers up to 64. */
template <int WIDTH, int MK, int QB, int QC, int MR, int KB, int KC>
static tn_status backward(const tn_call *c, const problem *p, const float2 *stat)
{
    const int BK = WARPS * 16 * MK, BM = WARPS * 16 * MR;
    const bool KEPT = WIDTH <= 64;
    if ((p->dk.data || p->dv.data) && p->S > 0) {
        const int bytes = keys_room<WIDTH, BK, QB>::bytes;
        const order o = order_of(*p, (p->S + BK - 1) / BK);
        TN_RETURN_IF(tn_attention_room_cuda((const void *)keys_backward<WIDTH, MK, QB, QC, KEPT>, bytes));
        keys_backward<WIDTH, MK, QB, QC, KEPT>
            <<<(unsigned)(o.heads * o.pieces), THREADS, bytes, tn_cuda_stream(c)>>>(*p, o, stat);
        TN_CUDA_LAUNCHED();
    }
    if (p->dq.data && p->rows > 0) {
        const int bytes = rows_room<WIDTH, BM, KB>::bytes;
        const order o = order_of(*p, (p->rows + BM - 1) / BM);
        TN_RETURN_IF(tn_attention_room_cuda((const void *)rows_backward<WIDTH, MR, KB, KC, KEPT>, bytes));
        rows_backward<WIDTH, MR, KB, KC, KEPT>
            <<<(unsigned)(o.heads * o.pieces), THREADS, bytes, tn_cuda_stream(c)>>>(*p, o, stat);
        TN_CUDA_LAUNCHED();
    }
    return TN_OK;
}

static tn_status stats(const tn_call *c, const problem *p, float2 *stat, float unit)
{
    const int64_t n = (int64_t)p->B * p->KV * stat_rows(p->rows);
    int lanes = 1;
    while (lanes < 32 && lanes * 8 < p->D) lanes *= 2;
    if (n == 0) return TN_OK;
    row_stats<<<tn_blocks(c, n, THREADS / lanes), THREADS, 0, tn_cuda_stream(c)>>>(*p, stat, unit,
                                                                                   p->dq.data || p->dk.data, lanes);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_attention_backward_cuda(const tn_call *c)
{
    problem p = problem_of(c, &c->dout[0]);
    float2 *const stat = (float2 *)((char *)c->work + (p.document ? spread_bytes(p.B, p.T) : 0));
    p.dy = view_of(&c->dout[0]);
    p.dq = view_of(&c->din[TN_ATT_Q]), p.dk = view_of(&c->din[TN_ATT_K]), p.dv = view_of(&c->din[TN_ATT_V]);
    p.live_dk = c->din[TN_ATT_K].live, p.live_dv = c->din[TN_ATT_V].live;
    p.add = c->accumulate;
    if (p.B == 0 || p.D == 0) return TN_OK;
    if (p.rows > 0) TN_RETURN_IF(tn_attention_spread_cuda(c, &p, c->work));
    const bool fast = on_tensor_cores(c);
    const bool hopper = fast && (p.dq.data || p.dk.data) && tn_attention_hopper_takes(c);
    if (hopper && tn_attention_once_takes(c, &p)) return tn_attention_once_backward_cuda(c, &p, c->work);
    const problem rows = hopper ? per_head(p) : p;
    TN_RETURN_IF(stats(c, &rows, stat, fast ? LOG2E : 1));
    return hopper      ? tn_attention_hopper_backward_cuda(c, &p, stat)
           : !fast     ? tn_attention_general_backward_cuda(c, &p, stat)
           : p.D <= 32 ? backward<32, 2, 64, 32, 2, 64, 32>(c, &p, stat)
           : p.D <= 64 ? backward<64, 2, 64, 16, 2, 64, 32>(c, &p, stat)
           : p.D <= 80 ? backward<80, 1, 32, 32, 2, 32, 16>(c, &p, stat)
           : p.D <= 96 ? backward<96, 1, 32, 32, 2, 32, 16>(c, &p, stat)
                       : backward<128, 1, 32, 16, 2, 16, 16>(c, &p, stat);
}
