/* The one layout of what a reader sees, for losses, evaluation and decoding:
 *
 *     BOS ; context ; anchor ; question ; answer ; EOS        the context read as text (controls, teacher)
 *     BOS ; question ; answer ; EOS                           read through vectors, which the model puts behind BOS
 *     BOS ; context ; EOS                                     the context itself, to be written again
 *
 * Question and answer are tokenised together and apart from what stands before them: their ids are the same in all of these. The answer is
 * what stands behind the ids that they share with the question alone: after "Answer:" the word Paris keeps the blank that belongs to its
 * first token. There is always one token at position 0. Labels are not shifted here, nor anywhere but in the model. */
#ifndef TN_TASKS_WIRE_LAYOUT_H
#define TN_TASKS_WIRE_LAYOUT_H

#include "token/tokenizer.h"

enum { TN_WIRE_LAYOUT = 1 }; /* grows when ids change */

/* A model that reads. */
typedef struct tn_wire_reader {
    char letter; /* of its settings: 'a', 'b', ... */
    const tn_tokenizer *tokenizer;
    int32_t bos, eos; /* bos: what stands in its place where the tokenizer has none */
} tn_wire_reader;

/* Texts; NULL, or no bytes: there is none. */
typedef struct tn_wire_parts {
    const char *context, *anchor, *question, *answer;
    size_t context_bytes, anchor_bytes, question_bytes, answer_bytes;
} tn_wire_parts;

/* Their ids. Zeroed before the first use; its memory is used again. */
typedef struct tn_wire_tokens {
    tn_tokens context, anchor, asked; /* asked: question and answer */
    size_t answer;                    /* asked[answer] is the answer's first id */
    tn_tokens alone;                  /* of the question */
    tn_text joined;
} tn_wire_tokens;

void tn_wire_tokens_free(tn_wire_tokens *t); /* leaves it empty */
/* Special tokens spelled in a text are text. */
tn_status tn_wire_tokenize(const tn_wire_reader *r, tn_tokenizer_scratch *x, const tn_wire_parts *p,
                           tn_wire_tokens *out);

/* A sequence in the layout from ids, of tn_wire_tokens or of a store. */
typedef struct tn_wire_sequence {
    int32_t bos, eos;
    const int32_t *context, *anchor, *asked; /* of these numbers of ids; NULL where there are none */
    size_t contexts, anchors, askeds;
    size_t answer; /* asked[answer] is the answer's first id */
} tn_wire_sequence;

static inline size_t tn_wire_length(const tn_wire_sequence *s) { return 2 + s->contexts + s->anchors + s->askeds; }
/* Where its answer begins; the answer and EOS are what is to be said. */
static inline size_t tn_wire_answer(const tn_wire_sequence *s) { return 1 + s->contexts + s->anchors + s->answer; }
/* ids (tn_wire_length). */
void tn_wire_lay(const tn_wire_sequence *s, int32_t *ids);

/* What tn_wire_tokenize has left in `work`, while it is there. */
tn_wire_sequence tn_wire_sequence_of(const tn_wire_reader *r, const tn_wire_tokens *work);

/* Whether reader x has the tokenizer that a run was trained with, whose hash `was` ("": any will do). hash: this one's. TN_USAGE says how
 * to name the other. */
enum { TN_WIRE_TOKENIZER_HASH = 20 };
tn_status tn_wire_tokenizer_check(const tn_tokenizer *t, char x, const char *model, const char *was,
                                  char hash[TN_WIRE_TOKENIZER_HASH]);

/* All at once. */
tn_status tn_wire_lay_out(const tn_wire_reader *r, tn_tokenizer_scratch *x, const tn_wire_parts *p,
                          tn_wire_tokens *work, tn_tokens *out, size_t *answer);

#endif
