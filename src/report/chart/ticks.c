/* Ticks of axes: which round numbers, and how they are written.
 *
 * Each kind of axis has a list of sets of ticks, the most wanted first; the first set with three ticks whose labels all fit is
 * taken. So labels never overlap, and a set is shown whole: no decade is left out between two others. */
#include "report/chart/plot_axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 3 };

/* --- labels ------------------------------------------------------------------------------------------------------- */

/* Decimals that multiples of `step` need. */
static int decimals_of(double step)
{
    const double d = fmax(0, -floor(log10(step) + 1e-9));
    const double scaled = step * pow(10, d);
    return (int)fmin(d + (fabs(scaled - round(scaled)) > 1e-6), 17);
}

/* How all labels of a linear axis are written: those of one axis have one form. */
typedef struct form {
    bool exponents;
    double unit;
    const char *suffix;
    double step;
} form;

static form choose_form(double step, double largest)
{
    static const struct {
        double unit;
        const char *suffix;
    } units[] = { { 1e15, "P" }, { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" } };
    if (largest < 1e-3 || largest >= 1e18) return (form){ .exponents = true, .unit = 1, .suffix = "", .step = step };
    for (size_t i = 0; i < sizeof units / sizeof *units && largest >= 1e4; i++) {
        if (largest < units[i].unit) continue;
        const int with = decimals_of(step / units[i].unit), without = decimals_of(step);
        const int saved = (int)lround(log10(units[i].unit)) + without + (without > 0) - with - (with > 0);
        if (saved < 1) break; /* 1000003 is shorter than 1.000003M */
        return (form){ .unit = units[i].unit, .suffix = units[i].suffix, .step = step };
    }
    return (form){ .unit = 1, .suffix = "", .step = step };
}

static void write_number(const form *f, double value, char *out, size_t size)
{
    if (fabs(value) < f->step * 1e-6) { /* rounding of i * step, and -0 */
        snprintf(out, size, "0");
    } else if (f->exponents) {
        const int e = (int)floor(log10(fabs(value)) + 1e-9);
        const int half = e / 2; /* 10^-310 alone is no number to divide by */
        const double mantissa = value / pow(10, half) / pow(10, e - half),
                     step = f->step / pow(10, half) / pow(10, e - half);
        snprintf(out, size, "%.*fe%d", decimals_of(step), mantissa, e);
    } else {
        snprintf(out, size, "%.*f%s", decimals_of(f->step / f->unit), value / f->unit, f->suffix);
    }
}

/* m * 10^e on an axis of decades. Short numbers are written out, others as 2e-5; 20k and 2M where all are large. */
static void write_decade(const tn_plot_axis *a, int m, int e, char *out, size_t size)
{
    static const char *const suffixes[] = { "k", "M", "G", "T", "P" };
    const bool small = a->lo <= -4, huge = a->hi >= 18;
    if (e < (small ? -2 : -3) || (e > 3 && (small || huge))) snprintf(out, size, "%de%d", m, e);
    else if (e > 3) snprintf(out, size, "%d%s%s", m, e % 3 == 1 ? "0" : e % 3 == 2 ? "00" : "", suffixes[e / 3 - 1]);
    else snprintf(out, size, "%.*f", e < 0 ? -e : 0, m * pow(10, e));
}

/* --- sets of ticks ------------------------------------------------------------------------------------------------ */

static char *add_tick(tn_plot_axis *a, double place)
{
    if (a->ticks == TN_PLOT_TICKS || !(place >= -1e-9 && place <= 1 + 1e-9)) return NULL;
    a->at[a->ticks] = fmin(fmax(place, 0), 1);
    return a->label[a->ticks++];
}

/* Whether the ticks are as many as wanted and their labels have room; says where the labels go. */
static bool fits(tn_plot_axis *a, const tn_plot_room *r, int least, int most)
{
    if (a->ticks < least || a->ticks > most) return false;
    double end = -r->over - r->gap;
    for (int i = 0; i < a->ticks; i++) {
        const double width = r->letter * (double)strlen(a->label[i]), half = width / 2;
        double middle = a->at[i] * r->length;
        if (r->letter > 0) middle = fmin(fmax(middle, half - r->over), r->length + r->over - half);
        if ((r->letter > 0 || i > 0) && middle - half < end + r->gap - 1e-6) return false;
        end = middle + half;
        a->label_at[i] = middle / r->length;
    }
    return true;
}

/* The same, without the last tick, the first, or both, where only these have no room. */
static bool fits_trimmed(tn_plot_axis *a, const tn_plot_room *r, int least, int most)
{
    for (int drop = 0; drop < 4; drop++) {
        const int first = drop >> 1, n = a->ticks - first - (drop & 1);
        tn_plot_axis b = *a;
        b.ticks = n > 0 ? n : 0;
        memmove(b.at, b.at + first, (size_t)b.ticks * sizeof b.at[0]);
        memmove(b.label, b.label + first, (size_t)b.ticks * sizeof b.label[0]);
        if (!fits(&b, r, least, most)) continue;
        *a = b;
        return true;
    }
    return false;
}

/* Multiples of a step in lo..hi; false where there are too many. */
static bool add_multiples(tn_plot_axis *a, double lo, double hi, double step)
{
    const form f = choose_form(step, fmax(fabs(lo), fabs(hi)));
    const double first = ceil(lo / step - 1e-9), last = floor(hi / step + 1e-9);
    a->ticks = 0;
    if (!(last - first < TN_PLOT_TICKS)) return false;
    for (double i = first; i <= last; i++) {
        char *label = add_tick(a, tn__plot_place(a, i * step));
        if (label) write_number(&f, i * step, label, sizeof a->label[0]);
    }
    return true;
}

/* The finest of these steps, times a power of ten, that fits. */
static bool linear_ticks(tn_plot_axis *a, const tn_plot_room *r, const double *factor, int factors, int least, int most,
                         bool (*fit)(tn_plot_axis *, const tn_plot_room *, int, int))
{
    const double lo = a->log ? pow(10, a->lo) : a->lo, hi = a->log ? pow(10, a->hi) : a->hi;
    const double power = floor(log10(hi / most - lo / most)); /* hi - lo may be beyond the doubles */
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < factors; i++)
            if (add_multiples(a, lo, hi, factor[i] * pow(10, power + e)) && fit(a, r, least, most)) return true;
    a->ticks = 0;
    return false;
}

static const double steps_125[] = { 1, 2, 5 }, steps_any[] = { 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 };
enum { N_125 = sizeof steps_125 / sizeof *steps_125, N_ANY = sizeof steps_any / sizeof *steps_any };

/* Rather more ticks than asked for, or a step of 1.5, or none beside an end, than fewer than three. */
static bool round_ticks(tn_plot_axis *a, const tn_plot_room *r, int least)
{
    return linear_ticks(a, r, steps_125, N_125, least, r->most, fits) ||
           linear_ticks(a, r, steps_125, N_125, least, TN_PLOT_TICKS, fits) ||
           linear_ticks(a, r, steps_any, N_ANY, least, TN_PLOT_TICKS, fits) ||
           linear_ticks(a, r, steps_any, N_ANY, least, TN_PLOT_TICKS, fits_trimmed);
}

/* These multiples of every stride-th power of ten. */
static bool decade_ticks(tn_plot_axis *a, const tn_plot_room *r, const int *multiple, int n, int stride)
{
    const int first = (int)floor(a->lo - 1e-9), last = (int)ceil(a->hi + 1e-9);
    a->ticks = 0;
    if (n * ((last - first) / stride + 1) > 2 * TN_PLOT_TICKS) return false;
    for (int e = first - ((first % stride) + stride) % stride; e <= last; e += stride)
        for (int i = 0; i < n; i++) {
            char *label = add_tick(a, (e + log10(multiple[i]) - a->lo) / (a->hi - a->lo));
            if (label) write_decade(a, multiple[i], e, label, sizeof a->label[0]);
        }
    return fits(a, r, LEAST, n == 1 ? r->most + r->most / 2 : r->most); /* decades are easy to read */
}

static bool within_decades(tn_plot_axis *a, const tn_plot_room *r)
{
    static const struct {
        int n, multiple[4];
    } set[] = { { 4, { 1, 2, 3, 5 } }, { 3, { 1, 2, 5 } }, { 2, { 1, 3 } } };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (decade_ticks(a, r, set[i].multiple, set[i].n, 1)) return true;
    return false;
}

/* Below half a decade a log axis looks like a linear one. Up to about two decades it shows numbers within them; beyond, powers of
 * ten. */
static bool log_ticks(tn_plot_axis *a, const tn_plot_room *r)
{
    static const int one = 1;
    const double decades = a->hi - a->lo;
    if (decades < 0.5 && round_ticks(a, r, LEAST)) return true;
    if (decades < 2.3 && within_decades(a, r)) return true;
    for (int stride = 1; stride <= decades; stride++)
        if (decade_ticks(a, r, &one, 1, stride)) return true;
    return within_decades(a, r) || round_ticks(a, r, LEAST);
}

/* Ticks without numbers: 2 to 9 of each decade where those can be told apart, and the powers of ten. */
static void minor_ticks(tn_plot_axis *a, const tn_plot_room *r)
{
    const int first = (int)floor(a->lo), last = (int)ceil(a->hi), decades = last - first;
    const int n = r->length / (a->hi - a->lo) >= 36 && decades * 9 < TN_PLOT_MINORS ? 9 : 1;
    a->minors = 0;
    for (int e = first; decades < TN_PLOT_MINORS && e <= last; e++)
        for (int i = 1; i <= n && a->minors < TN_PLOT_MINORS; i++) {
            const double place = (e + log10(i) - a->lo) / (a->hi - a->lo);
            if (place >= 0 && place <= 1) a->minor[a->minors++] = place;
        }
}

void tn__plot_ticks(tn_plot_axis *a, const tn_plot_room *room)
{
    tn_plot_room r = *room;
    r.most = r.most < LEAST ? LEAST : r.most > TN_PLOT_TICKS ? TN_PLOT_TICKS : r.most;
    a->minors = 0;
    if (a->log && a->hi - a->lo >= 0.5) minor_ticks(a, &r);
    if (a->log && log_ticks(a, &r)) return;
    for (int least = LEAST; least > 0; least--) /* a narrow terminal may have room for fewer */
        if (round_ticks(a, &r, least)) return;
}

size_t tn__plot_label_columns(const tn_plot_axis *a)
{
    size_t most = 0;
    for (int i = 0; i < a->ticks; i++) most = strlen(a->label[i]) > most ? strlen(a->label[i]) : most;
    return most;
}
