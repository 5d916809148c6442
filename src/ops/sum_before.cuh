/* Prefix sums of integers by one block. */
#ifndef TN_OPS_SUM_BEFORE_CUH
#define TN_OPS_SUM_BEFORE_CUH

#include <stdint.h>

/* count (n) becomes the sums of all before; count[n] the sum of all. By one block of THREADS; shared (THREADS / 32). */
template <int THREADS>
__device__ __forceinline__ void tn_sum_before(int32_t *count, int64_t n, int32_t *shared)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int32_t carry = 0;
    for (int64_t base = 0; base < n; base += THREADS) {
        const int64_t i = base + threadIdx.x;
        const int32_t x = i < n ? count[i] : 0;
        int32_t to_here = x;
        for (int k = 1; k < 32; k *= 2) {
            const int32_t other = __shfl_up_sync(0xffffffffu, to_here, k);
            if (lane >= k) to_here += other;
        }
        if (lane == 31) shared[warp] = to_here;
        __syncthreads();
        int32_t before = carry + to_here - x;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) before += shared[w];
            carry += shared[w];
        }
        if (i < n) count[i] = before;
        __syncthreads();
    }
    if (threadIdx.x == 0) count[n] = carry;
    __syncthreads();
}

#endif
