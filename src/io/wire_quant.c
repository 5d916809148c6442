/* Quantises and packs. All arithmetic on scales is in double, where a quotient of two floats is never rounded onto a tie
 * that it is not: another implementation gets the same bytes. */
#include "io/wire_quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t scale_bytes(const tn_wire_code *c) { return c->bits == 16 ? 0 : c->scale == TN_F16 ? 2 : 4; }

uint64_t tn_wire_groups(const tn_wire_code *c, uint64_t n)
{
    return c->bits == 16 ? 0 : n / c->group + (n % c->group != 0);
}

uint64_t tn_wire_payload_bytes(const tn_wire_code *c, uint64_t n)
{
    return tn_wire_groups(c, n) * scale_bytes(c) + (n * (uint64_t)c->bits + 7) / 8;
}

/* --- scales ------------------------------------------------------------------------------------------------------------ */

/* The most that a scale may be: beyond it -2^(b-1) would decode to an infinity, or the type holds no more. */
static double scale_most(const tn_wire_code *c)
{
    return c->scale == TN_F16 ? 65504 : (double)FLT_MAX / (1 << (c->bits - 1));
}

/* The smallest number of the type that is no less than max|v| / (2^(b-1) - 1): never 0. Above scale_most where there is none. */
static double scale_of(const tn_wire_code *c, double most)
{
    const double exact = most / ((1 << (c->bits - 1)) - 1);
    if (most == 0) return 1;
    if (exact > scale_most(c)) return INFINITY;
    if (c->scale == TN_F32) {
        const float f = (float)exact;
        return (double)((double)f < exact ? nextafterf(f, INFINITY) : f);
    }
    uint16_t h = tn_f32_to_f16((float)exact);
    if ((double)tn_f16_to_f32(h) < exact) h++; /* bits of positive numbers are in the order of the numbers */
    return (double)tn_f16_to_f32(h);
}

static void store_scale(const tn_wire_code *c, unsigned char *p, double scale)
{
    uint32_t u;
    const float f = (float)scale;
    memcpy(&u, &f, 4);
    if (c->scale == TN_F16) u = tn_f32_to_f16(f);
    for (size_t i = 0; i < scale_bytes(c); i++) p[i] = (unsigned char)(u >> 8 * i);
}

static float load_f16(const unsigned char *p) { return tn_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

static float load_scale(const tn_wire_code *c, const unsigned char *p)
{
    float f;
    if (c->scale == TN_F16) return load_f16(p);
    const uint32_t u = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    memcpy(&f, &u, 4);
    return f;
}

static double largest(const float *v, size_t n, size_t *at)
{
    double most = 0;
    *at = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs((double)v[i]) > most) {
            most = fabs((double)v[i]);
            *at = i;
        }
    return most;
}

/* --- packing ----------------------------------------------------------------------------------------------------------- */

static tn_status check_finite(const float *z, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(z[i]))
            return tn_error(TN_DIVERGED,
                            "Z is %s at slot %zu, place %zu: a wire message holds finite numbers; check the encoder's "
                            "weights and its input",
                            isnan(z[i]) ? "NaN"
                            : z[i] > 0  ? "inf"
                                        : "-inf",
                            i / width, i % width);
    return TN_OK;
}

static tn_status too_large(const tn_wire_code *c, const float *z, size_t i, size_t width, double most)
{
    const bool f16 = c->bits == 16 || c->scale == TN_F16;
    return tn_error(TN_USAGE, "Z is %g at slot %zu, place %zu: %d bits%s hold at most %g; %s", (double)z[i], i / width,
                    i % width, c->bits,
                    c->bits == 16 ? " (fp16)"
                    : f16         ? " and f16 scales"
                                  : " and f32 scales",
                    most, f16 ? "use bits 8 and f32 scales, or make Z smaller" : "make Z smaller");
}

/* f16 rounds to an infinity from 65520 on. */
static tn_status check_range(const tn_wire_code *c, const float *z, size_t n, size_t width)
{
    size_t at;
    for (size_t i = 0; c->bits == 16 && i < n; i++)
        if (fabsf(z[i]) >= 65520) return too_large(c, z, i, width, 65504);
    for (size_t i = 0; c->bits != 16 && i < n; i += c->group) {
        const double most = largest(z + i, n - i < c->group ? n - i : c->group, &at);
        if (scale_of(c, most) > scale_most(c))
            return too_large(c, z, i + at, width, scale_most(c) * ((1 << (c->bits - 1)) - 1));
    }
    return TN_OK;
}

