/* Comparisons: who is chosen at each effort, who speaks for a side, and verdicts that can be told beforehand. */
#include "lab/statistics/compare.h"
#include "lab/statistics/select.h"
#include "lab/statistics/standings.h"
#include "lab/db/trials.h"
#include "tempdir.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

static const char text[] =
    "study: s\nbase: xor_tep\ntrials: 12\nsearch: {dim: 4..64}\nsides: {a: {}, b: {}}\nobjectives: [accuracy max 0]\n";
static const char three[] = "study: s\nbase: xor_tep\ntrials: 12\nsearch: {dim: 4..64}\nsides: {a: {}, b: {}, idle: "
                            "{}}\nobjectives: [accuracy max 0]\n";

typedef struct world {
    tn_tempdir dir;
    tn_arena arena;
    tn_study_plan plan;
    tn_lab *lab;
    int64_t study, worker;
} world;

static void end_one(world *w, bool compare, double (*accuracy)(const tn_claim *, double *validation))
{
    tn_claim c;
    tn_claimed got;
    double x[1], validation = NAN;
    bool lost;
    char value[128];
    assert_ok(tn_lab_claim(w->lab, w->study, &w->plan, w->worker, &(tn_trial_filter){ .compare = compare, .sides = 3 },
                           &c, x, &got));
    assert_int_equal(got, TN_CLAIM_GOT);
    if (!c.has_x) assert_ok(tn_lab_point(w->lab, &c, (double[]){ 4 + (double)c.number }, 1, &lost));
    const double y = accuracy(&c, &validation);
    snprintf(value, sizeof value, "{\"accuracy\":%.17g,\"block_evals\":%d}", validation, c.side == 0 ? 100 : 400);
    const tn_report r = { .rung = 1, .step = 10, .epoch = 1, .seconds = 1, .score = 0, .value = value };
    const tn_ending e = { .state = isnan(y) ? TN_TRIAL_FAILED : TN_TRIAL_DONE,
                          .y = &y,
                          .seconds = c.side == 0 ? 2 : 1,
                          .parameters = 9,
                          .seed = c.seed };
    assert_ok(tn_lab_end(w->lab, &c, &r, 1, &e, 1, &lost));
}

/* Side a gets better with its numbers; b's best is its number 2; its number 5 failed. A trial of a takes twice the
 * time and a quarter of the evaluations. */
static double search_result(const tn_claim *c, double *validation)
{
    const double y = c->side == 0     ? 0.5 + 0.01 * (double)c->number
                     : c->number == 5 ? NAN
                                      : 0.8 - 0.01 * fabs((double)c->number - 2);
    *validation = isnan(y) ? 0 : y;
    return y;
}

/* The first two sides have run. */
static void open_world(world *w, const char *study)
{
    char path[400];
    bool found;
    *w = (world){ .lab = NULL };
    tn_tempdir_make_quick(&w->dir);
    snprintf(path, sizeof path, "%s/lab.db", w->dir.path);
    assert_ok(tn_study_parse(study, strlen(study), "s.yaml", NULL, 0, &w->arena, &w->plan));
    assert_ok(tn_study_check(&w->plan));
    assert_ok(tn_lab_open(path, true, &w->lab));
    assert_ok(tn_lab_begin(w->lab, &w->plan, study, NULL, 0, &w->study, &found));
    assert_ok(tn_lab_fill(w->lab, w->study, &w->plan, 12));
    assert_ok(tn_lab_join(w->lab, &w->worker));
    for (int i = 0; i < 24; i++) end_one(w, false, search_result);
}

static void close_world(world *w)
{
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
    tn_tempdir_remove_all(&w->dir);
}

