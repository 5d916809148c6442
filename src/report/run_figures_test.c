/* Figures of a run: means of its last lines, in the order of the table; a long file is not read whole. */
#include "report/run_figures.h"

#include "tempdir.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

static size_t read_lines(const char *lines, size_t before, tn_run_figure figure[TN_RUN_FIGURES])
{
    tn_tempdir d;
    tn_tempdir_make_quick(&d);
    FILE *f = fopen(tn_tempdir_file(&d, "metrics.jsonl"), "w");
    assert_non_null(f);
    for (size_t i = 0; i < before; i++) fputs("{\"utilisation\":0.9,\"step_ms\":77}\n", f);
    fputs(lines, f);
    fclose(f);
    const size_t n = tn_run_figures_read(d.path, figure);
    tn_tempdir_remove(&d);
    return n;
}

static void means(void **state)
{
    (void)state;
    tn_run_figure x[TN_RUN_FIGURES];
    assert_int_equal(read_lines("{\"stall_frac\":0.25,\"gpu_power_w\":300}\n{\"gpu_power_w\":\"NaN\"}\n"
                                "{\"gpu_power_w\":500,\"utilisation\":0.5,\"loss\":3}\n{\"stall_fr",
                                0, x),
                     3);
    assert_string_equal(x[0].key, "utilisation");
    assert_true(x[0].mean == 50 && x[0].lines == 1);
    assert_string_equal(x[1].what, "waiting for data");
    assert_true(x[1].mean == 25 && strcmp(x[1].unit, "%") == 0);
    assert_true(x[2].mean == 400 && x[2].least == 300 && x[2].most == 500 && x[2].lines == 2);
    assert_int_equal(read_lines("", 0, x), 0);
    assert_int_equal(tn_run_figures_read("/nowhere", x), 0);
}

/* 20,000 lines of 34 bytes: of the last 256 KiB there are fewer than 8,000. */
static void only_the_end(void **state)
{
    (void)state;
    tn_run_figure x[TN_RUN_FIGURES];
    assert_int_equal(read_lines("{\"tokens_per_s\":5}\n", 20000, x), 3);
    assert_true(x[0].lines > 7000 && x[0].lines < 8000 && fabs(x[0].mean - 90) < 1e-9);
    assert_true(x[1].mean == 5 && x[2].least == 77);
}

void tn_tests_run_figures(tn_test_list *l)
{
    tn_test_add(l, means, NULL, "run figures: means of the lines that have them");
    tn_test_add(l, only_the_end, NULL, "run figures: the end of a long file");
}
