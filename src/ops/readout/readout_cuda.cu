/* readout on the GPU. A thread takes 8 neighbours of a row and goes from row to row in the same columns, so that skip, gain
 * and their gradients stay in registers; the lanes of a group add their squares with shuffles. Backward, everything is
 * computed again from the inputs. Gradients of skip and gain: a thread adds its rows, a block its threads of a column in
 * order, tn_sum_rows the blocks. Which thread takes a row depends on the row's number alone.
 *
 * Groups that are no power of two times 8, or longer than 256, go to a warp each, number by number (`odd`).
 * Bytes a number in bf16: forward 8, backward 14 (6 and 10 without x). Products that are summed are written so that the
 * compiler has no choice: strided tensors give the bits of contiguous ones. */
#include "ops/gate/gate_value.cuh"
#include "ops/readout/readout.h"
#include "ops/readout/readout_args.h"
#include "ops/rows.cuh"
#include "ops/sum_rows.cuh"

namespace
{

enum {
    THREADS = 256,
    ANY = -1,
    MOST_PARTS = 512,
    SPAN = 256 /* numbers of a row to an odd warp, where there is no group */
};

struct job {
    tn_rowset c, z, x, y, dy, dc, dz, dx;
    tn_rowset skip, gain; /* (W) */
    int width;            /* W */
    int columns;          /* of a row, to a block: blockIdx.y counts them off */
    int group, act;
    float scale, eps;
    bool add_c, add_z, add_x;
    bool learns;    /* gradients of skip or gain are wanted */
    float *partial; /* (parts, 2, W): skip, gain */
};

/* Over the `lanes` neighbouring threads of a group, a power of two. Other groups of the warp may be done already. */
__device__ __forceinline__ float group_sum(float x, int lanes)
{
    const unsigned all = lanes == 32 ? 0xffffffffu : ((1u << lanes) - 1) << (threadIdx.x & 31 & ~(lanes - 1));
    for (int d = lanes / 2; d; d >>= 1) x += __shfl_xor_sync(all, x, d);
    return x;
}

/* --- 8 numbers a thread ----------------------------------------------------------------------------------------------- */

/* BF16: rows of 16-byte vectors of bf16; VECTORS: of any type; NUMBERS: rows of any strides. */
enum how { BF16, VECTORS, NUMBERS };

template <how HOW>
struct eight { /* as it lies in memory, or opened already */
    tn_f8 x;
    __device__ __forceinline__ void ask(const tn_rowset &s, int64_t row, int i, int n)
    {
        x = tn_row_load8<HOW == VECTORS>(s, tn_row_at<HOW == VECTORS>(s, row), i, n);
    }
    __device__ __forceinline__ tn_f8 open() const { return x; }
};

template <>
struct eight<BF16> {
    uint4 q;
    __device__ __forceinline__ void ask(const tn_rowset &s, int64_t row, int i, int)
    {
        q = *(const uint4 *)((const uint16_t *)s.a.data + row * s.distance + i);
    }
    __device__ __forceinline__ tn_f8 open() const { return tn_open8(q); }
};

template <how HOW>
__device__ __forceinline__ void put(const tn_rowset &s, int64_t row, int i, int n, const tn_f8 &x, bool add)
{
    if constexpr (HOW == BF16) tn_put8(s.a.data, TN_BF16, row * s.distance + i, x, add);
    else tn_row_put8<HOW == VECTORS>(s, tn_row_at<HOW == VECTORS>(s, row), i, n, x, add);
}

/* Columns i .. i+7 of skip or gain. */
__device__ __forceinline__ tn_f8 columns_of(const tn_rowset &s, int i, int n, float otherwise)
{
    tn_f8 r;
    if (s.a.data && s.fast && i + 8 <= n) return tn_load8(s.a.data, s.a.dtype, i);
#pragma unroll
    for (int k = 0; k < 8; k++)
        r.v[k] = s.a.data && i + k < n ? tn_load(s.a.data, s.a.dtype, (i + k) * s.step) : otherwise;
    return r;
}

/* Where a thread works: its columns i .. i+7, its first row and the step to the next. */
struct place {
    int i, threads, of_row; /* threads to a row; this one's row in the block */
    int64_t first, step;
    bool idle;
};

__device__ __forceinline__ place place_of(const job &j)
{
    const int from = blockIdx.y * j.columns, columns = min(j.columns, j.width - from);
    place p;
    p.threads = (columns + 7) / 8;
    const int rows = THREADS / p.threads;
    p.of_row = threadIdx.x / p.threads;
    p.i = from + ((int)threadIdx.x - p.of_row * p.threads) * 8;
    p.first = (int64_t)blockIdx.x * rows + p.of_row;
    p.step = (int64_t)gridDim.x * rows;
    p.idle = p.of_row >= rows;
    return p;
}

/* s, from c and x; what lies beyond the row's end is 0 in both. */
__device__ __forceinline__ tn_f8 sum_of(const tn_f8 &c, const tn_f8 &x, const tn_f8 &skip, float scale)
{
    tn_f8 s;
#pragma unroll
    for (int k = 0; k < 8; k++) s.v[k] = fmaf(skip.v[k], x.v[k], __fmul_rn(scale, c.v[k]));
    return s;
}

__device__ __forceinline__ float norm_of(const tn_f8 &s, int group, float eps)
{
    float squares = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) squares = fmaf(s.v[k], s.v[k], squares);
    return 1 / sqrtf(group_sum(squares, group / 8) / (float)group + eps);
}

