/* Wire messages: their bytes and lengths, what is refused (every cut, every flipped bit, a table of hostile messages), and memory. */
#include "wire_golden.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <zlib.h>

static const tn_wire_limits any = { 0 };

/* --- bytes ------------------------------------------------------------------------------------------------------------------ */

typedef struct length {
    uint32_t slots, width;
    size_t payload[4]; /* fp16, int8, int6, int4; groups of 32, f16 scales */
} length;

static const length lengths[] = {
    { 64, 256, { 32768, 17408, 13312, 9216 } },
    { 32, 256, { 16384, 8704, 6656, 4608 } },
    { 16, 256, { 8192, 4352, 3328, 2304 } },
    { 16, 64, { 2048, 1088, 832, 576 } },
    { 8, 64, { 1024, 544, 416, 288 } },
    { 16, 32, { 1024, 544, 416, 288 } },
    { 1, 1, { 2, 3, 3, 3 } },
    { 3, 11, { 66, 37, 29, 21 } },
};

static void lengths_are_known_before(void **state)
{
    (void)state;
    static const int bits[4] = { 16, 8, 6, 4 };
    tn_wire_size s;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int k = 0; k < 4; k++) {
            const tn_wire_options o = { GOLDEN_ENCODER,  bits[k], TN_WIRE_GROUP, TN_F16, lengths[i].slots, 0, 0,
                                        lengths[i].width };
            assert_ok(tn_wire_size_of(&o, &s));
            assert_int_equal(s.payload, lengths[i].payload[k]);
            assert_int_equal(s.message, lengths[i].payload[k] + 52);
            assert_int_equal(s.values, lengths[i].slots * lengths[i].width);
        }
    const tn_wire_options wide = { GOLDEN_ENCODER, 6, 10, TN_F32, 3, 4, 5, 7 }; /* 23 slots, 161 values, 17 scales */
    assert_ok(tn_wire_size_of(&wide, &s));
    assert_int_equal(s.slots, 23);
    assert_int_equal(s.payload, 17 * 4 + 121);
}

static void golden_bytes_stay(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDENS; i++) {
        const tn_wire_options o = golden_options(i);
        unsigned char want[GOLDEN_MOST_BYTES], got[GOLDEN_MOST_BYTES];
        tn_wire_message m = { 0 };
        tn_wire_size s;
        const size_t n = golden_bytes(i, want);
        assert_ok(tn_wire_size_of(&o, &s));
        assert_int_equal(s.message, n);
        memset(got, 0xa5, sizeof got);
        assert_ok(tn_wire_encode(&o, golden_z, got));
        assert_memory_equal(got, want, n);
        assert_int_equal(got[n], 0xa5);
        assert_ok(tn_wire_decode("golden", want, n, &any, &m));
        assert_true(same_options(&m.about, &o));
        assert_memory_equal(&m.size, &s, sizeof s);
        if (i == GOLDEN_FP16) assert_memory_equal(m.z, golden_z, sizeof golden_z); /* all of them are f16 */
        tn_wire_message_free(&m);
    }
}

/* The message that docs/wire.md takes apart. */
static void the_documented_message(void **state)
{
    (void)state;
    static const unsigned char want[58] = { 0x54, 0x4e, 0x57, 0x5a, 1,    0,    8,    1,    0,    1,    2,    3,
                                            4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
                                            1,    0,    0,    0,    1,    0,    0,    0,    0,    0,    0,    0,
                                            0,    0,    4,    0,    4,    0,    0,    0,    0x2b, 0x49, 0x78, 0x0f,
                                            0x09, 0x28, 0x20, 0xc1, 0x10, 0x7f, 0x98, 0xb9, 0x04, 0x40 };
    static const float z[4] = { 1, -2, 0.5f, 4 }, back[4] = { 1.0088f, -1.9861f, 0.5044f, 4.0036f };
    const tn_wire_options o = { GOLDEN_ENCODER, 8, 4, TN_F16, 1, 0, 0, 4 };
    unsigned char got[58];
    tn_wire_message m = { 0 };
    assert_ok(tn_wire_encode(&o, z, got));
    assert_memory_equal(got, want, sizeof want);
    assert_ok(tn_wire_decode("documented", got, sizeof got, &any, &m));
    for (int i = 0; i < 4; i++) assert_float_equal(m.z[i], back[i], 5e-5);
    tn_wire_message_free(&m);
}

