/* What the charts share: the frame of a self-contained SVG that is right on light and on dark pages, text made safe, coordinates. Private to
 * src/report. Plain CSS classes only (no variables or scripts, which several viewers do not know): s0..s7 strokes and n0..n7 fills of
 * the groups, t and m text, g grid, a axes, p pale. */
#ifndef TN_REPORT_SVG_H
#define TN_REPORT_SVG_H

#include <stddef.h>
#include <stdio.h>

enum { TN_SVG_STYLES = 8, TN_SVG_LABEL_GAP = 15 };

void tn__svg_begin(FILE *out, int width, int height, const char *title,
                   size_t groups);                  /* title: for readers of screens; groups: styles used */
void tn__svg_heading(FILE *out, const char *title); /* NULL: none */
void tn__svg_end(FILE *out);
/* XML text; at most `most` characters, the rest as an ellipsis. */
void tn__svg_text(FILE *out, const char *s, size_t most);
/* <text class="CLASS" x y>...</text> */
void tn__svg_label(FILE *out, const char *class, double x, double y, const char *s, size_t most);
/* A coordinate with one decimal, none where it is zero: half the size of a file is coordinates. before: a letter, or 0. */
void tn__svg_number(FILE *out, char before, double v);

#endif
