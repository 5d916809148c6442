/* A scatter of trials over two objectives; the Pareto front of each group is drawn large and joined. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/spots.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 420, CELL = 2, DOTS_MOST = 11000, FRONT_MOST = 800, DIAMONDS_MOST = 400 };

static int by_x(const void *a, const void *b)
{
    const tn_spot *p = a, *q = b;
    if (p->group != q->group) return p->group < q->group ? -1 : 1;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return p->y < q->y ? -1 : p->y > q->y;
}

typedef enum kind { OTHER, FRONT, PUBLISHED } kind;

static kind kind_of(const tn_scatter *c, size_t i)
{
    return c->published && c->published[i] ? PUBLISHED : c->front && c->front[i] ? FRONT : OTHER;
}

/* The points of a kind that have a place. */
static size_t place(const tn_scatter *c, const tn_frame *f, kind which, tn_spot *v)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double x = tn__plot_place(&f->x, c->x[i]), y = tn__plot_place(&f->y, c->y[i]);
        const int group = c->group ? c->group[i] : 0;
        if (kind_of(c, i) != which || !isfinite(x) || !isfinite(y) || group < 0 || (size_t)group >= c->n_groups)
            continue;
        v[n++] = (tn_spot){ .x = tn__frame_x(f, x), .y = tn__frame_y(f, y), .group = (size_t)group, .i = i };
    }
    return n;
}

static void put_others(const tn_frame *f, tn_spot *v, size_t n)
{
    char class[32];
    n = tn__spots_thin(v, n, CELL, DOTS_MOST);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && v[end].group == v[i].group;) end++;
        snprintf(class, sizeof class, "s%zu p", v[i].group % TN_SVG_STYLES);
        tn__spots_put(f->out, v + i, end - i, class, 5);
    }
}

static void put_front(const tn_frame *f, tn_spot *v, size_t n)
{
    n = tn__spots_thin(v, n, CELL, FRONT_MOST);
    qsort(v, n, sizeof *v, by_x);
    for (size_t i = 0; i < n; i++) {
        const bool starts = i == 0 || v[i - 1].group != v[i].group, ends = i + 1 == n || v[i + 1].group != v[i].group;
        if (starts) {
            fprintf(f->out, "<path class=\"s%zu\"", v[i].group % TN_SVG_STYLES);
            tn__svg_dash(f->out, v[i].group);
            fputs(" d=\"", f->out);
        }
        tn__svg_number(f->out, starts ? 'M' : 'L', v[i].x);
        tn__svg_number(f->out, ' ', v[i].y);
        if (ends) fputs("\"/>\n", f->out);
    }
    for (size_t i = 0; i < n; i++)
        fprintf(f->out, "<circle class=\"n%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", v[i].group % TN_SVG_STYLES,
                v[i].x, v[i].y);
}

static void put_diamond(FILE *out, size_t group, double x, double y)
{
    enum { HALF = 6 };
    fprintf(out, "<path class=\"s%zu\" d=\"M%.1f %.1fl%d %dl%d %dl%d %dz\"/>\n", group % TN_SVG_STYLES, x - HALF, y,
            HALF, -HALF, HALF, HALF, -HALF, HALF);
}

/* On top of all, with what the sign means below the axis. */
static void put_published(const tn_frame *f, tn_spot *v, size_t n)
{
    n = tn__spots_thin(v, n, CELL, DIAMONDS_MOST);
    for (size_t i = 0; i < n; i++) put_diamond(f->out, v[i].group, v[i].x, v[i].y);
    if (!n) return;
    put_diamond(f->out, 0, f->left + 6, f->bottom + 32);
    tn__svg_label(f->out, "m", f->left + 18, f->bottom + 36, "published", 24);
}

tn_status tn_chart_scatter(const tn_scatter *c, FILE *out)
{
    if (!c->n || !c->n_groups) return tn_error(TN_USAGE, "a scatter needs points and groups");
    const double names = c->n_groups > 1 ? tn__names_height(c->groups, c->n_groups, WIDTH) : 0;
    const int height = HEIGHT + (int)names;
    tn_frame f = { .out = out, .width = WIDTH, .right = WIDTH - 26, .top = 70 + names, .bottom = height - 52 };
    tn_spot *v = tn_alloc(sizeof *v * c->n);
    if (!v) return TN_MEMORY;
    tn__plot_range(c->x, c->n, c->log_x, 0.03, &f.x);
    tn__plot_range(c->y, c->n, c->log_y, 0.05, &f.y);
    tn__frame_ticks(&f, true);
    tn__svg_begin(out, WIDTH, height, c->title, "scatter", c->n_groups);
    tn__frame_axes(&f, c->x_label, c->y_label, true);
    if (names > 0) tn__frame_names(&f, c->groups, c->n_groups);
    put_others(&f, v, place(c, &f, OTHER, v));
    put_front(&f, v, place(c, &f, FRONT, v));
    put_published(&f, v, place(c, &f, PUBLISHED, v));
    tn_free(v);
    return tn__frame_done(&f);
}
