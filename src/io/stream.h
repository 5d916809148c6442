/* Reads a file as a stream of bytes, decompressing gzip and zstd (recognised by their first bytes, not by name).
 *
 * Memory is a fixed buffer and the decompressor's window, at most 128 MiB for zstd. A file that expands too much is
 * refused, so a small file cannot fill a disk. */
#ifndef TN_IO_STREAM_H
#define TN_IO_STREAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TN_STREAM_RATIO = 250,            /* unpacked bytes may be this many times the packed ones ... */
    TN_STREAM_SLACK_BYTES = 64 << 20, /* ... and this much more */
    TN_STREAM_WINDOW_LOG = 27         /* largest zstd window, 2^27 bytes, as the zstd command takes without --long */
};

typedef struct tn_stream tn_stream;

tn_status tn_stream_open(const char *path, tn_stream **out);
void tn_stream_close(tn_stream *s); /* takes NULL */

/* Up to `bytes` bytes into data; *got is less than asked for at the end only, 0 after it. A file cut short fails. */
tn_status tn_stream_read(tn_stream *s, void *data, size_t bytes, size_t *got);

uint64_t tn_stream_position(const tn_stream *s); /* bytes handed out so far */
uint64_t tn_stream_consumed(const tn_stream *s); /* bytes of the file read so far, for progress */
const char *tn_stream_path(const tn_stream *s);

#endif
