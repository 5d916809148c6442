/* Scores of answers in words, as SQuAD has them, and whether two ways of answering differ.
 *
 * An answer is compared after it was normalised: lower case, no ASCII punctuation, no words a, an, the, single blanks. Several answers may be
 * right: an answer has the best of its scores against each. Nothing here knows where answers come from. */
#ifndef TN_REPORT_ANSWERS_H
#define TN_REPORT_ANSWERS_H

#include "token/tokenizer.h" /* tn_text */

/* Appends the normal form. Letters beyond ASCII: those of Latin-1 become lower case, others stay. */
tn_status tn_answer_normalize(const char *text, size_t bytes, tn_text *out);

typedef struct tn_answer {
    const char *text;
    size_t bytes;
} tn_answer;

typedef struct tn_answer_score {
    double exact; /* 1: equal after normalising */
    double f1;    /* of their words, each as often as it comes */
} tn_answer_score;

/* The best over all golds, for exact and f1 apart; 0 without golds. */
tn_status tn_answer_score_of(tn_answer answer, const tn_answer *gold, size_t golds, tn_answer_score *out);

/* The mean of a[i] - b[i] over the same n examples, with the interval that holds 95 % of the means of `draws` samples of n examples drawn with
 * repetition. The same seed, the same interval. n and draws at least 1. */
typedef struct tn_paired {
    double difference, low, high;
} tn_paired;
tn_status tn_paired_bootstrap(const double *a, const double *b, int64_t n, int64_t draws, uint64_t seed,
                              tn_paired *out);

#endif