/* --- what is refused ------------------------------------------------------------------------------------------------------- */

static void put_u32(unsigned char *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(x >> 8 * i);
}

/* Both CRCs made right again, so that the fields behind them are reached. */
static void seal(unsigned char *p, size_t n)
{
    const uint32_t head = (uint32_t)crc32(0, p, 44);
    put_u32(p + 44, head);
    put_u32(p + n - 4, (uint32_t)crc32(head, p + 48, (uInt)(n - 52)));
}

/* A copy that is exactly as long, so that the sanitizer sees a read beyond it. */
static tn_status decode_copy(const unsigned char *p, size_t n, const tn_wire_limits *l)
{
    tn_wire_message m = { 0 };
    unsigned char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, p, n);
    const tn_status s = tn_wire_decode("hostile", copy, n, l, &m);
    if (s != TN_OK) assert_true(!m.z && m.size.values == 0);
    tn_wire_message_free(&m);
    free(copy);
    return s;
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDENS; i++) {
        unsigned char p[GOLDEN_MOST_BYTES];
        const size_t n = golden_bytes(i, p);
        char says[64];
        for (size_t k = 0; k < n; k++) {
            snprintf(says, sizeof says, k < 48 ? "cut short: %zu bytes of a header of 48" : "cut short: %zu bytes of",
                     k);
            assert_fails(decode_copy(p, k, &any), TN_BAD_FILE, says);
        }
        assert_ok(decode_copy(p, n, &any));
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < GOLDENS; i++) {
        unsigned char p[GOLDEN_MOST_BYTES];
        const size_t n = golden_bytes(i, p);
        for (size_t k = 0; k < 8 * n; k++) {
            const char *says = k < 32    ? "not a wire message"
                               : k < 48  ? "version"
                               : k < 384 ? "the header is damaged"
                                         : "the message is damaged";
            p[k / 8] ^= (unsigned char)(1u << k % 8);
            assert_fails(decode_copy(p, n, &any), TN_BAD_FILE, says);
            p[k / 8] ^= (unsigned char)(1u << k % 8);
        }
    }
}

/* Each is whole, and of the same length: only a CRC over both tells that they are of two messages. */
static void payload_of_another_header(void **state)
{
    (void)state;
    tn_wire_options o = golden_options(GOLDEN_INT8);
    unsigned char p[GOLDEN_MOST_BYTES], q[GOLDEN_MOST_BYTES];
    const size_t n = golden_bytes(GOLDEN_INT8, p);
    o.encoder[0] = 'f';
    assert_ok(tn_wire_encode(&o, golden_z, q));
    memcpy(q + 48, p + 48, n - 48);
    assert_fails(decode_copy(q, n, &any), TN_BAD_FILE, "the message is damaged");
}

typedef struct hostile {
    const char *what;
    int from; /* a golden message ... */
    struct {
        int at, bytes; /* -1: counted from the end; 0 bytes: none */
        uint32_t value;
    } patch[4];
    int longer; /* ... cut, or with a copy of itself behind it */
    bool sealed;
    const char *says;
} hostile;

enum {
    BITS = 6,
    SCALE = 7,
    SLOTS = 24,
    SHARED = 28,
    PRIVATE = 32,
    MODELS = 36,
    GROUP = 38,
    WIDTH = 40,
    CRC = 44,
    PAYLOAD = 48
};

