/* A configuration that is measured: a session of its own, whose training steps are timed as training runs them (batches from its source,
 * steps queued ahead). For whoever compares settings: two probes run in turn, so that both see the same machine.
 *
 *     TN_TRY(tn_step_probe_open(&(tn_step_probe_options){ .settings = st, .model = m, .word = words, .n = n }, &b));
 *     TN_TRY(tn_step_probe_pairs(a, b, &(tn_step_pairs){ .steps = 4, .most = 4 }, &n, ratio));
 *     const tn_ratio r = tn_ratio_of(ratio, n, TN_RATIOS_TAIL);
 *     tn_step_probe_close(b);
 *
 * A plan that does not fit is refused before any of its memory is touched. Nothing is written anywhere. Between runs the threads of a
 * probe's source stand still: it has no batches but those of its own time, and takes no core from the other. */
#ifndef TN_REPORT_PROBE_H
#define TN_REPORT_PROBE_H

#include "report/probe/ratios.h"
#include "train/run/session.h"

typedef struct tn_step_probe tn_step_probe;

typedef struct tn_step_probe_options {
    const tn_user_args *user;    /* or NULL */
    const tn_settings *settings; /* resolved; copied */
    const tn_model *model;
    const char *const *word; /* (n) "key=value", on top of them */
    size_t n;
    const char *source; /* of these words, for messages; NULL: "probe" */
    bool runs;          /* without memory it goes down the ladder, as a run does; else it is refused */
    double most_bytes;  /* that its plan may take, where this is less than plan.memory_gb; 0: as the settings say */
    const char *dir;    /* of the run whose settings these are, or NULL */
} tn_step_probe_options;

/* TN_MEMORY: it does not fit. TN_USAGE: the model or its data do not allow these settings. */
tn_status tn_step_probe_open(const tn_step_probe_options *o, tn_step_probe **out);
void tn_step_probe_close(tn_step_probe *p); /* takes NULL */

/* So many training steps; *ms: of one. limit_s > 0: gives up between two batches when that time is over: *ms is then infinite, and the
 * probe is of no more use. The first steps of a probe touch its memory: see tn_step_probe_warm. */
tn_status tn_step_probe_run(tn_step_probe *p, int steps, double limit_s, double *ms);
/* The steps that training does not repeat: touching memory, choosing kernels, recording graphs; once. *ms: of the last of them, or infinite. */
tn_status tn_step_probe_warm(tn_step_probe *p, double limit_s, double *ms);

/* Queues the batches of the next step and leaves its update to whoever runs steps after that: the store then has its gradients. */
tn_status tn_step_probe_gradients(tn_step_probe *p);

typedef struct tn_step_pairs {
    int steps;      /* of each side in a pair */
    double most;    /* gives up on b where it takes so many times as long as a; 0: never */
    double seconds; /* no pair begins later; 0: any time */
} tn_step_pairs;

/* *n ratios time(a) / time(b), each of one pair, the order within pairs alternating; warm probes. *n: how many there are, fewer where time
 * is up or b too slow; the last is then 0. */
tn_status tn_step_probe_pairs(tn_step_probe *a, tn_step_probe *b, const tn_step_pairs *how, int *n, double *ratio);

const tn_session *tn_step_probe_session(const tn_step_probe *p);
double tn_step_probe_items(
    const tn_step_probe *p); /* that its source counted (labels), of a step of the last run; 0: it has none */
double tn_step_probe_bytes(const tn_step_probe *p); /* of its memory plan */
/* The work of a step depends on its data or the weights: compare equal steps. */
bool tn_step_probe_varies(const tn_step_probe *p);

/* Losses of the first steps. */
enum { TN_STEP_PROBE_LOSSES = 20 };
typedef struct tn_step_losses {
    double loss[TN_STEP_PROBE_LOSSES]; /* (n) */
    int n;
} tn_step_losses;
const tn_step_losses *tn_step_probe_losses(const tn_step_probe *p);
/* Largest relative difference of the steps that both have; *n: how many. */
double tn_step_losses_differ(const tn_step_losses *a, const tn_step_losses *b, int *n);

#endif
