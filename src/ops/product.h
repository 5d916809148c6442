/* Matrix products of tensors with any strides and any number of batch axes, on top of tn_gemm.
 *
 * The caller describes one product (m, n, k and their strides) and the axes around it; axes that a single larger
 * product can cover are folded into m, n or k, the next one becomes the batch of the GEMM, and the rest are looped
 * over. An axis along which C does not move is a sum: its products are added in order. */
#ifndef TN_OPS_PRODUCT_H
#define TN_OPS_PRODUCT_H

#include "backend/cpu/gemm.h"

#include <tenon/op.h>

typedef struct tn_product_axis {
    int64_t dim;
    int64_t a, b, c; /* strides in elements; 0: the operand does not move (c: a sum over the axis) */
    int64_t residual, pre;
} tn_product_axis;

typedef struct tn_product {
    tn_gemm g;     /* one product; its batch fields are not read. m, n or k of 1 may be left to an axis */
    int64_t c_col; /* like c_row: 1 with an epilogue, anything without */
    int axes;      /* outermost first */
    tn_product_axis axis[TN_MAX_RANK];
} tn_product;

/* work: tn_product_work of the largest m and n that can come out of folding, and where g says share_b also
 * tn_gemm_share_bytes. g.packed_b is of one product: no axis may move b. */
size_t tn_product_work(int64_t m, int64_t n, int threads);
void tn_product_run(tn_pool *pool, const tn_product *p, void *work);

#endif
