/* Words are taken between blanks; a word that a tokeniser has cut off says by its spelling to which side it belongs. What only a
 * reader could know (whose a lone apostrophe is) is decided by the number of them. */
#include "tasks/sentence.h"

#include "base/alloc.h"

#include <ctype.h>
#include <string.h>

typedef struct word {
    const char *text;
    size_t bytes;
} word;

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The next word behind *at; false at the end. */
static bool next_word(const char *text, size_t bytes, size_t *at, word *out)
{
    while (*at < bytes && is_blank(text[*at])) ++*at;
    const size_t first = *at;
    while (*at < bytes && !is_blank(text[*at])) ++*at;
    *out = (word){ text + first, *at - first };
    return *at > first;
}

static bool is(word w, const char *s) { return w.bytes == strlen(s) && memcmp(w.text, s, w.bytes) == 0; }

static bool is_one_of(word w, const char *const *list)
{
    while (*list && !is(w, *list)) list++;
    return *list != NULL;
}

/* At the end of the word before it. */
static bool ends_word(word w)
{
    static const char *const list[] = { ".",   ",",   ";",   ":",   "!",  "?",  "%",   "...", ")",
                                        "]",   "}",   "n't", "N'T", "'s", "'S", "'re", "'RE", "'ve",
                                        "'VE", "'ll", "'LL", "'m",  "'M", "'d", "'D",  NULL };
    return is_one_of(w, list);
}

/* At the beginning of the word behind it. */
static bool begins_word(word w)
{
    static const char *const list[] = { "(", "[", "{", "$", "#", NULL };
    return is_one_of(w, list);
}

/* Words that a treebank cuts in two. */
static bool is_cut(word before, word w)
{
    static const char *const halves[][2] = { { "can", "not" }, { "Can", "not" }, { "gon", "na" },
                                             { "wan", "na" },  { "gim", "me" },  { "lem", "me" } };
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
        if (is(before, halves[i][0]) && is(w, halves[i][1])) return true;
    return false;
}

typedef struct writer {
    bool joins;      /* the next word follows without a blank */
    bool quote;      /* a " is open */
    bool apostrophe; /* a ' is open */
    bool paired;     /* lone apostrophes are quotes, not a plural's genitive */
    word before;
} writer;

/* What a word is written as, and to which sides it belongs. Behind the last one no quote opens. */
static word place(writer *w, word x, bool last, bool *left, bool *right)
{
    static const char *const brackets[][2] = { { "-LRB-", "(" }, { "-RRB-", ")" }, { "-LSB-", "[" },
                                               { "-RSB-", "]" }, { "-LCB-", "{" }, { "-RCB-", "}" } };
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++)
        if (is(x, brackets[i][0])) x = (word){ brackets[i][1], 1 };
    *left = ends_word(x) || is_cut(w->before, x);
    *right = begins_word(x);
    if (is(x, "``") || is(x, "''") || is(x, "\"")) {
        w->quote = is(x, "``") || (is(x, "\"") && !w->quote);
        *left = !(*right = w->quote && !last);
        x = (word){ "\"", 1 };
    } else if (is(x, "`") || is(x, "'")) {
        w->apostrophe = is(x, "`") || (w->paired && !w->apostrophe);
        *left = !(*right = w->apostrophe && !last);
        x = (word){ "'", 1 };
    }
    return x;
}

static tn_status append(tn_text *out, const char *s, size_t bytes)
{
    void *p = out->data;
    if (out->n + bytes > out->capacity) TN_RETURN_IF(tn_grow(&p, &out->capacity, 2 * (out->n + bytes), 1));
    out->data = p;
    if (bytes) memcpy(out->data + out->n, s, bytes);
    out->n += bytes;
    return TN_OK;
}

static bool apostrophes_are_paired(const char *text, size_t bytes)
{
    int n = 0;
    word x;
    for (size_t at = 0; next_word(text, bytes, &at, &x);) n += is(x, "'");
    return n % 2 == 0;
}

/* 9 : 30 */
static bool is_time(word before, word after)
{
    return before.bytes && after.bytes && isdigit((unsigned char)before.text[before.bytes - 1]) &&
           isdigit((unsigned char)after.text[0]);
}

tn_status tn__sentence_write(const char *text, size_t bytes, tn_text *out)
{
    const size_t first = out->n;
    writer w = { .joins = true, .paired = apostrophes_are_paired(text, bytes) };
    size_t at = 0;
    word x, after;
    for (bool more = next_word(text, bytes, &at, &x); more; x = after) {
        bool left, right;
        more = next_word(text, bytes, &at, &after);
        const word y = place(&w, x, !more, &left, &right);
        if (is(y, ":") && is_time(w.before, after)) right = true;
        if (out->n > first && !w.joins && !left) TN_RETURN_IF(append(out, " ", 1));
        TN_RETURN_IF(append(out, y.text, y.bytes));
        w.joins = right;
        w.before = x;
    }
    return TN_OK;
}
