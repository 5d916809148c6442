/* Trees of YAML files: what is read with its lines, what is refused and how it is said, hostile files. */
#include "io/yaml_tree.h"

#include "io/yaml_settings.h"
#include "testlib.h"

#include <string.h>

static tn_status parse(const char *text, tn_arena *a, const tn_yaml **out)
{
    return tn_yaml_parse(text, strlen(text), "study.yaml", a, out);
}

static void reads(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    const tn_yaml *t = NULL, *sides, *list;
    assert_ok(parse("study: x   # a comment\n"
                    "search: { dim: log int 4..512, train.batch: [32, '64', 128] }\n"
                    "sides:\n"
                    "  bp:\n"
                    "    set: {grad: bptt}\n"
                    "  ep: {}\n"
                    "rules:\n"
                    "  - \"a > 1: for 50 steps\"\n"
                    "  - [p, {q: r}]\n"
                    "empty:\n",
                    &a, &t));
    assert_int_equal(t->kind, TN_YAML_MAP);
    assert_int_equal(t->n, 5);
    assert_string_equal(tn_yaml_get(t, "study")->text, "x");
    assert_string_equal(tn_yaml_get(tn_yaml_get(t, "search"), "dim")->text, "log int 4..512");
    list = tn_yaml_get(tn_yaml_get(t, "search"), "train.batch");
    assert_int_equal(list->kind, TN_YAML_LIST);
    assert_int_equal(list->n, 3);
    assert_int_equal(list->line, 2);
    assert_string_equal(list->first->next->text, "64");
    assert_null(list->first->next->next->next);
    sides = tn_yaml_get(t, "sides");
    assert_string_equal(sides->first->key, "bp");
    assert_string_equal(sides->first->next->key, "ep");
    assert_int_equal(sides->first->next->n, 0);
    assert_string_equal(tn_yaml_get(tn_yaml_get(sides->first, "set"), "grad")->text, "bptt");
    assert_int_equal(tn_yaml_get(tn_yaml_get(sides->first, "set"), "grad")->line, 5);
    assert_string_equal(tn_yaml_get(t, "rules")->first->text, "a > 1: for 50 steps");
    assert_string_equal(tn_yaml_get(tn_yaml_get(t, "rules")->first->next->first->next, "q")->text, "r");
    assert_string_equal(tn_yaml_get(t, "empty")->text, "");
    assert_null(tn_yaml_get(t, "nothing"));
    assert_null(tn_yaml_get(list, "x"));
    tn_arena_free(&a);
}

static void empty(void **state)
{
    static const char *const files[] = { "", "# only a comment\n", "---\n", "{}\n" };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tn_arena a = { 0 };
        const tn_yaml *t = NULL;
        assert_ok(parse(files[i], &a, &t));
        assert_int_equal(t->kind, TN_YAML_MAP);
        assert_int_equal(t->n, 0);
        tn_arena_free(&a);
    }
}

typedef struct refuse {
    const char *name, *text, *message;
} refuse;

static const refuse refuses[] = {
    { "scalar", "hello\n", "this is not `key: value`  (study.yaml:1)" },
    { "top list", "- a\n", "this is not `key: value`  (study.yaml:1)" },
    { "anchor", "a: &x b\n", "anchors and aliases are not read" },
    { "list anchor", "a: &x [b]\n", "anchors and aliases are not read" },
    { "alias", "a: [1, *x]\n", "anchors and aliases are not read: write the value itself  (study.yaml:1)" },
    { "tag", "a:\n  - !!int 3\n", "tags are not read: the key gives the type  (study.yaml:2)" },
    { "list tag", "a: !!seq [1]\n", "tags are not read" },
    { "documents", "a: 1\n---\nb: 1\n", "a second document: keep one per file  (study.yaml:2)" },
    { "duplicate", "a: 1\nb: 2\na: 3\n", "a appears twice: line 1 has it too  (study.yaml:3)" },
    { "map as key", "{a: 1}: 1\n", "a map or list cannot be a key" },
    { "empty key", "\"\": 1\n", "\"\" is not a key" },
    { "nul in key", "\"a\\0b\": 1\n", "\"a\" is not a key" },
    { "nul in value", "a: [\"a\\0b\"]\n", "contains a NUL byte  (study.yaml:1)" },
    { "depth", "a: [[[[[[[[1]]]]]]]]\n", "nested more than 8 deep" },
    { "syntax", "a: [1\n", "not valid YAML" },
    { "bad utf-8", "a: \xff\n", "study.yaml is not UTF-8 text" },
};

static void refused(void **state)
{
    const refuse *r = *state;
    tn_arena a = { 0 };
    const tn_yaml *t = NULL;
    assert_fails(parse(r->text, &a, &t), TN_BAD_FILE, r->message);
    assert_null(strchr(tn_error_text(), '\n'));
    assert_null(t);
    tn_arena_free(&a);
}

static void large(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    const tn_yaml *t = NULL;
    char *text = tn_alloc(TN_YAML_MAX_BYTES + 2);
    assert_non_null(text);
    memcpy(text, "a: [", 4);
    for (size_t i = 4; i + 2 <= TN_YAML_MAX_BYTES; i += 2) memcpy(text + i, "x,", 2);
    assert_fails(tn_yaml_parse(text, TN_YAML_MAX_BYTES, "study.yaml", &a, &t), TN_BAD_FILE, "more than 16384 values");
    assert_fails(tn_yaml_parse(text, TN_YAML_MAX_BYTES + 1, "study.yaml", &a, &t), TN_BAD_FILE,
                 "is larger than 1024 KiB");
    memset(text, '[', TN_YAML_MAX_BYTES);
    assert_int_equal(tn_yaml_parse(text, TN_YAML_MAX_BYTES, "study.yaml", &a, &t), TN_BAD_FILE);
    assert_fails(tn_yaml_read("/no/such/file.yaml", &a, &t), TN_BAD_FILE, "No such file");
    tn_free(text);
    tn_arena_free(&a);
}

static void no_memory(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_arena a = { 0 };
        const tn_yaml *t = NULL;
        tn_alloc_fail_at(++n);
        s = parse("a: {b: [c, d]}\n", &a, &t);
        tn_alloc_fail_at(0);
        assert_true(s == TN_OK || s == TN_MEMORY);
        assert_true((s == TN_OK) == (t != NULL));
        tn_arena_free(&a);
    }
    assert_true(n > 1);
}

void tn_tests_yaml_tree(tn_test_list *l)
{
    tn_test_add(l, reads, NULL, "yaml_tree: reads");
    tn_test_add(l, empty, NULL, "yaml_tree: empty files");
    for (size_t i = 0; i < sizeof refuses / sizeof *refuses; i++)
        tn_test_add(l, refused, &refuses[i], "yaml_tree: refuses %s", refuses[i].name);
    tn_test_add(l, large, NULL, "yaml_tree: large files");
    tn_test_add(l, no_memory, NULL, "yaml_tree: no memory");
}
