/* Hopper's own instructions (sm_90a): barriers in shared memory that count bytes, tiles copied by the tensor engine, and
 * products of a warpgroup (four warps) with operands in shared memory.
 *
 * A tile is rows of 64 bf16, 128 bytes each, its start a multiple of 1024 bytes; 16-byte piece c of row r lies at piece
 * c ^ (r % 8) of its row (the tensor engine writes it so: CU_TENSOR_MAP_SWIZZLE_128B). Wider matrices are several tiles
 * beside each other. Sums lie as those of mma.cuh: warp w of the group has rows 16 w on, and for columns 8 n on numbers
 * 4 n .. 4 n + 3 are c[0..3] there; so sums rounded to bf16 are an operand A in registers.
 *
 * Files that include this are named NAME_hopper_cuda.cu: the Makefile builds them for 90a in place of 90. Elsewhere
 * (TN_HOPPER is 0) nothing here exists, and kernels have no body; who launches asks tn_hopper_here first. */
#ifndef TN_BACKEND_CUDA_HOPPER_CUH
#define TN_BACKEND_CUDA_HOPPER_CUH

#include "backend/cuda/cuda.h"
#include "backend/cuda/mma.cuh"

#include <cuda.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TN_HOPPER 1
#else
#define TN_HOPPER 0
#endif

/* --- on the host -------------------------------------------------------------------------------------------------- */

static inline bool tn_hopper_here(void)
{
    int device, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return false;
    return major == 9;
}

typedef CUresult tn_encode_tensor(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                  const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Boxes of `rows` x 64 out of (B,N,heads,D) bf16 with these strides, in elements; zeros outside. False where the tensor
 * engine cannot: strides or the start that are not multiples of 16 bytes. */
static inline bool tn_tensor_map(CUtensorMap *map, void *data, const int64_t dim[4], const int64_t stride[4], int rows)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    cuuint64_t size[4], step[3];
    const cuuint32_t box[4] = { 64, 1, (cuuint32_t)rows, 1 }, one[4] = { 1, 1, 1, 1 };
    if (stride[3] != 1 || (uintptr_t)data % 16) return false;
    for (int i = 0; i < 4; i++) {
        const int from = i == 0 ? 3 : i == 1 ? 2 : i == 2 ? 1 : 0; /* d, head, n, b */
        if (dim[from] < 1 || dim[from] >= (int64_t)1 << 31) return false;
        size[i] = (cuuint64_t)dim[from];
        if (i == 0) continue;
        const int64_t bytes = dim[from] == 1 ? 16 : 2 * stride[from];
        if (bytes <= 0 || bytes % 16 || bytes >= (int64_t)1 << 40) return false;
        step[i - 1] = (cuuint64_t)bytes;
    }
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    return ((tn_encode_tensor *)entry)(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, size, step, box, one,
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#if TN_HOPPER
/* --- barriers ----------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void tn_barrier_open(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(tn_shared_at(b)), "r"(arrivals) : "memory");
}

/* After the last tn_barrier_open, before the block's barrier: the tensor engine sees them too. */
__device__ __forceinline__ void tn_barriers_opened()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void tn_barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(tn_shared_at(b)) : "memory");
}

/* One arrival of each warp. */
__device__ __forceinline__ void tn_warp_arrive(uint64_t *empty)
{
    if ((threadIdx.x & 31) == 0) tn_barrier_arrive(empty);
}

/* Of four words in each of four neighbouring lanes: word j of lane c becomes word c of lane j. */
__device__ __forceinline__ void tn_turn_words(uint32_t (&w)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? x : w[i], w[i + 1] = odd ? w[i + 1] : x;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t x = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
        w[i] = high ? x : w[i], w[i + 2] = high ? w[i + 2] : x;
    }
}

/* Arrives, and lets the phase wait for this many bytes from the tensor engine. */
__device__ __forceinline__ void tn_barrier_expect(uint64_t *b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(tn_shared_at(b)), "r"(bytes)
                 : "memory");
}

/* Arrives, for this thread, when all the copies of 16 bytes have come that it has begun so far. */
__device__ __forceinline__ void tn_copies_arrive(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(tn_shared_at(b)) : "memory");
}

/* Until the phase of this parity is over. */
__device__ __forceinline__ void tn_barrier_wait(uint64_t *b, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@over bra.uni done;\n"
                 "bra.uni again;\n"
                 "done:\n"
                 "}" ::"r"(tn_shared_at(b)),
                 "r"(parity)
                 : "memory");
}

/* Of `threads` threads, by number (0 is the whole block's). */
__device__ __forceinline__ void tn_named_barrier(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Arrives at one without waiting. */
__device__ __forceinline__ void tn_named_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* Plain stores to shared memory before it are seen by products and by the tensor engine. */
__device__ __forceinline__ void tn_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* --- the tensor engine -------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void tn_tensor_copy(void *shared, const CUtensorMap *map, uint64_t *b, int d, int head,
                                               int n, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5,%6}], [%2];" ::"r"(tn_shared_at(shared)),
                 "l"((uint64_t)map), "r"(tn_shared_at(b)), "r"(d), "r"(head), "r"(n), "r"(batch)
                 : "memory");
}

/* A multiple of 16 bytes, both ends aligned to 16. */
__device__ __forceinline__ void tn_bulk_copy(void *shared, const void *from, int bytes, uint64_t *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     tn_shared_at(shared)),
                 "l"((uint64_t)__cvta_generic_to_global(from)), "r"(bytes), "r"(tn_shared_at(b))
                 : "memory");
}

