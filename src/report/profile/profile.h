/* Where the time of a training step goes: one measurement under every report.
 *
 *     TN_TRY(tn_profile_take(&session, &(tn_profile_options){ .seconds = 5 }, &p));
 *     TN_TRY(tn_profile_components(p, parts, &n));
 *     tn_profile_free(p);
 *
 * Steps run in turn without and with timers, so that both see the same machine: step_ms is what training takes, rows are what a step
 * with timers, timed_ms, consists of. A row is one direction of one op in one region; a component (components.def) is a set of ops, or something beside
 * them: data, optimizer, host. A family joins through its ops and regions alone. */
#ifndef TN_REPORT_PROFILE_H
#define TN_REPORT_PROFILE_H

#include "report/bench/ceilings.h"
#include "report/profile/recorded_step.h"
#include "train/run/session.h"

typedef struct tn_profile_row {
    char op[32], region[64];
    const char *component;
    bool backward;
    bool varies;          /* flops are the most there can be: no rate is known */
    double calls;         /* of a step, as all that follows */
    double ms, spread_ms; /* mean of the middle half of the steps, half the distance of the quartiles */
    double flops, bytes;  /* bytes: of its arguments, each once */
} tn_profile_row;

typedef struct tn_profile {
    const char *compute; /* of the settings, which live as long as the session */
    tn_device device;
    int threads;
    int64_t batch, length, batches; /* batches of a step: train.accumulate times plan.microbatches */
    const char *unit;               /* of `items`: tokens or samples */
    double items;                   /* of a step */
    tn_ceilings ceilings;
    int steps;                             /* of each kind */
    double step_ms, spread_ms;             /* as training runs them */
    double timed_ms, timed_spread_ms;      /* with timers */
    double data_ms, optimizer_ms, host_ms; /* parts of timed_ms beside the rows; host: between the ops */
    double data_spread_ms, optimizer_spread_ms, host_spread_ms;
    double optimizer_bytes;
    double
        busy; /* part of the time of undisturbed steps in which its threads computed, of a GPU a kernel or copy; NaN: not known */
    double gaps_ms;   /* part of host_ms: between kernels that follow at once */
    double launch_ms; /* the shortest call that there can be; 0: not known */
    bool replayed; /* rows are of steps that the device replays as a whole (replayed.h), not of steps queued op by op */
    tn_memory_plan memory;
    double peak_bytes; /* of the process; on a GPU what it takes there; NaN: not known */
    tn_profile_row *row;
    size_t n;
    /* A replayed step; of others whoever wants one records it (tn_record_step). The profile frees it. */
    tn_step_record recorded;
} tn_profile;

typedef struct tn_profile_options {
    double seconds;              /* for all steps (default 5) */
    const tn_ceilings *ceilings; /* measured already, or NULL */
} tn_profile_options;

/* The session trains a few steps: its weights change. TN_MEMORY, and what its steps return. */
tn_status tn_profile_take(tn_session *s, const tn_profile_options *o, tn_profile **out);
void tn_profile_free(tn_profile *p); /* takes NULL */

/* What a row can reach: the time that the ceilings allow for its FLOPs and bytes. */
typedef struct tn_bound_by {
    const char *what; /* arithmetic, memory, cache, launches: short calls, far above both; "": nothing is known */
    double ms;        /* the least time, of a step */
} tn_bound_by;
tn_bound_by tn_profile_bound(const tn_profile *p, const tn_profile_row *row);

/* A component in one direction, or without any. */
typedef struct tn_profile_part {
    const char *name;
    const char *pass; /* forward, backward or "" */
    double calls, ms, spread_ms, flops, bytes;
    double share;      /* of tn_profile_whole */
    double bound_ms;   /* least time of its rows; 0: not known */
    const char *bound; /* what most of that time is bound by; loader and host of time outside ops */
} tn_profile_part;
enum { TN_PROFILE_PARTS = 64 };

/* Of a step; NaN: the work of an op varies. */
double tn_profile_flops(const tn_profile *p);
/* The part of the arithmetic that the machine has for the profile's type of numbers, in undisturbed steps; NaN as above. */
double tn_profile_reached(const tn_profile *p);

/* What all parts take together: timed_ms, or more where clocks overlap. */
double tn_profile_whole(const tn_profile *p);
/* Longest first. What is left of timed_ms is the part "other". */
size_t tn_profile_parts(const tn_profile *p, tn_profile_part parts[TN_PROFILE_PARTS]);

/* One part in two configurations, for as much work: times of both are for the `items` of the first's step. */
typedef struct tn_profile_change {
    const char *name, *pass;
    double before_ms, after_ms; /* means of the rounds; 0: it has no such part */
    bool seen;                  /* both rounds differ the same way, by more than their spreads */
} tn_profile_change;
enum { TN_PROFILE_ROUNDS = 2, TN_PROFILE_CHANGES = 2 * TN_PROFILE_PARTS };

/* Of rounds measured in turn, the largest change first; the whole step is the last row, "step". */
size_t tn_profile_changes(const tn_profile *const before[TN_PROFILE_ROUNDS],
                          const tn_profile *const after[TN_PROFILE_ROUNDS],
                          tn_profile_change changes[TN_PROFILE_CHANGES + 1]);

/* The component of an op; "other ops" of one that the table does not have. */
const char *tn_component_of(const char *op);

#endif
