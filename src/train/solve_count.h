/* How often equilibrium networks evaluated their map, counted from the steps that every solve puts out for each sample, batch by batch;
 * samples that pad a batch take none. For who watches a trainer (tn_watch). */
#ifndef TN_TRAIN_SOLVE_COUNT_H
#define TN_TRAIN_SOLVE_COUNT_H

#include "train/trainer.h"

typedef struct tn_solve_count {
    int64_t batch;                 /* rows of a batch */
    bool through_time;             /* the gradient goes back through every step */
    int64_t solver_calls;          /* phases of batches: free, nudged, adjoint; of training and of evaluation */
    int64_t samples, eval_samples; /* that took part */
    /* Summed over samples. adjoint: of its transposed slope; backward: times that the gradients of its parameters were made. */
    double free, nudged, adjoint, backward, eval;
} tn_solve_count;

tn_solve_count tn_solve_count_of(const tn_settings *st, int64_t batch);
/* What just ran, with its outputs still there. */
void tn_solve_count_add(tn_solve_count *c, tn_ran what, tn_bound *b);
/* In units of one evaluation of the map: a gradient at the equilibrium is three (the map again, its state's, its parameters'), one through a
 * step that was kept two. NaN: the model has no solves. */
double tn_solve_count_units(const tn_solve_count *c);

#endif
