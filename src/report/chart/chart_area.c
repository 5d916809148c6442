/* Layers over x that add up. The highest is drawn first, down to the axis, the lower ones over it: no seams between them.
 *
 * Of many samples those with the least and the most in a column of pixels are drawn, the same in all layers. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/svg.h"

#include <math.h>

enum { WIDTH = 720, HEIGHT = 420, LAYERS_MOST = 60, POINT_BYTES = 12 };

static double value_of(const tn_area *c, size_t layer, size_t i)
{
    const double v = c->y[layer * c->n + i];
    return isfinite(v) && v > 0 ? v : 0;
}

/* What the layers below `layers` add up to. */
static double sum_of(const tn_area *c, size_t layers, size_t i)
{
    double sum = 0;
    for (size_t k = 0; k < layers; k++) sum += value_of(c, k, i);
    return sum;
}

/* Of a column the first sample, the lowest and the highest, in their order. */
static size_t put_column(size_t first, size_t low, size_t high, size_t *chosen)
{
    size_t n = 0;
    const size_t early = low < high ? low : high, late = low < high ? high : low;
    chosen[n++] = first;
    if (early != chosen[n - 1]) chosen[n++] = early;
    if (late != chosen[n - 1]) chosen[n++] = late;
    return n;
}

static size_t choose(const tn_area *c, const tn_frame *f, const double *sum, double pixels, size_t *chosen)
{
    size_t n = 0, first = 0, low = 0, high = 0;
    long column = 0;
    bool open = false;
    double last = -INFINITY;
    for (size_t i = 0; i < c->n; i++) {
        if (!isfinite(c->x[i]) || c->x[i] < last) continue;
        last = c->x[i];
        const long here = lround(tn__frame_x(f, tn__plot_place(&f->x, last)) / pixels);
        if (open && here != column) n += put_column(first, low, high, chosen + n);
        if (!open || here != column) first = low = high = i;
        open = true, column = here;
        low = sum[i] < sum[low] ? i : low;
        high = sum[i] > sum[high] ? i : high;
    }
    return open ? n + put_column(first, low, high, chosen + n) : n;
}

static void put_layer(const tn_area *c, const tn_frame *f, size_t layer, size_t layers, const size_t *chosen, size_t n)
{
    const size_t upto = layer + 1 < layers ? layer + 1 : c->n_layers;
    fputs("<path", f->out);
    tn__svg_fill(f->out, layer, "");
    fputs(" d=\"", f->out);
    double x = f->left;
    for (size_t i = 0; i < n; i++) {
        const double y = tn__frame_y(f, tn__plot_place(&f->y, sum_of(c, upto, chosen[i])));
        x = tn__frame_x(f, tn__plot_place(&f->x, c->x[chosen[i]]));
        if (i == 0) tn__svg_number(f->out, 'M', n > 1 ? x : x - 3), tn__svg_number(f->out, ' ', f->bottom);
        if (i == 0 && n == 1) tn__svg_number(f->out, 'V', y), x += 3; /* one sample: a narrow bar */
        tn__svg_number(f->out, 'L', x);
        tn__svg_number(f->out, ' ', y);
    }
    tn__svg_number(f->out, 'V', f->bottom);
    fputs("z\">", f->out);
    if (c->names && c->names[layer]) tn__svg_hint(f->out, c->names[layer]);
    fputs("</path>\n", f->out);
}

static void set_ranges(const tn_area *c, const double *sum, tn_frame *f)
{
    double y[] = { 0, 0, c->limit };
    for (size_t i = 0; i < c->n; i++) y[1] = fmax(y[1], sum[i]);
    tn__plot_range(c->x, c->n, false, 0, &f->x);
    tn__plot_range(y, 3, false, 0.04, &f->y);
}

tn_status tn_chart_area(const tn_area *c, FILE *out)
{
    tn_status s = TN_OK;
    double *sum = NULL;
    size_t *chosen = NULL;
    if (!c->n || !c->n_layers) return tn_error(TN_USAGE, "an area chart needs layers and values");
    sum = tn_alloc(c->n * sizeof *sum);
    chosen = tn_alloc(3 * c->n * sizeof *chosen);
    if (!sum || !chosen) TN_TRY(TN_MEMORY);
    const double names = tn__names_height(c->names, c->n_layers, WIDTH);
    const size_t layers = c->n_layers < LAYERS_MOST ? c->n_layers : LAYERS_MOST;
    tn_frame f = { .out = out, .width = WIDTH, .right = WIDTH - 26, .top = 70 + names, .bottom = HEIGHT + names - 52 };
    for (size_t i = 0; i < c->n; i++) sum[i] = sum_of(c, c->n_layers, i);
    set_ranges(c, sum, &f);
    tn__frame_ticks(&f, true);
    const double bytes = 3 * POINT_BYTES * (double)layers * (f.right - f.left);
    const size_t n = choose(c, &f, sum, ceil(bytes / (TN_SVG_BYTES * 0.8)), chosen);
    if (!n) TN_FAIL(TN_USAGE, "an area chart needs x values that are finite");
    tn__svg_begin(out, WIDTH, HEIGHT + (int)names, c->title, "area", c->n_layers);
    tn__frame_axes(&f, c->x_label, c->y_label, true);
    tn__frame_names(&f, c->names, c->n_layers);
    for (size_t k = layers; k-- > 0;) put_layer(c, &f, k, layers, chosen, n);
    tn__frame_limit(&f, c->limit, c->limit_name);
    char note[64];
    snprintf(note, sizeof note, "the last %zu layers are drawn as one", c->n_layers - layers + 1);
    if (layers < c->n_layers) tn__frame_note(&f, note);
    TN_TRY(tn__frame_done(&f));
done:
    tn_free(sum), tn_free(chosen);
    return s;
}
