/* rollout on Hopper: sums over the rows of a step for the weights' gradients. A tile is 128 x 256 of a weight (128 x 128 where it
 * has no more columns); what is summed over are rows, 64 in a stage, both operands as they lie in memory. Rows are cut into
 * SHARES, each with sums of its own, which are added up at the end of all steps: more tiles than one a multiprocessor, and the
 * same order of sums in every run. Results are added to f32 sums in memory. */
#include "ops/rollout/rollout_hopper.cuh"

using namespace tn_rollout;

struct outer_room {
    static const int d = 2 * TILE64, a = 4 * TILE64, stage = d + a, barriers_at = STAGES * stage;
    static const int bytes = barriers_at + 2 * STAGES * 8 + 1024;
};

struct outer_jobs {
    outer of[MOST_OUTER];
    int n;
    const int32_t *live;
};

#if TN_HOPPER

struct spot {
    int job, i0, j0, share;
};

__host__ __device__ __forceinline__ int width_of(const outer &o) { return o.columns <= NARROW ? NARROW : WIDE; }
__host__ __device__ __forceinline__ int across_of(const outer &o)
{
    return (o.columns + width_of(o) - 1) / width_of(o);
}
__host__ __device__ __forceinline__ int tiles_of(const outer &o)
{
    return (o.rows + 127) / 128 * across_of(o) * SHARES;
}

__device__ __forceinline__ int tiles_in(const outer_jobs &j)
{
    int n = 0;
    for (int i = 0; i < j.n; i++) n += tiles_of(j.of[i]);
    return n;
}

__device__ __forceinline__ spot place_of(const outer_jobs &j, int tile)
{
    spot p = {};
    while (tile >= tiles_of(j.of[p.job])) tile -= tiles_of(j.of[p.job++]);
    const outer &o = j.of[p.job];
    const int across = across_of(o);
    p.share = tile % SHARES;
    p.j0 = tile / SHARES % across * width_of(o);
    p.i0 = tile / SHARES / across * 128;
    return p;
}

/* The stages of a share: rows [64 first, 64 last). */
__device__ __forceinline__ int2 stages_of(const spot &p, int32_t n)
{
    const int all = (n + 63) / 64, each = (all + SHARES - 1) / SHARES;
    return make_int2(min(p.share * each, all), min((p.share + 1) * each, all));
}

/* --- in ------------------------------------------------------------------------------------------------------------------ */

/* A thread's pieces of 16 bytes of a stage: one in each of four rows, in columns 64 apart. */
struct piece_rows {
    const char *base, *at[4];
    int64_t row_bytes;
    const int32_t *from; /* where rows are; NULL: one after the other */
    int columns;         /* of 64, that are wanted */
    int32_t soon[4];     /* where the next stage's are: looked up a stage ahead */
    __device__ __forceinline__ void look_up(const int32_t (&row)[4], int further, int32_t n)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            soon[i] = row[i] + further < n ? (from ? from[row[i] + further] : row[i] + further) : 0;
    }
    __device__ __forceinline__ void go_on()
    {
#pragma unroll
        for (int i = 0; i < 4; i++) at[i] = base + soon[i] * row_bytes;
    }
    template <int MOST>
    __device__ __forceinline__ void copy(char *to, const int32_t (&row)[4], int32_t n) const
    {
#pragma unroll
        for (int g = 0; g < MOST; g++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                tn_copy16(to + g * TILE64 + i * 16 * TILE_ROW, at[i] + g * TILE_ROW, row[i] < n && g < columns);
    }
};

/* Of 64 columns each, those from `first` on with numbers of this thread's piece. */
__device__ __forceinline__ int columns_left(int first, int all)
{
    const int left = all - first - (int)threadIdx.x % 8 * 8;
    return left > 0 ? (left + 63) / 64 : 0;
}

template <int BESIDE>
__device__ __forceinline__ void fetch_tile(const outer &o, const spot &p, int2 stages, int32_t n, char *room, feeder &f)
{
    const int first = (int)threadIdx.x % 128 / 8, piece = (int)threadIdx.x % 8;
    const int column = o.d_first + p.i0 + (p.i0 >= o.gap_at ? o.gap : 0); /* gaps are at multiples of 128 */
    const int own_piece = first * TILE_ROW + (piece ^ first % 8) * 16;
    piece_rows d = { (const char *)((const __nv_bfloat16 *)o.d + column + piece * 8),
                     {},
                     2 * o.d_row,
                     NULL,
                     columns_left(p.i0, o.rows),
                     {} },
               a = { (const char *)((const __nv_bfloat16 *)o.a + p.j0 + piece * 8),
                     {},
                     2 * o.a_row,
                     o.from,
                     columns_left(p.j0, o.columns),
                     {} };
    int32_t row[4];
#pragma unroll
    for (int i = 0; i < 4; i++) row[i] = stages.x * 64 + first + 16 * i;
    d.look_up(row, 0, n), a.look_up(row, 0, n);
    d.go_on(), a.go_on();
    d.look_up(row, 64, n), a.look_up(row, 64, n);
    for (int k = stages.x; k < stages.y; k++) {
        char *to = room + f.now.at * outer_room::stage + own_piece;
        f.begin();
        d.template copy<2>(to, row, n);
        a.template copy<BESIDE>(to + outer_room::d, row, n);
        f.end();
        d.go_on(), a.go_on();
#pragma unroll
        for (int i = 0; i < 4; i++) row[i] += 64;
        d.look_up(row, 64, n), a.look_up(row, 64, n);
    }
}

