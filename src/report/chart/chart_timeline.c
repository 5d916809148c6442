/* Trials as bars over time, a lane per worker. Bars of one lane and state that touch within a pixel are drawn as
 * one. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, LANE = 18, LANES_MOST = 64 };

typedef struct bar {
    int lane, state;
    double x1, x2; /* pixels */
} bar;

static int by_lane(const void *a, const void *b)
{
    const bar *p = a, *q = b;
    if (p->lane != q->lane) return p->lane < q->lane ? -1 : 1;
    if (p->state != q->state) return p->state < q->state ? -1 : 1;
    return p->x1 < q->x1 ? -1 : p->x1 > q->x1;
}

static void put_bars(const tn_frame *f, bar *v, size_t n)
{
    qsort(v, n, sizeof *v, by_lane);
    for (size_t i = 0; i < n;) {
        bar b = v[i++];
        while (i < n && v[i].lane == b.lane && v[i].state == b.state && v[i].x1 - b.x1 < 1)
            b.x2 = fmax(b.x2, v[i++].x2);
        fprintf(f->out, "<rect class=\"n%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n",
                b.state % TN_SVG_STYLES, b.x1, f->top + (double)(b.lane * LANE), fmax(b.x2 - b.x1 - 0.5, 0.5),
                LANE - 4);
    }
}

tn_status tn_chart_timeline(const tn_timeline *c, FILE *out)
{
    double *times = tn_alloc(sizeof *times * (2 * c->n + 1));
    bar *v = tn_alloc(sizeof *v * (c->n + 1));
    int lanes = 0;
    size_t n = 0;
    tn_status s = TN_OK;
    if (!times || !v) TN_TRY(TN_MEMORY);
    for (size_t i = 0; i < c->n; i++) {
        times[2 * i] = c->begin[i], times[2 * i + 1] = c->end[i];
        if (c->lane[i] >= lanes && c->lane[i] < LANES_MOST) lanes = c->lane[i] + 1;
    }
    if (!lanes || !c->n_states) TN_FAIL(TN_USAGE, "a timeline needs trials that have started");
    const int top = 52 + (int)tn__names_height(c->states, c->n_states, WIDTH), height = top + lanes * LANE + 52;
    tn_frame f = { .out = out, .left = 76, .right = WIDTH - 26, .top = top, .bottom = height - 52 };
    tn__plot_axis_of(times, 2 * c->n, false, 0, 9, &f.x);
    for (size_t i = 0; i < c->n; i++) {
        const double a = tn__plot_place(&f.x, c->begin[i]), b = tn__plot_place(&f.x, c->end[i]);
        if (!isfinite(a) || !isfinite(b) || c->lane[i] < 0 || c->lane[i] >= lanes || c->state[i] < 0) continue;
        v[n++] = (bar){ c->lane[i], c->state[i], tn__frame_x(&f, a), tn__frame_x(&f, b) };
    }
    tn__svg_begin(out, WIDTH, height, c->title, "timeline", c->n_states);
    tn__frame_axes(&f, c->x_label, NULL, false);
    tn__frame_names(&f, c->states, c->n_states);
    for (int i = 0; i < lanes; i++) {
        char name[32];
        snprintf(name, sizeof name, "worker %d", i + 1);
        tn__svg_label(out, "m e", f.left - 8, f.top + (double)(i * LANE) + 11, name, 12);
    }
    put_bars(&f, v, n);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(times), tn_free(v);
    return s;
}
