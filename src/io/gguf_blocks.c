/* Decoders of GGUF blocks, one for each type, written from the format's layout. In all 4- and 5-bit types of 32 values a
 * byte holds value i in its low and value i + 16 in its high half; types with K have 256 values in groups. */
#include "io/gguf_blocks.h"

#include <string.h>

static float half(const unsigned char *p) { return tn_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* --- plain numbers: blocks of one value ------------------------------------------------------------------------------- */

static void decode_f32(const unsigned char *src, float *dst, int64_t blocks)
{
    if (blocks) memcpy(dst, src, (size_t)blocks * 4);
}

static void decode_f16(const unsigned char *src, float *dst, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++) dst[i] = half(src + 2 * i);
}

static void decode_bf16(const unsigned char *src, float *dst, int64_t blocks)
{
    for (int64_t i = 0; i < blocks; i++) dst[i] = tn_bf16_to_f32((uint16_t)(src[2 * i] | src[2 * i + 1] << 8));
}

/* --- blocks of 32 ------------------------------------------------------------------------------------------------------ */

/* d f16, 32 x i8 */
static void decode_q8_0(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 34, dst += 32) {
        const float d = half(src);
        for (int i = 0; i < 32; i++) dst[i] = d * (float)(int8_t)src[2 + i];
    }
}

/* d f16, 16 bytes: d (q - 8) */
static void decode_q4_0(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 18, dst += 32) {
        const float d = half(src);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)((src[2 + i] & 15) - 8);
            dst[i + 16] = d * (float)((src[2 + i] >> 4) - 8);
        }
    }
}

/* d f16, m f16, 16 bytes: d q + m */
static void decode_q4_1(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 20, dst += 32) {
        const float d = half(src), m = half(src + 2);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)(src[4 + i] & 15) + m;
            dst[i + 16] = d * (float)(src[4 + i] >> 4) + m;
        }
    }
}

/* The value i of 32 with five bits: four of the halves, the fifth in bit i of the four bytes before them. */
static int five_bits(const unsigned char *top, int i)
{
    const int low = i < 16 ? top[4 + i] & 15 : top[4 + i - 16] >> 4;
    return low | (top[i / 8] >> i % 8 & 1) << 4;
}

/* d f16, 4 bytes of fifth bits, 16 bytes: d (q - 16) */
static void decode_q5_0(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 22, dst += 32) {
        const float d = half(src);
        for (int i = 0; i < 32; i++) dst[i] = d * (float)(five_bits(src + 2, i) - 16);
    }
}

/* d f16, m f16, 4 bytes of fifth bits, 16 bytes: d q + m */
static void decode_q5_1(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 24, dst += 32) {
        const float d = half(src), m = half(src + 2);
        for (int i = 0; i < 32; i++) dst[i] = d * (float)five_bits(src + 4, i) + m;
    }
}

/* --- blocks of 256 ----------------------------------------------------------------------------------------------------- */

/* Scale and minimum of group g of 8, six bits each in 12 bytes: those of groups 0..3 in the low bits of bytes g and g + 4,
 * of groups 4..7 four bits each in byte g + 4, their upper two in the upper bits of bytes g - 4 and g. */
static void scale_and_min(const unsigned char p[12], int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = p[g] & 63;
        *min = p[g + 4] & 63;
    } else {
        *scale = (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
        *min = p[g + 4] >> 4 | p[g] >> 6 << 4;
    }
}

/* d f16, dmin f16, 12 bytes of scales, (fifth bits: 32 bytes, bit g of byte i,) 128 bytes: groups of 32, two to 32 bytes,
 * the first in their low halves. d scale q - dmin min */
static void decode_scaled(const unsigned char *src, const unsigned char *top, const unsigned char *q, float *dst)
{
    const float d = half(src), dmin = half(src + 2);
    for (int g = 0; g < 8; g++, dst += 32) {
        int scale, min;
        scale_and_min(src + 4, g, &scale, &min);
        const float ds = d * (float)scale, dm = dmin * (float)min;
        for (int i = 0; i < 32; i++) {
            const int low = q[g / 2 * 32 + i] >> g % 2 * 4 & 15;
            dst[i] = ds * (float)(top ? low | (top[i] >> g & 1) << 4 : low) - dm;
        }
    }
}

