/* Points below the ceilings of a machine, both axes logarithmic, labelled where labels have room. */
#include "base/alloc.h"
#include "report/chart/chart.h"
#include "report/chart/spots.h"

#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 720,
    HEIGHT = 460,
    POINTS_MOST = 700,
    LABELS_MOST = 60,
    NAME_WIDTH = 190,
    LABEL_HEIGHT = 14,
    SLOPE_BOXES = 8
};

typedef struct box {
    double x1, y1, x2, y2; /* pixels */
} box;

typedef struct line {
    double x1, y1, x2, y2; /* pixels, from the left */
} line;

typedef struct picture {
    const tn_roofline *c;
    tn_frame f;
    tn_spot *spot; /* (points) by their importance */
    double *radius;
    size_t points;
    box *taken; /* (points, then labels) */
    size_t n_taken;
    line roof[2 * TN_ROOFS]; /* bandwidths, then peaks */
    size_t n_roofs;
} picture;

/* --- ceilings ----------------------------------------------------------------------------------------------------- */

static double field_x(const tn_frame *f, double v) { return tn__frame_x(f, tn__plot_place(&f->x, v)); }
static double field_y(const tn_frame *f, double v) { return tn__frame_y(f, tn__plot_place(&f->y, v)); }

static double highest(const tn_roof *r, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, r[i].value);
    return most;
}

static double lowest(const tn_roof *r, size_t n)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < n; i++) least = fmin(least, r[i].value);
    return least;
}

/* A slope enters the field at its left or at its bottom. */
static void place_ceilings(picture *p)
{
    const tn_roofline *c = p->c;
    const double top = highest(c->peak, c->n_peaks), steepest = highest(c->bandwidth, c->n_bandwidths);
    const double left = pow(10, p->f.x.lo), bottom = pow(10, p->f.y.lo);
    for (size_t i = 0; i < c->n_bandwidths; i++) {
        const double slope = c->bandwidth[i].value, foot = fmax(left, bottom / slope);
        p->roof[p->n_roofs++] = (line){ field_x(&p->f, foot), field_y(&p->f, foot * slope), field_x(&p->f, top / slope),
                                        field_y(&p->f, top) };
    }
    for (size_t i = 0; i < c->n_peaks; i++) {
        const double peak = c->peak[i].value, y = field_y(&p->f, peak);
        p->roof[p->n_roofs++] = (line){ field_x(&p->f, fmax(peak / steepest, left)), y, p->f.right, y };
    }
}

static void put_line(const picture *p, const line *l, const tn_roof *r)
{
    FILE *out = p->f.out;
    if (r->group < 0) fputs("<path class=\"a\"", out);
    else fprintf(out, "<path class=\"s%d\"", r->group % TN_SVG_STYLES);
    fprintf(out, "%s style=\"stroke-width:2\" d=\"", r->aside ? " stroke-dasharray=\"3 5\"" : "");
    tn__svg_number(out, 'M', l->x1), tn__svg_number(out, ' ', l->y1);
    tn__svg_number(out, 'L', l->x2), tn__svg_number(out, ' ', l->y2);
    fputs("\"/>\n", out);
}

static void name_peak(picture *p, const line *l, const char *name)
{
    const double width = fmin(tn__svg_width(name), p->f.right - p->f.left), y = l->y1 - 7;
    tn__svg_label(p->f.out, "m e", p->f.right, y, name, tn__svg_fit(name, width));
    p->taken[p->n_taken++] = (box){ p->f.right - width, y - LABEL_HEIGHT, p->f.right, y };
}

/* Along a slope, above the line; `middle`: the part of it where the name stands. */
static void name_slope(picture *p, const line *l, const char *name, double middle)
{
    const double dx = l->x2 - l->x1, dy = l->y2 - l->y1, length = hypot(dx, dy);
    const double width = fmin(tn__svg_width(name), length), half = LABEL_HEIGHT / 2.0;
    if (length < 40) return;
    middle = fmin(fmax(middle, width / length / 2), 1 - width / length / 2);
    fprintf(p->f.out, "<text class=\"m c\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" dy=\"-5\">",
            l->x1 + middle * dx, l->y1 + middle * dy, atan2(dy, dx) * 57.29577951308232);
    tn__svg_text(p->f.out, name, tn__svg_fit(name, length));
    fputs("</text>\n", p->f.out);
    for (int i = 0; i < SLOPE_BOXES; i++) {
        const double along = middle + width / length * ((i + 0.5) / SLOPE_BOXES - 0.5);
        const double x = l->x1 + along * dx + 9 * dy / length, y = l->y1 + along * dy - 9 * dx / length;
        p->taken[p->n_taken++] = (box){ x - half, y - half, x + half, y + half };
    }
}

