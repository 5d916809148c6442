/* norm on the GPU. Short rows that lie well go to warps (norm_warp.cuh); for others, here, a team of warps holds a row in
 * registers, 8 numbers a thread, and goes from row to row; weights and their gradients stay in registers meanwhile.
 * Rows longer than HELD are read again for each step of the formula.
 *
 * Weight gradients: each team adds up its rows, a block its teams in order, and a second kernel the blocks in order.
 * Which team takes a row depends on the row's number alone, so that dead rows leave no trace in the bits. Statistics as
 * on the CPU: the scale, and for layernorm the mean as m0 + m1 (norm_cpu.c says why). Sums are f32. s is not rounded to
 * its tensor's type before it is normalised.
 *
 * Bytes a number in bf16: forward 4 (8 with a residual), backward 6 (8 with dsum). */
#include "ops/norm/norm.h"
#include "ops/norm/norm_cpu.h"
#include "ops/norm/norm_warp.cuh"

using namespace tn_norm;

enum {
    HELD = TN_TEAM_BLOCK * 8, /* numbers of a row that a team of a whole block can hold */
    MOST_PARTS = 512,         /* blocks of the backward pass, at most */
    SUM_PARTS = 128,          /* of a pass that sums columns alone */
    SUMMERS = 16              /* threads that share a column of partial sums */
};

/* --- forward -------------------------------------------------------------------------------------------------------- */

template <bool FAST>
__device__ __forceinline__ tn_f8 load_sum(const job &j, int64_t row_x, int64_t row_r, int i)
{
    tn_f8 s = tn_row_load8<FAST>(j.x, row_x, i, j.d);
    if (j.r.a.data) {
        const tn_f8 r = tn_row_load8<FAST>(j.r, row_r, i, j.d);
#pragma unroll
        for (int k = 0; k < 8; k++) s.v[k] += r.v[k];
    }
    return s;
}

/* Sums of s - m and of its square; numbers beyond the row's end do not count. */
__device__ __forceinline__ void add_squares(const tn_f8 &s, float m, int i, int d, float *first, float *second)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float v = i + k < d ? s.v[k] - m : 0.f;
        *first += v;
        *second = fmaf(v, v, *second);
    }
}

/* The whole row at hand through `get(i)`, a thread's numbers at i, i + step, ... */
template <bool LAYER, class Get>
__device__ __forceinline__ statistic measure(tn_team &t, const job &j, int step, Get get)
{
    const float d = (float)j.d;
    statistic r = { 0, 0, 0 };
    float first = 0, second = 0;
    if (LAYER) {
        float sum = 0;
        for (int i = t.thread * 8; i < j.d; i += step) sum += sum_of(get(i));
        r.m0 = tn_team_sum(t, sum) / d;
    }
    for (int i = t.thread * 8; i < j.d; i += step) add_squares(get(i), r.m0, i, j.d, &first, &second);
    if (!LAYER) {
        r.scale = 1 / sqrtf(tn_team_sum(t, second) / d + j.eps);
        return r;
    }
    const float2 sums = tn_team_sum2(t, first, second);
    r.m1 = sums.x / d;
    r.scale = 1 / sqrtf(fmaf(-r.m1, r.m1, sums.y / d) + j.eps);
    return r;
}

template <bool LAYER, bool FAST>
__device__ __forceinline__ void write_y(const job &j, int64_t at, int i, const tn_f8 &s, const statistic &t,
                                        const tn_f8 &w, const tn_f8 &b)
{
    tn_f8 y = normalised<LAYER>(s, t);
#pragma unroll
    for (int k = 0; k < 8; k++) y.v[k] = fmaf(y.v[k], w.v[k], b.v[k]);
    tn_row_put8<FAST>(j.y, at, i, j.d, y, false);
}

