/* Rows of logits become losses and, in place, gradients. bf16 rows take a pass that is bound by memory: the row is staged
 * in shared memory, so that it is read once and written once, and two blocks share a multiprocessor, so that one loads
 * while the other computes. Rows that do not fit there are read twice; other types have a kernel of their own.
 *
 * A thread stages and reads its own vectors only, so that the only barrier is that of the sum. Exponentials are powers of 2
 * with the factor inside one multiply-add. The label is no concern of the loops: its logit is read before them and its
 * gradient written after them. */
#include "ops/linear_xent/linear_xent_rows.cuh"

enum { VECTORS = 4, STAGES = 4 }; /* vectors of a thread that have one maximum; groups of them on their way */

static constexpr float LOG2E = 1.4426950408889634f;

__device__ __forceinline__ float power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* --- one row ------------------------------------------------------------------------------------------------------------ */

/* Maximum and sum over a block of THREADS threads, given each thread's. NaN passes through the sum. */
template <int THREADS>
__device__ float2 block_lse(float most, float sum, float2 *shared)
{
    for (int d = 16; d; d >>= 1) {
        const float m = __shfl_xor_sync(0xffffffffu, most, d), s = __shfl_xor_sync(0xffffffffu, sum, d),
                    top = fmaxf(most, m);
        sum = (most == top ? sum : sum * __expf(most - top)) + (m == top ? s : s * __expf(m - top));
        most = top;
    }
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = make_float2(most, sum);
    __syncthreads();
    float top = -INFINITY, total = 0;
    for (int i = 0; i < THREADS / 32; i++) top = fmaxf(top, shared[i].x);
    for (int i = 0; i < THREADS / 32; i++)
        if (shared[i].y != 0) total += shared[i].y * (shared[i].x == top ? 1.f : __expf(shared[i].x - top));
    return make_float2(top, total);
}

/* Loss of the row's token; the coefficient of its gradient. Thread 0 writes. */
__device__ float finish_row(const tn_xent_rows &j, int64_t i, bool in, float lse, float target)
{
    const bool ok = in && j.t.label[i] >= 0 && j.t.label[i] < j.t.classes;
    const float nll = ok ? lse - target : NAN, w = in ? tn_head_weight(j.t, i) : 0.f;
    if (threadIdx.x == 0) {
        if (j.term) j.term[i] = in ? (double)w * ((double)nll + (double)j.z * (double)lse * (double)lse) : 0;
        if (j.nll) j.nll[i] = in ? nll : 0.f;
        if (j.lse) j.lse[i] = in ? lse : 0.f;
    }
    if (!in || !j.gradient) return 0.f;
    return ok ? (float)(*j.scale * (double)*j.dy) * w : NAN;
}

/* --- bf16 --------------------------------------------------------------------------------------------------------------- */

/* 8 numbers of bf16 and the bias that belongs to them. */
template <bool BIAS>
__device__ __forceinline__ tn_f8 widen(uint4 q, const tn_arg &bias, int vector)
{
    tn_f8 x = tn_load8(&q, TN_BF16, 0);
    if (BIAS) {
        const tn_f8 b = tn_load8(bias.data, bias.dtype, vector * (int64_t)8);
#pragma unroll
        for (int e = 0; e < 8; e++) x.v[e] += b.v[e];
    }
    return x;
}

/* A thread's maximum so far and the sum of exponentials below it, in four chains. */
struct running {
    float most, sum[4];
};

__device__ __forceinline__ void raise(running &s, float top)
{
    if (!(top > s.most)) return;
    const float factor = power2((s.most - top) * LOG2E); /* 0 the first time */
#pragma unroll
    for (int e = 0; e < 4; e++) s.sum[e] *= factor;
    s.most = top;
}

__device__ __forceinline__ void add_vector(running &s, const tn_f8 &x)
{
    const float shift = s.most == -INFINITY ? 0.f : -s.most * LOG2E; /* all numbers so far are -inf: their sum is 0 */
#pragma unroll
    for (int e = 0; e < 8; e++) s.sum[e & 3] += power2(fmaf(x.v[e], LOG2E, shift));
}

