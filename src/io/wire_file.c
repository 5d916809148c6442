/* Writes and reads one wire message. Two CRCs: that of the header, so that no damaged length is believed; and that of header
 * and payload together, behind them. The second leaves out the first's four bytes: a CRC that runs over data and the data's own
 * CRC forgets the data, and a payload would pass behind any header. */
#include "io/wire_file.h"

#include "base/alloc.h"
#include "io/wire_quant.h"

#include <string.h>
#include <zlib.h>

enum {
    AT_VERSION = 4,
    AT_BITS = 6,
    AT_SCALE = 7,
    AT_ENCODER = 8,
    AT_SLOTS = 24,
    AT_SHARED = 28,
    AT_PRIVATE = 32,
    AT_MODELS = 36,
    AT_GROUP = 38,
    AT_WIDTH = 40,
    AT_CRC = 44,
    HASH_BYTES = 16,
    MAGIC_BYTES = 4
};
static const unsigned char magic[MAGIC_BYTES] = { 'T', 'N', 'W', 'Z' };
enum scale_type { SCALE_NONE, SCALE_F16, SCALE_F32 };

static void store(unsigned char *p, int bytes, uint32_t x)
{
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(x >> 8 * i);
}

static uint32_t load(const unsigned char *p, int bytes)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint32_t)p[i] << 8 * i;
    return x;
}

static tn_wire_code code_of(const tn_wire_options *o) { return (tn_wire_code){ o->bits, o->group, o->scale }; }

/* --- what both sides demand --------------------------------------------------------------------------------------------- */

typedef struct side {
    tn_status code;
    const char *remedy;
} side;
static const side writing = { TN_USAGE, "change the setting" }, reading = { TN_BAD_FILE, "encode the message again" };

static tn_status check_code(const tn_wire_options *o, side at)
{
    if (o->bits != 16 && o->bits != 8 && o->bits != 6 && o->bits != 4)
        return tn_error(at.code, "bits is %d, not 16, 8, 6 or 4; %s", o->bits, at.remedy);
    if (o->bits == 16) return TN_OK;
    if (o->group < 1 || o->group > TN_WIRE_MOST_GROUP)
        return tn_error(at.code, "group is %u, not 1 to %d values; %s", o->group, TN_WIRE_MOST_GROUP, at.remedy);
    if (o->scale != TN_F16 && o->scale != TN_F32)
        return tn_error(at.code, "the type of scales is %s, not f16 or f32; %s",
                        (unsigned)o->scale < TN_DTYPES ? tn_dtype_name(o->scale) : "unknown", at.remedy);
    return TN_OK;
}

static tn_status check_shape(const tn_wire_options *o, size_t most, side at, tn_wire_size *out)
{
    TN_RETURN_IF(check_code(o, at));
    if (o->models > TN_WIRE_MOST_MODELS)
        return tn_error(at.code, "models is %u, more than %d; %s", o->models, TN_WIRE_MOST_MODELS, at.remedy);
    const uint64_t slots = o->shared_slots + (uint64_t)o->models * o->private_slots; /* below 2^49 */
    if (slots == 0 || o->width == 0)
        return tn_error(at.code, "Z has %llu slots of %u values: it is empty; %s", (unsigned long long)slots, o->width,
                        at.remedy);
    if (slots > most || o->width > most || slots * o->width > most)
        return tn_error(at.code, "Z has %llu slots of %u values, the limit is %zu values; %s",
                        (unsigned long long)slots, o->width, most,
                        at.code == TN_USAGE ? at.remedy
                                            : "raise the limit if you expect so many, else reject its sender");
    const tn_wire_code c = code_of(o);
    out->slots = (size_t)slots;
    out->values = (size_t)(slots * o->width);
    out->payload = (size_t)tn_wire_payload_bytes(&c, out->values);
    out->message = TN_WIRE_HEADER_BYTES + out->payload + TN_WIRE_TAIL_BYTES;
    return TN_OK;
}

/* --- hashes --------------------------------------------------------------------------------------------------------------- */

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static tn_status hash_bytes(const char *hex, unsigned char *to)
{
    unsigned char bytes[HASH_BYTES];
    if (strnlen(hex, 2 * HASH_BYTES + 1) != 2 * HASH_BYTES)
        return tn_error(TN_USAGE, "the hash of an encoder has %d hex digits, not %zu; give that of its weights",
                        2 * HASH_BYTES, strnlen(hex, 2 * HASH_BYTES + 1));
    for (int i = 0; i < 2 * HASH_BYTES; i++) {
        if (digit(hex[i]) < 0)
            return tn_error(TN_USAGE,
                            "digit %d of the encoder's hash is not one of 0-9 and a-f; give that of its weights",
                            i + 1);
        bytes[i / 2] = (unsigned char)(bytes[i / 2] << 4 | digit(hex[i]));
    }
    memcpy(to, bytes, HASH_BYTES);
    return TN_OK;
}

