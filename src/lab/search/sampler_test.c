/* What all samplers keep to: same bits for the same number and past, values of the space, nothing from trials they
 * did not ask for. The grid has every point once; NSGA-II keeps the best of all generations; trials that failed or
 * were pruned are no examples. How well they search: search_test.c. */
#include "lab/search/samplers.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

static const char *const act[] = { "relu", "gelu" };
static const tn_dim dims[] = {
    { .key = "lr", .kind = TN_DIM_FLOAT, .lo = 1e-4, .hi = 1e-1, .log = true, .when = -1 },
    { .key = "act", .kind = TN_DIM_CHOICE, .choices = act, .n_choices = 2, .when = -1 },
    { .key = "width", .kind = TN_DIM_INT, .lo = 4, .hi = 512, .log = true, .when = -1 },
    { .key = "slope", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = 1, .when_choice = 1 },
};
static const tn_space space = { dims, 4 };

static void table(void **state)
{
    (void)state;
    size_t n = 0;
    for (; tn_sampler_name(n); n++) {
        const tn_sampler *s = tn_sampler_find(tn_sampler_name(n));
        assert_non_null(s);
        assert_string_equal(s->name, tn_sampler_name(n));
        assert_true(s->needs && s->count && s->check && s->draw);
    }
    assert_int_equal(n, 4);
    assert_null(tn_sampler_find("annealing"));
}

static void random_draws(void **state)
{
    (void)state;
    const tn_sampler *s = tn_sampler_find("random");
    const tn_sampler_options o = { .seed = 42, .objectives = 1 }, other = { .seed = 43, .objectives = 1 };
    const tn_observed none = { 0 };
    enum { N = 20000 };
    double mean[3] = { 0 }, gelu = 0, x[4], again[4];
    assert_ok(s->check(&o, &space));
    for (int64_t i = 0; i < N; i++) {
        assert_int_equal(s->needs(&o, i), 0);
        assert_ok(s->draw(&o, &space, &none, i, x));
        assert_ok(s->draw(&o, &space, &none, i, again));
        assert_memory_equal(x, again, sizeof x);
        assert_true(isnan(x[3]) == (x[1] == 0));
        for (size_t d = 0; d < 3; d++) mean[d] += tn_dim_place(&dims[d], x[d]) / N;
        gelu += x[1] / N;
        assert_ok(s->draw(&other, &space, &none, i, again));
        assert_true(x[0] != again[0]);
    }
    for (size_t d = 0; d < 3; d++) assert_true(fabs(mean[d] - 0.5) < 0.01);
    assert_true(fabs(gelu - 0.5) < 0.012);
}

/* --- the grid ----------------------------------------------------------------------------------------------------- */

static const char *const three[] = { "a", "b", "c" };
static const tn_dim counted[] = {
    { .key = "k", .kind = TN_DIM_CHOICE, .choices = three, .n_choices = 3, .when = -1 },
    { .key = "n", .kind = TN_DIM_INT, .lo = 2, .hi = 5, .when = 0, .when_choice = 0 },
    { .key = "act", .kind = TN_DIM_CHOICE, .choices = act, .n_choices = 2, .when = 0, .when_choice = 2 },
    { .key = "slope", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 0.4, .step = 0.1, .when = 2, .when_choice = 1 },
    { .key = "size", .kind = TN_DIM_INT, .lo = 8, .hi = 16, .step = 8, .when = -1 },
};

