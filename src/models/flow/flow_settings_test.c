/* Settings of `flow`: what does not fit together or into memory is refused in one line that names it; sizes that are auto;
 * schedules; what is kept for the gradient. */
#include "flow_world.h"

#include "base/memory_limit.h"

static void bad_settings(void **state)
{
    static const struct {
        const char *more[6];
        bool target;
        tn_status code;
        const char *says;
    } rows[] = {
        { { "width=1", "height=36" },
          false,
          TN_USAGE,
          "width=1 and height=36 has no two cells side by side: use at least 2" },
        { { "width=5", "height=5" },
          false,
          TN_USAGE,
          "36 numbers and the surface width=5 x height=5 = 25 cells: use width=auto and height=auto, sizes whose "
          "product is 36, or "
          "mapper_in=trained" },
        { { "width=7" }, false, TN_USAGE, "36 numbers, which is no square surface" },
        { { "dim=33" }, false, TN_USAGE, "dim=33 is odd" },
        { { "keep=9" }, false, TN_USAGE, "keep=9 is more than the 8 steps" },
        { { "lattice=off", "field=4" }, false, TN_USAGE, "lattice=off has no flows: set field=0" },
        { { "classes=4" }, true, TN_USAGE, "the task wants a surface, and classes=4 asks for a class" },
        { { "planes=beside" },
          true,
          TN_USAGE,
          "36 numbers is wanted and the lattice gives 72 (planes=beside): use mapper_out=trained, or planes=merged" },
        { { "width=5", "height=5", "mapper_in=trained" },
          true,
          TN_USAGE,
          "36 numbers is wanted and the lattice gives 25: use mapper_out=trained" },
        { { "width=1000", "height=1000", "mapper_in=trained" },
          false,
          TN_MEMORY,
          "mapper_in=trained has 6e+06 M parameters at width=1000 x height=1000, which take" },
        { { "width=1000", "height=1000", "mapper_in=trained" },
          false,
          TN_MEMORY,
          "use mapper_in=identity where data and surface have the same size, or a smaller surface" },
        { { "keep_memory=1e-3", "dim=512" },
          false,
          TN_MEMORY,
          "train.batch=2 of 36 flows with dim=512, layers=2 and 8 steps needs" },
        { { "keep_memory=1e-3", "dim=512" },
          false,
          TN_MEMORY,
          "with keep=1 and keep_memory allows 0.001 GB: use a smaller train.batch" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        flow_world w;
        assert_fails(flow_try(6, 2, rows[i].target, 1, rows[i].more, &w), rows[i].code, rows[i].says);
    }
}

/* 100 x 100 cells with trained maps: the number that is quoted everywhere. */
static void mapper_of_a_large_surface(void **state)
{
    const double bytes = 16 * 615.7e6;
    flow_world w;
    (void)state;
    if (tn_memory_limit() > bytes) return; /* it fits here */
    assert_fails(flow_try(6, 2, false, 1, FLOW_LIST("width=100", "height=100", "mapper_in=trained"), &w), TN_MEMORY,
                 "mapper_in=trained has 601 M parameters at width=100 x height=100, which take 9.61 GB in training");
}

static tn_settings *resolve(const char *const *words)
{
    size_t n = 0;
    tn_settings *st;
    const tn_model *model;
    while (words[n]) n++;
    assert_ok(tn_settings_resolve("flow", words, n, &st, &model));
    return st;
}

static void sizes(void **state)
{
    static const struct {
        const char *words[6];
        int64_t width, height, steps, grid[3];
    } rows[] = {
        { { "inputs=784", "tokens=1" }, 28, 28, 8, { 14, 14, 10 } },
        { { "inputs=28", "tokens=28", "depth=5" }, 28, 28, 2, { 14, 14, 5 } },
        { { "inputs=768", "tokens=1", "width=32", "steps=3" }, 32, 24, 3, { 16, 12, 10 } },
        { { "inputs=768", "tokens=1", "height=24", "depth=2", "field_width=7" }, 32, 24, 1, { 7, 12, 2 } },
        { { "inputs=10", "tokens=1", "width=3", "height=2", "mapper_in=trained" }, 3, 2, 8, { 2, 2, 10 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        flow_config c;
        tn_settings *st = resolve(rows[i].words);
        assert_ok(flow_config_read(st, NULL, NULL, &c));
        assert_int_equal(c.width, rows[i].width);
        assert_int_equal(c.height, rows[i].height);
        assert_int_equal(c.steps, rows[i].steps);
        for (int k = 0; k < 3; k++) assert_int_equal(c.grid[k], rows[i].grid[k]);
        tn_settings_free(st);
    }
}

static void schedules(void **state)
{
    tn_settings *st = resolve(FLOW_LIST("kappa=5", "kappa_min=2", "drift=1.2", "drift_steps=1000", "depth=16",
                                        "noise=0.03", "train.steps=1000")),
                *still = resolve(FLOW_LIST("movement=false", "exit_steps=0", "steps=4"));
    (void)state;
    assert_float_equal(flow_kappa_at(st, 99), 5, 0);
    assert_float_equal(flow_kappa_at(st, 109), 5, 0);
    assert_float_equal(flow_kappa_at(st, 110), 4.5, 1e-12);
    assert_float_equal(flow_kappa_at(st, 129), 4.05, 1e-12);
    assert_float_equal(flow_kappa_at(st, 10000), 2, 0);
    assert_float_equal(flow_drift_at(st, 0), 0.15, 1e-12);
    assert_float_equal(flow_drift_at(st, 500), 0.075, 1e-12);
    assert_float_equal(flow_drift_at(st, 1000), 0, 0);
    assert_float_equal(flow_noise_at(st, 0), 0.03, 1e-12);
    assert_float_equal(flow_noise_at(st, 400), 0.015, 1e-12);
    assert_float_equal(flow_noise_at(st, 800), 0, 0);
    assert_float_equal(flow_exit_at(st, 0), 0.05, 1e-12);
    assert_float_equal(flow_exit_at(st, 1500), 0.025, 1e-12);
    assert_float_equal(flow_exit_at(st, 3000), 0, 0);
    assert_float_equal(flow_kappa_at(still, 0), 0, 0);
    assert_float_equal(flow_noise_at(still, 0), 0, 0);
    assert_float_equal(flow_drift_at(still, 9999), 0.3, 1e-12);
    assert_float_equal(flow_exit_at(still, 9999), 0.05, 1e-12);
    tn_settings_free(st);
    tn_settings_free(still);
}

/* Everything where it fits; else as often as costs the least memory. */
static void what_is_kept(void **state)
{
    const tn_graph_options training = { .training = true }, evaluation = { 0 };
    flow_config c = { .width = 28, .height = 28, .steps = 60, .dim = 512, .layers = 3, .energy = 1, .keep = -1 };
    tn_graph *g, *e;
    int64_t keep;
    (void)state;
    assert_ok(tn_graph_new(&training, &g));
    assert_ok(tn_graph_new(&evaluation, &e));
    const double all = flow_keep_bytes(g, &c, 16, 0);
    double least = all;
    int64_t best = 0;
    for (int64_t k = 1; k <= c.steps; k++)
        if (flow_keep_bytes(g, &c, 16, k) < least) least = flow_keep_bytes(g, &c, 16, best = k);
    assert_in_range(best, 3, 4);
    c.keep_bytes = 1.01 * all;
    assert_ok(flow_keep(g, &c, 16, &keep));
    assert_int_equal(keep, 0);
    c.keep_bytes = 0.99 * all;
    assert_ok(flow_keep(g, &c, 16, &keep));
    assert_int_equal(keep, best);
    c.keep_bytes = 0.9 * least;
    assert_fails(flow_keep(g, &c, 16, &keep), TN_MEMORY, "keep_memory allows");
    assert_ok(flow_keep(e, &c, 16, &keep)); /* nothing is kept for a gradient */
    c.keep = 7;
    assert_ok(flow_keep(g, &c, 16, &keep));
    assert_int_equal(keep, 7);
    tn_graph_free(g);
    tn_graph_free(e);
}

void tn_tests_flow_settings(tn_test_list *l)
{
    tn_test_add(l, bad_settings, NULL, "flow: what does not fit is refused with numbers and a remedy");
    tn_test_add(l, mapper_of_a_large_surface, NULL, "flow: a mapper beyond memory is refused");
    tn_test_add(l, sizes, NULL, "flow: sizes that are auto");
    tn_test_add(l, schedules, NULL, "flow: schedules");
    tn_test_add(l, what_is_kept, NULL, "flow: what is kept for the gradient");
}