static void who_is_chosen(void **state)
{
    (void)state;
    world w;
    tn_study *s;
    tn_comparison c;
    open_world(&w, text);
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    assert_ok(tn_compare_pick(s, w.lab, 0, 2, &w.arena, &c));
    const tn_contenders *k = c.contenders;
    assert_true(c.effort[TN_EFFORT_TRIALS] == 12 && c.effort[TN_EFFORT_SECONDS] == 12 &&
                c.effort[TN_EFFORT_EVALUATIONS] == 1200);
    assert_true(k[0].considered == 12 && k[0].n == 2 && k[0].trial[0]->number == 11 && k[0].trial[1]->number == 10);
    assert_true(k[1].considered == 12 && k[1].trial[0]->number == 2 &&
                k[1].trial[1]->number == 1);                         /* a tie with 3 goes to the lower */
    assert_true(k[2].considered == 6 && k[2].trial[0]->number == 5); /* 12 seconds are 6 trials of a */
    assert_true(k[3].considered == 12 && k[5].considered == 3 &&
                k[5].trial[0]->number == 2); /* 1200 evaluations are 3 of b */
    tn_study_free(s);
    close_world(&w);
}

/* Of a's points, number 10 does better on validation and worse on test than 11: it speaks for a all the same. */
static double again(const tn_claim *c, double *validation, double gap)
{
    const double noise = 0.01 * sin(12.9898 * (double)c->seed);
    *validation = c->side == 0 && c->number % 2 == 1 ? 0.7 : 0.6;
    return 0.9 + noise + (c->side == 0 ? gap + 0.004 * cos(78.233 * (double)c->seed) : 0);
}
static double a_is_better(const tn_claim *c, double *validation) { return again(c, validation, 0.05); }
static double b_is_better(const tn_claim *c, double *validation) { return again(c, validation, -0.05); }
static double as_good(const tn_claim *c, double *validation) { return again(c, validation, 0); }

static void verdicts(void **state)
{
    (void)state;
    double (*const result[])(const tn_claim *, double *) = { a_is_better, b_is_better, as_good };
    static const int better[] = { 1, -1, 0 };
    for (int i = 0; i < 3; i++) {
        world w;
        tn_study *s;
        tn_comparison c;
        tn_verdict *v;
        size_t n, trials = 0;
        open_world(&w, text);
        assert_ok(tn_lab_load(w.lab, NULL, &s));
        assert_ok(tn_compare_pick(s, w.lab, 0, 2, &w.arena, &c));
        assert_fails(tn_compare_judge(s, w.lab, &c, NAN, &w.arena, &v, &n), TN_USAGE, "no common seed");
        for (size_t k = 0; k < 6; k++)
            for (size_t m = 0; m < c.contenders[k].n; m++)
                for (uint64_t seed = 1000; seed < 1010; seed++, trials++)
                    assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, k % 2, TN_TRIAL_COMPARE,
                                             c.contenders[k].trial[m]->id, seed, c.contenders[k].trial[m]->x));
        tn_study_free(s);
        for (size_t k = 0; k < trials; k++) end_one(&w, true, result[i]);
        assert_ok(tn_lab_load(w.lab, NULL, &s));
        assert_ok(tn_compare_pick(s, w.lab, 0, 2, &w.arena, &c));
        assert_ok(tn_compare_judge(s, w.lab, &c, NAN, &w.arena, &v, &n));
        assert_int_equal(n, 3);
        assert_true(v[0].first == 0 && v[1].first == 1 &&
                    v[2].first == 0); /* equal trials and equal evaluations compare the same two points */
        assert_true(v[2].p_adjusted == v[0].p_adjusted && v[2].judged.word == v[0].judged.word);
        assert_true(fmin(v[0].p_adjusted / v[0].paired.p, v[1].p_adjusted / v[1].paired.p) <=
                    2); /* so two are corrected for, not three */
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(v[k].judged.comparisons, 2);
            assert_int_equal(v[k].judged.better, better[i]);
            assert_true(v[k].paired.n >= 10 && v[k].paired.lo <= v[k].paired.difference &&
                        v[k].paired.difference <= v[k].paired.hi);
            assert_true(v[k].p_adjusted >= v[k].paired.p && v[k].a == 0 && v[k].b == 1 && v[k].judged.effect == 0.005);
        }
        if (!better[i]) { /* too small to be seen; a larger one would have been */
            assert_ok(tn_compare_judge(s, w.lab, &c, 0.001, &w.arena, &v, &n));
            for (size_t k = 0; k < n; k++)
                assert_true(v[k].judged.word == TN_UNDECIDED && v[k].judged.seeds > v[k].paired.n &&
                            v[k].judged.seen > 0.001);
            assert_ok(tn_compare_judge(s, w.lab, &c, 0.05, &w.arena, &v, &n));
            for (size_t k = 0; k < n; k++)
                assert_true(v[k].judged.word == TN_NO_DIFFERENCE && v[k].judged.seen <= 0.05);
        }
        tn_study_free(s);
        close_world(&w);
    }
}