template <bool BIAS>
__device__ __forceinline__ void take_one(running &s, uint4 q, const tn_arg &bias, int vector)
{
    const tn_f8 x = widen<BIAS>(q, bias, vector);
    float top = x.v[0];
#pragma unroll
    for (int e = 1; e < 8; e++) top = fmaxf(top, x.v[e]);
    raise(s, top);
    add_vector(s, x);
}

__device__ __forceinline__ __nv_bfloat162 pair(uint32_t w) { return *(const __nv_bfloat162 *)&w; }

/* VECTORS of them with one maximum, which bf16 pairs find in half the steps. */
__device__ __forceinline__ void take_several(running &s, const uint4 *q)
{
    __nv_bfloat162 top = pair(q[0].x);
#pragma unroll
    for (int k = 0; k < VECTORS; k++)
        top = __hmax2(__hmax2(top, pair(q[k].x)), __hmax2(__hmax2(pair(q[k].y), pair(q[k].z)), pair(q[k].w)));
    raise(s, fmaxf(__low2float(top), __high2float(top)));
#pragma unroll
    for (int k = 0; k < VECTORS; k++) add_vector(s, tn_load8(&q[k], TN_BF16, 0));
}

__device__ __forceinline__ uint4 gradient_of(tn_f8 x, float p, float shift)
{
    uint4 q;
#pragma unroll
    for (int e = 0; e < 8; e++) x.v[e] = p * power2(fmaf(x.v[e], LOG2E, shift));
    tn_store8(&q, TN_BF16, 0, x);
    return q;
}

__device__ __forceinline__ void copy_later(uint4 *to, const uint4 *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int LEFT>
__device__ __forceinline__ void wait_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* The row in whole vectors 0 .. full-1, in groups of VECTORS for each thread, and an end: the vector with the last classes,
 * if it is not full, and those behind it. */
template <int THREADS, bool STAGED, bool BIAS>
struct walk {
    static constexpr int GROUP = THREADS * VECTORS;
    uint4 *row, *staged; /* in global and shared memory */
    int full;

    __device__ void fetch(int group) const
    {
#pragma unroll
        for (int k = 0; STAGED && k < VECTORS; k++) {
            const int i = group * GROUP + k * THREADS + threadIdx.x;
            if (i < full) copy_later(staged + i, row + i);
        }
        if (STAGED) close_group();
    }

    /* All that STAGES groups hold; before anything else, as it takes longest. */
    __device__ void start() const
    {
        for (int g = 0; STAGED && g < STAGES; g++) fetch(g);
    }

    __device__ uint4 at(int i) const { return STAGED ? staged[i] : row[i]; }

    __device__ void sum(running &s, const tn_arg &bias) const
    {
        int g = 0;
        for (; (g + 1) * GROUP <= full; g++) {
            uint4 q[VECTORS];
            if (STAGED) wait_groups<STAGES - 1>();
#pragma unroll
            for (int k = 0; k < VECTORS; k++) q[k] = at(g * GROUP + k * THREADS + threadIdx.x);
            fetch(g + STAGES);
            if (!BIAS) take_several(s, q);
#pragma unroll
            for (int k = 0; BIAS && k < VECTORS; k++)
                take_one<BIAS>(s, q[k], bias, g * GROUP + k * THREADS + threadIdx.x);
        }
        if (STAGED) wait_groups<0>();
        for (int i = g * GROUP + threadIdx.x; i < full; i += THREADS) take_one<BIAS>(s, at(i), bias, i);
    }

    __device__ void replace(float p, float shift, const tn_arg &bias) const
    {
        int i = threadIdx.x;
        for (; i + 3 * THREADS < full; i += GROUP)
#pragma unroll
            for (int k = 0; k < VECTORS; k++)
                row[i + k * THREADS] = gradient_of(widen<BIAS>(at(i + k * THREADS), bias, i + k * THREADS), p, shift);
        for (; i < full; i += THREADS) row[i] = gradient_of(widen<BIAS>(at(i), bias, i), p, shift);
    }
};

/* What the last vector holds of the classes; -inf behind them. */
__device__ tn_f8 last_numbers(const tn_xent_rows &j, const __nv_bfloat16 *row)
{
    tn_f8 x;
    const int64_t V = j.t.classes, from = V / 8 * 8;
    for (int e = 0; e < 8; e++) {
        x.v[e] = -INFINITY;
        if (from + e >= V) continue;
        x.v[e] = __bfloat162float(row[from + e]);
        if (j.bias.data) x.v[e] += tn_load(j.bias.data, j.bias.dtype, from + e);
    }
    return x;
}

__device__ void clear_row(uint4 *row, int64_t vectors)
{
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) row[i] = make_uint4(0, 0, 0, 0);
}

