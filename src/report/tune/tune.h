/* tenon tune: the fastest settings of this machine for a configuration whose training they leave as it is.
 *
 * A search (search.h) over what may change (space.h), measured by probes (report/probe): what training would run now against a candidate,
 * in turn. What the memory plan refuses does not run. What is taken has the losses of the start, step for step, to TN_TUNE_TOLERANCE. */
#ifndef TN_REPORT_TUNE_H
#define TN_REPORT_TUNE_H

#include "report/tune/space.h"

#define TN_TUNE_TOLERANCE 1e-5 /* of a loss, relative */

/* A candidate: "plan.microbatches=2 threads=1" and what came of it. */
typedef struct tn_tune_row {
    char words[256];
    tn_ratio ratio; /* of the time without them */
    double bytes;   /* of its memory plan; 0: not known */
    tn_tune_verdict verdict;
    const char *why;
} tn_tune_row;

/* The configuration as it is. */
typedef struct tn_tune_base {
    const tn_session *session;
    double ms, bytes;
} tn_tune_base;

typedef struct tn_tune_options {
    const tn_user_args *user;
    const tn_settings *settings; /* resolved, not yet filled by data */
    const tn_model *model;
    double seconds; /* for all of it; the first steps may take longer */
    int cores;
    bool precision;
    const char *keep; /* see space.h */
    void *ctx;
    void (*begun)(void *ctx, const tn_tune_base *b);
    void (*tried)(void *ctx, const tn_tune_row *r);
    bool (*interrupted)(void *ctx); /* or NULL */
} tn_tune_options;

typedef struct tn_tune_result {
    char word[TN_TUNE_WORDS][TN_TUNE_WORD]; /* (n) all settings of the chosen point, */
    size_t n;
    char changed[TN_TUNE_WORDS][TN_TUNE_WORD]; /* (n_changed) and those that are not as they were */
    size_t n_changed;
    tn_ratio gain; /* of the chosen point, measured at the end against the start; n is 0 where nothing changed */
    double start_ms, ms, start_bytes, bytes;
    double loss_error; /* largest relative difference of the losses of `losses` steps; 0 of none compared */
    int losses;
    bool exact;       /* compute is as it was */
    bool out_of_time; /* some values were not tried */
} tn_tune_result;

/* TN_MEMORY: the configuration itself does not fit. TN_INTERRUPTED. */
tn_status tn_tune_run(const tn_tune_options *o, tn_tune_result *out);

#endif
