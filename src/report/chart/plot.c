/* Axes of plots: ranges, ticks at round numbers, labels; and text made safe to print.
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

/* How many multiples of step lie in lo..hi. */
static double multiples_in(double lo, double hi, double step)
{
    return floor(hi / step + 1e-9) - ceil(lo / step - 1e-9) + 1;
}

/* The step of ticks on a linear axis: the smallest of 1, 2, 5 times a power of ten that gives at most `most` ticks, but
 * the next smaller one where that would leave a single tick, which shows no scale. */
static double round_step(double lo, double hi, int most)
{
    static const double factors[] = { 0.5, 1, 2, 5, 10, 20, 50 };
    const double power = pow(10, floor(log10((hi - lo) / most)));
    size_t i = 1;
    while (i < 6 && multiples_in(lo, hi, factors[i] * power) > most) i++;
    if (multiples_in(lo, hi, factors[i] * power) < 2) i--;
    return factors[i] * power;
}

static int decimals_of(double step)
{
    const double d = -floor(log10(step) + 1e-9);
    return d < 0 ? 0 : d > 9 ? 9 : (int)d;
}

/* A value as people write it beside an axis whose ticks lie `step` apart and reach up to `largest`. */
static void write_label(char *out, size_t size, double value, double step, double largest)
{
    static const struct {
        double unit;
        const char *suffix;
    } units[] = { { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };
    if (fabs(value) < step * 1e-6) value = 0; /* rounding of lo + i * step, and -0 */
    if (value != 0 && (largest < 1e-3 || largest >= 1e15)) {
        const double magnitude = floor(log10(fabs(value)) + 1e-9);
        const double mantissa = value / pow(10, magnitude);
        snprintf(out, size, "%.*fe%d", decimals_of(step / pow(10, magnitude)), mantissa, (int)magnitude);
        return;
    }
    if (value != 0 && largest >= 1e4)
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (largest >= units[i].unit) {
                snprintf(out, size, "%.*f%s", decimals_of(step / units[i].unit), value / units[i].unit,
                         units[i].suffix);
                return;
            }
    snprintf(out, size, "%.*f", value == 0 ? 0 : decimals_of(step), value);
}

static void add_tick(tn_plot_axis *a, double value, double step, double largest)
{
    const double place = tn__plot_place(a, value);
    if (a->ticks == TN_PLOT_TICKS || !(place >= -1e-9 && place <= 1 + 1e-9)) return;
    a->at[a->ticks] = place < 0 ? 0 : place > 1 ? 1 : place;
    write_label(a->label[a->ticks], sizeof a->label[0], value, step, largest);
    a->ticks++;
}

static void linear_ticks(tn_plot_axis *a, double lo, double hi, int most)
{
    const double step = round_step(lo, hi, most), largest = fmax(fabs(lo), fabs(hi));
    if (!isfinite(step) || step <= 0)
        return; /* a span beyond the doubles: a plot without numbers still shows its shape */
    const double first = ceil(lo / step - 1e-9);
    for (int i = 0; i < TN_PLOT_TICKS; i++) {
        if ((first + i) * step > hi + 1e-9 * step) break;
        add_tick(a, (first + i) * step, step, largest);
    }
}

/* Whether neighbouring ticks leave room for their labels: at least `gap` of the axis. */
static bool are_apart(const tn_plot_axis *a, double gap)
{
    for (int i = 1; i < a->ticks; i++)
        if (a->at[i] - a->at[i - 1] < gap) return false;
    return true;
}

/* Drops ticks that are too close to the one before. */
static void thin_out(tn_plot_axis *a, double gap)
{
    int n = 0;
    for (int i = 0; i < a->ticks; i++) {
        if (n && a->at[i] - a->at[n - 1] < gap) continue;
        a->at[n] = a->at[i];
        memmove(a->label[n++], a->label[i], sizeof a->label[0]);
    }
    a->ticks = n;
}

/* These multiples of every stride-th power of ten. False: too close, or fewer than two. */
static bool decade_ticks(tn_plot_axis *a, const double *multiple, int n, int stride, double gap)
{
    const int first = (int)floor(a->lo - 1e-9), last = (int)ceil(a->hi + 1e-9);
    a->ticks = 0;
    if (n * ((last - first) / stride + 1) > 2 * TN_PLOT_TICKS) return false;
    for (int e = first - ((first % stride) + stride) % stride; e <= last; e += stride)
        for (int i = 0; i < n; i++) add_tick(a, multiple[i] * pow(10, e), pow(10, e), multiple[i] * pow(10, e));
    return a->ticks >= 2 && are_apart(a, gap);
}

/* Ticks without numbers: 2 to 9 of each decade, or the decades where those are many. */
static void minor_ticks(tn_plot_axis *a)
{
    const int first = (int)floor(a->lo), last = (int)ceil(a->hi), decades = last - first;
    const int n = decades <= 12 ? 9 : 1;
    for (int e = first; decades <= TN_PLOT_MINORS && e <= last; e++)
        for (int i = 1; i <= n && a->minors < TN_PLOT_MINORS; i++) {
            const double place = tn__plot_place(a, i * pow(10, e));
            if (place >= 0 && place <= 1) a->minor[a->minors++] = place;
        }
}

/* Within a decade round numbers; over more, 1 2 5 of each, or 1 3, or 1, or every n-th power of ten: whatever is the first
 * to leave room for labels. */
static void log_ticks(tn_plot_axis *a, int most)
{
    static const struct {
        int n;
        double multiple[3];
    } set[] = { { 3, { 1, 2, 5 } }, { 2, { 1, 3 } }, { 1, { 1 } } };
    const double gap = 0.7 / most;
    for (int n = most; a->hi - a->lo < 1 && n >= 2; n--) {
        a->ticks = 0;
        linear_ticks(a, pow(10, a->lo), pow(10, a->hi), n);
        if (a->ticks >= 2 && are_apart(a, gap)) return;
    }
    minor_ticks(a);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (decade_ticks(a, set[i].multiple, set[i].n, 1, gap)) return;
    for (int stride = 2; stride < a->hi - a->lo; stride++)
        if (decade_ticks(a, set[2].multiple, 1, stride, gap)) return;
    a->ticks = 0;
    linear_ticks(a, pow(10, a->lo), pow(10, a->hi), most);
    thin_out(a, gap);
}

static void make_axis(tn_plot_axis *a, double lo, double hi, double pad, int most)
{
    a->empty = !(lo <= hi);
    if (a->empty) lo = 0, hi = 1;
    if (lo == hi) { /* one value: put it in the middle */
        const double room = a->log ? 0.5 : lo == 0 ? 1 : fabs(lo) * 0.1;
        lo -= room, hi += room;
    } else {
        const double room = pad * (hi - lo);
        lo = !a->log && lo >= 0 && lo < room ? 0 : lo - room; /* a quantity that starts at zero keeps its zero */
        hi += room;
    }
    a->lo = fmax(lo, -1.7e308);
    a->hi = fmin(hi, 1.7e308);
    a->ticks = a->minors = 0;
    if (most > TN_PLOT_TICKS) most = TN_PLOT_TICKS;
    if (a->log) log_ticks(a, most);
    else linear_ticks(a, a->lo, a->hi, most);
}

void tn__plot_axis_of(const double *value, size_t n, bool log, double pad, int ticks, tn_plot_axis *out)
{
    *out = (tn_plot_axis){ .log = log };
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const double v = scaled(out, value[i]);
        if (isnan(v)) continue;
        lo = fmin(lo, v), hi = fmax(hi, v);
    }
    make_axis(out, lo, hi, pad, ticks);
}

void tn__plot_axes(const tn_plot *p, int x_ticks, int y_ticks, tn_plot_axis *x, tn_plot_axis *y)
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
    make_axis(x, xlo, xhi, 0, x_ticks);
    make_axis(y, ylo, yhi, 0.04, y_ticks);
}
