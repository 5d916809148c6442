/* Shared by array_*.c. */
#ifndef TN_IO_ARRAY_PARTS_H
#define TN_IO_ARRAY_PARTS_H

#include "base/fs.h"
#include "io/array_file.h"
#include "io/stream.h"

typedef enum tn_number {
    TN_NUMBER_U8,
    TN_NUMBER_I8,
    TN_NUMBER_U16,
    TN_NUMBER_I16,
    TN_NUMBER_U32,
    TN_NUMBER_I32,
    TN_NUMBER_U64,
    TN_NUMBER_I64,
    TN_NUMBER_F32,
    TN_NUMBER_F64
} tn_number;

struct tn_array {
    tn_stream *stream;
    tn_array_format format;
    tn_array_info info;
    tn_number number;
    bool big_endian;
    int64_t row; /* rows handed out */
    size_t item_bytes;
    unsigned char *raw; /* a row as it lies in the file; for .csv the text in hand */
    size_t capacity, begin, end;
    bool file_end;
    char separator; /* of .csv */
};

/* Shape from `rank` dimensions of the file, the first of them rows; checks all sizes. */
tn_status tn__array_shape(tn_array *a, int rank, const uint64_t *dims);
tn_status tn__array_read_exact(tn_array *a, void *data, size_t bytes, const char *what);
tn_status tn__npy_header(tn_array *a);
tn_status tn__csv_header(tn_array *a);
tn_status tn__csv_next(tn_array *a, double *row, bool *got);

#endif
