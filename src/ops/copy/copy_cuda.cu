/* copy on the GPU: rows of any strides, any pair of float types, overwriting or adding. */
#include "backend/cuda/device.cuh"
#include "ops/copy/copy.h"

enum { THREADS = 256 };

/* Both tensors as rows at even distances, of contiguous numbers: axes that lie so are one. */
struct even_rows {
    int64_t rows, length, to, from; /* to, from: distances in elements */
};

/* False where they do not lie so, or where only some of the rows are alive. */
static bool as_even_rows(const tn_arg *to, const tn_arg *from, even_rows *e)
{
    int i = from->dims.rank - 1;
    *e = { 1, 1, 0, 0 };
    for (; i >= 0 && (from->dims.dim[i] == 1 || (to->stride[i] == e->length && from->stride[i] == e->length)); i--)
        e->length *= from->dims.dim[i];
    for (; i >= 0; i--) {
        const int64_t d = from->dims.dim[i];
        if (d == 1) continue;
        if (e->rows == 1) e->to = to->stride[i], e->from = from->stride[i];
        else if (to->stride[i] != e->rows * e->to || from->stride[i] != e->rows * e->from) return false;
        e->rows *= d;
    }
    return !from->live && !to->live;
}

/* ... and all of them are vectors of 8 at 16 bytes. */
static bool in_vectors(const tn_arg *to, const tn_arg *from, const even_rows *e)
{
    const int64_t to_bytes = (int64_t)tn_dtype_bytes(to->dtype), from_bytes = (int64_t)tn_dtype_bytes(from->dtype);
    return e->length % 8 == 0 && to->dtype != TN_F64 && from->dtype != TN_F64 && (uintptr_t)to->data % 16 == 0 &&
           (uintptr_t)from->data % 16 == 0 && e->to * to_bytes % 16 == 0 && e->from * from_bytes % 16 == 0 &&
           e->rows * (e->length / 8) < INT32_MAX;
}

/* A thread moves 8 numbers at a time. */
static __global__ void copy_even(void *to, tn_dtype to_type, const void *from, tn_dtype from_type, bool add,
                                 even_rows e)
{
    const uint32_t per_row = (uint32_t)(e.length / 8), n = (uint32_t)e.rows * per_row;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const uint32_t r = i / per_row, j = (i - r * per_row) * 8;
        tn_put8(to, to_type, r * e.to + j, tn_load8(from, from_type, r * e.from + j), add);
    }
}

/* Rows of a multiple of 8 numbers, every one at 16 bytes: a thread moves 8. */
static __global__ void copy_vectors(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add, int64_t length)
{
    const int64_t per_row = length / 8, n = tn_d_rows(from) * per_row;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / per_row, j = i % per_row * 8;
        const tn_f8 x = tn_load8(from.data, from.dtype, tn_d_row_offset(from, r) + j);
        tn_put8(to.data, to.dtype, tn_d_row_offset(to, r) + j, x, add);
    }
}

/* Integers as floats. */
static __global__ void copy_integers(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add)
{
    const int64_t n = tn_d_count(from);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_put(to.data, to.dtype, tn_d_offset(to, i), (float)((const int32_t *)from.data)[tn_d_offset(from, i)], add);
}

static __global__ void copy_numbers(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add)
{
    const int64_t n = tn_d_count(from);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_put(to.data, to.dtype, tn_d_offset(to, i), tn_load(from.data, from.dtype, tn_d_offset(from, i)), add);
}

/* Integers and equal types: bytes move, so that every bit of a NaN stays. */
template <class T>
static __global__ void copy_bits(TN_GRID tn_arg to, TN_GRID tn_arg from)
{
    const int64_t n = tn_d_count(from);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        ((T *)to.data)[tn_d_offset(to, i)] = ((const T *)from.data)[tn_d_offset(from, i)];
}

