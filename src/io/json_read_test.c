/* The reader against jansson: both take and refuse the same texts, and decode strings to the same bytes; then what only the
 * reader promises: no allocation, no depth of calls, a tree within bounds. */
#include "io/json_read.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "testlib.h"

#include <stdlib.h>
#include <string.h>

static bool reads(const char *text, size_t n)
{
    tn_json r;
    tn_json_open(&r, text, n);
    return tn_json_skip(&r) && tn_json_end(&r);
}

/* In memory that ends where the text does, so that a byte read too far is caught by the sanitizer. */
static void assert_agrees(const char *text, size_t n)
{
    json_error_t err;
    char *exact = malloc(n ? n : 1);
    memcpy(exact, text, n);
    json_t *tree = json_loadb(exact, n, JSON_DECODE_ANY, &err);
    const bool ours = reads(exact, n), overflows = !tree && strstr(err.text, "too big");
    if (ours != (tree != NULL) && !(ours && (overflows || strstr(err.text, "real number overflow"))))
        fail_msg("\"%.*s\": jansson says %s, the reader %s", (int)n, text, tree ? "good" : err.text,
                 ours ? "good" : "bad");
    json_decref(tree);
    free(exact);
}

static const char *const texts[] = {
    "",
    " ",
    "1",
    "-0",
    "0",
    "01",
    "-",
    "1.",
    ".5",
    "1.5e3",
    "1e",
    "1e+",
    "1E-7",
    "+1",
    "12a",
    "true",
    "tru",
    "false",
    "null",
    "nul",
    "nan",
    "NaN",
    "Infinity",
    "\"\"",
    "\"a\"",
    "\"a",
    "\"\\\"\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\u00e9\\n\\t\\/\\b\\f\\r\\\\\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\u0000\"",
    "\"\xc3\xa9\"",
    "\"\xc3\"",
    "\"\xff\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "\"\xf0\x9f\x98\x80\"",
    "\"\x01\"",
    "\"\n\"",
    "\"\x7f\"",
    "[]",
    "[ ]",
    "[1]",
    "[1,2]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[",
    "]",
    "[1",
    "[[],[[]]]",
    "{}",
    "{ }",
    "{\"a\":1}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{\"a\":}",
    "{a:1}",
    "{1:2}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":{\"b\":[true,false,null,{}]}}",
    "{",
    "}",
    "{]",
    "[}",
    "[1}",
    "{\"a\":1]",
    "1 2",
    "[] []",
    "\xef\xbb\xbf[]",
    "/**/1",
    "'a'",
    "[1,\t2\r\n]",
    "99999999999999999999",
    "1e999",
};
enum { TEXTS = sizeof texts / sizeof *texts };

static void same_as_jansson(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXTS; i++) assert_agrees(texts[i], strlen(texts[i]));
}

/* Texts put together and damaged at random. */
static void same_when_damaged(void **state)
{
    (void)state;
    static const char alphabet[] = "[]{}\",:\\u0e1.-+ tfnd\n";
    const tn_rng rng = { 7, 1 };
    uint64_t k = 0;
    for (int round = 0; round < 20000; round++) {
        char text[256] = "";
        size_t n = 0;
        for (int parts = 1 + (int)tn_rng_below(rng, k++, 3); parts--;) {
            const char *t = texts[tn_rng_below(rng, k++, TEXTS)];
            if (n + strlen(t) + 2 < sizeof text)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? "," : "[", t);
        }
        text[n++] = ']';
        for (int hits = (int)tn_rng_below(rng, k++, 3); hits--;)
            k += 2, text[tn_rng_below(rng, k, n)] = alphabet[tn_rng_below(rng, k + 1, sizeof alphabet - 1)];
        assert_agrees(text, n);
    }
}

static void strings(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXTS; i++) {
        tn_json r;
        char *out;
        json_t *want = json_loadb(texts[i], strlen(texts[i]), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        tn_json_open(&r, texts[i], strlen(texts[i]));
        r.nul = true;
        assert_int_equal(tn_json_text(&r) && tn_json_end(&r), json_is_string(want));
        if (json_is_string(want)) {
            assert_int_equal(r.bytes, json_string_length(want));
            out = tn_json_copy(&r, malloc(r.bytes + 1));
            assert_memory_equal(out, json_string_value(want), r.bytes + 1);
            assert_int_equal(tn_json_is(&r, json_string_value(want)), strlen(out) == r.bytes);
            assert_false(tn_json_is(&r, "another"));
            free(out);
            char *here = strdup(texts[i]); /* decoded where it lies */
            tn_json_open(&r, here, strlen(here));
            r.nul = true;
            assert_true(tn_json_text(&r));
            assert_memory_equal(tn_json_copy(&r, here + 1), json_string_value(want), json_string_length(want) + 1);
            free(here);
        }
        json_decref(want);
    }
}