/* A block has one row. */
template <int THREADS, bool STAGED, bool BIAS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS) bf16_rows(const __grid_constant__ tn_xent_rows j)
{
    extern __shared__ uint4 staged[];
    __shared__ float2 shared[THREADS / 32];
    const int64_t i = j.first + blockIdx.x, V = j.t.classes;
    const int full = (int)(V / 8), vectors = (int)(j.row / 8), last = full + (int)threadIdx.x;
    __nv_bfloat16 *numbers = (__nv_bfloat16 *)j.logits + blockIdx.x * j.row;
    const walk<THREADS, STAGED, BIAS> w = { (uint4 *)numbers, staged, full };
    w.start();
    if (!tn_head_counts(j.t, i)) {
        if (STAGED) wait_groups<0>();
        finish_row(j, i, false, 0, 0);
        if (j.gradient) clear_row(w.row, vectors);
        return;
    }
    const int64_t label = j.t.label[i];
    const bool ok = label >= 0 && label < V;
    float target = ok ? __bfloat162float(numbers[label]) : 0.f;
    if (BIAS && ok) target += tn_load(j.bias.data, j.bias.dtype, label);
    running s = { -INFINITY, { 0, 0, 0, 0 } };
    w.sum(s, j.bias);
    tn_f8 end = {};
    if (threadIdx.x == 0 && V % 8) { /* the vector that is not full */
        float top = -INFINITY;
        end = last_numbers(j, numbers);
        for (int e = 0; e < 8; e++) top = fmaxf(top, end.v[e]);
        raise(s, top);
        add_vector(s, end);
    }
    const float2 all = block_lse<THREADS>(s.most, (s.sum[0] + s.sum[1]) + (s.sum[2] + s.sum[3]), shared);
    const float lse = all.x + logf(all.y), coefficient = finish_row(j, i, true, lse, target);
    if (!j.gradient) return;
    const float p = coefficient * (1 + 2 * j.z * lse), shift = -lse * LOG2E;
    w.replace(p, shift, j.bias);
    if (last < vectors) w.row[last] = threadIdx.x == 0 && V % 8 ? gradient_of(end, p, shift) : make_uint4(0, 0, 0, 0);
    if (ok && threadIdx.x == (label / 8 < full ? label / 8 % THREADS : 0)) /* whoever wrote the vector */
        numbers[label] = __float2bfloat16_rn(p * power2(fmaf(target, LOG2E, shift)) - coefficient);
}

/* --- any type ----------------------------------------------------------------------------------------------------------- */

enum { ANY_THREADS = 512 };

