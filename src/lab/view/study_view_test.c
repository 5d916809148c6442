/* What reads a study: fronts and orders, names, exports that read back, charts and the page; a large study in time. */
#include "base/clock.h"
#include "lab/statistics/select.h"
#include "lab/view/view.h"
#include "lab/db/trials.h"
#include "golden_svg.h"
#include "tempdir.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char text[] = "# <script>alert(1)</script>\nstudy: s\nbase: xor_tep\ntrials: 30\nsearch: {dim: 4..64, "
                           "train.lr: log 1e-4..1e-1, train.batch: [16, 32]}\n"
                           "sides: {a: {}, b: {}}\nobjectives: [accuracy max 0, seconds min 10]\n"
                           "published: {source: <script>one, winner: b, sides: {a: {front: 3, points: [{accuracy: 0.7, "
                           "seconds: 4, set: {dim: 6}}]}}}\n";

typedef struct world {
    tn_tempdir dir;
    tn_arena arena;
    tn_study_plan plan;
    tn_lab *lab;
    tn_study *study;
} world;

/* 30 trials a side; number 7 of side b failed with a nasty text, 8 was pruned, 29 is waiting. Accuracy grows with
 * the learning rate. */
static void open_world(world *w)
{
    char path[400];
    bool found, lost;
    int64_t study, worker;
    *w = (world){ .lab = NULL };
    tn_tempdir_make_quick(&w->dir);
    snprintf(path, sizeof path, "%s/lab.db", w->dir.path);
    assert_ok(tn_study_parse(text, strlen(text), "s.yaml", NULL, 0, &w->arena, &w->plan));
    assert_ok(tn_study_check(&w->plan));
    assert_ok(tn_lab_open(path, true, &w->lab));
    assert_ok(tn_lab_begin(w->lab, &w->plan, text, NULL, 0, &study, &found));
    assert_ok(tn_lab_fill(w->lab, study, &w->plan, 30));
    assert_ok(tn_lab_join(w->lab, &worker));
    for (int i = 0; i < 58; i++) {
        tn_claim c;
        tn_claimed got;
        double x[3];
        assert_ok(tn_lab_claim(w->lab, study, &w->plan, worker, &(tn_trial_filter){ 0 }, &c, x, &got));
        assert_int_equal(got, TN_CLAIM_GOT);
        const double u = fmod(0.618034 * (double)c.number + 0.1 * (double)c.side, 1), lr = 1e-4 * pow(1000, u);
        assert_ok(
            tn_lab_point(w->lab, &c, (double[]){ 4 + (double)(c.number % 60), lr, (double)(c.number % 2) }, 3, &lost));
        const bool failed = c.side == 1 && c.number == 7, pruned = c.side == 1 && c.number == 8;
        const tn_report r[] = {
            { .rung = 1, .step = 10, .epoch = 1, .seconds = 1, .score = 0, .value = "{\"accuracy\":0.25}" },
            { .rung = 2, .step = 20, .epoch = 2, .seconds = 2, .score = 0, .value = "{\"accuracy\":0.5}" }
        };
        const tn_ending e = { .state = failed   ? TN_TRIAL_FAILED
                                       : pruned ? TN_TRIAL_PRUNED
                                                : TN_TRIAL_DONE,
                              .y = (double[]){ failed ? NAN : 0.5 + 0.4 * u,
                                               failed ? NAN : 1 + 5 * u * u + 0.01 * (double)(c.number % 7) },
                              .seconds = 1 + 5 * u,
                              .parameters = 99,
                              .seed = c.seed,
                              .error = failed ? "broke \"here\", <script>" : NULL };
        assert_ok(tn_lab_end(w->lab, &c, r, 2, &e, 2, &lost));
    }
    assert_ok(tn_lab_load(w->lab, NULL, &w->study));
}

static void close_world(world *w)
{
    tn_study_free(w->study);
    tn_lab_close(w->lab);
    tn_arena_free(&w->arena);
    tn_tempdir_remove_all(&w->dir);
}

