/* One side of a row: a configuration that does the same thing again and again, and is timed. Kinds of it, by what is priced. */
#ifndef TN_REPORT_ABLATE_SIDE_H
#define TN_REPORT_ABLATE_SIDE_H

#include "report/ablate/parity.h"
#include "report/ablate/table.h"

typedef struct tn_side_options {
    const tn_user_args *user;
    const tn_settings *settings; /* resolved, not yet filled by data */
    const tn_session *base;      /* the same, filled */
    const tn_model *model;
    const char *const *word; /* (n) of the row, on top of them */
    size_t n;
    const char *dir; /* a folder of its own for files */
    bool again;      /* TN_ABLATE_REREAD: reads all tokens again for each */
} tn_side_options;

typedef struct tn_side_kind {
    const char *what; /* is timed: "step" */
    /* TN_MEMORY: it does not fit. TN_USAGE: the model or its data do not allow it. */
    tn_status (*open)(const tn_side_options *o, void **out);
    void (*close)(void *side);                                 /* takes NULL */
    tn_status (*warm)(void *side, double limit_s, double *ms); /* *ms: of one, or infinite where time was up */
    tn_status (*run)(void *side, int times, double *ms);       /* *ms: of one */
    double (*bytes)(const void *side);
    /* How far both are apart after *steps steps from the same start, on other sides than those that are timed. Fewer where `seconds` do not
     * suffice. */
    tn_status (*parity)(void *plain, void *fast, double seconds, int *steps, tn_parity *out);
    int most; /* times in a pair */
} tn_side_kind;

extern const tn_side_kind tn_side_step, tn_side_train, tn_side_token, tn_side_save;
const tn_side_kind *tn_side_kind_of(tn_ablate_price price);

/* Of training steps: the session. */
const tn_session *tn_side_session(const void *side);
/* How the plans of two sides of training steps differ: a row that changes attributes alone, no number and no time is none. */
typedef enum tn_plan_difference { TN_PLANS_SAME, TN_PLANS_ATTRIBUTES, TN_PLANS_DIFFER } tn_plan_difference;
tn_plan_difference tn_side_plans(const void *a, const void *b);

#endif