/* A block per row, which is read twice. */
static __global__ void __launch_bounds__(ANY_THREADS) any_rows(const __grid_constant__ tn_xent_rows j)
{
    __shared__ float2 shared[ANY_THREADS / 32];
    __shared__ float target;
    const int64_t i = j.first + blockIdx.x, V = j.t.classes, base = blockIdx.x * j.row;
    const bool in = tn_head_counts(j.t, i);
    const int64_t label = in ? j.t.label[i] : -1;
    float most = -INFINITY, sum = 0;
    if (threadIdx.x == 0) target = 0;
    __syncthreads();
    for (int64_t v0 = threadIdx.x * 8; in && v0 < V; v0 += ANY_THREADS * 8) {
        tn_f8 x = tn_load8(j.logits, j.type, base + v0);
        float top = -INFINITY;
        for (int e = 0; e < 8; e++) {
            if (v0 + e >= V) x.v[e] = -INFINITY;
            else if (j.bias.data) x.v[e] += tn_load(j.bias.data, j.bias.dtype, (v0 + e) * j.bias.stride[0]);
            if (v0 + e == label) target = x.v[e];
            top = fmaxf(top, x.v[e]);
        }
        if (top > most) {
            sum = sum == 0 ? 0 : sum * expf(most - top);
            most = top;
        }
        for (int e = 0; e < 8; e++)
            if (v0 + e < V) sum += expf(x.v[e] - most);
    }
    const float2 all = block_lse<ANY_THREADS>(most, sum, shared); /* its barrier also publishes target */
    const float lse = all.x + logf(all.y), coefficient = finish_row(j, i, in, lse, target);
    if (!j.gradient) return;
    const float p = coefficient * (1 + 2 * j.z * lse);
    for (int64_t v0 = threadIdx.x * 8; v0 < j.row; v0 += ANY_THREADS * 8) {
        tn_f8 x = { { 0 } };
        if (in && v0 < V) {
            x = tn_load8(j.logits, j.type, base + v0);
            for (int e = 0; e < 8; e++) {
                if (j.bias.data && v0 + e < V)
                    x.v[e] += tn_load(j.bias.data, j.bias.dtype, (v0 + e) * j.bias.stride[0]);
                x.v[e] = v0 + e < V ? p * expf(x.v[e] - lse) : 0.f;
                if (v0 + e == label) x.v[e] -= coefficient;
            }
        }
        tn_store8(j.logits, j.type, base + v0, x);
    }
}

/* --- choosing ------------------------------------------------------------------------------------------------------------ */

template <int THREADS, bool STAGED, bool BIAS>
static tn_status launch(const tn_xent_rows *j, cudaStream_t stream)
{
    const int bytes = STAGED ? (int)(j->t.classes / 8 * 16) : 0;
    if (bytes) TN_RETURN_IF(tn_cuda_allow_shared((const void *)bf16_rows<THREADS, STAGED, BIAS>, bytes));
    bf16_rows<THREADS, STAGED, BIAS><<<(unsigned)j->rows, THREADS, (size_t)bytes, stream>>>(*j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

template <int THREADS>
static tn_status launch_for(const tn_xent_rows *j, bool staged, cudaStream_t stream)
{
    if (staged) return j->bias.data ? launch<THREADS, true, true>(j, stream) : launch<THREADS, true, false>(j, stream);
    return j->bias.data ? launch<THREADS, false, true>(j, stream) : launch<THREADS, false, false>(j, stream);
}

tn_status tn_xent_rows_run(const tn_call *c, const tn_xent_rows *j)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const tn_arg *b = &j->bias;
    const bool bias_fits = !b->data || (b->stride[0] == 1 && (uintptr_t)b->data % 16 == 0 && b->dtype != TN_F64);
    if (j->rows == 0) return TN_OK;
    if (j->type == TN_BF16 && bias_fits && j->t.classes < INT32_MAX) {
        int device, most;
        TN_CUDA_TRY(cudaGetDevice(&device));
        TN_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
        const bool staged = j->gradient && j->t.classes / 8 * 16 <= most - 1024; /* the kernel's own arrays */
        return j->t.classes < 8 * 512 * VECTORS ? launch_for<128>(j, staged, stream)
                                                : launch_for<512>(j, staged, stream);
    }
    any_rows<<<(unsigned)j->rows, ANY_THREADS, 0, stream>>>(*j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
