/* Writing CSV files. A file is written beside its name and takes it when it is whole. */
#include "cli/table_file.h"

#include "base/fs.h"
#include "base/output.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct partial {
    char name[TN_PATH_BYTES + 32];
} partial;

static partial partial_of(const char *path)
{
    partial p;
    if (tn_output_in_place(path)) snprintf(p.name, sizeof p.name, "%s", path);
    else snprintf(p.name, sizeof p.name, "%s.tmp-%ld", path, (long)getpid());
    return p;
}

tn_status tn_table_open(const char *path, FILE **out)
{
    if (strlen(path) >= TN_PATH_BYTES) return tn_fs_error(TN_DISK, ENAMETOOLONG, "write", path);
    TN_RETURN_IF(tn_output_file_check(path));
    const partial p = partial_of(path);
    const bool in_place = strcmp(p.name, path) == 0;
    if (!in_place) unlink(p.name); /* of a dead process with our number; "x" follows no link */
    *out = fopen(p.name, in_place ? "w" : "wx");
    return *out ? TN_OK : tn_fs_error(TN_DISK, errno, "write", path);
}

tn_status tn_table_close(const char *path, FILE *f, tn_status s)
{
    const partial p = partial_of(path);
    const bool in_place = strcmp(p.name, path) == 0;
    errno = 0;
    const bool bad = fflush(f) != 0 || ferror(f);
    if (bad && s == TN_OK) s = tn_fs_error(TN_DISK, errno ? errno : EIO, "write", path);
    if (fclose(f) != 0 && s == TN_OK) s = tn_fs_error(TN_DISK, errno, "write", path);
    if (in_place) return s;
    if (s == TN_OK && rename(p.name, path) != 0) s = tn_fs_error(TN_DISK, errno, "write", path);
    if (s != TN_OK) unlink(p.name);
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
