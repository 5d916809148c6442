/* Settings files: what is read, what is refused and how it is said, hostile files, and write-then-read. */
#include "io/yaml_settings.h"

#include "base/alloc.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const tn_setting rows[] = {
    TN_SETTING_TEXT("model", "ten", ""),
    TN_SETTING_FLOAT("train.lr", "1e-3", TN_RANGE_LO_OPEN(0, 1), "", ""),
    TN_SETTING_INT("train.steps", "100", TN_RANGE_MIN(1), "", ""),
    TN_SETTING_TEXT("data", "", ""),
    TN_SETTING_SWITCH("opt.scan", "on", ""),
    TN_SETTING_AUTO_INT("train.batch", "auto", TN_RANGE_MIN(1), "", ""),
    TN_SETTING_INT("a.b.c.d.e.f.g.h", "1", TN_RANGE_ANY, "", ""),
    TN_SETTING_BOOL("flag", "no", ""),
};
enum { ROWS = sizeof rows / sizeof *rows };

static tn_settings *table(void)
{
    tn_settings *st = NULL;
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_add(st, rows, ROWS, "test"));
    return st;
}

static tn_status read_text(tn_settings *st, const char *text)
{
    return tn_settings_read_yaml_text(st, text, strlen(text), "config.yaml");
}

static void reads(void **state)
{
    (void)state;
    tn_settings *st = table();
    assert_ok(read_text(st, "# a comment\n"
                            "model: gpt\n"
                            "train:\n"
                            "  lr: 1e-4\n"
                            "  steps: 64k\n"
                            "opt: {scan: off}\n"
                            "train.batch: 8   # dotted\n"
                            "data: 0755\n"
                            "a: {b: {c: {d: {e: {f: {g: {h: 9}}}}}}}\n"));
    assert_string_equal(tn_settings_text(st, "model"), "gpt");
    assert_true(tn_settings_float(st, "train.lr") == 1e-4);
    assert_int_equal(tn_settings_int(st, "train.steps"), 64000);
    assert_int_equal(tn_settings_int(st, "train.batch"), 8);
    assert_false(tn_settings_on(st, "opt.scan"));
    assert_string_equal(tn_settings_text(st, "data"), "0755");
    assert_int_equal(tn_settings_int(st, "a.b.c.d.e.f.g.h"), 9);
    assert_string_equal(tn_settings_source(st, "train.lr"), "config.yaml:4");
    assert_string_equal(tn_settings_source(st, "flag"), "default");
    tn_settings_free(st);
}

/* Files that say nothing are fine. */
static void empty(void **state)
{
    static const char *const files[] = { "",     "\n",       "# only a comment\n", "---\n",
                                         "{}\n", "train:\n", "train: {}\n",        "%YAML 1.1\n---\n" };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tn_settings *st = table();
        assert_ok(read_text(st, files[i]));
        for (size_t k = 0; k < ROWS; k++) assert_string_equal(tn_settings_source_at(st, k), "default");
        tn_settings_free(st);
    }
}

typedef struct refuse {
    const char *name, *text;
    tn_status status;
    const char *message;
} refuse;

