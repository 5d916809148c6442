/* What to change so that a configuration trains faster: settings, the gain, its price, and why.
 *
 * A profile's numbers say where to look (rules.c); what is found there is measured (measure.c): a probe of the changed configuration runs in
 * turn with one of the configuration as it is. Lines of metrics are measured around steps as training writes them. What cannot be seen even
 * there (evaluations) is computed from the profile. */
#ifndef TN_REPORT_ADVICE_H
#define TN_REPORT_ADVICE_H

#include "report/probe/ratios.h"
#include "report/profile/profile.h"

enum { TN_ADVICE_MOST = 16, TN_ADVICE_WORDS = 3, TN_ADVICE_WORD = 96, TN_ADVICE_WHY = 320 };

typedef struct tn_advice {
    const char *about;                          /* the rule: at most one advice of each is given */
    char word[TN_ADVICE_WORDS][TN_ADVICE_WORD]; /* (n) "key=value" */
    size_t n;
    tn_ratio gain;     /* tokens or samples per second, over those of the configuration as it is */
    bool computed;     /* from the profile, not probed */
    bool loads;        /* batches meet steps differently: runs are of several, since what is made ahead evens out */
    int64_t after;     /* steps after which it shows, such as those of an epoch; 0: at once */
    int64_t lines;     /* steps that are measured with their lines of metrics; 0: steps alone */
    double more_bytes; /* of the memory plan; NaN: the same */
    const char *price; /* beside memory; "": none */
    bool same;         /* training computes what it did: the price is no accuracy */
    char why[TN_ADVICE_WHY];
} tn_advice;

/* What is known before anything is probed. */
typedef struct tn_advice_facts {
    const tn_settings *settings;
    const tn_profile *profile;
    int cores;
    bool has_data;    /* or a task: batches come from a source */
    int64_t epoch;    /* steps of one, where samples come again; 0: they do not */
    const char *rows; /* of text: "pack" or "bucket" (loader.mode); NULL: neither */
    double document;  /* its mean length in tokens */
} tn_advice_facts;

/* What may help, in the order in which to probe it; gains are known only of those that are computed. */
size_t tn_advice_list(const tn_advice_facts *f, tn_advice advice[TN_ADVICE_MOST]);

struct tn_step_probe;
typedef struct tn_advice_turns {
    struct tn_step_probe *as_is, *changed;
    double until; /* clock */
} tn_advice_turns;

/* Measures one candidate: its gain, or, where there is no time, *late. */
tn_status tn_advice_measure(const tn_advice_turns *t, tn_advice *a, bool *late);

typedef struct tn_advice_options {
    const tn_user_args *user; /* or NULL */
    const char *dir;          /* of the run whose settings these are, or NULL */
    double seconds;           /* for all probes */
} tn_advice_options;

/* Gains whose interval lies above 1 and that are at least TN_ADVICE_LEAST: those of 1.1 and more that leave the training as it is first,
 * then the largest first. The session is as it was. *untried: candidates that there was no time for. */
#define TN_ADVICE_LEAST 1.03
tn_status tn_advice_find(const tn_session *s, const tn_profile *p, const tn_advice_options *o,
                         tn_advice advice[TN_ADVICE_MOST], size_t *n, size_t *untried);

/* "train.batch=32 train.accumulate=1", into buf. */
const char *tn_advice_words(const tn_advice *a, char *buf, size_t bytes);

#endif