template <bool LAYER, bool FAST>
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) forward_held(const __grid_constant__ job j)
{
    __shared__ tn_team_memory memory;
    tn_team t = tn_team_of(j.threads, &memory);
    const int i = t.thread * 8, teams = blockDim.x / j.threads, whole = j.threads * 8;
    const int64_t rows = tn_d_rows(j.x.a);
    const tn_f8 w = load_all<FAST>(j.w, i, j.d, 1), b = load_all<FAST>(j.b, i, j.d, 0);
    for (int64_t row = (int64_t)blockIdx.x * teams + t.index; row < rows; row += (int64_t)gridDim.x * teams) {
        const tn_f8 s = load_sum<FAST>(j, tn_row_at<FAST>(j.x, row), j.r.a.data ? tn_row_at<FAST>(j.r, row) : 0, i);
        if (j.s.a.data) tn_row_put8<FAST>(j.s, tn_row_at<FAST>(j.s, row), i, j.d, s, false);
        const statistic m = measure<LAYER>(t, j, whole, [&](int) { return s; });
        if (t.thread == 0) write_statistic<LAYER, FAST>(j, row, m);
        write_y<LAYER, FAST>(j, tn_row_at<FAST>(j.y, row), i, s, m, w, b);
    }
}

template <bool LAYER, bool FAST>
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) forward_long(const __grid_constant__ job j)
{
    __shared__ tn_team_memory memory;
    tn_team t = tn_team_of(j.threads, &memory);
    const int step = j.threads * 8;
    const int64_t rows = tn_d_rows(j.x.a);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t x = tn_row_at<FAST>(j.x, row), y = tn_row_at<FAST>(j.y, row);
        const int64_t r = j.r.a.data ? tn_row_at<FAST>(j.r, row) : 0;
        const statistic m = measure<LAYER>(t, j, step, [&](int i) { return load_sum<FAST>(j, x, r, i); });
        if (t.thread == 0) write_statistic<LAYER, FAST>(j, row, m);
        for (int i = t.thread * 8; i < j.d; i += step) {
            const tn_f8 s = load_sum<FAST>(j, x, r, i);
            if (j.s.a.data) tn_row_put8<FAST>(j.s, tn_row_at<FAST>(j.s, row), i, j.d, s, false);
            write_y<LAYER, FAST>(j, y, i, s, m, load_all<FAST>(j.w, i, j.d, 1), load_all<FAST>(j.b, i, j.d, 0));
        }
    }
}

/* --- backward ------------------------------------------------------------------------------------------------------- */

template <bool LAYER>
__device__ __forceinline__ slope slope_of(tn_team &t, const job &j, const statistic &m, float first, float second)
{
    const float d = (float)j.d;
    if (!LAYER) return { 0, m.scale * (tn_team_sum(t, second) / d) };
    const float2 sums = tn_team_sum2(t, first, second);
    return { m.scale * (sums.x / d), m.scale * (sums.y / d) };
}

template <bool LAYER, bool FAST>
__device__ __forceinline__ void turn(const job &j, int64_t row, int i, tn_f8 n, const tn_f8 &dn, const statistic &m,
                                     slope c)
{
    n = turned<LAYER>(n, dn, m, c);
    if (j.dsum.a.data) {
        const tn_f8 more = tn_row_load8<FAST>(j.dsum, tn_row_at<FAST>(j.dsum, row), i, j.d);
#pragma unroll
        for (int k = 0; k < 8; k++) n.v[k] += more.v[k];
    }
    if (j.dx.a.data) tn_row_put8<FAST>(j.dx, tn_row_at<FAST>(j.dx, row), i, j.d, n, j.add_x);
    if (j.dr.a.data) tn_row_put8<FAST>(j.dr, tn_row_at<FAST>(j.dr, row), i, j.d, n, j.add_r);
}

