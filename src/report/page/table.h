/* Tables of a report, as HTML or Markdown: cell by cell, the same for both. A cell of which nothing is known is empty. */
#ifndef TN_REPORT_TABLE_H
#define TN_REPORT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tn_page {
    FILE *out;
    bool html; /* or Markdown */
} tn_page;

void tn_page_heading(const tn_page *p, const char *text);
void tn_page_note(const tn_page *p, const char *text); /* a paragraph */

void tn_table_begin(const tn_page *p, const char *const *heads, size_t n);
void tn_table_end(const tn_page *p);
void tn_row_begin(const tn_page *p);
void tn_row_end(const tn_page *p);

void tn_cell_text(const tn_page *p, const char *s); /* may come from a file */
void tn_cell_path(const tn_page *p, const char *folder,
                  const char *name);                 /* folder: with its slash, shown weaker; "": none */
void tn_cell_number(const tn_page *p, double v);     /* four digits; above 0, else empty */
void tn_cell_known(const tn_page *p, double v);      /* 0 too */
void tn_cell_percent(const tn_page *p, double frac); /* as above, of 1 */

#endif
