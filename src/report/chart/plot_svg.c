/* A plot as an SVG file: self-contained, small, and right on light and on dark pages (it brings both sets of colours).
 *
 * Names stand beside the ends of their lines, outside the field, each with a sample of its line; the picture grows with
 * their number. A series of any length costs at most one upright stroke per pixel column, from its lowest to its highest
 * value, which draws the same picture; columns get wider where series are so many that the file would be too large. */
#include "base/alloc.h"
#include "report/chart/plot_axis.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 720,
    HEIGHT = 400, /* with up to about twenty names */
    NAME_WIDTH = 200,
    NAMES_MOST = 60,
    SAMPLE = 22,
    POINTS_MOST = 60,  /* dots of a series */
    DOTTED_MOST = 40,  /* series with dots */
    SERIES_MOST = 300, /* lines: more are a grey area */
    COLUMN_BYTES = 16  /* of a stroke */
};

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

/* How points are put together to columns: by pixels where x ascends, else so many that follow each other. */
typedef struct grid {
    double pixels;
    size_t points; /* 0: by pixels */
} grid;

/* The points of one column on their way out. */
typedef struct column {
    bool open, pen_down, gap;
    long key;
    double x;
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

static void flush_column(const tn_frame *f, const grid *g, column *c)
{
    if (!c->open) return;
    c->open = false;
    if (c->points <= 2) {
        put_point(f, c, c->first.x, c->first.y);
        if (c->points == 2) put_point(f, c, c->last.x, c->last.y);
        return;
    }
    const point *a = c->low.i < c->high.i ? &c->low : &c->high, *b = a == &c->low ? &c->high : &c->low;
    if (g->points) {
        put_point(f, c, a->x, a->y);
        put_point(f, c, b->x, b->y);
        return;
    }
    put_point(f, c, c->x, a->y);
    tn__svg_number(f->out, 'V', b->y);
    c->written = 1; /* after V the next point needs its letter again */
}

static void end_line(const tn_frame *f, const grid *g, column *c)
{
    flush_column(f, g, c);
    if (c->pen_down && c->written == 1 && c->points == 1)
        fputs("h0", f->out); /* a lone point: its cap makes it a dot */
    c->pen_down = c->gap = false;
}

static void add_point(const tn_frame *f, const grid *g, column *c, point here)
{
    const long key = g->points ? (long)(here.i / g->points) : lround(here.x / g->pixels);
    if (c->open && c->key != key) {
        if (c->gap) end_line(f, g, c);
        else flush_column(f, g, c);
    }
    c->gap = false; /* one within a column cannot be seen */
    if (!c->open) {
        c->open = true, c->key = key, c->points = 0;
        c->x = (double)key * g->pixels;
        c->first = c->low = c->high = here;
    }
    if (here.y > c->low.y) c->low = here;
    if (here.y < c->high.y) c->high = here;
    c->last = here;
    c->points++;
}

static bool is_ascending(const tn_series *s)
{
    double last = -INFINITY;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->x[i])) continue;
        if (s->x[i] < last) return false;
        last = s->x[i];
    }
    return true;
}

static bool put_path(const tn_plot *p, const tn_frame *f, size_t k, double pixels, ending *e)
{
    const tn_series *s = &p->series[k];
    const size_t columns = (size_t)((f->right - f->left) / pixels);
    const grid g = { pixels, is_ascending(s) ? 0 : s->n / (columns / 2 + 1) + 1 };
    column c = { .open = false };
    bool any = false;
    for (size_t i = 0; i < s->n; i++) {
        double u, v;
        if (!tn__plot_point(&f->x, &f->y, s, i, &u, &v)) {
            c.gap = true;
            continue;
        }
        const double x = tn__frame_x(f, u), y = tn__frame_y(f, v);
        add_point(f, &g, &c, (point){ x, y, i });
        any = true;
        *e = (ending){ k, x, y, y };
    }
    end_line(f, &g, &c);
    return any;
}

/* The width of columns with which all lines go into a file of the size that charts may have. */
static double column_pixels(const tn_plot *p, const tn_frame *f, size_t count)
{
    const double room = TN_SVG_BYTES * 0.6;
    for (double pixels = 1;; pixels++) {
        double bytes = 0;
        for (size_t k = 0; k < count; k++)
            bytes += COLUMN_BYTES * fmin((double)p->series[k].n, (f->right - f->left) / pixels + 1);
        if (bytes < room || pixels > WIDTH / 8) return pixels;
    }
}

static int by_height(const void *a, const void *b)
{
    const ending *x = a, *y = b;
    if (x->y != y->y) return x->y < y->y ? -1 : 1;
    return x->series < y->series ? -1 : 1;
}

/* Moves names apart, as little as possible: of names that would touch, the middle stays where it was. Less i gaps, places must not
 * descend, and the nearest such places are means of those that do (isotonic regression). */
