/* UTF-8 repair as Python does it, classes, NFC. */
#include "token/unicode.h"

#include "testlib.h"

#include <string.h>

#define R "\xef\xbf\xbd"

static const struct repair {
    const char *from, *to;
} repairs[] = {
    { "plain", "plain" },
    { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
    { "\xff", R },
    { "a\x80\x80z", "a" R R "z" },
    { "\xe2\x82", R }, /* cut: one for the part */
    { "\xe2\x82z", R "z" },
    { "\xf0\x9f\x98\xf0\x9f", R R },
    { "\xc0\xaf", R R }, /* overlong */
    { "\xe0\x80\xaf", R R R },
    { "\xed\xa0\x80", R R R },       /* a surrogate */
    { "\xf4\x90\x80\x80", R R R R }, /* above U+10FFFF */
    { "\xf1\x80\xf1\x80\x80q", R R "q" },
    { "12345678\xff"
      "12345678\xc3\xa9",
      "12345678" R "12345678\xc3\xa9" },
};

static void repair(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof repairs / sizeof *repairs; i++) {
        tn_text t = { 0 };
        assert_ok(tn_utf8_repair(repairs[i].from, strlen(repairs[i].from), &t));
        assert_int_equal(t.n, strlen(repairs[i].to));
        assert_memory_equal(t.data, repairs[i].to, t.n);
        assert_int_equal(tn_utf8_prefix(t.data, t.n), t.n);
        tn_text_free(&t);
    }
}

static void every_code_point(void **state)
{
    (void)state;
    tn_unicode *u;
    long letters = 0, numbers = 0, spaces = 0, marks = 0;
    assert_ok(tn_unicode_new(&u));
    for (uint32_t c = 0; c < 0x110000; c++) {
        char utf8[4];
        size_t n, length;
        if (c >= 0xd800 && c < 0xe000) continue;
        n = tn_utf8_write(c, utf8);
        assert_int_equal(tn_utf8_get((const unsigned char *)utf8, &length), c);
        assert_int_equal(length, n);
        assert_int_equal(tn_utf8_first((const unsigned char *)utf8, n, &length), TN_UTF8_CHAR);
        const unsigned k = tn_class_at(u, (const unsigned char *)utf8, &length);
        letters += (k & TN_CLASS_L) != 0;
        numbers += (k & TN_CLASS_N) != 0;
        spaces += (k & TN_CLASS_SPACE) != 0;
        marks += (k & TN_CLASS_MARK) != 0;
    }
    assert_int_equal(letters, 141028); /* Unicode 16.0 */
    assert_int_equal(numbers, 1911);
    assert_int_equal(spaces, 25);
    assert_int_equal(marks, 2501);
    tn_unicode_free(u);
}

static const struct repair forms[] = {
    { "abc \xc3\xa9", "abc \xc3\xa9" },
    { "e\xcc\x81", "\xc3\xa9" },
    { "e\xcc\xa7\xcc\x81", "\xc8\xa9\xcc\x81" },                /* e, cedilla, acute */
    { "e\xcc\x81\xcc\xa7", "\xc8\xa9\xcc\x81" },                /* in the other order */
    { "\xcc\x81", "\xcc\x81" },                                 /* alone */
    { "\xe2\x84\xab", "\xc3\x85" },                             /* angstrom */
    { "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81" }, /* Hangul L V T */
    { "\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81" },             /* LV T */
    { "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc" },             /* a composition exclusion */
    { "\xe1\xbe\x82", "\xe1\xbe\x82" },                         /* four deep */
    { "\xce\xb1\xcc\x93\xcc\x80\xcd\x85x", "\xe1\xbe\x82x" },
    { "\xcd\x84", "\xcc\x88\xcc\x81" },
};

static void nfc(void **state)
{
    (void)state;
    tn_unicode *u;
    tn_nfc_space x = { 0 };
    assert_ok(tn_unicode_new(&u));
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        tn_text t = { 0 }, again = { 0 };
        assert_ok(tn_nfc(u, &x, forms[i].from, strlen(forms[i].from), &t));
        assert_int_equal(t.n, strlen(forms[i].to));
        assert_memory_equal(t.data, forms[i].to, t.n);
        assert_ok(tn_nfc(u, &x, t.data, t.n, &again));
        assert_int_equal(again.n, t.n);
        assert_memory_equal(again.data, t.data, t.n);
        if (strcmp(forms[i].from, forms[i].to) != 0)
            assert_true(tn_nfc_needed(u, forms[i].from, strlen(forms[i].from)));
        tn_text_free(&t);
        tn_text_free(&again);
    }
    tn_nfc_space_free(&x);
    tn_unicode_free(u);
}

void tn_tests_unicode(tn_test_list *l)
{
    tn_test_add(l, repair, NULL, "unicode repair");
    tn_test_add(l, every_code_point, NULL, "unicode every code point");
    tn_test_add(l, nfc, NULL, "unicode nfc");
}
