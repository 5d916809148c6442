/* Shared by plots and charts: a self-contained SVG for light and dark pages, escaped text, coordinates, axes. Plain
 * CSS classes only (several viewers know no variables or scripts): s0..s5 strokes and n0..n5 fills of the groups, t
 * and m text, g grid, a axes, p pale, k a legend's sample of a line. */
#ifndef TN_REPORT_SVG_H
#define TN_REPORT_SVG_H

#include "report/chart/plot_axis.h"

#include <stddef.h>
#include <stdio.h>

enum { TN_SVG_STYLES = 6, TN_SVG_LABEL_GAP = 15 };

/* title: the heading; where it is NULL there is none, and screen readers are told `name`. groups: styles used. */
void tn__svg_begin(FILE *out, int width, int height, const char *title, const char *name, size_t groups);
void tn__svg_end(FILE *out);
/* The attribute that tells apart styles of one colour, which are TN_SVG_STYLES apart; nothing for the first of them. */
void tn__svg_dash(FILE *out, size_t style);
/* XML text; at most `most` characters, the middle of a longer one is an ellipsis: names differ at their ends. */
void tn__svg_text(FILE *out, const char *s, size_t most);
/* <text class="CLASS" x y>...</text> */
void tn__svg_label(FILE *out, const char *class, double x, double y, const char *s, size_t most);
/* A coordinate with one decimal, none where it is zero: half the size of a file is coordinates. before: a letter, or
 * 0. */
void tn__svg_number(FILE *out, char before, double v);

/* The plotting area of a chart with its two axes. */
typedef struct tn_frame {
    FILE *out;
    double left, right, top, bottom; /* of the field inside the axes, in pixels */
    tn_plot_axis x, y;
} tn_frame;

double tn__frame_x(const tn_frame *f, double place);
double tn__frame_y(const tn_frame *f, double place);
/* Grid, ticks and labels of the axes. y_ticks: false for charts that name rows themselves. */
void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks);
/* Names of groups, with their colours, in rows below the title; those not NULL. */
void tn__frame_names(const tn_frame *f, const char *const *names, size_t n);
/* The height of those rows, in pixels, in a chart of this width. */
double tn__names_height(const char *const *names, size_t n, double width);
tn_status tn__frame_done(const tn_frame *f);

#endif
