/* The numbers of a wire message (io/wire_file.h): groups of values that share a scale, b bits each, or f16.
 *
 *   scale = max |v| / (2^(b-1) - 1) over a group of consecutive values, 1 where all are zero; stored rounded up, so that no
 *           value exceeds the range. The stored scale is the one that is divided by.
 *   q     = round(v / scale) to the nearest, halves to even, clamped to -2^(b-1) .. 2^(b-1)-1
 *
 * Payload: the scales (f16 or f32), then the q as two's complement in a little-endian stream of bits: value i has the bits
 * i b .. i b + b-1, and bit k is bit k mod 8 of byte k / 8. Bits left over in the last byte are 0. bits = 16: the values as
 * f16, no scales. */
#ifndef TN_IO_WIRE_QUANT_H
#define TN_IO_WIRE_QUANT_H

#include "base/status.h"

#include <stddef.h>
#include <tenon/tensor.h>

typedef struct tn_wire_code {
    int bits;       /* 16, 8, 6 or 4 */
    uint32_t group; /* at least 1; not read where bits is 16 */
    tn_dtype scale; /* TN_F16 or TN_F32; not read where bits is 16 */
} tn_wire_code;

/* Of n values; n at most 2^32. */
uint64_t tn_wire_groups(const tn_wire_code *c, uint64_t n);
uint64_t tn_wire_payload_bytes(const tn_wire_code *c, uint64_t n);

/* z (n) into payload. Values that are NaN, infinite or too large for the code are refused by slot and place (width values
 * make a slot) before anything is written. */
tn_status tn_wire_pack(const tn_wire_code *c, const float *z, size_t n, size_t width, unsigned char *payload);

/* Whether every scale and value of a payload is one that tn_wire_pack could have meant: then all numbers decode finite. */
tn_status tn_wire_payload_check(const tn_wire_code *c, const unsigned char *payload, size_t n, size_t width);
/* The values of a checked payload. */
void tn_wire_unpack(const tn_wire_code *c, const unsigned char *payload, size_t n, float *z);

#endif
