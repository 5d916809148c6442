/* A reader of a run of wire that goes on token by token: a message or a text is read once, its keys and values are kept, and each further
 * token is one pass over one token.
 *
 *     TN_TRY(tn_wire_speaker_new(&(tn_wire_speaker_options){ .trainer = t, .reader = 'a', .batch = 8, .longest = 200 }, &s));
 *     TN_TRY(tn_wire_speaker_read(s, rows, 8, z, kind));      what stands before the answers
 *     ... tn_wire_speaker_logits(s), tn_wire_speaker_feed(s, ids) ...
 *
 *     TN_TRY(tn_wire_speaker_say(s, rows, 8, z, kind, &how, said));        or all at once
 *
 * A row does not depend on the rows beside it. Weights are the trainer's; caches are in its store until that is freed, one speaker for a
 * reader and store. */
#ifndef TN_REPORT_WIRE_SPEAKER_H
#define TN_REPORT_WIRE_SPEAKER_H

#include "token/tokenizer.h"
#include "train/trainer/trainer.h"

typedef struct tn_wire_speaker tn_wire_speaker;

typedef struct tn_wire_speaker_options {
    tn_trainer *trainer; /* borrowed, with weights */
    char reader;
    int64_t batch; /* rows side by side */
    int64_t
        longest; /* positions of a row, slots of its message, tokens and answer: at most as many as the reader was trained on */
} tn_wire_speaker_options;

/* TN_USAGE: the reader was never trained on rows so long. */
tn_status tn_wire_speaker_new(const tn_wire_speaker_options *o, tn_wire_speaker **out);
void tn_wire_speaker_free(tn_wire_speaker *v); /* takes NULL */
int64_t tn_wire_speaker_vocab(const tn_wire_speaker *v);
/* Positions that a reader was trained on: `longest` is at most so large. */
tn_status tn_wire_speaker_positions(tn_trainer *t, char reader, int64_t *out);
/* Positions that stand before what a message is asked: its slots and the anchor. */
int64_t tn_wire_speaker_before(const tn_wire_speaker *v);

/* Of a message: BOS ; question. Of a text: BOS ; context ; anchor ; question. */
typedef struct tn_wire_row {
    const int32_t *ids;
    int64_t n; /* at least 1 */
} tn_wire_row;

/* Tokens that fit behind a row, of a message or of text, the last of which is said and not read. */
int64_t tn_wire_speaker_room(const tn_wire_speaker *v, const tn_wire_row *row, bool message);

/* Forgets all, and reads n rows (at most the batch). z (n, slots, width): their messages, with the anchor `kind` behind each; NULL: rows of
 * text. */
tn_status tn_wire_speaker_read(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind);
/* One token more for each row (n). Rows that have ended take any. */
tn_status tn_wire_speaker_feed(tn_wire_speaker *v, const int32_t *ids);
void tn_wire_speaker_end_row(tn_wire_speaker *v, int64_t row);
/* (n, vocab), of the token behind what was read and fed; until the next call. NULL: the device failed. */
const float *tn_wire_speaker_logits(tn_wire_speaker *v);

/* -log p of token `id` under n logits, computed in double; and the first largest of them, -1 where one is NaN. */
double tn_wire_nats(const float *logits, int64_t n, int32_t id);
int32_t tn_wire_likeliest(const float *logits, int64_t n);

/* Zeroed before the first use; its memory is used again. */
typedef struct tn_wire_said {
    tn_text text;  /* UTF-8, where somebody decodes it */
    tn_tokens ids; /* without what ended it */
    double nats;   /* -log p of all tokens, and of the end */
    bool ended;    /* by an end token, not by max_tokens or most */
} tn_wire_said;
void tn_wire_said_free(tn_wire_said *s);

typedef struct tn_wire_say_options {
    int64_t max_tokens;
    const int64_t *most; /* (n) of each row, at least 1, or NULL: max_tokens alone */
    bool (*ends)(const void *ends_ctx, int32_t id);
    const void *ends_ctx;
    tn_status (*stop)(void *ctx); /* NULL, or asked before every token: its error ends all */
    void *ctx;
} tn_wire_say_options;

/* Each time the most likely token, into out (n), ids and nats. TN_DIVERGED: a logit is NaN. */
tn_status tn_wire_speaker_say(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind,
                              const tn_wire_say_options *how, tn_wire_said *out);
/* -log p of given tokens behind the rows, each after those before it: nats (n). An answer without tokens has 0. */
tn_status tn_wire_speaker_score(tn_wire_speaker *v, const tn_wire_row *row, int64_t n, const float *z, int kind,
                                const tn_wire_row *answer, double *nats);

#endif
