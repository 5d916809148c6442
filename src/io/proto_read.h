/* Reading protobuf messages from memory, for files that may be damaged or hostile: field by field, no tables, no
 * allocation. A length is checked against what is left before it is used; numbers of fields that the caller does not
 * ask for are passed over, as protobuf wants it.
 *
 *     tn_proto_open(&r, data, bytes);
 *     while (tn_proto_next(&r))
 *         if (r.field == 1 && r.wire == TN_PROTO_BYTES) ... r.data, r.bytes ...
 *     if (r.why) ... r.why, tn_proto_at(&r) ...
 *
 * The first error ends the loop. Groups, which no proto3 file has, are an error. */
#ifndef TN_IO_PROTO_READ_H
#define TN_IO_PROTO_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tn_proto_wire {
    TN_PROTO_NUMBER = 0, /* value: integers, enums, flags */
    TN_PROTO_8 = 1,      /* value: 8 bytes, little-endian */
    TN_PROTO_BYTES = 2,  /* data, bytes: text, bytes, messages */
    TN_PROTO_4 = 5       /* value: 4 bytes, little-endian */
} tn_proto_wire;

typedef struct tn_proto {
    const unsigned char *begin, *at, *end;
    const char *why; /* the first error, or NULL */
    uint32_t field;
    tn_proto_wire wire;
    uint64_t value;
    const char *data;
    size_t bytes;
} tn_proto;

void tn_proto_open(tn_proto *r, const void *data, size_t bytes);
bool tn_proto_next(tn_proto *r);         /* the next field; false at the end or after an error */
size_t tn_proto_at(const tn_proto *r);   /* bytes read so far */
float tn_proto_float(const tn_proto *r); /* of a TN_PROTO_4 */

#endif
