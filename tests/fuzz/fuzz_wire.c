/* Wire messages, by the first byte: as they come; with their CRCs (and, if odd, magic and version) made right, so that the fields behind them are reached; as a
 * stream; and Z itself, which is refused or comes back within half a scale. What is accepted is finite and has the length its header says. */
#include "fuzz_file.h"
#include "io/wire_file.h"

#include <fcntl.h>
#include <math.h>
#include <zlib.h>

static const char encoder[] = "000102030405060708090a0b0c0d0e0f";

static void put_u32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t crc(uint32_t so_far, const uint8_t *p, size_t n) { return (uint32_t)crc32_z(so_far, p, n); }

static void check_message(const tn_wire_message *m)
{
    const tn_wire_options *o = &m->about;
    CHECK(o->bits == 16 || o->bits == 8 || o->bits == 6 || o->bits == 4);
    CHECK(m->size.values > 0 && m->size.values <= TN_WIRE_MOST_VALUES && m->capacity >= m->size.values);
    CHECK(m->size.slots == o->shared_slots + (size_t)o->models * o->private_slots);
    CHECK(m->size.values == m->size.slots * o->width && strlen(o->encoder) == 32);
    for (size_t i = 0; i < m->size.values; i++) CHECK(isfinite(m->z[i]));
}

/* What was decoded is a Z like any other: it can be sent on. */
static void again(const tn_wire_message *m)
{
    tn_wire_size size;
    tn_wire_message back = { 0 };
    CHECK(tn_wire_size_of(&m->about, &size) == TN_OK && size.message == m->size.message);
    uint8_t *bytes = malloc(size.message);
    CHECK(bytes);
    if (tn_wire_encode(&m->about, m->z, bytes) == TN_OK) {
        CHECK(tn_wire_decode("again", bytes, size.message, &(tn_wire_limits){ .encoder = m->about.encoder }, &back) ==
              TN_OK);
        check_message(&back);
        for (size_t i = 0; m->about.bits == 16 && i < size.values; i++) CHECK(back.z[i] == m->z[i]);
    } else fuzz_refused(TN_USAGE); /* -2^(b-1) times the largest scale has no room */
    tn_wire_message_free(&back);
    free(bytes);
}

static void one(const uint8_t *bytes, size_t n)
{
    tn_wire_message m = { 0 };
    const tn_status s = tn_wire_decode("fuzz", bytes, n, &(tn_wire_limits){ 0 }, &m);
    if (s == TN_OK) {
        CHECK(m.size.message == n);
        check_message(&m);
        again(&m);
    } else {
        fuzz_refused(s);
        CHECK(!m.z);
    }
    tn_wire_message_free(&m);
}

/* The CRCs of every message that the headers say is there. */
static void seal(uint8_t *p, size_t n, bool frame)
{
    while (n >= TN_WIRE_HEADER_BYTES) {
        tn_wire_options o;
        tn_wire_size size;
        if (frame) memcpy(p, "TNWZ\1\0", 6);
        put_u32(p + 44, crc(0, p, 44));
        if (tn_wire_header("seal", p, n, &(tn_wire_limits){ 0 }, &o, &size) != TN_OK || size.message > n) return;
        put_u32(p + size.message - 4, crc(crc(0, p, 44), p + 48, size.payload));
        p += size.message;
        n -= size.message;
    }
}

static void stream(const uint8_t *bytes, size_t n)
{
    tn_wire_stream *r;
    tn_wire_message m = { 0 };
    size_t length = 0;
    bool more = true;
    tn_status s = TN_OK;
    const int fd = open(fuzz_put("stream", bytes, n), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && tn_wire_stream_open(fd, "fuzz", &(tn_wire_limits){ .most_values = 1 << 16 }, &r) == TN_OK);
    while (s == TN_OK && more) {
        s = tn_wire_stream_next(r, &m, &more);
        if (s != TN_OK) fuzz_refused(s);
        else if (more) {
            check_message(&m);
            CHECK(m.size.values <= 1 << 16);
            length += m.size.message;
        } else CHECK(length == n);
    }
    CHECK(length <= n);
    tn_wire_stream_close(r);
    tn_wire_message_free(&m);
    close(fd);
}

/* Six bytes are options, the rest floats. */
static void encode(const uint8_t *p, size_t n)
{
    static const int bits[4] = { 16, 8, 6, 4 };
    if (n < 6) return;
    const size_t values = (n - 6) / 4;
    tn_wire_options o = { .bits = p[0] < 250 ? bits[p[0] % 4] : p[0],
                          .group = p[1],
                          .scale = p[2] % 8 < 4   ? TN_F16
                                   : p[2] % 8 < 7 ? TN_F32
                                                  : TN_BF16 };
    o.private_slots = p[3] % 4, o.models = p[4] % 4, o.width = p[5] % 16;
    const size_t own = (size_t)o.private_slots * o.models, slots = o.width ? values / o.width : 0;
    if (slots < own) return;
    o.shared_slots = (uint32_t)(slots - own);
    memcpy(o.encoder, encoder, sizeof encoder);
    tn_wire_size size;
    tn_wire_message m = { 0 };
    tn_status s = tn_wire_size_of(&o, &size);
    if (s != TN_OK) {
        fuzz_refused(s);
        return;
    }
    CHECK(size.values <= values);
    float *z = malloc(size.values * sizeof *z);
    uint8_t *bytes = malloc(size.message);
    CHECK(z && bytes);
    memcpy(z, p + 6, size.values * sizeof *z);
    bool finite = true;
    for (size_t i = 0; i < size.values; i++) finite = finite && isfinite(z[i]);
    s = tn_wire_encode(&o, z, bytes);
    CHECK(finite ? s == TN_OK || s == TN_USAGE : s == TN_DIVERGED);
    if (s == TN_OK) {
        CHECK(tn_wire_decode("fuzz", bytes, size.message, &(tn_wire_limits){ .encoder = encoder }, &m) == TN_OK);
        check_message(&m);
        for (size_t i = 0; i < size.values && o.bits != 16; i++) {
            const size_t first = i / o.group * o.group;
            double most = 0;
            for (size_t k = first; k < first + o.group && k < size.values; k++) most = fmax(most, fabs((double)z[k]));
            const double top = (1 << (o.bits - 1)) - 1, scale = most / top * (1 + 0x1p-10) + 0x1p-24; /* rounded up */
            CHECK(fabs((double)m.z[i] - (double)z[i]) <= scale / 2 + fabs((double)m.z[i]) * 0x1p-23);
        }
    }
    tn_wire_message_free(&m);
    free(bytes);
    free(z);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (bytes == 0) return 0;
    const size_t n = bytes - 1;
    uint8_t *copy = malloc(n ? n : 1); /* exactly as long, so that the sanitizer sees a read beyond it */
    CHECK(copy);
    memcpy(copy, input + 1, n);
    const int way = input[0] % 8;
    if (way >= 1 && way <= 4) seal(copy, n, way % 2);
    if (way <= 2) one(copy, n);
    else if (way <= 5) stream(copy, n);
    else encode(copy, n);
    free(copy);
    return 0;
}