template <how HOW, int KIND, bool NORM>
__global__ void __launch_bounds__(THREADS, 4) forward(const __grid_constant__ job j)
{
    const place p = place_of(j);
    if (p.idle) return;
    const int kind = KIND == ANY ? j.act : KIND;
    const bool skips = j.x.a.data;
    const tn_f8 skip = columns_of(j.skip, p.i, j.width, 0.f), gain = columns_of(j.gain, p.i, j.width, 1.f);
    const int64_t rows = tn_d_rows(j.y.a);
    for (int64_t row = p.first; row < rows; row += p.step) {
        eight<HOW> c, z, x;
        c.ask(j.c, row, p.i, j.width);
        z.ask(j.z, row, p.i, j.width);
        tn_f8 more = {};
        if (skips) {
            x.ask(j.x, row, p.i, j.width);
            more = x.open();
        }
        tn_f8 s = sum_of(c.open(), more, skip, j.scale);
        const float r = NORM ? norm_of(s, j.group, j.eps) : 1.f;
        const tn_f8 gate = z.open();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (NORM) s.v[k] = __fmul_rn(__fmul_rn(s.v[k], r), gain.v[k]);
            s.v[k] = __fmul_rn(s.v[k], tn_d_gate(kind, gate.v[k]));
        }
        put<HOW>(j.y, row, p.i, j.width, s, false);
    }
}

/* The block's sums of columns, rows in order. All threads of the block. */
__device__ __forceinline__ void fold(const job &j, const place &p, const tn_f8 &mine, int which, float *shared)
{
    const int from = blockIdx.y * j.columns, columns = min(j.columns, j.width - from), rows = THREADS / p.threads;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++) shared[threadIdx.x * 8 + k] = mine.v[k];
    __syncthreads();
    float *to = j.partial + ((int64_t)blockIdx.x * 2 + which) * j.width + from;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float sum = shared[i];
        for (int r = 1; r < rows; r++) sum += shared[r * p.threads * 8 + i];
        to[i] = sum;
    }
}

/* What the backward pass reads of a row. */
template <how HOW>
struct taken {
    eight<HOW> c, z, x, d;
    __device__ __forceinline__ void ask(const job &j, int64_t row, int i)
    {
        d.ask(j.dy, row, i, j.width);
        c.ask(j.c, row, i, j.width);
        z.ask(j.z, row, i, j.width);
        if (j.x.a.data) x.ask(j.x, row, i, j.width);
    }
};

