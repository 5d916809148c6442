/* rollout on Hopper: sums over the rows of a step for the weights' gradients. A tile is 128 x 256 of a weight (128 x 128 where it
 * has no more columns); what is summed over are rows, 64 in a stage, both operands as they lie in memory, in the order of the rows:
 * boxes of the tensor engine, which one thread asks for. Rows are cut into shares, each with sums of its own, which are added up at
 * the end of all steps: as many as let the tiles fill the multiprocessors, and the same order of sums in every run. */
#include "ops/rollout/rollout_hopper.cuh"

using namespace tn_rollout;

struct outer_room {
    static const int d = 2 * TILE64, a = 4 * TILE64, stage = d + a, barriers_at = STAGES * stage;
    static const int bytes = barriers_at + 2 * STAGES * 8 + 1024;
};
/* Registers of the thread that asks for boxes, and of those that compute: it needs few, and they have 128 sums. */
enum { ASKS = 40, SUMS_UP = 232 };
static_assert(128 * ASKS + 128 * GROUPS * SUMS_UP <= STARTED_WITH * BLOCK, "a block's registers");

struct outer_job {
    CUtensorMap d, a; /* columns of d as they lie, gap and all */
    outer o;
};

struct outer_jobs {
    outer_job of[MOST_OUTER];
    int n, shares;
    const int32_t *live;
};

/* --- tiles --------------------------------------------------------------------------------------------------------------- */

struct spot {
    int job, i0, j0, share;
};

__host__ __device__ __forceinline__ int width_of(int64_t columns) { return columns <= NARROW ? NARROW : WIDE; }
__host__ __device__ __forceinline__ int across_of(int64_t columns)
{
    return (int)((columns + width_of(columns) - 1) / width_of(columns));
}
__host__ __device__ __forceinline__ int tile_count(int64_t rows, int64_t columns)
{
    return (int)((rows + 127) / 128) * across_of(columns);
}

/* Shares that end soonest, in stages of a wide tile: the time of the fullest multiprocessor, a tile's end at some 12 stages. They
 * depend on sizes alone, and on a full Hopper chip's 132, so that sums are the same on every one. */
int tn_rollout::outer_shares(const net &m)
{
    enum { CHIP = 132, END = 12, MOST = 32 };
    int64_t halves = 0, best = 0; /* a narrow tile is half of a wide one */
    int shares = 1;
    auto count = [&](int64_t rows, int64_t columns) {
        halves += tile_count(rows, columns) * (width_of(columns) == WIDE ? 2 : 1);
    };
    for (int l = 0; l < m.L; l++) count(3 * m.H, layer_inputs(m, l)), count(3 * m.H, m.H);
    count(m.H / 2, m.H), count(HIDDEN, m.H);
    const int64_t stages = (m.C + 63) / 64;
    for (int s = 1; s <= MOST && s * 4 <= stages; s++) {
        const int64_t time = (s * halves + 2 * CHIP - 1) / (2 * CHIP) * ((stages + s - 1) / s + END);
        if (s == 1 || time < best) best = time, shares = s;
    }
    return shares;
}

#if TN_HOPPER

__device__ __forceinline__ int tiles_in(const outer_jobs &j)
{
    int n = 0;
    for (int i = 0; i < j.n; i++) n += tile_count(j.of[i].o.rows, j.of[i].o.columns);
    return n * j.shares;
}

/* The tile that this block takes in a round. Every other round goes backwards: the last tiles are narrow, and who had one gets the
 * next. */
