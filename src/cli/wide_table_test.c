/* A table that is too wide is turned on its side; one that fits, or whose cells cannot be told apart, is left alone. */
#include "cli/wide_table.h"

#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static void expect(int width, const char *text, const char *shown)
{
    char *out = NULL;
    size_t bytes;
    FILE *f = open_memstream(&out, &bytes);
    assert_non_null(f);
    tn_wide_table_fit(f, text, width);
    fclose(f);
    assert_string_equal(out, shown);
    free(out);
}

static void turned(void **state)
{
    (void)state;
    static const char table[] = "       steps   held out     memory\n"
                                "gpt       40  7.642 b/B     1.0 MB\n"
                                "ten_x   1200   6.95 b/B    12.5 MB\n";
    static const char sideways[] = "                gpt     ten_x\n"
                                   "steps            40      1200\n"
                                   "held out  7.642 b/B  6.95 b/B\n"
                                   "memory       1.0 MB   12.5 MB\n";
    static const char ragged[] = "       steps   held out     memory\n"
                                 "gpt       40  7.642 b/B     1.0 MB  more\n";
    expect(80, table, table);
    expect(34, table, table);
    expect(33, table, sideways);
    expect(20, table, table); /* it is too wide either way */
    expect(33, ragged, ragged);
}

void tn_tests_wide_table(tn_test_list *l) { tn_test_add(l, turned, NULL, "wide table: turned on its side"); }
