/* Words of answers are sorted, so that those they share are counted one by one: a word that comes twice in one and once in the other is shared
 * once. */
#include "report/answers.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* --- the normal form ------------------------------------------------------------------------------------------------------------ */

static bool is_blank(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_punctuation(unsigned char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

static bool is_article(const char *word, size_t n)
{
    return (n == 1 && word[0] == 'a') || (n == 2 && memcmp(word, "an", 2) == 0) ||
           (n == 3 && memcmp(word, "the", 3) == 0);
}

/* The word that begins at `from` ends: articles go, others get a blank before the next. */
static void end_word(tn_text *out, size_t from)
{
    if (is_article(out->data + from, out->n - from)) out->n = from;
    if (out->n > from) out->data[out->n++] = ' ';
}

tn_status tn_answer_normalize(const char *text, size_t bytes, tn_text *out)
{
    void *p = out->data;
    TN_RETURN_IF(tn_grow(&p, &out->capacity, out->n + bytes + 2, 1));
    out->data = p;
    const size_t first = out->n;
    size_t word = first;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        const bool wide_blank = c == 0xc2 && next == 0xa0;
        if (is_blank(c) || wide_blank) {
            end_word(out, word);
            word = out->n;
            i += wide_blank;
        } else if (c >= 'A' && c <= 'Z') out->data[out->n++] = (char)(c + 32);
        else if (c == 0xc3 && next >= 0x80 && next <= 0x9e &&
                 next != 0x97) { /* U+00C0 to U+00DE but the sign of times */
            out->data[out->n++] = (char)c;
            out->data[out->n++] = (char)(next + 32);
            i++;
        } else if (!is_punctuation(c)) out->data[out->n++] = (char)c;
    }
    end_word(out, word);
    if (out->n > first) out->n--; /* the last blank */
    return TN_OK;
}

/* --- scores --------------------------------------------------------------------------------------------------------------------- */

typedef struct words {
    tn_text text;
    tn_answer *word; /* (n), sorted */
    size_t n, capacity;
} words;

static int by_text(const void *a, const void *b)
{
    const tn_answer *x = a, *y = b;
    const int c = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return c ? c : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static void free_words(words *w)
{
    tn_text_free(&w->text);
    tn_free(w->word);
}

static tn_status split(tn_answer a, words *w)
{
    w->text.n = w->n = 0;
    TN_RETURN_IF(tn_answer_normalize(a.text, a.bytes, &w->text));
    for (size_t at = 0, end; at < w->text.n; at = end + 1) {
        void *p = w->word;
        const char *blank = memchr(w->text.data + at, ' ', w->text.n - at);
        end = blank ? (size_t)(blank - w->text.data) : w->text.n;
        TN_RETURN_IF(tn_grow(&p, &w->capacity, w->n + 1, sizeof *w->word));
        w->word = p;
        w->word[w->n++] = (tn_answer){ w->text.data + at, end - at };
    }
    if (w->n) qsort(w->word, w->n, sizeof *w->word, by_text);
    return TN_OK;
}

static double f1_of(const words *a, const words *b)
{
    size_t i = 0, k = 0, shared = 0;
    if (!a->n || !b->n) return a->n == b->n;
    while (i < a->n && k < b->n) {
        const int c = by_text(&a->word[i], &b->word[k]);
        shared += c == 0;
        i += c <= 0;
        k += c >= 0;
    }
    return 2 * (double)shared / (double)(a->n + b->n); /* of precision and recall, the harmonic mean */
}

tn_status tn_answer_score_of(tn_answer answer, const tn_answer *gold, size_t golds, tn_answer_score *out)
{
    tn_status s = TN_OK;
    words said = { 0 }, right = { 0 };
    tn_answer_score best = { 0 };
    TN_TRY(split(answer, &said));
    for (size_t g = 0; g < golds; g++) {
        TN_TRY(split(gold[g], &right));
        const bool equal =
            said.text.n == right.text.n && (!said.text.n || memcmp(said.text.data, right.text.data, said.text.n) == 0);
        const double f1 = f1_of(&said, &right);
        if (equal) best.exact = 1;
        if (f1 > best.f1) best.f1 = f1;
    }
    *out = best;
done:
    free_words(&said);
    free_words(&right);
    return s;
}

/* --- two ways of answering ------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Between the two values around that place. */
static double quantile(const double *sorted, int64_t n, double q)
{
    const double at = q * (double)(n - 1);
    const int64_t k = (int64_t)at;
    return k + 1 < n ? sorted[k] + (at - (double)k) * (sorted[k + 1] - sorted[k]) : sorted[k];
}

tn_status tn_paired_bootstrap(const double *a, const double *b, int64_t n, int64_t draws, uint64_t seed, tn_paired *out)
{
    double sum = 0, *mean;
    if (n < 1 || draws < 1) return tn_error(TN_USAGE, "a comparison needs at least one example and one draw");
    if (!(mean = tn_alloc((size_t)draws * sizeof *mean))) return TN_MEMORY;
    for (int64_t i = 0; i < n; i++) sum += a[i] - b[i];
    for (int64_t d = 0; d < draws; d++) {
        const tn_rng r = { seed, tn_rng_stream("bootstrap") + (uint64_t)d };
        double of = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t k = tn_rng_below(r, (uint64_t)i, (uint64_t)n);
            of += a[k] - b[k];
        }
        mean[d] = of / (double)n;
    }
    qsort(mean, (size_t)draws, sizeof *mean, by_value);
    *out = (tn_paired){ sum / (double)n, quantile(mean, draws, 0.025), quantile(mean, draws, 0.975) };
    tn_free(mean);
    return TN_OK;
}