/* A side that has not run is left out; the others are compared as if it were not there. */
static void left_out(void **state)
{
    (void)state;
    world w;
    tn_study *s;
    tn_comparison c;
    tn_verdict *v;
    tn_standing *rows;
    size_t n;
    open_world(&w, three);
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    assert_fails(tn_compare_pick(s, w.lab, 4, 2, &w.arena, &c), TN_USAGE, "that --sides names has a finished trial");
    assert_ok(tn_compare_pick(s, w.lab, 6, 2, &w.arena, &c));
    assert_true(c.sides == 2 && c.contenders[0].n == 0 && c.contenders[1].n == 2 && c.contenders[2].n == 0);
    assert_fails(tn_compare_judge(s, w.lab, &c, NAN, &w.arena, &v, &n), TN_USAGE, "needs two");
    assert_ok(tn_compare_pick(s, w.lab, 0, 2, &w.arena, &c));
    assert_true(c.sides == 3 && c.effort[TN_EFFORT_TRIALS] == 12 && c.effort[TN_EFFORT_SECONDS] == 12 &&
                c.effort[TN_EFFORT_EVALUATIONS] == 1200);
    for (size_t e = 0; e < TN_EFFORTS; e++)
        assert_true(c.contenders[3 * e].n && c.contenders[3 * e + 1].n && !c.contenders[3 * e + 2].n);
    size_t trials = 0;
    for (size_t k = 0; k < 3 * TN_EFFORTS; k++)
        for (size_t m = 0; m < c.contenders[k].n; m++)
            for (uint64_t seed = 1000; seed < 1010; seed++, trials++)
                assert_ok(tn_lab_enqueue(w.lab, w.study, &w.plan, k % 3, TN_TRIAL_COMPARE, c.contenders[k].trial[m]->id,
                                         seed, c.contenders[k].trial[m]->x));
    tn_study_free(s);
    for (size_t k = 0; k < trials; k++) end_one(&w, true, a_is_better);
    assert_ok(tn_lab_load(w.lab, NULL, &s));
    assert_ok(tn_compare_pick(s, w.lab, 0, 2, &w.arena, &c));
    assert_ok(tn_compare_judge(s, w.lab, &c, NAN, &w.arena, &v, &n));
    assert_int_equal(n, 3);
    for (size_t k = 0; k < n; k++) assert_true(v[k].a == 0 && v[k].b == 1 && v[k].judged.better == 1);
    assert_fails(tn_standings(s, w.lab, &c, 2, NAN, &w.arena, &rows, &n), TN_USAGE, "side idle has no finished trial");
    assert_ok(tn_standings(s, w.lab, &c, 1, NAN, &w.arena, &rows, &n));
    assert_true(n == 2 && rows[0].runs.side == 0 && rows[0].judged.better == 1 && rows[1].runs.side == 1 &&
                !rows[1].paired.n);
    assert_true(rows[0].p_adjusted == rows[0].paired.p); /* one comparison was made */
    assert_ok(tn_compare_pick(s, w.lab, 2, 2, &w.arena, &c));
    assert_ok(tn_standings(s, w.lab, &c, 1, NAN, &w.arena, &rows, &n));
    assert_true(n == 1 && rows[0].runs.side == 1 && rows[0].mean > 0.8 && !rows[0].paired.n);
    tn_study_free(s);
    close_world(&w);
}

void tn_tests_compare(tn_test_list *l)
{
    tn_test_add(l, who_is_chosen, NULL, "compare: contenders at equal trials, seconds and evaluations");
    tn_test_add(l, verdicts, NULL, "compare: better, worse, no difference");
    tn_test_add(l, left_out, NULL, "compare: a side that has not run is left out");
}
