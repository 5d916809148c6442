/* Tables of text: fields between tabs, one row per line, columns named in the first line. For files of src/tasks only. */
#ifndef TN_TASKS_TSV_H
#define TN_TASKS_TSV_H

#include "base/status.h"

#include <stddef.h>

enum { TN_TSV_COLUMNS = 8 };

typedef struct tn_tsv_field {
    const char *text; /* not NUL-terminated */
    size_t bytes;
} tn_tsv_field;

/* Called for each row with the columns that were asked for. Another status than TN_OK ends reading with it. */
typedef tn_status tn_tsv_row(void *user, size_t line, const tn_tsv_field *field);

/* Reads all of a file, packed or not. columns (NULL at the end, at most TN_TSV_COLUMNS): names that the first line must have, in any
 * order and among others. TN_BAD_FILE with the line: fields that are missing or too many, bytes that are not UTF-8. */
tn_status tn__tsv_read(const char *path, const char *const *columns, tn_tsv_row *row, void *user);

#endif
