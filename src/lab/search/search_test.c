/* Do samplers search? TPE and NSGA-II against random search with equal trials on functions whose shape is known,
 * seed by seed: 15 wins of 20 are needed (sign test, two-sided p = 0.041). Several objectives are compared by
 * hypervolume. TENON_LONG=1 takes more trials. */
#include "lab/search/pareto.h"
#include "lab/search/sampler.h"

#include "optest.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 20, WINS = 15, MOST_TRIALS = 600, MOST_DIMS = 8, MOST_Y = 3 };

static const double PI = 3.14159265358979323846;

#define RANGE(name, from, to)                                                                                          \
    {                                                                                                                  \
        .key = name, .kind = TN_DIM_FLOAT, .lo = from, .hi = to, .when = -1                                            \
    }

static const tn_dim branin_dims[] = { RANGE("x", -5, 10), RANGE("y", 0, 15) };
static void branin(const double *x, double *y)
{
    const double a = x[1] - 5.1 / (4 * PI * PI) * x[0] * x[0] + 5 / PI * x[0] - 6;
    *y = a * a + 10 * (1 - 1 / (8 * PI)) * cos(x[0]) + 10;
}

#define UNIT(name) RANGE(name, 0, 1)
static const tn_dim hartmann_dims[] = { UNIT("a"), UNIT("b"), UNIT("c"), UNIT("d"), UNIT("e"), UNIT("f") };
static void hartmann(const double *x, double *y)
{
    static const double alpha[] = { 1, 1.2, 3, 3.2 };
    static const double A[4][6] = { { 10, 3, 17, 3.5, 1.7, 8 },
                                    { 0.05, 10, 17, 0.1, 8, 14 },
                                    { 3, 3.5, 1.7, 10, 17, 8 },
                                    { 17, 8, 0.05, 10, 0.1, 14 } };
    static const double P[4][6] = { { 1312, 1696, 5569, 124, 8283, 5886 },
                                    { 2329, 4135, 8307, 3736, 1004, 9991 },
                                    { 2348, 1451, 3522, 2883, 3047, 6650 },
                                    { 4047, 8828, 8732, 5743, 1091, 381 } };
    *y = 0;
    for (int i = 0; i < 4; i++) {
        double e = 0;
        for (int j = 0; j < 6; j++) e += A[i][j] * (x[j] - 1e-4 * P[i][j]) * (x[j] - 1e-4 * P[i][j]);
        *y -= alpha[i] * exp(-e);
    }
}

static const tn_dim rosenbrock_dims[] = { RANGE("a", -2, 2), RANGE("b", -2, 2), RANGE("c", -2, 2), RANGE("d", -2, 2) };
static void rosenbrock(const double *x, double *y)
{
    *y = 0;
    for (int i = 0; i < 3; i++) *y += 100 * pow(x[i + 1] - x[i] * x[i], 2) + pow(1 - x[i], 2);
}

#define WIDE(name) RANGE(name, -20, 32)
static const tn_dim ackley_dims[] = { WIDE("a"), WIDE("b"), WIDE("c"), WIDE("d"), WIDE("e") };
static void ackley(const double *x, double *y)
{
    double square = 0, wave = 0;
    for (int i = 0; i < 5; i++) square += x[i] * x[i] / 5, wave += cos(2 * PI * x[i]) / 5;
    *y = 20 + exp(1) - 20 * exp(-0.2 * sqrt(square)) - exp(wave);
}

/* As settings are: a learning rate, a width, a choice, one that another choice brings along, and a step. Least at lr
 * 3e-3, width 96, c, momentum 0.9. */
static const char *const kinds[] = { "a", "b", "c", "d" };
static const tn_dim mixed_dims[] = {
    { .key = "lr", .kind = TN_DIM_FLOAT, .lo = 1e-5, .hi = 1, .log = true, .when = -1 },
    { .key = "width", .kind = TN_DIM_INT, .lo = 4, .hi = 512, .log = true, .when = -1 },
    { .key = "kind", .kind = TN_DIM_CHOICE, .choices = kinds, .n_choices = 4, .when = -1 },
    { .key = "momentum", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 0.99, .step = 0.01, .when = 2, .when_choice = 2 },
    { .key = "layers", .kind = TN_DIM_INT, .lo = 1, .hi = 12, .when = -1 },
};
static void mixed(const double *x, double *y)
{
    static const double base[] = { 1.5, 1, 0, 0.8 };
    const int k = (int)x[2];
    *y = base[k] + pow(log10(x[0] / 3e-3), 2) + 0.3 * pow(log2(x[1] / 96), 2) + 0.05 * pow(x[4] - 7, 2);
    if (k == 2) *y += 3 * pow(x[3] - 0.9, 2);
}

static const tn_dim zdt_dims[] = { UNIT("a"), UNIT("b"), UNIT("c"), UNIT("d"),
                                   UNIT("e"), UNIT("f"), UNIT("g"), UNIT("h") };
static void zdt1(const double *x, double *y)
{
    double g = 1;
    for (int i = 1; i < 8; i++) g += 9.0 / 7 * x[i];
    y[0] = x[0];
    y[1] = g * (1 - sqrt(x[0] / g));
}

