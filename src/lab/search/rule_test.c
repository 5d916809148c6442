/* Rules: texts good and bad, and series of values with the step at which each rule stops them, worked by hand. */
#include "lab/search/pruner.h"

#include "testlib.h"

#include <math.h>
#include <string.h>

typedef struct good_rule {
    const char *text, *metric;
    int compare;
    double value;
    int64_t streak, after;
    bool epochs;
} good_rule;

static const good_rule good[] = {
    { "spectral_radius > 1.02 for 50 steps", "spectral_radius", '>', 1.02, 50, 0, false },
    { "solver_iters at cap for 20 steps", "solver_iters", 'c', 0, 20, 0, false },
    { "loss is nan", "loss", 'n', 0, 1, 0, false },
    { "accuracy < 0.2 after 5 epochs", "accuracy", '<', 0.2, 1, 5, true },
    { "loss>=1e3", "loss", 'g', 1e3, 1, 0, false },
    { " val.loss<= -2 after 1k steps for 1 step ", "val.loss", 'l', -2, 1, 1000, false },
    { "loss > 5 for 3 steps after 1 epoch", "loss", '>', 5, 3, 1, true },
};

static const char *const bad[][2] = {
    { "", "name of a metric" },
    { "> 3", "name of a metric" },
    { "loss", "must be followed by <" },
    { "loss = 3", "must be followed by <" },
    { "loss above 3", "must be followed by <" },
    { "loss >", "followed by a number" },
    { "loss > x", "followed by a number" },
    { "loss > nan", "followed by a number" },
    { "loss > 1e999", "followed by a number" },
    { "loss is inf", "only `nan`" },
    { "loss isnan", "must be followed by <" },
    { "iters at max", "only `cap`" },
    { "loss > 3 for", "whole number" },
    { "loss > 3 for 0 steps", "whole number" },
    { "loss > 3 for -2 steps", "whole number" },
    { "loss > 3 for 1.5 steps", "whole number" },
    { "loss > 3 for 5", "steps or epochs" },
    { "loss > 3 for 5 minutes", "steps or epochs" },
    { "loss > 3 for 5 epochs", "not epochs" },
    { "loss > 3 for 5 steps for 6 steps", "neither" },
    { "loss > 3 until 5 steps", "neither" },
    { "a_metric_whose_name_is_far_too_long_to_be_one_of_ours_and_goes_on_and_on > 3", "name of a metric" },
};

static void good_texts(void **state)
{
    const good_rule *g = *state;
    tn_rule r = { .held = 9 };
    assert_ok(tn_rule_parse(g->text, &r));
    assert_string_equal(r.metric, g->metric);
    assert_int_equal(r.compare, g->compare);
    assert_true(r.value == g->value && r.streak == g->streak && r.after == g->after && r.after_epochs == g->epochs &&
                r.held == 0);
}

static void bad_texts(void **state)
{
    const char *const *b = *state;
    tn_rule r = { .streak = 77 };
    assert_fails(tn_rule_parse(b[0], &r), TN_USAGE, b[1]);
    assert_int_equal(r.streak, 77);
}

enum { LONGEST = 10 };

/* Values at steps 0, every, 2 every, ...; ten steps are an epoch. */
typedef struct series {
    const char *text;
    int64_t every, n;
    double v[LONGEST], cap;
    int64_t stops; /* at this step; -1: never */
} series;

static const series table[] = {
    { "r > 1 for 3 steps", 1, 8, { 2, 2, 0, 2, 2, 2, 0, 0 }, NAN, 5 },
    { "r > 1 for 3 steps", 1, 8, { 2, 2, 1, 2, 2, 1, 2, 2 }, NAN, -1 },
    { "r > 1", 1, 3, { 1, 1, 1.5 }, NAN, 2 },
    { "r >= 1", 1, 3, { 1, 1, 1.5 }, NAN, 0 },
    { "r < 0 for 2 steps", 1, 5, { -1, NAN, -1, 0, 0 }, NAN, 2 }, /* NaN waits, it does not break the streak */
    { "r <= 0 for 2 steps", 1, 5, { 0, 1, -INFINITY, 0, 3 }, NAN, 3 },
    { "r > 1 for 15 steps", 10, 4, { 2, 2, 2, 2 }, NAN, 20 }, /* held 1, 11, 21 steps */
    { "r at cap for 2 steps", 1, 5, { 50, 49, 50, 50, 2 }, 50, 3 },
    { "r at cap", 1, 3, { 50, 51, INFINITY }, NAN, -1 },
    { "r is nan", 1, 4, { 1, 2, NAN, 1 }, NAN, 2 },
    { "r is nan", 1, 4, { 1, INFINITY, NAN, 1 }, NAN, 1 },
    { "r is nan for 2 steps", 1, 4, { NAN, 1, NAN, NAN }, NAN, 3 },
    { "r < 1 after 2 epochs", 5, 6, { 0, 0, 0, 0, 0, 0 }, NAN, 20 },
    { "r < 1 after 3 steps", 1, 6, { 0, 0, 0, 0, 0, 0 }, NAN, 3 },
    { "r < 1 after 3 steps for 2 steps", 1, 6, { 0, 0, 0, 0, 0, 0 }, NAN, 4 }, /* begins where it is first asked */
};

static void stops_at(void **state)
{
    const series *s = *state;
    tn_rule r;
    int64_t stopped = -1;
    assert_ok(tn_rule_parse(s->text, &r));
    for (int64_t i = 0; i < s->n && stopped < 0; i++)
        if (tn_rule_step(&r, i * s->every, (double)(i * s->every) / 10, s->v[i], s->cap)) stopped = i * s->every;
    assert_int_equal(stopped, s->stops);
}

void tn_tests_rule(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        tn_test_add(l, good_texts, &good[i], "lab/rule: reads \"%s\"", good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        tn_test_add(l, bad_texts, bad[i], "lab/rule: refuses \"%s\"", bad[i][0]);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        tn_test_add(l, stops_at, &table[i], "lab/rule: \"%s\" stops series %zu at %d", table[i].text, i,
                    (int)table[i].stops);
}
