/* Rows of logits become divergences and, in place, gradients: a block to a row, which is read twice.
 *
 * Sums as on the CPU: each side is taken from its own largest logit, and the sum of e^(t/T) (t - s) goes along with the two
 * logsumexps. A thread has f32 sums below its own largest logits; the block adds them up in double. Both sides go through
 * the same instructions, so that equal rows give exactly 0. */
#include "ops/linear_kl/linear_kl_rows.cuh"
#include "ops/rows_block.cuh"

enum { S = TN_KL_STUDENT, T = TN_KL_TEACHER, SIDES = TN_KL_SIDES };
enum { LSE_T, LSE_S }; /* order of the output */
enum { ROW_THREADS = 512 };

/* What is below e^-87.3 is 0, as on the CPU, so that such a class adds nothing. */
__device__ __forceinline__ float weight_of(float x) { return x < -87.3f ? 0.f : expf(x); }

/* Infinity has no distance from itself: where all logits are -inf, they are taken from 0. */
__device__ __forceinline__ float shift_of(float most) { return most == -INFINITY ? 0.f : most; }

template <typename R>
struct sums {
    float most[SIDES];
    R sum[SIDES]; /* of exp((x - most) / T) */
    R gap;        /* of exp((t - most t) / T) ((t - most t) - (s - most s)) */
};

/* Moves the shifts up to `top`, and with them what was summed below them. k = 1/T */
template <typename R>
__device__ __forceinline__ void raise(sums<R> &a, const float (&top)[SIDES], float k)
{
    R factor[SIDES], up[SIDES];
#pragma unroll
    for (int i = 0; i < SIDES; i++) {
        const R before = shift_of(a.most[i]);
        const bool larger = top[i] > a.most[i];
        factor[i] = larger ? weight_of(k * (a.most[i] - top[i])) : 1.f;
        a.most[i] = larger ? top[i] : a.most[i];
        up[i] = (R)shift_of(a.most[i]) - before;
    }
    a.gap = factor[T] == 0 ? 0 : factor[T] * (a.gap + a.sum[T] * (up[S] - up[T]));
#pragma unroll
    for (int i = 0; i < SIDES; i++) a.sum[i] *= factor[i];
}

/* Classes v .. v+7 of a row of V; -inf behind them. */
__device__ __forceinline__ tn_f8 classes_at(const float *row, int64_t v, int64_t V)
{
    tn_f8 x = tn_load8(row, TN_F32, v);
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (v + e >= V) x.v[e] = -INFINITY;
    return x;
}

__device__ __forceinline__ void add_classes(sums<float> &a, const tn_f8 (&x)[SIDES], float k)
{
    float top[SIDES];
#pragma unroll
    for (int i = 0; i < SIDES; i++) {
        top[i] = x[i].v[0];
#pragma unroll
        for (int e = 1; e < 8; e++) top[i] = fmaxf(top[i], x[i].v[e]);
    }
    raise(a, top, k);
    const float shift_s = shift_of(a.most[S]), shift_t = shift_of(a.most[T]);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const float below_s = x[S].v[e] - shift_s, below_t = x[T].v[e] - shift_t;
        const float w = weight_of(k * below_t);
        a.sum[T] += w;
        a.sum[S] += weight_of(k * below_s);
        if (w != 0.f) a.gap += w * (below_t - below_s); /* of a class that adds nothing the gap may be infinite */
    }
}

/* Sums of the whole row; every thread gets them. */
__device__ __forceinline__ sums<double> row_sums(const tn_kl_rows &j, const float *const (&row)[SIDES], float k)
{
    __shared__ float most[SIDES][33];
    __shared__ double total[SIDES + 1][33];
    const int64_t V = j.t.classes;
    sums<float> a = { { -INFINITY, -INFINITY }, { 0, 0 }, 0 };
    for (int64_t v = threadIdx.x * 8; v < V; v += ROW_THREADS * 8) {
        const tn_f8 x[SIDES] = { classes_at(row[S], v, V), classes_at(row[T], v, V) };
        add_classes(a, x, k);
    }
    const float top[SIDES] = { tn_d_block_max(a.most[S], most[S]), tn_d_block_max(a.most[T], most[T]) };
    sums<double> b = { { a.most[S], a.most[T] }, { a.sum[S], a.sum[T] }, a.gap };
    raise(b, top, k);
    for (int i = 0; i < SIDES; i++) b.sum[i] = tn_d_block_sum(b.sum[i], total[i]);
    b.gap = tn_d_block_sum(b.gap, total[SIDES]);
    return b;
}

