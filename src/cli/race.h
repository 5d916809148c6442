/* A race: several configurations trained on the same data with the same seed, made equal in what the user names, and compared.
 * race_options.c reads what was typed, race_run.c trains and measures, race_show.c writes plots and tables. */
#ifndef TN_CLI_RACE_H
#define TN_CLI_RACE_H

#include "base/alloc.h"
#include "cli/context_list.h"
#include "cli/train_view.h"
#include "report/contexts.h"
#include "token/tokenizer.h"

enum { TN_RACE_MOST = 8, TN_RACE_PROMPT_BYTES = 48, TN_RACE_MEASURED = -1 };

/* What all of them get the same amount of; the curves are drawn over it. */
typedef enum tn_race_equal { TN_EQUAL_STEPS = 0, TN_EQUAL_TOKENS = 1, TN_EQUAL_SECONDS = 2 } tn_race_equal;

typedef struct tn_racer {
    const char *name;   /* as typed: unique */
    const char *target; /* see tn_settings_resolve */
    const char **overrides; /* (n): those of all, then its own; room for one more */
    size_t n;
    tn_width width; /* text is empty: as the settings say */
    int64_t parameters, tokens_per_step;
    bool trained;   /* at least one step, and the rest is filled */
    tn_train_view view; /* the curves */
    tn_progress_report last;
    size_t bytes;
    tn_text sample; /* prompt and answer; empty: none */
    char no_sample[256]; /* the reason */
    tn_context_row context[TN_CONTEXTS_MOST]; /* (n_measured) */
    size_t n_measured;
} tn_racer;

typedef struct tn_race {
    tn_cli *c;
    tn_arena arena; /* names and settings */
    tn_race_equal equal;
    int64_t tokens;     /* each trains on; 0: as many as the first does in its train.steps */
    double seconds;     /* each trains for; 0: as long as the first takes for its train.steps */
    int64_t parameters; /* each has; 0: what its settings say; TN_RACE_MEASURED: as many as the first */
    const char *width;  /* the setting that is changed for it, or NULL */
    int64_t sample;     /* tokens; 0: none */
    tn_context_list contexts;
    size_t n;
    const char *svg, *csv; /* files, or NULL */
    tn_text prompt;        /* of the samples: from the held-out text of the first */
    tn_racer racer[TN_RACE_MOST];
} tn_race;

tn_status tn_race_read(tn_cli *c, tn_race *r);
/* Opens each of them once, so that a wrong one costs no training, and settles what makes them equal. */
tn_status tn_race_prepare(tn_race *r);
/* Trains one and measures what was asked for; what it has by then stays in *x also when it fails or is interrupted. */
tn_status tn_race_run(tn_race *r, tn_racer *x);
/* All that is there, to standard output and the files that were named. */
tn_status tn_race_show(const tn_race *r);
void tn_race_free(tn_race *r);

#endif
