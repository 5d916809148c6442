/* Metrics by name: the rows that a run has (tn_metric_row, of the model), and their values at an evaluation. */
#ifndef TN_TRAIN_SCORES_H
#define TN_TRAIN_SCORES_H

#include <tenon/model.h>

enum { TN_SCORES_MAX = 64, TN_SCORE_NAME = 48, TN_SCORE_KEY = TN_SCORE_NAME + 16 };

struct tn_source;

/* In the order of the rows, the first of which is what training minimises; behind one that is counted by groups each as NAME_GROUP. */
typedef struct tn_scores {
    size_t n;
    struct {
        char name[TN_SCORE_NAME];
        double value;
    } at[TN_SCORES_MAX]; /* NaN: not known */
} tn_scores;

double tn_scores_get(const tn_scores *s, const char *name); /* NaN: there is none */
double tn_scores_first(const tn_scores *s);
/* False: there is no room, or the name is too long. */
bool tn_scores_put(tn_scores *s, const char *name, double value);

/* Whether a is better than b by the score of this name, which `lower` is better of, or not. One that knows it is better than one that does
 * not; where neither does, or they are equal, the first score decides: the lower. */
bool tn_scores_better(const tn_scores *a, const tn_scores *b, const char *name, bool lower);

/* Names that stand for something else where scores are written: no metric has one. */
bool tn_score_taken(const char *name);

/* Rows that apply: those of the model whose data the source has. */
typedef struct tn_metric_list {
    size_t n;
    const tn_metric_row *row[TN_METRICS_MAX];
} tn_metric_list;

/* All rows of a model; one that states none has those of language models, as far as its data have what they need. */
void tn_metric_rows(const tn_model *m, tn_metric_list *out);
/* TN_USAGE: a mistake in a row, in one line. */
tn_status tn_metric_list_of(const tn_model *m, const struct tn_source *source, tn_metric_list *out);
/* The row of a name, or of NAME_GROUP where its groups are counted apart; NULL: there is none. */
const tn_metric_row *tn_metric_find(const tn_metric_list *l, const char *name);
/* A score's key in metrics.jsonl: "heldout", "heldout_NAME". */
const char *tn_metric_key(const tn_metric_list *l, const char *name, char key[TN_SCORE_KEY]);
/* Whether a is better than b by this row; NaN is never. */
bool tn_metric_better(const tn_metric_row *r, double a, double b);
/* Whether it is the first one in another unit: a mean times a number of the source. */
bool tn_metric_is_other_unit(const tn_metric_row *r);
/* "" where the row has none. */
static inline const char *tn_metric_unit(const tn_metric_row *r) { return r->unit ? r->unit : ""; }
bool tn_metric_is_nats(const tn_metric_row *r);
/* Whether it is a part of what counts, from 0 to 1. */
bool tn_metric_is_part(const tn_metric_row *r);
/* Beside the first: the one that is selected by, else the next that says something else. NULL: there is none. */
const tn_metric_row *tn_metric_beside(const tn_metric_list *l, const tn_metric_row *select);
/* What evaluations on the source count: "tokens", "samples" or "questions". */
const char *tn_metric_counts(const struct tn_source *source);

/* The row that train.select names. auto: the first that needs answers, else the first. NULL: no row has that name. */
const tn_metric_row *tn_metric_selected(const tn_metric_list *l, const tn_settings *st);
/* When a run is opened: checks the rows against what the trainer puts out, and makes train.select the name of a metric where it is auto
 * and the data ask for answers. TN_USAGE, in one line: a mistake in a row, or no such metric. */
struct tn_trainer;
tn_status tn_metric_settle(const struct tn_source *source, struct tn_trainer *t, tn_settings *st);

#endif
