/* The settings table: what each type accepts and refuses, the exact messages, sources, clones, and bad tables. */
#include <tenon/settings.h>

#include "base/alloc.h"
#include "base/text.h"
#include "testlib.h"

#include <stdio.h>
#include <string.h>

static const tn_setting rows[] = {
    TN_SETTING_FLOAT("train.lr", "1e-3", TN_RANGE_LO_OPEN(0, 1), "", "peak learning rate"),
    TN_SETTING_AUTO_INT("train.batch", "auto", TN_RANGE_MIN(1), "seq", "sequences per step"),
    TN_SETTING_AUTO_INT_OFF("scale", "auto", TN_RANGE(1, 1e6), "", "a number that can be switched off"),
    TN_SETTING_INT("train.steps", "2000", TN_RANGE(1, 1e12), "steps", "length of the run"),
    TN_SETTING_INT("seed", "0", TN_RANGE_ANY, "", "seed"),
    TN_SETTING_FLOAT("noise", "0", TN_RANGE_OPEN(-1, 1), "", "open on both sides"),
    TN_SETTING_AUTO_FLOAT("train.dropout", "auto", TN_RANGE_HI_OPEN(0, 1), "", "a number that can be found"),
    TN_SETTING_FLOAT("big", "1e6", TN_RANGE_MIN(100), "", "unbounded above"),
    TN_SETTING_BOOL("verbose", "false", "a boolean"),
    TN_SETTING_SWITCH("opt.scan", "on", "blocked parallel scan"),
    TN_SETTING_TEXT("data", "", "file"),
    TN_SETTING_CHOICE("train.schedule", "cosine", "cosine|wsd|constant", "shape of the learning rate"),
};
enum { ROWS = sizeof rows / sizeof *rows };

static tn_settings *table(void)
{
    tn_settings *st = NULL;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_add(st, rows, ROWS, "test"));
    return st;
}

typedef struct accept {
    const char *key, *text, *canonical;
} accept;

static const accept accepts[] = {
    { "train.lr", "3e-4", "0.0003" },
    { "train.lr", "1", "1" },
    { "train.lr", "1e-5", "1.0e-05" },
    { "train.lr", "+.5", "0.5" },
    { "train.lr", "0.30000000000000004", "0.30000000000000004" },
    { "noise", "-0.5", "-0.5" },
    { "train.dropout", "auto", "auto" },
    { "train.dropout", "0.10", "0.1" },
    { "scale", "off", "off" },
    { "scale", "64k", "64000" },
    { "scale", "auto", "auto" },
    { "train.batch", "auto", "auto" },
    { "train.batch", "64", "64" },
    { "train.batch", "1.5k", "1500" },
    { "train.steps", "1e6", "1000000" },
    { "train.steps", "2M", "2000000" },
    { "train.steps", "1G", "1000000000" },
    { "train.steps", "1200e-2", "12" },
    { "train.steps", "100.00", "100" },
    { "seed", "9223372036854775807", "9223372036854775807" },
    { "seed", "-7", "-7" },
    { "seed", "0e99999999999999999999", "0" },
    { "seed", "007", "7" },
    { "verbose", "yes", "true" },
    { "verbose", "False", "false" },
    { "opt.scan", "off", "off" },
    { "opt.scan", "true", "on" },
    { "data", "a b=c.txt", "a b=c.txt" },
    { "data", "\xc3\xa9.txt", "\xc3\xa9.txt" },
    { "train.schedule", "wsd", "wsd" },
};

static void accepted(void **state)
{
    const accept *a = *state;
    tn_settings *st = table();
    assert_ok(tn_settings_set(st, a->key, a->text, "config.yaml:%d", 7));
    const size_t i = tn_settings_find(st, a->key);
    assert_string_equal(tn_settings_text(st, a->key), a->canonical);
    assert_string_equal(tn_settings_text_at(st, i), a->canonical);
    assert_string_equal(tn_settings_written_at(st, i), a->text);
    assert_string_equal(tn_settings_source(st, a->key), "config.yaml:7");
    tn_settings_free(st);
}

typedef struct refuse {
    const char *key_value, *message;
} refuse;

