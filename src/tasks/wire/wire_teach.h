/* What frozen readers say to the questions of the training split with the text before them, kept in a file: teach-KEY.bin. Of every
 * token that an answer has, its end too, and for each reader: the largest logits with the logsumexp of all, and hidden states.
 *
 * The key is a hash of all that these numbers depend on: the ids (tn_wire_store.key), the reader's weights and shape, how many logits,
 * which temperature, how many numbers of states, and how it was computed. Ids and logits are i32 and f32: next to the states they are
 * small. States have the type in which they were computed, f32 or bf16, so that nothing is lost. The file is one of wire_kept.h. */
#ifndef TN_TASKS_WIRE_TEACH_H
#define TN_TASKS_WIRE_TEACH_H

#include "tasks/wire/wire_store.h"

#include <tenon/tensor.h>

/* What is kept of one reader. */
typedef struct tn_wire_taught {
    size_t reader;      /* which of the store's */
    int64_t top, vocab; /* logits of a token (0: none), and what ids are below */
    int64_t states;     /* numbers of a token's states (0: none) */
} tn_wire_taught;

typedef struct tn_wire_lesson {
    const tn_wire_store *store;
    tn_wire_taught taught[TN_WIRE_READERS];
    size_t readers;
    tn_dtype type;           /* of states: TN_F32 or TN_BF16 */
    char key[TN_HASH_BYTES]; /* of all that the numbers depend on */
} tn_wire_lesson;

/* about: what else they depend on, as text, of each of the readers: its weights, its shape, the temperature. */
tn_status tn_wire_lesson_key(tn_wire_lesson *l, const char *const *about);
/* Tokens of question q that are to be said, by reader k of the lesson; *first: the place of the first in a row of tokens. */
int64_t tn_wire_lesson_tokens(const tn_wire_lesson *l, size_t k, int64_t q, int64_t *first);
/* Questions of the training split: *first to *first + n - 1. */
int64_t tn_wire_lesson_questions(const tn_wire_lesson *l, int64_t *first);

/* Numbers of one question and one reader, n of them for tn_wire_lesson_tokens; NULL where the lesson has none. */
typedef struct tn_wire_numbers {
    int32_t *ids;        /* (n,top) */
    float *logits, *lse; /* (n,top), (n) */
    float *states;       /* (n,states) */
} tn_wire_numbers;

typedef struct tn_wire_teach_writer tn_wire_teach_writer;
/* Under its name only when it is whole. */
tn_status tn_wire_teach_begin(const tn_wire_lesson *l, const char *path, tn_wire_teach_writer **out);
/* In the order of questions, and of readers within a question. */
tn_status tn_wire_teach_add(tn_wire_teach_writer *w, const tn_wire_numbers *x);
tn_status tn_wire_teach_finish(tn_wire_teach_writer *w); /* then abort it too: that frees it */
void tn_wire_teach_abort(tn_wire_teach_writer *w);       /* takes NULL; no file is left unless it was finished */

typedef struct tn_wire_teach tn_wire_teach;
/* Reads all of it once: a file that is cut, damaged or of another key is refused. The lesson stays where it is. */
tn_status tn_wire_teach_open(const tn_wire_lesson *l, const char *path, tn_wire_teach **out);
void tn_wire_teach_close(tn_wire_teach *t); /* takes NULL */
/* TN_BAD_FILE: the file was changed meanwhile. By several threads at once; no allocation. */
tn_status tn_wire_teach_read(const tn_wire_teach *t, size_t k, int64_t q, const tn_wire_numbers *to);
uint64_t tn_wire_teach_bytes(const tn_wire_lesson *l); /* of a whole file */

#endif
