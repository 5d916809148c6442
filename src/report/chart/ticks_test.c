/* Ticks: which numbers stand at an axis, that their labels never touch, and that any range has three of them. */
#include "report/chart/plot_axis.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tn_plot_room upright = { .length = 280, .gap = 18, .most = 8 },
                          across = { .length = 600, .letter = 7.7, .gap = 12, .over = 20, .most = 9 };

static void make(double lo, double hi, bool log, const tn_plot_room *room, tn_plot_axis *a)
{
    const double v[] = { lo, hi };
    tn__plot_range(v, 2, log, 0, a);
    tn__plot_ticks(a, room);
}

static void table(void **state)
{
    (void)state;
    static const struct {
        double lo, hi;
        bool log;
        const char *labels;
    } rows[] = {
        { 0, 10, false, "0 2 4 6 8 10" },
        { 0, 20000, false, "0 5k 10k 15k 20k" },
        { 0, 2500, false, "0 500 1000 1500 2000 2500" },
        { 0, 3e9, false, "0 0.5G 1.0G 1.5G 2.0G 2.5G 3.0G" },
        { -1, 1, false, "-1.0 -0.5 0 0.5 1.0" },
        { -3.2, -0.7, false, "-3.0 -2.5 -2.0 -1.5 -1.0" },
        { -0.04, 0.3, false, "0 0.05 0.10 0.15 0.20 0.25 0.30" },
        { 1e-5, 5e-5, false, "1e-5 2e-5 3e-5 4e-5 5e-5" },
        { 7e-5, 7e-5, false, "6.4e-5 6.6e-5 6.8e-5 7.0e-5 7.2e-5 7.4e-5 7.6e-5" },
        { 0, 0, false, "-1.0 -0.5 0 0.5 1.0" },
        { 1000000, 1000003, false, "1000000.0 1000000.5 1000001.0 1000001.5 1000002.0 1000002.5 1000003.0" },
        { 0.25, 0.26, false, "0.250 0.252 0.254 0.256 0.258 0.260" },
        { 1e16, 3e16, false, "10P 15P 20P 25P 30P" },
        { 1e19, 3e19, false, "1.0e19 1.5e19 2.0e19 2.5e19 3.0e19" },
        /* below half a decade: round numbers */
        { 2, 3.2, true, "2.0 2.2 2.4 2.6 2.8 3.0 3.2" },
        { 2.3, 2.6, true, "2.30 2.35 2.40 2.45 2.50 2.55 2.60" },
        /* up to two: 1 2 3 5 or fewer */
        { 0.3, 3, true, "0.3 0.5 1 2 3" },
        { 3e-5, 3e-5, true, "1e-5 2e-5 3e-5 5e-5" },
        { 0.07, 5, true, "0.1 0.2 0.3 0.5 1 2 3 5" },
        { 1, 100, true, "1 2 5 10 20 50 100" },
        { 5.5, 19, true, "6 8 10 12 14 16 18" },
        /* beyond: decades, all of them or every n-th */
        { 1, 1000, true, "1 10 100 1000" },
        { 2e-3, 3, true, "0.01 0.1 1" },
        { 7e-5, 9, true, "1e-4 1e-3 0.01 0.1 1" },
        { 1e-4, 1e3, true, "1e-4 1e-3 0.01 0.1 1 10 100 1000" },
        { 1e-8, 1, true, "1e-8 1e-7 1e-6 1e-5 1e-4 1e-3 0.01 0.1 1" },
        { 1e-9, 1e9, true, "1e-8 1e-6 1e-4 0.01 1 100 1e4 1e6 1e8" },
        { 10, 3e9, true, "10 100 1000 10k 100k 1M 10M 100M 1G" },
        { 1e-300, 1e300, true, "1e-255 1e-204 1e-153 1e-102 1e-51 1 1e51 1e102 1e153 1e204 1e255" },
        /* two decades inside, but not three */
        { 0.02, 40, true, "0.1 1 10" },
        { 0.15, 60, true, "0.2 0.5 1 2 5 10 20 50" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tn_plot_axis a;
        make(rows[r].lo, rows[r].hi, rows[r].log, &upright, &a);
        char got[TN_PLOT_TICKS * 24] = "";
        for (int i = 0; i < a.ticks; i++) sprintf(got + strlen(got), "%s%s", i ? " " : "", a.label[i]);
        assert_string_equal(got, rows[r].labels);
    }
}

/* Labels do not touch, are all different, ascend and stand where their number is. */
static void check(const tn_plot_axis *a, const tn_plot_room *r, double lo, double hi)
{
    if (a->ticks < 3 || a->ticks > TN_PLOT_TICKS) fail_msg("%.17g to %.17g: %d ticks", lo, hi, a->ticks);
    for (int i = 0; i < a->ticks; i++) {
        const char *const label = a->label[i];
        const double width = r->letter * (double)strlen(label), middle = a->label_at[i] * r->length;
        if (!(a->at[i] >= 0 && a->at[i] <= 1)) fail_msg("%.17g to %.17g: %s is outside", lo, hi, label);
        if (width > 0 && (middle - width / 2 < -r->over - 1e-6 || middle + width / 2 > r->length + r->over + 1e-6))
            fail_msg("%.17g to %.17g: %s sticks out", lo, hi, label);
        assert_true(strcmp(label, "-0") != 0 && strncmp(label, "-0.0", 5) != 0);
        char *end;
        double value = strtod(label, &end);
        static const char units[] = "kMGTP";
        if (*end) value *= pow(10, 3.0 * (double)(strchr(units, *end) - units + 1));
        const double off = fabs(tn__plot_place(a, value) - a->at[i]);
        if (!(off < 2e-3)) fail_msg("%.17g to %.17g: %s stands %g away from its place", lo, hi, label, off);
        if (i == 0) continue;
        const double before = a->label_at[i - 1] * r->length + r->letter * (double)strlen(a->label[i - 1]) / 2;
        if (!(a->at[i] > a->at[i - 1])) fail_msg("%.17g to %.17g: %s does not ascend", lo, hi, label);
        if (strcmp(label, a->label[i - 1]) == 0) fail_msg("%.17g to %.17g: two ticks %s", lo, hi, label);
        if (middle - width / 2 - before < r->gap - 1e-3)
            fail_msg("%.17g to %.17g: %s touches %s", lo, hi, a->label[i - 1], label);
    }
}

/* Numbers of the tick labels of a decade axis: every n-th, none left out. */
static void check_regular(const tn_plot_axis *a, double lo, double hi)
{
    for (int i = 2; i < a->ticks; i++)
        if (fabs(a->at[i] - 2 * a->at[i - 1] + a->at[i - 2]) > 1e-6)
            fail_msg("%.17g to %.17g: %s %s %s are not evenly apart", lo, hi, a->label[i - 2], a->label[i - 1],
                     a->label[i]);
}

static double uniform(uint64_t *state, double lo, double hi)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return lo + (hi - lo) * (double)(*state >> 11) / 9007199254740992.0;
}