/* The teams' sums of a column, in order, into the block's partial sums. All threads of the block. */
__device__ __forceinline__ void fold_teams(const job &j, const tn_f8 &mine, int which, float *fold)
{
    const int whole = j.threads * 8, teams = blockDim.x / j.threads;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++) fold[threadIdx.x * 8 + k] = mine.v[k];
    __syncthreads();
    float *to = j.partial + ((int64_t)blockIdx.x * SUMS + which) * j.d;
    for (int i = threadIdx.x; i < j.d; i += blockDim.x) {
        float sum = fold[i];
        for (int k = 1; k < teams; k++) sum += fold[k * whole + i];
        to[i] = sum;
    }
}

/* s and dy are there. */
template <bool LAYER, bool FAST>
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) backward_held(const __grid_constant__ job j)
{
    __shared__ tn_team_memory memory;
    __shared__ float fold[TN_TEAM_BLOCK * 8];
    tn_team t = tn_team_of(j.threads, &memory);
    const int i = t.thread * 8, teams = blockDim.x / j.threads;
    const int64_t rows = tn_d_rows(j.dy.a);
    const bool turns = j.dx.a.data || j.dr.a.data;
    const tn_f8 w =
        load_all<FAST>(j.w, i, j.d, 1); /* layernorm has no registers to keep it in: the nearest cache does */
    tn_f8 dw = {}, db = {};
    for (int64_t row = (int64_t)blockIdx.x * teams + t.index; row < rows; row += (int64_t)gridDim.x * teams) {
        tn_f8 dy = tn_row_load8<FAST>(j.dy, tn_row_at<FAST>(j.dy, row), i, j.d);
        const statistic m = read_statistic<LAYER, FAST>(j, row);
        const tn_f8 n = normalised<LAYER>(tn_row_load8<FAST>(j.s, tn_row_at<FAST>(j.s, row), i, j.d), m);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            dw.v[k] = fmaf(dy.v[k], n.v[k], dw.v[k]);
            if (LAYER) db.v[k] += dy.v[k];
        }
        if (!turns) continue;
        float first = 0, second = 0;
        weigh(&dy, LAYER ? load_all<FAST>(j.w, i, j.d, 1) : w);
        add_slopes(n, dy, &first, &second);
        turn<LAYER, FAST>(j, row, i, n, dy, m, slope_of<LAYER>(t, j, m, first, second));
    }
    if (j.want_w) fold_teams(j, dw, 0, fold);
    if (LAYER && j.want_b) fold_teams(j, db, 1, fold);
}

template <bool LAYER, bool FAST>
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) backward_long(const __grid_constant__ job j)
{
    __shared__ tn_team_memory memory;
    tn_team t = tn_team_of(j.threads, &memory);
    const int step = j.threads * 8;
    const int64_t rows = tn_d_rows(j.dy.a);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t at_s = tn_row_at<FAST>(j.s, row), at_dy = tn_row_at<FAST>(j.dy, row);
        const statistic m = read_statistic<LAYER, FAST>(j, row);
        float first = 0, second = 0;
        for (int i = t.thread * 8; i < j.d; i += step) {
            tn_f8 dn = tn_row_load8<FAST>(j.dy, at_dy, i, j.d);
            weigh(&dn, load_all<FAST>(j.w, i, j.d, 1));
            add_slopes(normalised<LAYER>(tn_row_load8<FAST>(j.s, at_s, i, j.d), m), dn, &first, &second);
        }
        const slope c = slope_of<LAYER>(t, j, m, first, second);
        for (int i = t.thread * 8; i < j.d; i += step) {
            tn_f8 dn = tn_row_load8<FAST>(j.dy, at_dy, i, j.d);
            weigh(&dn, load_all<FAST>(j.w, i, j.d, 1));
            turn<LAYER, FAST>(j, row, i, normalised<LAYER>(tn_row_load8<FAST>(j.s, at_s, i, j.d), m), dn, m, c);
        }
    }
}

