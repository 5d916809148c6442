/* What the files of `tenon wire eval` share. */
#ifndef TN_CLI_WIRE_EVAL_H
#define TN_CLI_WIRE_EVAL_H

#include "cli/term.h"
#include "cli/wire/wire_cli.h"
#include "report/answers.h"
#include "report/wire/decoded.h"
#include "report/wire/texts.h"
#include "report/wire/wire_probe.h"

typedef struct tn_wire_evaluation {
    tn_cli *c;
    const char *target, *split;
    tn_data_split of;
    tn_session s;
    tn_wire_controls found;
    tn_wire_decoded said; /* what was decoded; in_words false: nothing */
    tn_wire_probe probe;
    tn_wire_sizes sizes;
    tn_progress line;
    const char *what;       /* is at work, behind the controls; or NULL */
    int64_t batches, asked; /* asked: how often whether to stop, which is before every batch */
} tn_wire_evaluation;

/* Latent minus the best budget over the contexts that have questions, by one score. */
typedef struct tn_wire_difference {
    tn_wire_method budget;
    tn_paired latent; /* NaN where no context has a question */
} tn_wire_difference;

typedef enum tn_wire_by { TN_WIRE_BY_TOKENS, TN_WIRE_BY_EM, TN_WIRE_BY_F1 } tn_wire_by;
/* Latent minus another method. */
tn_status tn_wire_eval_against(const tn_wire_evaluation *e, int k, tn_wire_by by, tn_wire_method other, tn_paired *out);
tn_status tn_wire_eval_compare(const tn_wire_evaluation *e, int k, tn_wire_by by, tn_wire_difference *out);

/* The session of e on the split that keys name, with weights. */
tn_status tn_wire_eval_open(tn_wire_evaluation *e, tn_saved_model *m, const tn_settings *keys);
/* --latency: times instead of scores. */
tn_status tn_wire_eval_latency(tn_wire_evaluation *e, tn_saved_model *m, const tn_settings *keys);

/* Tables, or with --json lines; --svg. */
tn_status tn_wire_eval_show(const tn_wire_evaluation *e);

#endif
