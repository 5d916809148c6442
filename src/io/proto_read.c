/* Protobuf's wire format: a tag (field << 3 | wire) and a value. Invariant: at <= end. */
#include "io/proto_read.h"

#include <string.h>

void tn_proto_open(tn_proto *r, const void *data, size_t bytes)
{
    *r = (tn_proto){ 0 };
    r->begin = r->at = data;
    r->end = r->begin + bytes;
}

static bool fail(tn_proto *r, const char *why)
{
    r->why = why;
    return false;
}

/* Seven bits a byte, the lowest first; ten bytes at most, of which the last holds one bit. */
static bool read_varint(tn_proto *r, uint64_t *out)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at == r->end) return fail(r, "cut short in a number");
        const unsigned char b = *r->at++;
        if (shift == 63 && b > 1) break;
        x |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) return *out = x, true;
    }
    return fail(r, "a number of more than 64 bits");
}

static bool read_fixed(tn_proto *r, size_t n)
{
    if ((size_t)(r->end - r->at) < n) return fail(r, "cut short in a number");
    r->value = 0;
    for (size_t i = 0; i < n; i++) r->value |= (uint64_t)r->at[i] << (8 * i);
    r->at += n;
    return true;
}

static bool read_bytes(tn_proto *r)
{
    uint64_t n;
    if (!read_varint(r, &n)) return false;
    if (n > (size_t)(r->end - r->at)) return fail(r, "a length beyond the end");
    r->data = (const char *)r->at;
    r->bytes = (size_t)n;
    r->at += n;
    return true;
}

bool tn_proto_next(tn_proto *r)
{
    uint64_t tag;
    if (r->why || r->at == r->end || !read_varint(r, &tag)) return false;
    if (tag >> 3 == 0 || tag >> 3 >= 1 << 29) return fail(r, "a field without a number");
    r->field = (uint32_t)(tag >> 3);
    r->wire = (tn_proto_wire)(tag & 7);
    switch (tag & 7) {
    case TN_PROTO_NUMBER: return read_varint(r, &r->value);
    case TN_PROTO_8: return read_fixed(r, 8);
    case TN_PROTO_BYTES: return read_bytes(r);
    case TN_PROTO_4: return read_fixed(r, 4);
    default: return fail(r, "an unknown kind of field");
    }
}

size_t tn_proto_at(const tn_proto *r) { return (size_t)(r->at - r->begin); }

float tn_proto_float(const tn_proto *r)
{
    const uint32_t bits = (uint32_t)r->value;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