/* dw and db of long rows, or db alone (s is then not there): a thread a column, blockIdx.y the part of the rows. */
template <bool LAYER>
static __global__ void backward_columns(const __grid_constant__ job j)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= j.d) return;
    const int64_t rows = tn_d_rows(j.dy.a);
    float dw = 0, db = 0;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
        const float dy = tn_load(j.dy.a.data, j.dy.a.dtype, tn_row_at<false>(j.dy, row) + i * j.dy.step);
        db += dy;
        if (!j.want_w) continue;
        const statistic m = read_statistic<LAYER, false>(j, row);
        const float s = tn_load(j.s.a.data, j.s.a.dtype, tn_row_at<false>(j.s, row) + i * j.s.step);
        dw = fmaf(dy, __fmul_rn(LAYER ? (s - m.m0) - m.m1 : s, m.scale), dw);
    }
    float *to = j.partial + (int64_t)blockIdx.y * SUMS * j.d + i;
    if (j.want_w) to[0] = dw;
    if (j.want_b) to[j.d] = db;
}

/* Sums of dx as it lies there; the form of backward_columns. For the kernels that do not make them on their way. */
static __global__ void sum_columns(const __grid_constant__ job j)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= j.d) return;
    const int64_t rows = tn_d_rows(j.dx.a);
    float sum = 0;
    for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
        sum += tn_load(j.dx.a.data, j.dx.a.dtype, tn_row_at<false>(j.dx, row) + i * j.dx.step);
    j.partial[((int64_t)blockIdx.y * SUMS + 2) * j.d + i] = sum;
}

/* No dy: the gradient of s is dsum alone. */
template <bool FAST>
static __global__ void __launch_bounds__(TN_TEAM_BLOCK, 2) pass_on(const __grid_constant__ job j)
{
    const int64_t rows = tn_d_rows(j.dsum.a);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
        for (int i = threadIdx.x * 8; i < j.d; i += blockDim.x * 8) {
            const tn_f8 ds = tn_row_load8<FAST>(j.dsum, tn_row_at<FAST>(j.dsum, row), i, j.d);
            if (j.dx.a.data) tn_row_put8<FAST>(j.dx, tn_row_at<FAST>(j.dx, row), i, j.d, ds, j.add_x);
            if (j.dr.a.data) tn_row_put8<FAST>(j.dr, tn_row_at<FAST>(j.dr, row), i, j.d, ds, j.add_r);
        }
}

/* Where a column sum goes. */
struct target {
    void *data; /* (d), `step` apart */
    tn_dtype dtype;
    int64_t step;
    bool add;
    int parts; /* partial sums there are */
};

struct targets {
    target of[SUMS];
};

/* The sum of the partial sums of each column; blockIdx.y: weight, bias or columns of dx. Blocks of (32, SUMMERS). Parts
 * that are not there count as zeros, so that their number does not change the order. */
static __global__ void __launch_bounds__(32 * SUMMERS)
    sum_parts(const float *partial, int d, const __grid_constant__ targets all)
{
    __shared__ float sums[SUMMERS][33];
    const int i = blockIdx.x * 32 + threadIdx.x, which = blockIdx.y;
    const target &t = all.of[which];
    if (!t.data) return;
    float sum = 0;
#pragma unroll 8
    for (int p = threadIdx.y; p < t.parts && i < d; p += SUMMERS) sum += partial[((int64_t)p * SUMS + which) * d + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= d) return;
    for (int k = 1; k < SUMMERS; k++) sum += sums[k][threadIdx.x];
    tn_put(t.data, t.dtype, i * t.step, sum, t.add);
}

/* --- on the host ---------------------------------------------------------------------------------------------------- */

/* A set that is not there is no obstacle. */
static bool fast_or_absent(const tn_rowset &s) { return !s.a.data || s.fast; }

static bool all_fast(const job &j)
{
    return fast_or_absent(j.x) && fast_or_absent(j.r) && fast_or_absent(j.w) && fast_or_absent(j.b) &&
           fast_or_absent(j.y) && fast_or_absent(j.s) && (!j.stat.a.data || j.stat.even) && fast_or_absent(j.dy) &&
           fast_or_absent(j.dsum) && fast_or_absent(j.dx) && fast_or_absent(j.dr);
}

