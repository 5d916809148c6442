/* A page that holds charts and tables: one HTML file without scripts, for light and dark. What comes from a file is escaped. */
#ifndef TN_REPORT_HTML_H
#define TN_REPORT_HTML_H

#include <stdio.h>

void tn_html_begin(FILE *out, const char *title); /* up to <body> */
void tn_html_end(FILE *out);
void tn_html_text(FILE *out, const char *s);
void tn_html_tag(FILE *out, const char *tag, const char *text); /* <TAG>text</TAG>; of a plain tag */
void tn_html_number(FILE *out, double v);                       /* <td>0.1234</td>, "-" for NaN */

#endif
