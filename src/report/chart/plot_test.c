/* Plots: what lands where, at which labels, and that no data and no name can break the text or the SVG. */
#include "report/chart/plot.h"
#include "report/chart/plot_axis.h"
#include "testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The plot as a string, from the heap of the C library. */
static char *drawn(tn_status (*draw)(const tn_plot *, FILE *), const tn_plot *p)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_ok(draw(p, f));
    assert_int_equal(fclose(f), 0);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *s = text; (s = strstr(s, part)); s += strlen(part)) n++;
    return n;
}

static const double ramp_x[] = { 0, 1, 2, 3, 4 }, ramp_y[] = { 0, 1, 2, 3, 4 };
static const tn_series ramp = { .name = "ramp", .x = ramp_x, .y = ramp_y, .n = 5 };

static void golden(void **state)
{
    (void)state;
    char *t = drawn(tn_plot_text, &(tn_plot){ .series = &ramp, .count = 1, .width = 32, .height = 9, .ascii = true });
    assert_string_equal(t, "4 +                         ****\n"
                           "  |                    *****\n"
                           "  |                ****\n"
                           "2 +           *****\n"
                           "  |    *******\n"
                           "0 +****\n"
                           "  ++-------------+-------------+\n"
                           "   0             2             4\n"
                           "   * ramp\n");
    free(t);
}

/* Every line keeps within the width and has no trailing blank; 7-bit means 7-bit. */
static void check_lines(const char *text, size_t width, bool ascii)
{
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\n");
        char line[4096];
        assert_true(n < sizeof line);
        memcpy(line, s, n);
        line[n] = 0;
        if (tn__plot_columns(line) > width) fail_msg("line of %zu columns: %s", tn__plot_columns(line), line);
        assert_true(n == 0 || line[n - 1] != ' ');
        for (size_t i = 0; i < n && ascii; i++) assert_true((unsigned char)line[i] < 0x80);
        s += n + (s[n] == '\n');
    }
}

static void shapes(void **state)
{
    (void)state;
    static double x[500], a[500], b[500];
    for (int i = 0; i < 500; i++)
        x[i] = 2000.0 * i, a[i] = 8 * exp(-i / 100.0) + 1e-3, b[i] = i % 100 < 30 ? NAN : 2 + sin(i / 20.0);
    const tn_series s[] = {
        { .name = "train", .x = x, .y = a, .n = 500 },
        { .name = "held out, with a name that is far too long for one line", .x = x, .y = b, .n = 500 }
    };
    for (int width = 32; width <= 130; width += 7)
        for (int flags = 0; flags < 8; flags++) {
            const tn_plot p = { .title = "loss",
                                .x_label = "tokens",
                                .y_label = "nats",
                                .series = s,
                                .count = 1 + (size_t)(flags & 1),
                                .log_y = flags & 2,
                                .ascii = flags & 4,
                                .width = width,
                                .height = 8 + width / 8 };
            char *t = drawn(tn_plot_text, &p);
            check_lines(t, (size_t)width, p.ascii);
            free(t);
        }
}

static void gaps(void **state)
{
    (void)state;
    const double x[] = { 0, 1, 2, 3, 4 }, y[] = { 1, 1, NAN, 1, 1 };
    const tn_series s = { .name = "s", .x = x, .y = y, .n = 5 };
    char *t = drawn(tn_plot_text, &(tn_plot){ .series = &s, .count = 1, .width = 40, .height = 8, .ascii = true });
    assert_non_null(strstr(t, "*   ")); /* the line ends, blanks follow, and it goes on */
    free(t);
    t = drawn(tn_plot_svg, &(tn_plot){ .series = &s, .count = 1 });
    const char *path = strstr(t, " d=\"");
    assert_non_null(path);
    char d[256] = { 0 };
    strncpy(d, path + 4, strcspn(path + 4, "\""));
    assert_int_equal(count_of(d, "M"), 2);
    assert_null(strstr(t, "nan"));
    free(t);
}

