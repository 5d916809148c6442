/* Search spaces: texts good and bad, values and places both ways, the prior's shares, dimensions that others switch
 * off. */
#include "lab/search/space.h"

#include "base/alloc.h"
#include "testlib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct good_text {
    const char *text;
    tn_dim_kind kind;
    double lo, hi, step;
    bool log;
    size_t n_choices;
    const char *last; /* choice */
} good_text;

static const good_text good[] = {
    { "1e-4..1e-1", TN_DIM_FLOAT, 1e-4, 1e-1, 0, false, 0, NULL },
    { "log 1e-4..1e-1", TN_DIM_FLOAT, 1e-4, 1e-1, 0, true, 0, NULL },
    { "  log   float\t1e-4..1e-1 ", TN_DIM_FLOAT, 1e-4, 1e-1, 0, true, 0, NULL },
    { "0..1", TN_DIM_FLOAT, 0, 1, 0, false, 0, NULL },
    { "-2.5..-.5", TN_DIM_FLOAT, -2.5, -0.5, 0, false, 0, NULL },
    { "int 4..512", TN_DIM_INT, 4, 512, 0, false, 0, NULL },
    { "log int 1..64k", TN_DIM_INT, 1, 64000, 0, true, 0, NULL },
    { "int log 1..1e6", TN_DIM_INT, 1, 1e6, 0, true, 0, NULL },
    { "int 8..64 step 8", TN_DIM_INT, 8, 64, 8, false, 0, NULL },
    { "0.5..0.99 step 0.01", TN_DIM_FLOAT, 0.5, 0.99, 0.01, false, 0, NULL },
    { "[32, 64 ,128]", TN_DIM_CHOICE, 0, 0, 0, false, 3, "128" },
    { "[ 'a b', \"c\" ]", TN_DIM_CHOICE, 0, 0, 0, false, 2, "c" },
};

static void good_texts(void **state)
{
    const good_text *g = *state;
    tn_arena arena = { 0 };
    tn_dim d = { .key = "k", .when = 7 };
    assert_ok(tn_dim_parse(g->text, &arena, &d));
    assert_string_equal(d.key, "k");
    assert_int_equal(d.kind, g->kind);
    assert_true(d.lo == g->lo && d.hi == g->hi && d.step == g->step && d.log == g->log && d.when == -1);
    assert_int_equal(d.n_choices, g->n_choices);
    if (g->last) assert_string_equal(d.choices[d.n_choices - 1], g->last);
    tn_arena_free(&arena);
}

static const char *const bad[][2] = {
    { "", "LO..HI" },
    { "log", "LO..HI" },
    { "4", "LO..HI" },
    { "4...512", "LO..HI" },
    { "log log 1..2", "LO..HI" },
    { "int float 1..2", "LO..HI" },
    { "ints 1..2", "LO..HI" },
    { "..4", "two numbers" },
    { "1..", "two numbers" },
    { "1 .. 2", "LO..HI" },
    { "nan..1", "two numbers" },
    { "0..inf", "two numbers" },
    { "0..1e999", "two numbers" },
    { "0x1..2", "two numbers" },
    { "int 1.5..3", "whole" },
    { "2..1", "below" },
    { "1..1", "below" },
    { "-1e308..1e308", "too wide" },
    { "log 0..1", "above 0" },
    { "log int 0..8", "above 0" },
    { "int 0..1e17", "whole" },
    { "log 1..8 step 2", "exclude each other" },
    { "0..1 step", "step NUMBER" },
    { "0..1 by 2", "step NUMBER" },
    { "0..1 step 0.1 2", "step NUMBER" },
    { "int 0..8 step 0.5", "step NUMBER" },
    { "0..1 step 0", "needs a step above 0" },
    { "0..1 step -1", "needs a step above 0" },
    { "0..1 step 0.3", "0.9" },
    { "0..1 step 1e-12", "1e9" },
    { "[]", "empty" },
    { "[a,,b]", "empty" },
    { "[a,b", "no ]" },
    { "[a,b] c", "no ]" },
    { "[a,b,a]", "twice" },
    { "['', b]", "empty" },
};

static void bad_texts(void **state)
{
    const char *const *b = *state;
    tn_arena arena = { 0 };
    tn_dim d = { .key = "k", .lo = 3 };
    assert_fails(tn_dim_parse(b[0], &arena, &d), TN_USAGE, b[1]);
    assert_true(d.lo == 3); /* untouched */
    tn_arena_free(&arena);
}

