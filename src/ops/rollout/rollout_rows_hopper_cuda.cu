/* rollout on Hopper: the rows of a step times packed weights. A tile is 128 rows and 256 columns (128 where the product has no
 * more); results are rounded to bf16, added to what is there where the product says so.
 *
 * Work is counted in halves of a wide tile, which a narrow tile is, too: what is left for the last round is halved where that gives
 * every block one half at most, as few rows leave few tiles to each block. A result's bits do not depend on it. */
#include "ops/rollout/rollout_hopper.cuh"

using namespace tn_rollout;

struct row_room {
    static const int weights = WIDE * TILE_ROW, stage = ROWS_BYTES + weights, barriers_at = STAGES * stage;
    static const int bytes = barriers_at + 2 * STAGES * 8 + 1024;
};

/* A product as the kernel sees it. Columns of A: k, from gap_at on gap further; from `k` on there are none. */
struct row_job {
    const __nv_bfloat16 *a;
    int64_t a_row;
    int k, gap_at, gap, deep, across, width, columns; /* width: columns of a packed tile */
    const char *tiles;
    weight bias;
    __nv_bfloat16 *to;
    int64_t to_row;
    bool add;
    product_share share;
};

struct row_jobs {
    row_job of[MOST_PRODUCTS];
    int n;
    const int32_t *live;
};

#if TN_HOPPER

/* A tile, or half of a wide one. */
struct place {
    int job, across, part; /* part 1: the upper half of its columns */
    int halves;
    int32_t row0;
};

/* A block's way through its tiles, [at,end) of all halves in a round. */
struct way {
    int rows, filled, all; /* tiles along the rows; halves of a job that fill a round; halves */
    int round, at, end;
    __device__ __forceinline__ bool next(const row_jobs &j, place &p);
};

__device__ __forceinline__ int halves_of(const row_job &j, int rows) { return rows * j.across * (j.width / NARROW); }

/* Of a job's halves those of this launch, [x,y). */
__device__ __forceinline__ int2 share_of(const row_job &j, const way &w)
{
    return make_int2(j.share == LEFT ? w.filled : 0, j.share == FILLS ? w.filled : halves_of(j, w.rows));
}

/* What fills a round depends on the rows and the blocks alone, which are the same in every launch of a step. */
__device__ __forceinline__ way way_of(const row_jobs &jobs, int32_t n)
{
    way w = { (n + TILE_ROWS - 1) / TILE_ROWS, 0, 0, 0, 0, 0 };
    for (int i = 0; i < jobs.n; i++) {
        const int own = halves_of(jobs.of[i], w.rows), round = 2 * (int)gridDim.x;
        if (jobs.of[i].share != WHOLE) w.filled = min(own, (round - own % round) % round);
    }
    for (int i = 0; i < jobs.n; i++) {
        const int2 own = share_of(jobs.of[i], w);
        w.all += own.y - own.x;
    }
    return w;
}

/* Of `all` halves those that a block takes in a round: neighbours, or one where one is left for each. */
__device__ __forceinline__ int2 halves_at(int all, int round)
{
    const int blocks = (int)gridDim.x, left = all - 2 * blocks * round;
    const int each = left > blocks ? 2 : 1, begin = 2 * blocks * round + each * (int)blockIdx.x;
    if (left <= 0) return make_int2(0, 0);
    return make_int2(min(begin, all), min(begin + each, all));
}

/* From a half on, of which `left` are wanted. */
__device__ __forceinline__ place place_of(const row_jobs &jobs, const way &w, int half, int left)
{
    place p = {};
    for (;; p.job++) {
        const int2 own = share_of(jobs.of[p.job], w);
        half += own.x;
        if (half < own.y) break;
        half -= own.y;
    }
    const row_job &j = jobs.of[p.job];
    const int wide = j.width == WIDE, tile = half >> wide;
    p.part = half & wide, p.halves = wide && !p.part && left > 1 ? 2 : 1;
    p.across = tile % j.across, p.row0 = tile / j.across * TILE_ROWS;
    return p;
}

__device__ __forceinline__ bool way::next(const row_jobs &j, place &p)
{
    if (at == end) {
        const int2 h = halves_at(all, round++);
        at = h.x, end = h.y;
    }
    if (at == end) return false;
    p = place_of(j, *this, at, end - at);
    at += p.halves;
    return true;
}

