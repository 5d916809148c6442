/* A plot as an SVG file: self-contained, small, and right on light and on dark pages (it brings both sets of colours).
 *
 * Names stand beside the ends of their lines, outside the field, each with a sample of its line. A series of any length costs at most one upright
 * stroke per pixel column, from its lowest to its highest value, which draws the same picture. */
#include "base/alloc.h"
#include "report/chart/plot_axis.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 400, NAME_MAX_COLUMNS = 26, SAMPLE = 22, POINTS_MOST = 60 };

typedef struct ending { /* where the name of a series goes */
    size_t series;
    double x, y;  /* of the last point, in pixels */
    double label; /* height of the name, moved so that names do not overlap */
} ending;

static const size_t GREY = SIZE_MAX;

/* Each series' colour and dash: one of its own, that of the series it is like, or none. */
static void choose_styles(const tn_plot *p, size_t *style)
{
    size_t n = 0;
    for (size_t k = 0; k < p->count; k++) {
        bool own = !p->series[k].faint;
        for (size_t i = 0; i < p->count && !own; i++) own = p->series[i].like == k + 1;
        style[k] = p->series[k].like ? 0 : own ? n++ : GREY;
    }
    for (size_t k = 0; k < p->count; k++)
        if (p->series[k].like) style[k] = style[p->series[k].like - 1];
}

static void put_style(FILE *out, size_t style, const char *more)
{
    if (style == GREY) fprintf(out, " class=\"a%s\"", more);
    else {
        fprintf(out, " class=\"s%zu%s\"", style % TN_SVG_STYLES, more);
        tn__svg_dash(out, style);
    }
}

typedef struct point {
    double x, y;
    size_t i; /* its place in the series */
} point;

/* The points of one pixel column on their way out. */
typedef struct column {
    bool open, pen_down;
    long pixel;
    size_t points;
    point first, low, high, last;
    size_t written; /* points of the current line */
} column;

static void put_point(const tn_frame *f, column *c, double x, double y)
{
    tn__svg_number(f->out, c->pen_down ? (c->written == 1 ? 'L' : ' ') : 'M', x);
    tn__svg_number(f->out, ' ', y);
    c->written = c->pen_down ? c->written + 1 : 1;
    c->pen_down = true;
}

static void flush_column(const tn_frame *f, column *c)
{
    if (!c->open) return;
    c->open = false;
    if (c->points <= 2) {
        put_point(f, c, c->first.x, c->first.y);
        if (c->points == 2) put_point(f, c, c->last.x, c->last.y);
        return;
    }
    const bool low_first = c->low.i < c->high.i;
    put_point(f, c, (double)c->pixel, low_first ? c->low.y : c->high.y);
    tn__svg_number(f->out, 'V', low_first ? c->high.y : c->low.y);
    c->written = 1; /* after V the next point needs its letter again */
}

static void end_line(const tn_frame *f, column *c)
{
    flush_column(f, c);
    if (c->pen_down && c->written == 1 && c->points == 1)
        fputs("h0", f->out); /* a lone point: its cap makes it a dot */
    c->pen_down = false;
}

static bool put_path(const tn_plot *p, const tn_frame *f, size_t k, ending *e)
{
    const tn_series *s = &p->series[k];
    column c = { .open = false };
    bool any = false;
    for (size_t i = 0; i < s->n; i++) {
        double u, v;
        if (!tn__plot_point(&f->x, &f->y, s, i, &u, &v)) {
            end_line(f, &c);
            continue;
        }
        const double x = tn__frame_x(f, u), y = tn__frame_y(f, v);
        const long pixel = lround(x);
        if (c.open && c.pixel != pixel) flush_column(f, &c);
        const point here = { x, y, i };
        if (!c.open) {
            c.open = true, c.pixel = pixel, c.points = 0;
            c.first = c.low = c.high = here;
        }
        if (y > c.low.y) c.low = here;
        if (y < c.high.y) c.high = here;
        c.last = here;
        c.points++;
        any = true;
        *e = (ending){ k, x, y, y };
    }
    end_line(f, &c);
    return any;
}

static int by_height(const void *a, const void *b)
{
    const ending *x = a, *y = b;
    if (x->y != y->y) return x->y < y->y ? -1 : 1;
    return x->series < y->series ? -1 : 1;
}

