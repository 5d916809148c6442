/* Tensor-core instructions on bf16: fragments from shared memory, and their product. All lanes of a warp take part. */
#ifndef TN_BACKEND_CUDA_MMA_CUH
#define TN_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/device.cuh"

/* Four 8x8 matrices: lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned); r[m] is then the
 * pair at row lane / 4, columns 2 (lane % 4) and the next, of matrix m. */
__device__ __forceinline__ void tn_matrices_load(uint32_t *r, const __nv_bfloat16 *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same, every matrix transposed. */
__device__ __forceinline__ void tn_matrices_load_flipped(uint32_t *r, const __nv_bfloat16 *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* c (16,8) += a (16,16) b (16,8). With g = lane / 4, q = 2 (lane % 4): c holds (g,q), (g,q+1), (g+8,q), (g+8,q+1); a
 * the pairs (g,q), (g+8,q), (g,q+8), (g+8,q+8); b the pairs along rows (q,g), (q+8,g). */
__device__ __forceinline__ void tn_matrices_multiply(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