static int least(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

static bool layer_of(const tn_call *c) { return ((const tn_norm_attr *)c->attr)->kind == TN_NORM_LAYER; }

static job job_of(const tn_call *c)
{
    job j = {};
    j.d = (int)tn_row_len(&c->in[TN_NORM_X]);
    j.eps = ((const tn_norm_attr *)c->attr)->eps;
    j.threads = j.d >= HELD ? TN_TEAM_BLOCK : (j.d + 255) / 256 * 32;
    j.w = tn_rows_of(&c->in[TN_NORM_W]);
    j.stat = tn_rows_of(&c->out[c->n_out - 1]);
    return j;
}

/* Teams of a block: whole ones. */
static int teams_of(int threads) { return TN_TEAM_BLOCK / threads; }

static target target_of(const tn_call *c, int input, int parts)
{
    const tn_arg *a = &c->din[input];
    return { a->data, a->dtype, a->data ? a->stride[0] : 0, (bool)(c->accumulate >> input & 1), parts };
}

/* Of the four builds of a kernel the one for this norm and these tensors. */
#define PICK(name, layer, fast)                                                                                        \
    ((kernel *)((layer)  ? (fast) ? name<true, true> : name<true, false>                                               \
                 : (fast) ? name<false, true>                                                                          \
                         : name<false, false>))

extern "C" tn_status tn_norm_forward_cuda(const tn_call *c)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t rows = tn_all_rows(&c->in[TN_NORM_X]);
    job j = job_of(c);
    if (!rows || !j.d) return TN_OK;
    j.x = tn_rows_of(&c->in[TN_NORM_X]);
    j.r = tn_rows_of(&c->in[TN_NORM_RESIDUAL]);
    j.b = tn_rows_of(&c->in[TN_NORM_B]);
    j.y = tn_rows_of(&c->out[TN_NORM_Y]);
    j.s = tn_rows_of(c->n_out == 3 ? &c->out[TN_NORM_SUM] : NULL);
    const bool fast = all_fast(j), held = j.d <= HELD;
    const warp_kernel by_warp = fast ? forward_warp_of(j, layer_of(c)) : warp_kernel{};
    if (by_warp.run) {
        const int most = tn_cuda_queue_of(c)->multiprocessors * by_warp.blocks;
        by_warp.run<<<(unsigned)least((rows + WARPS - 1) / WARPS, most), WARP_BLOCK, 0, stream>>>(j);
        TN_CUDA_LAUNCHED();
        return TN_OK;
    }
    const int teams = teams_of(j.threads);
    const unsigned blocks = tn_blocks(c, rows, held ? teams : 1), threads = (unsigned)(teams * j.threads);
    kernel *const k = held ? PICK(forward_held, layer_of(c), fast) : PICK(forward_long, layer_of(c), fast);
    k<<<blocks, threads, 0, stream>>>(j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* By warps, where the rows are for them; returns the number of partial sums, or 0: nothing was launched. */
static int launch_warps(const tn_call *c, job j, int64_t rows)
{
    if (!j.dy.a.data || !j.s.a.data || !all_fast(j)) return 0;
    const warp_kernel by_warp = backward_warp_of(j, layer_of(c));
    if (!by_warp.run) return 0;
    if (j.add_x && !j.dsum.a.data && !j.dr.a.data) { /* what dx has already is fetched early, as dsum would be */
        j.dsum = j.dx;
        j.add_x = false;
    }
    const int most = least(tn_cuda_queue_of(c)->multiprocessors * by_warp.blocks, MOST_PARTS);
    const int blocks = least((rows + WARPS - 1) / WARPS, most);
    by_warp.run<<<(unsigned)blocks, WARP_BLOCK, 0, tn_cuda_stream(c)>>>(j);
    return blocks;
}

/* Launches what makes dx, dr and the partial sums; returns how many partial sums there are. */
static int launch_rows(const tn_call *c, job *j, int64_t rows)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int processors = tn_cuda_queue_of(c)->multiprocessors, most = least(2 * processors, MOST_PARTS);
    const bool turns = j->dx.a.data || j->dr.a.data, learns = j->want_w || j->want_b;
    const unsigned threads = (unsigned)(teams_of(j->threads) * j->threads), many = tn_blocks(c, rows, 1);
    const bool fast = all_fast(*j), layer = layer_of(c);
    if (!j->dy.a.data) {
        if (turns && j->dsum.a.data)
            (fast ? pass_on<true> : pass_on<false>)<<<many, (unsigned)j->threads, 0, stream>>>(*j);
        return 0;
    }
    if (j->s.a.data && j->d <= HELD) {
        const int blocks = least((rows + teams_of(j->threads) - 1) / teams_of(j->threads), most);
        PICK(backward_held, layer, fast)<<<blocks, threads, 0, stream>>>(*j);
        return blocks;
    }
    if (turns) PICK(backward_long, layer, fast)<<<many, threads, 0, stream>>>(*j);
    if (!learns) return 0;
    const dim3 grid((unsigned)(j->d + 255) / 256, (unsigned)least(rows, most));
    (layer ? backward_columns<true> : backward_columns<false>)<<<grid, 256, 0, stream>>>(*j);
    return (int)grid.y;
}

extern "C" size_t tn_norm_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims dims = s->in[TN_NORM_X].dims;
    const int64_t rows = tn_norm_rows(dims), d = dims.dim[dims.rank - 1];
    return backward ? (size_t)(least(rows, MOST_PARTS) * SUMS * d) * sizeof(float) : 0;
}