static const refuse refuses[] = {
    { "train.lr=3e4", "train.lr=3e4 is outside (0, 1]: did you mean 3e-4?  (command line)" },
    { "train.lr=3E+4", "train.lr=3E+4 is outside (0, 1]: did you mean 3E-4?  (command line)" },
    { "big=5e-3", "big=5e-3 is outside [100, inf): did you mean 5e3?  (command line)" },
    { "train.lr=7", "train.lr=7 is outside (0, 1]  (command line)" },
    { "train.lr=-3e4", "train.lr=-3e4 is outside (0, 1]  (command line)" },
    { "train.lr=0", "train.lr=0 is outside (0, 1]  (command line)" },
    { "train.dropout=off", "train.dropout=off is not a number: write 0.5 or 3e-4, or auto  (command line)" },
    { "train.dropout=1", "train.dropout=1 is outside [0, 1)  (command line)" },
    { "train.dropout=1e1", "train.dropout=1e1 is outside [0, 1): did you mean 1e-1?  (command line)" },
    { "train.lr=auto", "train.lr=auto is not a number: write 0.5 or 3e-4  (command line)" },
    { "noise=1", "noise=1 is outside (-1, 1)  (command line)" },
    { "noise=-1", "noise=-1 is outside (-1, 1)  (command line)" },
    { "train.lr=nan", "train.lr=nan is not a number: write 0.5 or 3e-4  (command line)" },
    { "big=inf", "big=inf is not a number: write 0.5 or 3e-4  (command line)" },
    { "big=1e999", "big=1e999 is too large for a number  (command line)" },
    { "big=0x1p9", "big=0x1p9 is not a number" },
    { "big= 200", "big= 200 is not a number" },
    { "big=200 ", "big=200  is not a number" },
    { "big=1e", "big=1e is not a number" },
    { "big=.", "big=. is not a number" },
    { "train.batch=abc", "train.batch=abc is not an integer: write 64, 64k or 1e6, or auto  (command line)" },
    { "train.batch=", "train.batch= is not an integer" },
    { "train.batch=off", "train.batch=off is not an integer: write 64, 64k or 1e6, or auto  (command line)" },
    { "scale=of", "scale=of is not an integer: write 64, 64k or 1e6, or auto, or off  (command line)" },
    { "scale=0", "scale=0 is outside [1, 1000000]" },
    { "train.batch=0", "train.batch=0 is outside [1, inf)  (command line)" },
    { "train.steps=auto", "train.steps=auto is not an integer: write 64, 64k or 1e6  (command line)" },
    { "train.steps=1.5", "train.steps=1.5 is not an integer  (command line)" },
    { "train.steps=1e-3", "train.steps=1e-3 is not an integer  (command line)" },
    { "train.steps=1e13", "train.steps=1e13 is outside [1, 1000000000000]  (command line)" },
    { "train.steps=1e3k", "train.steps=1e3k is not an integer" },
    { "train.steps=5K", "train.steps=5K is not an integer" },
    { "train.steps=5kk", "train.steps=5kk is not an integer" },
    { "seed=9223372036854775808", "seed=9223372036854775808 does not fit 64 bits  (command line)" },
    { "seed=99999999999999999999999", "does not fit 64 bits" },
    { "seed=9223372036854775807k", "does not fit 64 bits" },
    { "seed=1e99999999999999999999", "does not fit 64 bits" },
    { "verbose=maybe", "verbose=maybe is neither true nor false  (command line)" },
    { "opt.scan=2", "opt.scan=2 is neither on nor off  (command line)" },
    { "train.schedule=cosin", "is not one of cosine|wsd|constant: did you mean cosine?  (command line)" },
    { "train.schedule=zzzzzz", "train.schedule=zzzzzz is not one of cosine|wsd|constant  (command line)" },
    { "train.schedule=cosine|wsd", "is not one of" },
    { "train.schedule=", "train.schedule= is not one of" },
    { "data=\xff.txt", "data=?.txt is not UTF-8 text" },
    { "data=a\n\xff", "data=a?? is not UTF-8 text" },
    { "train.lrr=1", "unknown key train.lrr: did you mean train.lr?  (command line)" },
    { "train.setps=1", "unknown key train.setps: did you mean train.steps?  (command line)" },
    { "lr=1", "unknown key lr: did you mean train.lr?  (command line)" },
    { "quux=1", "unknown key quux: `tenon config show` lists the keys  (command line)" },
    { "train=1", "train is a section, not a key" },
    { "=1", "=1 is not key=value  (command line)" },
    { "train.lr", "train.lr is not key=value  (command line)" },
};

static void refused(void **state)
{
    const refuse *r = *state;
    tn_settings *st = table();
    assert_fails(tn_settings_override(st, r->key_value), TN_USAGE, r->message);
    assert_null(strchr(tn_error_text(), '\n'));
    for (size_t i = 0; i < ROWS; i++) { /* nothing changed */
        assert_string_equal(tn_settings_written_at(st, i), rows[i].value);
        assert_string_equal(tn_settings_source_at(st, i), "default");
    }
    tn_settings_free(st);
}

