/* Arrays of numbers from files: NumPy's .npy, IDX (MNIST) and .csv, compressed or not, row by row.
 *
 * The first dimension counts rows; a row has `sample` numbers in the shape of the others. Rows are doubles, which hold
 * every type here exactly except large 64-bit integers. A file that is shorter or longer than its header says is
 * refused. Only one row is allocated. */
#ifndef TN_IO_ARRAY_FILE_H
#define TN_IO_ARRAY_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TN_ARRAY_RANK_MAX = 8,
    TN_ARRAY_SAMPLE_MAX = 1 << 26, /* numbers in a row */
    TN_CSV_LINE_BYTES = 16 << 20,
    TN_CSV_FIELDS_MAX = 1 << 20 /* of a line: "0," is 2 bytes there and a dozen as numbers */
};

typedef enum tn_array_format { TN_ARRAY_NPY = 0, TN_ARRAY_IDX = 1, TN_ARRAY_CSV = 2 } tn_array_format;

typedef struct tn_array_info {
    bool is_u8; /* every number is 0..255 by type */
    int rank;   /* of a row: 0 for a list of numbers */
    int64_t dims[TN_ARRAY_RANK_MAX];
    size_t sample; /* numbers in a row, 1 or more */
    int64_t rows;  /* -1: known at the end only (.csv) */
} tn_array_info;

typedef struct tn_array tn_array;

tn_status tn_array_open(const char *path, tn_array_format format, tn_array **out);
const tn_array_info *tn_array_about(const tn_array *a);
/* The next row (sample); *got is false after the last. */
tn_status tn_array_next(tn_array *a, double *row, bool *got);
tn_status tn_array_next_u8(tn_array *a, uint8_t *row, bool *got); /* where is_u8: the same without a detour */
uint64_t tn_array_consumed(const tn_array *a);                    /* bytes of the file read, for progress */
void tn_array_close(tn_array *a);                                 /* takes NULL */

#endif
