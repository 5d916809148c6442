/* Scanners against PCRE2 on random strings of the scripts both know (Debian's PCRE2 has Unicode 14), and pieces by
 * hand. */
#include "token/split.h"

#include "base/rng.h"
#include "testlib.h"

#include <stdio.h>
#include <string.h>

static const struct span {
    uint32_t first, n;
} spans[] = {
    { 0x20, 0x5f },  { 0x61, 26 },    { 0x41, 26 },  { 0x30, 10 },     { 0x09, 5 },       { 0x20, 1 },
    { 0x0a, 1 },     { 0xa0, 0x1b0 }, { 0x17f, 1 },  { 0x2b0, 0x40 },  { 0x300, 0x70 },   { 0x391, 0x60 },
    { 0x400, 0x80 }, { 0x5d0, 27 },   { 0x660, 10 }, { 0x905, 0x4d },  { 0x1c4, 9 },      { 0x2000, 11 },
    { 0x2028, 2 },   { 0x2160, 16 },  { 0x3000, 1 }, { 0x3041, 0x50 }, { 0x4e00, 0x100 }, { 0xac00, 0x80 },
    { 0x1f300, 64 }, { 0x1f3fb, 5 },  { 0x200d, 1 }, { 0x27, 1 },
};

static size_t random_text(uint64_t seed, char *out, size_t chars)
{
    static const char *const bits[] = {
        "'s", "'S", "'ll", "'RE", "'vE", "'t", "'\xc5\xbf", "\r\n", " \n ", "//", "  "
    };
    const tn_rng r = { seed, 77 };
    size_t n = 0;
    const uint64_t few = 1 + tn_rng_below(r, 1, 6); /* spans in this string */
    for (uint64_t i = 0; i < chars; i++) {
        const uint64_t pick = 100 + tn_rng_below(r, 1000 + 3 * i, few);
        const struct span s = spans[tn_rng_below(r, pick, sizeof spans / sizeof *spans)];
        if (tn_rng_below(r, 1001 + 3 * i, 12) == 0) {
            const char *b = bits[tn_rng_below(r, 1002 + 3 * i, sizeof bits / sizeof *bits)];
            memcpy(out + n, b, strlen(b));
            n += strlen(b);
        } else {
            n += tn_utf8_write(s.first + (uint32_t)tn_rng_below(r, 1002 + 3 * i, s.n), out + n);
        }
    }
    return n;
}

static void against_pcre2(void **state)
{
    const tn_split_pattern *p = *state;
    tn_unicode *u;
    tn_regex *regex;
    tn_regex_match *match;
    char text[512];
    assert_ok(tn_unicode_new(&u));
    assert_ok(tn_regex_new(p->regex, &regex));
    assert_ok(tn_regex_match_new(regex, &match));
    for (uint64_t seed = 0; seed < 20000; seed++) {
        const size_t n = random_text(seed, text, 1 + seed % 40);
        for (size_t at = 0, first, last; at < n; at = last) {
            assert_ok(tn_regex_find(regex, match, text, n, at, &first, &last));
            const size_t k = p->scan(u, (const unsigned char *)text + at, (const unsigned char *)text + n);
            if (first != at || last - first != k)
                fail_msg("seed %llu: at byte %zu the scanner takes %zu bytes, PCRE2 %zu..%zu", (unsigned long long)seed,
                         at, k, first, last);
        }
    }
    tn_regex_match_free(match);
    tn_regex_free(regex);
    tn_unicode_free(u);
}

/* Pieces joined by '|'. */
static const struct by_hand {
    const char *pattern, *text, *pieces;
} by_hand[] = {
    { "gpt2", "He's  got\n\n 12345!? x", "He|'s| | got|\n\n| 12345|!?| x" },
    { "gpt2", "A'S  ", "A|'|S|  " },
    { "llama3", "He'S\tgot\n\n 12345!?\n x  ", "He|'S|\tgot|\n\n| |123|45|!?\n| x|  " },
    { "llama3", "a\n  ", "a|\n|  " },
    { "cl100k", "a\n  ", "a|\n  " },
    { "qwen2", "12 3", "1|2| |3" },
    { "o200k", "HTTPServer's /\n/x", "HTTPServer's| /\n/|x" },
    { "o200k",
      "CamelCase \xe6\x97\xa5"
      "ABC",
      "Camel|Case| \xe6\x97\xa5|ABC" },
};

static void pieces(void **state)
{
    const struct by_hand *h = *state;
    char got[256];
    size_t n = 0;
    tn_unicode *u;
    assert_ok(tn_unicode_new(&u));
    const unsigned char *p = (const unsigned char *)h->text, *end = p + strlen(h->text);
    while (p < end) {
        const size_t k = tn_split_named(h->pattern)->scan(u, p, end);
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", n ? "|" : "", (int)k, (const char *)p);
        p += k;
    }
    assert_string_equal(got, h->pieces);
    tn_unicode_free(u);
}

static void names(void **state)
{
    (void)state;
    for (const tn_split_pattern *p = tn_split_all(); p->name; p++) {
        assert_ptr_equal(tn_split_named(p->name), p);
        assert_ptr_equal(tn_split_known(p->regex), p);
    }
    assert_null(tn_split_named("gpt3"));
    assert_null(tn_split_known("\\w+"));
}

static void bad_regex(void **state)
{
    (void)state;
    tn_regex *r = NULL;
    tn_regex_match *m;
    char text[64];
    size_t first, last;
    assert_fails(tn_regex_new("(a", &r), TN_BAD_FILE, "split pattern is invalid at byte 2");
    assert_null(r);
    assert_ok(tn_regex_new("(a|aa)+[bc]", &r)); /* exponential without limits */
    assert_ok(tn_regex_match_new(r, &m));
    memset(text, 'a', sizeof text);
    assert_fails(tn_regex_find(r, m, text, sizeof text, 0, &first, &last), TN_BAD_FILE, "simpler pattern");
    tn_regex_match_free(m);
    tn_regex_free(r);
}

void tn_tests_split(tn_test_list *l)
{
    for (const tn_split_pattern *p = tn_split_all(); p->name; p++)
        tn_test_add(l, against_pcre2, p, "split %s against pcre2", p->name);
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        tn_test_add(l, pieces, &by_hand[i], "split pieces %s %zu", by_hand[i].pattern, i);
    tn_test_add(l, names, NULL, "split names");
    tn_test_add(l, bad_regex, NULL, "split bad regex");
}