static const hostile hostiles[] = {
    { "nothing", GOLDEN_INT6, { { 0 } }, -72, false, "cut short: 0 bytes" },
    { "GGUF",
      GOLDEN_INT6,
      { { 0, 4, 0x46554747 } },
      0,
      false,
      "byte 0 is 0x47, where \"TNWZ\" has 0x54; is it the right file?" },
    { "gzip", GOLDEN_INT6, { { 0, 2, 0x8b1f } }, 0, false, "not a wire message" },
    { "another file of ours", GOLDEN_INT6, { { 2, 2, 0x4150 } }, 0, false, "byte 2 is 0x50" },
    { "a text of two letters", GOLDEN_INT6, { { 0, 2, 0x6948 } }, -70, false, "not a wire message" },
    { "three bytes of the magic", GOLDEN_INT6, { { 0 } }, -69, false, "cut short: 3 bytes of a header of 48" },
    { "version 0",
      GOLDEN_INT6,
      { { 4, 2, 0 } },
      0,
      true,
      "version 0 of the wire format, and this program reads version 1" },
    { "version 2", GOLDEN_INT6, { { 4, 2, 2 } }, 0, true, "version 2 of the wire format" },
    { "version 65535", GOLDEN_INT6, { { 4, 2, 65535 } }, 0, false, "version 65535" },
    { "no CRC of the header",
      GOLDEN_INT6,
      { { CRC, 4, 0 } },
      0,
      false,
      "its CRC is 00000000, its bytes have 883be988" },
    { "no CRC", GOLDEN_INT6, { { -4, 4, 0 } }, 0, false, "the message is damaged: its CRC is 00000000" },
    { "a header without its last byte", GOLDEN_INT6, { { 0 } }, -25, false, "47 bytes of a header of 48" },
    { "a header alone", GOLDEN_INT6, { { 0 } }, -24, false, "cut short: 48 bytes of 72" },
    { "the last byte missing", GOLDEN_INT6, { { 0 } }, -1, false, "cut short: 71 bytes of 72" },
    { "a byte behind it", GOLDEN_INT6, { { 0 } }, 1, false, "1 bytes follow the message's 72" },
    { "a message behind it", GOLDEN_INT6, { { 0 } }, 72, false, "72 bytes follow" },
    { "0 bits", GOLDEN_INT6, { { BITS, 1, 0 } }, 0, true, "bits is 0, not 16, 8, 6 or 4" },
    { "1 bit", GOLDEN_INT6, { { BITS, 1, 1 } }, 0, true, "bits is 1," },
    { "5 bits", GOLDEN_INT6, { { BITS, 1, 5 } }, 0, true, "bits is 5," },
    { "32 bits", GOLDEN_INT6, { { BITS, 1, 32 } }, 0, true, "bits is 32," },
    { "255 bits", GOLDEN_INT6, { { BITS, 1, 255 } }, 0, true, "bits is 255," },
    { "8 bits where 6 are", GOLDEN_INT6, { { BITS, 1, 8 } }, 0, true, "cut short: 72 bytes of 75" },
    { "4 bits where 6 are", GOLDEN_INT6, { { BITS, 1, 4 } }, 0, true, "4 bytes follow" },
    { "16 bits with scales",
      GOLDEN_INT6,
      { { BITS, 1, 16 } },
      0,
      true,
      "16 bits have no scales, yet their type is 1 and their group 4" },
    { "fp16 with a type of scales", GOLDEN_FP16, { { SCALE, 1, 2 } }, 0, true, "their type is 2 and their group 0" },
    { "fp16 with a group", GOLDEN_FP16, { { GROUP, 2, 32 } }, 0, true, "their type is 0 and their group 32" },
    { "no type of scales",
      GOLDEN_INT6,
      { { SCALE, 1, 0 } },
      0,
      true,
      "the type of scales is 0, not 1 (f16) or 2 (f32)" },
    { "scales of type 3", GOLDEN_INT6, { { SCALE, 1, 3 } }, 0, true, "the type of scales is 3" },
    { "scales of type 255", GOLDEN_INT6, { { SCALE, 1, 255 } }, 0, true, "the type of scales is 255" },
    { "f32 scales where f16 are", GOLDEN_INT6, { { SCALE, 1, 2 } }, 0, true, "cut short: 72 bytes of 80" },
    { "groups of 0", GOLDEN_INT6, { { GROUP, 2, 0 } }, 0, true, "group is 0, not 1 to 65535 values" },
    { "groups of 1", GOLDEN_INT6, { { GROUP, 2, 1 } }, 0, true, "cut short: 72 bytes of 94" },
    { "one group", GOLDEN_INT6, { { GROUP, 2, 65535 } }, 0, true, "6 bytes follow" },
    { "slots of nothing", GOLDEN_INT6, { { WIDTH, 4, 0 } }, 0, true, "Z has 3 slots of 0 values: it is empty" },
    { "no slots",
      GOLDEN_INT6,
      { { SLOTS, 4, 0 }, { SHARED, 4, 0 }, { PRIVATE, 4, 0 } },
      0,
      true,
      "Z has 0 slots of 5 values" },
    { "2^31 slots from nowhere",
      GOLDEN_INT6,
      { { SLOTS, 4, 1u << 31 } },
      0,
      true,
      "2147483648 slots are not 1 shared ones and 1 for each of 2 models" },
    { "2^31 slots",
      GOLDEN_INT6,
      { { SLOTS, 4, 1u << 31 }, { SHARED, 4, (1u << 31) - 2 } },
      0,
      true,
      "2147483648 slots of 5 values, the limit is 4194304" },
    { "2^31 private slots",
      GOLDEN_INT6,
      { { SLOTS, 4, 1 }, { PRIVATE, 4, 1u << 31 } },
      0,
      true,
      "1 slots are not 1 shared ones and 2147483648 for" },
    { "2^32-1 slots",
      GOLDEN_INT6,
      { { SLOTS, 4, ~0u }, { SHARED, 4, ~0u }, { MODELS, 2, 0 } },
      0,
      true,
      "Z has 4294967295 slots" },
    { "slots that wrap",
      GOLDEN_INT6,
      { { SLOTS, 4, 2 }, { SHARED, 4, ~0u - 1 }, { PRIVATE, 4, 2 } },
      0,
      true,
      "2 slots are not 4294967294 shared" },
    { "private slots that wrap",
      GOLDEN_INT6,
      { { SLOTS, 4, 3 }, { PRIVATE, 4, ~0u }, { MODELS, 2, 65535 } },
      0,
      true,
      "for each of 65535 models" },
    { "2^31 values in a slot",
      GOLDEN_INT6,
      { { WIDTH, 4, 1u << 31 } },
      0,
      true,
      "3 slots of 2147483648 values, the limit is 4194304 values; raise" },
    { "2^32-1 values in a slot", GOLDEN_INT6, { { WIDTH, 4, ~0u } }, 0, true, "slots of 4294967295 values" },
    { "2^32 values, 0 in 32 bits",
      GOLDEN_INT6,
      { { SLOTS, 4, 65536 }, { SHARED, 4, 65536 }, { MODELS, 2, 0 }, { WIDTH, 4, 65536 } },
      0,
      true,
      "65536 slots of 65536" },
    { "one value too many",
      GOLDEN_INT6,
      { { SLOTS, 4, 4194305 }, { SHARED, 4, 4194305 }, { MODELS, 2, 0 }, { WIDTH, 4, 1 } },
      0,
      true,
      "the limit is 4194304" },
    { "as many values as may be",
      GOLDEN_INT6,
      { { SLOTS, 4, 4194304 }, { SHARED, 4, 4194304 }, { MODELS, 2, 0 }, { WIDTH, 4, 1 } },
      0,
      true,
      "cut short: 72 bytes of 5242932" },
    { "a wider slot", GOLDEN_INT6, { { WIDTH, 4, 6 } }, 0, true, "cut short: 72 bytes of" },
    { "a narrower slot", GOLDEN_INT6, { { WIDTH, 4, 4 } }, 0, true, "bytes follow the message's" },
    { "a scale that is NaN", GOLDEN_INT6, { { PAYLOAD + 2, 2, 0x7e01 } }, 0, true, "the scale of group 1 is nan" },
    { "a scale below zero",
      GOLDEN_INT6,
      { { PAYLOAD + 6, 2, 0xb400 } },
      0,
      true,
      "the scale of group 3 is -0.25: not above 0 and at most 65504" },
    { "an infinite scale", GOLDEN_INT6, { { PAYLOAD, 2, 0x7c00 } }, 0, true, "the scale of group 0 is inf" },
    { "a scale of 0", GOLDEN_INT6, { { PAYLOAD, 2, 0 } }, 0, true, "the scale of group 0 is 0" },
    { "a scale of -0", GOLDEN_INT6, { { PAYLOAD, 2, 0x8000 } }, 0, true, "the scale of group 0 is -0" },
    { "an f32 scale that is NaN", GOLDEN_INT4, { { PAYLOAD + 8, 4, 0xffc00000 } }, 0, true, "the scale of group 2 is" },
    { "an infinite f32 scale", GOLDEN_INT4, { { PAYLOAD, 4, 0x7f800000 } }, 0, true, "the scale of group 0 is inf" },
    { "a scale that makes values infinite",
      GOLDEN_INT4,
      { { PAYLOAD, 4, 0x7e000000 } },
      0,
      true,
      "the scale of group 0 is 4.25353e+37: not above 0 and at most 4.25353e+37" },
    { "fp16 NaN", GOLDEN_FP16, { { PAYLOAD + 14, 2, 0x7d00 } }, 0, true, "the value of slot 1, place 2 is nan" },
    { "fp16 infinity", GOLDEN_FP16, { { PAYLOAD + 28, 2, 0xfc00 } }, 0, true, "the value of slot 2, place 4 is -inf" },
    { "bits behind the values",
      GOLDEN_INT6,
      { { -5, 1, 0x83 } },
      0,
      true,
      "is 0x83: the 6 bits beyond value 14 are not 0" },
    { "the lowest of them", GOLDEN_INT6, { { -5, 1, 0x07 } }, 0, true, "is 0x07" },
};

