/* The functions of cuDNN 9 that are used, found in the library when the program runs. It is declared here, in as far as
 * it is used, because many machines that have the library do not have its headers; the numbers are cuDNN's own.
 *
 * cuDNN is never needed: who asks for it has kernels of his own for when it is absent, old, or refuses a shape. */
#ifndef TN_BACKEND_CUDA_CUDNN_H
#define TN_BACKEND_CUDA_CUDNN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *tn_dnn_handle; /* a cudnnHandle_t: a stream and a device */
typedef void *tn_dnn_desc;   /* a cudnnBackendDescriptor_t */
struct CUstream_st;

/* Kinds of descriptors. */
enum {
    TN_DNN_POINTWISE = 0,
    TN_DNN_ENGINECFG = 3,
    TN_DNN_ENGINEHEUR = 4,
    TN_DNN_PLAN = 5,
    TN_DNN_OP_POINTWISE = 13,
    TN_DNN_GRAPH = 15,
    TN_DNN_PACK = 16,
    TN_DNN_TENSOR = 17,
    TN_DNN_MATMUL = 18,
    TN_DNN_OP_MATMUL = 19,
    TN_DNN_REDUCTION = 21,
    TN_DNN_OP_REDUCTION = 22,
};

/* Attributes, by the kind of descriptor that has them. */
enum {
    TN_DNN_POINTWISE_MODE = 0,
    TN_DNN_POINTWISE_TYPE = 1,
    TN_DNN_POINTWISE_AXIS = 9,
    TN_DNN_HEUR_MODE = 200,
    TN_DNN_HEUR_GRAPH = 201,
    TN_DNN_HEUR_RESULTS = 202,
    TN_DNN_PLAN_HANDLE = 400,
    TN_DNN_PLAN_CONFIG = 401,
    TN_DNN_PLAN_WORKSPACE = 402,
    TN_DNN_PLAN_JSON = 405,
    TN_DNN_OP_POINTWISE_HOW = 750,
    TN_DNN_OP_POINTWISE_X = 751,
    TN_DNN_OP_POINTWISE_B = 752,
    TN_DNN_OP_POINTWISE_Y = 753,
    TN_DNN_OP_POINTWISE_T = 758,
    TN_DNN_GRAPH_HANDLE = 800,
    TN_DNN_GRAPH_OPS = 801,
    TN_DNN_TENSOR_ALIGNMENT = 900,
    TN_DNN_TENSOR_TYPE = 901,
    TN_DNN_TENSOR_DIMS = 902,
    TN_DNN_TENSOR_STRIDES = 903,
    TN_DNN_TENSOR_ID = 906,
    TN_DNN_TENSOR_VIRTUAL = 907,
    TN_DNN_TENSOR_BY_VALUE = 908,
    TN_DNN_PACK_IDS = 1000,
    TN_DNN_PACK_POINTERS = 1001,
    TN_DNN_PACK_WORKSPACE = 1003,
    TN_DNN_MATMUL_TYPE = 1500,
    TN_DNN_OP_MATMUL_A = 1520,
    TN_DNN_OP_MATMUL_B = 1521,
    TN_DNN_OP_MATMUL_C = 1522,
    TN_DNN_OP_MATMUL_HOW = 1523,
    TN_DNN_REDUCTION_OPERATOR = 1600,
    TN_DNN_REDUCTION_TYPE = 1601,
    TN_DNN_OP_REDUCTION_X = 1610,
    TN_DNN_OP_REDUCTION_Y = 1611,
    TN_DNN_OP_REDUCTION_HOW = 1612,
};

/* Types of attributes. */
enum {
    TN_DNN_IS_HANDLE = 0,
    TN_DNN_IS_TYPE = 1,
    TN_DNN_IS_BOOL = 2,
    TN_DNN_IS_INT64 = 3,
    TN_DNN_IS_POINTER = 6,
    TN_DNN_IS_HEUR = 8,
    TN_DNN_IS_POINTWISE = 14,
    TN_DNN_IS_DESC = 15,
    TN_DNN_IS_REDUCTION = 18,
    TN_DNN_IS_CHAR = 24,
};

typedef enum tn_dnn_type { TN_DNN_F32 = 0, TN_DNN_I32 = 4, TN_DNN_BF16 = 9, TN_DNN_BOOL = 11 } tn_dnn_type;

typedef enum tn_dnn_pointwise {
    TN_DNN_ADD = 0,
    TN_DNN_MUL = 1,
    TN_DNN_DIV = 6,
    TN_DNN_SUB = 9,
    TN_DNN_EXP = 13,
    TN_DNN_LOG = 15,
    TN_DNN_AT_LEAST = 303, /* x >= b */
    TN_DNN_INDEX = 501,    /* of an element along an axis */
    TN_DNN_SELECT = 601,   /* x where t, else b */
} tn_dnn_pointwise;

typedef enum tn_dnn_reduction { TN_DNN_SUM = 0, TN_DNN_MAX = 3 } tn_dnn_reduction;

enum { TN_DNN_HEUR_A = 3 }; /* how to find proposals */

/* name in the library without "cudnn", result, arguments */
#define TN_DNN_FUNCTIONS(F)                                                                                            \
    F(GetVersion, size_t, (void))                                                                                      \
    F(GetErrorString, const char *, (int status))                                                                      \
    F(GetLastErrorString, void, (char *text, size_t bytes))                                                            \
    F(Create, int, (tn_dnn_handle * out))                                                                              \
    F(Destroy, int, (tn_dnn_handle h))                                                                                 \
    F(SetStream, int, (tn_dnn_handle h, struct CUstream_st * stream))                                                  \
    F(BackendCreateDescriptor, int, (int kind, tn_dnn_desc *out))                                                      \
    F(BackendDestroyDescriptor, int, (tn_dnn_desc d))                                                                  \
    F(BackendSetAttribute, int, (tn_dnn_desc d, int name, int type, int64_t n, const void *values))                    \
    F(BackendGetAttribute, int, (tn_dnn_desc d, int name, int type, int64_t room, int64_t *n, void *values))           \
    F(BackendFinalize, int, (tn_dnn_desc d))                                                                           \
    F(BackendExecute, int, (tn_dnn_handle h, tn_dnn_desc plan, tn_dnn_desc pack))

typedef struct tn_cudnn {
    void *library;
#define TN_DNN_FIELD(name, result, arguments) result(*name) arguments;
    TN_DNN_FUNCTIONS(TN_DNN_FIELD)
#undef TN_DNN_FIELD
} tn_cudnn;

/* Looks where the system's loader looks, then where CUDA is usually installed; $TENON_CUDNN names another file. */
tn_status tn_cudnn_open(tn_cudnn *out);
void tn_cudnn_close(tn_cudnn *l);
/* Whether $TENON_CUDNN names a file: then cuDNN was asked for, and what goes wrong with it is an error. */
bool tn_cudnn_asked_for(void);
/* An error with cuDNN's own words for it. */
tn_status tn_cudnn_failed(const tn_cudnn *l, int status, const char *what, const char *file, int line);

#define TN_DNN_TRY(lib, call)                                                                                          \
    do {                                                                                                               \
        const int e_ = (lib)->call;                                                                                    \
        if (e_ != 0) return tn_cudnn_failed((lib), e_, #call, __FILE__, __LINE__);                                     \
    } while (0)

#endif
