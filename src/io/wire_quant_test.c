/* The quantiser of wire messages against a second one in double that reads the payload bit by bit: scales are the smallest of their type
 * that cover a group, values the nearest, and no value is farther from what was sent than half a scale. */
#include "io/wire_quant.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "testlib.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct trip {
    int bits;
    uint32_t group;
    tn_dtype scale;
    size_t n;
    double size; /* of the values */
} trip;

static const trip trips[] = {
    { 16, 0, TN_F16, 4096, 1 },    { 16, 0, TN_F16, 333, 1e-6 },    { 16, 0, TN_F16, 100, 1e4 },
    { 8, 32, TN_F16, 4096, 1 },    { 8, 32, TN_F32, 4096, 1 },      { 8, 7, TN_F16, 1001, 100 },
    { 8, 1, TN_F16, 65, 3 },       { 8, 65535, TN_F16, 500, 1e-3 }, { 8, 32, TN_F16, 512, 1e-7 },
    { 8, 32, TN_F32, 512, 1e-44 }, { 8, 32, TN_F32, 512, 5e37 },    { 6, 32, TN_F16, 4096, 1 },
    { 6, 32, TN_F32, 4096, 1 },    { 6, 5, TN_F16, 1001, 100 },     { 6, 32, TN_F16, 1, 2 },
    { 6, 64, TN_F16, 2, 2 },       { 6, 3, TN_F32, 3, 2 },          { 6, 32, TN_F16, 513, 2e5 },
    { 4, 32, TN_F16, 4096, 1 },    { 4, 32, TN_F32, 4096, 1 },      { 4, 16, TN_F16, 1001, 100 },
    { 4, 1, TN_F16, 7, 5 },        { 4, 32, TN_F16, 512, 3e-8 },    { 4, 32, TN_F32, 33, 1e30 },
};

/* The bits from `at` on, one by one. */
static uint64_t bits_at(const unsigned char *p, uint64_t at, int n)
{
    uint64_t x = 0;
    while (n-- > 0) x = 2 * x + (p[(at + (uint64_t)n) / 8] >> (at + (uint64_t)n) % 8 & 1);
    return x;
}

/* An IEEE number of e exponent bits and m mantissa bits, by its definition. */
static double ieee(uint64_t bits, int e, int m)
{
    const int exponent = (int)(bits >> m & ((1u << e) - 1)), bias = (1 << (e - 1)) - 1;
    const double mantissa = (double)(bits & ((1ull << m) - 1)) / (double)(1ull << m);
    const double x = exponent ? ldexp(1 + mantissa, exponent - bias) : ldexp(mantissa, 1 - bias);
    return bits >> (e + m) & 1 ? -x : x;
}

static double scale_from(const trip *t, uint64_t bits)
{
    return t->scale == TN_F16 ? ieee(bits, 5, 10) : ieee(bits, 8, 23);
}

static void check_group(const trip *t, const float *z, const float *got, uint64_t scale_bits, const unsigned char *q,
                        size_t first, size_t end)
{
    const int top = (1 << (t->bits - 1)) - 1;
    const double scale = scale_from(t, scale_bits);
    const double rounded = t->scale == TN_F32 ? 0x1p-24 : 0; /* the product of an f16 scale is exact */
    double most = 0;
    for (size_t i = first; i < end; i++)
        if (fabs((double)z[i]) > most) most = fabs((double)z[i]);
    if (most == 0) assert_true(scale == 1);
    else
        assert_true(scale >= most / top &&
                    scale_from(t, scale_bits - 1) < most / top); /* the smallest that covers the group */
    for (size_t i = first; i < end; i++) {
        const int64_t u = (int64_t)bits_at(q, i * (uint64_t)t->bits, t->bits), value = u > top ? u - (1 << t->bits) : u;
        const double exact = (double)z[i] / scale;
        assert_true(value >= -top - 1 && value <= top);
        assert_true(fabs(exact - (double)value) <= 0.5);
        if (fabs(exact - (double)value) == 0.5) assert_int_equal(value % 2, 0);
        assert_true((double)got[i] == (double)(float)((double)value * scale));
        assert_true(fabs((double)got[i] - (double)z[i]) <= scale / 2 + rounded * fabs((double)got[i]));
    }
}

static void check_fp16(const float *z, const float *got, const unsigned char *payload, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_true((double)got[i] == ieee(bits_at(payload, 16 * i, 16), 5, 10));
        assert_true(fabs((double)got[i] - (double)z[i]) <= fmax(0x1p-11 * fabs((double)z[i]), 0x1p-25));
    }
}

/* Groups of zeros, of one size and of very different ones; ties. */
static void fill(const trip *t, float *z)
{
    for (size_t i = 0; i < t->n; i++) {
        const uint64_t g = t->group ? i / t->group : 0;
        z[i] = (float)(t->size * (double)tn_rng_normal((tn_rng){ 7, (uint64_t)t->bits }, i));
        if (g % 5 == 3) z[i] = 0;
        if (g % 5 == 4) z[i] = (float)(t->size * (double)(i % 15) / 14 * ((i & 1) ? -1 : 1));
    }
}

