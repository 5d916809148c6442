/* Search spaces: mapping values to [0,1] and back, conditional dimensions, and validation. Parsing is in space_text.c.
 * Invariant: tn_dim_at(d, tn_dim_place(d, v)) is v for every value of a counted dimension. */
#include "lab/search/space.h"

#include "base/setting_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_WHOLE = 0x1p53; /* beyond it doubles skip integers */

static double step_of(const tn_dim *d) { return d->step > 0 ? d->step : d->kind == TN_DIM_INT ? 1 : 0; }

/* The range that is drawn from evenly: the logarithm of the bounds, half a step beyond each end where values are
 * whole, so that the end values get their share. */
static void log_bounds(const tn_dim *d, double *lo, double *hi)
{
    const double half = d->kind == TN_DIM_INT ? 0.5 : 0;
    *lo = log(d->lo - half);
    *hi = log(d->hi + half);
}

int64_t tn_dim_count(const tn_dim *d)
{
    if (d->kind == TN_DIM_CHOICE) return (int64_t)d->n_choices;
    const double step = step_of(d);
    return step > 0 ? (int64_t)floor((d->hi - d->lo) / step + 1e-6) + 1 : 0;
}

/* lo + k step, with the noise of the sum taken off: 0.5 + 3 * 0.1 is meant to be 0.8. */
double tn_dim_value(const tn_dim *d, int64_t k)
{
    if (d->kind == TN_DIM_CHOICE) return (double)k;
    const double v = d->lo + (double)k * step_of(d);
    if (d->kind == TN_DIM_INT) return v;
    char text[40];
    snprintf(text, sizeof text, "%.12g", v);
    return fmin(fmax(strtod(text, NULL), d->lo), d->hi);
}

static int64_t nearest(double k, int64_t count) { return k < 0 ? 0 : k >= (double)count ? count - 1 : (int64_t)k; }

double tn_dim_at(const tn_dim *d, double u)
{
    const int64_t count = tn_dim_count(d);
    u = fmin(fmax(u, 0), 1);
    if (!d->log)
        return count ? tn_dim_value(d, nearest(floor(u * (double)count), count))
                     : fmin(d->lo + u * (d->hi - d->lo), d->hi);
    double lo, hi;
    log_bounds(d, &lo, &hi);
    const double v = exp(lo + u * (hi - lo));
    return fmin(fmax(d->kind == TN_DIM_INT ? round(v) : v, d->lo), d->hi);
}

double tn_dim_place(const tn_dim *d, double v)
{
    const int64_t count = tn_dim_count(d);
    if (isnan(v)) return 0.5;
    if (d->kind == TN_DIM_CHOICE) return ((double)nearest(v, count) + 0.5) / (double)count;
    v = fmin(fmax(v, d->lo), d->hi);
    if (d->log) {
        double lo, hi;
        log_bounds(d, &lo, &hi);
        return (log(v) - lo) / (hi - lo);
    }
    if (count) return ((double)nearest(round((v - d->lo) / step_of(d)), count) + 0.5) / (double)count;
    return (v - d->lo) / (d->hi - d->lo);
}

void tn_dim_cell(const tn_dim *d, double v, double *lo, double *hi)
{
    const int64_t count = tn_dim_count(d);
    const double middle = tn_dim_place(d, v);
    *lo = *hi = middle;
    if (count == 0) return;
    if (!d->log) {
        *lo = fmax(middle - 0.5 / (double)count, 0);
        *hi = fmin(middle + 0.5 / (double)count, 1);
        return;
    }
    double bottom, top;
    log_bounds(d, &bottom, &top);
    *lo = fmax((log(v - 0.5) - bottom) / (top - bottom), 0);
    *hi = fmin((log(v + 0.5) - bottom) / (top - bottom), 1);
}

void tn_dim_text(const tn_dim *d, double value, char *out, size_t bytes)
{
    if (d->kind == TN_DIM_CHOICE) {
        snprintf(out, bytes, "%s", d->choices[isnan(value) ? 0 : nearest(value, (int64_t)d->n_choices)]);
        return;
    }
    if (d->kind == TN_DIM_INT) {
        snprintf(out, bytes, "%.0f", value);
        return;
    }
    /* The settings' own shortest text that reads back as the same number. */
    const tn_setting row = TN_SETTING_FLOAT("value", "0", TN_RANGE_ANY, "", "");
    tn_setting_value v = { 0 };
    char full[40];
    snprintf(full, sizeof full, "%.17g", value);
    snprintf(out, bytes, "%s", tn_setting_parse(&row, full, "search", &v) == TN_OK ? v.canonical : full);
}