static void long_texts(void **state)
{
    (void)state;
    tn_settings *st = table();
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_fails(tn_settings_set(st, "train.lr", text, "cmd"), TN_USAGE, "xxx... is not a number");
    assert_fails(tn_settings_set(st, text, "1", "cmd"), TN_USAGE, "xxx...: `tenon config show`");
    assert_fails(tn_settings_set(st, "train.schedule", text, "cmd"), TN_USAGE, "  (cmd)");
    assert_ok(tn_settings_set(st, "data", text, "%s", text));
    assert_string_equal(tn_settings_text(st, "data"), text);
    memcpy(text + 4000, "=1", 3);
    assert_fails(tn_settings_override(st, text), TN_USAGE, "xxx...: `tenon config show`");
    tn_settings_free(st);
}

static void getters(void **state)
{
    (void)state;
    tn_settings *st = table();
    assert_true(tn_settings_is_auto(st, "train.batch"));
    assert_int_equal(tn_settings_int(st, "train.batch"), 0);
    assert_ok(tn_settings_override(st, "train.batch=64k"));
    assert_false(tn_settings_is_auto(st, "train.batch"));
    assert_int_equal(tn_settings_int(st, "train.batch"), 64000);
    assert_true(tn_settings_float(st, "train.lr") == 1e-3);
    assert_true(tn_settings_on(st, "opt.scan"));
    assert_false(tn_settings_on(st, "verbose"));
    assert_string_equal(tn_settings_text(st, "train.schedule"), "cosine");
    assert_string_equal(tn_settings_source(st, "train.lr"), "default");
    assert_int_equal(tn_settings_count(st), ROWS);
    assert_ptr_equal(tn_settings_row_at(st, 1), &rows[1]);
    assert_string_equal(tn_settings_owner_at(st, 1), "test");
    assert_true(tn_settings_is_section(st, "train"));
    assert_false(tn_settings_is_section(st, "tra"));
    assert_false(tn_settings_is_section(st, "train.lr"));
    tn_settings_free(st);
}

static void clones(void **state)
{
    (void)state;
    tn_settings *st = table(), *c = NULL;
    assert_ok(tn_settings_override(st, "train.lr=0.5"));
    assert_ok(tn_settings_clone(st, &c));
    assert_ok(tn_settings_override(c, "train.lr=0.25"));
    assert_true(tn_settings_float(st, "train.lr") == 0.5);
    tn_settings_swap(st, c);
    assert_true(tn_settings_float(st, "train.lr") == 0.25);
    tn_settings_free(st);
    assert_true(tn_settings_float(c, "train.lr") == 0.5);
    assert_string_equal(tn_settings_source(c, "train.lr"), "command line");
    tn_settings_free(c);
    tn_settings_free(NULL);
}

static void bad_tables(void **state)
{
    (void)state;
    static const tn_setting twice[] = { TN_SETTING_TEXT("fresh", "", ""), TN_SETTING_TEXT("data", "", "") };
    static const tn_setting below[] = { TN_SETTING_TEXT("data.path", "", "") };
    static const tn_setting above[] = { TN_SETTING_TEXT("train", "", "") };
    static const tn_setting name[] = { TN_SETTING_TEXT("Train.x", "", "") };
    static const tn_setting dots[] = { TN_SETTING_TEXT("a..b", "", "") };
    static const tn_setting deep[] = { TN_SETTING_TEXT("a.b.c.d.e.f.g.h.i", "", "") };
    static const tn_setting value[] = { TN_SETTING_FLOAT("x", "2", TN_RANGE(0, 1), "", "") };
    tn_settings *st = table();
    assert_fails(tn_settings_add(st, twice, 2, "ten"), TN_USAGE, "ten: the key data already belongs to test");
    assert_int_equal(tn_settings_count(st), ROWS); /* all or none */
    assert_fails(tn_settings_add(st, below, 1, "ten"), TN_USAGE, "ten: the key data.path collides with data of test");
    assert_fails(tn_settings_add(st, above, 1, "ten"), TN_USAGE, "the key train collides with train.lr of test");
    assert_fails(tn_settings_add(st, name, 1, "ten"), TN_USAGE, "\"Train.x\" is not a key");
    assert_fails(tn_settings_add(st, dots, 1, "ten"), TN_USAGE, "\"a..b\" is not a key");
    assert_fails(tn_settings_add(st, deep, 1, "ten"), TN_USAGE, "is not a key");
    assert_fails(tn_settings_add(st, value, 1, "ten"), TN_USAGE, "x=2 is outside [0, 1]  (default of ten)");
    assert_ok(tn_settings_add(st, twice, 1, "ten"));
    assert_string_equal(tn_settings_owner_at(st, ROWS), "ten");
    tn_settings_free(st);
}

