/* What frozen readers answer on held-out texts, given the message, less than the message, or the text itself: the message counts for
 * as much as it is above the controls.
 *
 *     text       all of the text                    none       no text at all
 *     first, last, random   as many tokens of the text as a message has slots, at its beginning, end, or drawn, in order
 *     latent     the message; fp16, int8, int6, int4: as it arrives in so many bits (io/wire_file.h)
 *     shuffled   another text's message             mean       the mean message, for all          zero    zeros as message
 *
 * An answer counts where greedy decoding would give it token by token, its end included: under the right tokens before it, each token
 * must be the most likely one. */
#ifndef TN_REPORT_WIRE_CONTROLS_H
#define TN_REPORT_WIRE_CONTROLS_H

#include "report/wire/methods.h"
#include "train/run/session.h"

enum { TN_CONTROL_READERS = 3 };

typedef struct tn_wire_score {
    float *em;                /* (contexts): of its questions, the part that is answered exactly; NaN: it has none */
    double right, first, nll; /* answers, answers' first tokens, -log p: sums over all questions */
    double end_nll;           /* the part of nll that is of ends */
    double far_nll;           /* the part that is of copies from afar (tn_wire_far) */
    int64_t questions, tokens, far;
    double unique; /* different first tokens that were said, for each different one of the right answers */
} tn_wire_score;

typedef struct tn_wire_controls {
    int64_t contexts, slots, width;
    char reader[TN_CONTROL_READERS + 1]; /* letters */
    int readers;
    tn_wire_score score[TN_WIRE_METHODS][TN_CONTROL_READERS];
    float *z;                        /* (contexts, slots, width): the messages */
    double cosine;                   /* mean over pairs of different contexts */
    size_t bytes[TN_WIRE_METHODS];   /* of a message, header and checksum included; 0: it is none */
    double seconds[TN_WIRE_METHODS]; /* of reading, all readers */
    double encode_seconds;
    float *mean; /* (slots, width): message */
} tn_wire_controls;

/* Steps that the session's trainer must have planned (tn_session_options.steps). */
extern const char *const tn_wire_control_steps[];

/* On held-out batches of the session's source, which evaluates. seed: of the tokens that `random` draws. stop NULL, or asked between
 * batches: an error of its own ends all. */
typedef tn_status tn_wire_stop(void *ctx);
tn_status tn_wire_controls_run(tn_session *s, uint64_t seed, tn_wire_stop *stop, void *ctx, tn_wire_controls *out);
void tn_wire_controls_free(tn_wire_controls *c); /* takes a zeroed one */

static inline double tn_wire_em(const tn_wire_score *s) { return s->questions ? s->right / (double)s->questions : 0; }
/* What its methods give, for others who ask the same. It points into c. */
tn_wire_given tn_wire_given_of(const tn_wire_controls *c, const tn_settings *st, uint64_t seed);

/* Which tokens of a continuation are copies from afar: the token, behind the one before it, stands in the context before its last M tokens,
 * and nowhere nearer, in the rest of the context or the continuation itself. row (n): BOS ; context (so many) ; ... ; the answer from
 * `answer` on, `answers` tokens. far (answers). Returns how many. */
int64_t tn_wire_far(const int32_t *row, int64_t context, int64_t M, int64_t answer, int64_t answers, bool *far);

/* The part of what the text gains, in nats of answers without their ends, that a method gains: (none - m) / (none - text). far: of copies from
 * afar alone. NaN: the text gains nothing, or there are no such tokens. */
double tn_wire_recovered(const tn_wire_controls *c, tn_wire_method m, int k, bool far);

/* Of first, last and random the one with the best EM, of reader k. */
tn_wire_method tn_wire_best_budget(const tn_wire_controls *c, int k);

#endif
