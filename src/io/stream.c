/* Plain, gzip and zstd input behind one read call. Several members or frames in a row are one stream. Invariant: at the
 * end of the stream every byte was verified by the container's checksum. */
#include "io/stream.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { IN_BYTES = 128 << 10 };

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct tn_stream {
    int fd;
    packing packing;
    bool file_end; /* no more bytes in the file */
    bool inside;   /* a gzip member or zstd frame has begun and not ended */
    bool has_zlib; /* z is to be ended */
    uint64_t read_bytes, position;
    size_t begin, end; /* of `in`: bytes not yet unpacked */
    z_stream z;
    ZSTD_DCtx *zstd;
    char path[TN_PATH_BYTES];
    unsigned char in[IN_BYTES];
};

/* More bytes of the file into `in`, behind those that are left. */
static tn_status fill(tn_stream *s)
{
    if (s->begin && s->begin < s->end) memmove(s->in, s->in + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    if (s->file_end || s->end == IN_BYTES) return TN_OK;
    const ptrdiff_t k = tn_fd_read(s->fd, s->in + s->end, IN_BYTES - s->end);
    if (k < 0) return tn_fs_error(TN_BAD_FILE, errno, "read", s->path);
    s->file_end = k == 0;
    s->end += (size_t)k;
    s->read_bytes += (uint64_t)k;
    return TN_OK;
}

static tn_status start_unpacker(tn_stream *s)
{
    static const unsigned char zstd_magic[4] = { 0x28, 0xB5, 0x2F, 0xFD };
    if (s->end >= 2 && s->in[0] == 0x1F && s->in[1] == 0x8B) {
        s->packing = GZIP;
        if (inflateInit2(&s->z, 16 + MAX_WBITS) != Z_OK)
            return tn_error(TN_MEMORY, "out of memory while opening %.640s", s->path);
        s->has_zlib = true;
    } else if (s->end >= 4 && memcmp(s->in, zstd_magic, 4) == 0) {
        s->packing = ZSTD;
        s->zstd = ZSTD_createDCtx();
        if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, TN_STREAM_WINDOW_LOG)))
            return tn_error(TN_MEMORY, "out of memory while opening %.640s", s->path);
    }
    return TN_OK;
}

tn_status tn_stream_open(const char *path, tn_stream **out)
{
    tn_status s = TN_OK;
    tn_stream *in = tn_alloc(sizeof *in);
    if (!in) return TN_MEMORY;
    in->fd = -1;
    TN_TRY(tn_path_join("", path, in->path, sizeof in->path));
    TN_TRY(tn_fd_open(path, &in->fd));
    while (in->end < 4 && !in->file_end) TN_TRY(fill(in));
    TN_TRY(start_unpacker(in));
    *out = in;
    in = NULL;
done:
    tn_stream_close(in);
    return s;
}

void tn_stream_close(tn_stream *s)
{
    if (!s) return;
    if (s->has_zlib) inflateEnd(&s->z);
    ZSTD_freeDCtx(s->zstd);
    if (s->fd >= 0) close(s->fd);
    tn_free(s);
}

static tn_status damaged(const tn_stream *s, const char *why)
{
    return tn_error(TN_BAD_FILE, "%.640s: byte %llu: %s; the file is damaged, download it again", s->path,
                    (unsigned long long)(s->read_bytes - (s->end - s->begin)), why);
}

static tn_status gzip_step(tn_stream *s, unsigned char *data, size_t bytes, size_t *got)
{
    s->z.next_in = s->in + s->begin;
    s->z.avail_in = (uInt)(s->end - s->begin);
    s->z.next_out = data;
    s->z.avail_out = (uInt)bytes;
    const int r = inflate(&s->z, Z_NO_FLUSH);
    s->begin = s->end - s->z.avail_in;
    *got = bytes - s->z.avail_out;
    s->inside = true;
    if (r == Z_STREAM_END) {
        s->inside = false;
        return inflateReset(&s->z) == Z_OK ? TN_OK : tn_error(TN_INTERNAL, "zlib did not reset");
    }
    if (r == Z_MEM_ERROR) return tn_error(TN_MEMORY, "out of memory while unpacking %.640s", s->path);
    if (r != Z_OK && r != Z_BUF_ERROR) return damaged(s, s->z.msg ? s->z.msg : "not gzip");
    return TN_OK;
}

static tn_status zstd_step(tn_stream *s, unsigned char *data, size_t bytes, size_t *got)
{
    ZSTD_inBuffer in = { s->in, s->end, s->begin };
    ZSTD_outBuffer out = { data, bytes, 0 };
    const size_t r = ZSTD_decompressStream(s->zstd, &out, &in);
    s->begin = in.pos;
    *got = out.pos;
    if (ZSTD_isError(r)) return damaged(s, ZSTD_getErrorName(r));
    s->inside = r != 0;
    return TN_OK;
}

static tn_status plain_step(tn_stream *s, unsigned char *data, size_t bytes, size_t *got)
{
    const size_t left = s->end - s->begin;
    *got = left < bytes ? left : bytes;
    memcpy(data, s->in + s->begin, *got);
    s->begin += *got;
    return TN_OK;
}

/* gzip files are often padded with zeros to a block, which belong to no member. */
static void skip_padding(tn_stream *s)
{
    while (s->packing == GZIP && !s->inside && s->begin < s->end && s->in[s->begin] == 0) s->begin++;
}

static tn_status check_ratio(const tn_stream *s)
{
    if (s->packing == PLAIN || s->position <= TN_STREAM_RATIO * s->read_bytes + TN_STREAM_SLACK_BYTES) return TN_OK;
    return tn_error(TN_BAD_FILE,
                    "%.640s unpacks to more than %d times its size, as a file made to fill disks does; if you trust "
                    "it, unpack it yourself and give the result",
                    s->path, TN_STREAM_RATIO);
}

tn_status tn_stream_read(tn_stream *s, void *data, size_t bytes, size_t *got)
{
    static tn_status (*const steps[])(tn_stream *, unsigned char *, size_t, size_t *) = { plain_step, gzip_step,
                                                                                          zstd_step };
    const size_t most = 1 << 30; /* zlib counts in 32 bits */
    size_t n = 0;
    while (n < bytes) {
        size_t k = 0;
        skip_padding(s);
        if (s->begin == s->end && !s->file_end) {
            TN_RETURN_IF(fill(s));
            continue;
        }
        const bool dry = s->begin == s->end;
        if (dry && !s->inside) break;
        TN_RETURN_IF(steps[s->packing](s, (unsigned char *)data + n, bytes - n < most ? bytes - n : most, &k));
        if (dry && k == 0 && s->inside) return damaged(s, "the packed data ends too early");
        n += k;
        s->position += k;
        TN_RETURN_IF(check_ratio(s));
    }
    *got = n;
    return TN_OK;
}

uint64_t tn_stream_position(const tn_stream *s) { return s->position; }

uint64_t tn_stream_consumed(const tn_stream *s) { return s->read_bytes; }

const char *tn_stream_path(const tn_stream *s) { return s->path; }