/* --- in ------------------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ void fetch_tiles(const row_jobs &jobs, int32_t n, char *room, barriers b)
{
    feeder f = { b, { 0, 1 } };
    const int thread = threadIdx.x % 128, piece = thread % 8, first = thread / 8;
    const int own_piece = first * TILE_ROW + (piece ^ first % 8) * 16;
    way w = way_of(jobs, n);
    place p;
    while (w.next(jobs, p)) {
        const row_job &j = jobs.of[p.job];
        const int bytes = p.halves * NARROW * TILE_ROW, tile = j.width * TILE_ROW, deep = j.deep, columns = j.k,
                  gap_at = j.gap_at, gap = 2 * j.gap;
        const char *weights = j.tiles + (int64_t)p.across * deep * tile + p.part * NARROW * TILE_ROW;
        const char *at[8]; /* a thread's pieces of 16 bytes, one in each of eight rows */
#pragma unroll
        for (int i = 0; i < 8; i++) at[i] = (const char *)(j.a + (p.row0 + first + 16 * i) * j.a_row) + piece * 16;
        for (int k = 0; k < deep; k++) {
            char *stage = room + f.now.at * row_room::stage, *to = stage + own_piece;
            const int step = k * TILE_K + piece * 8, beyond = step >= gap_at ? gap : 0;
            f.begin();
            if (thread == 0) {
                tn_barrier_expect(b.full + f.now.at, bytes);
                tn_bulk_copy(stage + ROWS_BYTES, weights + (int64_t)k * tile, bytes, b.full + f.now.at);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                tn_copy16(to + i * 16 * TILE_ROW, at[i] + beyond, p.row0 + first + 16 * i < n && step < columns);
                at[i] += TILE_ROW; /* 64 columns further */
            }
            f.end();
        }
    }
    tn_copies_commit();
    tn_copies_wait<0>();
}

/* --- out ----------------------------------------------------------------------------------------------------------------- */

enum { PLAIN, ADD, BIAS }; /* what results are put to: nothing, what is there, a bias */

/* The biases of a thread's 32 of 128 columns. */
template <class T>
__device__ __forceinline__ void fetch_biases(const T *bias, int columns, float (&to)[32], int j0)
{
#pragma unroll
    for (int n = 0; n < 32; n++) {
        const int j = j0 + n / 2 * 8 + (int)threadIdx.x % 4 * 2 + n % 2;
        to[n] = j < columns ? (float)bias[j] : 0.f;
    }
}

/* 128 columns of a tile from column j0 on. All that is added to them is fetched before anything is stored: else every fetch would
 * wait for the stores before it. */
