/* Shared by plots and charts: a self-contained SVG for light and dark pages, escaped text, coordinates, axes. Plain
 * CSS classes only (several viewers know no variables or scripts): s0..s11 strokes and n0..n11 fills of the groups, t
 * and m text, i text on a fill, g grid, a axes, p pale, k a legend's sample of a line, w a rim that parts two fills, o a line over a fill.
 * A page has many charts in it and styles are the page's, so all charts have the same rules. */
#ifndef TN_REPORT_SVG_H
#define TN_REPORT_SVG_H

#include "report/chart/plot_axis.h"

#include <stddef.h>
#include <stdio.h>

enum {
    TN_SVG_STYLES = 12,
    TN_SVG_LABEL_GAP = 15,
    TN_SVG_BYTES = 300000 /* no chart is larger, whatever it shows */
};
#define TN_SVG_LETTER 7.7 /* pixels: no digit of the usual fonts is wider */

/* title: the heading; where it is NULL there is none, and screen readers are told `name`. groups: styles used. */
void tn__svg_begin(FILE *out, int width, int height, const char *title, const char *name, size_t groups);
void tn__svg_end(FILE *out);
/* XML text; at most `most` characters, the middle of a longer one is an ellipsis: names differ at their ends. */
void tn__svg_text(FILE *out, const char *s, size_t most);
/* <text class="CLASS" x y>...</text> */
void tn__svg_label(FILE *out, const char *class, double x, double y, const char *s, size_t most);
/* <title>...</title>: what a reader sees who points at it. */
void tn__svg_hint(FILE *out, const char *s);
/* Pixels of a text of the usual size, by the widest usual font; and how many of its characters go into a width. */
double tn__svg_width(const char *s);
size_t tn__svg_fit(const char *s, double width);
/* A coordinate with one decimal, none where it is zero: half the size of a file is coordinates. before: a letter, or
 * 0. */
void tn__svg_number(FILE *out, char before, double v);
/* A value with three digits: 0.0123, 12.3, 45.6k, 7.00e-05. Returns out. */
const char *tn__svg_value(double v, char out[16]);
void tn__svg_rect(FILE *out, double x, double y, double width, double height); /* their attributes */

/* --- style.c: colours --- */

const char *tn__svg_colour(size_t style, bool dark);
/* The rules of all classes; of groups those used. */
void tn__svg_rules(FILE *out, size_t groups);
/* The attribute that tells apart lines of one colour, which are TN_SVG_STYLES apart; nothing for the first of them. */
void tn__svg_dash(FILE *out, size_t style);
/* class="nK MORE", and for fills of one colour how strong it is. */
void tn__svg_fill(FILE *out, size_t style, const char *more);

/* --- frame.c: the plotting area of a chart with its two axes --- */

typedef struct tn_frame {
    FILE *out;
    double width;                    /* of the picture, in pixels */
    double left, right, top, bottom; /* of the field inside the axes */
    tn_plot_axis x, y;
} tn_frame;

double tn__frame_x(const tn_frame *f, double place);
double tn__frame_y(const tn_frame *f, double place);
/* Ticks of the axes, whose ranges are known. y_ticks: `left` makes room for their labels; false for charts that name rows
 * themselves. */
void tn__frame_ticks(tn_frame *f, bool y_ticks);
/* Grid, ticks and labels of the axes. */
void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks);
/* A dashed line at a value of y, with its name; nothing where it is not on the axis. */
void tn__frame_limit(const tn_frame *f, double value, const char *name);
/* Names of groups, with their colours, in rows below the title; those not NULL. */
void tn__frame_names(const tn_frame *f, const char *const *names, size_t n);
/* The height of those rows, in pixels, in a chart of this width. */
double tn__names_height(const char *const *names, size_t n, double width);
/* Below the axes, at the left: what was left out. */
void tn__frame_note(const tn_frame *f, const char *text);
tn_status tn__frame_done(const tn_frame *f);

#endif