static tn_status copy(const tn_call *c, const tn_arg *to, const tn_arg *from, bool add)
{
    const cudaStream_t stream = tn_cuda_stream(c);
    const int64_t n = tn_all_count(from), length = tn_row_len(from);
    const size_t bytes = tn_dtype_bytes(to->dtype);
    even_rows even;
    if (n == 0) return TN_OK;
    const bool evenly = as_even_rows(to, from, &even);
    if (to->dtype == from->dtype && !add) {
        if (evenly && even.rows == 1) {
            TN_CUDA_TRY(cudaMemcpyAsync(to->data, from->data, (size_t)n * bytes, cudaMemcpyDeviceToDevice, stream));
            return TN_OK;
        }
        if (evenly && even.to >= even.length && even.from >= even.length) {
            TN_CUDA_TRY(cudaMemcpy2DAsync(to->data, (size_t)even.to * bytes, from->data, (size_t)even.from * bytes,
                                          (size_t)even.length * bytes, (size_t)even.rows, cudaMemcpyDeviceToDevice,
                                          stream));
            return TN_OK;
        }
        const unsigned blocks = tn_blocks(c, n, THREADS);
        if (bytes == 1) copy_bits<uint8_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else if (bytes == 2) copy_bits<uint16_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else if (bytes == 4) copy_bits<uint32_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else copy_bits<uint64_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
    } else if (from->dtype == TN_I32) {
        copy_integers<<<tn_blocks(c, n, THREADS), THREADS, 0, stream>>>(*to, *from, add);
    } else if (evenly && in_vectors(to, from, &even)) {
        copy_even<<<tn_blocks(c, n / 8, THREADS), THREADS, 0, stream>>>(to->data, to->dtype, from->data, from->dtype,
                                                                        add, even);
    } else if (from->dims.rank > 1 && tn_vector_rows(to) && tn_vector_rows(from)) {
        copy_vectors<<<tn_blocks(c, n / 8, THREADS), THREADS, 0, stream>>>(*to, *from, add, length);
    } else {
        copy_numbers<<<tn_blocks(c, n, THREADS), THREADS, 0, stream>>>(*to, *from, add);
    }
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

/* --- many at once ------------------------------------------------------------------------------------------------------ */

enum { PILE = 64, SHARE = THREADS * 8 * 4 /* numbers of a block */ };

/* Contiguous f32 tensors to be rounded to bf16. Tensor i has the blocks from first[i] on. */
struct pile {
    const float *from[PILE];
    __nv_bfloat16 *to[PILE];
    int64_t count[PILE];
    int first[PILE + 1];
    int n;
};

static __global__ void __launch_bounds__(THREADS) round_pile(const __grid_constant__ pile p)
{
    int i = 0;
    while (i + 1 < p.n && (int)blockIdx.x >= p.first[i + 1]) i++;
    const float *from = p.from[i];
    __nv_bfloat16 *to = p.to[i];
    const int64_t begin = (int64_t)((int)blockIdx.x - p.first[i]) * SHARE;
    const int64_t end = begin + SHARE < p.count[i] ? begin + SHARE : p.count[i];
    if (end - begin == SHARE) {
        tn_f8 x[SHARE / (THREADS * 8)];
#pragma unroll
        for (int k = 0; k < SHARE / (THREADS * 8); k++)
            x[k] = tn_load8(from, TN_F32, begin + (k * THREADS + threadIdx.x) * 8);
#pragma unroll
        for (int k = 0; k < SHARE / (THREADS * 8); k++)
            tn_store8(to, TN_BF16, begin + (k * THREADS + threadIdx.x) * 8, x[k]);
    } else {
        for (int64_t k = begin + threadIdx.x; k < end; k += THREADS) to[k] = __float2bfloat16_rn(from[k]);
    }
}

/* Adds tensor i to the pile; false where it is not for it. */
static bool piled(pile *p, const tn_call *c, int i)
{
    const tn_arg *from = &c->in[i], *to = &c->out[i];
    if (p->n == PILE || from->dtype != TN_F32 || to->dtype != TN_BF16 || from->live || !tn_arg_contiguous(from) ||
        !tn_arg_contiguous(to) || (uintptr_t)from->data % 16 || (uintptr_t)to->data % 16)
        return false;
    const int64_t n = tn_all_count(from), blocks = (n + SHARE - 1) / SHARE;
    if (blocks > INT32_MAX / PILE) return false;
    p->from[p->n] = (const float *)from->data;
    p->to[p->n] = (__nv_bfloat16 *)to->data;
    p->count[p->n] = n;
    p->first[p->n + 1] = p->first[p->n] + (int)blocks;
    p->n++;
    return true;
}

extern "C" tn_status tn_copy_forward_cuda(const tn_call *c)
{
    const bool add = ((const tn_copy_attr *)c->attr)->accumulate;
    pile p = {};
    for (int i = 0; i < c->n_in; i++)
        if (c->n_in == 1 || add || !piled(&p, c, i)) TN_RETURN_IF(copy(c, &c->out[i], &c->in[i], add));
    if (!p.first[p.n]) return TN_OK;
    round_pile<<<(unsigned)p.first[p.n], THREADS, 0, tn_cuda_stream(c)>>>(p);
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_copy_backward_cuda(const tn_call *c)
{
    return copy(c, &c->din[0], &c->dout[0], c->accumulate & 1);
}
