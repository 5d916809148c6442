/* Detects overfitting: a run reports it once while training, and again at its end.
 *
 * The last three evaluations must be worse than the best, by more than 1 % and by more than three times the noise. The
 * noise is the largest change between two evaluations that was later reversed; it decays by 5 % per evaluation. So a
 * smooth rise is reported after three evaluations, a noisy one only when it exceeds the noise. A new best evaluation
 * withdraws the report. */
#ifndef TN_TRAIN_OVERFIT_WATCH_H
#define TN_TRAIN_OVERFIT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TN_OVERFIT_EVALUATIONS = 3 };

typedef struct tn_overfit_watch {
    bool higher; /* more of it is better */
    double best; /* NaN: none yet */
    int64_t best_step;
    double now;                          /* the last evaluation's */
    bool worse;                          /* the answer, as of the last evaluation, */
    bool said;                           /* which was true before, since the best one */
    int64_t since;                       /* evaluations after the best one */
    double last[TN_OVERFIT_EVALUATIONS]; /* of them, the newest at (since - 1) % 3 */
    double noise;                        /* taken back so far */
    double widest;                       /* change between neighbours since the best one: noise if a new best comes */
} tn_overfit_watch;

/* best, best_step: of a run that goes on; NaN, 0 of a new one. */
void tn_overfit_watch_begin(tn_overfit_watch *w, bool higher, double best, int64_t best_step);
/* An evaluation: its value, and whether it is the best so far. True where it is the one that shows that results have become
 * worse (again true after a later best one only). NaN is passed over. */
bool tn_overfit_watch_add(tn_overfit_watch *w, int64_t step, double value, bool is_best);

#endif