__device__ __forceinline__ void tn_tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)map) : "memory");
}

/* --- products of a warpgroup -------------------------------------------------------------------------------------- */

/* Registers a thread of this warpgroup has from here on. */
template <int n>
__device__ __forceinline__ void tn_registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n>
__device__ __forceinline__ void tn_registers_less()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

/* Shared memory from `shared` on, from the first place where a tile can be; up to 1023 bytes are lost. */
__device__ __forceinline__ char *tn_tiles_room(void *shared)
{
    return (char *)shared + (-tn_shared_at(shared) & 1023); /* not by way of an integer: it stays known as shared */
}

/* Of a number that is the same in all lanes of a warp: lets the compiler know it. */
__device__ __forceinline__ uint32_t tn_same_in_warp(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }

/* Where a tile's numbers are, for a product: the lower half of a descriptor, the upper half is the same for all tiles.
 * beside: bytes from one tile of 64 columns to the next, used where the 64 columns are not what is summed over. 16
 * columns further: + 2; 16 rows further: + 128; bytes further: + bytes / 16. */
__device__ __forceinline__ uint32_t tn_tile_at(const void *tile, int beside)
{
    return tn_same_in_warp((tn_shared_at(tile) >> 4 & 0x3fff) | (uint32_t)(beside >> 4) << 16);
}
#define TN_TILE_TEXT(name, place)                                                                                      \
    ".reg .b64 " name ";\nmov.b64 " name ", {" place ", 0x40000040};\n" /* 1024 >> 4 | 1 << 30 */

/* Before the first product that reads registers written by other instructions. */
__device__ __forceinline__ void tn_products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tn_products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Until at most `left` groups are under way. */
template <int left>
__device__ __forceinline__ void tn_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

/* Keeps the compiler from moving uses of x across this line. */
template <int n>
__device__ __forceinline__ void tn_hold(float (&x)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <int n>
__device__ __forceinline__ void tn_hold(uint32_t (&x)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+r"(x[i])::"memory");
}

/* The sums of a product as operands, ... */
#define TN_SUMS8(i)                                                                                                    \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
        "+f"(c[i + 7])
#define TN_SUMS32(i) TN_SUMS8(i), TN_SUMS8(i + 8), TN_SUMS8(i + 16), TN_SUMS8(i + 24)
/* ... and as the text names them. */
#define TN_PLACES32                                                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TN_PLACES64                                                                                                    \
    TN_PLACES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                   \
                "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define TN_PLACES64_ON                                                                                                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                     \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* c (64,64) = a b, or += where add is not 0; a (64,16) and b (16,64) in shared memory. turned: the rows of
 * its tile are what is summed over, else the columns. */
template <int turned>
__device__ __forceinline__ void tn_product(float (&c)[32], uint32_t a, uint32_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" TN_TILE_TEXT("a", "%32")
                     TN_TILE_TEXT("b", "%33") "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TN_PLACES32
                                              "}, a, b, add, 1, 1, 0, %35;\n}"
                 : TN_SUMS32(0)
                 : "r"(a), "r"(b), "r"(add), "n"(turned));
}

/* a in registers. */
template <int turned>
__device__ __forceinline__ void tn_product(float (&c)[32], const uint32_t *a, uint32_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n" TN_TILE_TEXT(
                     "b", "%36") "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TN_PLACES32
                                 "}, {%32,%33,%34,%35}, b, add, 1, 1, %38;\n}"
                 : TN_SUMS32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add), "n"(turned));
}

/* c (64,128) = a b, or += where add is not 0; a (64,16) and b (16,128) in shared memory. turned: the rows of
 * its tile are what is summed over, else the columns; a_turned: the same of a. */
template <int turned, int a_turned = 0>
__device__ __forceinline__ void tn_product(float (&c)[64], uint32_t a, uint32_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n" TN_TILE_TEXT("a", "%64")
                     TN_TILE_TEXT("b", "%65") "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TN_PLACES64
                                              "}, a, b, add, 1, 1, %68, %67;\n}"
                 : TN_SUMS32(0), TN_SUMS32(32)
                 : "r"(a), "r"(b), "r"(add), "n"(turned), "n"(a_turned));
}

/* a in registers. */
template <int turned>
__device__ __forceinline__ void tn_product(float (&c)[64], const uint32_t *a, uint32_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n" TN_TILE_TEXT(
                     "b", "%68") "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TN_PLACES64
                                 "}, {%64,%65,%66,%67}, b, add, 1, 1, %70;\n}"
                 : TN_SUMS32(0), TN_SUMS32(32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(add), "n"(turned));
}

/* c (64,256) = a b, or += where add is not 0: half as many reads of a as two of 128. */
template <int turned, int a_turned = 0>
__device__ __forceinline__ void tn_product(float (&c)[128], uint32_t a, uint32_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n" TN_TILE_TEXT("a", "%128")
                     TN_TILE_TEXT("b", "%129") "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TN_PLACES64
                                               ", " TN_PLACES64_ON "}, a, b, add, 1, 1, %132, %131;\n}"
                 : TN_SUMS32(0), TN_SUMS32(32), TN_SUMS32(64), TN_SUMS32(96)
                 : "r"(a), "r"(b), "r"(add), "n"(turned), "n"(a_turned));
}

#undef TN_TILE_TEXT
#undef TN_PLACES64_ON
#undef TN_PLACES64
#undef TN_PLACES32
#undef TN_SUMS32
#undef TN_SUMS8
#endif /* TN_HOPPER */

#endif
