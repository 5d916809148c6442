/* Spans as bars over time, a lane per worker or track. Spans of one lane and state that begin within a pixel are drawn as
 * one, within more where the file would be too large. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, LANE = 18, LANES_MOST = 64, LANE_WIDTH = 160, SPANS_MOST = 2200, NAMED_MOST = 900 };

typedef struct bar {
    int lane, state;
    double x1, x2; /* pixels */
    const char *name;
} bar;

static int by_lane(const void *a, const void *b)
{
    const bar *p = a, *q = b;
    if (p->lane != q->lane) return p->lane < q->lane ? -1 : 1;
    if (p->state != q->state) return p->state < q->state ? -1 : 1;
    if (p->x1 != q->x1) return p->x1 < q->x1 ? -1 : 1;
    return p->x2 < q->x2 ? -1 : p->x2 > q->x2;
}

/* Joins spans that begin within so many pixels. A joined one has no name. Returns how many are left. */
static size_t join(bar *v, size_t n, double pixels)
{
    size_t kept = 0;
    for (size_t i = 0; i < n;) {
        bar b = v[i++];
        for (; i < n && v[i].lane == b.lane && v[i].state == b.state && v[i].x1 - b.x1 < pixels; i++)
            b.x2 = fmax(b.x2, v[i].x2), b.name = NULL;
        v[kept++] = b;
    }
    return kept;
}

static void put_bars(const tn_frame *f, bar *v, size_t n, bool named)
{
    const size_t most = named ? NAMED_MOST : SPANS_MOST;
    qsort(v, n, sizeof *v, by_lane);
    double pixels = 1;
    for (n = join(v, n, pixels); n > most && pixels < WIDTH; pixels *= 1.5) n = join(v, n, pixels);
    for (size_t i = 0; i < n && i < most; i++) {
        const bar *b = &v[i];
        const double y = f->top + (double)(b->lane * LANE), width = fmax(b->x2 - b->x1 - 0.5, 0.5);
        fputs("<rect", f->out);
        tn__svg_fill(f->out, (size_t)b->state, "");
        tn__svg_rect(f->out, b->x1, y, width, LANE - 4);
        fputs(b->name ? ">" : "/>\n", f->out);
        if (!b->name) continue;
        tn__svg_hint(f->out, b->name);
        fputs("</rect>\n", f->out);
        if (tn__svg_width(b->name) + 6 <= width) tn__svg_label(f->out, "i c", b->x1 + width / 2, y + 11, b->name, 80);
    }
}

static void put_lanes(const tn_timeline *c, const tn_frame *f, int lanes)
{
    for (int i = 0; i < lanes; i++) {
        char name[32];
        snprintf(name, sizeof name, "worker %d", i + 1);
        const char *const text = !c->lanes ? name : (size_t)i < c->n_lanes && c->lanes[i] ? c->lanes[i] : "";
        tn__svg_label(f->out, "m e", f->left - 8, f->top + (double)(i * LANE) + 11, text,
                      tn__svg_fit(text, LANE_WIDTH));
    }
}

/* The spans that have a place, in pixels. */
static size_t take(const tn_timeline *c, const tn_frame *f, int lanes, bar *v)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double a = tn__plot_place(&f->x, c->begin[i]), b = tn__plot_place(&f->x, c->end[i]);
        if (!isfinite(a) || !isfinite(b) || c->lane[i] < 0 || c->lane[i] >= lanes || c->state[i] < 0 ||
            (size_t)c->state[i] >= c->n_states)
            continue;
        v[n++] = (bar){ c->lane[i], c->state[i], tn__frame_x(f, a), tn__frame_x(f, b), c->names ? c->names[i] : NULL };
    }
    return n;
}

tn_status tn_chart_timeline(const tn_timeline *c, FILE *out)
{
    double *times = tn_alloc(sizeof *times * (2 * c->n + 1)), widest = 0;
    bar *v = tn_alloc(sizeof *v * (c->n + 1));
    int lanes = 0, all = 0;
    tn_status s = TN_OK;
    if (!times || !v) TN_TRY(TN_MEMORY);
    for (size_t i = 0; i < c->n; i++) {
        times[2 * i] = c->begin[i], times[2 * i + 1] = c->end[i];
        if (c->lane[i] >= all) all = c->lane[i] + 1;
    }
    lanes = all < LANES_MOST ? all : LANES_MOST;
    if (!lanes || !c->n_states) TN_FAIL(TN_USAGE, "a timeline needs trials that have started");
    for (size_t i = 0; c->lanes && i < c->n_lanes && i < LANES_MOST; i++)
        widest = fmax(widest, c->lanes[i] ? tn__svg_width(c->lanes[i]) : 0);
    const int top = 52 + (int)tn__names_height(c->states, c->n_states, WIDTH), height = top + lanes * LANE + 52;
    tn_frame f = { .out = out, .width = WIDTH, .right = WIDTH - 26, .top = top, .bottom = height - 52 };
    f.left = 28 + (c->lanes ? fmin(widest, LANE_WIDTH) : tn__svg_width("worker 00"));
    tn__plot_range(times, 2 * c->n, false, 0, &f.x);
    tn__frame_ticks(&f, false);
    tn__svg_begin(out, WIDTH, height, c->title, "timeline", c->n_states);
    tn__frame_axes(&f, c->x_label, NULL, false);
    tn__frame_names(&f, c->states, c->n_states);
    put_lanes(c, &f, lanes);
    put_bars(&f, v, take(c, &f, lanes, v), c->names != NULL);
    char note[64];
    snprintf(note, sizeof note, "%d of %d tracks are drawn", lanes, all);
    if (lanes < all) tn__frame_note(&f, note);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(times), tn_free(v);
    return s;
}
