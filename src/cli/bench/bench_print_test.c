/* A row above its ceiling is marked, in text and in JSON: a ceiling below a row was not one. */
#include "cli/bench/bench_print.h"

#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static char *printed(bool json, double of_ceiling)
{
    char *text = NULL;
    size_t bytes = 0;
    tn_cli c = { .json = json, .out = open_memstream(&text, &bytes) };
    assert_non_null(c.out);
    tn_bench_print_row(&c, &(tn_bench_row){
                               .group = "bf16", .name = "8x8x8", .ms = 1, .gflops = 2, .of_ceiling = of_ceiling });
    fclose(c.out);
    return text;
}

static void marks_rows_above(void **state)
{
    (void)state;
    char *low = printed(false, 0.99), *high = printed(false, 1.26), *low_json = printed(true, 0.99),
         *high_json = printed(true, 1.26);
    assert_non_null(strstr(low, " 99 %\n"));
    assert_non_null(strstr(high, "126 % !\n"));
    assert_null(strstr(low_json, "above_ceiling"));
    assert_non_null(strstr(high_json, "\"above_ceiling\""));
    free(low), free(high), free(low_json), free(high_json);
}

void tn_tests_bench_print(tn_test_list *l)
{
    tn_test_add(l, marks_rows_above, NULL, "bench: rows above the measured ceiling are marked");
}
