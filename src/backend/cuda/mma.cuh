/* Tensor cores for CUDA kernels, from sm_80 on: fragments of bf16 out of shared memory, products of 16 x 8 x 16 with
 * f32 sums, copies to shared memory that run on their own.
 *
 * A fragment is what the 32 lanes of a warp hold together. Lane l, with g = l / 4 and c = 2 (l % 4), holds of
 *     A (16,16):  a[0] row g, columns c c+1   a[1] row g+8   a[2] row g, columns c+8 c+9   a[3] row g+8 of these
 *     B (16,8):   b[0] rows c c+1 of column g   b[1] rows c+8 c+9
 *     C (16,8):   c[0] c[1] row g, columns c c+1   c[2] c[3] row g+8
 * so two neighbouring C, rounded to bf16, are one A. Rows in shared memory must be 16-byte aligned; with a length of
 * an odd number of 16 bytes, eight of them meet no bank twice. All lanes of a warp call together. */
#ifndef TN_BACKEND_CUDA_MMA_CUH
#define TN_BACKEND_CUDA_MMA_CUH

#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t tn_shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Four 8 x 8 matrices into r (4); lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void tn_ldmatrix(uint32_t *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tn_shared_at(row))
                 : "memory");
}

__device__ __forceinline__ void tn_ldmatrix_turned(uint32_t *r, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tn_shared_at(row))
                 : "memory");
}

/* c += a b */
__device__ __forceinline__ void tn_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void tn_mma(float *c, const uint32_t *a, const uint32_t *b) { tn_mma(c, a, b[0], b[1]); }

/* 16 bytes; not `wanted`: zeros, and nothing is read. */
__device__ __forceinline__ void tn_copy16(void *shared, const void *from, bool wanted)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tn_shared_at(shared)), "l"(from),
                 "r"(wanted ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void tn_copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until at most `left` of this thread's groups are under way. */
template <int left>
__device__ __forceinline__ void tn_copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* lo in the low half. */
__device__ __forceinline__ uint32_t tn_pack_bf16(float lo, float hi)
{
    const __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *(const uint32_t *)&h;
}

/* 2^x, an error of 2 units in the last place; what is below 2^-126 becomes 0. */
__device__ __forceinline__ float tn_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
