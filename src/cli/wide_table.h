/* A table that is wider than the terminal, turned on its side: few rows of many columns, as a race has. */
#ifndef TN_CLI_WIDE_TABLE_H
#define TN_CLI_WIDE_TABLE_H

#include <stdio.h>

/* `text` is the whole table: a line of heads, then the rows; two blanks or more between cells, the first head may be blank. It is written as
 * it stands where it fits, where `out` is no terminal, and where its cells cannot be told apart. */
void tn_wide_table_print(FILE *out, const char *text);
/* The same for a terminal of so many columns. */
void tn_wide_table_fit(FILE *out, const char *text, int width);

#endif