/* Every allocation of build-up, set and clone fails once; nothing leaks (the sanitizers watch). */
static void no_memory(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_settings *st = NULL, *c = NULL;
        tn_alloc_fail_at(++n);
        s = tn_settings_new(&st);
        if (s == TN_OK) s = tn_settings_add(st, rows, ROWS, "test");
        if (s == TN_OK) s = tn_settings_override(st, "train.lr=0.5");
        if (s == TN_OK) s = tn_settings_clone(st, &c);
        tn_alloc_fail_at(0);
        assert_true(s == TN_OK || s == TN_MEMORY);
        tn_settings_free(st);
        tn_settings_free(c);
    }
    assert_true(n > 4);
}

static void texts(void **state)
{
    (void)state;
    char buf[8];
    uint32_t code = 0;
    assert_int_equal(tn_text_distance("", "abc"), 3);
    assert_int_equal(tn_text_distance("kitten", "sitting"), 3);
    assert_int_equal(tn_text_distance("conifg", "config"), 1);
    assert_int_equal(tn_text_distance("ca", "abc"), 3); /* a swapped pair is not edited again */
    assert_string_equal(tn_text_quote("1234567", buf, sizeof buf), "1234567");
    assert_string_equal(tn_text_quote("12345678", buf, sizeof buf), "1234...");
    assert_string_equal(tn_text_quote("123\xc3\xa9\xc3\xa9zz", buf, sizeof buf), "123...");
    assert_string_equal(tn_text_quote("a\tb\x80", buf, sizeof buf), "a?b?");
    assert_int_equal(tn_utf8_decode("\xe2\x82\xac", &code), 3);
    assert_int_equal(code, 0x20ac);
    assert_int_equal(tn_utf8_decode("\xf0\x9f\x98\x80", &code), 4);
    assert_int_equal(code, 0x1f600);
    static const char *const bad[] = { "\x80", "\xc0\x80",    "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                       "\xff", "\xe0\x80\xaf" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(tn_utf8_valid(bad[i]));
}

/* A section with a name is called by its own: in set, override and the getters. Elsewhere it stays a section. */
static void named_section(void **state)
{
    (void)state;
    static const tn_setting named[] = {
        TN_SETTING_TEXT("task.name", "", "a name"),
        TN_SETTING_INT("task.size", "7", TN_RANGE_ANY, "", "beside it"),
    };
    tn_settings *st = table();
    assert_ok(tn_settings_add(st, named, 2, "test"));
    assert_ok(tn_settings_override(st, "task=digits"));
    assert_string_equal(tn_settings_text(st, "task"), "digits");
    assert_string_equal(tn_settings_text(st, "task.name"), "digits");
    assert_string_equal(tn_settings_source(st, "task"), "command line");
    assert_ok(tn_settings_set(st, "task.name", "xor", "test"));
    assert_string_equal(tn_settings_text(st, "task"), "xor");
    assert_true(tn_settings_is_section(st, "task"));
    assert_int_equal(tn_settings_find(st, "task"), tn_settings_count(st));
    assert_fails(tn_settings_override(st, "train=5"), TN_USAGE, "train is a section, not a key");
    assert_fails(tn_settings_override(st, "task.size.name=5"), TN_USAGE, "unknown key");
    char key[80];
    memset(key, 'a', sizeof key);
    key[sizeof key - 1] = 0;
    assert_fails(tn_settings_set(st, key, "1", "test"), TN_USAGE, "unknown key");
    assert_fails(tn_settings_add(st, &(tn_setting)TN_SETTING_INT("task", "7", TN_RANGE_ANY, "", "both"), 1, "test"),
                 TN_USAGE, "collides");
    tn_settings_free(st);
}

void tn_tests_settings(tn_test_list *l)
{
    for (size_t i = 0; i < sizeof accepts / sizeof *accepts; i++)
        tn_test_add(l, accepted, &accepts[i], "settings: accepts %s=%s", accepts[i].key, accepts[i].text);
    for (size_t i = 0; i < sizeof refuses / sizeof *refuses; i++)
        tn_test_add(l, refused, &refuses[i], "settings: refuses %zu", i);
    tn_test_add(l, long_texts, NULL, "settings: long texts");
    tn_test_add(l, getters, NULL, "settings: getters");
    tn_test_add(l, clones, NULL, "settings: clones");
    tn_test_add(l, bad_tables, NULL, "settings: bad tables");
    tn_test_add(l, no_memory, NULL, "settings: no memory");
    tn_test_add(l, texts, NULL, "settings: texts");
    tn_test_add(l, named_section, NULL, "settings: a section with a name");
}
