/* Turning a table on its side: its cells are found by the blanks between them. */
#include "cli/wide_table.h"

#include "cli/term.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, COLUMNS = 24, GAP = 2 };

typedef struct cells {
    const char *at[ROWS][COLUMNS];
    size_t rows, columns;
} cells;

static int columns_of(const char *s)
{
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* One line; false: it has more or fewer cells than the heads. */
static bool split(cells *c, char *line)
{
    size_t n = 0;
    if (c->rows == ROWS) return false;
    if (c->rows == 0 && *line == ' ') c->at[0][n++] = "";
    while (*line) {
        line += strspn(line, " ");
        if (!*line) break;
        if (n == COLUMNS) return false;
        char *end = strstr(line, "  ");
        c->at[c->rows][n++] = line;
        if (!end) break;
        *end = 0;
        line = end + 1;
    }
    if (c->rows++ == 0) c->columns = n;
    return n == c->columns;
}

static void print_sideways(const cells *c, const int *widths, FILE *out)
{
    for (size_t k = 0; k < c->columns; k++) {
        fprintf(out, "%-*s", widths[0], c->at[0][k]);
        for (size_t i = 1; i < c->rows; i++)
            fprintf(out, "%*s%s", GAP + widths[i] - columns_of(c->at[i][k]), "", c->at[i][k]);
        fputc('\n', out);
    }
}

void tn_wide_table_fit(FILE *out, const char *text, int width)
{
    cells c = { .rows = 0 };
    int widths[ROWS] = { 0 }, all = -GAP, widest = 0;
    char *copy = strdup(text), *rest = copy, *line;
    bool ok = copy != NULL;
    while ((line = strsep(&rest, "\n")) && ok) {
        if (columns_of(line) > widest) widest = columns_of(line);
        if (*line) ok = split(&c, line);
    }
    for (size_t i = 0; ok && i < c.rows; i++) {
        for (size_t k = 0; k < c.columns; k++)
            if (columns_of(c.at[i][k]) > widths[i]) widths[i] = columns_of(c.at[i][k]);
        all += GAP + widths[i];
    }
    if (ok && widest > width && all <= width) print_sideways(&c, widths, out);
    else fputs(text, out);
    free(copy);
}

void tn_wide_table_print(FILE *out, const char *text)
{
    const tn_term term = tn_term_of(out);
    if (term.tty) tn_wide_table_fit(out, text, term.width);
    else fputs(text, out);
}