__device__ __forceinline__ void fetch_tiles(const outer_jobs &jobs, int32_t n, char *room, barriers b)
{
    feeder f = { b, { 0, 1 } };
    const int total = tiles_in(jobs);
    for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        const spot p = place_of(jobs, tile);
        const outer &o = jobs.of[p.job];
        if (width_of(o) == WIDE) fetch_tile<4>(o, p, stages_of(p, n), n, room, f);
        else fetch_tile<2>(o, p, stages_of(p, n), n, room, f);
    }
    tn_copies_commit();
    tn_copies_wait<0>();
}

/* --- products ------------------------------------------------------------------------------------------------------------ */

template <bool BOTH>
__device__ __forceinline__ void begin_sums(float (&c)[64], float (&d)[64], const char *stage, int group)
{
    const uint32_t a = tn_tile_at(stage + group * TILE64, TILE64), w = tn_tile_at(stage + outer_room::d, TILE64);
    tn_products_begin();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        tn_product<1, 1>(c, a + 16 * TILE_ROW / 16 * k, w + 16 * TILE_ROW / 16 * k, 1);
        if (BOTH) tn_product<1, 1>(d, a + 16 * TILE_ROW / 16 * k, w + 2 * TILE64 / 16 + 16 * TILE_ROW / 16 * k, 1);
    }
    tn_products_commit();
}

/* Half of a thread's sums at a time: all that is there is fetched before anything is stored, else each would wait for the one
 * before it. */
__device__ __forceinline__ void add_sums(const outer &o, const float (&c)[64], float *sum, int i0, int j0)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = i0 + 8 * h, j = j0 + (int)threadIdx.x % 4 * 2, left = i < o.rows ? o.columns - j : 0;
        float *to = sum + (int64_t)i * o.columns + j, old[32];
#pragma unroll
        for (int n = 0; n < 32; n++) old[n] = n / 2 * 8 + n % 2 < left ? to[n / 2 * 8 + n % 2] : 0.f;
#pragma unroll
        for (int n = 0; n < 32; n++)
            if (n / 2 * 8 + n % 2 < left) to[n / 2 * 8 + n % 2] = old[n] + c[n / 2 * 4 + 2 * h + n % 2];
    }
}

template <bool BOTH>
__device__ __forceinline__ void compute_tile(const outer &o, const spot &p, int2 stages, const char *room, barriers b,
                                             turn &now)
{
    const int group = (int)threadIdx.x / 128 - 1;
    const int i0 = p.i0 + group * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)(threadIdx.x & 31) / 4;
    float c[64], d[64];
    int last = -1;
    clear(c), clear(d);
    for (int k = stages.x; k < stages.y; k++) {
        b.wait_full(now);
        tn_hold(c);
        if (BOTH) tn_hold(d);
        begin_sums<BOTH>(c, d, room + now.at * outer_room::stage, group);
        tn_products_wait<1>();
        if (last >= 0) tn_warp_arrive(b.empty + last);
        last = now.at;
        now.next();
    }
    tn_products_wait<0>();
    tn_hold(c);
    if (BOTH) tn_hold(d);
    if (last < 0) return;
    tn_warp_arrive(b.empty + last);
    float *sum = o.sum + (int64_t)p.share * o.rows * o.columns;
    add_sums(o, c, sum, i0, p.j0);
    if (BOTH) add_sums(o, d, sum, i0, p.j0 + NARROW);
}

__device__ __forceinline__ void compute_tiles(const outer_jobs &jobs, int32_t n, const char *room, barriers b)
{
    const int total = tiles_in(jobs);
    turn now = { 0, 0 };
    for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        const spot p = place_of(jobs, tile);
        const outer &o = jobs.of[p.job];
        if (width_of(o) == WIDE) compute_tile<true>(o, p, stages_of(p, n), room, b, now);
        else compute_tile<false>(o, p, stages_of(p, n), room, b, now);
    }
}

#endif /* TN_HOPPER */

static __global__ void __launch_bounds__(BLOCK, 1) tiled_outer(TN_GRID outer_jobs j)
{
#if TN_HOPPER
    extern __shared__ char shared_room[];
    char *room = tn_tiles_room(shared_room);
    barriers b = { (uint64_t *)(room + outer_room::barriers_at),
                   (uint64_t *)(room + outer_room::barriers_at) + STAGES };
    const int32_t n = *j.live;
    if (n == 0) return;
    if (threadIdx.x == 0) b.open(false);
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

tn_status tn_rollout::add_tiled_outer(const tn_call *c, const net &m, int t, const outer *o, int n)
{
    outer_jobs j = {};
    /* wide weights first: the others fill what is left at the end */
    for (int wide = 1; wide >= 0; wide--)
        for (int i = 0; i < n; i++)
            if ((o[i].columns > NARROW && o[i].rows >= 128) == wide) j.of[j.n++] = o[i];
    j.live = live_of(m, t) + m.B;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)tiled_outer, outer_room::bytes));
    tiled_outer<<<(unsigned)tn_cuda_queue_of(c)->multiprocessors, BLOCK, outer_room::bytes, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
