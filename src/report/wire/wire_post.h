/* Messages from texts, and answers from messages, with a trained run of the model wire. No data set is opened: texts, questions and messages
 * are the caller's.
 *
 *     TN_TRY(tn_wire_post_open(&(tn_wire_post_options){ .model = &m, .batch = 4 }, &p));
 *     TN_TRY(tn_wire_post_encode(p, text, n, false, z));             z (n, slots, width)
 *
 *     TN_TRY(tn_wire_post_open(&(tn_wire_post_options){ .model = &m, .batch = 4, .reader = 'a', .question = "key:", .max_tokens = 24 }, &p));
 *     TN_TRY(tn_wire_post_answer(p, z, n, NULL, NULL, said));
 *
 * A row does not depend on the rows beside it. */
#ifndef TN_REPORT_WIRE_POST_H
#define TN_REPORT_WIRE_POST_H

#include "report/wire/speaker.h" /* tn_wire_said */
#include "train/run/saved_model.h"

typedef struct tn_wire_post tn_wire_post;

typedef struct tn_wire_post_options {
    const tn_user_args *user;
    tn_saved_model *model; /* of the model wire, with weights; outlives the post */
    int64_t batch;         /* texts or messages at a time */
    char reader;           /* 'a', ...: who answers; 0: messages are made */
    int kind;              /* of the anchor: 0 AE, 1 LM, 2 QA */
    const char *question;  /* may be empty or NULL; where messages are made: what the encoder sees with each text */
    int64_t max_tokens;    /* of an answer */
    bool no_cache;         /* each token runs the whole row again: what answers with caches are compared with */
} tn_wire_post_options;

/* What the header of its messages says. */
typedef struct tn_wire_about {
    char encoder
        [TN_HASH_BYTES]; /* of all that Z depends on but the text: parameters, and settings that change no shape */
    int64_t slots, shared, private_slots, readers, width;
    int64_t most; /* bytes of a text; tokens of it where a reader sends (tokens is true), BOS and EOS among them */
    bool tokens;
} tn_wire_about;

tn_status tn_wire_post_open(const tn_wire_post_options *o, tn_wire_post **out);
void tn_wire_post_close(tn_wire_post *p); /* takes NULL */
const tn_wire_about *tn_wire_post_about(const tn_wire_post *p);

typedef struct tn_wire_line {
    const char *text;
    size_t bytes;
    const char *name; /* for errors */
} tn_wire_line;

/* Z of n texts (at most the batch) into z (n, slots, width). A text longer than `most`, less what its question takes, is cut, at the end of a
 * character, or refused (TN_USAGE). So is an empty one. */
tn_status tn_wire_post_encode(tn_wire_post *p, const tn_wire_line *text, int64_t n, bool cut, float *z);

/* What the reader says, each time the most likely token, to n messages (at most the batch) z (n, slots, width). stop NULL, or asked before
 * every token: its error ends all. */
tn_status tn_wire_post_answer(tn_wire_post *p, const float *z, int64_t n, tn_status (*stop)(void *ctx), void *ctx,
                              tn_wire_said *out);

#endif
