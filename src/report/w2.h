/* The workload of the TEP report: an equilibrium network trained once by equilibrium propagation and once by
 * back-propagation through time. One of these trials, with what its solver did and where its time went.
 *
 * A trial is an ordinary training run; it is only watched. Solver calls and evaluations are counted from the steps that every
 * solve puts out for each sample, batch by batch; samples that pad a batch take none. */
#ifndef TN_REPORT_W2_H
#define TN_REPORT_W2_H

#include "train/run/training.h"

typedef struct tn_w2_trial {
    double wall_s,
        cpu_s;         /* of training with its evaluations, from the first batch on; cpu: without waiting for a core */
    double score;      /* of the best evaluation, by train.select */
    int64_t best_step; /* which was after so many steps */
    int64_t solver_calls;          /* phases of batches: free, nudged, adjoint; of training and of evaluation */
    int64_t samples, eval_samples; /* shown, over all epochs */

    /* Evaluations of the map, summed over samples. adjoint: of its transposed slope; backward: times that the gradients of
     * its parameters were made. */
    double free, nudged, adjoint, backward, eval;
    double
        flops; /* of the map's two products in all these; backward counts for three: the map again (through time one product), the state, the parameters */

    /* Seconds. Of training: the solve and its gradient (ep: that includes the nudged solve), injection (embedding, values and
     * their projection), head and loss. */
    double solve_s, solve_backward_s, injection_s, injection_backward_s, head_s, head_backward_s;
    double eval_solve_s, eval_injection_s, eval_head_s;
    double optimizer_s, data_s;
} tn_w2_trial;

/* Runs the training to its end, from the beginning. Its trainer's timers are switched off afterwards. */
tn_status tn_w2_trial_run(const tn_training *t, tn_w2_trial *out);

#endif