static void hard_values(void **state)
{
    (void)state;
    static const double cases[][3] = { { NAN, NAN, NAN },    { 5, 5, 5 },           { 0, 0, 0 },
                                       { -1e308, 1e308, 0 }, { 1e-320, 2e-320, 0 }, { INFINITY, 1, 2 },
                                       { 1e300, 1e-300, 1 }, { -3, -2, -1 },        { 1e15, 1e15 + 2, 1e15 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int log_y = 0; log_y < 2; log_y++)
            for (int swap = 0; swap < 2; swap++) {
                const tn_series s = {
                    .name = "s", .x = swap ? cases[i] : ramp_x, .y = swap ? ramp_y : cases[i], .n = 3
                };
                const tn_plot p = { .series = &s, .count = 1, .log_y = log_y, .width = 40, .height = 10 };
                char *t = drawn(tn_plot_text, &p);
                check_lines(t, 40, false);
                free(t);
                t = drawn(tn_plot_svg, &p);
                assert_null(strstr(t, "nan"));
                assert_null(strstr(t, "inf\""));
                free(t);
            }
}

static void names(void **state)
{
    (void)state;
    const tn_series s = { .name = "a<b>&\"c\" \x1b[31m \xff\xc3 \xe2\x82\xac", .x = ramp_x, .y = ramp_y, .n = 5 };
    char *t = drawn(tn_plot_svg, &(tn_plot){ .series = &s, .count = 1, .title = "<script>" });
    assert_non_null(strstr(t, "a&lt;b&gt;&amp;&quot;c&quot; ?[31m ?? \xe2\x82\xac"));
    assert_null(strstr(t, "<script"));
    free(t);
    t = drawn(tn_plot_text, &(tn_plot){ .series = &s, .count = 1 });
    assert_null(strchr(t, 0x1b));
    assert_null(strchr(t, 0xff));
    free(t);
}

/* A pale line behind another one of its colour: no name of its own, and no colour of its own. */
static void faint(void **state)
{
    (void)state;
    const tn_series s[] = { { .name = "pale", .x = ramp_x, .y = ramp_y, .n = 5, .faint = true },
                            { .name = "bold", .x = ramp_x, .y = ramp_y, .n = 5, .like = 1 } };
    char *t = drawn(tn_plot_svg, &(tn_plot){ .series = s, .count = 2, .title = "t" });
    assert_non_null(strstr(t, "<path class=\"s0 p\" d="));
    assert_non_null(strstr(t, "<path class=\"s0\" d="));
    assert_non_null(strstr(t, ">bold</text>"));
    assert_null(strstr(t, ">pale</text>"));
    free(t);
    t = drawn(tn_plot_svg, &(tn_plot){ .series = s, .count = 1 });
    assert_null(strstr(t, "no finite values"));
    free(t);
}

/* No two lines share colour and dash, and each name has a sample of its own line. */
static void styles(void **state)
{
    (void)state;
    enum { N = 40 };
    static tn_series s[N];
    char *seen[N];
    for (int i = 0; i < N; i++) s[i] = (tn_series){ .name = "s", .x = ramp_x, .y = ramp_y, .n = 5 };
    char *t = drawn(tn_plot_svg, &(tn_plot){ .series = s, .count = N });
    const char *p = t;
    for (int i = 0; i < N; i++) {
        p = strstr(p, "<path class=");
        assert_non_null(p);
        seen[i] = strndup(p, (size_t)(strstr(p, " d=") - p));
        for (int k = 0; k < i; k++) assert_string_not_equal(seen[i], seen[k]);
        char sample[128];
        const char *const quote = strchr(strchr(seen[i], '"') + 1, '"'); /* class="sN, then " and the dash */
        snprintf(sample, sizeof sample, "<line%.*s k%s", (int)(quote - seen[i] - 5), seen[i] + 5, quote);
        if (!strstr(t, sample)) fail_msg("no %s", sample);
        p++;
    }
    for (int i = 0; i < N; i++) free(seen[i]);
    free(t);
    for (int i = 0; i < 3; i++) s[i].faint = true; /* behind the others: grey, and no colour is lost on them */
    t = drawn(tn_plot_svg, &(tn_plot){ .series = s, .count = 4 });
    assert_int_equal(count_of(t, "<path class=\"a p\" d="), 3);
    assert_non_null(strstr(t, "<path class=\"s0\" d="));
    free(t);
    t = drawn(tn_plot_text, &(tn_plot){ .series = s, .count = N, .colour = true });
    assert_non_null(strstr(t, "a\x1b[0m s")); /* more than colours: marks */
    free(t);
}

/* Dots, and long names that keep both ends. */
static void dots(void **state)
{
    (void)state;
    const tn_series s = {
        .name = "gpt,dim=128,layers=6,heads=4,lr=3e-4", .x = ramp_x, .y = ramp_y, .n = 5, .points = true
    };
    char *t = drawn(tn_plot_svg, &(tn_plot){ .series = &s, .count = 1 });
    assert_int_equal(count_of(t, "h0"), 5);
    assert_non_null(strstr(t, ">gpt,dim=128,l…ads=4,lr=3e-4</text>"));
    free(t);
}

/* A ring stands above all lines, with its meaning in the legend; one that is on a gap or beyond the series is none. */
static void rings(void **state)
{
    (void)state;
    const double y[] = { 4, 1, 0, 2, 3 }, gap[] = { 4, 1, NAN, 2, 3 };
    tn_series s[] = { { .name = "a", .x = ramp_x, .y = y, .n = 5, .ring = 3 }, ramp };
    tn_plot p = { .series = s, .count = 1, .ring = "best step", .width = 32, .height = 9, .ascii = true };
    char *t = drawn(tn_plot_text, &p);
    assert_non_null(strstr(t, "0 +           ***O*\n"));
    assert_non_null(strstr(t, "  * a   O best step\n"));
    free(t);
    p.ascii = false, p.colour = true;
    t = drawn(tn_plot_text, &p);
    assert_int_equal(count_of(t, "○"), 2); /* the ring and its legend */
    check_lines(t, 400, false);
    free(t);
    p.count = 2, p.title = "loss";
    t = drawn(tn_plot_svg, &p);
    assert_int_equal(count_of(t, "<circle class=\"s0 k\" fill=\"none\""), 1);
    assert_non_null(strstr(t, "<title>a, best step: 0 at 2</title></circle>"));
    assert_non_null(strstr(t, ">ring: best step</text>"));
    free(t);
    for (int i = 0; i < 3; i++) {
        s[0].y = i == 0 ? gap : y;
        s[0].ring = i == 0 ? 3 : i == 1 ? 6 : 0;
        t = drawn(tn_plot_svg, &p);
        assert_null(strstr(t, "ring: best step"));
        assert_int_equal(count_of(t, "fill=\"none\""), 0);
        free(t);
        t = drawn(tn_plot_text, &p);
        assert_null(strstr(t, "best step"));
        free(t);
    }
}

/* Many points stay a small file, and the one outlier among them stays visible. */
static void long_series(void **state)
{
    (void)state;
    enum { N = 200000 };
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = i % 2;
    y[N / 3] = 100;
    const tn_series s = { .name = "noise", .x = x, .y = y, .n = N };
    char *t = drawn(tn_plot_svg, &(tn_plot){ .series = &s, .count = 1 });
    assert_true(strlen(t) < 16000);
    /* The field reaches from 364 up to 20; its range is 0 .. 104, so 100 lies 344 * 4 / 104 below the top. */
    assert_non_null(strstr(t, "V33.2"));
    free(t);
    free(x);
    free(y);
}

static void refused(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_fails(tn_plot_text(&(tn_plot){ .count = 0 }, f), TN_USAGE, "at least one series");
    assert_fails(tn_plot_svg(&(tn_plot){ .count = 0 }, f), TN_USAGE, "at least one series");
    assert_fails(tn_plot_text(&(tn_plot){ .series = &ramp, .count = 1, .width = 10 }, f), TN_USAGE, "10 columns");
    fclose(f);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        assert_fails(tn_plot_text(&(tn_plot){ .series = &ramp, .count = 1 }, full), TN_DISK, "could not be written");
        fclose(full);
    }
}

void tn_tests_plot(tn_test_list *l)
{
    tn_test_add(l, golden, NULL, "plot: golden");
    tn_test_add(l, shapes, NULL, "plot: widths, styles and axes");
    tn_test_add(l, gaps, NULL, "plot: gaps");
    tn_test_add(l, styles, NULL, "plot: colours and dashes");
    tn_test_add(l, dots, NULL, "plot: dots and long names");
    tn_test_add(l, hard_values, NULL, "plot: hard values");
    tn_test_add(l, names, NULL, "plot: names from files");
    tn_test_add(l, faint, NULL, "plot: pale lines");
    tn_test_add(l, rings, NULL, "plot: rings");
    tn_test_add(l, long_series, NULL, "plot: long series");
    tn_test_add(l, refused, NULL, "plot: refused");
}
