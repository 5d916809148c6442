/* The search on made-up costs with noise: how near it comes to the best of the whole grid, and that it takes nothing that is no gain. */
#include "report/tune/search.h"
#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

/* Costs of a point in ms; 0: refused; below 0: does not fit. */
typedef double cost_of(const int *at);

typedef struct landscape {
    const char *name;
    int axes, values[TN_TUNE_AXES], start[TN_TUNE_AXES], memory_axis;
    cost_of *cost;
    tn_tune_point first; /* where `joint` */
    bool joint;
} landscape;

/* Each axis for itself: the batch has an optimum inside, the first value of the second is best, threads help. */
static double separate(const int *at)
{
    static const double rows[] = { 1.8, 1.2, 1, 1.1, 1.3 }, again[] = { 1, 1.3, 1.15 }, threads[] = { 1.7, 1 };
    return 10 * rows[at[0]] * again[at[1]] * threads[at[2]];
}

/* Few rows do not keep many threads busy: the best batch depends on the threads. */
static double together(const int *at)
{
    const double rows = 1 << at[0], threads = 1 << at[1];
    return 3 + 64 / fmin(threads, 1 + rows / 2) + 0.4 * rows + (at[2] == 2 ? 0 : 4);
}

/* Without recomputation (value 0 of the second) only half the rows fit. */
static double bounded(const int *at)
{
    if (at[1] == 0 && at[0] > 1) return -1;
    static const double rows[] = { 1.25, 1.1, 1.02, 1 };
    return 20 * rows[at[0]] * (at[1] == 0 ? 1 : 1.35);
}

static double flat(const int *at) { return 7 + 0 * at[0]; }

/* Everything else is slower. */
static double tuned(const int *at) { return 10 + at[0] + at[1] + 0.05 * at[2]; }

static double refusing(const int *at) { return at[0] == 1 ? 0 : at[0] == 3 ? 6 : 8; }

static const landscape landscapes[] = {
    { .name = "each setting for itself",
      .axes = 3,
      .values = { 5, 3, 2 },
      .start = { 4, 1, 0 },
      .memory_axis = 0,
      .cost = separate },
    { .name = "settings that depend on each other",
      .axes = 3,
      .values = { 7, 5, 3 },
      .start = { 0, 0, 0 },
      .memory_axis = 0,
      .cost = together,
      .first = { { 6, 4, 0 } },
      .joint = true },
    { .name = "less memory with fewer rows",
      .axes = 2,
      .values = { 4, 2 },
      .start = { 3, 1 },
      .memory_axis = 0,
      .cost = bounded,
      .first = { { 3, 0 } },
      .joint = true },
    { .name = "no difference anywhere",
      .axes = 3,
      .values = { 6, 4, 3 },
      .start = { 2, 1, 1 },
      .memory_axis = 0,
      .cost = flat },
    { .name = "tuned already",
      .axes = 3,
      .values = { 4, 4, 4 },
      .start = { 0, 0, 0 },
      .memory_axis = -1,
      .cost = tuned },
    { .name = "a value that is refused",
      .axes = 1,
      .values = { 4 },
      .start = { 0 },
      .memory_axis = -1,
      .cost = refusing },
};

typedef struct world {
    const landscape *l;
    tn_rng rng;
    uint64_t at;
    double noise;
    int pairs, most; /* measured; how many there is time for */
    int bad_checks;  /* points that were taken for a gain and are none */
    int refused, excluded, rejected;
    bool other_losses;
} world;

static double measured(world *w, const int *at)
{
    const uint64_t i = 2 * w->at++;
    /* One run in twenty is disturbed by others. */
    const double load = tn_rng_uniform(w->rng, i) > 0.95f ? 1 + 2 * (double)tn_rng_uniform(w->rng, i + 1) : 1;
    return w->l->cost(at) * load * exp(w->noise * (double)tn_rng_normal((tn_rng){ w->rng.seed, 77 }, i));
}

static tn_status pairs(void *ctx, const tn_tune_point *best, tn_tune_tried *t, bool again, int *n, double *ratio)
{
    world *w = ctx;
    const double cost = w->l->cost(t->at.at);
    (void)again;
    assert_true(w->l->cost(best->at) > 0 && memcmp(best, &t->at, sizeof *best) != 0);
    if (cost > 0) {
        for (int i = 0; i < *n; i++, w->pairs++) ratio[i] = measured(w, best->at) / measured(w, t->at.at);
        return TN_OK;
    }
    t->verdict = cost < 0 ? TN_TUNE_MEMORY : TN_TUNE_REFUSED;
    *n = 0;
    return TN_OK;
}

static tn_status fits(void *ctx, const tn_tune_point *p, bool *yes)
{
    const world *w = ctx;
    *yes = !(w->l->cost(p->at) < 0);
    return TN_OK;
}

