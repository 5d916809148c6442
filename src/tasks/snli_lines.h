/* The lines of SNLI's tables: pairs of sentences with a label. For src/tasks only.
 *
 * Training sentences come as they were written (some with the quotes of a CSV file), held-out ones cut into words: all are brought to one form
 * before anything is compared. No premise is in two splits: lines of a split whose premise a later one has are marked. */
#ifndef TN_TASKS_SNLI_LINES_H
#define TN_TASKS_SNLI_LINES_H

#include "base/fs.h"
#include "tasks/task.h"
#include "token/tokenizer.h" /* tn_text */

/* Of a line's marks: its label, and whether it is left out. Readers disagree about the last label, "-". */
enum { TN_SNLI_ENTAILS, TN_SNLI_NEUTRAL, TN_SNLI_CONTRADICTS, TN_SNLI_UNKNOWN, TN_SNLI_LEFT_OUT };

/* One file. Its lines stand one behind the other, and nothing beside them: the shortest take no more memory than in the file. */
typedef struct tn_snli_part {
    char path[TN_PATH_BYTES];
    tn_text text;      /* of a line: a byte of marks, the premise, NUL, the hypothesis, NUL */
    size_t n;          /* lines */
    uint32_t *premise; /* (n): where premises begin, sorted by what they say; NULL: no other split asks */
} tn_snli_part;

typedef struct tn_snli_row {
    char *marks;             /* a label; TN_SNLI_LEFT_OUT is added where it is left out */
    const char *sentence[2]; /* TN_PREMISE, TN_HYPOTHESIS */
} tn_snli_row;

/* The files that task.data has, into zeroed parts; free them also where it fails. task: who asks, for messages. *left_out: lines. */
tn_status tn__snli_read(const tn_settings *st, const char *task, tn_snli_part p[TN_SPLITS], int64_t *left_out);
void tn__snli_free(tn_snli_part p[TN_SPLITS]);
/* The line at *at, which becomes that of the next; false: there is none. */
bool tn__snli_next(tn_snli_part *p, size_t *at, tn_snli_row *out);

#endif