__device__ __forceinline__ int tile_in(int round)
{
    return round * (int)gridDim.x + (int)(round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

__device__ __forceinline__ spot place_of(const outer_jobs &j, int tile)
{
    spot p = {};
    p.share = tile % j.shares, tile /= j.shares;
    for (;; p.job++) {
        const int n = tile_count(j.of[p.job].o.rows, j.of[p.job].o.columns);
        if (tile < n) break;
        tile -= n;
    }
    const int columns = j.of[p.job].o.columns;
    p.j0 = tile % across_of(columns) * width_of(columns);
    p.i0 = tile / across_of(columns) * 128;
    return p;
}

/* The stages of a share: rows [64 first, 64 last). */
__device__ __forceinline__ int2 stages_of(int share, int shares, int32_t n)
{
    const int all = (n + 63) / 64, each = (all + shares - 1) / shares;
    return make_int2(min(share * each, all), min((share + 1) * each, all));
}

/* --- in ------------------------------------------------------------------------------------------------------------------ */

/* Boxes with no column of the weight are left out. */
__device__ __forceinline__ void fetch_tile(const outer_job &j, const spot &p, int2 stages, char *room, barriers b,
                                           turn &now)
{
    const int column = p.i0 + (p.i0 >= j.o.gap_at ? j.o.gap : 0); /* gaps are at multiples of 128 */
    const int d_boxes = min(2, (j.o.rows - p.i0 + 63) / 64), a_boxes = min(4, (j.o.columns - p.j0 + 63) / 64);
    for (int k = stages.x; k < stages.y; k++, now.next()) {
        char *stage = room + now.at * outer_room::stage;
        uint64_t *full = b.full + now.at;
        tn_barrier_wait(b.empty + now.at, now.phase);
        tn_barrier_expect(full, (d_boxes + a_boxes) * TILE64);
        for (int i = 0; i < d_boxes; i++) tn_tensor_copy(stage + i * TILE64, &j.d, full, column + i * 64, 0, k * 64, 0);
        for (int i = 0; i < a_boxes; i++)
            tn_tensor_copy(stage + outer_room::d + i * TILE64, &j.a, full, p.j0 + i * 64, 0, k * 64, 0);
    }
}

__device__ __forceinline__ void fetch_tiles(const outer_jobs &jobs, int32_t n, char *room, barriers b)
{
    const int total = tiles_in(jobs);
    turn now = { 0, 1 };
    for (int round = 0, tile; tile = tile_in(round), tile < total; round++) {
        const spot p = place_of(jobs, tile);
        fetch_tile(jobs.of[p.job], p, stages_of(p.share, jobs.shares, n), room, b, now);
    }
}

/* --- products ------------------------------------------------------------------------------------------------------------ */

/* Rows of a stage from `rows` on do not exist: something of an earlier step came in their place. All that compute do it. */
__device__ __forceinline__ void blank_rows(char *stage, int rows)
{
    const int thread = (int)threadIdx.x - 128, pieces = (64 - rows) * (TILE_ROW / 16);
    for (int i = thread; i < 6 * pieces; i += 128 * GROUPS)
        *(int4 *)(stage + i / pieces * TILE64 + rows * TILE_ROW + i % pieces * 16) = make_int4(0, 0, 0, 0);
    tn_fence_async();
    tn_named_barrier(1, 128 * GROUPS);
}

/* As add_alone, for two neighbours. */
__device__ __forceinline__ void add_two(float *to, float x, float y)
{
    asm volatile("red.global.add.v2.f32 [%0], {%1,%2};" ::"l"(__cvta_generic_to_global(to)), "f"(x), "f"(y) : "memory");
}

/* TWOS: the weight has an even number of columns, so that two neighbours are aligned. */
template <bool TWOS, int NUMBERS>
__device__ __forceinline__ void add_sums(const outer &o, const float (&c)[NUMBERS], float *sum, int i0, int j0)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int i = i0 + 8 * h, j = j0 + (int)threadIdx.x % 4 * 2, left = i < o.rows ? o.columns - j : 0;
        float *to = sum + (int64_t)i * o.columns + j;
#pragma unroll
        for (int n = 0; n < NUMBERS / 4; n++) {
            const float x = c[n * 4 + 2 * h], y = c[n * 4 + 2 * h + 1];
            if (TWOS) {
                if (n * 8 < left) add_two(to + n * 8, x, y);
            } else {
                if (n * 8 < left) add_alone(to + n * 8, x);
                if (n * 8 + 1 < left) add_alone(to + n * 8 + 1, y);
            }
        }
    }
}

