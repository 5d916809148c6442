/* Finds the fastest point of a small grid by noisy comparisons of two points at a time.
 *
 * One setting after the other: each of its values runs against the best point so far, in pairs. A value that is clearly slower is dropped
 * after two pairs. One whose interval of paired ratios lies above 1 is measured again from the beginning, and taken only if the new interval
 * says so too: noise picks nothing. Settings are gone through until none changes any more. Knows nothing of models: see tune.h. */
#ifndef TN_REPORT_TUNE_SEARCH_H
#define TN_REPORT_TUNE_SEARCH_H

#include "base/status.h"
#include "report/probe/ratios.h"

#include <stdbool.h>

enum { TN_TUNE_AXES = 6, TN_TUNE_VALUES = 64, TN_TUNE_WHY = 160 };

typedef struct tn_tune_point {
    int at[TN_TUNE_AXES]; /* index of a value, by axis */
} tn_tune_point;

typedef enum tn_tune_verdict {
    TN_TUNE_TAKEN,
    TN_TUNE_BEATEN,      /* a gain, but another value gains more */
    TN_TUNE_SLOWER,      /* or equal */
    TN_TUNE_UNCLEAR,     /* no clear gain after as many pairs as there are */
    TN_TUNE_UNCONFIRMED, /* a gain that was none when it was measured again */
    TN_TUNE_LOSSES,      /* other losses than before */
    TN_TUNE_MEMORY,      /* its plan does not fit: it did not run */
    TN_TUNE_REFUSED,     /* the model or its data do not allow it */
    TN_TUNE_TIME,        /* time was up */
    TN_TUNE_UNDECIDED    /* not yet: only inside the search */
} tn_tune_verdict;

typedef struct tn_tune_tried {
    tn_tune_point at, than; /* what was tried, and what it was compared with */
    int axis;               /* the one that differs; -1: several do */
    tn_ratio ratio;         /* time of `than` over its own: above 1 it is faster; n is 0 where it did not run */
    tn_tune_verdict verdict;
    double bytes;          /* of memory, where `pairs` says it */
    char why[TN_TUNE_WHY]; /* a word on the verdict, or "" */
} tn_tune_tried;

typedef struct tn_tune_search {
    int axes;
    int values[TN_TUNE_AXES];
    int memory_axis; /* whose lower values need less memory: what does not fit is tried with the highest that fits; -1: none */
    const bool *between; /* values of that axis which are tried only so, or NULL */
    tn_tune_point start;
    const tn_tune_point *first; /* tried before all others: settings that help only together; or NULL */
    void *ctx;
    /* *n more ratios of time(best) / time(tried->at), paired. `verdict` stays unless the point cannot be measured: MEMORY, REFUSED, TIME, or
     * SLOWER (so much that waiting for it is no use); *n is then how many there are. again: from the beginning, as if never measured. */
    tn_status (*pairs)(void *ctx, const tn_tune_point *best, tn_tune_tried *tried, bool again, int *n, double *ratio);
    /* Whether the memory plan of a point fits; nothing is run. */
    tn_status (*fits)(void *ctx, const tn_tune_point *p, bool *fits);
    /* Before a point is taken: sets the verdict to LOSSES, with why, where its results differ. */
    tn_status (*check)(void *ctx, const tn_tune_point *best, tn_tune_tried *tried);
    void (*tried)(void *ctx, const tn_tune_tried *t); /* after all values of an axis, in order; may be NULL */
    bool (*over)(void *ctx);                          /* no time for more */
} tn_tune_search;

tn_status tn_tune_find(const tn_tune_search *s, tn_tune_point *best);

#endif
