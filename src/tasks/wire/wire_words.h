/* The words of recall: of a file, or made up. */
#ifndef TN_TASKS_WIRE_WORDS_H
#define TN_TASKS_WIRE_WORDS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TN_WORD_LEAST = 3, TN_WORD_MOST = 8 }; /* letters */

/* Lower-case letters from the highest byte down, 0 behind them: numbers are in the order of the alphabet. */
typedef uint64_t tn_word;

size_t tn__word_write(tn_word w, char out[TN_WORD_MOST]); /* returns its letters */

/* The n most frequent words of a text, equally frequent ones in the order of the alphabet; *n becomes less where it has fewer. A word is a run
 * of letters, digits, apostrophes, underscores and bytes beyond ASCII; those of 3 to 8 lower-case ASCII letters alone count. */
tn_status tn__words_of_text(const char *text, size_t bytes, size_t *n, tn_word **out);
/* n different pronounceable words. n at most TN_WORDS_MADE. */
enum { TN_WORDS_MADE = 1000000 };
tn_status tn__words_made(size_t n, tn_word **out);

#endif