static void spread_labels(const tn_frame *f, ending *v, size_t n)
{
    double mean[NAMES_MOST], weight[NAMES_MOST];
    size_t groups = 0, i = 0;
    qsort(v, n, sizeof *v, by_height);
    for (size_t k = 0; k < n; k++) {
        mean[groups] = v[k].y - (double)k * TN_SVG_LABEL_GAP, weight[groups] = 1;
        for (groups++; groups > 1 && mean[groups - 2] > mean[groups - 1]; groups--) {
            double *m = &mean[groups - 2], *w = &weight[groups - 2];
            m[0] = (m[0] * w[0] + m[1] * w[1]) / (w[0] + w[1]), w[0] += w[1];
        }
    }
    const double last = f->bottom - TN_SVG_LABEL_GAP * ((double)n - 1);
    for (size_t g = 0; g < groups; g++)
        for (double w = 0; w < weight[g]; w++, i++)
            v[i].label = fmax(fmin(mean[g], last), f->top) + (double)i * TN_SVG_LABEL_GAP;
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

/* Rings lie above all lines. Returns how many there are. */
static size_t put_rings(const tn_plot *p, const tn_frame *f, size_t count, const size_t *style)
{
    size_t n = 0;
    for (size_t k = 0; k < count; k++) {
        const tn_series *s = &p->series[k];
        double u, v;
        char hint[240];
        if (style[k] == GREY || !tn__plot_ring(&f->x, &f->y, s, &u, &v)) continue;
        fprintf(f->out, "<circle class=\"s%zu k\" fill=\"none\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\">",
                style[k] % TN_SVG_STYLES, tn__frame_x(f, u), tn__frame_y(f, v));
        snprintf(hint, sizeof hint, "%.120s%s%.60s: %.6g at %.10g", s->name, p->ring ? ", " : "",
                 p->ring ? p->ring : "", s->y[s->ring - 1], s->x[s->ring - 1]);
        tn__svg_hint(f->out, hint);
        fputs("</circle>\n", f->out);
        n++;
    }
    return n;
}

/* Beside the end of its line: a sample of it, and its name. */
static void put_name(const tn_plot *p, const tn_frame *f, const ending *e, size_t style)
{
    const double y = e->label;
    fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/><line", style % TN_SVG_STYLES, e->x, e->y);
    put_style(f->out, style, " k");
    fprintf(f->out, " x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", f->right + 10, y, f->right + 10 + SAMPLE, y);
    tn__svg_label(f->out, "t", f->right + 16 + SAMPLE, y + 4, p->series[e->series].name,
                  tn__svg_fit(p->series[e->series].name, NAME_WIDTH));
}

/* Returns how many rings there are. */
static size_t put_series(const tn_plot *p, const tn_frame *f, size_t count, const size_t *style, ending *v)
{
    const double pixels = column_pixels(p, f, count);
    size_t n = 0, names = 0;
    for (size_t k = 0; k < count; k++) {
        const tn_series *s = &p->series[k];
        fputs("<path", f->out);
        put_style(f->out, style[k], s->faint ? " p" : "");
        fputs(" d=\"", f->out);
        ending e;
        const bool drawn = put_path(p, f, k, pixels, &e);
        n += drawn;
        if (drawn && !s->faint && names < NAMES_MOST) v[names++] = e;
        fputs("\"><title>", f->out);
        tn__svg_text(f->out, s->name, count > DOTTED_MOST ? 40 : 200);
        fputs("</title></path>\n", f->out);
        if (drawn && s->points && s->n <= POINTS_MOST && count <= DOTTED_MOST) put_dots(p, f, k, style[k]);
    }
    spread_labels(f, v, names);
    for (size_t i = 0; i < names; i++) put_name(p, f, &v[i], style[v[i].series]);
    if (!n)
        fprintf(f->out, "<text class=\"m c\" x=\"%.0f\" y=\"%.0f\">no finite values</text>\n", (f->left + f->right) / 2,
                (f->top + f->bottom) / 2);
    return put_rings(p, f, count, style);
}

/* What rings mean. The first names get a place, and the first series a line; a note says how many have none. */
static void put_rest(const tn_plot *p, const tn_frame *f, size_t names, size_t count, size_t rings)
{
    char text[160] = "", ring[80] = "";
    if (rings && p->ring) snprintf(ring, sizeof ring, "ring: %.60s", p->ring);
    const char *const and = ring[0] ? "; " : "";
    if (p->count > count) snprintf(text, sizeof text, "%s%s%zu of %zu lines are drawn", ring, and, count, p->count);
    else if (names > NAMES_MOST)
        snprintf(text, sizeof text, "%s%s%d of %zu names are shown", ring, and, NAMES_MOST, names);
    else snprintf(text, sizeof text, "%s", ring);
    if (*text) tn__frame_note(f, text);
}

tn_status tn_plot_svg(const tn_plot *p, FILE *out)
{
    tn_status s = TN_OK;
    ending *endings = NULL;
    size_t *style = NULL, names = 0;
    double widest = 0;
    TN_TRY(tn__plot_check(p));
    endings = tn_alloc(p->count * sizeof *endings);
    style = tn_alloc(p->count * sizeof *style);
    if (!endings || !style) TN_TRY(TN_MEMORY);
    choose_styles(p, style);
    for (size_t k = 0; k < p->count; k++) {
        if (p->series[k].faint) continue;
        widest = fmax(widest, tn__svg_width(p->series[k].name));
        names++;
    }
    const size_t count = p->count < SERIES_MOST ? p->count : SERIES_MOST;
    const double shown = (double)(names < NAMES_MOST ? names : NAMES_MOST), below = p->x_label ? 52 : 36;
    tn_frame f = { .out = out, .width = WIDTH, .top = 20 + (p->title ? 24 : 0) + (p->y_label ? 26 : 0) };
    f.bottom = fmax(HEIGHT - below, f.top + TN_SVG_LABEL_GAP * shown);
    f.right = WIDTH - 36 - SAMPLE - fmin(widest, NAME_WIDTH);
    tn__plot_ranges(p, &f.x, &f.y);
    tn__frame_ticks(&f, true);
    tn__svg_begin(out, WIDTH, (int)(f.bottom + below), p->title, p->series[0].name, p->count);
    tn__frame_axes(&f, p->x_label, p->y_label, true);
    const size_t rings = put_series(p, &f, count, style, endings);
    put_rest(p, &f, names, count, rings);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(endings);
    tn_free(style);
    return s;
}
