/* The terminal: whether there is one, its width, colour, and a progress line. The only file of the command that asks
 * the environment about output. Time is passed in, so that tests need no clock. */
#ifndef TN_CLI_TERM_H
#define TN_CLI_TERM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct tn_term {
    FILE *f;
    bool tty, color; /* color: a terminal, NO_COLOR unset or empty, TERM not "dumb" */
    int width;       /* columns; 80 where nobody knows */
} tn_term;

tn_term tn_term_of(FILE *f);

/* A stream for words that come from files: it writes to `to` (standard output or error), and what a terminal would act on, control bytes and
 * U+0080 to U+009F, arrives as '?'; line breaks and tabs pass. tn_term_of knows it and gives `to`, for the command's own colours and
 * progress. `to` itself where there is no memory. Not closed: it lives as long as the command. */
FILE *tn_term_plain(FILE *to);
int tn_term_errno(FILE *f); /* why writing to it first failed; 0: it did not, or it is no such stream */
/* Writes out what it holds, the last word too: before the process ends, or waits. */
void tn_term_flush(FILE *f);

/* Such a stream folds lines at the width of its terminal, and leaves them as they are elsewhere (fold.h). */
typedef enum tn_folding {
    TN_FOLD_NEVER, /* what other programs read */
    TN_FOLD_TEXT,  /* on a terminal, without hanging indents */
    TN_FOLD_ALWAYS /* also in a pipe: at COLUMNS, or 80 */
} tn_folding;
void tn_term_fold(FILE *f, tn_folding how);
/* A line folded the same way, for those who write colours around it; t is that of tn_term_of. */
void tn_term_print(const tn_term *t, const char *text);

/* Bytes of s that fill at most `columns` columns, one per character of UTF-8: whole fields (two blanks between them), items of a list
 * (a comma), or words, whichever a good part of the line has. */
size_t tn_term_fit(const char *s, int columns);

/* "12:31", "1:02:03"; "?" where it is not known. */
const char *tn_clock_text(double s, char buf[32]);

/* A line that says how far a long job is: redrawn in place on a terminal, a plain line now and then elsewhere. */
typedef struct tn_progress {
    tn_term term;
    double every_s; /* least time between two drawings */
    double last_s;
    bool drawn, pending; /* pending: text was given but not yet drawn */
    char text[512];
} tn_progress;

void tn_progress_start(tn_progress *p, FILE *f);
void tn_progress_line(tn_progress *p, double now_s, const char *fmt, ...) TN_PRINTF(3, 4);
/* Draws the last text and leaves the line. */
void tn_progress_end(tn_progress *p);

/* Ctrl-C: the first asks the job to stop and save, the second ends the process. */
void tn_interrupt_watch(void); /* also after one that was dealt with: it is forgotten */
/* true, for the time of a read: a signal ends a read that waits (EINTR), and a write too. */
void tn_interrupt_reads(bool end);
bool tn_interrupted(void *unused);
bool tn_terminated(void); /* interrupted by SIGTERM, with which nobody means to stop a part of the job only */

#endif
