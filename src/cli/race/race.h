/* A race: several configurations (sides) trained on the same data with the same seed, made equal in what the user names, and compared.
 * race_options.c reads what was typed, race_differ.c finds what is not equal nevertheless, race_keep.c has the folders and the best
 * weights, race_run.c trains and measures, race_table.c, race_verdict.c and race_show.c write plots and tables. */
#ifndef TN_CLI_RACE_H
#define TN_CLI_RACE_H

#include "base/alloc.h"
#include "cli/train/train_view.h"
#include "report/contexts.h"
#include "token/tokenizer.h"

enum { TN_RACE_MOST = 8, TN_RACE_RATES = 8, TN_RACE_PROMPT_BYTES = 48, TN_RACE_MEASURED = -1 };

/* What all of them get the same amount of; the curves are drawn over it. */
typedef enum tn_race_equal { TN_EQUAL_STEPS = 0, TN_EQUAL_TOKENS = 1, TN_EQUAL_SECONDS = 2 } tn_race_equal;

/* Parameters as they were at some step, outside the store. */
typedef struct tn_race_weights {
    float *numbers; /* (count), or NULL */
    size_t count;
} tn_race_weights;

/* One training of a side. */
typedef struct tn_race_trial {
    const char *rate;  /* of --lr, or NULL: the settings' own */
    const char *label; /* the side and the rate */
    const char *dir;   /* of its run, or NULL: not kept */
    bool trained;      /* at least one step, and the rest is filled */
    bool finished, diverged;
    tn_train_view view; /* the curves */
    tn_progress_report last;
    tn_race_weights weights; /* of the best step; only of the trial that is chosen so far */
} tn_race_trial;

typedef struct tn_racer {
    const char *name;       /* as typed: unique */
    const char *target;     /* see tn_settings_resolve */
    const char **overrides; /* (n): those of all, then its own; room for one more */
    size_t n;
    tn_settings *settings; /* as they were resolved */
    double lr;             /* of them */
    tn_width width;        /* text is empty: as the settings say */
    int64_t parameters, tokens_per_step;
    bool writes;                        /* text: a run of it can be sampled */
    tn_race_trial trial[TN_RACE_RATES]; /* (n_trials): one, or one for each rate of --lr */
    size_t n_trials, chosen;            /* chosen: the one that is shown */
    size_t bytes;
    tn_evaluation test; /* of the chosen weights; empty: none */
    double test_bits;
    tn_text sample;                        /* prompt and answer; empty: none */
    char no_sample[256];                   /* the reason */
    tn_context_row context[TN_SPANS_MOST]; /* (n_measured) */
    size_t n_measured;
} tn_racer;

/* A setting that shapes the numbers and that nobody typed for one side, with other values on other sides. */
typedef struct tn_race_difference {
    const char *key;
    const char *value[TN_RACE_MOST]; /* NULL: that model has no such setting */
} tn_race_difference;

typedef struct tn_race {
    tn_cli *c;
    tn_arena arena; /* names and settings */
    tn_race_equal equal;
    int64_t tokens;             /* each trains on; 0: as many as the first does in its train.steps */
    double seconds;             /* each trains for; 0: as long as the first takes for its train.steps */
    int64_t parameters;         /* each has; 0: what its settings say; TN_RACE_MEASURED: as many as the first */
    const char *width;          /* the setting that is changed for it, or NULL */
    double rate[TN_RACE_RATES]; /* (n_rates), growing: every side is trained at each; none: at its own */
    size_t n_rates;
    bool raw_test;  /* --lr on raw text: a test part is held out, as large as the validation part */
    int64_t sample; /* tokens; 0: none */
    tn_spans contexts;
    size_t n;
    const char *svg, *csv; /* files, or NULL */
    const char *dir;       /* of the sides' runs, as typed or found; NULL: not kept, or not found yet */
    bool keep;
    tn_race_difference *differs; /* (n_differs) */
    size_t n_differs;
    tn_text prompt; /* of the samples: from the held-out text of the first */
    tn_racer racer[TN_RACE_MOST];
} tn_race;

tn_status tn_race_read(tn_cli *c, tn_race *r);
/* Opens each of them once, so that a wrong one costs no training, and settles what makes them equal. */
tn_status tn_race_prepare(tn_race *r);
/* Fills r->differs from the settings of all. */
tn_status tn_race_differ(tn_race *r);
/* Makes the folder and names the runs, each of which must be new; nothing where they are not kept. */
tn_status tn_race_keep(tn_race *r);
/* Trains one at each of its rates and measures what was asked for; what it has by then stays in *x also when it fails or is interrupted. */
tn_status tn_race_run(tn_race *r, tn_racer *x);
/* All that is there, to standard output and the files that were named. */
tn_status tn_race_show(const tn_race *r);
void tn_race_free(tn_race *r);

/* The one that is shown, or NULL where none trained a step. */
const tn_race_trial *tn_race_chosen(const tn_racer *x);
/* What is not equal, the rates that were tried, the table, and what a person should know of it. */
tn_status tn_race_table(const tn_race *r);
int tn_race_name_width(const tn_race *r);
/* In a column of w; a name that is longer has a line of its own. */
void tn_race_print_name(const tn_race *r, const char *name, int w);
/* Which is best, by how much, and what it costs: two sentences. */
void tn_race_verdict(const tn_race *r);
/* "2.061 b/B", of a loss in nats per token. */
const char *tn_race_loss_text(double loss, double bits, char buf[24]);

/* The metric that says most of an evaluation: the one beside the loss where there is one. */
const tn_metric_row *tn_race_score(const tn_progress_report *l, const tn_scores *s, double *value);
const char *tn_race_score_text(const tn_progress_report *l, const tn_scores *s, double bits, char buf[24]);

/* Of the store as it is now; memory is taken by the first call. */
tn_status tn_race_weights_take(tn_race_weights *w, const tn_store *store);
tn_status tn_race_weights_give(const tn_race_weights *w, const tn_store *store);
void tn_race_weights_free(tn_race_weights *w);

#endif