extern "C" tn_status tn_norm_backward_cuda(const tn_call *c)
{
    const tn_arg *dw = &c->din[TN_NORM_W], *db = &c->din[TN_NORM_B], *dc = &c->din[TN_NORM_COLUMNS];
    const int64_t rows = tn_all_rows(&c->in[TN_NORM_X]);
    job j = job_of(c);
    if (!j.d) return TN_OK;
    j.s = tn_rows_of(c->n_out == 3 ? &c->out[TN_NORM_SUM] : &c->in[TN_NORM_X]);
    j.dy = tn_rows_of(&c->dout[TN_NORM_Y]);
    j.dsum = tn_rows_of(c->n_out == 3 ? &c->dout[TN_NORM_SUM] : NULL);
    j.dx = tn_rows_of(&c->din[TN_NORM_X]);
    j.dr = tn_rows_of(&c->din[TN_NORM_RESIDUAL]);
    j.add_x = c->accumulate >> TN_NORM_X & 1;
    j.add_r = c->accumulate >> TN_NORM_RESIDUAL & 1;
    j.want_w = dw->data != NULL;
    j.want_b = db->data != NULL;
    j.want_c = dc->data != NULL;
    j.partial = (float *)c->work;
    int parts = rows ? launch_warps(c, j, rows) : 0, columns = parts;
    if (rows && !parts) parts = launch_rows(c, &j, rows);
    TN_CUDA_LAUNCHED();
    if (rows && j.want_c && !columns) {
        const dim3 grid((unsigned)(j.d + 255) / 256, (unsigned)(columns = least(rows, SUM_PARTS)));
        sum_columns<<<grid, 256, 0, tn_cuda_stream(c)>>>(j);
        TN_CUDA_LAUNCHED();
    }
    if (!dw->data && !db->data && !dc->data) return TN_OK;
    const targets to = { { target_of(c, TN_NORM_W, parts), target_of(c, TN_NORM_B, parts),
                           target_of(c, TN_NORM_COLUMNS, columns) } };
    const dim3 grid((unsigned)(j.d + 31) / 32, SUMS), block(32, SUMMERS);
    sum_parts<<<grid, block, 0, tn_cuda_stream(c)>>>(j.partial, j.d, to);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
