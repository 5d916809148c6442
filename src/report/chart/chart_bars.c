/* Horizontal bars: a row for each name, a bar for each group. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 720, BAR = 12, GAP = 10, NAME_WIDTH = 210, BARS_MOST = 1200, ROWS_MOST = 250 };

static void put_bar(const tn_bars *c, const tn_frame *f, size_t row, size_t group)
{
    const size_t i = row * c->n_groups + group;
    const double v = tn__plot_place(&f->x, c->value[i]), zero = tn__frame_x(f, fmax(0, tn__plot_place(&f->x, 0)));
    if (!isfinite(v)) return;
    const double y = f->top + GAP / 2.0 + (double)row * (double)(BAR * c->n_groups + GAP) + (double)(BAR * group),
                 x = tn__frame_x(f, v);
    fputs("<rect", f->out);
    tn__svg_fill(f->out, group, "");
    tn__svg_rect(f->out, fmin(x, zero), y, fabs(x - zero), BAR - 2);
    fputs("/>\n", f->out);
    const double s = c->spread ? c->spread[i] : NAN;
    if (!isfinite(s) || s <= 0) return;
    const double a = tn__frame_x(f, tn__plot_place(&f->x, c->value[i] - s)),
                 b = tn__frame_x(f, tn__plot_place(&f->x, c->value[i] + s));
    fprintf(f->out, "<line class=\"o\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", fmax(a, f->left), b,
            y + BAR / 2.0 - 1, y + BAR / 2.0 - 1);
}

/* 0 and the ends of all whiskers: what the axis must hold. */
static tn_status axis_of(const tn_bars *c, size_t rows, tn_plot_axis *out)
{
    const size_t n = rows * c->n_groups;
    double *v = tn_alloc(sizeof *v * (2 * n + 1));
    if (!v) return TN_MEMORY;
    v[2 * n] = 0;
    for (size_t i = 0; i < n; i++) {
        const double s = c->spread && isfinite(c->spread[i]) ? c->spread[i] : 0;
        v[2 * i] = c->value[i] + s, v[2 * i + 1] = c->value[i] < 0 ? c->value[i] - s : c->value[i];
    }
    tn__plot_range(v, 2 * n + 1, false, 0.02, out);
    tn_free(v);
    return TN_OK;
}

tn_status tn_chart_bars(const tn_bars *c, FILE *out)
{
    if (!c->n || !c->n_groups) return tn_error(TN_USAGE, "a bar chart needs rows and groups");
    if (c->n_groups > BARS_MOST)
        return tn_error(TN_USAGE, "a bar chart of %zu groups: it has at most %d", c->n_groups, BARS_MOST);
    const size_t room = BARS_MOST / c->n_groups, most = room < ROWS_MOST ? room : ROWS_MOST,
                 n = c->n < most ? c->n : most;
    double widest = 0;
    for (size_t i = 0; i < n; i++) widest = fmax(widest, tn__svg_width(c->names[i]));
    const double row = (double)(BAR * c->n_groups + GAP);
    const int top = 52 + (c->n_groups > 1 ? (int)tn__names_height(c->groups, c->n_groups, WIDTH) : 0),
              height = top + (int)(row * (double)n) + 52;
    tn_frame f = { .out = out,
                   .width = WIDTH,
                   .left = 30 + fmin(widest, NAME_WIDTH),
                   .right = WIDTH - 26,
                   .top = top,
                   .bottom = height - 52 };
    TN_RETURN_IF(axis_of(c, n, &f.x));
    tn__frame_ticks(&f, false);
    tn__svg_begin(out, WIDTH, height, c->title, "bars", c->n_groups);
    tn__frame_axes(&f, c->x_label, NULL, false);
    if (c->n_groups > 1) tn__frame_names(&f, c->groups, c->n_groups);
    for (size_t i = 0; i < n; i++) {
        tn__svg_label(out, "t e", f.left - 8, f.top + ((double)i + 0.5) * row + 4, c->names[i],
                      tn__svg_fit(c->names[i], NAME_WIDTH));
        for (size_t g = 0; g < c->n_groups; g++) put_bar(c, &f, i, g);
    }
    char note[64];
    snprintf(note, sizeof note, "%zu of %zu rows are drawn", n, c->n);
    if (n < c->n) tn__frame_note(&f, note);
    return tn__frame_done(&f);
}
