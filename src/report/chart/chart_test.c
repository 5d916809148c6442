/* Charts: every point that can be drawn is, none that cannot; files stay small; names from files cannot break out;
 * what is refused. */
#include "report/chart/chart.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part)) n++;
    return n;
}

#define DRAW(call, text)                                                                                               \
    do {                                                                                                               \
        size_t bytes_;                                                                                                 \
        FILE *out = open_memstream(&(text), &bytes_);                                                                  \
        assert_non_null(out);                                                                                          \
        assert_ok(call);                                                                                               \
        assert_int_equal(fclose(out), 0);                                                                              \
    } while (0)

static const char *const sides[] = { "tep", "b<p" };

static void scatter(void **state)
{
    (void)state;
    const double x[] = { 1, 10, 100, 1000, NAN, 5 }, y[] = { 0.1, 0.5, 0.7, 0.9, 0.5, INFINITY };
    const int group[] = { 0, 0, 1, 1, 0, 1 };
    const bool front[] = { true, true, true, false, true, true };
    char *t;
    const tn_scatter c = { .title = "a & b",
                           .x_label = "seconds",
                           .y_label = "accuracy",
                           .groups = sides,
                           .n_groups = 2,
                           .n = 6,
                           .x = x,
                           .y = y,
                           .group = group,
                           .front = front,
                           .log_x = true };
    DRAW(tn_chart_scatter(&c, out), t);
    assert_int_equal(count_of(t, "h0"), 1);          /* the one beside the fronts */
    assert_int_equal(count_of(t, "r=\"4\""), 3 + 2); /* three of fronts, two of names; NaN and infinity are nowhere */
    assert_int_equal(count_of(t, "<path"), 2 + 2);   /* others and front of each group */
    assert_int_equal(count_of(t, "seconds (log scale)"), 1);
    assert_true(strstr(t, "a &amp; b") && strstr(t, "b&lt;p") && !strstr(t, "b<p"));
    assert_true(!strstr(t, "nan") && !strstr(t, "inf"));
    free(t);
    const bool published[] = {
        false, false, true, true, true, false
    }; /* a quoted one is on no front; NaN is nowhere */
    tn_scatter q = c;
    q.published = published;
    DRAW(tn_chart_scatter(&q, out), t);
    assert_int_equal(count_of(t, "z\"/>"), 2 + 1); /* and one that says what the sign means */
    assert_int_equal(count_of(t, ">published<"), 1);
    assert_int_equal(count_of(t, "r=\"4\""), 2 + 2);
    assert_int_equal(count_of(t, "h0"), 0);
    free(t);
}

static void many_points(void **state)
{
    (void)state;
    enum { N = 100000 };
    double *x = calloc(2 * N, sizeof *x), *y = x + N;
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = sin(i), y[i] = cos(1.7320508 * i);
    char *t;
    const tn_scatter c = { .groups = sides, .n_groups = 1, .n = N, .x = x, .y = y };
    DRAW(tn_chart_scatter(&c, out), t);
    assert_true(strlen(t) < 800000 && count_of(t, "h0") > 10000);
    free(t);
    free(x);
}

static void parallel(void **state)
{
    (void)state;
    static const char *const choices[] = { "adam", "adamw" };
    const tn_parallel_axis axes[] = { { .name = "train.lr", .low = "1e-4", .high = "0.1" },
                                      { .name = "optimizer", .choices = choices, .n_choices = 2 },
                                      { .name = "decay", .low = "0", .high = "1" } };
    const double place[] = { 0, 0.25, NAN, 0.5, 0.75, 1, 1, 0.25, 0 }, rank[] = { 0, 1, NAN };
    char *t;
    const tn_parallel c = { .axes = axes, .n_axes = 3, .n = 3, .place = place, .rank = rank };
    DRAW(tn_chart_parallel(&c, out), t);
    assert_int_equal(count_of(t, "<path"), 2); /* the third has no rank */
    const char *worst = strstr(t, "s0 p\""), *best = strstr(t, "class=\"s1\"");
    assert_true(worst && best && worst < best); /* the best is on top */
    assert_int_equal(count_of(best, "L"), 1);   /* two axes: the third it passes by */
    assert_true(strstr(t, ">adamw<") && strstr(t, ">1e-4<"));
    free(t);
}

static void bars(void **state)
{
    (void)state;
    static const char *const names[] = { "lr", "batch" };
    const double value[] = { 0.8, 0.4, 0.2, NAN }, spread[] = { 0.05, 0.1, NAN, 0.1 };
    char *t;
    const tn_bars c = {
        .title = "importance", .names = names, .groups = sides, .n = 2, .n_groups = 2, .value = value, .spread = spread
    };
    DRAW(tn_chart_bars(&c, out), t);
    assert_int_equal(count_of(t, "<rect class=\"n"), 3);
    double w[3];
    const char *at = t;
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "<rect class=\"n");
        at = strstr(at, "width=\"") + 7;
        w[i] = atof(at);
    }
    assert_true(fabs(w[0] / w[1] - 2) < 0.02 && fabs(w[0] / w[2] - 4) < 0.05); /* lengths are the values */
    free(t);
}

static void timeline(void **state)
{
    (void)state;
    static const char *const states[] = { "done", "pruned" };
    const double begin[] = { 0, 10, 0, NAN, 5.0001 }, end[] = { 5, 20, 9, 4, 5.0002 };
    const int lane[] = { 0, 0, 1, 1, 0 }, which[] = { 0, 1, 0, 0, 0 };
    char *t;
    const tn_timeline c = {
        .states = states, .n_states = 2, .n = 5, .begin = begin, .end = end, .lane = lane, .state = which
    };
    DRAW(tn_chart_timeline(&c, out), t);
    assert_int_equal(count_of(t, "<rect class=\"n"), 4);
    assert_int_equal(count_of(t, ">worker 2<"), 1);
    assert_true(!strstr(t, "nan"));
    free(t);
}

static void refused(void **state)
{
    (void)state;
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    assert_fails(tn_chart_scatter(&(tn_scatter){ .n = 0 }, out), TN_USAGE, "needs points");
    assert_fails(tn_chart_parallel(&(tn_parallel){ .n = 0 }, out), TN_USAGE, "need trials");
    assert_fails(tn_chart_bars(&(tn_bars){ .n = 0 }, out), TN_USAGE, "needs rows");
    assert_fails(tn_chart_timeline(&(tn_timeline){ .n = 0 }, out), TN_USAGE, "have started");
    fclose(out);
    FILE *full = fopen("/dev/full", "w");
    const double one[] = { 1 };
    if (!full) return;
    setvbuf(full, NULL, _IONBF, 0);
    assert_fails(tn_chart_scatter(&(tn_scatter){ .groups = sides, .n_groups = 1, .n = 1, .x = one, .y = one }, full),
                 TN_DISK, "could not be written");
    fclose(full);
}

void tn_tests_chart(tn_test_list *l)
{
    tn_test_add(l, scatter, NULL, "chart: scatter with fronts");
    tn_test_add(l, many_points, NULL, "chart: scatter of 100,000 stays small");
    tn_test_add(l, parallel, NULL, "chart: parallel coordinates");
    tn_test_add(l, bars, NULL, "chart: bars");
    tn_test_add(l, timeline, NULL, "chart: timeline");
    tn_test_add(l, refused, NULL, "chart: refused");
}
