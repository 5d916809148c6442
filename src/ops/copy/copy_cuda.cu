/* copy on the GPU: rows of any strides, any pair of float types, overwriting or adding. */
#include "backend/cuda/device.cuh"
#include "ops/copy/copy.h"

enum { THREADS = 256, PIECES = 4 };

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

/* The same where both lie whole and in order. A thread has PIECES vectors under way at once. */
static __global__ void copy_flat(void *to, tn_dtype to_type, const void *from, tn_dtype from_type, bool add, int64_t n)
{
    const int64_t step = 8 * (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = 8 * (blockIdx.x * (int64_t)blockDim.x + threadIdx.x); i < n; i += PIECES * step) {
        tn_f8 x[PIECES];
        for (int k = 0; k < PIECES; k++)
            if (i + k * step < n) x[k] = tn_load8(from, from_type, i + k * step);
        for (int k = 0; k < PIECES; k++)
            if (i + k * step < n) tn_put8(to, to_type, i + k * step, x[k], add);
    }
}

static bool flat(const tn_arg *a) { return !a->live && tn_arg_contiguous(a) && (uintptr_t)a->data % 16 == 0 && a->dtype != TN_F64; }

static __global__ void copy_numbers(TN_GRID tn_arg to, TN_GRID tn_arg from, bool add)
{
    const int64_t n = tn_d_count(from);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        tn_put(to.data, to.dtype, tn_d_offset(to, i), tn_load(from.data, from.dtype, tn_d_offset(from, i)), add);
}

/* Integers and equal types: bytes move, so that every bit of a NaN stays. */
template <class T> static __global__ void copy_bits(TN_GRID tn_arg to, TN_GRID tn_arg from)
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
    if (n == 0) return TN_OK;
    if (to->dtype == from->dtype && !add) {
        if (!from->live && tn_arg_contiguous(to) && tn_arg_contiguous(from)) {
            TN_CUDA_TRY(cudaMemcpyAsync(to->data, from->data, (size_t)n * bytes, cudaMemcpyDeviceToDevice, stream));
            return TN_OK;
        }
        const unsigned blocks = tn_blocks(c, n, THREADS);
        if (bytes == 1) copy_bits<uint8_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else if (bytes == 2) copy_bits<uint16_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else if (bytes == 4) copy_bits<uint32_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
        else copy_bits<uint64_t><<<blocks, THREADS, 0, stream>>>(*to, *from);
    } else if (n % 8 == 0 && flat(to) && flat(from)) {
        copy_flat<<<tn_blocks(c, n / 8, PIECES * THREADS), THREADS, 0, stream>>>(to->data, to->dtype, from->data, from->dtype, add, n);
    } else if (from->dims.rank > 1 && tn_vector_rows(to) && tn_vector_rows(from)) {
        copy_vectors<<<tn_blocks(c, n / 8, THREADS), THREADS, 0, stream>>>(*to, *from, add, length);
    } else {
        copy_numbers<<<tn_blocks(c, n, THREADS), THREADS, 0, stream>>>(*to, *from, add);
    }
    TN_CUDA_LAUNCHED();
    return TN_OK;
}

extern "C" tn_status tn_copy_forward_cuda(const tn_call *c)
{
    return copy(c, &c->out[0], &c->in[0], ((const tn_copy_attr *)c->attr)->accumulate);
}

extern "C" tn_status tn_copy_backward_cuda(const tn_call *c) { return copy(c, &c->din[0], &c->dout[0], c->accumulate & 1); }
