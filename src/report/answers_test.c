/* Scores against examples worked out by hand, and the interval of differences whose distribution is known. */
#include "report/answers.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

static void normal_form(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "The Cat!", "cat" },
        { "  a  b\tc\n", "b c" },
        { "an Apple a day", "apple day" },
        { "theory and another", "theory and another" },
        { "U.S.A.", "usa" },
        { "the a an", "" },
        { "", "" },
        { "--", "" },
        { "a-b the.re", "ab there" }, /* punctuation goes before words are looked at: no article is left */
        { "\"A\" (the) man's", "mans" },
        { "\xc3\x89mile Zola\xc2\xa0the 2nd", "\xc3\xa9mile zola 2nd" },
        { "3\xc3\x97"
          "4 na\xc3\xafve",
          "3\xc3\x97"
          "4 na\xc3\xafve" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_text out = { 0 };
        assert_ok(tn_answer_normalize(rows[i][0], strlen(rows[i][0]), &out));
        if (out.n != strlen(rows[i][1]) || memcmp(out.data, rows[i][1], out.n) != 0)
            fail_msg("\"%.*s\" instead of \"%s\"", (int)out.n, out.data, rows[i][1]);
        tn_text_free(&out);
    }
}

static tn_answer_score score(const char *said, const char *const *gold, size_t n)
{
    tn_answer right[8];
    tn_answer_score s;
    for (size_t i = 0; i < n; i++) right[i] = (tn_answer){ gold[i], strlen(gold[i]) };
    assert_ok(tn_answer_score_of((tn_answer){ said, strlen(said) }, right, n, &s));
    return s;
}

static void scores(void **state)
{
    (void)state;
    static const struct {
        const char *said, *gold[3];
        double exact, f1;
    } rows[] = {
        { " Paris", { "Paris" }, 1, 1 },
        { "the Paris.", { "paris" }, 1, 1 },
        { "Paris France", { "Paris" }, 0, 2.0 / 3 },
        { "in the city of Paris", { "city of light" }, 0, 2.0 * 2 / 7 },
        { "London", { "Paris" }, 0, 0 },
        { "", { "Paris" }, 0, 0 },
        { "the", { "a" }, 1, 1 },
        /* Multisets: sets would share one word of one and give 1 and 2/3. */
        { "no no no no", { "no" }, 0, 2.0 * 1 / 5 },
        { "x x y", { "x x z" }, 0, 2.0 * 2 / 6 },
        /* The best gold, for each score apart. */
        { "nearly 12 dollars", { "12", "nearly 12", "about 12 dollars" }, 0, 2.0 * 2 / 5 },
        { "12", { "nearly 12", "12" }, 1, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        while (n < 3 && rows[i].gold[n]) n++;
        const tn_answer_score s = score(rows[i].said, rows[i].gold, n);
        if (s.exact != rows[i].exact || fabs(s.f1 - rows[i].f1) > 1e-12)
            fail_msg("%s: exact %g, f1 %g instead of %g, %g", rows[i].said, s.exact, s.f1, rows[i].exact, rows[i].f1);
    }
    assert_true(score("x", NULL, 0).f1 == 0);
}

/* Differences of 0 or 1 with p = 0.3: the interval is p +- 1.96 sqrt(p (1-p) / n). */
static void paired(void **state)
{
    (void)state;
    enum { N = 1000 };
    double a[N], b[N];
    tn_paired x, y;
    for (int i = 0; i < N; i++) {
        b[i] = i % 7;
        a[i] = b[i] + (i % 10 < 3); /* the pairs matter: each alone varies much more */
    }
    assert_ok(tn_paired_bootstrap(a, b, N, 2000, 5, &x));
    const double half = 1.96 * sqrt(0.3 * 0.7 / N);
    assert_true(fabs(x.difference - 0.3) < 1e-12);
    assert_true(fabs(x.low - (0.3 - half)) < 0.004 && fabs(x.high - (0.3 + half)) < 0.004);
    assert_ok(tn_paired_bootstrap(a, b, N, 2000, 5, &y));
    assert_memory_equal(&x, &y, sizeof x);
    assert_ok(tn_paired_bootstrap(a, b, N, 2000, 6, &y));
    assert_true(x.low != y.low || x.high != y.high);
    assert_ok(tn_paired_bootstrap(b, a, N, 2000, 5, &y));
    assert_true(fabs(y.difference + 0.3) < 1e-12 && fabs(y.low + x.high) < 1e-12 && fabs(y.high + x.low) < 1e-12);
    assert_ok(tn_paired_bootstrap(a, a, N, 100, 5, &y));
    assert_true(y.difference == 0 && y.low == 0 && y.high == 0);
    assert_ok(tn_paired_bootstrap(a, b, 1, 1, 5, &y));
    assert_true(y.difference == 1 && y.low == 1 && y.high == 1);
    assert_fails(tn_paired_bootstrap(a, b, 0, 10, 5, &y), TN_USAGE, "at least one example");
}

void tn_tests_answers(tn_test_list *l)
{
    tn_test_add(l, normal_form, NULL, "wire answers: the normal form");
    tn_test_add(l, scores, NULL, "wire answers: exact match and F1");
    tn_test_add(l, paired, NULL, "wire answers: paired bootstrap");
}