static void round_trip(void **state)
{
    const trip *t = *state;
    const tn_wire_code c = { t->bits, t->group, t->scale };
    const size_t bytes = (size_t)tn_wire_payload_bytes(&c, t->n), step = t->bits == 16 ? 0 : t->scale == TN_F16 ? 2 : 4;
    const size_t groups = t->bits == 16 ? 0 : (t->n + t->group - 1) / t->group;
    float *z = calloc(t->n, sizeof *z), *got = calloc(t->n, sizeof *got);
    unsigned char *payload = malloc(bytes); /* exactly as long, so that the sanitizer sees a write beyond it */
    assert_true(z && got && payload);
    assert_int_equal(bytes, (size_t)ceil((double)t->n * t->bits / 8 + (double)groups * (double)step));
    fill(t, z);
    assert_ok(tn_wire_pack(&c, z, t->n, 1, payload));
    assert_ok(tn_wire_payload_check(&c, payload, t->n, 1));
    tn_wire_unpack(&c, payload, t->n, got);
    if (t->bits == 16) check_fp16(z, got, payload, t->n);
    for (size_t g = 0; g < groups; g++)
        check_group(t, z, got, bits_at(payload, 8 * g * step, (int)(8 * step)), payload + groups * step, g * t->group,
                    (g + 1) * t->group < t->n ? (g + 1) * t->group : t->n);
    free(z);
    free(got);
    free(payload);
}

/* --- edges ---------------------------------------------------------------------------------------------------------------- */

static void pack_one(tn_wire_code c, float x, unsigned char payload[8], float *got)
{
    assert_true(tn_wire_payload_bytes(&c, 1) <= 8);
    assert_ok(tn_wire_pack(&c, &x, 1, 1, payload));
    assert_ok(tn_wire_payload_check(&c, payload, 1, 1));
    tn_wire_unpack(&c, payload, 1, got);
}

/* A scale is rounded up where the nearest would be too small: 5/127 in f16, the least f32, and what is below the least f16. */
static void scales_cover(void **state)
{
    (void)state;
    unsigned char p[8];
    float got;
    pack_one((tn_wire_code){ 8, 1, TN_F16 }, 5, p, &got);
    assert_true(ieee(bits_at(p, 0, 16), 5, 10) >= 5.0 / 127);
    assert_int_equal(p[2], 127);
    pack_one((tn_wire_code){ 8, 1, TN_F32 }, FLT_TRUE_MIN, p, &got);
    assert_true(got == FLT_TRUE_MIN); /* the scale is the least f32, not 0 */
    pack_one((tn_wire_code){ 4, 1, TN_F16 }, 1e-12f, p, &got);
    assert_int_equal(bits_at(p, 0, 16), 1);
    assert_true(got == 0);
    pack_one((tn_wire_code){ 8, 1, TN_F16 }, -65504.0f * 127, p, &got);
    assert_true(got == -65504.0f * 127);
    pack_one((tn_wire_code){ 8, 1, TN_F32 }, 3.37e38f, p, &got);
    assert_true(isfinite(got) && fabs((double)got - 3.37e38) < 1e32);
    pack_one((tn_wire_code){ 16, 0, TN_F16 }, 65519.9f, p, &got);
    assert_true(got == 65504);
}

/* The least value of a code is never written, and may be read. */
static void least_value_is_read(void **state)
{
    (void)state;
    const tn_wire_code c = { 4, 2, TN_F16 };
    const unsigned char payload[3] = { 0x00, 0x3c, 0x78 }; /* scale 1; -8, 7 */
    float z[2];
    assert_ok(tn_wire_payload_check(&c, payload, 2, 2));
    tn_wire_unpack(&c, payload, 2, z);
    assert_true(z[0] == -8 && z[1] == 7);
}

typedef struct refusal {
    tn_wire_code code;
    float x;
    tn_status status;
    const char *says;
} refusal;

static const refusal refusals[] = {
    { { 8, 32, TN_F16 }, NAN, TN_DIVERGED, "Z is NaN at slot 2, place 1" },
    { { 8, 32, TN_F16 }, -NAN, TN_DIVERGED, "Z is NaN at slot 2, place 1" },
    { { 16, 0, TN_F16 }, INFINITY, TN_DIVERGED, "Z is inf at slot 2, place 1" },
    { { 4, 2, TN_F32 }, -INFINITY, TN_DIVERGED, "Z is -inf at slot 2, place 1" },
    { { 16, 0, TN_F16 }, 65520, TN_USAGE, "Z is 65520 at slot 2, place 1: 16 bits (fp16) hold at most 65504" },
    { { 16, 0, TN_F16 }, -1e30f, TN_USAGE, "Z is -1e+30 at slot 2, place 1" },
    { { 8, 32, TN_F16 },
      8319009,
      TN_USAGE,
      "8 bits and f16 scales hold at most 8.31901e+06; use bits 8 and f32 scales" },
    { { 4, 4, TN_F16 }, -458529, TN_USAGE, "4 bits and f16 scales hold at most 458528" },
    { { 8, 32, TN_F32 }, FLT_MAX, TN_USAGE, "8 bits and f32 scales hold at most 3.37624e+38; make Z smaller" },
};

static void bad_numbers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        float z[15] = { 1, -2, 3 };
        unsigned char payload[64], before[64];
        memset(payload, 0xa5, sizeof payload);
        memcpy(before, payload, sizeof before);
        z[11] = r->x;
        assert_fails(tn_wire_pack(&r->code, z, 15, 5, payload), r->status, r->says);
        assert_memory_equal(payload, before, sizeof before);
    }
}

void tn_tests_wire_quant(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof trips / sizeof *trips; i++)
        tn_test_add(l, round_trip, &trips[i], "wire: %d bits, groups of %u, %s scales, %zu values of size %g",
                    trips[i].bits, trips[i].group, tn_dtype_name(trips[i].scale), trips[i].n, trips[i].size);
    tn_test_add(l, scales_cover, NULL, "wire: a scale covers its group");
    tn_test_add(l, least_value_is_read, NULL, "wire: the least value of a code is read");
    tn_test_add(l, bad_numbers_are_refused, NULL, "wire: bad numbers are refused by name");
}