static void decode_q4_k(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 144, dst += 256) decode_scaled(src, NULL, src + 16, dst);
}

static void decode_q5_k(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 176, dst += 256) decode_scaled(src, src + 16, src + 48, dst);
}

/* 128 bytes of low halves, 64 of upper pairs of bits, 16 x i8 scales of 16 values each, d f16: d scale (q - 32). Each half
 * of 128 values has 64 and 32 bytes: value 32 k + i has its low bits in byte 32 (k % 2) + i, half k / 2, and its upper in
 * pair k of byte i. */
static void decode_q6_k(const unsigned char *src, float *dst, int64_t blocks)
{
    for (; blocks--; src += 210, dst += 256) {
        const float d = half(src + 208);
        for (int v = 0; v < 256; v++) {
            const int part = v / 128, k = v / 32 % 4, i = v % 32;
            const int low = src[64 * part + 32 * (k % 2) + i] >> k / 2 * 4 & 15;
            const int high = src[128 + 32 * part + i] >> 2 * k & 3;
            dst[v] = d * (float)(int8_t)src[192 + v / 16] * (float)((low | high << 4) - 32);
        }
    }
}

/* --- the table --------------------------------------------------------------------------------------------------------- */

static const tn_gguf_type types[] = {
    { "F32", 0, TN_F32, 1, 4, decode_f32 },           { "F16", 1, TN_F16, 1, 2, decode_f16 },
    { "BF16", 30, TN_BF16, 1, 2, decode_bf16 },       { "Q8_0", 8, TN_DTYPES, 32, 34, decode_q8_0 },
    { "Q4_0", 2, TN_DTYPES, 32, 18, decode_q4_0 },    { "Q4_1", 3, TN_DTYPES, 32, 20, decode_q4_1 },
    { "Q5_0", 6, TN_DTYPES, 32, 22, decode_q5_0 },    { "Q5_1", 7, TN_DTYPES, 32, 24, decode_q5_1 },
    { "Q4_K", 12, TN_DTYPES, 256, 144, decode_q4_k }, { "Q5_K", 13, TN_DTYPES, 256, 176, decode_q5_k },
    { "Q6_K", 14, TN_DTYPES, 256, 210, decode_q6_k },
};
enum { TYPES = sizeof types / sizeof *types };

/* Those of other programs, for messages. */
static const struct other {
    uint32_t id;
    const char *name;
} others[] = {
    { 9, "Q8_1" },     { 10, "Q2_K" },  { 11, "Q3_K" },   { 15, "Q8_K" },  { 16, "IQ2_XXS" }, { 17, "IQ2_XS" },
    { 18, "IQ3_XXS" }, { 19, "IQ1_S" }, { 20, "IQ4_NL" }, { 21, "IQ3_S" }, { 22, "IQ2_S" },   { 23, "IQ4_XS" },
    { 24, "I8" },      { 25, "I16" },   { 26, "I32" },    { 27, "I64" },   { 28, "F64" },     { 29, "IQ1_M" },
    { 34, "TQ1_0" },   { 35, "TQ2_0" }, { 39, "MXFP4" },
};

const tn_gguf_type *tn_gguf_types(size_t *n)
{
    *n = TYPES;
    return types;
}

const tn_gguf_type *tn_gguf_type_of(uint32_t id)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

const char *tn_gguf_type_name(uint32_t id)
{
    const tn_gguf_type *t = tn_gguf_type_of(id);
    for (size_t i = 0; !t && i < sizeof others / sizeof *others; i++)
        if (others[i].id == id) return others[i].name;
    return t ? t->name : "?";
}

void tn_gguf_decode(const tn_gguf_type *t, const unsigned char *src, int64_t first, int64_t n, float *dst)
{
    float block[TN_GGUF_BLOCK_MAX];
    src += first / t->values * t->bytes;
    first %= t->values;
    while (n > 0) {
        int64_t k = n / t->values; /* whole blocks, where none is cut */
        if (first == 0 && k) {
            t->decode(src, dst, k);
            src += k * t->bytes;
            k *= t->values;
        } else {
            k = t->values - first < n ? t->values - first : n;
            t->decode(src, block, 1);
            memcpy(dst, block + first, (size_t)k * sizeof *dst);
            src += t->bytes;
            first = 0;
        }
        dst += k;
        n -= k;
    }
}