static bool same(const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

/* a: 4 n; b: 1; c: relu 1, gelu 5 slopes; each with 2 sizes: 22. */
static void grid_once(void **state)
{
    (void)state;
    enum { POINTS = 22, DIMS = 5 };
    const tn_sampler *g = tn_sampler_find("grid");
    const tn_sampler_options o = { 0 };
    const tn_space s = { counted, DIMS };
    double x[POINTS][DIMS], off[DIMS];
    assert_ok(g->check(&o, &s));
    assert_int_equal(g->count(&s), POINTS);
    for (int64_t i = 0; i < POINTS; i++) {
        assert_ok(g->draw(&o, &s, NULL, i, x[i]));
        memcpy(off, x[i], sizeof off);
        tn_space_apply_when(&s, off);
        assert_true(same(off, x[i], DIMS));
        for (size_t d = 0; d < DIMS; d++)
            assert_true(isnan(x[i][d]) || tn_dim_at(&counted[d], tn_dim_place(&counted[d], x[i][d])) == x[i][d]);
        for (int64_t j = 0; j < i; j++) assert_false(same(x[i], x[j], DIMS));
    }
    assert_true(x[0][0] == 0 && x[0][1] == 2 && x[0][4] == 8 && x[1][4] == 16 && x[2][1] == 3);
    assert_fails(g->draw(&o, &s, NULL, POINTS, off), TN_USAGE, "22 points");
    assert_fails(g->check(&o, &space), TN_USAGE, "lr: a grid needs countable values");
    tn_dim many[30];
    for (size_t i = 0; i < 30; i++) many[i] = counted[0], many[i].key = NULL;
    assert_fails(g->check(&o, &(tn_space){ many, 30 }), TN_USAGE, "more than 10000000");
    for (size_t i = 1; i < 30; i++) many[i].when = (int)i - 1; /* each hangs on the one before: 2 points a level */
    assert_int_equal(g->count(&(tn_space){ many, 30 }), 61);
}

/* --- samplers that learn ------------------------------------------------------------------------------------------ */

enum { N = 80, DIMS = 4 };

typedef struct past {
    double x[N * DIMS], y[N * 2];
    bool pruned[N];
} past;

/* Random points; the second objective is the square of the distance from the middle. */
static void past_make(past *p, size_t objectives)
{
    const tn_sampler_options o = { .seed = 9 };
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < N; i++) {
        double *x = p->x + i * DIMS, *y = p->y + i * objectives;
        assert_ok(tn_sampler_find("random")->draw(&o, &space, NULL, (int64_t)i, x));
        y[0] = x[0] + (x[1] == 0) + (isnan(x[3]) ? 0 : x[3]);
        if (objectives > 1) y[1] = pow(tn_dim_place(&dims[2], x[2]) - 0.5, 2);
    }
}

static const char *const learning[] = { "tpe", "nsga2" };

static void depends_on_needs_only(void **state)
{
    const char *name = *state;
    const tn_sampler *s = tn_sampler_find(name);
    for (size_t objectives = 1; objectives <= 2; objectives++) {
        const tn_sampler_options o = { .seed = 3, .lag = 7, .population = 12, .objectives = objectives };
        static past p, q;
        past_make(&p, objectives);
        int64_t before = 0;
        bool learns = false;
        for (int64_t i = 0; i < N; i++) {
            const int64_t needs = s->needs(&o, i);
            double x[DIMS], again[DIMS], fit[DIMS];
            assert_true(needs >= before && needs <= i); /* trials are drawn in order, so needs never fall */
            before = needs;
            const tn_observed seen = {
                .n = (size_t)needs, .objectives = objectives, .x = p.x, .y = p.y, .pruned = p.pruned
            };
            assert_ok(s->draw(&o, &space, &seen, i, x));
            assert_ok(s->draw(&o, &space, &seen, i, again));
            assert_memory_equal(x, again, sizeof x);
            memcpy(fit, x, sizeof fit);
            tn_space_apply_when(&space, fit);
            assert_true(same(fit, x, DIMS));
            for (size_t d = 0; d < DIMS; d++)
                assert_true(isnan(x[d]) || d == 1 || (x[d] >= dims[d].lo && x[d] <= dims[d].hi));
            assert_true(x[2] == floor(x[2]));
            q = p; /* other values where it did not ask: nothing changes */
            for (size_t k = (size_t)needs; k < N; k++) q.x[k * DIMS] *= 0.5, q.y[k * objectives] = -1e9;
            const tn_observed more = { .n = N, .objectives = objectives, .x = q.x, .y = q.y, .pruned = q.pruned };
            assert_ok(s->draw(&o, &space, &more, i, again));
            assert_memory_equal(x, again, sizeof x);
            if (needs == 0) continue;
            for (size_t k = 0; k < (size_t)needs; k++) q.y[k * objectives] = -q.y[k * objectives];
            assert_ok(s->draw(&o, &space, &more, i, again));
            learns |= memcmp(x, again, sizeof x) != 0;
        }
        assert_true(learns);
    }
}

/* Parents are only what is good: all but a few trials failed, were pruned or are beaten, so children without new
 * genes mix those few. */
static void only_the_best_breed(void **state)
{
    (void)state;
    const tn_sampler *s = tn_sampler_find("nsga2");
    tn_sampler_options o = { .seed = 3, .population = 10, .mutation = 1e-12, .uniform = true, .objectives = 1 };
    static past p;
    past_make(&p, 1);
    for (size_t i = 0; i < N; i++) { /* good: 3, 17 and 44, from three generations; better still, but pruned: 5 */
        p.y[i] = i == 3 || i == 17 || i == 44 ? 0 : i % 3 ? 1 + (double)i : INFINITY;
        p.pruned[i] = i == 5;
    }
    p.y[5] = -1;
    int best = 0, count = 0;
    for (int64_t i = 50; i < 300; i++) {
        double x[DIMS];
        o.seed = (uint64_t)i;
        const tn_observed seen = { .n = 70, .objectives = 1, .x = p.x, .y = p.y, .pruned = p.pruned };
        assert_ok(s->draw(&o, &space, &seen, 70, x));
        count++;
        best += x[0] == p.x[3 * DIMS] || x[0] == p.x[17 * DIMS] || x[0] == p.x[44 * DIMS];
        assert_true(x[0] != p.x[5 * DIMS]); /* the pruned one is behind all that ended, and ten did */
    }
    assert_true(best > count / 3); /* three of ten parents, favoured by tournaments: about a half */
}

