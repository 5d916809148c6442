/* Files that a verb writes beside what it prints: tables as CSV, drawings. Under the name there is only ever a whole file; what
 * was there before stays until then. */
#ifndef TN_CLI_TABLE_FILE_H
#define TN_CLI_TABLE_FILE_H

#include "base/status.h"

#include <stdio.h>

tn_status tn_table_open(const char *path, FILE **out);
/* Closes it; what went wrong before is kept, the file then is not. */
tn_status tn_table_close(const char *path, FILE *f, tn_status s);

void tn_table_field(FILE *f, const char *text); /* quoted: names may hold commas and quotes */
/* A comma and the number; nothing where it is not finite. */
void tn_table_number(FILE *f, const char *format, double x);

#endif
