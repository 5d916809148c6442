/* Matrix product on the CPU with a fused store: C[i,j] (+)= residual + act(alpha * sum_p A[i,p] B[p,j] + bias[j]).
 *
 * fp32 accumulation whatever the operands' types. Every element is summed in the same order whatever the shape, the
 * strides or the thread count: blocks of TN_GEMM_KC along p, added up in order. So a row's bits depend on that row of A
 * and on B alone (decoding one row equals prefilling many), and one thread equals many. A block is one chain of fused
 * multiply-adds from 0 in every fp32 micro-kernel, so those agree bit for bit; a bf16 micro-kernel (round = TN_BF16, bf16x3)
 * sums a block in the order its instruction has, so its bits are the processor's own. Nothing is allocated and nothing
 * is checked here: ops check shapes. */
#ifndef TN_BACKEND_CPU_GEMM_H
#define TN_BACKEND_CPU_GEMM_H

#include "backend/cpu/pool.h"

#include <tenon/tensor.h>

enum { TN_GEMM_KC = 256 };         /* part of the numerical definition: changing it changes result bits */
enum { TN_GEMM_SHARED = 4 << 20 }; /* most bytes of B that one product packs at a time for all its rows */

typedef enum tn_gemm_act {
    TN_GEMM_ACT_NONE = 0,
    TN_GEMM_ACT_RELU = 1,
    TN_GEMM_ACT_GELU_TANH = 2,
    TN_GEMM_ACT_GELU_ERF = 3,
    TN_GEMM_ACT_SILU = 4,
    TN_GEMM_ACT_TANH = 5,
    TN_GEMM_ACT_SIGMOID = 6,
    TN_GEMM_ACTS = 7
} tn_gemm_act;

/* Triangles: what is not computed, in whole panels. The order of what is computed stays. */
typedef enum tn_gemm_part {
    TN_GEMM_WHOLE = 0,
    TN_GEMM_C_LOWER = 1, /* C[i,j] is wanted for j <= i; the rest is written too, with or without the product */
    TN_GEMM_A_LOWER = 2, /* A[i,p] is 0 for p > i */
    TN_GEMM_A_UPPER = 3  /* A[i,p] is 0 for p < i */
} tn_gemm_part;

struct tn_gemm_ukernel;

/* Strides are in elements and may be anything, 0 and negative included: any transpose or broadcast is a choice of
 * strides. C must not overlap A, B or bias; residual may be C itself (same strides). */
typedef struct tn_gemm {
    int64_t m, n, k;
    const void *a; /* (batch,m,k): element (i,p) is a[i*a_row + p*a_col] */
    int64_t a_row, a_col;
    tn_dtype a_type; /* TN_F32, TN_BF16 or TN_F16 */
    const void *b;   /* (batch,k,n): element (p,j) is b[p*b_row + j*b_col] */
    int64_t b_row, b_col;
    tn_dtype b_type;
    /* What tn_gemm_pack_b made of this b, or NULL. The batch must share b (b_batch 0), and b must still be there: a few
     * rows read it where it lies. The bits are those without it. */
    const void *packed_b;
    bool share_b; /* more rows than a tile has: B is packed once for all of them (tn_gemm_share_bytes more workspace) */
    float *c;     /* (batch,m,n), rows c_row apart */
    int64_t c_row;
    int64_t batch; /* products with the strides below; 1 for one */
    int64_t a_batch, b_batch, c_batch;
    /* Operands are rounded to this type on the way in: TN_F32 (as they are), TN_BF16 (whose instructions are used where
     * there are any) or TN_F16 (to nearest even; what is too large is an infinity, subnormals are kept; fp32 kernels). */
    tn_dtype round;
    /* Operands are split into three bf16 parts and six of the nine products are summed: fp32's accuracy but for the last
     * bit or so. Where bf16 instructions would not be faster it is the fp32 product; round takes precedence. What is
     * beyond bf16's range is an infinity, and an infinity may come out as NaN. */
    bool bf16x3;
    bool accumulate; /* the finished value is added to C */
    tn_gemm_part part;
    float alpha;

    const float *bias; /* (n) or NULL; shared by the batch */
    tn_gemm_act act;
    float *pre;            /* (batch,m,n) dense: the value before `act`, or NULL */
    const float *residual; /* (batch,m,n), rows residual_row apart, added after `act`; or NULL */
    int64_t residual_row, residual_batch;

    bool portable_only;                   /* the portable micro-kernel, for comparison with the others */
    const struct tn_gemm_ukernel *kernel; /* NULL: the best this machine runs; a bf16 one rounds in any case */
} tn_gemm;

/* Bytes of workspace for tn_gemm_run on a pool of `threads`; never 0. */
size_t tn_gemm_work_bytes(const tn_gemm *g, int threads);
/* Enough for any product of at most m x n (any k and batch) on at most `threads`: fewer threads, or fewer rows than
 * planned, may cut larger tiles. For ops that learn the rows or the pool only when they run. */
size_t tn_gemm_work_most(int64_t m, int64_t n, int threads);
/* What share_b may add to either, for at most this m, n and k. */
size_t tn_gemm_share_bytes(const tn_gemm *g);
/* work: tn_gemm_work_bytes(g, tn_pool_threads(pool)) bytes, 64-byte aligned. */
void tn_gemm_run(tn_pool *pool, const tn_gemm *g, void *work);

/* Packing B once for many products with the same b, n, k and choice of kernel (round, bf16x3, portable_only); m, A
 * and C are not looked at. dst: tn_gemm_packed_bytes(g) bytes, 64-byte aligned. */
size_t tn_gemm_packed_bytes(const tn_gemm *g);
bool tn_gemm_pack_pays(
    const tn_gemm *g); /* would a run of g (sizes, strides and types of B) be faster with packed_b? */
void tn_gemm_pack_b(tn_pool *pool, const tn_gemm *g, void *dst);

/* The micro-kernel this machine uses, for people: "neon 8x12". */
const char *tn_gemm_kernel_name(void);
const char *tn_gemm_kernel_of(const tn_gemm *g); /* ... for this product; only its choice of kernel is looked at */
/* The one for bf16 operands, or NULL: there are no such instructions, and the other one takes rounded numbers. */
const char *tn_gemm_kernel_name_bf16(void);
/* Its instruction alone, `loops` times on the calling thread; returns the floating-point operations done, 0 where there
 * is none. For measuring the ceiling. The operands are `numbers`, ordinary ones: cores that limit their power run faster on zeros. */
enum { TN_GEMM_PROBE_NUMBERS = 2048 };
double tn_gemm_probe_bf16(int64_t loops, const uint16_t numbers[TN_GEMM_PROBE_NUMBERS]);

#endif
