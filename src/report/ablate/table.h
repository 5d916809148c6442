/* The rows of an ablation: every opt.* switch of the settings table, then the settings of rows.def that the model, its data and the device
 * have. A new switch is a row without another line here. */
#ifndef TN_REPORT_ABLATE_TABLE_H
#define TN_REPORT_ABLATE_TABLE_H

#include "base/alloc.h"
#include "train/run/session.h"

enum { TN_ABLATE_ROWS = 96, TN_ABLATE_WORDS = 4, TN_ABLATE_NAME = 40 };

#define TN_ABLATE_TOLERANCE 1e-4 /* of a switch for which no other is stated */

/* What a side of the row does, again and again. */
typedef enum tn_ablate_price {
    TN_ABLATE_STEP,   /* training steps */
    TN_ABLATE_TRAIN,  /* a short run with its metrics file */
    TN_ABLATE_TOKEN,  /* tokens decoded with the cache */
    TN_ABLATE_REREAD, /* the same, against all tokens again for each */
    TN_ABLATE_SAVE,   /* checkpoints written */
    TN_ABLATE_PRICES
} tn_ablate_price;

typedef struct tn_ablate_row {
    char name[TN_ABLATE_NAME];
    const char *plain[TN_ABLATE_WORDS]; /* (n_plain) "key=value", on top of the configuration */
    const char *fast[TN_ABLATE_WORDS];  /* (n_fast) */
    size_t n_plain, n_fast;
    double tolerance; /* of parameters and loss (parity.h); NaN: the row changes the training */
    tn_ablate_price price;
    bool is_switch;
    bool by_plan; /* a row only where the plans of both sides differ */
    bool
        as_it_is; /* the fast side is the configuration: the row is one of those that are turned on one after the other */
    bool not_on_plans;     /* ... GPU: what it changes does not show in a plan */
    const char *component; /* what it changes is an op of this component, which is timed by itself too; or NULL */
} tn_ablate_row;

typedef struct tn_ablate_facts {
    const tn_session *session; /* the configuration as it is */
    const char *prepared;      /* a folder with the session's raw text, prepared; or NULL */
    const char *only; /* "opt.scan,precision": these rows alone; NULL: all but those that have to be asked for */
} tn_ablate_facts;

/* Their words are in `arena`. TN_USAGE: `only` names a row that this configuration does not have. */
tn_status tn_ablate_list(const tn_ablate_facts *f, tn_arena *arena, tn_ablate_row rows[TN_ABLATE_ROWS], size_t *n);
/* Whether a name is in "a,b,c", or lies below one of them (opt: opt.scan); NULL holds all. */
bool tn_ablate_in(const char *list, const char *name);
/* Whether the words leave the settings as they are. */
bool tn_ablate_is_as(const tn_settings *st, const char *const *word, size_t n);

/* For tests: the setting that a row of rows.def needs, i from 0; NULL at the end. "": of no setting. */
const char *tn_ablate_key_at(size_t i);

#endif