static void put_bits(unsigned char *p, uint64_t at, int bits, uint32_t x)
{
    const unsigned shift = at % 8;
    x = (x & ((1u << bits) - 1)) << shift;
    p[at / 8] |= (unsigned char)x;
    if (shift + (unsigned)bits > 8) p[at / 8 + 1] |= (unsigned char)(x >> 8);
}

static int get_bits(const unsigned char *p, uint64_t at, int bits)
{
    const unsigned shift = at % 8;
    uint32_t x = (uint32_t)p[at / 8] >> shift;
    if (shift + (unsigned)bits > 8) x |= (uint32_t)p[at / 8 + 1] << (8 - shift);
    x &= (1u << bits) - 1;
    return (int)x - (x >> (bits - 1) ? 1 << bits : 0);
}

static int quantise(double x, int bits)
{
    const int top = 1 << (bits - 1);
    const double r = rint(x);
    return r < -top ? -top : r > top - 1 ? top - 1 : (int)r;
}

tn_status tn_wire_pack(const tn_wire_code *c, const float *z, size_t n, size_t width, unsigned char *payload)
{
    TN_RETURN_IF(check_finite(z, n, width));
    TN_RETURN_IF(check_range(c, z, n, width));
    unsigned char *q = payload + tn_wire_groups(c, n) * scale_bytes(c);
    size_t at;
    memset(payload, 0, tn_wire_payload_bytes(c, n));
    for (size_t i = 0; c->bits == 16 && i < n; i++) {
        const uint16_t h = tn_f32_to_f16(z[i]);
        q[2 * i] = (unsigned char)h;
        q[2 * i + 1] = (unsigned char)(h >> 8);
    }
    for (size_t i = 0, g = 0; c->bits != 16 && i < n; i += c->group, g++) {
        const size_t end = n - i < c->group ? n : i + c->group;
        const double scale = scale_of(c, largest(z + i, end - i, &at));
        store_scale(c, payload + g * scale_bytes(c), scale);
        for (size_t k = i; k < end; k++)
            put_bits(q, k * (uint64_t)c->bits, c->bits, (uint32_t)quantise((double)z[k] / scale, c->bits));
    }
    return TN_OK;
}

/* --- unpacking --------------------------------------------------------------------------------------------------------- */

tn_status tn_wire_payload_check(const tn_wire_code *c, const unsigned char *payload, size_t n, size_t width)
{
    const size_t groups = (size_t)tn_wire_groups(c, n), used = n * (size_t)c->bits % 8;
    const unsigned char last = payload[tn_wire_payload_bytes(c, n) - 1];
    for (size_t i = 0; c->bits == 16 && i < n; i++)
        if (!isfinite(load_f16(payload + 2 * i)))
            return tn_error(TN_BAD_FILE, "the value of slot %zu, place %zu is %g; encode the message again", i / width,
                            i % width, (double)load_f16(payload + 2 * i));
    for (size_t g = 0; g < groups; g++) {
        const double scale = (double)load_scale(c, payload + g * scale_bytes(c));
        if (!(scale > 0 && scale <= scale_most(c)))
            return tn_error(TN_BAD_FILE,
                            "the scale of group %zu is %g: not above 0 and at most %g; encode the message again", g,
                            scale, scale_most(c));
    }
    if (used && last >> used)
        return tn_error(TN_BAD_FILE,
                        "the last byte of the values is 0x%02x: the %zu bits beyond value %zu are not 0; "
                        "encode the message again",
                        last, 8 - used, n - 1);
    return TN_OK;
}

void tn_wire_unpack(const tn_wire_code *c, const unsigned char *payload, size_t n, float *z)
{
    const unsigned char *q = payload + tn_wire_groups(c, n) * scale_bytes(c);
    for (size_t i = 0; c->bits == 16 && i < n; i++) z[i] = load_f16(q + 2 * i);
    for (size_t i = 0, g = 0; c->bits != 16 && i < n; i += c->group, g++) {
        const size_t end = n - i < c->group ? n : i + c->group;
        const float scale = load_scale(c, payload + g * scale_bytes(c));
        for (size_t k = i; k < end; k++) z[k] = (float)get_bits(q, k * (uint64_t)c->bits, c->bits) * scale;
    }
}