static void random_ranges(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 10000; i++) {
        const tn_plot_room *r = i % 2 ? &upright : &across;
        tn_plot_axis a;
        /* sizes of all kinds; spans from a part in 10^10 to many times the middle */
        const double middle = uniform(&seed, -1, 1) * pow(10, uniform(&seed, -20, 20));
        const double half = fabs(middle) * pow(10, uniform(&seed, -10, 3));
        make(middle - half, middle + half, false, r, &a);
        check(&a, r, middle - half, middle + half);
        const double from = uniform(&seed, -12, 12), span = pow(10, uniform(&seed, -6, 1.3));
        const double lo = pow(10, from), hi = pow(10, from + span);
        make(lo, hi, true, r, &a);
        check(&a, r, lo, hi);
        if (span > 3.1) check_regular(&a, lo, hi);
        for (int e = (int)ceil(a.lo); span >= 1 && e <= (int)floor(a.hi); e++) {
            int k = 0;
            while (k < a.minors && fabs(a.minor[k] - (e - a.lo) / (a.hi - a.lo)) > 1e-9) k++;
            if (k == a.minors) fail_msg("%g to %g: no tick at 1e%d", lo, hi, e);
        }
    }
}

/* Ranges at the ends of the doubles, and none at all. */
static void hard_ranges(void **state)
{
    (void)state;
    static const double rows[][2] = {
        { -1.7e308, 1.7e308 }, { 1e-320, 2e-320 }, { 1e15, 1e15 + 2 },  { 5, 5 },
        { -7e-5, -7e-5 },      { 1e300, 1e308 },   { -1e-308, 1e-308 }, { 1, 1 + 1e-15 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int log = 0; log < 2; log++) {
            tn_plot_axis a;
            make(rows[i][0], rows[i][1], log, &across, &a);
            assert_true(a.lo < a.hi && isfinite(a.lo) && isfinite(a.hi));
            if (!log || rows[i][0] > 1e-300) check(&a, &across, rows[i][0], rows[i][1]);
        }
    tn_plot_axis a;
    make(NAN, -INFINITY, true, &upright, &a);
    assert_true(a.empty && a.lo < a.hi);
}

void tn_tests_ticks(tn_test_list *l)
{
    tn_test_add(l, table, NULL, "ticks: a table of ranges");
    tn_test_add(l, random_ranges, NULL, "ticks: 20,000 random ranges");
    tn_test_add(l, hard_ranges, NULL, "ticks: hard ranges");
}
