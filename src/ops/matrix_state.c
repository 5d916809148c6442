/* Recurrences whose state is a matrix: checks of shapes, products of strided matrices. */
#include "ops/matrix_state.h"

#include "base/status.h"

tn_status tn_state_check(const tn_type *t, const char *name, const char *want, tn_dims dims)
{
    char have[96], expected[96];
    if (tn_dims_equal(t->dims, dims)) return TN_OK;
    return tn_error(TN_USAGE, "%s has shape %s, it must be %s = %s", name, tn_dims_text(t->dims, have, sizeof have),
                    want, tn_dims_text(dims, expected, sizeof expected));
}

tn_status tn_state_check_reset(const tn_type *reset, tn_dims dims)
{
    if (reset->absent) return TN_OK;
    TN_RETURN_IF(tn_state_check(reset, "reset", "(B,T)", dims));
    if (reset->dtype == TN_I32) return TN_OK;
    return tn_error(TN_USAGE, "reset is %s, it must be i32 (1 where a sequence begins)", tn_dtype_name(reset->dtype));
}

void tn_strided_multiply(const tn_strided_products *how, int64_t m, int64_t n, int64_t k, tn_strided a, tn_strided b,
                         float *c, bool add, tn_gemm_part part)
{
    const tn_gemm g = { .m = m,
                        .n = n,
                        .k = k,
                        .a = a.data,
                        .a_row = a.row,
                        .a_col = a.col,
                        .a_type = TN_F32,
                        .b = b.data,
                        .b_row = b.row,
                        .b_col = b.col,
                        .b_type = TN_F32,
                        .c = c,
                        .c_row = n,
                        .batch = 1,
                        .round = how->round,
                        .bf16x3 = how->bf16x3,
                        .portable_only = how->portable,
                        .accumulate = add,
                        .part = part,
                        .alpha = 1 };
    tn_gemm_run(NULL, &g, how->work);
}

size_t tn_strided_work(const int64_t (*most)[2], int n)
{
    size_t bytes = 1;
    for (int i = 0; i < n; i++) {
        const size_t one = tn_gemm_work_most(most[i][0], most[i][1], 1);
        if (one > bytes) bytes = one;
    }
    return bytes;
}
