/* The field of a chart: ticks, grid and labels of its axes, names of its groups. */
#include "report/chart/svg.h"

#include <math.h>

enum { MARGIN = 20, LABEL_GAP = 12 };

double tn__frame_x(const tn_frame *f, double place) { return f->left + place * (f->right - f->left); }
double tn__frame_y(const tn_frame *f, double place) { return f->bottom - place * (f->bottom - f->top); }

void tn__frame_ticks(tn_frame *f, bool y_ticks)
{
    if (y_ticks) {
        tn__plot_ticks(&f->y, &(tn_plot_room){ .length = f->bottom - f->top, .gap = 18, .most = 8 });
        f->left = MARGIN + 8 + TN_SVG_LETTER * (double)tn__plot_label_columns(&f->y);
    }
    const double beyond = fmin(f->left, f->width - f->right) - 6;
    tn__plot_ticks(&f->x, &(tn_plot_room){ .length = f->right - f->left,
                                           .letter = TN_SVG_LETTER,
                                           .gap = LABEL_GAP,
                                           .over = fmax(beyond, 0),
                                           .most = 9 });
}

static void put_line(const tn_frame *f, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(f->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", class, x1, y1, x2, y2);
}

static void put_axis_label(const tn_frame *f, const char *class, double x, double y, const char *s, bool log)
{
    const char *const scale = log ? " (log scale)" : "";
    fprintf(f->out, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">", class, x, y);
    tn__svg_text(f->out, s, tn__svg_fit(s, f->right - f->left - tn__svg_width(scale)));
    fprintf(f->out, "%s</text>\n", scale);
}

void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks)
{
    for (int i = 0; y_ticks && i < f->y.ticks && !f->y.empty; i++) {
        const double y = tn__frame_y(f, f->y.at[i]);
        put_line(f, "g", f->left, y, f->right, y);
        tn__svg_label(f->out, "m e", f->left - 8, y + 4, f->y.label[i], 24);
    }
    for (int i = 0; y_ticks && i < f->y.minors && !f->y.empty; i++) {
        const double y = tn__frame_y(f, f->y.minor[i]);
        put_line(f, "a", f->left, y, f->left + 4, y);
    }
    put_line(f, "a", f->left, f->bottom, f->right, f->bottom);
    for (int i = 0; i < f->x.minors && !f->x.empty; i++) {
        const double x = tn__frame_x(f, f->x.minor[i]);
        put_line(f, "a", x, f->bottom - 4, x, f->bottom);
    }
    fputc('\n', f->out);
    for (int i = 0; i < f->x.ticks && !f->x.empty; i++) {
        const double x = tn__frame_x(f, f->x.at[i]);
        put_line(f, "a", x, f->bottom, x, f->bottom + 4);
        tn__svg_label(f->out, "m c", tn__frame_x(f, f->x.label_at[i]), f->bottom + 18, f->x.label[i], 24);
    }
    if (x_label) put_axis_label(f, "m e", f->right, f->bottom + 36, x_label, f->x.log);
    if (y_label) put_axis_label(f, "m", MARGIN, f->top - 14, y_label, f->y.log);
}

void tn__frame_limit(const tn_frame *f, double value, const char *name)
{
    const double place = tn__plot_place(&f->y, value);
    if (!(value > 0) || !(place >= 0 && place <= 1)) return;
    const double y = tn__frame_y(f, place);
    fprintf(f->out, "<line class=\"a\" stroke-dasharray=\"6 4\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
            f->left, y, f->right, y);
    if (name) tn__svg_label(f->out, "m e", f->right - 4, y - 5, name, tn__svg_fit(name, f->right - f->left));
}

/* --- names -------------------------------------------------------------------------------------------------------- */

enum { NAMES_TOP = 52, NAMES_ROW = 18, NAME_WIDTH = 250, NAMES_MOST = 60, SAMPLE = 13 };

static double name_width(const char *name) { return fmin(NAME_WIDTH, tn__svg_width(name)) + SAMPLE + 18; }

/* Where the next name begins: behind the one before it, or in a new row. */
static void next_name(const char *name, double right, double *x, int *row)
{
    if (*x > MARGIN && *x + name_width(name) - 18 > right) *x = MARGIN, ++*row;
}

double tn__names_height(const char *const *names, size_t n, double width)
{
    double x = MARGIN;
    int row = 0;
    for (size_t i = 0; names && i < n && i < NAMES_MOST; i++) {
        if (!names[i]) continue;
        next_name(names[i], width - MARGIN, &x, &row);
        x += name_width(names[i]);
    }
    return x > MARGIN ? NAMES_ROW * (row + 1) : 0;
}

void tn__frame_names(const tn_frame *f, const char *const *names, size_t n)
{
    double x = MARGIN;
    int row = 0;
    for (size_t i = 0; names && i < n && i < NAMES_MOST; i++) {
        if (!names[i]) continue;
        next_name(names[i], f->width - MARGIN, &x, &row);
        const double y = NAMES_TOP + NAMES_ROW * row;
        fputs("<circle", f->out);
        tn__svg_fill(f->out, i, "");
        fprintf(f->out, " cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x + 4, y - 4);
        tn__svg_label(f->out, "t", x + SAMPLE, y, names[i], tn__svg_fit(names[i], NAME_WIDTH));
        x += name_width(names[i]);
    }
}

void tn__frame_note(const tn_frame *f, const char *text)
{
    tn__svg_label(f->out, "m", MARGIN, f->bottom + 36, text, tn__svg_fit(text, f->width / 2));
}

tn_status tn__frame_done(const tn_frame *f)
{
    tn__svg_end(f->out);
    return ferror(f->out) ? tn_error(TN_DISK, "the chart could not be written") : TN_OK;
}