static void hash_text(const unsigned char *bytes, char hex[TN_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HASH_BYTES; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * HASH_BYTES] = 0;
}

/* --- writing -------------------------------------------------------------------------------------------------------------- */

static uint32_t crc_of(uint32_t so_far, const unsigned char *bytes, size_t n)
{
    return (uint32_t)crc32_z(so_far, bytes, n);
}

tn_status tn_wire_size_of(const tn_wire_options *o, tn_wire_size *out)
{
    unsigned char hash[HASH_BYTES];
    TN_RETURN_IF(hash_bytes(o->encoder, hash));
    return check_shape(o, TN_WIRE_MOST_VALUES, writing, out);
}

tn_status tn_wire_encode(const tn_wire_options *o, const float *z, unsigned char *buffer)
{
    unsigned char hash[HASH_BYTES];
    tn_wire_size size;
    const tn_wire_code c = code_of(o);
    TN_RETURN_IF(tn_wire_size_of(o, &size));
    TN_RETURN_IF(hash_bytes(o->encoder, hash));
    TN_RETURN_IF(tn_wire_pack(&c, z, size.values, o->width, buffer + TN_WIRE_HEADER_BYTES));
    memcpy(buffer, magic, MAGIC_BYTES);
    store(buffer + AT_VERSION, 2, TN_WIRE_VERSION);
    store(buffer + AT_BITS, 1, (uint32_t)o->bits);
    store(buffer + AT_SCALE, 1, o->bits == 16 ? SCALE_NONE : o->scale == TN_F16 ? SCALE_F16 : SCALE_F32);
    memcpy(buffer + AT_ENCODER, hash, HASH_BYTES);
    store(buffer + AT_SLOTS, 4, (uint32_t)size.slots);
    store(buffer + AT_SHARED, 4, o->shared_slots);
    store(buffer + AT_PRIVATE, 4, o->private_slots);
    store(buffer + AT_MODELS, 2, o->models);
    store(buffer + AT_GROUP, 2, o->bits == 16 ? 0 : o->group);
    store(buffer + AT_WIDTH, 4, o->width);
    const uint32_t crc = crc_of(0, buffer, AT_CRC);
    store(buffer + AT_CRC, 4, crc);
    store(buffer + TN_WIRE_HEADER_BYTES + size.payload, 4, crc_of(crc, buffer + TN_WIRE_HEADER_BYTES, size.payload));
    return TN_OK;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

/* That the bytes are a header of this version, undamaged. A newer version may have another layout: its CRC is not looked for. */
static tn_status check_frame(const unsigned char *p, size_t have)
{
    size_t same = 0;
    while (same < have && same < MAGIC_BYTES && p[same] == magic[same]) same++;
    if (same < have && same < MAGIC_BYTES)
        return tn_error(TN_BAD_FILE,
                        "not a wire message: byte %zu is 0x%02x, where \"TNWZ\" has 0x%02x; is it the right file?",
                        same, p[same], magic[same]);
    if (have < TN_WIRE_HEADER_BYTES)
        return tn_error(TN_BAD_FILE, "cut short: %zu bytes of a header of %d; get the whole message", have,
                        TN_WIRE_HEADER_BYTES);
    if (load(p + AT_VERSION, 2) != TN_WIRE_VERSION)
        return tn_error(TN_BAD_FILE,
                        "version %u of the wire format, and this program reads version %d; update the older side",
                        load(p + AT_VERSION, 2), TN_WIRE_VERSION);
    if (load(p + AT_CRC, 4) != crc_of(0, p, AT_CRC))
        return tn_error(TN_BAD_FILE,
                        "the header is damaged: its CRC is %08x, its bytes have %08x; get the message again",
                        load(p + AT_CRC, 4), crc_of(0, p, AT_CRC));
    return TN_OK;
}

static tn_status read_options(const unsigned char *p, tn_wire_options *out)
{
    const uint32_t type = p[AT_SCALE], slots = load(p + AT_SLOTS, 4);
    tn_wire_options o = { .bits = p[AT_BITS],
                          .group = load(p + AT_GROUP, 2),
                          .scale = type == SCALE_F32 ? TN_F32 : TN_F16,
                          .shared_slots = load(p + AT_SHARED, 4),
                          .private_slots = load(p + AT_PRIVATE, 4),
                          .models = load(p + AT_MODELS, 2),
                          .width = load(p + AT_WIDTH, 4) };
    hash_text(p + AT_ENCODER, o.encoder);
    TN_RETURN_IF(check_code(&o, reading));
    if (o.bits == 16 && (type != SCALE_NONE || o.group))
        return tn_error(TN_BAD_FILE, "16 bits have no scales, yet their type is %u and their group %u; %s", type,
                        o.group, reading.remedy);
    if (o.bits != 16 && type != SCALE_F16 && type != SCALE_F32)
        return tn_error(TN_BAD_FILE, "the type of scales is %u, not %d (f16) or %d (f32); %s", type, SCALE_F16,
                        SCALE_F32, reading.remedy);
    if (slots != o.shared_slots + (uint64_t)o.models * o.private_slots)
        return tn_error(TN_BAD_FILE, "%u slots are not %u shared ones and %u for each of %u models; %s", slots,
                        o.shared_slots, o.private_slots, o.models, reading.remedy);
    *out = o;
    return TN_OK;
}

static tn_status check_encoder(const char *expected, const unsigned char *got)
{
    unsigned char want[HASH_BYTES];
    char hex[TN_HASH_BYTES];
    TN_RETURN_IF(hash_bytes(expected, want));
    if (memcmp(want, got, HASH_BYTES) == 0) return TN_OK;
    hash_text(got, hex);
    return tn_error(TN_BAD_FILE,
                    "made by encoder %s, and this reader knows encoder %s; encode with that one, or use the "
                    "adapters that belong to the first",
                    hex, expected);
}

static tn_status read_header(const unsigned char *p, size_t have, const tn_wire_limits *l, tn_wire_options *about,
                             tn_wire_size *size)
{
    tn_wire_options o;
    const bool lower = l->most_values > 0 && l->most_values < TN_WIRE_MOST_VALUES;
    TN_RETURN_IF(check_frame(p, have));
    TN_RETURN_IF(read_options(p, &o));
    TN_RETURN_IF(check_shape(&o, lower ? l->most_values : TN_WIRE_MOST_VALUES, reading, size));
    if (l->encoder) TN_RETURN_IF(check_encoder(l->encoder, p + AT_ENCODER));
    *about = o;
    return TN_OK;
}

/* After the header: length, CRC, numbers. */
static tn_status check_payload(const unsigned char *p, size_t n, const tn_wire_options *o, const tn_wire_size *size)
{
    const tn_wire_code c = code_of(o);
    const unsigned char *payload = p + TN_WIRE_HEADER_BYTES;
    if (n < size->message)
        return tn_error(TN_BAD_FILE, "cut short: %zu bytes of %zu; get the whole message", n, size->message);
    if (n > size->message)
        return tn_error(TN_BAD_FILE, "%zu bytes follow the message's %zu; read one message at a time",
                        n - size->message, size->message);
    const uint32_t stored = load(payload + size->payload, TN_WIRE_TAIL_BYTES);
    const uint32_t found = crc_of(load(p + AT_CRC, 4), payload, size->payload);
    if (stored != found)
        return tn_error(TN_BAD_FILE, "the message is damaged: its CRC is %08x, its bytes have %08x; get it again",
                        stored, found);
    return tn_wire_payload_check(&c, payload, size->values, o->width);
}

tn_status tn_wire_header(const char *name, const unsigned char *bytes, size_t have, const tn_wire_limits *l,
                         tn_wire_options *about, tn_wire_size *size)
{
    const tn_status s = read_header(bytes, have, l, about, size);
    if (s != TN_OK) tn_error_prefix("%.640s", name);
    return s;
}

tn_status tn_wire_decode(const char *name, const unsigned char *bytes, size_t n, const tn_wire_limits *l,
                         tn_wire_message *m)
{
    tn_wire_options o;
    tn_wire_size size;
    void *z = m->z;
    TN_RETURN_IF(tn_wire_header(name, bytes, n, l, &o, &size));
    const tn_status s = check_payload(bytes, n, &o, &size);
    if (s != TN_OK) {
        tn_error_prefix("%.640s", name);
        return s;
    }
    TN_RETURN_IF(tn_grow(&z, &m->capacity, size.values, sizeof *m->z));
    m->z = z;
    m->about = o;
    m->size = size;
    const tn_wire_code c = code_of(&o);
    tn_wire_unpack(&c, bytes + TN_WIRE_HEADER_BYTES, size.values, m->z);
    return TN_OK;
}

void tn_wire_message_free(tn_wire_message *m)
{
    tn_free(m->z);
    *m = (tn_wire_message){ 0 };
}
