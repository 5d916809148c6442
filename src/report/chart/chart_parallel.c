/* Parallel coordinates: good trials in colour and on top, the others pale. Of many trials only the best are
 * drawn: more would be a grey area and megabytes. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>

enum { AXIS_GAP = 110, HEIGHT = 400, MOST = 2000, CHOICES_MOST = 18, POINT_BYTES = 13 };

typedef struct line {
    double rank;
    size_t i;
} line;

static int worst_first(const void *a, const void *b)
{
    const line *p = a, *q = b;
    if (p->rank != q->rank) return p->rank > q->rank ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

static double x_of(const tn_frame *f, const tn_parallel *c, size_t axis)
{
    return c->n_axes > 1 ? tn__frame_x(f, (double)axis / (double)(c->n_axes - 1)) : (f->left + f->right) / 2;
}

static void put_axis(const tn_frame *f, const tn_parallel *c, size_t k)
{
    const tn_parallel_axis *a = &c->axes[k];
    const double x = x_of(f, c, k);
    fprintf(f->out, "<line class=\"a\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>\n", x, x, f->top, f->bottom);
    tn__svg_label(f->out, "t c", x, f->top - 12, a->name, 16);
    for (size_t i = 0; a->choices && i < a->n_choices && i < CHOICES_MOST; i++)
        tn__svg_label(f->out, "m", x + 5, tn__frame_y(f, ((double)i + 0.5) / (double)a->n_choices) + 4, a->choices[i],
                      12);
    if (a->choices) return;
    if (a->low) tn__svg_label(f->out, "m c", x, f->bottom + 16, a->low, 14);
    if (a->high) tn__svg_label(f->out, "m c", x, f->top - 27, a->high, 14);
}

static void put_trial(const tn_frame *f, const tn_parallel *c, const line *l)
{
    bool pen = false;
    fprintf(f->out, "<path class=\"s%d%s\" d=\"", l->rank <= 0.1 ? 1 : 0, l->rank <= 0.1 ? "" : " p");
    for (size_t k = 0; k < c->n_axes; k++) {
        const double v = c->place[l->i * c->n_axes + k];
        if (!isfinite(v)) continue;
        tn__svg_number(f->out, pen ? 'L' : 'M', x_of(f, c, k));
        tn__svg_number(f->out, ' ', tn__frame_y(f, fmin(fmax(v, 0), 1)));
        pen = true;
    }
    fputs("\"/>\n", f->out);
}

tn_status tn_chart_parallel(const tn_parallel *c, FILE *out)
{
    if (!c->n || !c->n_axes) return tn_error(TN_USAGE, "parallel coordinates need trials and dimensions");
    const int width = 120 + AXIS_GAP * (int)(c->n_axes > 4 ? c->n_axes - 1 : 4);
    const tn_frame f = { .out = out, .left = 60, .right = width - 60, .top = 96, .bottom = HEIGHT - 36 };
    line *v = tn_alloc(sizeof *v * c->n);
    size_t n = 0;
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->rank[i])) v[n++] = (line){ c->rank[i], i };
    qsort(v, n, sizeof *v, worst_first);
    tn__svg_begin(out, width, HEIGHT, c->title, "parallel coordinates", 2);
    const size_t room = (size_t)(TN_SVG_BYTES * 3 / 4) / (POINT_BYTES * c->n_axes + 30),
                 most = room < MOST ? room : MOST;
    for (size_t i = n > most ? n - most : 0; i < n; i++) put_trial(&f, c, &v[i]);
    for (size_t k = 0; k < c->n_axes; k++) put_axis(&f, c, k);
    tn_free(v);
    return tn__frame_done(&f);
}