static size_t make_hostile(const hostile *h, unsigned char p[2 * GOLDEN_MOST_BYTES])
{
    const size_t n = golden_bytes(h->from, p);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < h->patch[i].bytes; k++)
            p[h->patch[i].at + k + (h->patch[i].at < 0 ? (int)n : 0)] = (unsigned char)(h->patch[i].value >> 8 * k);
    if (h->sealed) seal(p, n);
    memcpy(p + n, p, n);
    return (size_t)((int)n + h->longer);
}

static void hostile_messages(void **state)
{
    (void)state;
    unsigned char p[2 * GOLDEN_MOST_BYTES];
    assert_true(sizeof hostiles / sizeof *hostiles >= 40);
    for (size_t i = 0; i < sizeof hostiles / sizeof *hostiles; i++) {
        const size_t n = make_hostile(&hostiles[i], p);
        if (decode_copy(p, n, &any) == TN_OK) fail_msg("%s is accepted", hostiles[i].what);
        assert_fails(decode_copy(p, n, &any), TN_BAD_FILE, hostiles[i].says);
        assert_true(strncmp(tn_error_text(), "hostile: ", 9) == 0 &&
                    strchr(tn_error_text(), ';')); /* where, and what to do */
    }
}

static void foreign_encoders_and_limits(void **state)
{
    (void)state;
    unsigned char p[GOLDEN_MOST_BYTES];
    const size_t n = golden_bytes(GOLDEN_INT6, p);
    assert_ok(decode_copy(p, n, &(tn_wire_limits){ .encoder = GOLDEN_ENCODER, .most_values = 15 }));
    assert_ok(decode_copy(p, n, &(tn_wire_limits){ .most_values = SIZE_MAX }));
    assert_fails(decode_copy(p, n, &(tn_wire_limits){ .most_values = 14 }), TN_BAD_FILE,
                 "3 slots of 5 values, the limit is 14 values");
    assert_fails(decode_copy(p, n, &(tn_wire_limits){ .encoder = "000102030405060708090a0b0c0d0e0e" }), TN_BAD_FILE,
                 "made by encoder " GOLDEN_ENCODER
                 ", and this reader knows encoder 000102030405060708090a0b0c0d0e0e; encode with that one");
    assert_fails(decode_copy(p, n, &(tn_wire_limits){ .encoder = "00" }), TN_USAGE, "32 hex digits, not 2");
    assert_fails(decode_copy(p, n, &(tn_wire_limits){ .encoder = "000102030405060708090a0b0c0d0eXf" }), TN_USAGE,
                 "digit 31");
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const tn_wire_options good = { GOLDEN_ENCODER, 8, 32, TN_F16, 16, 0, 0, 32 };
    tn_wire_size s;
    tn_wire_options o;
    assert_ok(tn_wire_size_of(&good, &s));
    o = good, o.bits = 5;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "bits is 5, not 16, 8, 6 or 4; change the setting");
    o = good, o.group = 0;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "group is 0");
    o = good, o.group = 65536;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "group is 65536");
    o = good, o.scale = TN_BF16;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "the type of scales is bf16");
    o = good, o.shared_slots = 0;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "0 slots of 32 values");
    o = good, o.width = 262145;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE,
                 "16 slots of 262145 values, the limit is 4194304 values; change the setting");
    o = good, o.models = 65536;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "models is 65536, more than 65535");
    o = good, o.encoder[5] = 0;
    assert_fails(tn_wire_size_of(&o, &s), TN_USAGE, "32 hex digits, not 5");
    assert_int_equal(s.payload, 544); /* unchanged */
}

