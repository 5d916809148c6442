/* Axes and names of a chart. */
#include "report/chart/chart_frame.h"

#include <math.h>

double tn__frame_x(const tn_frame *f, double place) { return f->left + place * (f->right - f->left); }
double tn__frame_y(const tn_frame *f, double place) { return f->bottom - place * (f->bottom - f->top); }

static void put_line(const tn_frame *f, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(f->out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", class, x1, y1, x2, y2);
}

void tn__frame_axes(const tn_frame *f, const char *x_label, const char *y_label, bool y_ticks)
{
    for (int i = 0; y_ticks && i < f->y.ticks && !f->y.empty; i++) {
        const double y = tn__frame_y(f, f->y.at[i]);
        put_line(f, "g", f->left, y, f->right, y);
        tn__svg_label(f->out, "m e", f->left - 8, y + 4, f->y.label[i], 24);
    }
    put_line(f, "a", f->left, f->bottom, f->right, f->bottom);
    fputc('\n', f->out);
    for (int i = 0; i < f->x.ticks && !f->x.empty; i++) {
        const double x = tn__frame_x(f, f->x.at[i]);
        put_line(f, "a", x, f->bottom, x, f->bottom + 4);
        tn__svg_label(f->out, "m c", x, f->bottom + 18, f->x.label[i], 24);
    }
    if (x_label) {
        fprintf(f->out, "<text class=\"m e\" x=\"%.0f\" y=\"%.0f\">", f->right, f->bottom + 36);
        tn__svg_text(f->out, x_label, 80);
        fprintf(f->out, "%s</text>\n", f->x.log ? " (log scale)" : "");
    }
    if (y_label) {
        fprintf(f->out, "<text class=\"m\" x=\"20\" y=\"%.0f\">", f->top - 14);
        tn__svg_text(f->out, y_label, 60);
        fprintf(f->out, "%s</text>\n", f->y.log ? " (log scale)" : "");
    }
}

void tn__frame_names(const tn_frame *f, const char *const *names, size_t n)
{
    double x = f->right;
    for (size_t i = n; i-- > 0;) {
        if (!names || !names[i]) continue;
        char class[16];
        snprintf(class, sizeof class, "e n%zu", i % TN_SVG_STYLES);
        tn__svg_label(f->out, class, x, f->top - 14, names[i], 24);
        x -= 7.2 * fmin(24, (double)tn__plot_columns(names[i])) + 22;
        fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", i % TN_SVG_STYLES, x + 11,
                f->top - 18);
    }
}

tn_status tn__frame_done(const tn_frame *f)
{
    tn__svg_end(f->out);
    return ferror(f->out) ? tn_error(TN_DISK, "the chart could not be written") : TN_OK;
}
