/* Splitting text into the pieces that are encoded apart from each other.
 *
 * The patterns of GPT-2, cl100k, Llama 3, Qwen2 and o200k are scanners written by hand, exact and linear in the text;
 * any other regular expression goes through PCRE2 with limits. A scanner sees a whole text (its end matters to the
 * patterns) and is called again and again from where the last piece ended. Text is valid UTF-8. */
#ifndef TN_TOKEN_SPLIT_H
#define TN_TOKEN_SPLIT_H

#include "token/unicode.h"

/* Length > 0 of the piece at p, before end (p < end). */
typedef size_t tn_split_scan(const tn_unicode *u, const unsigned char *p, const unsigned char *end);

typedef struct tn_split_pattern {
    const char *name;
    const char *regex; /* what `tokenizers` is given, and our files say */
    const char *alias; /* the same pieces in another spelling; NULL: none */
    tn_split_scan *scan;
    bool cut_safe; /* a letter before whitespace always ends a piece, whatever stands around them */
} tn_split_pattern;

/* NULL where none has that name / that text. tn_split_all ends with a row whose name is NULL. */
const tn_split_pattern *tn_split_named(const char *name);
const tn_split_pattern *tn_split_known(const char *regex);
const tn_split_pattern *tn_split_all(void);
extern const tn_split_pattern tn_split_digits[2]; /* runs of \p{N}, single ones; the text between as it is */

/* A regular expression we have no scanner for. */
typedef struct tn_regex tn_regex;
typedef struct tn_regex_match tn_regex_match; /* space for one thread */
tn_status tn_regex_new(const char *pattern, tn_regex **out);
void tn_regex_free(tn_regex *r);
tn_status tn_regex_match_new(const tn_regex *r, tn_regex_match **out);
void tn_regex_match_free(tn_regex_match *m);
/* The first match of at least one byte from `from` on: text[*first..*last), or *first = *last = bytes where there is
 * none. */
tn_status tn_regex_find(const tn_regex *r, tn_regex_match *m, const char *text, size_t bytes, size_t from,
                        size_t *first, size_t *last);

#endif
