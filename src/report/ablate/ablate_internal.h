/* What the files of an ablation share: its state, and opening sides. */
#ifndef TN_REPORT_ABLATE_INTERNAL_H
#define TN_REPORT_ABLATE_INTERNAL_H

#include "report/ablate/ablate.h"
#include "report/ablate/side.h"

enum { TN_ABLATE_ALL_WORDS = TN_ABLATE_ROWS * TN_ABLATE_WORDS + 4 };

/* Words of one side, which lie in rows. */
typedef struct tn_ablate_words {
    const char *word[TN_ABLATE_ALL_WORDS]; /* (n) */
    size_t n;
} tn_ablate_words;

typedef struct tn_ablating {
    const tn_ablate_options *o;
    /* The options', with fewer rows of a batch where steps are slow, and the dropout that auto is. */
    tn_settings *settings;
    const tn_session *base;
    double begun, until;                   /* clock */
    tn_ablate_row row[TN_ABLATE_ROWS + 1]; /* (n); the last may be all of them together */
    tn_ablation found[TN_ABLATE_ROWS + 1];
    bool dropped[TN_ABLATE_ROWS + 1]; /* it changes nothing here, alone */
    tn_plan_difference difference[TN_ABLATE_ROWS + 1];
    bool refused[TN_ABLATE_ROWS + 1];    /* ... or the model does not have it */
    bool cumulative[TN_ABLATE_ROWS + 1]; /* it is turned on among the others: beside them it may change something */
    size_t n;
    bool has_all;
    tn_arena arena; /* of the rows' words */
} tn_ablating;

double tn_ablating_left(const tn_ablating *x);                     /* seconds */
tn_status tn_ablating_ask(const tn_ablating *x, const char *what); /* progress; TN_INTERRUPTED */
/* A rate that auto chose by the epochs of the whole training is said: the few steps of a side would have another. */
tn_status tn_ablating_keep_dropout(tn_ablating *x, const tn_session *base);
void tn_ablating_words(const tn_ablating *x, size_t i, bool fast, tn_ablate_words *out);
tn_status tn_ablating_open(const tn_ablating *x, const tn_side_kind *k, const tn_ablate_words *w, bool again,
                           void **side);
/* Both sides in turn, the order alternating, a side at least 20 ms: at most *n ratios, and no pair after `until` but the first six, and those only
 * while there is time for anything; *n: how many. ms[2]: of one, about; then the medians. */
tn_status tn_ablating_pairs(const tn_ablating *x, const tn_side_kind *k, void *side[2], double until, int *n,
                            double *ratio, double ms[2]);

/* One row after the other is turned on. */
tn_status tn_ablate_turns(tn_ablating *x, double until);
/* Held-out metrics. */
tn_status tn_ablate_heldout(tn_ablating *x, double until, tn_ablate_result *out);

#endif
