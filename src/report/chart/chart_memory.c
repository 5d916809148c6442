/* Blocks of memory as rectangles, time to the right, addresses up. Where they are very many the largest are drawn, and a
 * note says how many. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 460, BLOCKS_MOST = 2200, NAMED_MOST = 900, NOTE = 160 };

static const double FAR = 3; /* times the highest block: a line there would press the blocks together */

typedef struct block {
    double x, y, width, height; /* pixels */
    size_t i;
} block;

static int largest_first(const void *a, const void *b)
{
    const block *p = a, *q = b;
    const double area = p->width * p->height, other = q->width * q->height;
    if (area != other) return area > other ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

/* The blocks that have a place; nothing is thinner than can be seen. */
static size_t take(const tn_memory_map *c, const tn_frame *f, block *v)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double x1 = tn__frame_x(f, tn__plot_place(&f->x, c->begin[i])),
                     x2 = tn__frame_x(f, tn__plot_place(&f->x, c->end[i])),
                     y1 = tn__frame_y(f, tn__plot_place(&f->y, c->high[i])),
                     y2 = tn__frame_y(f, tn__plot_place(&f->y, c->low[i]));
        if (!isfinite(x1 + x2 + y1 + y2) || x2 < x1 || y2 < y1) continue;
        v[n++] = (block){ x1, y1, fmax(x2 - x1, 0.4), fmax(y2 - y1, 0.4), i };
    }
    qsort(v, n, sizeof *v, largest_first);
    return n;
}

static void put_block(const tn_memory_map *c, const tn_frame *f, const block *b)
{
    const char *const name = c->names ? c->names[b->i] : NULL;
    const bool rim = b->width > 3 && b->height > 3; /* a thin one would be all rim */
    fputs("<rect", f->out);
    tn__svg_fill(f->out, c->kind && c->kind[b->i] > 0 ? (size_t)c->kind[b->i] : 0, rim ? " w" : "");
    tn__svg_rect(f->out, b->x, b->y, b->width, b->height);
    fputs(name ? ">" : "/>\n", f->out);
    if (!name) return;
    tn__svg_hint(f->out, name);
    fputs("</rect>\n", f->out);
    if (b->height >= 15 && tn__svg_width(name) + 6 <= b->width)
        tn__svg_label(f->out, "i c", b->x + b->width / 2, b->y + b->height / 2 + 4, name, 80);
}

static bool is_far(const tn_memory_map *c)
{
    double top = 0;
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->high[i])) top = fmax(top, c->high[i]);
    return c->limit > FAR * top;
}

/* What was left out. */
static void put_note(const tn_memory_map *c, const tn_frame *f, size_t most, size_t n)
{
    char note[NOTE] = "";
    int k = 0;
    if (n > most) k = snprintf(note, NOTE, "the largest %zu of %zu blocks", most, n);
    if (c->limit_name && is_far(c) && k >= 0)
        snprintf(note + k, NOTE - (size_t)k, "%s%.100s, beyond this axis", k ? "; " : "", c->limit_name);
    if (note[0]) tn__frame_note(f, note);
}

static tn_status set_ranges(const tn_memory_map *c, tn_frame *f)
{
    double *v = tn_alloc(sizeof *v * (2 * c->n + 1));
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < c->n; i++) v[2 * i] = c->begin[i], v[2 * i + 1] = c->end[i];
    tn__plot_range(v, 2 * c->n, false, 0, &f->x);
    for (size_t i = 0; i < c->n; i++) v[2 * i] = c->low[i], v[2 * i + 1] = c->high[i];
    v[2 * c->n] = c->limit > 0 && !is_far(c) ? c->limit : NAN;
    tn__plot_range(v, 2 * c->n + 1, false, 0.04, &f->y);
    tn_free(v);
    return TN_OK;
}

tn_status tn_chart_memory(const tn_memory_map *c, FILE *out)
{
    if (!c->n) return tn_error(TN_USAGE, "a memory map needs blocks");
    tn_status s = TN_OK;
    block *v = tn_alloc(sizeof *v * c->n);
    const size_t kinds = c->kind ? TN_SVG_STYLES : 1, most = c->names ? NAMED_MOST : BLOCKS_MOST;
    const double names = c->kinds ? tn__names_height(c->kinds, c->n_kinds, WIDTH) : 0;
    tn_frame f = { .out = out, .width = WIDTH, .right = WIDTH - 26, .top = 70 + names, .bottom = HEIGHT + names - 52 };
    if (!v) TN_TRY(TN_MEMORY);
    TN_TRY(set_ranges(c, &f));
    tn__frame_ticks(&f, true);
    const size_t n = take(c, &f, v);
    tn__svg_begin(out, WIDTH, HEIGHT + (int)names, c->title, "memory map", kinds);
    tn__frame_axes(&f, c->x_label, c->y_label, true);
    tn__frame_names(&f, c->kinds, c->n_kinds);
    for (size_t i = 0; i < n && i < most; i++) put_block(c, &f, &v[i]);
    tn__frame_limit(&f, c->limit, c->limit_name);
    put_note(c, &f, most, n);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(v);
    return s;
}
