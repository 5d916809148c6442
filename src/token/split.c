/* The hand-written scanners, one for each family of patterns. Each follows the alternatives of its expression in order;
 * what backtracking would do is worked out beside the code. */
#include "token/split.h"

#include <string.h>

typedef const unsigned char *at; /* a place in the text */

enum { WORD = TN_CLASS_L | TN_CLASS_N | TN_CLASS_SPACE }; /* none of these: [^\s\p{L}\p{N}] */

/* The end of the run of characters that have a bit of `any` (want) or none of them (!want). */
static at run(const tn_unicode *u, at p, at end, unsigned any, bool want)
{
    size_t n;
    while (p < end && ((tn_class_at(u, p, &n) & any) != 0) == want) p += n;
    return p;
}

static at digits(const tn_unicode *u, at p, at end, int most)
{
    size_t n;
    for (int i = 0; i < most && p < end && (tn_class_at(u, p, &n) & TN_CLASS_N); i++) p += n;
    return p;
}

/* Length of 's 't 're 've 'm 'll 'd at p, or 0. Without case, U+017F is an s too, as it is to the reference. */
static size_t contraction(at p, at end, bool any_case)
{
    const size_t left = (size_t)(end - p);
    if (left < 2 || p[0] != '\'') return 0;
    const unsigned fold = any_case ? 0x20 : 0, a = p[1] | fold;
    if (p[1] < 0x80 && (a == 's' || a == 't' || a == 'm' || a == 'd')) return 2;
    if (left < 3) return 0;
    if (any_case && p[1] == 0xc5 && p[2] == 0xbf) return 3;
    const unsigned b = p[2] | fold;
    if (p[1] >= 0x80 || p[2] >= 0x80) return 0;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+ on the run p..e: all of it at the end of the text, all but its last character before something else. */
static size_t spaces(at p, at e, at end)
{
    at last = e - 1;
    if (e == end) return (size_t)(e - p);
    while ((*last & 0xc0) == 0x80) last--;
    return last > p ? (size_t)(last - p) : (size_t)(e - p);
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line break of the run, if it has one. */
static size_t spaces_and_lines(at p, at e, at end)
{
    for (at q = e; q > p; q--)
        if (q[-1] == '\n' || q[-1] == '\r') return (size_t)(q - p);
    return spaces(p, e, end);
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const tn_unicode *u, at p, at end)
{
    size_t n = contraction(p, end, false);
    if (n) return n;
    const bool space = *p == ' ' && p + 1 < end;
    at q = space ? p + 1 : p;
    unsigned c = tn_class_at(u, q, &n);
    if (c & TN_CLASS_L) return (size_t)(run(u, q + n, end, TN_CLASS_L, true) - p);
    if (c & TN_CLASS_N) return (size_t)(run(u, q + n, end, TN_CLASS_N, true) - p);
    if (!(c & TN_CLASS_SPACE)) return (size_t)(run(u, q + n, end, WORD, false) - p);
    return spaces(p, run(u, p, end, TN_CLASS_SPACE, true), end);
}

/* What Llama 3, Qwen2 and cl100k share:
 * (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|(whitespace)
 * Returns 0 at whitespace that none of these takes. */
static size_t scan_words(const tn_unicode *u, at p, at end, int most)
{
    size_t n, m, k = contraction(p, end, true);
    if (k) return k;
    const unsigned c = tn_class_at(u, p, &n);
    if (c & TN_CLASS_L) return (size_t)(run(u, p + n, end, TN_CLASS_L, true) - p);
    if (c & TN_CLASS_N) return (size_t)(digits(u, p, end, most) - p);
    const unsigned next = p + n < end ? tn_class_at(u, p + n, &m) : TN_CLASS_SPACE;
    if (*p != '\r' && *p != '\n' && (next & TN_CLASS_L)) return (size_t)(run(u, p + n, end, TN_CLASS_L, true) - p);
    if (c & TN_CLASS_SPACE && (*p != ' ' || next & WORD)) return 0;
    at q = run(u, p + n, end, WORD, false);
    while (q < end && (*q == '\r' || *q == '\n')) q++;
    return (size_t)(q - p);
}

static size_t scan_llama3(const tn_unicode *u, at p, at end)
{
    const size_t n = scan_words(u, p, end, 3);
    return n ? n : spaces_and_lines(p, run(u, p, end, TN_CLASS_SPACE, true), end);
}

static size_t scan_qwen2(const tn_unicode *u, at p, at end)
{
    const size_t n = scan_words(u, p, end, 1);
    return n ? n : spaces_and_lines(p, run(u, p, end, TN_CLASS_SPACE, true), end);
}

/* Here whitespace is \s++$|\s*[\r\n]|\s+(?!\S)|\s : a run at the end of the text is one piece, line breaks or not. */
static size_t scan_cl100k(const tn_unicode *u, at p, at end)
{
    const size_t n = scan_words(u, p, end, 3);
    if (n) return n;
    at e = run(u, p, end, TN_CLASS_SPACE, true);
    return e == end ? (size_t)(e - p) : spaces_and_lines(p, e, end);
}

/* [U]*[W]+ at p, where U is upper-like and W lower-like; some classes are both. NULL: no match. The greedy U* leaves a
 * character that is W alone, or gives back up to the last character of its run that is W too. */
static at upper_lower(const tn_unicode *u, at p, at end)
{
    at q = p, both = NULL; /* both: end of the last character in U and W */
    size_t n;
    while (q < end) {
        const unsigned c = tn_class_at(u, q, &n);
        if (!(c & TN_CLASS_UPPER)) break;
        q += n;
        if (c & TN_CLASS_LOWER) both = q;
    }
    at e = run(u, q, end, TN_CLASS_LOWER, true);
    return e > q ? e : both;
}

/* [U]+[W]* at p; NULL: no match. */
static at uppers(const tn_unicode *u, at p, at end)
{
    at q = run(u, p, end, TN_CLASS_UPPER, true);
    return q == p ? NULL : run(u, q, end, TN_CLASS_LOWER, true);
}

/* [^\r\n\p{L}\p{N}]?[U]*[W]+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?[U]+[W]*(?i:'s|...)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+   The optional first character is tried with before without; a mark can be either. */
static size_t scan_o200k(const tn_unicode *u, at p, at end)
{
    size_t n, m;
    const unsigned c = tn_class_at(u, p, &n);
    const bool prefix = !(c & (TN_CLASS_L | TN_CLASS_N)) && *p != '\r' && *p != '\n' && p + n < end;
    at q = prefix ? upper_lower(u, p + n, end) : NULL;
    if (!q) q = upper_lower(u, p, end);
    if (!q && prefix) q = uppers(u, p + n, end);
    if (!q) q = uppers(u, p, end);
    if (q) return (size_t)(q - p) + contraction(q, end, true);
    if (c & TN_CLASS_N) return (size_t)(digits(u, p, end, 3) - p);
    const unsigned next = p + n < end ? tn_class_at(u, p + n, &m) : TN_CLASS_SPACE;
    if (c & TN_CLASS_SPACE && (*p != ' ' || next & WORD))
        return spaces_and_lines(p, run(u, p, end, TN_CLASS_SPACE, true), end);
    q = run(u, p + n, end, WORD, false);
    while (q < end && (*q == '\r' || *q == '\n' || *q == '/')) q++;
    return (size_t)(q - p);
}

static size_t scan_digit_runs(const tn_unicode *u, at p, at end)
{
    size_t n;
    return (size_t)(run(u, p, end, TN_CLASS_N, tn_class_at(u, p, &n) & TN_CLASS_N) - p);
}

static size_t scan_single_digits(const tn_unicode *u, at p, at end)
{
    size_t n;
    if (tn_class_at(u, p, &n) & TN_CLASS_N) return n;
    return (size_t)(run(u, p, end, TN_CLASS_N, false) - p);
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"

static const tn_split_pattern patterns[] = {
    { "gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
      "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", scan_gpt2, true },
    { "cl100k",
      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|"
      "\\s+(?!\\S)|\\s",
      NULL, scan_cl100k, true },
    { "llama3", CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES, NULL, scan_llama3,
      true },
    { "qwen2", CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES, NULL, scan_qwen2, true },
    { "o200k",
      PREFIX UPPERS "*" LOWERS "+" CONTRACTIONS "?|" PREFIX UPPERS "+" LOWERS "*" CONTRACTIONS
                    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
      NULL, scan_o200k, true },
    { NULL, NULL, NULL, NULL, false },
};

const tn_split_pattern tn_split_digits[2] = {
    { "digits", "\\p{N}+", NULL, scan_digit_runs, true },
    { "digit", "\\p{N}", NULL, scan_single_digits, true },
};

const tn_split_pattern *tn_split_all(void) { return patterns; }

const tn_split_pattern *tn_split_named(const char *name)
{
    for (const tn_split_pattern *p = patterns; p->name; p++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

const tn_split_pattern *tn_split_known(const char *regex)
{
    for (const tn_split_pattern *p = patterns; p->name; p++)
        if (strcmp(p->regex, regex) == 0 || (p->alias && strcmp(p->alias, regex) == 0)) return p;
    return NULL;
}
