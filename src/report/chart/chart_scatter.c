/* A scatter of trials over two objectives; the Pareto front of each group is drawn large and joined. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 420, CELL = 2 }; /* points in one cell of so many pixels are one */

typedef struct spot {
    double x, y; /* pixels */
    int group;
} spot;

static int by_x(const void *a, const void *b)
{
    const spot *p = a, *q = b;
    if (p->group != q->group) return p->group < q->group ? -1 : 1;
    if (p->x != q->x) return p->x < q->x ? -1 : 1;
    return p->y < q->y ? -1 : p->y > q->y;
}

static bool place(const tn_scatter *c, const tn_frame *f, size_t i, spot *out)
{
    const double u = tn__plot_place(&f->x, c->x[i]), v = tn__plot_place(&f->y, c->y[i]);
    *out = (spot){ tn__frame_x(f, u), tn__frame_y(f, v), c->group ? c->group[i] : 0 };
    return isfinite(u) && isfinite(v) && out->group >= 0 && (size_t)out->group < c->n_groups;
}

/* All but the front: one small dot for each cell and group that has any. A dot is a line of no length with a round
 * end, so that a group is one path. */
static void put_others(const tn_scatter *c, const tn_frame *f, int group, unsigned char *seen)
{
    const unsigned char bit = (unsigned char)(1u << (group % TN_SVG_STYLES));
    fprintf(f->out, "<path class=\"s%d p\" style=\"stroke-width:5\" d=\"", group % TN_SVG_STYLES);
    for (size_t i = 0; i < c->n; i++) {
        spot s;
        if ((c->front && c->front[i]) || (c->published && c->published[i]) || !place(c, f, i, &s) || s.group != group)
            continue;
        const long cx = lround(s.x / CELL), cy = lround(s.y / CELL);
        unsigned char *cell = &seen[cy * (WIDTH / CELL + 1) + cx];
        if (*cell & bit) continue;
        *cell |= bit;
        fprintf(f->out, "M%ld %ldh0", cx * CELL, cy * CELL);
    }
    fputs("\"/>\n", f->out);
}

static void put_front(const tn_frame *f, spot *v, size_t n)
{
    qsort(v, n, sizeof *v, by_x);
    for (size_t i = 0; i < n; i++) {
        const bool starts = i == 0 || v[i - 1].group != v[i].group, ends = i + 1 == n || v[i + 1].group != v[i].group;
        if (starts) {
            fprintf(f->out, "<path class=\"s%d\"", v[i].group % TN_SVG_STYLES);
            tn__svg_dash(f->out, (size_t)v[i].group);
            fputs(" d=\"", f->out);
        }
        tn__svg_number(f->out, starts ? 'M' : 'L', v[i].x);
        tn__svg_number(f->out, ' ', v[i].y);
        if (ends) fputs("\"/>\n", f->out);
    }
    for (size_t i = 0; i < n; i++)
        fprintf(f->out, "<circle class=\"n%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", v[i].group % TN_SVG_STYLES, v[i].x,
                v[i].y);
}

static void put_diamond(FILE *out, int group, double x, double y)
{
    enum { HALF = 6 };
    fprintf(out, "<path class=\"s%d\" d=\"M%.1f %.1fl%d %dl%d %dl%d %dz\"/>\n", group % TN_SVG_STYLES, x - HALF, y,
            HALF, -HALF, HALF, HALF, -HALF, HALF);
}

/* On top of all, with what the sign means below the axis. */
static void put_published(const tn_scatter *c, const tn_frame *f)
{
    size_t n = 0;
    for (size_t i = 0; c->published && i < c->n; i++) {
        spot s;
        if (!c->published[i] || !place(c, f, i, &s)) continue;
        put_diamond(f->out, s.group, s.x, s.y);
        n++;
    }
    if (!n) return;
    put_diamond(f->out, 0, f->left + 6, f->bottom + 32);
    tn__svg_label(f->out, "m", f->left + 18, f->bottom + 36, "published", 24);
}

tn_status tn_chart_scatter(const tn_scatter *c, FILE *out)
{
    if (!c->n || !c->n_groups) return tn_error(TN_USAGE, "a scatter needs points and groups");
    const double names = c->n_groups > 1 ? tn__names_height(c->groups, c->n_groups, WIDTH) : 0;
    const int height = HEIGHT + (int)names;
    tn_frame f = { .out = out, .left = 76, .right = WIDTH - 26, .top = 70 + names, .bottom = height - 52 };
    const size_t cells = (size_t)(WIDTH / CELL + 1) * (size_t)(height / CELL + 1);
    unsigned char *seen = tn_alloc(cells);
    spot *front = tn_alloc(sizeof *front * c->n);
    size_t n = 0;
    if (!seen || !front) {
        tn_free(seen), tn_free(front);
        return TN_MEMORY;
    }
    tn__plot_axis_of(c->x, c->n, c->log_x, 0.03, 9, &f.x);
    tn__plot_axis_of(c->y, c->n, c->log_y, 0.05, 8, &f.y);
    for (size_t i = 0; i < c->n; i++)
        if (c->front && c->front[i] && !(c->published && c->published[i]) && place(c, &f, i, &front[n])) n++;
    tn__svg_begin(out, WIDTH, height, c->title, "scatter", c->n_groups);
    tn__frame_axes(&f, c->x_label, c->y_label, true);
    if (names > 0) tn__frame_names(&f, c->groups, c->n_groups);
    for (size_t g = 0; g < c->n_groups; g++) put_others(c, &f, (int)g, seen);
    put_front(&f, front, n);
    put_published(c, &f);
    tn_free(seen), tn_free(front);
    return tn__frame_done(&f);
}
