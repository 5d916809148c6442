/* Wire messages from a descriptor, one after another. The buffer grows with the bytes that came, in pieces: a header's promise
 * costs its sender as many bytes as it costs us. */
#include "io/wire_file.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PIECE = 64 << 10, NAME_BYTES = 512 };

struct tn_wire_stream {
    int fd;
    tn_wire_limits limits;
    uint64_t number, at; /* messages read, bytes read */
    tn_status broken;    /* where one has begun inside the bytes of another, nothing more is a message */
    void *buffer;
    size_t capacity;
    char name[NAME_BYTES], where[NAME_BYTES + 64];
};

tn_status tn_wire_stream_open(int fd, const char *name, const tn_wire_limits *l, tn_wire_stream **out)
{
    tn_wire_stream *r = tn_alloc(sizeof *r);
    if (!r) return TN_MEMORY;
    r->fd = fd;
    r->limits = *l;
    snprintf(r->name, sizeof r->name, "%s", name);
    *out = r;
    return TN_OK;
}

void tn_wire_stream_close(tn_wire_stream *r)
{
    if (!r) return;
    tn_free(r->buffer);
    tn_free(r);
}

/* Bytes have .. want-1 of the message; *got is less than want at the end of the stream only. */
static tn_status fill(tn_wire_stream *r, size_t have, size_t want, size_t *got)
{
    while (have < want) {
        const size_t piece = want - have < PIECE ? want - have : PIECE;
        TN_RETURN_IF(tn_grow(&r->buffer, &r->capacity, have + piece, 1));
        const ptrdiff_t k = tn_fd_read(r->fd, (unsigned char *)r->buffer + have, piece);
        if (k < 0) return tn_fs_error(TN_BAD_FILE, errno, "read", r->name);
        if (k == 0) break;
        have += (size_t)k;
        r->at += (uint64_t)k;
    }
    *got = have;
    return TN_OK;
}

static tn_status next(tn_wire_stream *r, tn_wire_message *m, bool *more)
{
    tn_wire_options about;
    tn_wire_size size;
    size_t got = 0;
    snprintf(r->where, sizeof r->where, "%s, message %llu (at byte %llu)", r->name, (unsigned long long)r->number + 1,
             (unsigned long long)r->at);
    TN_RETURN_IF(fill(r, 0, TN_WIRE_HEADER_BYTES, &got));
    if (got == 0) {
        *more = false;
        return TN_OK;
    }
    TN_RETURN_IF(tn_wire_header(r->where, r->buffer, got, &r->limits, &about, &size));
    TN_RETURN_IF(fill(r, got, size.message, &got));
    TN_RETURN_IF(tn_wire_decode(r->where, r->buffer, got, &r->limits, m));
    r->number++;
    *more = true;
    return TN_OK;
}

tn_status tn_wire_stream_next(tn_wire_stream *r, tn_wire_message *m, bool *more)
{
    if (r->broken != TN_OK)
        return tn_error(r->broken, "%s: nothing can be read behind a bad message; get the messages again", r->where);
    r->broken = next(r, m, more);
    return r->broken;
}