static const refuse refuses[] = {
    { "value", "model: x\ntrain:\n  lr: 3e4\n", TN_USAGE,
      "train.lr=3e4 is outside (0, 1]: did you mean 3e-4?  (config.yaml:3)" },
    { "key", "train:\n  lrr: 1\n", TN_USAGE, "unknown key train.lrr: did you mean train.lr?  (config.yaml:2)" },
    { "section", "trian:\n  lr: 1\n", TN_USAGE, "unknown key trian" },
    { "value for section", "train: 3\n", TN_USAGE, "train is a section, not a key" },
    { "map for value", "train: {lr: {x: 1}}\n", TN_USAGE, "train.lr takes one value, not a map  (config.yaml:1)" },
    { "list", "train:\n  lr: [1, 2]\n", TN_BAD_FILE,
      "train.lr: a list is not a setting: write one value  (config.yaml:2)" },
    { "block list", "train:\n  - lr\n", TN_BAD_FILE, "train: a list is not a setting" },
    { "top list", "- a\n- b\n", TN_BAD_FILE, "a list is not a setting: write one value  (config.yaml:1)" },
    { "list as key", "[a]: 1\n", TN_BAD_FILE, "a list is not a setting" },
    { "map as key", "{a: 1}: 1\n", TN_BAD_FILE, "a map cannot be a key" },
    { "scalar", "hello\n", TN_BAD_FILE, "this is not `key: value`  (config.yaml:1)" },
    { "anchor", "model: &a ten\n", TN_BAD_FILE, "anchors and aliases are not read" },
    { "map anchor", "train: &a {lr: 1}\n", TN_BAD_FILE, "anchors and aliases are not read" },
    { "alias", "model: *a\n", TN_BAD_FILE,
      "anchors and aliases are not read: write the value itself  (config.yaml:1)" },
    { "tag", "train:\n  lr: !!float 1\n", TN_BAD_FILE, "tags are not read: the key gives the type  (config.yaml:2)" },
    { "map tag", "train: !!python/object {lr: 1}\n", TN_BAD_FILE, "tags are not read" },
    { "tag directive", "%TAG ! x:\n---\nmodel: a\n", TN_BAD_FILE, "tags are not read" },
    { "documents", "model: a\n---\nmodel: b\n", TN_BAD_FILE, "a second document: keep one per file  (config.yaml:2)" },
    { "duplicate", "model: a\ndata: x\nmodel: b\n", TN_BAD_FILE,
      "model appears twice: line 1 has it too  (config.yaml:3)" },
    { "duplicate section", "train: {lr: 1}\ntrain: {steps: 2}\n", TN_BAD_FILE, "train appears twice" },
    { "duplicate dotted", "train: {lr: 1}\ntrain.lr: 1\n", TN_BAD_FILE, "train.lr appears twice" },
    { "depth", "a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n", TN_BAD_FILE, "nested more than 8 deep" },
    { "syntax", "train: {lr: 1\n", TN_BAD_FILE, "not valid YAML" },
    { "tab", "train:\n\tlr: 1\n", TN_BAD_FILE, "(config.yaml:2)" },
    { "bad utf-8", "model: \xff\xc0\n", TN_BAD_FILE, "config.yaml is not UTF-8 text" },
    { "cut utf-8", "model: \xe2\x82", TN_BAD_FILE, "config.yaml is not UTF-8 text" },
    { "control byte", "model: a\x01", TN_BAD_FILE, "config.yaml is not UTF-8 text" },
    { "nul in value", "data: \"a\\0b\"\n", TN_USAGE, "data: the value contains a NUL byte  (config.yaml:1)" },
    { "nul in key", "\"data\\0x\": 1\n", TN_USAGE, "unknown key \"data\"" },
    { "line break in key", "\"a\\nb\": [1]\n", TN_USAGE, "unknown key \"a?b\"" },
    { "empty key", "\"\": 1\n", TN_USAGE, "unknown key \"\"" },
    { "empty number", "train:\n  steps:\n", TN_USAGE, "train.steps= is not an integer" },
};

static void refused(void **state)
{
    const refuse *r = *state;
    tn_settings *st = table();
    char text[256];
    snprintf(text, sizeof text, "%s", r->text);
    assert_fails(read_text(st, text), r->status, r->message);
    assert_null(strchr(tn_error_text(), '\n'));
    for (size_t k = 0; k < ROWS; k++) assert_string_equal(tn_settings_source_at(st, k), "default"); /* all or nothing */
    tn_settings_free(st);
}

/* Each level of the bomb names the one before it ten times; it must be refused at its first anchor. */
static void alias_bomb(void **state)
{
    (void)state;
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "a: &a [x,x]\n");
    for (char c = 'b'; c < 'z'; c++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c,
                              c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1);
    tn_settings *st = table();
    assert_fails(read_text(st, text), TN_BAD_FILE, "a list is not a setting");
    assert_fails(read_text(st, "train: &x {lr: 1}\na: *x\n"), TN_BAD_FILE, "anchors and aliases");
    tn_settings_free(st);
}

/* 3000 levels in each of the ways to nest, and a megabyte of open brackets. */
static void deep(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t count;
    } shapes[] = { { "{a: ", 3000 }, { "[", 3000 },    { "? ", 3000 },   { "- ", 3000 },
                   { "{", 1 << 20 }, { "[", 1 << 20 }, { "- ", 1 << 19 } };
    char *text = tn_alloc(1 << 20);
    tn_settings *st = table();
    assert_non_null(text);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t unit = strlen(shapes[i].unit);
        for (size_t k = 0; k < shapes[i].count; k++) memcpy(text + k * unit, shapes[i].unit, unit);
        const tn_status s = tn_settings_read_yaml_text(st, text, shapes[i].count * unit, "config.yaml");
        if (s != TN_BAD_FILE && s != TN_USAGE) fail_msg("shape %zu: status %d", i, (int)s);
    }
    size_t n = 0; /* one key a line, each deeper than the last */
    for (size_t k = 0; k < 1000; k++) {
        memset(text + n, ' ', k);
        memcpy(text + n + k, "a:\n", 3);
        n += k + 3;
    }
    assert_int_not_equal(tn_settings_read_yaml_text(st, text, n, "config.yaml"), TN_OK);
    tn_settings_free(st);
    tn_free(text);
}

