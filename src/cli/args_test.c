/* Sorting of arguments: what is a flag, an override or a word, and what is refused. */
#include "cli/args.h"

#include "testlib.h"

#include <string.h>

static const tn_flag_row flags[] = { { "x", "", "--fresh", "start again" },
                                     { "x", "", "--prompt=TEXT", "text to continue" },
                                     { "x", "", "--at[=N]", "somewhere" } };

static tn_status parse(tn_args *a, const char *const *argv)
{
    int n = 0;
    while (argv[n]) n++;
    *a = (tn_args){ 0 };
    return tn_args_parse(a, n, (char *const *)argv, flags, sizeof flags / sizeof *flags);
}

static void sorted(void **state)
{
    (void)state;
    tn_args a;
    const char *argv[] = { "show", "./a=b.yaml",   "train.lr=1", "--fresh", "--prompt", "--x",     "data=c=d",
                           "-",    "--prompt=y=z", "--json",     "--",      "k=v",      "--fresh", NULL };
    assert_ok(parse(&a, argv));
    assert_int_equal(a.positional_n, 5);
    assert_string_equal(tn_args_positional(&a, 0), "show");
    assert_string_equal(tn_args_positional(&a, 1), "./a=b.yaml");
    assert_string_equal(tn_args_positional(&a, 2), "-");
    assert_string_equal(tn_args_positional(&a, 3), "k=v");
    assert_string_equal(tn_args_positional(&a, 4), "--fresh");
    assert_null(tn_args_positional(&a, 5));
    assert_int_equal(a.overrides_n, 2);
    assert_string_equal(a.overrides[1], "data=c=d");
    assert_true(tn_args_flag(&a, "fresh"));
    assert_true(tn_args_flag(&a, "json"));
    assert_false(tn_args_flag(&a, "help"));
    assert_string_equal(tn_args_value(&a, "prompt"), "y=z");
    assert_ok(tn_args_expect(&a, 5, 5));
    assert_fails(tn_args_expect(&a, 6, 9), TN_USAGE, "missing");
    assert_fails(tn_args_expect(&a, 0, 1), TN_USAGE, "unexpected argument ./a=b.yaml");
    tn_args_free(&a);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *argv[3], *message;
    } cases[] = {
        { { "--frehs" }, "unknown flag --frehs: did you mean --fresh?" },
        { { "--zzzzzzzz" }, "unknown flag --zzzzzzzz: --help lists the flags" },
        { { "-x" }, "unknown flag -x" },
        { { "-fresh" }, "unknown flag -fresh" },
        { { "--fresh=1" }, "--fresh takes no value" },
        { { "--prompt" }, "--prompt needs a value" },
        { { "--prompt", "--json" }, "--prompt needs a value: --prompt=VALUE" },
        { { "--a-name-that-is-longer-than-any-flag-could-be=1" }, "unknown flag" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_args a;
        assert_fails(parse(&a, cases[i].argv), TN_USAGE, cases[i].message);
        tn_args_free(&a);
    }
}

static void left_out(void **state)
{
    (void)state;
    tn_args a;
    assert_ok(parse(&a, (const char *const[]){ "--at", "word", NULL }));
    assert_true(tn_args_flag(&a, "at") && !tn_args_value(&a, "at"));
    assert_string_equal(tn_args_positional(&a, 0), "word");
    tn_args_free(&a);
    assert_ok(parse(&a, (const char *const[]){ "--at=7", NULL }));
    assert_string_equal(tn_args_value(&a, "at"), "7");
    tn_args_free(&a);
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        const char *argv[2], *number, *whole; /* what is said of it, or NULL: it is one */
    } cases[] = {
        { { "--at=7" }, NULL, NULL },
        { { "--at=1e1" }, NULL, NULL },
        { { "--at=2.5" }, NULL, "--at=2.5: give a whole number from 1 to 10" },
        { { "--at=0" }, "--at=0: give a number from 1 to 10", "--at=0: give a whole number" },
        { { "--at=11" }, "--at=11: give a number", "--at=11: give a whole" },
        { { "--at=3x" }, "--at=3x: give a number", "--at=3x: give a whole" },
        { { "--at=nan" }, "--at=nan: give a number", "--at=nan: give a whole" },
        { { "--at=" }, "--at=: give a number", "--at=: give a whole" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_args a;
        double x = -1;
        int64_t n = -1;
        assert_ok(parse(&a, cases[i].argv));
        if (cases[i].number) assert_fails(tn_args_number(&a, "at", 1, 10, &x), TN_USAGE, cases[i].number);
        else assert_ok(tn_args_number(&a, "at", 1, 10, &x));
        if (cases[i].whole) assert_fails(tn_args_whole(&a, "at", 1, 10, &n), TN_USAGE, cases[i].whole);
        else assert_ok(tn_args_whole(&a, "at", 1, 10, &n));
        assert_true((x == -1) == (cases[i].number != NULL) && (n == -1) == (cases[i].whole != NULL));
        assert_ok(tn_args_whole(&a, "prompt", 1, 10, &n)); /* not given: stays */
        tn_args_free(&a);
    }
}

void tn_tests_args(tn_test_list *l)
{
    tn_test_add(l, sorted, NULL, "args: sorted");
    tn_test_add(l, left_out, NULL, "args: a value that may be left out");
    tn_test_add(l, numbers, NULL, "args: numbers of flags");
    tn_test_add(l, refused, NULL, "args: refused");
}