static const char *const all_kinds[] = { "-3..5",          "log 1e-5..0.7",    "int -4..9",
                                         "log int 3..500", "int 8..64 step 8", "0.5..0.99 step 0.01",
                                         "[a, b, c]" };
enum { KINDS = sizeof all_kinds / sizeof *all_kinds };

/* Every u gives a value within bounds and on a step; its place gives the value back; places rise with values. */
static void there_and_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        tn_arena arena = { 0 };
        tn_dim d = { .key = "k" };
        assert_ok(tn_dim_parse(all_kinds[k], &arena, &d));
        double before = -INFINITY;
        for (int i = 0; i <= 1000; i++) {
            const double u = (double)i / 1000, v = tn_dim_at(&d, u), back = tn_dim_at(&d, tn_dim_place(&d, v));
            if (d.kind != TN_DIM_CHOICE) assert_true(v >= d.lo && v <= d.hi);
            if (tn_dim_count(&d)) assert_true(back == v);
            else assert_true(fabs(back - v) < 1e-12 * (1 + fabs(v)) && fabs(tn_dim_place(&d, v) - u) < 1e-12);
            assert_true(v >= before);
            before = v;
        }
        double end = 0, lo, hi; /* the cells of counted values follow one another from 0 to 1 */
        for (int64_t i = 0; i < tn_dim_count(&d); i++, end = hi) {
            tn_dim_cell(&d, tn_dim_value(&d, i), &lo, &hi);
            assert_true(fabs(lo - end) < 1e-12 && hi > lo &&
                        tn_dim_at(&d, lo + 0.01 * (hi - lo)) == tn_dim_value(&d, i) &&
                        tn_dim_at(&d, hi - 0.01 * (hi - lo)) == tn_dim_value(&d, i));
        }
        if (tn_dim_count(&d)) assert_true(fabs(end - 1) < 1e-12);
        assert_true(tn_dim_at(&d, -1) == tn_dim_at(&d, 0) && tn_dim_at(&d, 2) == tn_dim_at(&d, 1));
        assert_true(tn_dim_place(&d, NAN) == 0.5);
        tn_arena_free(&arena);
    }
}

/* Shares of values over even u: equal for steps and choices, by the logarithm of n - 1/2 .. n + 1/2 for log int. */
static void shares(void **state)
{
    (void)state;
    enum { N = 200000 };
    const tn_dim plain = { .kind = TN_DIM_INT, .lo = 2, .hi = 6, .when = -1 },
                 logs = { .kind = TN_DIM_INT, .lo = 2, .hi = 6, .log = true, .when = -1 };
    double count[2][7] = { { 0 } };
    for (int i = 0; i < N; i++) {
        const double u = (i + 0.5) / N;
        count[0][(int)tn_dim_at(&plain, u)]++;
        count[1][(int)tn_dim_at(&logs, u)]++;
    }
    for (int v = 2; v <= 6; v++) {
        assert_true(fabs(count[0][v] / N - 0.2) < 1e-4);
        assert_true(fabs(count[1][v] / N - log((v + 0.5) / (v - 0.5)) / log(6.5 / 1.5)) < 1e-4);
    }
}

static void counts_and_texts(void **state)
{
    (void)state;
    const int64_t counts[KINDS] = { 0, 0, 14, 498, 8, 50, 3 };
    for (size_t k = 0; k < KINDS; k++) {
        tn_arena arena = { 0 };
        tn_dim d = { .key = "k" };
        char text[64];
        assert_ok(tn_dim_parse(all_kinds[k], &arena, &d));
        assert_int_equal(tn_dim_count(&d), counts[k]);
        for (int64_t i = 0; i < counts[k]; i++)
            assert_true(tn_dim_at(&d, tn_dim_place(&d, tn_dim_value(&d, i))) == tn_dim_value(&d, i));
        for (int i = 0; i < 300; i++) {
            const double v = tn_dim_at(&d, (i + 0.37) / 300);
            tn_dim_text(&d, v, text, sizeof text);
            if (d.kind == TN_DIM_CHOICE) assert_string_equal(text, d.choices[(int)v]);
            else assert_true(strtod(text, NULL) == v);
            if (d.kind == TN_DIM_INT) assert_null(strpbrk(text, ".e"));
            if (d.step == 0.01) assert_true(strlen(text) <= 4); /* 0.57, not 0.56999999999999995 */
        }
        tn_arena_free(&arena);
    }
}

static const char *const act[] = { "relu", "gelu" }, *const norm[] = { "none", "rms", "layer" };