/* NUMBERS: sums of a thread, half as many as the tile has columns. */
template <int NUMBERS>
__device__ __forceinline__ void compute_tile(const outer &o, const spot &p, int2 stages, int32_t n, char *room,
                                             barriers b, turn &now, float *sum)
{
    const int group = (int)threadIdx.x / 128 - 1;
    const int i0 = p.i0 + group * 64 + (int)threadIdx.x % 128 / 32 * 16 + (int)(threadIdx.x & 31) / 4;
    float c[NUMBERS];
    int last = -1;
    clear(c);
    for (int k = stages.x; k < stages.y; k++) {
        char *stage = room + now.at * outer_room::stage;
        tn_barrier_wait(b.full + now.at, now.phase);
        if (n - k * 64 < 64) blank_rows(stage, n - k * 64);
        const uint32_t x = tn_tile_at(stage + group * TILE64, TILE64), w = tn_tile_at(stage + outer_room::d, TILE64);
        tn_hold(c);
        tn_products_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) tn_product<1, 1>(c, x + i * TILE_ROW, w + i * TILE_ROW, 1); /* 16 rows further */
        tn_products_commit();
        tn_products_wait<1>();
        if (last >= 0) tn_warp_arrive(b.empty + last);
        last = now.at;
        now.next();
    }
    tn_products_wait<0>();
    tn_hold(c);
    if (last < 0) return;
    tn_warp_arrive(b.empty + last);
    if (o.columns % 2 == 0) add_sums<true>(o, c, sum, i0, p.j0);
    else add_sums<false>(o, c, sum, i0, p.j0);
}

__device__ __forceinline__ void compute_tiles(const outer_jobs &jobs, int32_t n, char *room, barriers b)
{
    const int total = tiles_in(jobs);
    turn now = { 0, 0 };
    for (int round = 0, tile; tile = tile_in(round), tile < total; round++) {
        const spot p = place_of(jobs, tile);
        const outer &o = jobs.of[p.job].o;
        const int2 stages = stages_of(p.share, jobs.shares, n);
        float *sum = o.sum + (int64_t)p.share * o.rows * o.columns;
        if (width_of(o.columns) == WIDE) compute_tile<WIDE / 2>(o, p, stages, n, room, b, now, sum);
        else compute_tile<NARROW / 2>(o, p, stages, n, room, b, now, sum);
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
    if (threadIdx.x == 0) b.open(1);
    __syncthreads();
    if (threadIdx.x < 128) {
        tn_registers_less<ASKS>();
        if (threadIdx.x == 0) fetch_tiles(j, n, room, b);
    } else {
        tn_registers_more<SUMS_UP>();
        compute_tiles(j, n, room, b);
    }
#else
    (void)j;
#endif
}

/* Boxes of 64 rows and 64 columns out of (rows,columns) bf16, rows `stride` numbers apart; zeros outside. */
static tn_status map_boxes(CUtensorMap *map, const void *data, int64_t rows, int64_t columns, int64_t stride)
{
    const int64_t dim[4] = { 1, rows, 1, columns }, step[4] = { rows * stride, stride, columns, 1 };
    if (!tn_tensor_map(map, (void *)data, dim, step, 64))
        return tn_error(TN_INTERNAL, "rollout: rows of %lld numbers, %lld apart, cannot be copied as boxes",
                        (long long)columns, (long long)stride);
    return TN_OK;
}

static tn_status make_job(const net &m, const outer &o, outer_job *j)
{
    j->o = o;
    TN_RETURN_IF(map_boxes(&j->d, (const __nv_bfloat16 *)o.d + o.d_first, m.C, (int64_t)o.rows + o.gap, o.d_row));
    return map_boxes(&j->a, o.a, m.C, o.columns, o.a_row);
}

tn_status tn_rollout::add_tiled_outer(const tn_call *c, const net &m, int t, const outer *o, int n)
{
    outer_jobs j = {};
    /* wide tiles first: the others fill what is left at the end */
    for (int wide = 1; wide >= 0; wide--)
        for (int i = 0; i < n; i++)
            if ((width_of(o[i].columns) == WIDE) == wide) TN_RETURN_IF(make_job(m, o[i], &j.of[j.n++]));
    j.shares = outer_shares(m);
    j.live = live_of(m, t) + m.B;
    TN_RETURN_IF(tn_cuda_allow_shared((const void *)tiled_outer, outer_room::bytes));
    tiled_outer<<<(unsigned)tn_cuda_queue_of(c)->multiprocessors, BLOCK, outer_room::bytes, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