static void selections(void **state)
{
    (void)state;
    world w;
    tn_selection e, all;
    tn_observed seen;
    const tn_trial *t;
    double volume, whole;
    char name[64];
    open_world(&w);
    assert_ok(tn_select_ended(w.study, 1, &w.arena, &e));
    assert_int_equal(e.n, 29); /* one is waiting */
    size_t front = 0;
    for (size_t i = 0; i < e.n; i++) {
        bool beaten = e.trial[i]->state != TN_TRIAL_DONE;
        for (size_t k = 0; !beaten && k < e.n; k++)
            beaten = e.trial[k]->state == TN_TRIAL_DONE && e.y[2 * k] <= e.y[2 * i] &&
                     e.y[2 * k + 1] <= e.y[2 * i + 1] && (e.y[2 * k] < e.y[2 * i] || e.y[2 * k + 1] < e.y[2 * i + 1]);
        assert_int_equal(e.front[i], !beaten);
        front += e.front[i];
    }
    assert_true(front > 2 && front < 29);
    assert_ok(tn_select_volume(w.study, &e, &volume));
    assert_ok(tn_select_ended(w.study, TN_ALL_SIDES, &w.arena, &all));
    assert_ok(tn_select_volume(w.study, &all, &whole));
    assert_true(volume > 0 && whole >= volume && whole < 10);
    assert_ok(tn_select_observed(w.study, 1, &e, &w.arena, &seen));
    assert_true(seen.n == 29 && seen.pruned[8] && isinf(seen.y[2 * 7]));
    tn_select_sort(w.study, 0, e.trial, e.n);
    for (size_t i = 1; i < 27; i++) assert_true(e.trial[i - 1]->y[0] >= e.trial[i]->y[0]);
    assert_true(e.trial[27]->state != TN_TRIAL_DONE && e.trial[28]->state != TN_TRIAL_DONE);
    assert_ok(tn_select_named(w.study, "b/7", &t));
    assert_int_equal(t->state, TN_TRIAL_FAILED);
    tn_trial_name(w.study, t, name, sizeof name);
    assert_string_equal(name, "b/7");
    assert_fails(tn_select_named(w.study, "c/1", &t), TN_USAGE, "named like a/0");
    close_world(&w);
}

static char *exported(world *w, tn_status (*f)(const tn_study *, FILE *))
{
    char *t;
    size_t n;
    FILE *out = open_memstream(&t, &n);
    assert_non_null(out);
    assert_ok(f(w->study, out));
    fclose(out);
    return t;
}

static void exports(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    char *csv = exported(&w, tn_export_csv);
    assert_true(
        strncmp(
            csv,
            "trial,side,number,kind,state,seed,dim,train.lr,train.batch,objective.accuracy,objective.seconds,started,",
            100) == 0);
    assert_non_null(strstr(csv, "\"broke \"\"here\"\", <script>\"\n"));
    size_t lines = 0;
    for (const char *s = csv; (s = strchr(s, '\n')); s++) lines++;
    assert_int_equal(lines, 1 + 60);
    free(csv);
    char *json = exported(&w, tn_export_jsonl), *line = json;
    for (size_t i = 0; i < w.study->n; i++) { /* every number reads back as it was */
        json_error_t error;
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *o = json_loadb(line, (size_t)(end - line), 0, &error);
        assert_non_null(o);
        const tn_trial *t = &w.study->trials[i];
        const json_t *lr = json_object_get(json_object_get(o, "settings"), "train.lr"),
                     *y = json_object_get(json_object_get(o, "objectives"), "accuracy");
        if (t->x) assert_true(json_real_value(lr) == t->x[1]);
        if (!isnan(t->y[0])) assert_true(json_real_value(y) == t->y[0]);
        else assert_true(json_is_null(y));
        json_decref(o);
        line = end + 1;
    }
    free(json);
    close_world(&w);
}

static void charts_and_page(void **state)
{
    (void)state;
    world w;
    char *page;
    size_t n;
    open_world(&w);
    for (int c = 0; c < TN_STUDY_CHARTS; c++) {
        char *svg;
        FILE *out = open_memstream(&svg, &n);
        assert_non_null(out);
        assert_ok(tn_study_chart_draw((tn_study_chart)c, w.study, w.lab, 0, c == TN_STUDY_PARETO, out));
        fclose(out);
        assert_true(strncmp(svg, "<svg", 4) == 0 && strstr(svg, "</svg>") && !strstr(svg, "nan") &&
                    !strstr(svg, "=\"inf"));
        if (c == TN_STUDY_HISTORY) assert_golden_svg("study_history", svg);
        if (c == TN_STUDY_PARETO) assert_golden_svg("study_pareto", svg);
        free(svg);
    }
    FILE *out = open_memstream(&page, &n);
    assert_non_null(out);
    assert_ok(tn_page_write(w.study, w.lab, out));
    fclose(out);
    assert_non_null(strstr(page, "<h1>Study s</h1>"));
    assert_non_null(strstr(page, "# &lt;script&gt;alert(1)")); /* its file */
    assert_non_null(strstr(page, "Comparison with published figures</h2>\n<p>&lt;script&gt;one</p>"));
    assert_non_null(strstr(page, "<td>&ge; 0.7</td>"));
    assert_non_null(strstr(page, "<td class=\"set\">dim=6</td>"));
    assert_non_null(strstr(page, ">published</text>")); /* in the chart of the front */
    assert_null(strstr(page, "<script"));
    size_t svgs = 0;
    for (const char *s = page; (s = strstr(s, "<svg")); s++) svgs++;
    assert_int_equal(svgs, 1 + 1 + 2 + 1 + 2 +
                               1); /* history, front, coordinates and curves of both sides, importance, timeline */
    free(page);
    close_world(&w);
}

void tn_tests_study_view(tn_test_list *l)
{
    tn_test_add(l, selections, NULL, "study_view: fronts, order, names");
    tn_test_add(l, exports, NULL, "study_view: CSV and JSON Lines read back");
    tn_test_add(l, charts_and_page, NULL, "study_view: charts and page");
}
