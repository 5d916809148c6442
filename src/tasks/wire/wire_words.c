/* A word fits a number, so that counting them is a table of numbers. */
#include "tasks/wire/wire_words.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t tn__word_write(tn_word w, char out[TN_WORD_MOST])
{
    size_t n = 0;
    for (; n < TN_WORD_MOST && (w >> (56 - 8 * n) & 0xff); n++) out[n] = (char)(w >> (56 - 8 * n) & 0xff);
    return n;
}

/* --- of a text ------------------------------------------------------------------------------------------------------------------ */

typedef struct counted {
    tn_word word; /* 0: an empty place */
    uint64_t count;
} counted;

typedef struct table {
    counted *place; /* (size): a power of two, at most half of it taken */
    size_t size, n;
} table;

static counted *find(const table *t, tn_word w)
{
    size_t i = (size_t)(w * 0x9E3779B97F4A7C15u >> 20) & (t->size - 1);
    while (t->place[i].word && t->place[i].word != w) i = (i + 1) & (t->size - 1);
    return &t->place[i];
}

static tn_status make_room(table *t)
{
    table larger = { .size = t->size ? 2 * t->size : 4096, .n = t->n };
    if (2 * t->n < t->size) return TN_OK;
    if (!(larger.place = tn_alloc(larger.size * sizeof *larger.place))) return TN_MEMORY;
    for (size_t i = 0; i < t->size; i++)
        if (t->place[i].word) *find(&larger, t->place[i].word) = t->place[i];
    tn_free(t->place);
    *t = larger;
    return TN_OK;
}

static bool in_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\'' || c == '_' ||
           c >= 0x80;
}

static tn_status count_word(table *t, const char *text, size_t bytes)
{
    tn_word w = 0;
    if (bytes < TN_WORD_LEAST || bytes > TN_WORD_MOST) return TN_OK;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < 'a' || text[i] > 'z') return TN_OK;
        w |= (tn_word)(unsigned char)text[i] << (56 - 8 * i);
    }
    TN_RETURN_IF(make_room(t));
    counted *c = find(t, w);
    t->n += c->word == 0;
    c->word = w;
    c->count++;
    return TN_OK;
}

static int by_count(const void *a, const void *b)
{
    const counted *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->word > y->word ? 1 : x->word < y->word ? -1 : 0;
}

tn_status tn__words_of_text(const char *text, size_t bytes, size_t *n, tn_word **out)
{
    tn_status s = TN_OK;
    table t = { 0 };
    tn_word *words = NULL;
    for (size_t at = 0, end; at < bytes; at = end + 1) {
        for (end = at; end < bytes && in_word((unsigned char)text[end]);) end++;
        TN_TRY(count_word(&t, text + at, end - at));
    }
    size_t kept = 0;
    for (size_t i = 0; i < t.size; i++)
        if (t.place[i].word) t.place[kept++] = t.place[i];
    if (kept) qsort(t.place, kept, sizeof *t.place, by_count); /* a total order: any sort gives the same */
    if (kept > *n) kept = *n;
    if (!(words = tn_alloc((kept ? kept : 1) * sizeof *words))) TN_TRY(TN_MEMORY);
    for (size_t i = 0; i < kept; i++) words[i] = t.place[i].word;
    *n = kept;
    *out = words;
done:
    tn_free(t.place);
    return s;
}

/* --- made up -------------------------------------------------------------------------------------------------------------------- */

enum { CONSONANTS = 14, VOWELS = 5, SYLLABLES = CONSONANTS * VOWELS };

/* Words of two syllables, then of three, then of four. A step that has no factor in common with their number mixes them. */
tn_status tn__words_made(size_t n, tn_word **out)
{
    static const char consonants[CONSONANTS + 1] = "bdfgklmnprstvz", vowels[VOWELS + 1] = "aeiou";
    tn_word *words = tn_alloc((n ? n : 1) * sizeof *words);
    if (!words) return TN_MEMORY;
    size_t first = 0, all = (size_t)SYLLABLES * SYLLABLES, letters = 4;
    for (size_t i = 0; i < n; i++) {
        if (i - first == all) first = i, all *= SYLLABLES, letters += 2;
        size_t x = (i - first) * 1789 % all;
        for (size_t k = 0; k < letters; k += 2, x /= SYLLABLES) {
            const size_t y = x % SYLLABLES;
            words[i] |= (tn_word)(unsigned char)consonants[y % CONSONANTS] << (56 - 8 * k) |
                        (tn_word)(unsigned char)vowels[y / CONSONANTS] << (48 - 8 * k);
        }
    }
    *out = words;
    return TN_OK;
}