template <int HOW>
__device__ __forceinline__ void put_columns(const row_job &j, const float (&c)[64], int32_t row0, int32_t n, int j0)
{
    const int own0 = j0 + (int)threadIdx.x % 4 * 8;
    uint4 was[8];
    float bias[32];
    if (HOW == BIAS && j.bias.type == TN_BF16) fetch_biases((const __nv_bfloat16 *)j.bias.data, j.columns, bias, j0);
    else if (HOW == BIAS && j.bias.type == TN_F16) fetch_biases((const __half *)j.bias.data, j.columns, bias, j0);
    else if (HOW == BIAS) fetch_biases((const float *)j.bias.data, j.columns, bias, j0);
#pragma unroll
    for (int k = 0; HOW == ADD && k < 8; k++) {
        const int32_t row = row0 + 8 * (k / 4);
        const int own = own0 + k % 4 * 32;
        was[k] = make_uint4(0, 0, 0, 0);
        if (row < n && own < j.columns) was[k] = *(const uint4 *)(j.to + row * j.to_row + own);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int h = k / 4, part = k % 4, own = own0 + part * 32;
        const int32_t row = row0 + 8 * h;
        uint32_t old[4] = {}, word[4];
        if (HOW == ADD) {
            old[0] = was[k].x, old[1] = was[k].y, old[2] = was[k].z, old[3] = was[k].w;
            tn_turn_words(old);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at_ = (4 * part + i) * 4 + 2 * h;
            float x = c[at_] + low_of(old[i]), y = c[at_ + 1] + high_of(old[i]);
            if (HOW == BIAS) x += bias[2 * (4 * part + i)], y += bias[2 * (4 * part + i) + 1];
            word[i] = tn_pack_bf16(x, y);
        }
        tn_turn_words(word);
        if (row < n && own < j.columns)
            *(uint4 *)(j.to + row * j.to_row + own) = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

template <bool BOTH, int HOW>
__device__ __forceinline__ void put_tile(const row_job &j, const float (&c)[64], const float (&d)[64], int32_t row,
                                         int32_t n, int j0)
{
    put_columns<HOW>(j, c, row, n, j0);
    if (BOTH) put_columns<HOW>(j, d, row, n, j0 + NARROW);
}

/* --- products ------------------------------------------------------------------------------------------------------------ */

template <bool BOTH>
__device__ __forceinline__ void begin_stage(float (&c)[64], float (&d)[64], const char *stage, int group)
{
    const uint32_t a = tn_tile_at(stage + group * TILE64, 0), w = tn_tile_at(stage + ROWS_BYTES, 0);
    tn_products_begin();
#pragma unroll
    for (int k = 0; k < TILE_K / 16; k++) {
        tn_product<0>(c, a + 2 * k, w + 2 * k, 1);
        if (BOTH) tn_product<0>(d, a + 2 * k, w + NARROW * TILE_ROW / 16 + 2 * k, 1);
    }
    tn_products_commit();
}

template <bool BOTH>
__device__ __forceinline__ void compute_tile(const row_job &j, const place &p, int32_t n, const char *room, barriers b,
                                             turn &now)
{
    const int group = (int)threadIdx.x / 128 - 1, j0 = p.across * j.width + p.part * NARROW;
    const int32_t row = p.row0 + group * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)(threadIdx.x & 31) / 4;
    float c[64], d[64];
    int last = -1;
    clear(c), clear(d);
    for (int k = 0; k < j.deep; k++) {
        b.wait_full(now);
        tn_hold(c);
        if (BOTH) tn_hold(d);
        begin_stage<BOTH>(c, d, room + now.at * row_room::stage, group);
        tn_products_wait<1>();
        if (last >= 0) tn_warp_arrive(b.empty + last);
        last = now.at;
        now.next();
    }
    tn_products_wait<0>();
    tn_hold(c);
    if (BOTH) tn_hold(d);
    tn_warp_arrive(b.empty + last);
    if (j.add) put_tile<BOTH, ADD>(j, c, d, row, n, j0);
    else if (j.bias.data) put_tile<BOTH, BIAS>(j, c, d, row, n, j0);
    else put_tile<BOTH, PLAIN>(j, c, d, row, n, j0);
}

__device__ __forceinline__ void compute_tiles(const row_jobs &jobs, int32_t n, const char *room, barriers b)
{
    turn now = { 0, 0 };
    way w = way_of(jobs, n);
    place p;
    while (w.next(jobs, p)) {
        const row_job &j = jobs.of[p.job];
        if (p.halves == 2) compute_tile<true>(j, p, n, room, b, now);
        else compute_tile<false>(j, p, n, room, b, now);
    }
}

#endif /* TN_HOPPER */

static __global__ void __launch_bounds__(BLOCK, 1) tiled_rows(TN_GRID row_jobs j)
{
#if TN_HOPPER
    extern __shared__ char shared_room[];
    char *room = tn_tiles_room(shared_room);
    barriers b = { (uint64_t *)(room + row_room::barriers_at), (uint64_t *)(room + row_room::barriers_at) + STAGES };
    const int32_t n = *j.live;
    const int2 halves = halves_at(way_of(j, n).all, 0);
    if (halves.x == halves.y) return;
    if (threadIdx.x == 0) b.open(129);
    __syncthreads();
    if (threadIdx.x < 128) {
        tn_registers_less<FETCHES>();
        fetch_tiles(j, n, room, b);
    } else {
        tn_registers_more<COMPUTES>();
        compute_tiles(j, n, room, b);
    }
#else
    (void)j;
#endif
}

/* --- on the host --------------------------------------------------------------------------------------------------------- */

static row_job job_of(const net &m, const product &p, const void *packed)
{
    const tile_set s = tiles_of(m, p.tile);
    row_job j = {};
    j.a = (const __nv_bfloat16 *)p.a + p.part[0].first, j.a_row = p.a_row;
    for (int i = 0; i < p.parts; i++) j.k += p.part[i].k; /* parts are neighbours in A */
    j.gap_at = p.parts > 1 ? j.k : p.part[0].gap_at, j.gap = p.parts > 1 ? 0 : p.part[0].gap;
    j.deep = s.deep, j.across = s.across, j.width = s.columns, j.columns = p.columns;
    j.tiles = (const char *)packed + s.first;
    j.bias = p.bias, j.to = (__nv_bfloat16 *)p.to, j.to_row = p.to_row, j.add = p.add, j.share = p.share;
    return j;
}

tn_status tn_rollout::multiply_tiled_rows(const tn_call *c, const net &m, int t, const product *p, int n,
                                          const void *packed)
{
    row_jobs j = {};
    /* wide tiles first: the others fill what is left at the end */
    for (int width = WIDE; width >= NARROW; width -= NARROW)
        for (int i = 0; i < n; i++)
            if (tiles_of(m, p[i].tile).columns == width) j.of[j.n++] = job_of(m, p[i], packed);
    j.live = live_of(m, t) + m.B;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)tiled_rows, row_room::bytes));
    tiled_rows<<<(unsigned)tn_cuda_queue_of(c)->multiprocessors, BLOCK, row_room::bytes, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