/* Where numbers are mutated by a step, children lie near: nearer with a larger eta, on both sides, within the range
 * at its very end; one in ten is drawn anew. Parents apart from each other have children between and around them. */
static void children_are_near(void **state)
{
    (void)state;
    enum { POPULATION = 10, DRAWS = 400 };
    static const struct {
        double at, apart, crossover, mutation, eta, least,
            most; /* share of children within a tenth of the parents' range */
    } rows[] = {
        { 0.5, 0, 1e-12, 1, 0, 0.8, 0.97 }, { 0.5, 0, 1e-12, 1, 2, 0.3, 0.7 },  { 0, 0, 1e-12, 1, 0, 0.65, 0.95 },
        { 1, 0, 1e-12, 1, 0, 0.65, 0.95 },  { 0.3, 0.4, 1, 1e-12, 0, 0.97, 1 }, { 0, 1, 1, 1e-12, 0, 1, 1 },
    };
    const tn_sampler *s = tn_sampler_find("nsga2");
    const tn_dim line = { .key = "v", .kind = TN_DIM_FLOAT, .lo = 2, .hi = 4, .when = -1 };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const tn_sampler_options o = { .seed = 3,
                                       .population = POPULATION,
                                       .crossover = rows[r].crossover,
                                       .mutation = rows[r].mutation,
                                       .eta = rows[r].eta,
                                       .objectives = 1 };
        double x[POPULATION], y[POPULATION] = { 0 }, near = 0, below = 0;
        for (size_t i = 0; i < POPULATION; i++) x[i] = 2 + 2 * (rows[r].at + (i % 2 ? rows[r].apart : 0));
        const tn_observed seen = { .n = POPULATION, .objectives = 1, .x = x, .y = y };
        for (uint64_t seed = 0; seed < DRAWS; seed++) {
            tn_sampler_options other = o;
            double v, again;
            other.seed = seed;
            assert_ok(s->draw(&other, &(tn_space){ &line, 1 }, &seen, POPULATION + 1, &v));
            assert_ok(s->draw(&other, &(tn_space){ &line, 1 }, &seen, POPULATION + 1, &again));
            assert_true(v == again && v >= 2 && v <= 4);
            const double place = (v - 2) / 2;
            near += place > rows[r].at - 0.1 && place < rows[r].at + rows[r].apart + 0.1;
            below += place < rows[r].at + rows[r].apart / 2;
        }
        if (near < rows[r].least * DRAWS || near > rows[r].most * DRAWS)
            fail_msg("row %zu: %g of %d near", r, near, DRAWS);
        if (rows[r].at > 0 && rows[r].at < 1) assert_true(below > 0.4 * DRAWS && below < 0.6 * DRAWS);
    }
}

/* Ten good trials lie in one place; 60 better-looking ones were pruned elsewhere: draws must gather where the good
 * ones are. */
static void pruned_are_no_examples(void **state)
{
    (void)state;
    const tn_sampler *s = tn_sampler_find("tpe");
    const tn_sampler_options o = { .seed = 3, .objectives = 1 };
    const tn_dim line = { .key = "v", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = -1 };
    double x[70], y[70], v, near = 0;
    bool pruned[70];
    for (size_t i = 0; i < 70; i++) {
        pruned[i] = i % 7 != 0;
        x[i] = pruned[i] ? 0.7 + 0.3 * (double)i / 70 : 0.1 + 0.001 * (double)i;
        y[i] = pruned[i] ? 0 : 1 + (double)i;
    }
    const tn_observed seen = { .n = 70, .objectives = 1, .x = x, .y = y, .pruned = pruned };
    for (uint64_t seed = 0; seed < 50; seed++) {
        tn_sampler_options other = o;
        other.seed = seed;
        assert_ok(s->draw(&other, &(tn_space){ &line, 1 }, &seen, 70, &v));
        near += v < 0.5;
    }
    assert_true(near >= 45);
}

static void all_failed(void **state)
{
    const char *name = *state;
    const tn_sampler *s = tn_sampler_find(name);
    static past p;
    past_make(&p, 2);
    for (size_t i = 0; i < 2 * N; i++) p.y[i] = i % 2 ? NAN : INFINITY;
    const tn_sampler_options o = { .seed = 3, .objectives = 2, .population = 10 };
    const tn_observed seen = { .n = 70, .objectives = 2, .x = p.x, .y = p.y, .pruned = p.pruned };
    double x[DIMS];
    assert_ok(s->draw(&o, &space, &seen, 70, x));
    assert_true(x[0] >= dims[0].lo && x[0] <= dims[0].hi);
}