static void walks(void **state)
{
    (void)state;
    static const char text[] =
        "{\"n\":[1,-2,3.5,\"x\"],\"skip\":{\"a\":[{}]},\"on\":true,\"\\u0061\":9007199254740993}";
    tn_json r;
    int64_t x = 0;
    bool on = false;
    const char *at = NULL;
    size_t n = 0;
    tn_json_open(&r, text, sizeof text - 1);
    assert_false(tn_json_enter(&r, '['));
    assert_true(tn_json_enter(&r, '{'));
    assert_true(tn_json_key(&r) && tn_json_is(&r, "n") && tn_json_enter(&r, '['));
    assert_true(tn_json_item(&r) && tn_json_integer(&r, &x) && x == 1);
    assert_true(tn_json_item(&r) && tn_json_integer(&r, &x) && x == -2);
    assert_true(tn_json_item(&r) && !tn_json_integer(&r, &x)); /* 3.5 is passed over */
    assert_true(tn_json_item(&r) && tn_json_text(&r) && tn_json_is(&r, "x"));
    assert_false(tn_json_item(&r));
    assert_true(tn_json_key(&r) && tn_json_extent(&r, &at, &n));
    assert_true(n == 10 && memcmp(at, "{\"a\":[{}]}", 10) == 0);
    assert_true(tn_json_key(&r) && tn_json_flag(&r, &on) && on);
    assert_true(tn_json_key(&r) && tn_json_is(&r, "a") && tn_json_integer(&r, &x) && x == 9007199254740993);
    assert_false(tn_json_key(&r));
    assert_true(tn_json_end(&r));
    tn_json_open(&r, "[\n1,\n2", 6);
    assert_false(tn_json_skip(&r));
    assert_int_equal(tn_json_line(&r), 3);
    assert_false(tn_json_item(&r)); /* the error stays */
    assert_false(tn_json_end(&r));
}

/* A list of n pieces. */
static char *list_of(const char *piece, size_t n, size_t *bytes)
{
    const size_t k = strlen(piece);
    char *text = malloc(n * (k + 1) + 2), *p = text;
    for (size_t i = 0; i < n; i++) {
        *p++ = i ? ',' : '[';
        memcpy(p, piece, k);
        p += k;
    }
    *p++ = ']';
    *bytes = (size_t)(p - text);
    return text;
}

static void allocates_nothing(void **state)
{
    (void)state;
    size_t n;
    char *text = list_of("{\"a\":[\"\\u0041\",1]}", 50000, &n);
    const uint64_t before = tn_alloc_count();
    assert_true(reads(text, n));
    assert_int_equal(tn_alloc_count(), before);
    free(text);
    char *deep = malloc(2000000);
    memset(deep, '[', 1000000);
    memset(deep + 1000000, ']', 1000000);
    assert_false(reads(deep, 2000000));
    assert_true(reads(deep + 1000000 - TN_JSON_DEPTH, 2 * TN_JSON_DEPTH));
    assert_false(reads(deep + 1000000 - TN_JSON_DEPTH - 1, 2 * TN_JSON_DEPTH + 2));
    free(deep);
}

static void trees_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *piece;
        size_t n;
        bool fits;
    } cases[] = {
        { "{}", 30000, true },         { "{}", 60000, false },
        { "[]", 100000, false },       { "{\"a\":1}", 100000, false },
        { "123456789", 100000, true }, { "\"a long text, much longer than a node of the tree is\"", 60000, true }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t err;
        size_t n;
        char *text = list_of(cases[i].piece, cases[i].n, &n);
        json_t *tree = tn_json_tree(text, n, 0, &err);
        if ((tree != NULL) != cases[i].fits)
            fail_msg("%zu times %s: %s", cases[i].n, cases[i].piece, tree ? "taken" : err.text);
        json_decref(tree);
        free(text);
    }
    char *bad = malloc(200001);
    memset(bad, ' ', 200000);
    memcpy(bad, "[1,2", 4);
    json_error_t err;
    assert_null(tn_json_tree(bad, 200000, 0, &err)); /* no JSON: jansson says what is wrong */
    assert_non_null(strstr(err.text, "']' expected"));
    free(bad);
}

void tn_tests_json_read(tn_test_list *l)
{
    tn_test_add(l, same_as_jansson, NULL, "json: the same texts as jansson");
    tn_test_add(l, same_when_damaged, NULL, "json: the same when damaged");
    tn_test_add(l, strings, NULL, "json: strings");
    tn_test_add(l, walks, NULL, "json: values one by one");
    tn_test_add(l, allocates_nothing, NULL, "json: no memory, no depth");
    tn_test_add(l, trees_are_bounded, NULL, "json: trees within bounds");
}