static tn_status check(void *ctx, const tn_tune_point *best, tn_tune_tried *t)
{
    world *w = ctx;
    w->bad_checks += w->l->cost(t->at.at) >= w->l->cost(best->at);
    if (w->other_losses) t->verdict = TN_TUNE_LOSSES;
    return TN_OK;
}

static void tried(void *ctx, const tn_tune_tried *t)
{
    world *w = ctx;
    assert_true(memcmp(&t->at, &t->than, sizeof t->at) != 0);
    w->refused += t->verdict == TN_TUNE_REFUSED;
    w->excluded += t->verdict == TN_TUNE_MEMORY;
    w->rejected += t->verdict == TN_TUNE_LOSSES;
    if (t->verdict == TN_TUNE_TAKEN) assert_true(t->ratio.low > 1 && t->ratio.n >= TN_RATIOS_STRICT_LEAST);
}

static bool over(void *ctx)
{
    const world *w = ctx;
    return w->pairs >= w->most;
}

static double best_of_grid(const landscape *l)
{
    int points = 1;
    double best = HUGE_VAL;
    for (int k = 0; k < l->axes; k++) points *= l->values[k];
    for (int i = 0; i < points; i++) {
        int at[TN_TUNE_AXES] = { 0 };
        for (int k = 0, rest = i; k < l->axes; rest /= l->values[k++]) at[k] = rest % l->values[k];
        const double cost = l->cost(at);
        if (cost > 0 && cost < best) best = cost;
    }
    return best;
}

static tn_tune_point find(world *w)
{
    const landscape *l = w->l;
    tn_tune_point best = { { 0 } };
    tn_tune_search s = { .axes = l->axes,
                         .memory_axis = l->memory_axis,
                         .first = l->joint ? &l->first : NULL,
                         .ctx = w,
                         .pairs = pairs,
                         .fits = fits,
                         .check = check,
                         .tried = tried,
                         .over = over };
    memcpy(s.values, l->values, sizeof s.values);
    memcpy(s.start.at, l->start, sizeof l->start);
    assert_ok(tn_tune_find(&s, &best));
    return best;
}

static void near_the_best(void **state)
{
    const landscape *l = *state;
    const double best = best_of_grid(l);
    double worst = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        world w = { .l = l, .rng = { seed, 5 }, .noise = seed % 5 * 0.01, .most = 100000 };
        const tn_tune_point p = find(&w);
        const double cost = l->cost(p.at);
        assert_true(cost > 0 && cost <= l->cost(l->start));
        assert_int_equal(w.bad_checks, 0);
        worst = fmax(worst, cost / best);
    }
    if (worst > 1.05) fail_msg("%s: %.3f times the best", l->name, worst);
}

/* Many more values and much more noise than there is a gain: what is taken must be one. */
static void noise_takes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        world w = { .l = &landscapes[3], .rng = { seed, 9 }, .noise = 0.1, .most = 100000 };
        const tn_tune_point p = find(&w);
        if (memcmp(p.at, w.l->start, sizeof(int) * 3) != 0) fail_msg("seed %d: a setting was taken", (int)seed);
    }
}

/* Nothing runs after the time is up, and what was not confirmed by then is not taken. */
static void time_is_up(void **state)
{
    (void)state;
    for (int most = 0; most < 12; most++) {
        world w = { .l = &landscapes[0], .rng = { 1, 1 }, .most = most };
        const tn_tune_point p = find(&w);
        assert_true(w.pairs < most + 6);
        assert_memory_equal(p.at, w.l->start, sizeof(int) * 3);
    }
}

static void other_losses(void **state)
{
    (void)state;
    world w = { .l = &landscapes[0], .rng = { 1, 1 }, .most = 100000, .other_losses = true };
    const tn_tune_point p = find(&w);
    assert_memory_equal(p.at, w.l->start, sizeof(int) * 3);
    assert_true(w.rejected > 0);
}

/* Refused once, a value is not asked for again; what does not fit is told. */
static void not_measured(void **state)
{
    (void)state;
    world w = { .l = &landscapes[5], .rng = { 1, 1 }, .most = 100000 };
    assert_int_equal(find(&w).at[0], 3);
    assert_int_equal(w.refused, 1);
    w = (world){ .l = &landscapes[2], .rng = { 1, 1 }, .most = 100000 };
    const tn_tune_point p = find(&w);
    assert_true(p.at[0] == 1 && p.at[1] == 0);
    assert_true(w.excluded > 0); /* more rows, when nothing is recomputed */
}

void tn_tests_tune_search(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof landscapes / sizeof *landscapes; i++)
        tn_test_add(l, near_the_best, &landscapes[i], "tune search: %s", landscapes[i].name);
    tn_test_add(l, noise_takes_nothing, NULL, "tune search: noise takes nothing");
    tn_test_add(l, time_is_up, NULL, "tune search: time is up");
    tn_test_add(l, other_losses, NULL, "tune search: other losses");
    tn_test_add(l, not_measured, NULL, "tune search: what is refused and what does not fit");
}