/* --- memory ---------------------------------------------------------------------------------------------------------------- */

static void memory_is_used_again(void **state)
{
    (void)state;
    unsigned char p[GOLDEN_MOST_BYTES];
    size_t n = golden_bytes(GOLDEN_INT8, p);
    tn_wire_message m = { 0 };
    assert_ok(tn_wire_decode("a", p, n, &any, &m));
    const float *z = m.z;
    const uint64_t allocations = tn_alloc_count();
    n = golden_bytes(GOLDEN_FP16, p);
    assert_ok(tn_wire_decode("b", p, n, &any, &m));
    p[60] ^= 1; /* a bad one leaves the one before */
    assert_fails(tn_wire_decode("c", p, n, &any, &m), TN_BAD_FILE, "c: the message is damaged");
    assert_true(m.z == z && m.about.bits == 16 && tn_alloc_count() == allocations);
    assert_memory_equal(m.z, golden_z, sizeof golden_z);
    tn_wire_message_free(&m);
    n = golden_bytes(GOLDEN_FP16, p);
    tn_alloc_fail_at(1);
    const tn_status s = tn_wire_decode("d", p, n, &any, &m);
    tn_alloc_fail_at(0);
    assert_int_equal(s, TN_MEMORY);
    assert_true(!m.z && m.capacity == 0);
}

void tn_tests_wire_file(tn_test_list *l)
{
    tn_test_add(l, lengths_are_known_before, NULL, "wire: lengths are known before");
    tn_test_add(l, golden_bytes_stay, NULL, "wire: the bytes of version 1 stay");
    tn_test_add(l, the_documented_message, NULL, "wire: the message of the documentation");
    tn_test_add(l, every_cut_is_refused, NULL, "wire: every cut is refused");
    tn_test_add(l, every_flipped_bit_is_refused, NULL, "wire: every flipped bit is refused");
    tn_test_add(l, payload_of_another_header, NULL, "wire: a payload behind another header is refused");
    tn_test_add(l, hostile_messages, NULL, "wire: hostile messages are refused");
    tn_test_add(l, foreign_encoders_and_limits, NULL, "wire: foreign encoders and limits");
    tn_test_add(l, bad_options_are_refused, NULL, "wire: bad options are refused");
    tn_test_add(l, memory_is_used_again, NULL, "wire: a message's memory is used again");
}
