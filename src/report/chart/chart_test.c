/* Charts: every point that can be drawn is, none that cannot; files stay small; names from files cannot break out;
 * what is refused. */
#include "report/chart/chart.h"
#include "report/chart/xml_check.h"
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
    assert_int_equal(count_of(t, "<path"), 1 + 2);   /* others of the second, front of each group */
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
    assert_true(strlen(t) < 300000 && count_of(t, "h0") > 5000);
    double low = INFINITY, high = -INFINITY, y_px;
    for (const char *s = strstr(t, "style=\"stroke-width"); (s = strchr(s, 'M')); s++)
        if (sscanf(s, "M%*f %lfh0", &y_px) == 1) low = fmin(low, y_px), high = fmax(high, y_px);
    assert_true(high - low > 0.88 * (368 - 70)); /* thinned everywhere alike: all of the field but its padding */
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

/* The largest first, each with its part of the whole; what no part accounts for comes last. */
static void shares(void **state)
{
    (void)state;
    static const char *const names[] = { "copy", "mat<mul>", "broken", "tiny" };
    const double value[] = { 10, 60, NAN, 0.01 };
    char *t;
    const tn_shares c = { .title = "time", .unit = "ms", .n = 4, .names = names, .value = value, .whole = 100 };
    DRAW(tn_chart_shares(&c, out), t);
    assert_xml(t);
    const char *const first = strstr(t, ">mat&lt;mul&gt;</text>"), *const second = strstr(t, ">copy</text>"),
                      *const third = strstr(t, ">tiny</text>"), *const last = strstr(t, ">rest</text>");
    assert_true(first && first < second && second < third && third < last);
    assert_true(strstr(t, ">60 % · 60.0 ms<") && strstr(t, ">10 % · 10.0 ms<") &&
                strstr(t, ">&lt;0.1 % · 0.0100 ms<") && strstr(t, ">30 % · 30.0 ms<"));
    assert_null(strstr(t, "broken"));
    free(t);
    double many[50];
    const char *all[50];
    for (int i = 0; i < 50; i++) many[i] = 1, all[i] = "x";
    DRAW(tn_chart_shares(&(tn_shares){ .n = 50, .names = all, .value = many }, out), t);
    assert_true(strstr(t, ">21 others</text>") && strstr(t, ">42 % · 21.0 <"));
    free(t);
}

/* Ceilings are straight where they must be, and no two labels share a place. */
static void roofline(void **state)
{
    (void)state;
    enum { N = 40 };
    static char names[N][24];
    const char *name[N];
    double x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = pow(10, 0.9 + sin(i)), y[i] = 1e12 * pow(10, 0.8 * cos(1.7 * i));
        snprintf(names[i], sizeof names[i], "kernel %d", i), name[i] = names[i];
    }
    char *t;
    const tn_roof peak[] = { { .value = 1e15, .name = "bf16", .group = 2 },
                             { .value = 1e14, .group = -1, .aside = true } };
    const tn_roof bandwidth[] = { { .value = 4e12, .name = "memory", .group = 0 }, { .value = 1.6e13, .group = 1 } };
    const tn_roofline c = {
        .peak = peak, .n_peaks = 2, .bandwidth = bandwidth, .n_bandwidths = 2, .n = N, .x = x, .y = y, .names = name
    };
    DRAW(tn_chart_roofline(&c, out), t);
    assert_xml(t);
    assert_int_equal(count_of(t, "<circle"), N);
    double at[N][2];
    size_t labels = 0;
    for (const char *s = t; (s = strstr(s, "<text class=\"t c\"")) && labels < N; s++, labels++)
        assert_int_equal(sscanf(s, "<text class=\"t c\" x=\"%lf\" y=\"%lf\"", &at[labels][0], &at[labels][1]), 2);
    if (labels < 15) fail_msg("%zu labels", labels);
    for (size_t i = 0; i < labels; i++)
        for (size_t k = 0; k < i; k++) /* letters of "kernel 1" are about 50 pixels */
            if (fabs(at[i][1] - at[k][1]) < 13 && fabs(at[i][0] - at[k][0]) < 45) fail_msg("labels %zu and %zu", i, k);
    /* Two slopes that end at the higher peak, the steeper one farther left; peaks from the steeper slope to the right. */
    double roof[4][4];
    const char *at_roof = t;
    for (int i = 0; i < 4; i++) {
        at_roof = strstr(at_roof, "stroke-width:2\" d=\"M") + 1;
        assert_int_equal(sscanf(at_roof, "troke-width:2\" d=\"M%lf %lfL%lf %lf", &roof[i][0], &roof[i][1], &roof[i][2],
                                &roof[i][3]),
                         4);
    }
    for (int i = 0; i < 2; i++) assert_true(roof[i][0] < roof[i][2] && roof[i][1] > roof[i][3]);
    assert_true(roof[0][3] == roof[2][1] && roof[1][3] == roof[2][1] && roof[1][2] < roof[0][2]);
    assert_true(roof[2][1] == roof[2][3] && fabs(roof[2][0] - roof[1][2]) < 0.2 && roof[3][0] < roof[2][0]);
    assert_true(roof[3][1] > roof[2][1]); /* a tenth of it lies lower */
    assert_non_null(strstr(t, "<path class=\"a\" stroke-dasharray=\"3 5\""));
    assert_non_null(strstr(t, "<path class=\"s2\" style"));
    free(t);
}

