/* The functions of cuBLASLt that are used, found in the library when the program runs. */
#ifndef TN_BACKEND_CUDA_CUBLASLT_H
#define TN_BACKEND_CUDA_CUBLASLT_H

#include "base/status.h"

#include <cublasLt.h>

/* name in the library without "cublasLt", as a field of the same type */
/* clang-format off */
#define TN_LT_FUNCTIONS(F)                                                                                             \
    F(Create) F(Destroy) F(GetVersion) F(Matmul) F(MatmulAlgoGetHeuristic) F(MatmulAlgoCheck)                          \
    F(MatmulDescCreate) F(MatmulDescDestroy) F(MatmulDescSetAttribute)                                                 \
    F(MatrixLayoutCreate) F(MatrixLayoutDestroy) F(MatrixLayoutSetAttribute)                                           \
    F(MatmulPreferenceCreate) F(MatmulPreferenceDestroy) F(MatmulPreferenceSetAttribute)
/* clang-format on */

typedef struct tn_cublaslt {
    void *library;
#define TN_LT_FIELD(name) __typeof__(cublasLt##name) *name;
    TN_LT_FUNCTIONS(TN_LT_FIELD)
#undef TN_LT_FIELD
} tn_cublaslt;

/* Looks where the system's loader looks, then where CUDA is usually installed; $TENON_CUBLASLT names another file. */
tn_status tn_cublaslt_open(tn_cublaslt *out);
void tn_cublaslt_close(tn_cublaslt *l);
tn_status tn_cublaslt_failed(cublasStatus_t e, const char *what, const char *file, int line);

#define TN_LT_TRY(call)                                                                                                \
    do {                                                                                                               \
        const cublasStatus_t e_ = (call);                                                                              \
        if (e_ != CUBLAS_STATUS_SUCCESS) return tn_cublaslt_failed(e_, #call, __FILE__, __LINE__);                     \
    } while (0)

#endif
