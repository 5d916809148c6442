/* A study beside published figures: scores against a comparison of all with all, every way the report's rule can
 * decide, the trial that stands beside a published point. */
#include "lab/statistics/published.h"
#include "lab/study/study.h"

#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

enum { MOST = 120, M = 3 };

static const char text[] = "study: s\nbase: xor_tep\ntrials: 9\nsearch: {dim: 4..8}\nsides: {a: {}, b: {}}\n"
                           "objectives: [accuracy max 0, seconds min 100, parameters min 1000]\n"
                           "published: {source: r, sides: {a: {points: [{accuracy: 0.5, parameters: 100}, {accuracy: "
                           "0.5}, {parameters: 5}]}}}\n";

typedef struct world {
    tn_arena arena;
    tn_study_plan plan;
    tn_side sides[2];
    tn_trial trials[MOST];
    double y[MOST][M];
    tn_study s;
} world;

static void open_world(world *w)
{
    *w = (world){ .s.n = 0 };
    assert_ok(tn_study_parse(text, strlen(text), "s.yaml", NULL, 0, &w->arena, &w->plan));
    for (int i = 0; i < 2; i++)
        w->sides[i] = (tn_side){ .name = w->plan.sides[i].name, .space = w->plan.sides[i].space };
    w->s = (tn_study){ .name = "s",
                       .objectives = w->plan.objectives,
                       .n_objectives = M,
                       .sides = w->sides,
                       .n_sides = 2,
                       .published = w->plan.published,
                       .trials = w->trials };
}

static void add(world *w, int side, tn_trial_state state, double accuracy, double seconds, double parameters)
{
    const size_t i = w->s.n++;
    w->y[i][0] = accuracy, w->y[i][1] = seconds, w->y[i][2] = parameters;
    w->trials[i] =
        (tn_trial){ .number = (int64_t)i, .side = side, .state = state, .y = w->y[i], .seconds = 36, .error = "" };
}

static bool beats(const double *a, const double *b)
{
    return a[0] >= b[0] && a[1] <= b[1] && a[2] <= b[2] && (a[0] > b[0] || a[1] < b[1] || a[2] < b[2]);
}

/* On the front of its side: done, more than nothing right, and nothing of the side beats it. */
static bool on_front(const world *w, size_t i)
{
    if (w->trials[i].state != TN_TRIAL_DONE || !(w->y[i][0] > 0)) return false;
    for (size_t k = 0; k < w->s.n; k++)
        if (w->trials[k].side == w->trials[i].side && w->trials[k].state == TN_TRIAL_DONE && beats(w->y[k], w->y[i]))
            return false;
    return true;
}

static void scores(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        world w;
        tn_against_published b;
        size_t front[2] = { 0 }, unbeaten[2] = { 0 };
        const tn_rng r = { .seed = seed, .stream = tn_rng_stream("beside") };
        open_world(&w);
        for (int i = 0; i < MOST; i++) {
            const uint64_t at = 3 * (uint64_t)i;
            const double u = (double)tn_rng_below(r, at, 9) / 8, v = (double)tn_rng_below(r, at + 1, 8),
                         z = (double)tn_rng_below(r, at + 2, 8);
            add(&w, i & 1, i % 7 == 3 ? TN_TRIAL_PRUNED : TN_TRIAL_DONE, u, v + 8 * u, z + 4 * u);
        }
        for (size_t i = 0; i < MOST; i++) {
            bool beaten = false;
            for (size_t k = 0; k < MOST; k++)
                beaten |= w.trials[k].side != w.trials[i].side && on_front(&w, k) && beats(w.y[k], w.y[i]);
            front[i & 1] += on_front(&w, i);
            unbeaten[i & 1] += on_front(&w, i) && !beaten;
        }
        assert_ok(tn_against_published_make(&w.s, &w.arena, &b));
        for (int side = 0; side < 2; side++) {
            assert_int_equal(b.sides[side].front, front[side]);
            assert_int_equal(b.sides[side].nondominated, unbeaten[side]);
            assert_true(fabs(b.sides[side].hours - 0.6) < 1e-12); /* 60 trials of 36 s, pruned ones too */
        }
        assert_true(front[0] > 1 && unbeaten[0] < front[0]);
        if (unbeaten[0] != unbeaten[1]) assert_int_equal(b.winner, unbeaten[1] > unbeaten[0]);
        if (b.sides[0].volume != b.sides[1].volume) assert_int_equal(b.larger, b.sides[1].volume > b.sides[0].volume);
        tn_arena_free(&w.arena);
    }
}

