/* What tenon tune may change: for each setting the values that leave training as it is, up to rounding.
 *
 * Rows that are computed at once are changed by plan.microbatches, which cuts the same batch into parts: a source hands out the same rows.
 * train.batch and train.accumulate change, with the same product, only where the source's rows do not depend on the batch. Rows at once are
 * divisors of the batch, or there of that product; of two divisors less than 10 % apart one may be left out. */
#ifndef TN_REPORT_TUNE_SPACE_H
#define TN_REPORT_TUNE_SPACE_H

#include "report/tune/search.h"
#include "train/run/session.h"

enum { TN_TUNE_WORDS = 16, TN_TUNE_WORD = 64, TN_TUNE_VALUE_WORDS = 4 };

typedef struct tn_tune_value {
    char word[TN_TUNE_VALUE_WORDS][TN_TUNE_WORD]; /* (n) "key=value": all settings of its axis */
    int n;
} tn_tune_value;

typedef struct tn_tune_axis {
    const char *name; /* the setting it is called by */
    tn_tune_value value[TN_TUNE_VALUES];
    bool between[TN_TUNE_VALUES]; /* tried only where a higher one does not fit (search.h) */
    int n;
} tn_tune_axis;

typedef struct tn_tune_space {
    tn_tune_axis axis[TN_TUNE_AXES];
    int n;
    tn_tune_point start; /* the session's own values */
    tn_tune_point first; /* all rows at once, nothing recomputed, all cores */
    int rows, compute;   /* these axes, or -1 */
} tn_tune_space;

typedef struct tn_tune_space_options {
    const tn_session *session; /* open, as training would have it */
    int cores;
    bool precision;   /* `compute` too, which changes losses */
    const char *keep; /* "threads,plan.recompute": settings that stay; or NULL */
} tn_tune_space_options;

/* TN_USAGE: `keep` names no setting of these. */
tn_status tn_tune_space_of(const tn_tune_space_options *o, tn_tune_space *out);

/* The words of a point, or those that differ from another point's; they live as long as the space. Returns how many. */
size_t tn_tune_words(const tn_tune_space *s, const tn_tune_point *p, const tn_tune_point *than,
                     const char *word[TN_TUNE_WORDS]);
/* Whether a key is one that tenon tune sets. */
bool tn_tune_sets(const char *key);

#endif