static void files(void **state)
{
    (void)state;
    char dir[] = "/tmp/tenon-yaml-XXXXXX", path[64];
    tn_settings *st = table();
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/c.yaml", dir);
    assert_fails(tn_settings_read_yaml(st, path), TN_BAD_FILE, "No such file");
    assert_fails(tn_settings_read_yaml(st, dir), TN_BAD_FILE, "cannot read");

    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("model: gpt\n", f);
    fclose(f);
    assert_ok(tn_settings_read_yaml(st, path));
    assert_string_equal(tn_settings_text(st, "model"), "gpt");

    f = fopen(path, "a");
    assert_non_null(f);
    for (int i = 0; i < 1 << 15; i++) fprintf(f, "# %060d\n", i); /* 2 MiB */
    fclose(f);
    assert_fails(tn_settings_read_yaml(st, path), TN_BAD_FILE, "is larger than 1024 KiB");
    unlink(path);
    rmdir(dir);
    tn_settings_free(st);
}

static const char *const odd_texts[] = {
    "",
    "ten",
    "no",
    "NULL",
    "1e-3",
    "a b",
    "# x",
    "a: b",
    "- x",
    "\"q\" 'p' \\",
    "line\nbreak\r\ttab",
    " lead",
    "trail ",
    "\xc3\xa9t\xc3\xa9",
    "\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbe",
    "\xc2\x85\x7f\x1b[0m",
    "\xf0\x9f\x98\x80",
    "%x",
    "{a}",
    "*a",
    "&a",
    "!t",
    "~",
    "/data/books.txt",
    "@`|>",
};

static void round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof odd_texts / sizeof *odd_texts; i++) {
        tn_settings *st = table(), *back = table();
        char *text = NULL;
        size_t bytes = 0;
        assert_ok(tn_settings_set(st, "data", odd_texts[i], "odd\n\xe2\x80\xa8name.yaml:%zu", i));
        assert_ok(tn_settings_override(st, "train.lr=1e-5"));
        assert_ok(tn_settings_override(st, "train.steps=64k"));
        assert_ok(tn_settings_override(st, "opt.scan=no"));
        FILE *f = open_memstream(&text, &bytes);
        assert_non_null(f);
        assert_ok(tn_settings_write_yaml(st, f));
        fclose(f);
        assert_ok(tn_settings_read_yaml_text(back, text, bytes, "back.yaml"));
        for (size_t k = 0; k < ROWS; k++) {
            assert_string_equal(tn_settings_text_at(back, k), tn_settings_text_at(st, k));
            assert_non_null(strstr(tn_settings_source_at(back, k), "back.yaml:"));
        }
        free(text);
        tn_settings_free(st);
        tn_settings_free(back);
    }
}

static void written_form(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    tn_settings *st = table();
    assert_ok(tn_settings_set(st, "train.lr", "1e-5", "config.yaml:7"));
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    assert_ok(tn_settings_write_yaml(st, f));
    fclose(f);
    static const char start[] = "model: ten                          # default\n"
                                "train:\n"
                                "  lr: 1.0e-05                       # config.yaml:7\n"
                                "  steps: 100                        # default\n"
                                "  batch: auto                       # default\n"
                                "data: \"\"                            # default\n";
    assert_int_equal(strncmp(text, start, sizeof start - 1), 0);
    free(text);
    tn_settings_free(st);
}

static void full_disk(void **state)
{
    (void)state;
    FILE *f = fopen("/dev/full", "w");
    if (!f) skip();
    tn_settings *st = table();
    assert_fails(tn_settings_write_yaml(st, f), TN_DISK, "cannot write the settings");
    fclose(f);
    tn_settings_free(st);
}

static void no_memory(void **state)
{
    (void)state;
    tn_settings *st = table();
    uint64_t n = 0;
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_alloc_fail_at(++n);
        s = read_text(st, "model: gpt\ntrain: {lr: 0.5}\n");
        tn_alloc_fail_at(0);
        assert_true(s == TN_OK || s == TN_MEMORY);
        assert_string_equal(tn_settings_text(st, "model"), s == TN_OK ? "gpt" : "ten");
    }
    assert_true(n > 3);
    tn_settings_free(st);
}

void tn_tests_yaml_settings(tn_test_list *l)
{
    tn_test_add(l, reads, NULL, "yaml_settings: reads");
    tn_test_add(l, empty, NULL, "yaml_settings: empty files");
    for (size_t i = 0; i < sizeof refuses / sizeof *refuses; i++)
        tn_test_add(l, refused, &refuses[i], "yaml_settings: refuses %s", refuses[i].name);
    tn_test_add(l, alias_bomb, NULL, "yaml_settings: alias bomb");
    tn_test_add(l, deep, NULL, "yaml_settings: deep nesting");
    tn_test_add(l, files, NULL, "yaml_settings: files");
    tn_test_add(l, round_trip, NULL, "yaml_settings: round trip");
    tn_test_add(l, written_form, NULL, "yaml_settings: written form");
    tn_test_add(l, full_disk, NULL, "yaml_settings: full disk");
    tn_test_add(l, no_memory, NULL, "yaml_settings: no memory");
}
