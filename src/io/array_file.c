/* Opening, rows of binary numbers, and IDX headers (two zero bytes, a type, the number of dimensions, each as a big-endian
 * u32; http://yann.lecun.com/exdb/mnist describes it). */
#include "io/array_parts.h"

#include "base/alloc.h"

#include <string.h>

static const size_t number_bytes[] = { 1, 1, 2, 2, 4, 4, 8, 8, 4, 8 };

tn_status tn__array_read_exact(tn_array *a, void *data, size_t bytes, const char *what)
{
    size_t got;
    TN_RETURN_IF(tn_stream_read(a->stream, data, bytes, &got));
    if (got == bytes) return TN_OK;
    return tn_error(TN_BAD_FILE, "%.640s ends inside %s, after %llu bytes; the file was cut short, download it again",
                    tn_stream_path(a->stream), what, (unsigned long long)tn_stream_position(a->stream));
}

tn_status tn__array_shape(tn_array *a, int rank, const uint64_t *dims)
{
    const char *path = tn_stream_path(a->stream);
    size_t n = 1;
    if (rank < 1 || rank > TN_ARRAY_RANK_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has %d dimensions; 1 to %d are read, the first counts samples", path, rank,
                        TN_ARRAY_RANK_MAX);
    for (int i = 1; i < rank; i++) {
        if (dims[i] == 0 || dims[i] > TN_ARRAY_SAMPLE_MAX || !tn_mul_ok(n, dims[i], &n) || n > TN_ARRAY_SAMPLE_MAX)
            return tn_error(TN_BAD_FILE,
                            "%.640s: samples of such a shape have no numbers, or more than %d; is the file damaged?",
                            path, TN_ARRAY_SAMPLE_MAX);
        a->info.dims[i - 1] = (int64_t)dims[i];
    }
    if (dims[0] > INT64_MAX / 8 / TN_ARRAY_SAMPLE_MAX)
        return tn_error(TN_BAD_FILE, "%.640s promises %llu samples, which no disk holds; the file is damaged", path,
                        (unsigned long long)dims[0]);
    a->info.rank = rank - 1;
    a->info.sample = n;
    a->info.rows = (int64_t)dims[0];
    a->info.is_u8 = a->number == TN_NUMBER_U8;
    a->item_bytes = number_bytes[a->number];
    return TN_OK;
}

static tn_status idx_header(tn_array *a)
{
    static const struct {
        unsigned char code;
        tn_number number;
    } types[] = { { 8, TN_NUMBER_U8 },   { 9, TN_NUMBER_I8 },   { 11, TN_NUMBER_I16 },
                  { 12, TN_NUMBER_I32 }, { 13, TN_NUMBER_F32 }, { 14, TN_NUMBER_F64 } };
    unsigned char head[4], d[4];
    uint64_t dims[TN_ARRAY_RANK_MAX] = { 0 };
    size_t t = 0;
    TN_RETURN_IF(tn__array_read_exact(a, head, 4, "its header"));
    while (t < sizeof types / sizeof *types && types[t].code != head[2]) t++;
    if (head[0] || head[1] || t == sizeof types / sizeof *types)
        return tn_error(TN_BAD_FILE, "%.640s is not an IDX file (it begins %02x %02x %02x %02x); set format=",
                        tn_stream_path(a->stream), head[0], head[1], head[2], head[3]);
    for (int i = 0; i < head[3] && i < TN_ARRAY_RANK_MAX; i++) {
        TN_RETURN_IF(tn__array_read_exact(a, d, 4, "its header"));
        dims[i] = (uint64_t)d[0] << 24 | (uint64_t)d[1] << 16 | (uint64_t)d[2] << 8 | d[3];
    }
    a->number = types[t].number;
    a->big_endian = true;
    return tn__array_shape(a, head[3], dims);
}

tn_status tn_array_open(const char *path, tn_array_format format, tn_array **out)
{
    static tn_status (*const headers[])(tn_array *) = { tn__npy_header, idx_header, tn__csv_header };
    tn_status s = TN_OK;
    tn_array *a = tn_alloc(sizeof *a);
    if (!a) return TN_MEMORY;
    a->format = format;
    TN_TRY(tn_stream_open(path, &a->stream));
    TN_TRY(headers[format](a));
    if (format != TN_ARRAY_CSV) {
        a->raw = tn_alloc(a->info.sample * a->item_bytes);
        if (!a->raw) TN_TRY(TN_MEMORY);
    }
    *out = a;
    a = NULL;
done:
    tn_array_close(a);
    return s;
}

void tn_array_close(tn_array *a)
{
    if (!a) return;
    tn_stream_close(a->stream);
    tn_free(a->raw);
    tn_free(a);
}

const tn_array_info *tn_array_about(const tn_array *a) { return &a->info; }

uint64_t tn_array_consumed(const tn_array *a) { return tn_stream_consumed(a->stream); }

static double to_double(tn_number number, uint64_t x)
{
    float f;
    double d;
    const uint32_t low = (uint32_t)x;
    switch (number) {
    case TN_NUMBER_I8: return (int8_t)x;
    case TN_NUMBER_I16: return (int16_t)x;
    case TN_NUMBER_I32: return (int32_t)low;
    case TN_NUMBER_I64: return (double)(int64_t)x;
    case TN_NUMBER_F32: memcpy(&f, &low, 4); return (double)f;
    case TN_NUMBER_F64: memcpy(&d, &x, 8); return d;
    default: return (double)x;
    }
}

static void convert(const tn_array *a, double *row)
{
    const size_t k = a->item_bytes;
    for (size_t i = 0; i < a->info.sample; i++) {
        const unsigned char *p = a->raw + i * k;
        uint64_t x = 0;
        for (size_t b = 0; b < k; b++) x |= (uint64_t)p[a->big_endian ? k - 1 - b : b] << (8 * b);
        row[i] = to_double(a->number, x);
    }
}

/* The next row as it lies in the file, into `raw`. */
static tn_status next_raw(tn_array *a, void *raw, bool *got)
{
    char more;
    size_t extra;
    *got = a->row < a->info.rows;
    if (!*got) {
        TN_RETURN_IF(tn_stream_read(a->stream, &more, 1, &extra));
        if (extra)
            return tn_error(TN_BAD_FILE,
                            "%.640s goes on after the last of its %lld samples; its header is wrong, download it again",
                            tn_stream_path(a->stream), (long long)a->info.rows);
        return TN_OK;
    }
    TN_RETURN_IF(tn__array_read_exact(a, raw, a->info.sample * a->item_bytes, "its samples"));
    a->row++;
    return TN_OK;
}

tn_status tn_array_next(tn_array *a, double *row, bool *got)
{
    if (a->format == TN_ARRAY_CSV) return tn__csv_next(a, row, got);
    TN_RETURN_IF(next_raw(a, a->raw, got));
    if (*got) convert(a, row);
    return TN_OK;
}

tn_status tn_array_next_u8(tn_array *a, uint8_t *row, bool *got)
{
    if (!a->info.is_u8) return tn_error(TN_INTERNAL, "%.640s does not contain bytes", tn_stream_path(a->stream));
    return next_raw(a, row, got);
}