/* BF16: a row is on its way while the one before it is worked on. */
template <how HOW, int KIND, bool NORM>
__global__ void __launch_bounds__(THREADS, 2) backward(const __grid_constant__ job j)
{
    __shared__ float shared[THREADS * 8];
    const place p = place_of(j);
    const int kind = KIND == ANY ? j.act : KIND;
    const bool skips = j.x.a.data;
    const tn_f8 skip = columns_of(j.skip, p.i, j.width, 0.f), gain = columns_of(j.gain, p.i, j.width, 1.f);
    const int64_t rows = p.idle ? 0 : tn_d_rows(j.dy.a);
    tn_f8 dskip = {}, dgain = {};
    taken<HOW> now, next;
    if (HOW == BF16 && p.first < rows) next.ask(j, p.first, p.i);
    for (int64_t row = p.first; row < rows; row += p.step) {
        if (HOW == BF16) now = next;
        else now.ask(j, row, p.i);
        if (HOW == BF16 && row + p.step < rows) next.ask(j, row + p.step, p.i);
        const tn_f8 more = skips ? now.x.open() : tn_f8{};
        tn_f8 s = sum_of(now.c.open(), more, skip, j.scale);
        const float r = NORM ? norm_of(s, j.group, j.eps) : 1.f;
        tn_f8 dn = now.d.open(), dz = now.z.open();
        float along = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) { /* s becomes n without its gain, dn its gradient */
            float slope;
            const float value = tn_d_gate_slope(kind, dz.v[k], &slope);
            if (NORM) s.v[k] = __fmul_rn(s.v[k], r);
            dz.v[k] = __fmul_rn(__fmul_rn(dn.v[k], NORM ? __fmul_rn(s.v[k], gain.v[k]) : s.v[k]), slope);
            dn.v[k] = __fmul_rn(dn.v[k], value);
            if (NORM) {
                dgain.v[k] = fmaf(dn.v[k], s.v[k], dgain.v[k]);
                dn.v[k] = __fmul_rn(dn.v[k], gain.v[k]);
                along = fmaf(dn.v[k], s.v[k], along);
            }
        }
        if (j.dz.a.data) put<HOW>(j.dz, row, p.i, j.width, dz, j.add_z);
        if (NORM) {
            along = group_sum(along, j.group / 8) / (float)j.group;
#pragma unroll
            for (int k = 0; k < 8; k++) dn.v[k] = __fmul_rn(r, fmaf(-s.v[k], along, dn.v[k]));
        }
        tn_f8 dc, dx;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            dskip.v[k] = fmaf(dn.v[k], more.v[k], dskip.v[k]);
            dc.v[k] = __fmul_rn(j.scale, dn.v[k]);
            dx.v[k] = __fmul_rn(skip.v[k], dn.v[k]);
        }
        if (j.dc.a.data) put<HOW>(j.dc, row, p.i, j.width, dc, j.add_c);
        if (j.dx.a.data) put<HOW>(j.dx, row, p.i, j.width, dx, j.add_x);
    }
    if (!j.learns) return;
    fold(j, p, dskip, 0, shared);
    fold(j, p, dgain, 1, shared);
}

/* --- odd groups: a warp each ------------------------------------------------------------------------------------------- */

struct numbers { /* of one column of one row */
    float s, x, z, dy, skip, gain;
};

__device__ __forceinline__ float one(const tn_rowset &s, int64_t row, int i, float otherwise)
{
    return s.a.data ? tn_load(s.a.data, s.a.dtype, tn_row_at<false>(s, row) + i * s.step) : otherwise;
}

__device__ __forceinline__ numbers numbers_at(const job &j, int64_t row, int i)
{
    numbers a = { 0, one(j.x, row, i, 0), one(j.z, row, i, 0), one(j.dy, row, i, 0), 0, 1 };
    if (j.skip.a.data) a.skip = tn_load(j.skip.a.data, j.skip.a.dtype, i * j.skip.step);
    if (j.gain.a.data) a.gain = tn_load(j.gain.a.data, j.gain.a.dtype, i * j.gain.step);
    a.s = fmaf(a.skip, a.x, __fmul_rn(j.scale, one(j.c, row, i, 0)));
    return a;
}

__device__ __forceinline__ float odd_norm(const job &j, int64_t row, int from, int to)
{
    float squares = 0;
    if (!j.group) return 1;
    for (int i = from + (threadIdx.x & 31); i < to; i += 32) {
        const float s = numbers_at(j, row, i).s;
        squares = fmaf(s, s, squares);
    }
    return 1 / sqrtf(tn_warp_sum(squares) / (float)j.group + j.eps);
}

/* Group blockIdx.y of the rows blockIdx.x, blockIdx.x + gridDim.x, ...; a block is a warp. */
__global__ void __launch_bounds__(32) odd_forward(const __grid_constant__ job j)
{
    const int span = j.group ? j.group : SPAN, from = blockIdx.y * span, to = min(from + span, j.width);
    const int64_t rows = tn_d_rows(j.y.a);
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float r = odd_norm(j, row, from, to);
        for (int i = from + threadIdx.x; i < to; i += 32) {
            const numbers a = numbers_at(j, row, i);
            const float y = a.s * r * a.gain * tn_d_gate(j.act, a.z);
            tn_put(j.y.a.data, j.y.a.dtype, tn_row_at<false>(j.y, row) + i * j.y.step, y, false);
        }
    }
}

__device__ __forceinline__ void odd_put(const tn_rowset &s, int64_t row, int i, float x, bool add)
{
    if (s.a.data) tn_put(s.a.data, s.a.dtype, tn_row_at<false>(s, row) + i * s.step, x, add);
}

