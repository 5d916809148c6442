/* Grid search: every combination of values once, the last dimension fastest. A dimension that is off has no values,
 * so no combination is run twice. */
#include "lab/search/samplers.h"

#include <inttypes.h>
#include <math.h>

static const int64_t MOST_POINTS = 10000000; /* no study is that long; bounds the counting too */

static bool switches_others(const tn_space *s, size_t i)
{
    for (size_t k = i + 1; k < s->n; k++)
        if (s->dims[k].when == (int)i) return true;
    return false;
}

static int64_t capped(int64_t a, int64_t b) { return a > 0 && b > MOST_POINTS / a ? MOST_POINTS + 1 : a * b; }

/* Points that dimensions i, i + 1, ... make once those before are in x. Above MOST_POINTS it only says so. */
static int64_t points_from(const tn_space *s, size_t i, double *x)
{
    if (i == s->n) return 1;
    if (!tn_space_has(s, x, i)) {
        x[i] = NAN;
        return points_from(s, i + 1, x);
    }
    const int64_t count = tn_dim_count(&s->dims[i]);
    if (!switches_others(s, i)) {
        x[i] = NAN;
        return capped(count, points_from(s, i + 1, x));
    }
    int64_t sum = 0;
    for (int64_t k = 0; k < count && sum <= MOST_POINTS; k++) {
        x[i] = (double)k;
        sum += points_from(s, i + 1, x);
    }
    return sum;
}

enum { MOST_DIMS = 256 };

static int64_t count(const tn_space *s)
{
    double x[MOST_DIMS];
    return s->n <= MOST_DIMS ? points_from(s, 0, x) : MOST_POINTS + 1;
}

static tn_status check(const tn_sampler_options *o, const tn_space *s)
{
    (void)o;
    TN_RETURN_IF(tn_space_check(s));
    for (size_t i = 0; i < s->n; i++)
        if (tn_dim_count(&s->dims[i]) == 0)
            return tn_error(
                TN_USAGE,
                "%s: a grid needs countable values; add a step (0.5..0.9 step 0.1), list the values, or use "
                "sampler random or tpe",
                s->dims[i].key);
    if (count(s) > MOST_POINTS)
        return tn_error(TN_USAGE,
                        "the grid has more than %" PRId64 " points; remove some values, or use sampler random or tpe",
                        MOST_POINTS);
    return TN_OK;
}

static tn_status draw(const tn_sampler_options *o, const tn_space *s, const tn_observed *seen, int64_t number,
                      double *x)
{
    (void)seen;
    TN_RETURN_IF(check(o, s));
    if (number < 0 || number >= count(s))
        return tn_error(TN_USAGE, "the grid has %" PRId64 " points; there is no trial %" PRId64, count(s), number);
    int64_t rest = number;
    double scratch[MOST_DIMS];
    for (size_t i = 0; i < s->n; i++) scratch[i] = NAN;
    for (size_t i = 0; i < s->n; i++) {
        if (!tn_space_has(s, x, i)) {
            scratch[i] = x[i] = NAN;
            continue;
        }
        int64_t k = 0;
        for (;; k++) { /* equal shares where nothing hangs on the value, else each choice's own */
            scratch[i] = (double)k;
            const int64_t share = points_from(s, i + 1, scratch);
            if (!switches_others(s, i)) {
                k = rest / share;
                rest %= share;
                break;
            }
            if (rest < share) break;
            rest -= share;
        }
        x[i] = tn_dim_value(&s->dims[i], k);
        scratch[i] = s->dims[i].kind == TN_DIM_CHOICE ? x[i] : NAN;
    }
    return TN_OK;
}

const tn_sampler tn_sampler_grid = {
    .name = "grid", .needs = tn_sampler_needs_none, .count = count, .check = check, .draw = draw
};