/* Moves names apart, each pair by the same amount, and back into the field; a few rounds settle any number of them. */
static void spread_labels(const tn_frame *f, ending *v, size_t n)
{
    qsort(v, n, sizeof *v, by_height);
    const double room = f->bottom - f->top, most = n > 1 ? room / (double)(n - 1) : room;
    const double gap = most < TN_SVG_LABEL_GAP ? most : TN_SVG_LABEL_GAP;
    for (int round = 0; round < 100; round++) {
        for (size_t i = 1; i < n; i++) {
            const double overlap = gap - (v[i].label - v[i - 1].label);
            if (overlap <= 0) continue;
            v[i - 1].label -= overlap / 2;
            v[i].label += overlap / 2;
        }
        for (size_t i = 0; i < n; i++) v[i].label = fmin(fmax(v[i].label, f->top), f->bottom);
    }
}

/* A dot at each value: a line of no length with a round end, so that a series' dots are one path. */
static void put_dots(const tn_plot *p, const tn_frame *f, size_t k, size_t style)
{
    const tn_series *s = &p->series[k];
    fprintf(f->out, "<path class=\"s%zu\" style=\"stroke-width:5\" d=\"", style % TN_SVG_STYLES);
    for (size_t i = 0; i < s->n; i++) {
        double u, v;
        if (!tn__plot_point(&f->x, &f->y, s, i, &u, &v)) continue;
        tn__svg_number(f->out, 'M', tn__frame_x(f, u));
        tn__svg_number(f->out, ' ', tn__frame_y(f, v));
        fputs("h0", f->out);
    }
    fputs("\"/>\n", f->out);
}

/* Beside the end of its line: a sample of it, and its name. */
static void put_name(const tn_plot *p, const tn_frame *f, const ending *e, size_t style)
{
    const double y = e->label;
    fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/><line", style % TN_SVG_STYLES, e->x, e->y);
    put_style(f->out, style, " k");
    fprintf(f->out, " x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", f->right + 10, y, f->right + 10 + SAMPLE, y);
    tn__svg_label(f->out, "t", f->right + 16 + SAMPLE, y + 4, p->series[e->series].name, NAME_MAX_COLUMNS);
}

static void put_series(const tn_plot *p, const tn_frame *f, const size_t *style, ending *v)
{
    size_t n = 0;
    bool any = false;
    for (size_t k = 0; k < p->count; k++) {
        const tn_series *s = &p->series[k];
        fputs("<path", f->out);
        put_style(f->out, style[k], s->faint ? " p" : "");
        fputs(" d=\"", f->out);
        ending e;
        const bool drawn = put_path(p, f, k, &e);
        any = any || drawn;
        if (drawn && !s->faint) v[n++] = e;
        fputs("\"><title>", f->out);
        tn__svg_text(f->out, s->name, 200);
        fputs("</title></path>\n", f->out);
        if (drawn && s->points && s->n <= POINTS_MOST) put_dots(p, f, k, style[k]);
    }
    spread_labels(f, v, n);
    for (size_t i = 0; i < n; i++) put_name(p, f, &v[i], style[v[i].series]);
    if (!any)
        fprintf(f->out, "<text class=\"m c\" x=\"%.0f\" y=\"%.0f\">no finite values</text>\n", (f->left + f->right) / 2,
                (f->top + f->bottom) / 2);
}

tn_status tn_plot_svg(const tn_plot *p, FILE *out)
{
    tn_status s = TN_OK;
    ending *endings = NULL;
    size_t *style = NULL;
    tn_frame f = { .out = out, .bottom = HEIGHT - (p->x_label ? 52 : 36) };
    size_t longest = 0, labels = 0;
    TN_TRY(tn__plot_check(p));
    endings = tn_alloc(p->count * sizeof *endings);
    style = tn_alloc(p->count * sizeof *style);
    if (!endings || !style) TN_TRY(TN_MEMORY);
    choose_styles(p, style);
    tn__plot_axes(p, 9, 8, &f.x, &f.y);
    for (size_t k = 0; k < p->count; k++) {
        const size_t n = p->series[k].faint ? 0 : tn__plot_columns(p->series[k].name);
        if (n > longest) longest = n;
    }
    if (longest > NAME_MAX_COLUMNS) longest = NAME_MAX_COLUMNS;
    for (int i = 0; i < f.y.ticks; i++)
        if (strlen(f.y.label[i]) > labels) labels = strlen(f.y.label[i]);
    f.top = 20 + (p->title ? 24 : 0) + (p->y_label ? 26 : 0);
    f.left = 28 + 7.4 * (double)labels;
    f.right = WIDTH - 36 - SAMPLE - 7.4 * (double)longest;
    tn__svg_begin(out, WIDTH, HEIGHT, p->title, p->series[0].name, p->count);
    tn__frame_axes(&f, p->x_label, p->y_label, true);
    put_series(p, &f, style, endings);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(endings);
    tn_free(style);
    return s;
}
