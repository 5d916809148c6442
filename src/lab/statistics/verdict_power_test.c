/* How often verdicts are right: 1,000 simulated studies with a known effect for every number of seeds from 2 to 10,
 * with errors that are normal, skewed, heavy-tailed, shares of few samples, and nothing but a sign. False verdicts:
 * a side called better that is not, or "no difference" where there is the effect that matters: 5 of 100 studies at
 * most, of 2, 3 and 9 sides too. And where an effect would have been seen with less than 80 % power, "no difference"
 * is said in 5 of 100 studies at most. TENON_TABLE=1 prints what was counted. */
#include "lab/statistics/verdict.h"

#include "lab/search/draws.h"
#include "optest.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STUDIES = 1000, FEWEST = 2, MOST = 10, SIDES = 9 };

/* --- errors: one side's result on one seed, its mean moved by `effect` -------------------------------------------- */

static double normal(tn_draws *l)
{
    return sqrt(-2 * log(1 - tn_draws_uniform(l))) * cos(6.283185307179586 * tn_draws_uniform(l));
}
static double exponential(tn_draws *l) { return -log(1 - tn_draws_uniform(l)); }

static double normal_side(tn_draws *l, double effect) { return effect + normal(l); }
static double skewed_side(tn_draws *l, double effect) { return effect + exponential(l); }
static double heavy_side(tn_draws *l, double effect) /* Student's t with 5 degrees of freedom */
{
    const double z = normal(l), u = normal(l);
    return effect + z * sqrt(5 / (u * u + 2 * exponential(l) + 2 * exponential(l)));
}
static double share_side(tn_draws *l, double effect) /* of 50 samples: many ties and zeros */
{
    const double p = 0.5 + effect;
    double ways = pow(1 - p, 50), u = tn_draws_uniform(l);
    int k = 0;
    for (; k < 50 && u >= ways; k++) {
        u -= ways;
        ways *= (50 - k) / (k + 1.0) * p / (1 - p);
    }
    return k / 50.0;
}
static double sign_side(tn_draws *l, double effect) { return tn_draws_uniform(l) < (1 + effect) / 2 ? 1 : -1; }
static double one_skewed(tn_draws *l, double effect) { return effect + exponential(l) - 1; }
static double outlying(tn_draws *l, double effect) { return effect + normal(l) * (tn_draws_uniform(l) < 0.1 ? 10 : 1); }

typedef struct errors {
    const char *name;
    double (*side)(tn_draws *, double effect);
    double spread; /* of differences */
    double most;   /* effect that this kind can have */
    bool alone;    /* the other side is without error */
    bool beyond;   /* what is promised does not hold: counted to show how far */
} errors;

static const errors kinds[] = {
    { "normal", normal_side, 1.4142135623730951, INFINITY, false, false },
    { "skewed", skewed_side, 1.4142135623730951, INFINITY, false, false },
    { "heavy tails", heavy_side, 1.8257418583505538, INFINITY, false, false },
    { "shares of 50", share_side, 0.1, 0.4, false, false },
    { "signs", sign_side, 1, 0.9, true, false },
    { "one side skewed", one_skewed, 1, INFINITY, true, true },
    { "one in ten far out", outlying, 4.669047011971501, INFINITY, false, true },
};

/* --- two sides ---------------------------------------------------------------------------------------------------- */

typedef struct counts {
    int right, wrong, none, undecided; /* larger and so; larger and not so; no difference; */
} counts;

static counts simulate(const errors *k, size_t n, double truth, double effect)
{
    counts c = { 0 };
    tn_power sight;
    tn_power_of(n, 1, &sight);
    for (uint64_t t = 0; t < STUDIES; t++) {
        tn_draws draws = tn_draws_open(7, k->name, t * 16 + n);
        double a[MOST], b[MOST], seen;
        tn_paired r;
        for (size_t i = 0; i < n; i++) a[i] = k->side(&draws, truth), b[i] = k->alone ? 0 : k->side(&draws, 0);
        assert_ok(tn_paired_compare(a, b, n, &r));
        const tn_outcome w = tn_paired_judge(&r, r.p, &sight, effect, &seen);
        if (w == TN_NO_DIFFERENCE) c.none++;
        else if (w == TN_A_LARGER && truth > 0) c.right++;
        else if (w == TN_A_LARGER || w == TN_B_LARGER) c.wrong++;
        else c.undecided++;
    }
    return c;
}

