/* Writing CSV files. */
#include "cli/table_file.h"

#include <math.h>

tn_status tn_table_open(const char *path, FILE **out)
{
    *out = fopen(path, "w");
    return *out ? TN_OK : tn_error(TN_DISK, "cannot write %.640s", path);
}

tn_status tn_table_close(const char *path, FILE *f, tn_status s)
{
    const int bad = ferror(f);
    if ((fclose(f) != 0 || bad) && s == TN_OK) return tn_error(TN_DISK, "cannot write %.640s", path);
    return s;
}

void tn_table_field(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

void tn_table_number(FILE *f, const char *format, double x)
{
    fputc(',', f);
    if (isfinite(x)) fprintf(f, format, x);
}
