/* Wire messages: one latent Z (M slots of `width` numbers) that an encoder sends to the models that read it. docs/wire.md
 * has the bytes of version 1. A message describes itself and knows its length, so several may follow each other in a file or
 * a pipe.
 *
 * A reader trusts no size: the header has a CRC of its own and is checked before a payload is read, memory grows with the
 * bytes that came, and every number of a message that is accepted is finite. The CRC finds damage, not forgery. */
#ifndef TN_IO_WIRE_FILE_H
#define TN_IO_WIRE_FILE_H

#include "base/hash.h"

#include <stdbool.h>
#include <tenon/tensor.h>

enum {
    TN_WIRE_VERSION = 1,
    TN_WIRE_HEADER_BYTES = 48,
    TN_WIRE_TAIL_BYTES = 4,     /* the CRC behind the payload */
    TN_WIRE_GROUP = 32,         /* the usual group */
    TN_WIRE_MOST_GROUP = 65535, /* values that share a scale */
    TN_WIRE_MOST_MODELS = 65535,
    TN_WIRE_MOST_VALUES = 4 << 20, /* of a message: 16 MiB as f32 */
};

/* What the header says. Slots: first the shared ones, then those of model 0, of model 1, ... */
typedef struct tn_wire_options {
    char encoder[TN_HASH_BYTES]; /* who made Z: 32 hex digits (base/hash.h) */
    int bits;                    /* 16 (fp16), 8, 6 or 4 */
    uint32_t group; /* values that share a scale; 0 in a decoded message where bits is 16, else not read there */
    tn_dtype scale; /* of scales: TN_F16 or TN_F32; TN_F16 where bits is 16 */
    uint32_t shared_slots;
    uint32_t private_slots; /* of each model */
    uint32_t models;        /* that have private slots */
    uint32_t width;         /* d_z */
} tn_wire_options;

typedef struct tn_wire_size {
    size_t slots;   /* M = shared_slots + models * private_slots */
    size_t values;  /* M * width */
    size_t payload; /* bytes of scales and values */
    size_t message; /* bytes in all */
} tn_wire_size;

/* Checks the options (TN_USAGE names the one that is wrong). */
tn_status tn_wire_size_of(const tn_wire_options *o, tn_wire_size *out);
/* The message for z (slots, width) into buffer, which has tn_wire_size_of's `message` bytes. TN_DIVERGED where a value is NaN or
 * infinite, TN_USAGE where one is too large for the bits; nothing is written then. */
tn_status tn_wire_encode(const tn_wire_options *o, const float *z, unsigned char *buffer);

/* What a reader accepts. A zeroed one: all. */
typedef struct tn_wire_limits {
    const char *encoder; /* 32 hex digits, borrowed; NULL: any encoder */
    size_t most_values;  /* 0, or more than TN_WIRE_MOST_VALUES: that many */
} tn_wire_limits;

/* Zeroed before the first use. Its memory is used again by the next message. */
typedef struct tn_wire_message {
    tn_wire_options about;
    tn_wire_size size;
    float *z; /* (slots, width) */
    size_t capacity;
} tn_wire_message;
void tn_wire_message_free(tn_wire_message *m); /* takes a zeroed one */

/* The header alone, of which `have` bytes are there: what follows it, and how long. `name` begins every error. */
tn_status tn_wire_header(const char *name, const unsigned char *bytes, size_t have, const tn_wire_limits *l,
                         tn_wire_options *about, tn_wire_size *size);
/* One message that is exactly `n` bytes long. TN_BAD_FILE says what is wrong with others; *m is unchanged then. */
tn_status tn_wire_decode(const char *name, const unsigned char *bytes, size_t n, const tn_wire_limits *l,
                         tn_wire_message *m);

/* Messages that follow each other in a file or a pipe. */
typedef struct tn_wire_stream tn_wire_stream;
/* fd is borrowed; no byte behind the last message that was asked for is read. Name and limits are copied, the hash borrowed. */
tn_status tn_wire_stream_open(int fd, const char *name, const tn_wire_limits *l, tn_wire_stream **out);
/* The next one; *more is false at an end between messages. An end inside one, or a bad one, is an error, and so is all after it. */
tn_status tn_wire_stream_next(tn_wire_stream *r, tn_wire_message *m, bool *more);
void tn_wire_stream_close(tn_wire_stream *r); /* takes NULL */

#endif
