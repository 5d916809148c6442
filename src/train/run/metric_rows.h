/* The metrics of a run: rows of its model (tn_metric_row), found by name. */
#ifndef TN_TRAIN_METRIC_ROWS_H
#define TN_TRAIN_METRIC_ROWS_H

#include "train/trainer/scores.h"

#include <tenon/model.h>

struct tn_source;

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
bool tn_metric_is_fraction(const tn_metric_row *r);
/* Beside the first: the one that is selected by, else the next that says something else. NULL: there is none. */
const tn_metric_row *tn_metric_second(const tn_metric_list *l, const tn_metric_row *select);
/* What evaluations on the source count: "tokens", "samples" or "questions". */
const char *tn_metric_counts(const struct tn_source *source);

/* The row that train.select names. auto: the first that needs answers, else the first. NULL: no row has that name. */
const tn_metric_row *tn_metric_selected(const tn_metric_list *l, const tn_settings *st);
/* When a run is opened: checks the rows against what the trainer puts out, and makes train.select the name of a metric where it is auto
 * and the data ask for answers. TN_USAGE, in one line: a mistake in a row, or no such metric. */
struct tn_trainer;
tn_status tn_metric_resolve(const struct tn_source *source, struct tn_trainer *t, tn_settings *st);

#endif