/* Fronts of those that ended, then of those pruned, then what failed; in a front the ends before the crowded middle. */
static void order_of_trials(void **state)
{
    (void)state;
    const double y[] = { 9, 9, 0, 4, 2, 2, 1, 3, NAN, 0, 4, 0, -9, -9, -8, -8 };
    const bool pruned[] = { false, false, false, false, false, false, true, true };
    const tn_observed seen = { .n = 8, .objectives = 2, .y = y, .pruned = pruned };
    const size_t which[] = { 7, 0, 1, 2, 3, 4, 5, 6 }, want[] = { 2, 6, 3, 4, 1, 7, 0, 5 };
    const int ranks[] = { 3, 1, 0, 0, 0, 4, 0, 2 };
    int rank[8];
    double crowding[8];
    size_t order[8];
    assert_ok(tn_observed_ranks(&seen, which, 8, rank, crowding));
    assert_memory_equal(rank, ranks, sizeof rank);
    assert_ok(tn_rank_order(rank, crowding, 8, order));
    /* of the front (0,4) (1,3) (2,2) (4,0) the middle ones have 0.5 + 0.5 and 0.75 + 0.75 */
    for (size_t i = 0; i < 8; i++) assert_int_equal(order[i], want[i]);
}

static void options_refused(void **state)
{
    (void)state;
    const tn_sampler *tpe = tn_sampler_find("tpe"), *nsga2 = tn_sampler_find("nsga2");
    assert_fails(nsga2->check(&(tn_sampler_options){ .population = 1 }, &space), TN_USAGE, "population 1");
    assert_fails(nsga2->check(&(tn_sampler_options){ .mutation = 1.5 }, &space), TN_USAGE, "between 0 and 1");
    assert_fails(nsga2->check(&(tn_sampler_options){ .swap = NAN }, &space), TN_USAGE, "between 0 and 1");
    assert_fails(nsga2->check(&(tn_sampler_options){ .eta = -1 }, &space), TN_USAGE, "outside 0..1000");
    assert_fails(tpe->check(&(tn_sampler_options){ .lag = -1 }, &space), TN_USAGE, "lag");
    assert_fails(tpe->check(&(tn_sampler_options){ 0 }, &(tn_space){ dims, 0 }), TN_USAGE, "no dimension");
    const tn_sampler_options report = { .trials = 300 }, few = { .trials = 5 }, many = { .trials = 100000 };
    assert_int_equal(nsga2->needs(&report, 33), 0); /* 34 for 300 trials */
    assert_int_equal(nsga2->needs(&report, 34), 34);
    assert_int_equal(nsga2->needs(&few, 10), 10);
    assert_int_equal(nsga2->needs(&many, 99), 50);
    assert_int_equal(tpe->needs(&(tn_sampler_options){ .lag = 32 }, 41), 0);
    assert_int_equal(tpe->needs(&(tn_sampler_options){ .lag = 32 }, 42), 10);
    double x[DIMS];
    assert_fails(tpe->draw(&(tn_sampler_options){ 0 }, &space, &(tn_observed){ .n = 3, .objectives = 1 }, 20, x),
                 TN_INTERNAL, "too early");
    assert_fails(nsga2->draw(&report, &space, &(tn_observed){ .n = 3, .objectives = 1 }, 40, x), TN_INTERNAL,
                 "too early");
}

void tn_tests_sampler(tn_test_list *l)
{
    tn_test_add(l, table, NULL, "lab/sampler: the table");
    tn_test_add(l, random_draws, NULL, "lab/sampler: random, same bits and even shares");
    tn_test_add(l, grid_once, NULL, "lab/sampler: the grid has every point once");
    for (size_t i = 0; i < 2; i++) {
        tn_test_add(l, depends_on_needs_only, learning[i], "lab/sampler: %s draws from what it asked for only",
                    learning[i]);
        tn_test_add(l, all_failed, learning[i], "lab/sampler: %s where all trials failed", learning[i]);
    }
    tn_test_add(l, only_the_best_breed, NULL, "lab/sampler: nsga2 breeds the best of all generations");
    tn_test_add(l, children_are_near, NULL, "lab/sampler: nsga2 has children near their parents");
    tn_test_add(l, pruned_are_no_examples, NULL, "lab/sampler: tpe takes no example from pruned trials");
    tn_test_add(l, order_of_trials, NULL, "lab/sampler: the order of trials");
    tn_test_add(l, options_refused, NULL, "lab/sampler: options and what is needed");
}
