/* Lines folded at words, for terminals: no word is broken, and what follows stands below the last column of the line's own layout.
 * Knows nothing of terminals. */
#ifndef TN_CLI_FOLD_H
#define TN_CLI_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct tn_fold {
    FILE *to;
    int width;  /* columns, one per character of UTF-8; 0: bytes pass as they are */
    bool plain; /* a text, not a layout: what follows begins at column 0 */
    /* where the line is: zero at its beginning */
    int column, indent, blanks, gap, words, folds; /* blanks: not yet written; gap: all since the last word */
    bool colon, open; /* the first word ended in a colon; the beginning of a long word is written */
    char word[256];
    size_t n;
    int word_columns;
} tn_fold;

/* False: `to` did not take it. The last word is kept until what follows it comes, or tn_fold_end. */
bool tn_fold_put(tn_fold *f, const char *bytes, size_t n);
bool tn_fold_end(tn_fold *f);

#endif
