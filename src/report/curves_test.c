/* Curves of runs: units, names, smoothing, what is drawn where; pictures of two runs and of a race. */
#include "report/curves.h"
#include "golden_svg.h"
#include "tempdir.h"
#include "train/run/run_info.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run of 60 lines with an evaluation at every tenth; its loss falls from a + 3 to about a, with a wobble that is the same everywhere. */
static void make_run(tn_tempdir *d, const char *name, double a, bool bits)
{
    char path[400];
    assert_ok(tn_dir_make(tn_tempdir_file(d, name)));
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", d->path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 1; i <= 60; i++) {
        const double loss = a + 3.0 / (1 + i / 5.0);
        fprintf(f, "{\"step\":%d,\"loss\":%.4f", 10 * i, loss + 0.05 * (i * 7 % 5 - 2));
        if (i % 10 == 0) fprintf(f, ",\"heldout\":%.4f,\"heldout_accuracy\":%.3f", loss + 0.1, i / 100.0);
        if (i % 10 == 0 && bits) fprintf(f, ",\"bits_per_byte\":%.4f", 0.5 * (loss + 0.1));
        fprintf(f, ",\"seconds\":%.1f}\n", i * a);
    }
    fclose(f);
}

static char *svg_of(const tn_curves *c, tn_curves_axis x, tn_arena *arena)
{
    char *text = NULL;
    size_t bytes;
    tn_plot p;
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_ok(tn_curves_plot(c, x, true, arena, &p));
    assert_ok(tn_plot_svg(&p, f));
    fclose(f);
    return text;
}