static void dtlz2(const double *x, double *y)
{
    double g = 0;
    for (int i = 2; i < 6; i++) g += (x[i] - 0.5) * (x[i] - 0.5);
    y[0] = (1 + g) * cos(x[0] * PI / 2) * cos(x[1] * PI / 2);
    y[1] = (1 + g) * cos(x[0] * PI / 2) * sin(x[1] * PI / 2);
    y[2] = (1 + g) * sin(x[0] * PI / 2);
}

typedef struct problem {
    const char *name, *sampler;
    tn_space s;
    void (*f)(const double *x, double *y);
    size_t objectives;
    int trials, long_trials;
    double least; /* no value can be below it (one objective) */
} problem;

#define SPACE(dims)                                                                                                    \
    {                                                                                                                  \
        dims, sizeof dims / sizeof *dims                                                                               \
    }
static const problem problems[] = {
    { "branin", "tpe", SPACE(branin_dims), branin, 1, 60, 150, 0.397887 },
    { "hartmann6", "tpe", SPACE(hartmann_dims), hartmann, 1, 80, 200, -3.32237 },
    { "rosenbrock", "tpe", SPACE(rosenbrock_dims), rosenbrock, 1, 80, 200, 0 },
    { "ackley", "tpe", SPACE(ackley_dims), ackley, 1, 80, 200, 0 },
    { "mixed", "tpe", SPACE(mixed_dims), mixed, 1, 60, 150, 0 },
    { "zdt1", "tpe", SPACE(zdt_dims), zdt1, 2, 80, 200, 0 },
    { "dtlz2", "tpe", { zdt_dims, 6 }, dtlz2, 3, 80, 200, 0 },
    { "branin", "nsga2", SPACE(branin_dims), branin, 1, 300, 600, 0.397887 },
    { "hartmann6", "nsga2", SPACE(hartmann_dims), hartmann, 1, 300, 600, -3.32237 },
    { "rosenbrock", "nsga2", SPACE(rosenbrock_dims), rosenbrock, 1, 300, 600, 0 },
    { "ackley", "nsga2", SPACE(ackley_dims), ackley, 1, 300, 600, 0 },
    { "mixed", "nsga2", SPACE(mixed_dims), mixed, 1, 300, 600, 0 },
    { "zdt1", "nsga2", SPACE(zdt_dims), zdt1, 2, 300, 600, 0 },
    { "dtlz2", "nsga2", { zdt_dims, 6 }, dtlz2, 3, 300, 600, 0 },
};

/* One study; what it found, to be made small: the best value, or minus the hypervolume. */
static double study(const problem *p, const char *name, uint64_t seed, int trials)
{
    static double x[MOST_TRIALS * MOST_DIMS], y[MOST_TRIALS * MOST_Y];
    const tn_sampler *sampler = tn_sampler_find(name);
    const tn_sampler_options o = { .seed = seed, .trials = trials, .objectives = p->objectives };
    const double reference[MOST_Y] = { 1.1, p->objectives == 2 ? 7 : 1.1, 1.1 };
    assert_ok(sampler->check(&o, &p->s));
    for (int i = 0; i < trials; i++) {
        const tn_observed seen = { .n = (size_t)sampler->needs(&o, i), .objectives = p->objectives, .x = x, .y = y };
        assert_true(seen.n <= (size_t)i);
        assert_ok(sampler->draw(&o, &p->s, &seen, i, x + (size_t)i * p->s.n));
        p->f(x + (size_t)i * p->s.n, y + (size_t)i * p->objectives);
    }
    double best = INFINITY;
    if (p->objectives > 1) {
        assert_ok(tn_hypervolume(y, (size_t)trials, p->objectives, reference, &best));
        return -best;
    }
    for (int i = 0; i < trials; i++) best = fmin(best, y[i]);
    assert_true(best > p->least - 1e-4);
    return best;
}

static void beats_random(void **state)
{
    const problem *p = *state;
    const int trials = getenv("TENON_LONG") ? p->long_trials : p->trials;
    int wins = 0;
    double mean[2] = { 0 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const double ours = study(p, p->sampler, seed, trials), theirs = study(p, "random", seed, trials);
        wins += ours < theirs;
        mean[0] += ours / SEEDS;
        mean[1] += theirs / SEEDS;
    }
    if (getenv("TENON_LONG") || wins < WINS)
        print_message("%s on %s, %d trials: %d of %d, mean %.5g against %.5g\n", p->sampler, p->name, trials, wins,
                      SEEDS, mean[0], mean[1]);
    assert_true(wins >= WINS);
    assert_true(mean[0] < mean[1]);
}

/* Under sanitizers one function is enough: they look at memory, which is the same for all. */
void tn_tests_search(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (!TN_SANITIZED || strcmp(problems[i].name, "mixed") == 0)
            tn_test_add(l, beats_random, &problems[i], "lab/search: %s beats random on %s", problems[i].sampler,
                        problems[i].name);
}