/* Names of slopes stand at different heights: slopes may be near each other. */
static void put_ceilings(picture *p)
{
    const tn_roofline *c = p->c;
    for (size_t i = 0; i < p->n_roofs; i++) {
        const bool slope = i < c->n_bandwidths;
        const tn_roof *r = slope ? &c->bandwidth[i] : &c->peak[i - c->n_bandwidths];
        put_line(p, &p->roof[i], r);
        if (!r->name) continue;
        if (slope) name_slope(p, &p->roof[i], r->name, (double)(i + 1) / (double)(c->n_bandwidths + 1));
        else name_peak(p, &p->roof[i], r->name);
    }
}

/* Whether a line passes through a box: it does where the corners lie on both sides, or its ends inside. */
static bool crosses(const box *b, double x1, double y1, double x2, double y2)
{
    if (fmax(x1, x2) < b->x1 || fmin(x1, x2) > b->x2 || fmax(y1, y2) < b->y1 || fmin(y1, y2) > b->y2) return false;
    const double corner[4][2] = { { b->x1, b->y1 }, { b->x2, b->y1 }, { b->x1, b->y2 }, { b->x2, b->y2 } };
    int above = 0;
    for (int i = 0; i < 4; i++) above += (x2 - x1) * (corner[i][1] - y1) - (y2 - y1) * (corner[i][0] - x1) > 0;
    return above != 0 && above != 4;
}

/* --- points and labels -------------------------------------------------------------------------------------------- */

static bool is_free(const picture *p, const box *b, size_t own)
{
    const tn_frame *f = &p->f;
    if (b->x1 < f->left || b->x2 > f->right || b->y1 < f->top || b->y2 > f->bottom) return false;
    /* names of ceilings stand just above them */
    const box below = { b->x1, b->y1, b->x2, b->y2 + 20 };
    for (size_t i = 0; i < p->n_roofs; i++)
        if (crosses(&below, p->roof[i].x1, p->roof[i].y1, p->roof[i].x2, p->roof[i].y2)) return false;
    for (size_t i = 0; i < p->n_taken; i++) {
        const box *o = &p->taken[i];
        if (i != own && b->x1 < o->x2 && b->x2 > o->x1 && b->y1 < o->y2 && b->y2 > o->y1) return false;
    }
    return true;
}

/* Whether a line from a dot to its label passes through another label. */
static bool is_clear(const picture *p, double x1, double y1, double x2, double y2)
{
    for (size_t i = p->points; i < p->n_taken; i++)
        if (crosses(&p->taken[i], x1, y1, x2, y2)) return false;
    return true;
}

/* Right of the dot, left, above, below, and at its corners: the first that is free; else farther away, with a line to it. */
static void put_label(picture *p, size_t k)
{
    static const double side[][2] = { { 1, 0 },  { -1, 0 }, { 0, -1 },  { 0, 1 },
                                      { 1, -1 }, { 1, 1 },  { -1, -1 }, { -1, 1 } };
    static const double beyond[] = { 0, 14, 30, 50 };
    enum { SIDES = sizeof side / sizeof *side, TRIES = SIDES * (sizeof beyond / sizeof *beyond) };
    const tn_spot *s = &p->spot[k];
    const char *name = p->c->names[s->i];
    if (!name || !*name) return;
    const double width = fmin(tn__svg_width(name), NAME_WIDTH);
    for (size_t i = 0; i < TRIES; i++) {
        const double *to = side[i % SIDES], far = beyond[i / SIDES], diagonal = to[0] != 0 && to[1] != 0 ? 0.75 : 1;
        const double away = (p->radius[k] + 3 + far) * diagonal, end_x = s->x + to[0] * away,
                     end_y = s->y + to[1] * away;
        const double x = end_x + to[0] * width / 2, y = end_y + to[1] * LABEL_HEIGHT / 2.0;
        const box b = { x - width / 2, y - LABEL_HEIGHT / 2.0, x + width / 2, y + LABEL_HEIGHT / 2.0 };
        if (!is_free(p, &b, k) || (far > 0 && !is_clear(p, s->x, s->y, end_x, end_y))) continue;
        p->taken[p->n_taken++] = b;
        if (far > 0)
            fprintf(p->f.out, "<line class=\"a\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", s->x, s->y, end_x,
                    end_y);
        tn__svg_label(p->f.out, "t c", x, y + 4, name, tn__svg_fit(name, NAME_WIDTH));
        return;
    }
}

static void put_point(const picture *p, size_t k)
{
    const tn_spot *s = &p->spot[k];
    const char *name = p->c->names ? p->c->names[s->i] : NULL;
    fputs("<circle", p->f.out);
    tn__svg_fill(p->f.out, s->group, " w");
    fprintf(p->f.out, " cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", s->x, s->y, p->radius[k]);
    if (name) tn__svg_hint(p->f.out, name);
    fputs("</circle>\n", p->f.out);
}

static int by_number(const void *a, const void *b)
{
    const tn_spot *p = a, *q = b;
    return p->i < q->i ? -1 : p->i > q->i;
}