typedef struct decision {
    const char *name;
    double a[2][M], b[2][M]; /* two trials of each side; accuracy 0: none */
    int winner, larger;
    const char *decided;
} decision;

static const decision decisions[] = {
    { "by points",
      { { 0.9, 5, 50 }, { 0.5, 1, 50 } },
      { { 0.8, 6, 60 }, { 0.95, 9, 90 } },
      0,
      0,
      "no other front dominates" },
    { "by accuracy", { { 0.9, 5, 50 } }, { { 0.8, 4, 50 } }, 0, 0, "more than 0.05" },
    { "by seconds", { { 0.9, 5, 50 } }, { { 0.88, 4, 50 } }, 1, 0, "the faster of these" },
    { "not at all", { { 0.9, 5, 50 } }, { { 0.9, 5, 50 } }, -1, -1, "a tie" },
    { "with one side only", { { 0.9, 5, 50 } }, { { 0, 5, 50 } }, 0, 0, "no other front dominates" },
};

static void decides(void **state)
{
    const decision *d = *state;
    world w;
    tn_against_published b;
    open_world(&w);
    for (int i = 0; i < 2; i++) {
        if (d->a[i][1] > 0) add(&w, 0, TN_TRIAL_DONE, d->a[i][0], d->a[i][1], d->a[i][2]);
        if (d->b[i][1] > 0) add(&w, 1, TN_TRIAL_DONE, d->b[i][0], d->b[i][1], d->b[i][2]);
    }
    assert_ok(tn_against_published_make(&w.s, &w.arena, &b));
    assert_int_equal(b.winner, d->winner);
    assert_int_equal(b.larger, d->larger);
    assert_non_null(strstr(b.decided, d->decided));
    tn_arena_free(&w.arena);
}

static void nearest(void **state)
{
    (void)state;
    world w;
    tn_against_published b;
    open_world(&w);
    add(&w, 0, TN_TRIAL_DONE, 0.9, 5, 101);   /* too large */
    add(&w, 0, TN_TRIAL_DONE, 0.8, 5, 100);   /* good, and ... */
    add(&w, 0, TN_TRIAL_DONE, 0.8, 5, 90);    /* ... this is as good and smaller */
    add(&w, 0, TN_TRIAL_PRUNED, 0.85, 5, 50); /* not done */
    add(&w, 1, TN_TRIAL_DONE, 0.99, 5, 50);   /* another side's */
    add(&w, 0, TN_TRIAL_DONE, NAN, 5, 50);    /* not known */
    assert_ok(tn_against_published_make(&w.s, &w.arena, &b));
    assert_int_equal(b.n_points, 3);
    assert_ptr_equal(b.points[0].ours, &w.trials[2]);
    assert_null(b.points[1].ours); /* its parameters are not said */
    assert_null(b.points[2].ours); /* nothing so small */
    assert_ptr_equal(b.sides[0].best[0], &w.trials[0]);
    assert_ptr_equal(b.sides[0].best[1], &w.trials[0]); /* all as fast: the better one */
    tn_arena_free(&w.arena);
}

void tn_tests_published(tn_test_list *l)
{
    tn_test_add(l, scores, NULL, "lab/published: scores");
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        tn_test_add(l, decides, &decisions[i], "lab/published: decides %s", decisions[i].name);
    tn_test_add(l, nearest, NULL, "lab/published: ours next to a published point");
}