/* Layers stand on each other, and the one high sample among many stays. */
static void area(void **state)
{
    (void)state;
    enum { N = 50000 };
    static const char *const names[] = { "low", "high" };
    double *x = calloc(3 * N, sizeof *x), *y = x + N;
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = 1, y[N + i] = 2;
    y[N + 20000] = 7; /* 8 with the one below: the axis ends at 8.32, the field reaches from 88 to 386 */
    char *t;
    const tn_area c = { .names = names, .n_layers = 2, .n = N, .x = x, .y = y, .limit = 5, .limit_name = "limit" };
    DRAW(tn_chart_area(&c, out), t);
    assert_xml(t);
    const char *const high = strstr(t, "<path class=\"n1\""), *const low = strstr(t, "<path class=\"n0\"");
    assert_true(high && high < low); /* the lower is drawn over it */
    const char *const peak = strstr(high, " 99.5L");
    assert_true(peak && peak < low);
    assert_non_null(strstr(t, ">limit</text>"));
    free(t), free(x);
}

/* Names of tracks and spans; a name that does not fit is a hint only. */
static void tracks(void **state)
{
    (void)state;
    static const char *const states[] = { "a" }, *const lanes[] = { "stream <0>" },
                             *const names[] = { "long one", "short" };
    const double begin[] = { 0, 90 }, end[] = { 90, 91 };
    const int zero[] = { 0, 0 };
    char *t;
    const tn_timeline c = { .states = states,
                            .lanes = lanes,
                            .n_states = 1,
                            .n_lanes = 1,
                            .n = 2,
                            .begin = begin,
                            .end = end,
                            .lane = zero,
                            .state = zero,
                            .names = names };
    DRAW(tn_chart_timeline(&c, out), t);
    assert_xml(t);
    assert_true(strstr(t, ">stream &lt;0&gt;</text>") && strstr(t, ">long one</text>") &&
                strstr(t, "<title>short</title>"));
    assert_null(strstr(t, ">short</text>"));
    free(t);
}

/* A block's sides are its times and addresses; of too many the largest are drawn. */
static void memory(void **state)
{
    (void)state;
    enum { N = 10000 };
    double *begin = calloc(4 * N, sizeof *begin), *end = begin + N, *low = end + N, *high = low + N;
    assert_non_null(begin);
    for (int i = 0; i < N; i++) begin[i] = i % 100, end[i] = begin[i] + 0.01, low[i] = i / 100, high[i] = low[i] + 0.01;
    begin[5] = 0, end[5] = 100, low[5] = 0, high[5] = 50;
    char *t;
    const tn_memory_map c = { .n = N, .begin = begin, .end = end, .low = low, .high = high };
    DRAW(tn_chart_memory(&c, out), t);
    assert_xml(t);
    double w, h;
    const char *const first = strstr(t, "<rect class=\"n0 w\"");
    assert_non_null(first);
    assert_int_equal(sscanf(strstr(first, "width="), "width=\"%lf\" height=\"%lf\"", &w, &h), 2);
    /* all of the time; 50 of the 99 addresses, of a field that is 338 high with 4 % above */
    assert_true(w > 600 && fabs(h - 338 * 50 / (99.01 * 1.04)) < 1);
    assert_int_equal(count_of(t, "<rect class=\"n0"), 2200);
    assert_non_null(strstr(t, "the largest 2200 of 10000 blocks"));
    free(t), free(begin);
}

/* A measured peak is a line where the blocks stay legible, and else a note. */
static void memory_limit(void **state)
{
    (void)state;
    const double begin[] = { 0 }, end[] = { 1 }, low[] = { 0 }, high[] = { 10 };
    tn_memory_map c = {
        .n = 1, .begin = begin, .end = end, .low = low, .high = high, .limit = 29, .limit_name = "measured"
    };
    char *t;
    DRAW(tn_chart_memory(&c, out), t);
    assert_non_null(strstr(t, ">measured</text>"));
    assert_non_null(strstr(t, "stroke-dasharray"));
    assert_null(strstr(t, "beyond"));
    free(t);
    c.limit = 31;
    DRAW(tn_chart_memory(&c, out), t);
    assert_non_null(strstr(t, ">measured, beyond this axis</text>"));
    assert_null(strstr(t, "stroke-dasharray"));
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
    assert_fails(tn_chart_shares(&(tn_shares){ .n = 0 }, out), TN_USAGE, "shares need");
    assert_fails(tn_chart_area(&(tn_area){ .n = 0 }, out), TN_USAGE, "needs layers");
    assert_fails(tn_chart_memory(&(tn_memory_map){ .n = 0 }, out), TN_USAGE, "needs blocks");
    assert_fails(tn_chart_roofline(&(tn_roofline){ .n = 1 }, out), TN_USAGE, "a peak and");
    const tn_roof fine = { .value = 1 }, none = { .value = NAN };
    assert_fails(tn_chart_roofline(
                     &(tn_roofline){ .n = 1, .peak = &none, .n_peaks = 1, .bandwidth = &fine, .n_bandwidths = 1 }, out),
                 TN_USAGE, "a peak and");
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
    tn_test_add(l, shares, NULL, "chart: shares");
    tn_test_add(l, roofline, NULL, "chart: roofline");
    tn_test_add(l, area, NULL, "chart: stacked area");
    tn_test_add(l, tracks, NULL, "chart: timeline with names");
    tn_test_add(l, memory, NULL, "chart: memory map");
    tn_test_add(l, memory_limit, NULL, "chart: memory map with a measured peak");
    tn_test_add(l, refused, NULL, "chart: refused");
}
