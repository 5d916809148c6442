/* The UCI handwritten digits as scikit-learn has them: 1797 rows of 64 numbers 0..16 (8 x 8 pixels) and the digit. The file
 * is a table of numbers; how many rows it has is seen at its end, so any table of that form is read. */
#include "base/alloc.h"
#include "io/array_file.h"
#include "tasks/image_files.h"

#include <string.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, INK = 16, DIGITS = 10, ROWS_MAX = 10000000 };

static const tn_image_files files = { .task = "digits",
                                      .needed = "digits.csv.gz",
                                      .from = "`tenon data get digits`, or as optdigits.tes from archive.ics.uci.edu" };

typedef struct table {
    uint8_t *v; /* (rows, PIXELS + 1) */
    size_t rows, capacity;
} table;

static tn_status keep_row(const char *path, const double *row, table *t)
{
    void *p = t->v;
    if (t->rows == ROWS_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has more than %d rows; is it the right file?", path, ROWS_MAX);
    TN_RETURN_IF(tn_grow(&p, &t->capacity, t->rows + 1, PIXELS + 1));
    t->v = p;
    uint8_t *to = t->v + t->rows++ * (PIXELS + 1);
    for (int i = 0; i <= PIXELS; i++) {
        const double most = i < PIXELS ? INK : DIGITS - 1;
        if (!(row[i] >= 0 && row[i] <= most) || row[i] != (double)(int)row[i])
            return tn_error(TN_BAD_FILE,
                            "%.640s: row %zu: field %d is %g, not an integer of 0..%g; is it the table of digits?",
                            path, t->rows, i + 1, row[i], most);
        to[i] = (uint8_t)row[i];
    }
    return TN_OK;
}

static tn_status read_table(const char *path, table *t)
{
    tn_status s = TN_OK;
    tn_array *a = NULL;
    double row[PIXELS + 1];
    bool got = true;
    TN_TRY(tn_array_open(path, TN_ARRAY_CSV, &a));
    if (tn_array_about(a)->sample != PIXELS + 1)
        TN_FAIL(TN_BAD_FILE,
                "%.640s has %zu columns instead of 64 pixels and a digit; is it the table of digits (download: %s)?",
                path, tn_array_about(a)->sample, files.from);
    for (;;) {
        TN_TRY(tn_array_next(a, row, &got));
        if (!got) break;
        TN_TRY(keep_row(path, row, t));
    }
    if (t->rows == 0)
        TN_FAIL(TN_BAD_FILE, "%.640s contains no rows; download it again (download: %s)", path, files.from);
done:
    tn_array_close(a);
    return s;
}

static tn_status open_digits(const tn_settings *st, tn_samples **out)
{
    static const char *const names[] = { "optdigits.tes", "digits.csv", NULL };
    tn_status s = TN_OK;
    table t = { 0 };
    tn_sample_set *b = NULL;
    char path[TN_PATH_BYTES];
    TN_TRY(tn__image_find(st, &files, names, false, path));
    TN_TRY(read_table(path, &t));
    const tn_samples shape = { .n = (int64_t)t.rows,
                               .tokens = 1,
                               .features = PIXELS,
                               .labels = 1,
                               .classes = DIGITS,
                               .scale = 1.0f / INK,
                               .width = SIDE,
                               .height = SIDE };
    TN_TRY(tn__samples_new(&shape, true, &b));
    for (size_t i = 0; i < t.rows; i++) {
        memcpy(b->x_u8 + i * PIXELS, t.v + i * (PIXELS + 1), PIXELS);
        b->y[i] = t.v[i * (PIXELS + 1) + PIXELS];
    }
    TN_TRY(tn__split_by_class(st, b, 0));
    *out = &b->set;
    b = NULL;
done:
    tn_samples_free(b ? &b->set : NULL);
    tn_free(t.v);
    return s;
}

const tn_task tn_task_digits = { .name = "digits",
                                 .summary = "handwritten digits of 8 x 8 pixels",
                                 .open = open_digits };
