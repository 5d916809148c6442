/* Answers in words: what readers say, greedily, to the questions of held-out texts, scored as in the field: exact match and F1 after
 * normalising, the best over all right answers (report/answers.h). And the answers of several readers to one message, weighed against each
 * other.
 *
 * How long an answer may be does not depend on its question: max_tokens is one number for all. */
#ifndef TN_REPORT_WIRE_DECODED_H
#define TN_REPORT_WIRE_DECODED_H

#include "report/wire/controls.h"
#include "train/run/saved_model.h"

typedef struct tn_wire_decoded_score {
    float *em, *f1; /* (contexts): means over its questions; NaN: it has none. NULL: not decoded, or sums alone */
    double em_sum, f1_sum; /* over all questions */
    double nats;           /* -log p of what was said, all answers */
} tn_wire_decoded_score;

/* One answer of several: each reader's is scored by all readers, in nats per byte (its end counts as one more byte), and the least one is
 * taken; of those that do not fit all readers none, unless none fits. */
typedef struct tn_wire_joint {
    double em, f1;                     /* of the answer that is taken: sums over questions */
    double oracle_em, oracle_f1;       /* of the best one */
    double agree;                      /* questions whose answers are all equal after normalising */
    int64_t taken[TN_CONTROL_READERS]; /* whose answer it is, so many times */
    float *em_of;                      /* (contexts); NULL: there is one reader */
} tn_wire_joint;

typedef struct tn_wire_decoded {
    bool in_words;  /* answers were decoded: the task asks questions */
    bool continues; /* its answers continue the texts */
    int64_t questions;
    double bytes; /* of the answers that are trained on, all questions */
    int64_t max_tokens[TN_CONTROL_READERS];
    tn_wire_decoded_score score[TN_WIRE_METHODS][TN_CONTROL_READERS];
    tn_wire_joint joint;
    tn_wire_decoded_score relay[TN_CONTROL_READERS]; /* from what the first reader says of the text (relay.c): sums */
    double relay_tokens;                             /* of that, all texts */
} tn_wire_decoded;

typedef struct tn_wire_decoded_options {
    const tn_user_args *user;
    int split;          /* of the session's held-out batches */
    uint64_t seed;      /* as of the controls */
    bool only_bytes;    /* nothing is decoded */
    int64_t max_tokens; /* 0: the longest right answer of the split and a few more */
    tn_wire_stop *stop; /* NULL, or asked before each batch and each token */
    void *ctx;
} tn_wire_decoded_options;

/* Which methods are decoded: the others differ little from one of these, or are read to be compared by their nats. */
extern const bool tn_wire_decodes[TN_WIRE_METHODS];

/* c: of the same session, whose messages are asked. */
tn_status tn_wire_decoded_run(tn_session *s, const tn_wire_controls *c, const tn_wire_decoded_options *o,
                              tn_wire_decoded *out);
void tn_wire_decoded_free(tn_wire_decoded *d); /* takes a zeroed one */

static inline double tn_wire_mean(double sum, int64_t n) { return n ? sum / (double)n : 0; }
/* Bits per byte of answers, without their ends: the same unit for all tokenizers. NaN without answers. */
double tn_wire_bits_per_byte(const tn_wire_decoded *d, const tn_wire_score *s);

#endif
