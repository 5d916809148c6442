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

struct outer_job {
    gathered d, a; /* columns of d as they lie, gap and all */
    outer o;
};

struct outer_jobs {
    outer_job of[MOST_OUTER];
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
    for (int i = 0; i < j.n; i++) n += tiles_of(j.of[i].o);
    return n;
}

__device__ __forceinline__ spot place_of(const outer_jobs &j, int tile)
{
    spot p = {};
    while (tile >= tiles_of(j.of[p.job].o)) tile -= tiles_of(j.of[p.job++].o);
    const outer &o = j.of[p.job].o;
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

/* One warp. What does not exist among a stage's rows must be zeros: it is what is summed over. Columns that do not exist may be
 * anything, and boxes of nothing else are left out. */
__device__ __forceinline__ void fetch_tile(const outer_job &j, const spot &p, int2 stages, int32_t n, char *room,
                                           feeder &f)
{
    const int column = p.i0 + (p.i0 >= j.o.gap_at ? j.o.gap : 0); /* gaps are at multiples of 128 */
    const int d_boxes = min(2, (j.o.rows - p.i0 + 63) / 64), a_boxes = min(4, (j.o.columns - p.j0 + 63) / 64);
    for (int k = stages.x; k < stages.y; k++) {
        char *stage = room + f.now.at * outer_room::stage;
        stage_rows<64> d, a;
        d.look_up(j.d, k * 64, n, true), a.look_up(j.a, k * 64, n, true);
        f.begin((d_boxes + a_boxes) * TILE64);
        for (int i = 0; i < d_boxes; i++) d.fetch(j.d, stage + i * TILE64, f.full(), column + i * 64, i * 8);
        for (int i = 0; i < a_boxes; i++)
            a.fetch(j.a, stage + outer_room::d + i * TILE64, f.full(), p.j0 + i * 64, i * 8);
        f.end();
    }
}

__device__ __forceinline__ void fetch_tiles(const outer_jobs &jobs, int32_t n, char *room, barriers b)
{
    feeder f = { b, { 0, 1 } };
    const int total = tiles_in(jobs);
    for (int tile = blockIdx.x; tile < total; tile += gridDim.x) {
        const spot p = place_of(jobs, tile);
        fetch_tile(jobs.of[p.job], p, stages_of(p, n), n, room, f);
    }
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
        const outer &o = jobs.of[p.job].o;
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
    if (threadIdx.x == 0) b.open();
    __syncthreads();
    if (threadIdx.x < 128) {
        tn_registers_less<FETCHES>();
        if (threadIdx.x < 32) fetch_tiles(j, n, room, b);
    } else {
        tn_registers_more<COMPUTES>();
        compute_tiles(j, n, room, b);
    }
#else
    (void)j;
#endif
}

static tn_status make_job(const net &m, const outer &o, outer_job *j)
{
    const void *d = (const __nv_bfloat16 *)o.d + o.d_first;
    j->o = o;
    TN_RETURN_IF(gather_boxes(&j->d, d, m.C, o.rows + o.gap, o.d_row, 64, NULL));
    return gather_boxes(&j->a, o.a, m.C, o.columns, o.a_row, 64, o.from);
}

tn_status tn_rollout::add_tiled_outer(const tn_call *c, const net &m, int t, const outer *o, int n)
{
    outer_jobs j = {};
    /* wide weights first: the others fill what is left at the end */
    for (int wide = 1; wide >= 0; wide--)
        for (int i = 0; i < n; i++)
            if ((o[i].columns > NARROW && o[i].rows >= 128) == wide) TN_RETURN_IF(make_job(m, o[i], &j.of[j.n++]));
    j.live = live_of(m, t) + m.B;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)tiled_outer, outer_room::bytes));
    tiled_outer<<<(unsigned)tn_cuda_queue_of(c)->multiprocessors, BLOCK, outer_room::bytes, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
