/* .npy, IDX and .csv, by the first byte: refused, or as many rows as the header says, each with its numbers. */
#include "fuzz_file.h"
#include "io/array_file.h"

static void rows_of(tn_array *a)
{
    const tn_array_info *i = tn_array_about(a);
    CHECK(i->sample > 0 && i->sample <= TN_ARRAY_SAMPLE_MAX && i->rank <= TN_ARRAY_RANK_MAX);
    if (i->sample > 1 << 16) return; /* a row that the file cannot hold: the reader finds out without our memory */
    double *row = malloc(i->sample * sizeof *row); /* exactly as long, so that the sanitizer sees a number too many */
    int64_t n = 0;
    bool got = true;
    tn_status s = TN_OK;
    CHECK(row);
    while (s == TN_OK && got) {
        s = tn_array_next(a, row, &got);
        n += s == TN_OK && got;
    }
    if (s != TN_OK) fuzz_refused(s);
    else CHECK(i->rows < 0 || n == i->rows);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static const char *const names[] = { "t.npy", "t-ubyte", "t.csv" };
    tn_array *a = NULL;
    if (bytes == 0) return 0;
    const int format = input[0] % 3;
    const tn_status s = tn_array_open(fuzz_put(names[format], input + 1, bytes - 1), (tn_array_format)format, &a);
    if (s == TN_OK) rows_of(a);
    else fuzz_refused(s);
    tn_array_close(a);
    return 0;
}
