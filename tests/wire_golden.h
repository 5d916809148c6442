/* Wire messages kept as hex: fifteen numbers as one shared slot and one private slot of each of two models. The bytes were made by the second
 * implementation, wire() of tests/hostile/formats.py. Header only. */
#ifndef TN_WIRE_GOLDEN_H
#define TN_WIRE_GOLDEN_H

#include "io/wire_file.h"
#include "testlib.h"

#include <stdio.h>
#include <string.h>

#define GOLDEN_ENCODER "000102030405060708090a0b0c0d0e0f"
enum { GOLDEN_VALUES = 15, GOLDEN_MOST_BYTES = 256, GOLDEN_FP16 = 0, GOLDEN_INT8, GOLDEN_INT6, GOLDEN_INT4, GOLDENS };

static const float golden_z[GOLDEN_VALUES] = { -3.75f, 2.5f,   1.125f, -0.25f,   -1.625f, -6.0f, 6.5f,   3.75f,
                                               1.0f,   -1.75f, -6.75f, -10.875f, 7.875f,  3.75f, -0.375f };

static const struct golden {
    int bits;
    uint32_t group;
    tn_dtype scale;
    const char *hex;
} goldens[GOLDENS] = {
    { 16, 0, TN_F16,
      "544e575a01001000000102030405060708090a0b0c0d0e0f0300000001000000010000000200000005000000224f38bd"
      "80c30041803c00b480be00c680468043003c00bfc0c670c9e047804300b6"
      "120bd239" },
    { 8, 8, TN_F16,
      "544e575a01000801000102030405060708090a0b0c0d0e0f0300000001000000010000000200080005000000abd348d3"
      "8e2a7b2d"
      "b73116fbe08b7f490cecb1815c2cfc"
      "a60f928c" },
    { 6, 4, TN_F16,
      "544e575a01000601000102030405060708090a0b0c0d0e0f030000000100000001000000020004000500000088e93b88"
      "be2fb6329d351134"
      "6195f8f8f849c3de86dff303"
      "4cba8f26" },
    { 4, 5, TN_F32,
      "544e575a01000402000102030405060708090a0b0c0d0e0f0300000001000000010000000200050005000000c8f866d9"
      "9324093fdcb66d3f6edbc63f"
      "5902ad47e19c2500"
      "228e3ab2" },
};

static inline tn_wire_options golden_options(int i)
{
    return (tn_wire_options){ .encoder = GOLDEN_ENCODER,
                              .bits = goldens[i].bits,
                              .group = goldens[i].group,
                              .scale = goldens[i].scale,
                              .shared_slots = 1,
                              .private_slots = 1,
                              .models = 2,
                              .width = 5 };
}

static inline bool same_options(const tn_wire_options *a, const tn_wire_options *b)
{
    return strcmp(a->encoder, b->encoder) == 0 && a->bits == b->bits && a->group == b->group && a->scale == b->scale &&
           a->shared_slots == b->shared_slots && a->private_slots == b->private_slots && a->models == b->models &&
           a->width == b->width;
}

/* Returns the length. */
static inline size_t golden_bytes(int i, unsigned char to[GOLDEN_MOST_BYTES])
{
    const size_t n = strlen(goldens[i].hex) / 2;
    assert_true(n <= GOLDEN_MOST_BYTES);
    for (size_t k = 0; k < n; k++) {
        unsigned x;
        assert_int_equal(sscanf(goldens[i].hex + 2 * k, "%2x", &x), 1);
        to[k] = (unsigned char)x;
    }
    return n;
}

#endif