__global__ void __launch_bounds__(32) odd_backward(const __grid_constant__ job j)
{
    const int span = j.group ? j.group : SPAN, from = blockIdx.y * span, to = min(from + span, j.width);
    const int64_t rows = tn_d_rows(j.dy.a);
    float *const dskip = j.partial + (int64_t)blockIdx.x * 2 * j.width, *const dgain = dskip + j.width;
    for (int i = from + threadIdx.x; j.learns && i < to; i += 32) dskip[i] = dgain[i] = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float r = odd_norm(j, row, from, to);
        float along = 0, slope;
        for (int i = from + threadIdx.x; j.group && i < to; i += 32) {
            const numbers a = numbers_at(j, row, i);
            along = fmaf(a.dy * tn_d_gate_slope(j.act, a.z, &slope) * a.gain, a.s * r, along);
        }
        along = j.group ? tn_warp_sum(along) / (float)j.group : 0;
        for (int i = from + threadIdx.x; i < to; i += 32) {
            const numbers a = numbers_at(j, row, i);
            const float value = tn_d_gate_slope(j.act, a.z, &slope), n = a.s * r, dm = a.dy * value;
            const float ds = r * fmaf(-n, along, dm * a.gain);
            odd_put(j.dz, row, i, a.dy * n * a.gain * slope, j.add_z);
            odd_put(j.dc, row, i, j.scale * ds, j.add_c);
            odd_put(j.dx, row, i, a.skip * ds, j.add_x);
            if (!j.learns) continue;
            dskip[i] = fmaf(ds, a.x, dskip[i]);
            dgain[i] = fmaf(dm, n, dgain[i]);
        }
    }
}

/* --- on the host --------------------------------------------------------------------------------------------------------- */

typedef void kernel(const job j);

/* What kernel a shape goes to must not depend on where its numbers lie. */
bool is_odd(int group) { return group % 8 || group > 256 || (group & (group - 1)); }

job job_of(const tn_call *c)
{
    const tn_readout_attr *a = (const tn_readout_attr *)c->attr;
    job j = {};
    j.c = tn_rows_of(&c->in[TN_READOUT_C]), j.z = tn_rows_of(&c->in[TN_READOUT_Z]),
    j.x = tn_rows_of(&c->in[TN_READOUT_X]);
    j.skip = tn_rows_of(&c->in[TN_READOUT_SKIP]), j.gain = tn_rows_of(&c->in[TN_READOUT_GAIN]);
    j.width = (int)tn_row_len(&c->in[TN_READOUT_C]);
    j.group = (int)a->group, j.act = a->act, j.scale = a->scale, j.eps = a->eps;
    const int most = THREADS * 8; /* columns of a block: whole groups */
    j.columns = j.width <= most ? j.width : j.group ? most / j.group * j.group : most;
    if (j.width % 256 == 0 && !is_odd(j.group)) j.columns = 256; /* a warp to a row: no thread of a block is idle */
    return j;
}

how how_of(const job &j)
{
    const tn_rowset *all[] = { &j.c, &j.z, &j.x, &j.y, &j.dy, &j.dc, &j.dz, &j.dx };
    bool fast = j.width % 8 == 0, bf16 = true;
    for (const tn_rowset *s : all) {
        if (!s->a.data) continue;
        fast = fast && s->fast;
        bf16 = bf16 && s->a.dtype == TN_BF16;
    }
    return !fast ? NUMBERS : bf16 ? BF16 : VECTORS;
}

template <bool NORM>
kernel *forward_for(const job &j)
{
    const how h = how_of(j);
    if (h == NUMBERS) return forward<NUMBERS, ANY, NORM>;
    if (h == VECTORS) return forward<VECTORS, ANY, NORM>;
    return j.act == TN_GATE_SILU      ? forward<BF16, TN_GATE_SILU, NORM>
           : j.act == TN_GATE_SIGMOID ? forward<BF16, TN_GATE_SIGMOID, NORM>
                                      : forward<BF16, TN_GATE_GELU, NORM>;
}

template <bool NORM>
kernel *backward_for(const job &j)
{
    const how h = how_of(j);
    if (h == NUMBERS) return backward<NUMBERS, ANY, NORM>;
    if (h == VECTORS) return backward<VECTORS, ANY, NORM>;
    return j.act == TN_GATE_SILU      ? backward<BF16, TN_GATE_SILU, NORM>
           : j.act == TN_GATE_SIGMOID ? backward<BF16, TN_GATE_SIGMOID, NORM>
                                      : backward<BF16, TN_GATE_GELU, NORM>;
}

