/* Which train.stop_patience would end a run early and keep its best step, and what that would save. It follows the rule of
 * early stopping: a run ends at the evaluation that makes so many in a row without improvement. */
#ifndef TN_TRAIN_PATIENCE_H
#define TN_TRAIN_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

/* What a run's evaluations say so far; zeroed at its beginning. */
typedef struct tn_patience_record {
    int64_t best_step;
    int64_t stale;   /* evaluations since the best one */
    int64_t longest; /* of them in a row that a better one followed */
    int64_t stop;    /* the evaluation that would have ended the run; 0: none, or it is not known */
} tn_patience_record;

/* An evaluation, in order; the first is the best so far. */
void tn_patience_add(tn_patience_record *p, int64_t step, bool is_best);
/* The least patience that does not end the run before its best step, at least TN_OVERFIT_EVALUATIONS: a rise of fewer is not
 * called one. */
int64_t tn_patience_least(const tn_patience_record *p);
/* The step at which it ends a run of `steps` steps; 0: at the end. every: steps between evaluations, 0 if not known. */
int64_t tn_patience_stop(const tn_patience_record *p, int64_t steps, int64_t every);

/* "train.stop_patience=3 would have stopped at step 260 and saved 1.2 M of 2.0 M tokens (60 %)", "" where nothing is saved.
 * steps: of the run, done if it is over; tokens: in all of them, NaN for tasks, which are told in steps. */
enum { TN_PATIENCE_TEXT = 160 };
const char *tn_patience_text(const tn_patience_record *p, int64_t steps, int64_t every, double tokens, bool over,
                             char buf[TN_PATIENCE_TEXT]);

#endif
