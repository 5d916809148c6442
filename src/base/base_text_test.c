/* Numbers as texts, and texts that are cleaned. */
#include "base/text.h"
#include "testlib.h"

#include <math.h>
#include <string.h>

static void numbers(void **state)
{
    static const struct {
        double x;
        const char *text;
    } of[] = { { 0, "0" },
               { 0.0123456, "0.01235" },
               { 12.3456, "12.35" },
               { 999.96, "1000" },
               { 63770.4, "63770" },
               { -25093, "-25093" },
               { 1.5e12, "1.5e+12" },
               { 1e-7, "1e-07" },
               { 99999.5e6, "99999500000" } };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) assert_string_equal(TN_NUMBER(of[i].x), of[i].text);
    assert_non_null(strstr(TN_NUMBER(NAN), "nan"));
}

static void cleaned(void **state)
{
    (void)state;
    char s[] = "a\tb\x1b[2J\x7f\xc2\x9b\xc3\xa9\n";
    tn_text_clean(s);
    assert_string_equal(s, "a b?[2J???\xc3\xa9 ");
}

void tn_tests_base_text(tn_test_list *l)
{
    tn_test_add(l, numbers, NULL, "text: numbers");
    tn_test_add(l, cleaned, NULL, "text: control characters");
}
