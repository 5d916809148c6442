/* Folded lines: words stay whole, what follows stands below its column, pieces make no difference. */
#include "cli/fold.h"
#include "cli/settings_view.h"
#include "train/run/train_settings.h"

#include "testlib.h"

#include <stdlib.h>
#include <string.h>

/* Blanks before a fold may have been written when a piece ended in them. */
static void strip(char *s)
{
    char *to = s;
    for (const char *p = s; *p; p++) {
        if (*p == '\n')
            while (to > s && to[-1] == ' ') to--;
        *to++ = *p;
    }
    *to = 0;
}

/* In pieces of `piece` bytes. */
static void expect(int width, bool plain, const char *text, size_t piece, const char *folded)
{
    char *out = NULL;
    size_t bytes;
    tn_fold f = { .to = open_memstream(&out, &bytes), .width = width, .plain = plain };
    assert_non_null(f.to);
    for (size_t i = 0, n = strlen(text); i < n; i += piece)
        assert_true(tn_fold_put(&f, text + i, n - i < piece ? n - i : piece));
    assert_true(tn_fold_end(&f));
    fclose(f.to);
    if (piece < strlen(text) && width) strip(out);
    assert_string_equal(out, folded);
    free(out);
}

static void folded(void **state)
{
    (void)state;
    static const struct {
        int width;
        bool plain;
        const char *text, *out;
    } cases[] = {
        { 0, false, "as it is,   however long it may be \n", "as it is,   however long it may be \n" },
        { 40, false, "one two\n", "one two\n" },
        { 8, false, "one two three\n\nfour", "one two\nthree\n\nfour" },
        { 8, true, "  one two three", "  one\ntwo\nthree" },
        { 40, false, "  --flag       what the flag does, in some more words\n",
          "  --flag       what the flag does, in\n               some more words\n" },
        { 40, false, "error: something is wrong with the word\n", "error: something is wrong with the word\n" },
        { 39, false, "error: something is wrong with this word\n",
          "error: something is wrong with this\n       word\n" },
        /* too little room below the last column: below the one before it */
        { 40, false, "key  value              a very long help\n", "key  value              a very long help\n" },
        { 39, false, "key  value              a very long help\n", "key  value              a very long\n     help\n" },
        { 10, false, "a /path/longer/than/the/line b\n", "a\n/path/longer/than/the/line\nb\n" },
        { 10, false, "12.345  67.890\n", "12.345\n67.890\n" },
        { 6, false, "\xc3\xa9t\xc3\xa9 \xe2\x96\x88\xe2\x96\x88 x\n",
          "\xc3\xa9t\xc3\xa9 \xe2\x96\x88\xe2\x96\x88\nx\n" },
        { 20, false, "a\tb\n", "a       b\n" },
        /* no room for the word where it should stand */
        { 40, false, "key             0123456789 0123456789012345678901234567\n",
          "key             0123456789\n            0123456789012345678901234567\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 64; piece *= 3)
            expect(cases[i].width, cases[i].plain, cases[i].text, piece, cases[i].out);
}

/* A word longer than what is kept of it. */
static void long_word(void **state)
{
    (void)state;
    char text[1002], out[1002];
    memset(text, 'x', 1000);
    memcpy(text, "a ", 2);
    strcpy(text + 999, " b");
    memcpy(out, text, sizeof out);
    out[1] = out[999] = '\n';
    expect(20, false, text, 7, out);
}

/* A prompt is seen with its blank, and what is said behind a flush goes on where it ended. */
static void prompt(void **state)
{
    (void)state;
    char *out = NULL;
    size_t bytes;
    tn_fold f = { .to = open_memstream(&out, &bytes), .width = 40 };
    assert_true(tn_fold_put(&f, "> ", 2));
    fflush(f.to);
    assert_string_equal(out, "> ");
    assert_true(tn_fold_put(&f, "wor", 3));
    assert_true(tn_fold_end(&f));
    fflush(f.to);
    assert_string_equal(out, "> wor");
    assert_true(tn_fold_put(&f, "d and more\n", 11));
    fclose(f.to);
    assert_string_equal(out, "> word and more\n");
    free(out);
}

static void allowed(void **state)
{
    (void)state;
    static const struct {
        tn_setting row;
        const char *text;
    } cases[] = {
        { TN_SETTING_CHOICE("a", "x", "x|y", ""), "x|y" },
        { TN_SETTING_SWITCH("a", "on", ""), "on|off" },
        { TN_SETTING_TEXT("a", "", ""), "" },
        { TN_SETTING_INT("a", "1", TN_RANGE(0, 1e12), "", ""), "" },
        { TN_SETTING_INT("a", "1", TN_RANGE(0, 256), "", ""), "0 to 256" },
        { TN_SETTING_AUTO_INT("a", "auto", TN_RANGE(1, 1024), "", ""), "1 to 1024 or auto" },
        { TN_SETTING_AUTO_INT_OFF("a", "auto", TN_RANGE(1, 9), "", ""), "1 to 9, auto or off" },
        { TN_SETTING_FLOAT("a", "1", TN_RANGE_LO_OPEN(0, 1), "", ""), "above 0 to 1" },
        { TN_SETTING_FLOAT("a", "0", TN_RANGE_HI_OPEN(0, 1), "", ""), "0 to below 1" },
        { TN_SETTING_FLOAT("a", "1", TN_RANGE_ABOVE(0), "", ""), "above 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[64];
        assert_string_equal(tn_setting_allowed(&cases[i].row, buf, sizeof buf), cases[i].text);
    }
}

/* Every common setting has a section of its own; a model's are in the last one. */
static void sections(void **state)
{
    (void)state;
    tn_settings *st = NULL;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    for (size_t i = 0; i < tn_settings_count(st); i++)
        assert_true(tn_section_of(tn_settings_row_at(st, i)->key) + 1 < tn_sections_n);
    tn_settings_free(st);
    assert_string_equal(tn_section_name(tn_section_of("train.lr")), "optimizer");
    assert_string_equal(tn_section_name(tn_section_of("train.lr_min_frac")), "optimizer");
    assert_string_equal(tn_section_name(tn_section_of("dim")), "model");
    assert_int_equal(tn_section_of("databank"), tn_sections_n - 1);
    assert_int_equal(tn_section_named("nothing"), tn_sections_n);
}

void tn_tests_fold(tn_test_list *l)
{
    tn_test_add(l, folded, NULL, "fold: lines");
    tn_test_add(l, long_word, NULL, "fold: a long word");
    tn_test_add(l, prompt, NULL, "fold: a prompt");
    tn_test_add(l, allowed, NULL, "settings view: allowed values");
    tn_test_add(l, sections, NULL, "settings view: sections");
}