/* The points that have a place, thinned, in the caller's order. */
static void place_points(picture *p)
{
    const tn_roofline *c = p->c;
    double most = 0;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const double x = field_x(&p->f, c->x[i]), y = field_y(&p->f, c->y[i]);
        const int group = c->group ? c->group[i] : 0;
        if (!isfinite(x) || !isfinite(y) || group < 0) continue;
        p->spot[n++] = (tn_spot){ .x = x, .y = y, .group = (size_t)group, .i = i };
        if (c->weight && isfinite(c->weight[i])) most = fmax(most, c->weight[i]);
    }
    p->points = n > POINTS_MOST ? tn__spots_thin(p->spot, n, 2, POINTS_MOST) : n;
    qsort(p->spot, p->points, sizeof *p->spot, by_number);
    for (size_t k = 0; k < p->points; k++) {
        const tn_spot *s = &p->spot[k];
        const double w = c->weight && most > 0 ? c->weight[s->i] / most : NAN;
        p->radius[k] = isfinite(w) ? 3 + 9 * sqrt(fmax(w, 0)) : 4;
        p->taken[k] = (box){ s->x - p->radius[k], s->y - p->radius[k], s->x + p->radius[k], s->y + p->radius[k] };
    }
    p->n_taken = p->points;
}

/* Large dots first, so that they hide none. */
static void put_points(picture *p)
{
    for (int pass = 0; pass < 13; pass++)
        for (size_t k = 0; k < p->points; k++)
            if ((int)(12 - p->radius[k]) == pass) put_point(p, k);
    for (size_t k = 0; p->c->names && k < p->points && k < LABELS_MOST; k++) put_label(p, k);
}

/* Some of all ceilings is in the field. */
static tn_status set_ranges(const tn_roofline *c, tn_frame *f)
{
    const double top = highest(c->peak, c->n_peaks);
    double *v = tn_alloc(sizeof *v * (c->n + 2));
    if (!v) return TN_MEMORY;
    for (size_t i = 0; i < c->n; i++) v[i] = c->x[i];
    v[c->n] = top / highest(c->bandwidth, c->n_bandwidths) / 3;
    v[c->n + 1] = top / lowest(c->bandwidth, c->n_bandwidths) * 3;
    tn__plot_range(v, c->n + 2, true, 0.06, &f->x);
    for (size_t i = 0; i < c->n; i++) v[i] = c->y[i];
    v[c->n] = lowest(c->peak, c->n_peaks) / 3, v[c->n + 1] = top * 1.5;
    tn__plot_range(v, c->n + 2, true, 0.06, &f->y);
    tn_free(v);
    return TN_OK;
}

static bool are_roofs(const tn_roof *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(r[i].value > 0) || !isfinite(r[i].value)) return false;
    return n > 0 && n <= TN_ROOFS;
}

static bool is_drawable(const tn_roofline *c)
{
    if (!c->n || !are_roofs(c->peak, c->n_peaks) || !are_roofs(c->bandwidth, c->n_bandwidths)) return false;
    const double least = lowest(c->peak, c->n_peaks) / highest(c->bandwidth, c->n_bandwidths),
                 most = highest(c->peak, c->n_peaks) / lowest(c->bandwidth, c->n_bandwidths);
    return least > 0 && isfinite(most);
}

tn_status tn_chart_roofline(const tn_roofline *c, FILE *out)
{
    tn_status s = TN_OK;
    if (!is_drawable(c)) return tn_error(TN_USAGE, "a roofline needs points, a peak and a bandwidth above 0");
    const double names = c->n_groups > 1 ? tn__names_height(c->groups, c->n_groups, WIDTH) : 0;
    picture p = { .c = c };
    p.f =
        (tn_frame){ .out = out, .width = WIDTH, .right = WIDTH - 26, .top = 70 + names, .bottom = HEIGHT + names - 52 };
    p.spot = tn_alloc(sizeof *p.spot * c->n);
    p.radius = tn_alloc(sizeof *p.radius * POINTS_MOST);
    p.taken = tn_alloc(sizeof *p.taken * (POINTS_MOST + LABELS_MOST + TN_ROOFS * (SLOPE_BOXES + 1)));
    if (!p.spot || !p.radius || !p.taken) TN_TRY(TN_MEMORY);
    TN_TRY(set_ranges(c, &p.f));
    tn__frame_ticks(&p.f, true);
    place_ceilings(&p);
    place_points(&p);
    tn__svg_begin(out, WIDTH, HEIGHT + (int)names, c->title, "roofline", c->group ? TN_SVG_STYLES : 1);
    tn__frame_axes(&p.f, c->x_label, c->y_label, true);
    if (names > 0) tn__frame_names(&p.f, c->groups, c->n_groups);
    put_ceilings(&p);
    put_points(&p);
    TN_TRY(tn__frame_done(&p.f));
done:
    tn_free(p.spot), tn_free(p.radius), tn_free(p.taken);
    return s;
}