static void two_sides(void **state)
{
    static const double sizes[] = { 0.5, 0.7, 0.85, 1, 1.3, 2, 4 }; /* of what is truly seen with 80 % */
    const errors *k = *state;
    const bool table = getenv("TENON_TABLE") != NULL;
    const int limit = k->beyond ? STUDIES * 15 / 100 : STUDIES * 5 / 100;
    for (size_t n = FEWEST; n <= MOST; n++) {
        const double unit = tn_student_detectable(0.03, 0.8, n) * k->spread / sqrt((double)n);
        if (table)
            print_message("%-18s %2zu seeds, no effect: false %.1f %%; effect: seen, false, none where there is none ",
                          k->name, n, 100.0 * simulate(k, n, 0, 0).wrong / STUDIES);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const double effect = sizes[i] * unit;
            const counts without = simulate(k, n, 0, effect),
                         with = effect > k->most ? (counts){ 0 } : simulate(k, n, effect, effect);
            if (table && with.right)
                print_message("  %.2f: %.0f, %.1f, %.0f", sizes[i], 100.0 * with.right / STUDIES,
                              100.0 * (with.wrong + with.none) / STUDIES, 100.0 * without.none / STUDIES);
            if (without.wrong > limit || with.wrong + with.none > limit)
                fail_msg("%s, %zu seeds, effect %g: %d and %d false of %d", k->name, n, effect, without.wrong,
                         with.wrong + with.none, STUDIES);
            if (!k->beyond && effect <= k->most && with.right < STUDIES * 8 / 10 && without.none > limit)
                fail_msg("%s, %zu seeds, effect %g: seen %d times, and %d times no difference", k->name, n, effect,
                         with.right, without.none);
            if (!k->beyond && k->side == normal_side && sizes[i] == 1)
                assert_in_range(with.right, STUDIES * 76 / 100, STUDIES * 84 / 100);
        }
        if (table) print_message("\n");
    }
}

/* --- families ----------------------------------------------------------------------------------------------------- */

static const size_t families[] = { 2, 3, 9 };

/* One study of `sides` on n seeds; the first differs from all others by `truth`. True where any verdict is false. */
static bool is_false(const errors *k, size_t sides, size_t n, uint64_t study, const tn_power *sight, double truth,
                     double effect, int *decided)
{
    tn_draws draws = tn_draws_open(11, k->name, (study * 16 + n) * 16 + sides);
    double y[SIDES][MOST], p[SIDES * SIDES], adjusted[SIDES * SIDES], seen;
    tn_paired r[SIDES * SIDES];
    size_t m = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        const double seed = 3 * normal(&draws); /* what all sides have in common */
        for (size_t s = 0; s < sides; s++) y[s][i] = seed + k->side(&draws, s == 0 ? truth : 0);
    }
    for (size_t a = 0; a < sides; a++)
        for (size_t b = a + 1; b < sides; b++, m++) {
            assert_ok(tn_paired_compare(y[a], y[b], n, &r[m]));
            p[m] = r[m].p;
        }
    assert_ok(tn_holm(p, m, adjusted));
    bool wrong = false;
    for (size_t a = 0; a < sides; a++)
        for (size_t b = a + 1; b < sides; b++, at++) {
            const double d = a == 0 ? truth : 0;
            const tn_outcome w = tn_paired_judge(&r[at], adjusted[at], sight, effect, &seen);
            *decided += w == TN_A_LARGER;
            wrong |= (w == TN_A_LARGER && !(d > 0)) || w == TN_B_LARGER || (w == TN_NO_DIFFERENCE && d >= effect);
        }
    return wrong;
}

static void many_sides(void **state)
{
    const size_t sides = *(const size_t *)*state, pairs = sides * (sides - 1) / 2;
    const bool table = getenv("TENON_TABLE") != NULL;
    for (size_t k = 0; k < (sides < SIDES || table ? 2 : 1); k++) /* nine skewed ones take their time */
        for (size_t n = FEWEST; n <= MOST; n++) {
            tn_power sight;
            tn_power_of(n, pairs, &sight);
            const double effect =
                1.3 * tn_student_detectable(0.03 / (double)pairs, 0.8, n) * kinds[k].spread / sqrt((double)n);
            int wrong[2] = { 0 }, decided[2] = { 0 };
            for (int there = 0; there < 2; there++)
                for (uint64_t t = 0; t < STUDIES; t++)
                    wrong[there] +=
                        is_false(&kinds[k], sides, n, t, &sight, there ? effect : 0, effect, &decided[there]);
            if (table)
                print_message("%zu sides, %s, %zu seeds: a false verdict in %.1f %% where all are equal, %.1f %% where "
                              "one is better (seen %.0f %%)\n",
                              sides, kinds[k].name, n, 100.0 * wrong[0] / STUDIES, 100.0 * wrong[1] / STUDIES,
                              100.0 * decided[1] / STUDIES / (double)(sides - 1));
            if (wrong[0] > STUDIES * 5 / 100 || wrong[1] > STUDIES * 5 / 100)
                fail_msg("%zu sides, %s, %zu seeds: %d and %d false of %d", sides, kinds[k].name, n, wrong[0], wrong[1],
                         STUDIES);
            if (decided[1] < 0.8 * STUDIES * (double)(sides - 1))
                fail_msg("%zu sides, %zu seeds: seen %d times of %zu", sides, n, decided[1], STUDIES * (sides - 1));
        }
}

void tn_tests_verdict_power(tn_test_list *l)
{
    for (size_t i = 0; !TN_SANITIZED && i < sizeof kinds / sizeof *kinds; i++)
        tn_test_add(l, two_sides, &kinds[i], "lab/verdict: 1,000 studies, errors: %s", kinds[i].name);
    for (size_t i = 0; !TN_SANITIZED && i < sizeof families / sizeof *families; i++)
        tn_test_add(l, many_sides, &families[i], "lab/verdict: 1,000 studies of %zu sides", families[i]);
}