bool tn_space_has(const tn_space *s, const double *x, size_t i)
{
    const tn_dim *d = &s->dims[i];
    return d->when < 0 || x[d->when] == (double)d->when_choice; /* NaN, where that one is off too, equals nothing */
}

void tn_space_apply_when(const tn_space *s, double *x)
{
    for (size_t i = 0; i < s->n; i++)
        if (!tn_space_has(s, x, i)) x[i] = NAN;
}

static tn_status check_range(const tn_dim *d, const char *key)
{
    if (!isfinite(d->lo) || !isfinite(d->hi) || !(d->lo < d->hi))
        return tn_error(TN_USAGE, "%s: %g..%g is not a range: the first end must be below the second", key, d->lo,
                        d->hi);
    if (!isfinite(d->hi - d->lo)) return tn_error(TN_USAGE, "%s: %g..%g is too wide to draw from", key, d->lo, d->hi);
    if (d->log && !(d->lo > 0))
        return tn_error(TN_USAGE, "%s: log needs ends above 0, not %g; remove log or start at a small number", key,
                        d->lo);
    if (d->kind == TN_DIM_INT &&
        (d->lo != floor(d->lo) || d->hi != floor(d->hi) || fabs(d->lo) > MOST_WHOLE || fabs(d->hi) > MOST_WHOLE))
        return tn_error(TN_USAGE, "%s: int %g..%g: both ends must be whole numbers", key, d->lo, d->hi);
    const double step = d->step;
    if (step == 0) return TN_OK;
    if (d->log)
        return tn_error(TN_USAGE, "%s: log and step exclude each other; list the values instead: [4, 8, 16]", key);
    if (!(step > 0) || !isfinite(step) || (d->kind == TN_DIM_INT && step != floor(step)))
        return tn_error(TN_USAGE, "%s: step %g must be above 0%s", key, step,
                        d->kind == TN_DIM_INT ? " and whole" : "");
    const double steps = (d->hi - d->lo) / step;
    if (steps > 1e9) return tn_error(TN_USAGE, "%s: step %g gives more than 1e9 values; remove step", key, step);
    if (fabs(steps - round(steps)) > 1e-6)
        return tn_error(TN_USAGE, "%s: steps of %g from %g do not end at %g; the last value below it is %.12g", key,
                        step, d->lo, d->hi, d->lo + floor(steps) * step);
    return TN_OK;
}

static tn_status check_choices(const tn_dim *d, const char *key)
{
    if (d->n_choices < 1 || !d->choices) return tn_error(TN_USAGE, "%s: a list of choices must not be empty", key);
    for (size_t i = 0; i < d->n_choices; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(d->choices[i], d->choices[j]) == 0)
                return tn_error(TN_USAGE, "%s: %s is in the list twice", key, d->choices[i]);
    return TN_OK;
}

static tn_status check_when(const tn_space *s, size_t i, const char *key)
{
    const tn_dim *d = &s->dims[i];
    if (d->when < 0) return TN_OK;
    if ((size_t)d->when >= i || s->dims[d->when].kind != TN_DIM_CHOICE || d->when_choice < 0 ||
        (size_t)d->when_choice >= s->dims[d->when].n_choices)
        return tn_error(TN_USAGE, "%s: `when` must name a choice of an earlier list", key);
    return TN_OK;
}

tn_status tn_space_check(const tn_space *s)
{
    if (s->n == 0)
        return tn_error(TN_USAGE, "the search has no dimension: write at least one `key: range or list` under search");
    for (size_t i = 0; i < s->n; i++) {
        const tn_dim *d = &s->dims[i];
        const char *key = d->key ? d->key : "a dimension";
        if (d->kind == TN_DIM_CHOICE) TN_RETURN_IF(check_choices(d, key));
        else TN_RETURN_IF(check_range(d, key));
        TN_RETURN_IF(check_when(s, i, key));
        for (size_t j = 0; d->key && j < i; j++)
            if (s->dims[j].key && strcmp(d->key, s->dims[j].key) == 0)
                return tn_error(TN_USAGE, "%s is searched twice; remove one of the two lines", key);
    }
    return TN_OK;
}
