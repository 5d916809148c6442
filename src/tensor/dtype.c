/* Number formats and shapes: sizes, names and conversions. No arithmetic on tensors lives here. */
#include <tenon/tensor.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned char bytes;
    bool is_float;
} types[TN_DTYPES] = {
    [TN_F32] = { "f32", 4, true }, [TN_BF16] = { "bf16", 2, true }, [TN_F16] = { "f16", 2, true },
    [TN_F64] = { "f64", 8, true }, [TN_I32] = { "i32", 4, false },  [TN_I64] = { "i64", 8, false },
    [TN_U8] = { "u8", 1, false },
};

size_t tn_dtype_bytes(tn_dtype t) { return types[t].bytes; }

const char *tn_dtype_name(tn_dtype t) { return types[t].name; }

bool tn_dtype_is_float(tn_dtype t) { return types[t].is_float; }

int64_t tn_dims_count(tn_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.rank; i++) n *= d.dim[i];
    return n;
}

bool tn_dims_equal(tn_dims a, tn_dims b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

const char *tn_dims_text(tn_dims d, char *buf, size_t bytes)
{
    size_t n = 0;
    n += (size_t)snprintf(buf, bytes, "(");
    for (int i = 0; i < d.rank && n < bytes; i++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%lld", i ? "," : "", (long long)d.dim[i]);
    if (n < bytes) snprintf(buf + n, bytes - n, ")");
    return buf;
}

tn_dims tn_shape_(size_t rank, const int64_t *dim)
{
    tn_dims d = { .rank = rank > TN_MAX_RANK ? TN_MAX_RANK + 1 : (int)rank }; /* too many: refused where it is used */
    for (size_t i = 0; i < rank && i < TN_MAX_RANK; i++) d.dim[i] = dim[i];
    return d;
}

float tn_bf16_to_f32(uint16_t x)
{
    const uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t tn_f32_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float tn_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, mantissa = x & 1023;
    uint32_t u;
    float f;
    if (exponent == 31) u = sign | 0x7f800000u | mantissa << 13;
    else if (exponent) u = sign | (exponent + 112) << 23 | mantissa << 13;
    else {
        f = (float)mantissa * 0x1p-24f; /* subnormal: exact in f32 */
        return sign ? -f : f;
    }
    memcpy(&f, &u, 4);
    return f;
}

uint16_t tn_f32_to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return sign | 0x7e00;
    if (u >= 0x477ff000u) return sign | 0x7c00; /* rounds to infinity */
    if (u < 0x38800000u) {                      /* subnormal or zero: let the adder round */
        float f;
        memcpy(&f, &u, 4);
        f += 0.5f;
        memcpy(&u, &f, 4);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1) - (112u << 23);
    return (uint16_t)(sign | u >> 13);
}

static double load(const void *p, tn_dtype t, int64_t i)
{
    switch (t) {
    case TN_F32: return (double)((const float *)p)[i];
    case TN_BF16: return (double)tn_bf16_to_f32(((const uint16_t *)p)[i]);
    case TN_F16: return (double)tn_f16_to_f32(((const uint16_t *)p)[i]);
    case TN_F64: return ((const double *)p)[i];
    case TN_I32: return ((const int32_t *)p)[i];
    case TN_I64: return (double)((const int64_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static void store(void *p, tn_dtype t, int64_t i, double x)
{
    switch (t) {
    case TN_F32: ((float *)p)[i] = (float)x; break;
    case TN_BF16: ((uint16_t *)p)[i] = tn_f32_to_bf16((float)x); break;
    case TN_F16: ((uint16_t *)p)[i] = tn_f32_to_f16((float)x); break;
    case TN_F64: ((double *)p)[i] = x; break;
    case TN_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case TN_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    default: ((uint8_t *)p)[i] = (uint8_t)x; break;
    }
}

void tn_convert(void *dst, tn_dtype dst_type, const void *src, tn_dtype src_type, int64_t n)
{
    if (n <= 0) return;
    if (dst_type == src_type) {
        memmove(dst, src, (size_t)n * tn_dtype_bytes(dst_type));
    } else if (dst_type == TN_F32 && src_type == TN_BF16) {
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = tn_bf16_to_f32(((const uint16_t *)src)[i]);
    } else if (dst_type == TN_BF16 && src_type == TN_F32) {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = tn_f32_to_bf16(((const float *)src)[i]);
    } else {
        for (int64_t i = 0; i < n; i++) store(dst, dst_type, i, load(src, src_type, i));
    }
}
