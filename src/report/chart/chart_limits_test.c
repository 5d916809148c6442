/* Every chart, with nothing odd and with everything: the XML is well-formed, no name breaks out, no number is none, and no file
 * is larger than charts may be. */
#include "report/chart/chart.h"
#include "report/chart/plot.h"
#include "report/chart/svg.h"
#include "report/chart/xml_check.h"
#include "testlib.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 20, WAYS = 5 };

/* Numbers and names that all charts draw from. */
typedef struct material {
    size_t n;
    double *a, *b, *c, *d; /* (n); c and d lie beyond a and b */
    double *many;          /* (GROUPS, n) */
    int *group;            /* (n) */
    bool *some;            /* (n) */
    const char **names;    /* (n) */
    const char *groups[GROUPS];
} material;

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* 0: plain; 1: all the same; 2: every second is NaN, some are infinite; 3: of all sizes and signs; 4: none is finite. */
static double value_of(int way, size_t i, uint64_t *state)
{
    const double u = uniform(state);
    switch (way) {
    case 1: return 7e-5;
    case 2: return i % 2 ? NAN : i % 100 == 0 ? INFINITY : u;
    case 3: return (u - 0.3) * pow(10, 40 * uniform(state) - 20);
    case 4: return i % 2 ? NAN : -INFINITY;
    default: return 10 * u + (double)i * 1e-5;
    }
}

static void make(material *m, size_t n, int way)
{
    static const char *const words[] = {
        "plain", "<script>alert(1)</script> & \"more\"", "\xff\x01]]>", "",
        "a name that is far too long for any place that a chart could have for it, & <so on>"
    };
    uint64_t seed = 7;
    *m = (material){ .n = n };
    m->a = test_malloc(4 * n * sizeof *m->a), m->b = m->a + n, m->c = m->b + n, m->d = m->c + n;
    m->many = test_malloc(GROUPS * n * sizeof *m->many);
    m->group = test_malloc(n * sizeof *m->group);
    m->some = test_malloc(n * sizeof *m->some);
    m->names = test_malloc(n * sizeof *m->names);
    for (size_t i = 0; i < n; i++) {
        m->a[i] = value_of(way, i, &seed), m->b[i] = value_of(way, i, &seed);
        m->c[i] = m->a[i] + fabs(value_of(way, i, &seed)) * 0.1,
        m->d[i] = m->b[i] + fabs(value_of(way, i, &seed)) * 0.1;
        m->group[i] = (int)(i % GROUPS), m->some[i] = i % 3 == 0;
        m->names[i] = words[i % 5];
    }
    for (size_t i = 0; i < GROUPS * n; i++) m->many[i] = value_of(way, i, &seed);
    for (size_t i = 0; i < GROUPS; i++) m->groups[i] = words[i % 5];
}

static void drop(material *m)
{
    test_free(m->a), test_free(m->many), test_free(m->group), test_free(m->some), test_free(m->names);
}

static tn_status draw_lines(const material *m, FILE *out)
{
    tn_series s[GROUPS];
    for (size_t k = 0; k < GROUPS; k++)
        s[k] = (tn_series){ .name = m->groups[k], .x = m->a, .y = m->many + k * m->n, .n = m->n, .points = k % 2 };
    const tn_plot p = { .title = m->groups[1],
                        .x_label = m->groups[1],
                        .y_label = m->groups[1],
                        .series = s,
                        .count = GROUPS,
                        .log_y = true };
    return tn_plot_svg(&p, out);
}

/* So many lines that each can have a few points only. */
static tn_status draw_many_lines(const material *m, FILE *out)
{
    tn_series s[500];
    for (size_t k = 0; k < 500; k++)
        s[k] = (tn_series){ .name = m->groups[k % GROUPS], .x = m->a, .y = m->b, .n = m->n < 5000 ? m->n : 5000 };
    return tn_plot_svg(&(tn_plot){ .series = s, .count = 500 }, out);
}

static tn_status draw_scatter(const material *m, FILE *out)
{
    const tn_scatter c = { .title = m->groups[1],
                           .groups = m->groups,
                           .n_groups = GROUPS,
                           .n = m->n,
                           .x = m->a,
                           .y = m->b,
                           .group = m->group,
                           .front = m->some,
                           .log_x = true };
    return tn_chart_scatter(&c, out);
}

static tn_status draw_published(const material *m, FILE *out)
{
    const tn_scatter c = { .groups = m->groups, .n_groups = 2, .n = m->n, .x = m->a, .y = m->b, .published = m->some };
    return tn_chart_scatter(&c, out);
}

