/* What the loop nest and the micro-kernels of each ISA share: the seam where a new ISA plugs in.
 *
 * A micro-kernel multiplies one packed panel of A by one packed panel of B and ADDS the product to a tile of the
 * accumulator. Its product must be one chain of fused multiply-adds per element, in the order of k, from 0: that is what
 * keeps bits independent of panel shapes. A new ISA is one file with one tn_gemm_ukernel, and a line in gemm_kernel.c. */
#ifndef TN_BACKEND_CPU_GEMM_KERNEL_H
#define TN_BACKEND_CPU_GEMM_KERNEL_H

#include "backend/cpu/gemm.h"

enum { TN_GEMM_MR_MAX = 16, TN_GEMM_GROUP = 4 }; /* panels that are packed together */

/* a (k,rows), b (k,nr) packed; acc (rows,nr) with rows acc_row apart, 16-byte aligned at least. k <= TN_GEMM_KC. */
typedef void tn_gemm_micro(int64_t k, const float *restrict a, const float *restrict b, float *restrict acc,
                           int64_t acc_row);

typedef struct tn_gemm_ukernel {
    const char *name;
    int mr, nr; /* nr a multiple of 4, at most 64 */
    /* run[r] takes a panel of r rows. run[mr] must be there; the others serve the last rows, and where run[r] is NULL
     * the next larger one runs on zero padding. */
    tn_gemm_micro *run[TN_GEMM_MR_MAX + 1];
} tn_gemm_ukernel;

extern const tn_gemm_ukernel tn__gemm_portable;
extern const tn_gemm_ukernel tn__gemm_avx2; /* x86-64 only */

/* The kernels this machine runs, the plainest first; NULL past the end. tn__gemm_kernel_best is the last of them. */
const tn_gemm_ukernel *tn__gemm_kernel_at(int index);
const tn_gemm_ukernel *tn__gemm_kernel_best(void);

/* A matrix to pack: element (i,p) is data[i*outer + p*inner], i along the panel's width and p along k. */
typedef struct tn_gemm_source {
    const void *data; /* of `type` */
    tn_dtype type;
    int64_t outer, inner; /* strides in elements */
    bool round_bf16;
} tn_gemm_source;

/* dst: panels (k,width), one after the other, enough for i < valid; the last is padded with zeros. */
void tn__gemm_pack(float *restrict dst, int width, tn_gemm_source src, int64_t valid, int64_t k);

/* Sends row i, columns j..j+count-1 of one product of the batch through the epilogue. acc (count) is overwritten. */
void tn__gemm_store_row(const tn_gemm *g, int64_t batch, int64_t i, int64_t j, int64_t count, float *restrict acc);

#endif
