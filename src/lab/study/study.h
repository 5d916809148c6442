/* A study file: what is searched, by which algorithms, for what, how, and for how long.
 *
 *     study: digits                    base: digits_tep                  db: runs/lab.db
 *     set: { train.epochs: 30 }        search: { dim: log int 4..512, train.batch: [32, 64] }
 *     sides: { ep: { set: {grad: ep}, search: { beta: log 0.01..0.5 } }, bp: { base: ..., set: {grad: bptt} } }
 *     objectives: [ loss min 10, seconds min 1000 ]
 *     sampler: { name: nsga2, seed: 42 }   pruner: { name: asha, min: 1, eta: 3, lag: 8, metric: loss, cohort: 4 }
 *     rules: [ "loss > 100" ]          trials: 300    seconds: 28800    trial_seconds: 90    lag: 8    seed: 42
 *     retries: 0                       keep: false    transfer: { from: other.db/study, best: 3 }    lanes: 8
 *     seeds: 3                         parameters: 29.4e6 (or first)    width: ffn
 *     published: { source: "...", sides: { ep: { front: 24, points: [ { loss: 0.96, set: { dim: 13 } } ] } } }
 * The more specific entry wins: a side's over the study's, `set` over `search`, key=value of the command over the
 * file. Parsing checks the form; tn_study_check, which needs the models, checks keys and values. */
#ifndef TN_LAB_STUDY_H
#define TN_LAB_STUDY_H

#include "lab/study/records.h"
#include "lab/search/pruner.h"
#include "lab/search/sampler.h"
#include "lab/study/side_set.h"
#include "models/models.h"
#include "train/run/metric_rows.h"

typedef struct tn_study_side {
    const char *name; /* "" where the study has no sides */
    const char *base; /* see tn_settings_resolve; NULL: none */
    tn_space space;
    const char *const *set; /* (n_set) "key=value", of all first */
    size_t n_set;
    const size_t *set_line;    /* (n_set) in the file; 0: of the command */
    const size_t *search_line; /* (space.n) */
} tn_study_side;

enum { TN_STUDY_FIRST = -1 };

typedef struct tn_study_plan {
    const char *name, *file;    /* file: in messages */
    const char *db;             /* NULL: FILE.db */
    const tn_study_side *sides; /* (n_sides) */
    size_t n_sides;
    const tn_objective *objectives; /* (n_objectives) */
    size_t n_objectives;
    const tn_sampler *sampler;
    tn_sampler_options sampling;
    const tn_pruner *pruner;
    tn_pruner_options pruning;
    const char *prune_by; /* the metric that pruners compare, or an instrument */
    bool prune_max;       /* more of it is better */
    double cohort;        /* > 0: only trials whose parameters are within this factor are compared */
    bool prune_size;      /* a trial also survives if it is good enough by metric and parameters together */
    const tn_rule *rules; /* (n_rules) as parsed, nothing held yet */
    const char *const *rule_texts;
    size_t n_rules;
    int64_t trials;       /* a side */
    double seconds;       /* of the study in all; 0: no limit */
    double trial_seconds; /* 0: no limit */
    int64_t lag, retries;
    int64_t lanes; /* trials that a worker runs at once; 0: not given */
    uint64_t seed;
    bool keep;                        /* run directories stay */
    const char *from_db, *from_study; /* transfer; NULL: none */
    int64_t from_best;
    int64_t seeds;      /* > 0: no search; every grid point runs on so many common seeds, as comparisons do */
    int64_t parameters; /* > 0: widths are fitted to about so many; TN_STUDY_FIRST: as many as the first side has */
    const char *width;  /* the setting that is fitted; NULL: see tn_width_fit */
    const tn_published *published; /* NULL: none */
    const tn_user_args *user;      /* the user's own models on the command line, never from a file; NULL: none */
    tn_metric_list metrics;        /* of the models of all sides; tn_study_check fills it */
    const char *fingerprint;       /* everything that shapes its trials, as one text: equal for equal studies */
} tn_study_plan;

/* Everything goes into `arena`. TN_BAD_FILE: not YAML; TN_USAGE: a wrong key or value. Messages end in "
 * (file:line)". */
tn_status tn_study_parse(const char *text, size_t bytes, const char *file, const char *const *overrides, size_t n,
                         tn_arena *arena, tn_study_plan *out);
/* *text (tn_free) is the file's. */
tn_status tn_study_read(const char *path, const char *const *overrides, size_t n, tn_arena *arena, char **text,
                        tn_study_plan *out);

/* How many trials of these sides together can run at once, by their `lag`; 0: no limit. */
int64_t tn_study_at_once(const tn_study_plan *p, tn_side_set sides);

/* Checks every key and value that is set or searched against the settings of its side's model, and the sampler
 * against the space. Ranges of integer settings become integer ranges. */
tn_status tn_study_check(tn_study_plan *p);

/* Whether an objective or the metric for pruning is an instrument. */
bool tn_study_instruments(const tn_study_plan *p);

/* The plan of a loaded study, from the file and overrides it was started with. */
tn_status tn__study_plan_of(const tn_study *s, tn_arena *arena, tn_study_plan *out);

/* "key=value" of every active dimension of a point: out (space.n), *n of them, texts in `arena`. */
tn_status tn_study_point(const tn_study_side *side, const double *x, tn_arena *arena, const char **out, size_t *n);

/* A metric of the built-in models or environments, by its name or as NAME_GROUP; NULL: none of them. */
const tn_metric_row *tn_study_metric(const char *name);
/* Whether it is a number of every trial: seconds, parameters, ...; *maximise: more is better. */
bool tn_study_number(const char *name, bool *maximise);

#endif