static void two_runs(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_curves c;
    tn_plot p;
    tn_tempdir_make_quick(&d);
    make_run(&d, "ten-1", 1, true);
    make_run(&d, "gpt-1", 1.4, true);
    make_run(&d, "plain", 2, false);
    const char *dirs[] = { tn_tempdir_file(&d, "ten-1"), tn_tempdir_file(&d, "gpt-1"), tn_tempdir_file(&d, "plain") };
    assert_ok(tn_curves_read(dirs, 2, NULL, &arena, &c));
    assert_string_equal(c.run[0].name, "ten-1");
    assert_string_equal(c.unit, "bits per byte");
    assert_true(c.run[0].final.value == c.run[0].lowest.value && c.run[0].final.step == 600);
    assert_true(fabs(c.run[0].final.value - 0.5 * (1.1 + 3.0 / 13)) < 1e-4);
    assert_ok(tn_curves_plot(&c, TN_CURVES_SECONDS, true, &arena, &p));
    assert_int_equal(p.count, 4); /* training losses behind, in their colour */
    assert_true(p.series[1].faint && p.series[3].like == 2 && p.series[3].points);
    assert_int_equal(p.series[3].n, 6);
    assert_true(fabs(p.series[1].x[9] - 14) < 1e-9);
    char *svg = svg_of(&c, TN_CURVES_STEPS, &arena);
    assert_golden_svg("plot_two_runs", svg);
    free(svg);
    assert_ok(tn_curves_read(dirs, 3, NULL, &arena, &c)); /* one of them has no bits per byte: nats for all */
    assert_string_equal(c.unit, "nats");
    assert_ok(tn_curves_read(dirs, 3, "accuracy", &arena, &c));
    assert_true(c.run[2].highest.value == 0.6 && c.run[2].highest.step == 600);
    assert_fails(tn_curves_read(dirs, 1, "nope", &arena, &c), TN_USAGE, "it has step, loss, heldout, heldout_accuracy");
    assert_ok(tn_curves_read(dirs, 1, NULL, &arena, &c));
    assert_fails(tn_curves_plot(&c, TN_CURVES_TOKENS, true, &arena, &p), TN_USAGE, "use --x=steps");
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

/* A run of 20 evaluations, lowest at the fifth. */
static void overfitted(tn_tempdir *d, const char *name, const char *settings)
{
    char path[400];
    assert_ok(tn_dir_make(tn_tempdir_file(d, name)));
    snprintf(path, sizeof path, "%s/%s/config.yaml", d->path, name);
    assert_ok(tn_file_write_atomic(path, settings, strlen(settings)));
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", d->path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 1; i <= 20; i++)
        fprintf(f, "{\"step\":%d,\"loss\":%.4f,\"heldout\":%.4f,\"heldout_accuracy\":%.4f}\n", 10 * i, 2 - 0.1 * i,
                2 + 0.1 * abs(i - 5), 0.01 * i);
    fclose(f);
}

/* The best step of a held-out loss has a ring where a later one follows; what early stopping would have saved is said. */
static void best_step(void **state)
{
    (void)state;
    static const char mark[] = "# A run of tenon: its settings\nmodel: ten\ntrain:\n  steps: 200\n",
                      stops[] =
                          "# A run of tenon: its settings\nmodel: ten\ntrain:\n  steps: 200\n  stop_patience: 30\n";
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_curves c;
    tn_plot p;
    char text[TN_CURVES_RISE];
    tn_tempdir_make_quick(&d);
    overfitted(&d, "over", mark);
    overfitted(&d, "patient", stops);
    make_run(&d, "fine", 1, false);
    const char *dirs[] = { tn_tempdir_file(&d, "over"), tn_tempdir_file(&d, "fine"), tn_tempdir_file(&d, "patient") };
    assert_ok(tn_curves_read(dirs, 3, NULL, &arena, &c));
    assert_true(c.run[0].worse && !c.run[1].worse && c.run[2].worse);
    assert_int_equal(tn_curves_stop(&c.run[0]), 80);
    assert_int_equal(tn_curves_stop(&c.run[1]), 0);
    assert_string_equal(
        tn_curves_rise(&c.run[0], text),
        "held-out loss has risen since step 50 (2.0000 -> 3.5000); train.stop_patience=3 would have stopped "
        "at step 80 and saved 120 of 200 steps (60 %)");
    assert_string_equal(tn_curves_rise(&c.run[1], text), "");
    assert_string_equal(tn_curves_rise(&c.run[2], text), "held-out loss has risen since step 50 (2.0000 -> 3.5000)");
    c.run[0].tokens_per_step = 1000;
    assert_non_null(strstr(tn_curves_rise(&c.run[0], text), "saved 120 k of 200 k tokens (60 %)"));
    assert_ok(tn_curves_plot(&c, TN_CURVES_STEPS, true, &arena, &p));
    assert_int_equal(p.count, 6);
    for (int i = 0; i < 3; i++) assert_int_equal(p.series[i].ring, 0); /* training losses */
    assert_true(p.series[3].ring == 5 && p.series[3].x[4] == 50 && p.series[4].ring == 0 && p.series[5].ring == 5);
    assert_string_equal(p.ring, "best step");
    char *svg = svg_of(&c, TN_CURVES_STEPS, &arena);
    assert_golden_svg("plot_best_step", svg);
    free(svg);
    assert_ok(tn_curves_read(dirs, 1, "accuracy", &arena, &c)); /* nobody knows whether less of it is better */
    assert_ok(tn_curves_plot(&c, TN_CURVES_STEPS, true, &arena, &p));
    assert_true(p.series[0].ring == 0 && p.series[0].points && !c.run[0].worse);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

static void race(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_curves c;
    const char **dirs;
    size_t n;
    static const char *const names[] = { "race-1/ten",          "race-1/ten-lr-1e-2", "race-1/gpt",
                                         "race-1/gpt-lr-1e-2",  "race-1/ten_hybrid",  "race-1/recall",
                                         "race-1/gpt-layers-6", "race-1/tep" };
    tn_tempdir_make_quick(&d);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_run(&d, names[i], 1 + 0.2 * (double)i, true);
    assert_ok(tn_dir_make(tn_tempdir_file(&d, "race-1/notes")));
    assert_ok(tn_run_find_all(tn_tempdir_file(&d, "race-1"), &arena, &dirs, &n));
    assert_int_equal(n, 8);
    assert_ok(tn_curves_read(dirs, n, NULL, &arena, &c));
    assert_string_equal(c.run[0].name, "gpt"); /* by name */
    char *svg = svg_of(&c, TN_CURVES_STEPS, &arena);
    assert_golden_svg("plot_race", svg);
    free(svg);
    assert_ok(tn_run_find_all(d.path, &arena, &dirs, &n)); /* a folder of races */
    assert_int_equal(n, 8);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

/* A line that is cut at its end is not there yet; one that is damaged is left out, and told. Without evaluations the training loss is drawn. */
static void unfinished(void **state)
{
    (void)state;
    tn_tempdir d;
    tn_arena arena = { 0 };
    tn_curves c;
    tn_tempdir_make_quick(&d);
    assert_ok(tn_dir_make(tn_tempdir_file(&d, "r")));
    const char *dir = tn_tempdir_file(&d, "r"), *file = tn_tempdir_file(&d, "r/metrics.jsonl");
    static const char cut[] =
        "{\"step\":0,\"plan.total_bytes\":5}\n{\"step\":10,\"loss\":3}\n{\"step\":20,\"loss\":2}\n{\"step\":30,\"lo";
    assert_ok(tn_file_write_atomic(file, cut, strlen(cut)));
    assert_ok(tn_curves_read(&dir, 1, NULL, &arena, &c));
    assert_true(c.run[0].n == 2 && !c.evaluated && c.run[0].final.value == 2);
    static const char bad[] = "{\"step\":10,\"loss\":3}\nhello\n{\"step\":20,\"loss\":2}\n";
    bool none;
    assert_null(tn_curves_trouble(&c, &arena, &none));
    assert_false(none);
    assert_ok(tn_file_write_atomic(file, bad, strlen(bad)));
    assert_ok(tn_curves_read(&dir, 1, NULL, &arena, &c));
    assert_true(c.run[0].n == 2 && c.run[0].damaged == 1 && c.run[0].first_damaged == 2);
    assert_non_null(strstr(tn_curves_trouble(&c, &arena, &none), "has gaps: line 2 of "));
    assert_false(none);
    static const char worse[] = "hello\n{\"step\":10,\"loss\":\"NaN\"}\nworld\n";
    assert_ok(tn_file_write_atomic(file, worse, strlen(worse)));
    assert_ok(tn_curves_read(&dir, 1, NULL, &arena, &c));
    assert_non_null(strstr(tn_curves_trouble(&c, &arena, &none), "no learning curve: 2 lines of "));
    assert_true(none);
    assert_ok(tn_file_write_atomic(file, "", 0));
    assert_ok(tn_curves_read(&dir, 1, NULL, &arena, &c));
    assert_non_null(strstr(tn_curves_trouble(&c, &arena, &none), "has no loss that is a number"));
    assert_true(none);
    tn_arena_free(&arena);
    tn_tempdir_remove_all(&d);
}

void tn_tests_curves(tn_test_list *l)
{
    tn_test_add(l, two_runs, NULL, "curves: two runs");
    tn_test_add(l, best_step, NULL, "curves: the best step, and early stopping");
    tn_test_add(l, race, NULL, "curves: a race");
    tn_test_add(l, unfinished, NULL, "curves: a file that is being written, or damaged");
}