/* Thread 0 writes what token i leaves; a NULL: it does not count. */
__device__ __forceinline__ void write_outputs(const tn_kl_rows &j, int64_t i, const sums<double> *a, double k)
{
    double kl = 0, lse[SIDES] = { 0, 0 };
    if (a) {
        const double log_s = log(a->sum[S]), log_t = log(a->sum[T]);
        kl = a->gap / a->sum[T] * k - (log_t - log_s);
        lse[S] = (double)shift_of(a->most[S]) * k + log_s;
        lse[T] = (double)shift_of(a->most[T]) * k + log_t;
    }
    if (j.term) j.term[i] = a ? (double)tn_head_weight(j.t, i) * kl : 0;
    if (j.kl) j.kl[i] = (float)kl;
    if (j.lse) j.lse[2 * i + LSE_S] = (float)lse[S], j.lse[2 * i + LSE_T] = (float)lse[T];
}

/* A half is half as long as the number that it replaces: what is written lies where this or an earlier round has read, and the
 * barrier lets all threads read first. */
__device__ __forceinline__ void write_gradient(const tn_kl_rows &j, const float *const (&row)[SIDES],
                                               const sums<double> &a, float coefficient, float k)
{
    const int64_t V = j.t.classes;
    const float shift_s = shift_of(a.most[S]), shift_t = shift_of(a.most[T]);
    const float over_s = (float)(1 / a.sum[S]), over_t = (float)(1 / a.sum[T]);
    for (int64_t v0 = 0; v0 < j.row; v0 += ROW_THREADS * 8) {
        const int64_t v = v0 + threadIdx.x * 8;
        tn_f8 y = { { 0 } };
        if (v < V) {
            const tn_f8 s = classes_at(row[S], v, V), t = classes_at(row[T], v, V);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float q = __fmul_rn(weight_of(k * (s.v[e] - shift_s)), over_s);
                const float p = __fmul_rn(weight_of(k * (t.v[e] - shift_t)), over_t);
                if (v + e < V) y.v[e] = coefficient * (q - p);
            }
        }
        if (j.type != TN_F32) __syncthreads();
        if (v < j.row) tn_store8((void *)row[S], j.type, v, y);
    }
}

__device__ __forceinline__ void clear_gradient(const tn_kl_rows &j, float *row)
{
    const tn_f8 zero = { { 0 } };
    for (int64_t v = threadIdx.x * 8; v < j.row; v += ROW_THREADS * 8) tn_store8(row, j.type, v, zero);
}

/* A block has one row. */
static __global__ void __launch_bounds__(ROW_THREADS) kl_of_rows(const __grid_constant__ tn_kl_rows j)
{
    const int64_t i = j.first + blockIdx.x, base = blockIdx.x * j.row;
    const float *const row[SIDES] = { j.logits[S] + base, j.logits[T] + base };
    const float k = 1 / j.temperature;
    if (!tn_head_counts(j.t, i)) {
        if (threadIdx.x == 0) write_outputs(j, i, NULL, (double)k);
        if (j.gradient) clear_gradient(j, j.logits[S] + base);
        return;
    }
    const sums<double> a = row_sums(j, row, k);
    if (threadIdx.x == 0) write_outputs(j, i, &a, (double)k);
    if (!j.gradient) return;
    const double factor = *j.scale * (double)*j.dy * (double)j.temperature;
    write_gradient(j, row, a, (float)(factor * (double)tn_head_weight(j.t, i)), k);
}

tn_status tn_kl_rows_run(const tn_call *c, const tn_kl_rows *j)
{
    if (j->rows == 0) return TN_OK;
    kl_of_rows<<<(unsigned)j->rows, ROW_THREADS, 0, tn_cuda_stream(c)>>>(*j);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}
