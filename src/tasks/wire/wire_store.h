/* All examples of a task as ids of n readers, made once: a batch copies and looks nothing up. With a folder (task.cache) the ids are kept in a
 * file wire-KEY.tokens there; the key is a hash of the texts, the readers' tokenizers and the layout, so that whoever changes one of them
 * gets another file. A file that is cut, damaged or of another key is refused.
 *
 * Ids are of parts (context; question and answer): wire_layout.h says how they stand in a row. */
#ifndef TN_TASKS_WIRE_STORE_H
#define TN_TASKS_WIRE_STORE_H

#include "tasks/wire/wire_layout.h"
#include "tasks/wire/wire_text.h"

enum { TN_WIRE_READERS = 4 };

typedef struct tn_wire_ids {
    char letter;
    int32_t bos, eos;
    int64_t *context_at; /* (contexts + 1): where the ids of a context begin */
    int32_t *context;
    int64_t *asked_at; /* (questions + 1): ... of a question and its answer */
    int32_t *asked;
    int32_t *answer; /* (questions): how many of these are the question's */
    int32_t *anchor; /* (anchors) */
    int64_t anchors;
    /* The longest of all splits: BOS, question, answer, EOS; BOS, context, EOS; BOS, context, anchor and the first of these but its BOS. */
    int64_t length, text, told;
    int64_t before; /* the longest BOS and question: no answer begins behind that */
} tn_wire_ids;

/* What stands behind a context where the encoder sees the question too, tokenised without the answer. */
typedef struct tn_wire_seen {
    int64_t *byte_at;     /* (questions + 1) */
    unsigned char *bytes; /* of anchor and question */
    int sender;           /* the reader whose ids are here; -1: none */
    int64_t *id_at;       /* (questions + 1) */
    int32_t *ids;         /* of the question */
    int64_t most_ids;     /* of BOS, context, anchor, question, EOS */
} tn_wire_seen;

typedef struct tn_wire_store {
    char key[TN_HASH_BYTES];
    int kind;
    int64_t contexts, questions;                /* of all splits */
    int64_t count[TN_SPLITS], first[TN_SPLITS]; /* context i of a split is context first + i of all */
    int64_t *byte_at;                           /* (contexts + 1): where the bytes of a context begin */
    unsigned char *bytes;
    int64_t *question_at; /* (contexts + 1): the first of its questions */
    int64_t most_bytes, most_questions;
    size_t readers;
    tn_wire_ids reader[TN_WIRE_READERS];
    tn_wire_seen *seen; /* NULL: the encoder sees contexts alone. No part of the file */
} tn_wire_store;

/* folder: "" or NULL keeps no file. */
tn_status tn_wire_store_open(const tn_wire_texts *t, const tn_wire_reader *reader, size_t readers, const char *folder,
                             tn_wire_store **out);
void tn_wire_store_free(tn_wire_store *s); /* takes NULL */
size_t tn_wire_store_bytes(const tn_wire_store *s);
/* Of all that ids depend on. */
tn_status tn_wire_store_key(const tn_wire_texts *t, const tn_wire_reader *reader, size_t readers,
                            char key[TN_HASH_BYTES]);

/* Question q of all (-1: none), with its context read as text or not, as a sequence. */
tn_wire_sequence tn_wire_store_sequence(const tn_wire_store *s, size_t reader, int64_t context, int64_t question,
                                        bool with_context);

/* From now on the encoder sees each question behind its context, and most_bytes counts it. sender: a reader of the store with its tokenizer;
 * NULL: bytes alone. TN_USAGE: a text has no question. (wire_seen.c) */
tn_status tn_wire_store_see(tn_wire_store *s, const tn_wire_texts *t, const tn_wire_reader *sender);
void tn_wire_seen_free(tn_wire_seen *x); /* takes NULL */
/* encoder_sees=both, of a model that has the setting. */
bool tn_wire_sees_question(const tn_settings *st);
/* The question of all that the encoder sees when these n of a context are asked, the first of them, or -1: it sees none. */
int64_t tn_wire_seen_question(const tn_wire_store *s, int64_t context, const int32_t *picked, int64_t n);
/* What it sees then: bytes into to (NULL: they are counted), and, where there is a sender, its ids. */
int64_t tn_wire_seen_bytes(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to);
int64_t tn_wire_seen_ids(const tn_wire_store *s, int64_t context, int64_t question, int32_t *to);

/* Of wire_store.c, for wire_seen.c too: ids and bytes behind `at` of them in an array that grows. */
tn_status tn__wire_append(int32_t **to, size_t *capacity, int64_t at, const tn_tokens *ids);
tn_status tn__wire_append_bytes(unsigned char **to, size_t *capacity, int64_t at, const char *text, size_t bytes);

/* The file alone, for wire_store.c and its tests. */
tn_status tn__wire_store_save(const tn_wire_store *s, const char *path);
tn_status tn__wire_store_load(const char *path, const char key[TN_HASH_BYTES], tn_wire_store *s);
/* The longest rows, after the ids are there. */
void tn__wire_store_measure(tn_wire_store *s);

#endif