static void switched_off(void **state)
{
    (void)state;
    tn_dim dims[] = {
        { .key = "act", .kind = TN_DIM_CHOICE, .choices = act, .n_choices = 2, .when = -1 },
        { .key = "norm", .kind = TN_DIM_CHOICE, .choices = norm, .n_choices = 3 },
        { .key = "eps", .kind = TN_DIM_FLOAT, .lo = 1e-8, .hi = 1e-4, .log = true },
        { .key = "lr", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = -1 },
    };
    assert_ok(tn_dim_when(dims, 1, "act=gelu", &dims[1]));
    assert_ok(tn_dim_when(dims, 2, "norm=rms", &dims[2]));
    assert_int_equal(dims[2].when, 1);
    assert_int_equal(dims[2].when_choice, 1);
    const tn_space s = { dims, 4 };
    assert_ok(tn_space_check(&s));
    double x[4] = { 1, 1, 1e-6, 0.5 };
    tn_space_apply_when(&s, x);
    assert_true(x[1] == 1 && x[2] == 1e-6 && x[3] == 0.5);
    x[1] = 2;
    tn_space_apply_when(&s, x);
    assert_true(x[1] == 2 && isnan(x[2]) && x[3] == 0.5);
    double y[4] = { 0, 1, 1e-6, 0.5 }; /* act=relu takes norm away, and norm takes eps */
    tn_space_apply_when(&s, y);
    assert_true(isnan(y[1]) && isnan(y[2]) && y[3] == 0.5);

    assert_fails(tn_dim_when(dims, 3, "act", &dims[3]), TN_USAGE, "KEY=CHOICE");
    assert_fails(tn_dim_when(dims, 3, "act=gleu", &dims[3]), TN_USAGE, "did you mean gelu");
    assert_fails(tn_dim_when(dims, 3, "eps=1", &dims[3]), TN_USAGE, "is a range");
    assert_fails(tn_dim_when(dims, 3, "lr=1", &dims[3]), TN_USAGE, "no dimension lr");
    assert_int_equal(dims[3].when, -1);
}

static void spaces_refused(void **state)
{
    (void)state;
    tn_dim dims[] = { { .key = "a", .kind = TN_DIM_FLOAT, .lo = 0, .hi = 1, .when = -1 },
                      { .key = "b", .kind = TN_DIM_CHOICE, .choices = act, .n_choices = 2, .when = -1 } };
    const tn_space s = { dims, 2 };
    assert_ok(tn_space_check(&s));
    assert_fails(tn_space_check(&(tn_space){ dims, 0 }), TN_USAGE, "no dimension");
    dims[0].when = 1; /* looks forward */
    assert_fails(tn_space_check(&s), TN_USAGE, "a choice of an earlier list");
    dims[0].when = -1;
    dims[1].key = "a";
    assert_fails(tn_space_check(&s), TN_USAGE, "searched twice");
    dims[1].n_choices = 0;
    assert_fails(tn_space_check(&s), TN_USAGE, "empty");
    dims[0].hi = NAN;
    assert_fails(tn_space_check(&s), TN_USAGE, "not a range");
}

static void whole_settings(void **state)
{
    (void)state;
    tn_arena arena = { 0 };
    tn_dim d = { .key = "dim" };
    assert_ok(tn_dim_parse("4..512", &arena, &d));
    d.when = 3;
    d.when_choice = 1;
    assert_ok(tn_dim_make_int(&d)); /* what switches it is kept, and no matter here */
    assert_true(d.when == 3 && d.when_choice == 1);
    assert_int_equal(d.kind, TN_DIM_INT);
    assert_ok(tn_dim_parse("4..8.5", &arena, &d));
    assert_fails(tn_dim_make_int(&d), TN_USAGE, "whole");
    assert_int_equal(d.kind, TN_DIM_FLOAT);
    tn_arena_free(&arena);
}

void tn_tests_space(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        tn_test_add(l, good_texts, &good[i], "lab/space: reads \"%s\"", good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        tn_test_add(l, bad_texts, bad[i], "lab/space: refuses \"%s\"", bad[i][0]);
    tn_test_add(l, there_and_back, NULL, "lab/space: values and places, both ways");
    tn_test_add(l, shares, NULL, "lab/space: shares of the prior");
    tn_test_add(l, counts_and_texts, NULL, "lab/space: counted values and their texts");
    tn_test_add(l, switched_off, NULL, "lab/space: dimensions switched off");
    tn_test_add(l, spaces_refused, NULL, "lab/space: spaces refused");
    tn_test_add(l, whole_settings, NULL, "lab/space: ranges of settings that are whole");
}
