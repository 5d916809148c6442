/* Types of numbers and shapes. Shared by the C API, by authors of models and ops, and by the backends. */
#ifndef TENON_TENSOR_H
#define TENON_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tn_dtype {
    TN_F32 = 0,
    TN_BF16 = 1,
    TN_F16 = 2,
    TN_F64 = 3, /* files and oracles only: no kernel computes in it */
    TN_I32 = 4,
    TN_I64 = 5,
    TN_U8 = 6,
    TN_DTYPES = 7
} tn_dtype;

enum { TN_MAX_RANK = 6 };

/* Dimensions, outermost first. rank 0 is a scalar; a dimension may be 0. */
typedef struct tn_dims {
    int rank;
    int64_t dim[TN_MAX_RANK];
} tn_dims;

size_t tn_dtype_bytes(tn_dtype t);
const char *tn_dtype_name(tn_dtype t); /* "f32", "bf16", ... */
bool tn_dtype_is_float(tn_dtype t);

int64_t tn_dims_count(tn_dims d); /* product; 1 for a scalar */
bool tn_dims_equal(tn_dims a, tn_dims b);
/* "(2,128,512)" into buf; returns buf. */
const char *tn_dims_text(tn_dims d, char *buf, size_t bytes);

/* tn_shape(2, 128, 512): dimensions from a list of at most TN_MAX_RANK integers. */
#define tn_shape(...) tn_shape_(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), (const int64_t[]){ __VA_ARGS__ })
tn_dims tn_shape_(size_t rank, const int64_t *dim);

float tn_bf16_to_f32(uint16_t x);
uint16_t tn_f32_to_bf16(float x); /* round to nearest even; NaN stays NaN */
float tn_f16_to_f32(uint16_t x);
uint16_t tn_f32_to_f16(float x);
/* n contiguous numbers from one floating type to another. */
void tn_convert(void *dst, tn_dtype dst_type, const void *src, tn_dtype src_type, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
