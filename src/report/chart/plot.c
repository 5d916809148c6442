/* Axes of plots: their ranges; and text made safe to print. Ticks are in ticks.c.
 *
 * It draws nothing. Invariant: lo < hi and both finite, whatever the data, so that no writer has to check again. */
#include "report/chart/plot_axis.h"

#include <math.h>
#include <string.h>

tn_status tn__plot_check(const tn_plot *p)
{
    if (!p->series || p->count == 0) return tn_error(TN_USAGE, "a plot needs at least one series");
    for (size_t i = 0; i < p->count; i++) {
        const tn_series *s = &p->series[i];
        if (!s->name || (s->n > 0 && (!s->x || !s->y)))
            return tn_error(TN_USAGE, "series %zu of the plot has no name or no values", i);
    }
    return TN_OK;
}

/* The next UTF-8 sequence at s: its length, or 0 when it is malformed. Overlong forms and surrogates are malformed. */
static size_t sequence_length(const unsigned char *s)
{
    const unsigned char c = s[0];
    const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f)) return 0;
    if ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

bool tn__plot_char(const char **s, char out[5])
{
    const unsigned char *u = (const unsigned char *)*s;
    if (*u == 0) return false;
    const size_t n = sequence_length(u);
    const bool control = n == 0 || *u < 0x20 || *u == 0x7f || (*u == 0xc2 && u[1] < 0xa0);
    memset(out, 0, 5);
    if (control) out[0] = '?';
    else memcpy(out, u, n);
    *s += n ? n : 1;
    return true;
}

size_t tn__plot_columns(const char *s)
{
    char c[5];
    size_t n = 0;
    while (tn__plot_char(&s, c)) n++;
    return n;
}

static double scaled(const tn_plot_axis *a, double value)
{
    if (!isfinite(value)) return NAN;
    if (!a->log) return value;
    return value > 0 ? log10(value) : NAN;
}

double tn__plot_place(const tn_plot_axis *a, double value)
{
    /* Halves, so that a span beyond the largest double stays finite. */
    return (scaled(a, value) / 2 - a->lo / 2) / (a->hi / 2 - a->lo / 2);
}

bool tn__plot_point(const tn_plot_axis *x, const tn_plot_axis *y, const tn_series *s, size_t i, double *px, double *py)
{
    *px = tn__plot_place(x, s->x[i]);
    *py = tn__plot_place(y, s->y[i]);
    return isfinite(*px) && isfinite(*py);
}

bool tn__plot_ring(const tn_plot_axis *x, const tn_plot_axis *y, const tn_series *s, double *px, double *py)
{
    return s->ring && s->ring <= s->n && tn__plot_point(x, y, s, s->ring - 1, px, py);
}

/* Ends of an axis over lo..hi. Below a distance of one part in 10^12 labels could not tell the ends apart: that is one value, which
 * gets into the middle. */
static void set_ends(tn_plot_axis *a, double lo, double hi, double pad)
{
    const double largest = fmax(fabs(lo), fabs(hi)), span = hi / 2 - lo / 2;
    a->empty = !(lo <= hi);
    if (a->empty) lo = 0, hi = 1;
    else if (!a->log && largest < 1e-300) lo = -1, hi = 1;
    else if (span <= 1e-12 * largest || (a->log && span <= 1e-11)) {
        const double room = a->log ? 0.5 : largest * 0.1;
        lo -= room, hi += room;
    } else {
        const double room = pad * 2 * span;
        lo = !a->log && lo >= 0 && lo < room ? 0 : lo - room; /* a quantity that starts at zero keeps its zero */
        hi += room;
    }
    a->lo = fmax(lo, -1.7e308);
    a->hi = fmin(hi, 1.7e308);
}

void tn__plot_range(const double *value, size_t n, bool log, double pad, tn_plot_axis *out)
{
    *out = (tn_plot_axis){ .log = log };
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double v = scaled(out, value[i]);
        if (isnan(v)) continue;
        lo = fmin(lo, v), hi = fmax(hi, v);
    }
    set_ends(out, lo, hi, pad);
}

void tn__plot_ranges(const tn_plot *p, tn_plot_axis *x, tn_plot_axis *y)
{
    *x = (tn_plot_axis){ .log = false };
    *y = (tn_plot_axis){ .log = p->log_y };
    double xlo = INFINITY, xhi = -INFINITY, ylo = INFINITY, yhi = -INFINITY;
    for (size_t k = 0; k < p->count; k++)
        for (size_t i = 0; i < p->series[k].n; i++) {
            const double u = scaled(x, p->series[k].x[i]), v = scaled(y, p->series[k].y[i]);
            if (isnan(u) || isnan(v)) continue;
            xlo = fmin(xlo, u), xhi = fmax(xhi, u);
            ylo = fmin(ylo, v), yhi = fmax(yhi, v);
        }
    set_ends(x, xlo, xhi, 0);
    set_ends(y, ylo, yhi, 0.04);
}
