/* Small help with texts that people wrote: the nearest known word, quoting inside one-line messages, and UTF-8.
 * Not a string library; nothing here allocates. */
#ifndef TN_BASE_TEXT_H
#define TN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Edits (insert, delete, replace, swap of neighbours) between two words; SIZE_MAX beyond 64 bytes. */
size_t tn_text_distance(const char *a, const char *b);

/* Search for the word somebody meant: start with { .word = typed }, try every candidate, read best (NULL: none). */
typedef struct tn_nearest {
    const char *word, *best;
    size_t distance; /* of best */
} tn_nearest;
void tn_nearest_try(tn_nearest *n, const char *candidate);

/* Length of the character at s (NUL-terminated) and its code point; 0 at the end or where s is not UTF-8. */
size_t tn_utf8_decode(const char *s, uint32_t *code);
bool tn_utf8_valid(const char *s);

/* s made fit for a one-line message: at most bytes-1 long ("..." where cut), '?' for control and bad bytes. */
const char *tn_text_quote(const char *s, char *buf, size_t bytes);

/* For whole lines: in place, nothing cut. Control bytes, and those of Unicode (U+0080 to U+009F), on which a terminal acts, become '?'; line
 * breaks and tabs become blanks. */
void tn_text_clean(char *s);

/* "8.4 M" */
const char *tn_count_text(double n, char buf[16]);

/* "0.01235", "12.35", "63770": four digits, and all before the point. */
enum { TN_NUMBER_TEXT = 24 };
const char *tn_number_text(double x, char buf[TN_NUMBER_TEXT]);
#define TN_NUMBER(x) tn_number_text(x, (char[TN_NUMBER_TEXT]){ 0 }) /* lives as long as the block around it */

#endif