static tn_status draw_roofline(const material *m, FILE *out)
{
    const tn_roof peak[] = { { 9.9e14, m->groups[1], 1, false }, { 6e13, m->groups[2], -1, true } },
                  bandwidth[] = { { 4.8e12, m->groups[1], 0, false }, { 5e12, m->groups[0], 3, true } };
    const tn_roofline c = { .title = m->groups[1],
                            .peak = peak,
                            .n_peaks = 2,
                            .bandwidth = bandwidth,
                            .n_bandwidths = 2,
                            .n = m->n,
                            .x = m->a,
                            .y = m->b,
                            .names = m->names,
                            .weight = m->d,
                            .groups = m->groups,
                            .n_groups = GROUPS,
                            .group = m->group };
    return tn_chart_roofline(&c, out);
}

static tn_status draw_bars(const material *m, FILE *out)
{
    const tn_bars c = { .title = m->groups[1],
                        .names = m->names,
                        .groups = m->groups,
                        .n = m->n,
                        .n_groups = GROUPS,
                        .value = m->many,
                        .spread = m->many };
    return tn_chart_bars(&c, out);
}

static tn_status draw_shares(const material *m, FILE *out)
{
    const tn_shares c = { .title = m->groups[1], .unit = m->groups[1], .n = m->n, .names = m->names, .value = m->a };
    return tn_chart_shares(&c, out);
}

static tn_status draw_area(const material *m, FILE *out)
{
    const tn_area c = { .title = m->groups[1],
                        .names = m->groups,
                        .n_layers = GROUPS,
                        .n = m->n,
                        .x = m->a,
                        .y = m->many,
                        .limit = 3,
                        .limit_name = m->groups[1] };
    return tn_chart_area(&c, out);
}

static tn_status draw_timeline(const material *m, FILE *out)
{
    const tn_timeline c = { .title = m->groups[1],
                            .states = m->groups,
                            .lanes = m->groups,
                            .n_states = GROUPS,
                            .n_lanes = GROUPS,
                            .n = m->n,
                            .begin = m->a,
                            .end = m->c,
                            .lane = m->group,
                            .state = m->group,
                            .names = m->names };
    return tn_chart_timeline(&c, out);
}

static tn_status draw_memory(const material *m, FILE *out)
{
    const tn_memory_map c = { .title = m->groups[1],
                              .kinds = m->groups,
                              .n_kinds = GROUPS,
                              .n = m->n,
                              .begin = m->a,
                              .end = m->c,
                              .low = m->b,
                              .high = m->d,
                              .kind = m->group,
                              .names = m->names,
                              .limit = 3,
                              .limit_name = m->groups[1] };
    return tn_chart_memory(&c, out);
}

static tn_status draw_parallel(const material *m, FILE *out)
{
    tn_parallel_axis axes[GROUPS];
    for (size_t k = 0; k < GROUPS; k++)
        axes[k] = (tn_parallel_axis){ .name = m->groups[k], .low = m->groups[k], .high = m->groups[1] };
    axes[3] = (tn_parallel_axis){ .name = "choice", .choices = m->groups, .n_choices = GROUPS };
    const tn_parallel c = {
        .title = m->groups[1], .axes = axes, .n_axes = GROUPS, .n = m->n, .place = m->many, .rank = m->a
    };
    return tn_chart_parallel(&c, out);
}

static const struct {
    const char *name;
    tn_status (*draw)(const material *, FILE *);
} charts[] = {
    { "lines", draw_lines },       { "many lines", draw_many_lines },
    { "scatter", draw_scatter },   { "published", draw_published },
    { "roofline", draw_roofline }, { "bars", draw_bars },
    { "shares", draw_shares },     { "area", draw_area },
    { "timeline", draw_timeline }, { "memory", draw_memory },
    { "parallel", draw_parallel },
};

/* Draws all charts of these numbers; returns how many have been drawn. */
static size_t draw_all(const material *m, int way)
{
    size_t drawn = 0;
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        const tn_status s = charts[i].draw(m, out);
        assert_int_equal(fclose(out), 0);
        assert_true(s == TN_OK || s == TN_USAGE); /* nothing to draw */
        if (s == TN_OK) {
            if (bytes > TN_SVG_BYTES) fail_msg("%s of %zu, way %d: %zu bytes", charts[i].name, m->n, way, bytes);
            assert_null(strstr(text, "<script"));
            assert_null(strstr(text, "nan"));
            assert_xml(text);
            drawn++;
        }
        free(text);
    }
    return drawn;
}

static void all_charts(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 2, 9, 3000 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int way = 0; way < WAYS; way++) {
            material m;
            make(&m, sizes[k], way);
            const size_t drawn = draw_all(&m, way);
            if (way < 2) assert_int_equal(drawn, sizeof charts / sizeof *charts);
            drop(&m);
        }
}

static void a_million(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way += 2) {
        material m;
        make(&m, TN_SANITIZED || way ? 100000 : 1000000, way);
        assert_true(draw_all(&m, way) > 8);
        drop(&m);
    }
}

void tn_tests_chart_limits(tn_test_list *l)
{
    tn_test_add(l, all_charts, NULL, "chart: all with hard numbers and names");
    tn_test_add(l, a_million, NULL, "chart: all of a million, within 300 kB");
}