/* Blocks of the 8-number kernels: `each` a multiprocessor, or fewer; at most `parts` times the chunks of a row. */
dim3 grid_of(const tn_call *c, const job &j, int64_t rows, int each, int parts)
{
    const int chunks = (j.width + j.columns - 1) / j.columns, of_block = THREADS / ((j.columns + 7) / 8);
    int64_t most = (int64_t)tn_cuda_queue_of(c)->multiprocessors * each / chunks;
    const int64_t want = (rows + of_block - 1) / of_block;
    if (most > parts) most = parts;
    if (most > want) most = want;
    return dim3((unsigned)(most < 1 ? 1 : most), (unsigned)chunks);
}

dim3 odd_grid(const job &j, int64_t rows)
{
    const int span = j.group ? j.group : SPAN;
    return dim3((unsigned)(rows < MOST_PARTS ? rows : MOST_PARTS), (unsigned)((j.width + span - 1) / span));
}

struct finish {
    tn_arg skip, gain;
    bool add_skip, add_gain;
    __device__ __forceinline__ void operator()(int64_t k, const double *total) const
    {
        if (skip.data) tn_put(skip.data, skip.dtype, k * skip.stride[0], (float)total[0], add_skip);
        if (gain.data) tn_put(gain.data, gain.dtype, k * gain.stride[0], (float)total[1], add_gain);
    }
};

} // namespace

extern "C" tn_status tn_readout_forward_cuda(const tn_call *c)
{
    job j = job_of(c);
    const int64_t rows = tn_all_rows(&c->in[TN_READOUT_C]);
    if (!rows || !j.width) return TN_OK;
    j.y = tn_rows_of(&c->out[0]);
    if (is_odd(j.group)) {
        odd_forward<<<odd_grid(j, rows), 32, 0, tn_cuda_stream(c)>>>(j);
    } else {
        kernel *const k = j.group ? forward_for<true>(j) : forward_for<false>(j);
        k<<<grid_of(c, j, rows, 8, INT32_MAX), THREADS, 0, tn_cuda_stream(c)>>>(j);
    }
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" size_t tn_readout_work_cuda(const tn_sig *s, bool backward)
{
    const tn_dims dims = s->in[TN_READOUT_C].dims;
    const int64_t rows = tn_readout_rows(dims);
    return backward ? (size_t)((rows < MOST_PARTS ? rows : MOST_PARTS) * 2 * dims.dim[dims.rank - 1]) * sizeof(float)
                    : 0;
}

extern "C" tn_status tn_readout_backward_cuda(const tn_call *c)
{
    const tn_arg *skip = &c->din[TN_READOUT_SKIP], *gain = &c->din[TN_READOUT_GAIN];
    job j = job_of(c);
    const int64_t rows = tn_all_rows(&c->in[TN_READOUT_C]);
    if (!j.width) return TN_OK;
    j.dy = tn_rows_of(&c->dout[0]);
    j.dc = tn_rows_of(&c->din[TN_READOUT_C]), j.dz = tn_rows_of(&c->din[TN_READOUT_Z]),
    j.dx = tn_rows_of(&c->din[TN_READOUT_X]);
    j.add_c = c->accumulate >> TN_READOUT_C & 1;
    j.add_z = c->accumulate >> TN_READOUT_Z & 1;
    j.add_x = c->accumulate >> TN_READOUT_X & 1;
    j.learns = skip->data || gain->data;
    j.partial = (float *)c->work;
    const int each = 2; /* what the registers leave room for */
    const dim3 grid = is_odd(j.group) ? odd_grid(j, rows) : grid_of(c, j, rows, each, MOST_PARTS);
    if (rows && is_odd(j.group)) odd_backward<<<grid, 32, 0, tn_cuda_stream(c)>>>(j);
    else if (rows)
        (j.group ? backward_for<true>(j) : backward_for<false>(j))<<<grid, THREADS, 0, tn_cuda_stream(c)>>>(j);
    TN_CUDA_LAUNCHED();
    if (!j.learns) return TN_OK;
    tn_sum_rows sums = {};
    sums.partial = j.partial, sums.B = 1, sums.parts = rows ? grid.x : 0, sums.columns = j.width;
    const finish f = { *skip, *gain, (bool)(c->accumulate >> TN_READOUT_SKIP & 1),
                       (bool)(c->accumulate >> TN_READOUT_GAIN & 1) };
    return tn_sum_rows_run<2>(c, &sums, f);
}
