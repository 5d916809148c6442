/* What `tenon eval` shows beyond one loss: by position, at other contexts, how far back it reaches (eval_context.c), the spectrum
 * (eval_spectrum.c), flows through a lattice (eval_flows.c), and the perplexity of a text (eval_text.c). */
#ifndef TN_CLI_EVAL_H
#define TN_CLI_EVAL_H

#include "cli/cli.h"
#include "train/run/session.h"

typedef enum tn_eval_view {
    TN_EVAL_LOSS,
    TN_EVAL_POSITIONS,
    TN_EVAL_CONTEXTS,
    TN_EVAL_RECEPTIVE_FIELD,
    TN_EVAL_SPECTRUM,
    TN_EVAL_FLOWS
} tn_eval_view;

typedef struct tn_eval {
    tn_cli *c;
    const char *target; /* as typed */
    tn_data_split split;
    bool whole; /* raw text that the command names: all of it (TN_TRAIN, nothing is held out) */
    tn_eval_view view;
    int64_t context; /* of positions and reach; 0: the trained one */
    int64_t tokens;  /* to score, about; 0: all, or what is enough */
    tn_spans contexts;
    int64_t samples;              /* of flows; 0: a few */
    const char *csv, *svg, *html; /* files, or NULL */
} tn_eval;

/* Each on a session whose trainer has the weights. */
tn_status tn_eval_positions(const tn_eval *e, tn_session *s);
tn_status tn_eval_contexts(const tn_eval *e, tn_session *s);
tn_status tn_eval_receptive_field(const tn_eval *e, tn_session *s);
tn_status tn_eval_spectrum(const tn_eval *e, tn_session *s);
tn_status tn_eval_flows(const tn_eval *e, tn_session *s);

/* Warns where a run (its settings) is evaluated on all of its own text, which it has learned but for what was held out. */
tn_status tn_eval_warn_of_own(tn_cli *c, const tn_settings *st, const char *path);
/* Where data= names a plain text and no part of it (split=) is asked for, all of the evaluation; else, or where the model has metrics that
 * windows of a text do not give, *taken is false and nothing was done. */
tn_status tn_eval_text(tn_cli *c, const char *target, bool *taken);

const char *tn_eval_part(const tn_eval *e); /* "valid", "test", or "all" */

bool tn_eval_has_flows(const tn_model *m); /* whether it has a step for them */

#endif
