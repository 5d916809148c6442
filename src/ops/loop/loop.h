/* loop: runs a body many times, with one of several gradients.
 *
 * Sequence loop (no rtol): for t = 0 .. steps-1:   state, y_t = body(state, x_t; consts)
 *     xs[i] has shape (steps, ...); ys[i] gets shape (steps, ...). The gradient is back-propagation through time:
 *     states are kept per step, the inside of a step is recomputed.
 *
 * Solve (rtol or tol given; one state h with samples along axis 0, no xs, no ys): h <- (1-damping) h + damping f(h).
 *     rtol: until every sample has |f(h)-h| / max(|f(h)|, 1e-6) < rtol, at most `steps` times. A sample that is there
 *     stays as it is. tol: until |h_next - h| < tol, the norm taken over the whole batch.
 *     Gradients of a loss L by the constants, g = dL/dh:
 *       TN_LOOP_BPTT      through all iterations, of each sample those that it took; memory grows with steps
 *       TN_LOOP_IMPLICIT  lambda = g + J^T lambda by the same iteration, then lambda^T df/dconst
 *       TN_LOOP_ONE_STEP  g^T df/dconst (Jacobian-free)
 *       TN_LOOP_EP        equilibrium propagation: a second solve, nudged by beta * dC/dh re-evaluated at f(h) in every
 *                         iteration (C = the cost body's ys[0], a sum over samples), then
 *                         lambda = weight (h* - h_beta) / beta, or centred weight (h_-beta - h_beta) / (2 beta);
 *                         g is not used, so weight carries the loss's own factor (mean: 1/count).
 *                         proxy: nudged by beta/count, lambda = 2 / (beta count width) (f(h*) - h_beta), the gradient of
 *                         mean((f(h*) - h_beta)^2) / beta: biased, to compare with.
 *                         at_rest: the map that is nudged is f(h) - (f(h*) - h*), which leaves h* where it is: what a loose free solve
 *                         left over is not divided by beta. move: a nudged sample is there when |target - h| is below this part
 *                         of |target - h*|, or of a thousandth of |target| where that is more, instead of by rtol
 *     In the last three memory does not depend on the number of iterations, and the first guess gets no gradient.
 *     TN_SOLVE_ANDERSON mixes the last evaluations of a sample (ops/anderson.h) in the free, nudged and adjoint phases; the
 *     last step of a sample that is there is a damped one. Not for bptt.
 *     Where sample_consts names the constants that have samples along axis 0, the body sees rows alive only (up to count),
 *     and a sample that is there leaves them (opt.compact; not by tol), for bptt also on the way back. A body must then treat every
 *     sample by itself; so must the cost. Without it the body computes all rows every time.
 *     Samples from `count` on are left as they came, with 0 steps and gradient 0.
 *     nudged_steps (both signs together), adjoint_steps and signal are written by the backward kernel and 0 before: to
 *     be put out, not to be computed with.
 *
 * The body works in f32, and so are the final states, whatever the type of activations: halves are converted once,
 * before the loop. Bodies of sequences see no live extents: one that has some carries their counts and says tn_live.
 *
 * On CUDA the host does not know how a solve goes: all its steps are queued (a recording repeats one instead, until all are
 * there: opt.repeat), and those of a sample that is there, or of a batch that has stopped, change nothing. A count beyond the batch is cut to it, and a beta that is not above 0 gives
 * gradients that are NaN, where the CPU refuses both. Samples keep their rows (no compaction).
 *
 * NaN: a residual that is NaN never counts as converged; the solve then runs all its steps. */
#ifndef TN_OPS_LOOP_H
#define TN_OPS_LOOP_H

#include <tenon/body.h>

typedef enum tn_loop_grad { TN_LOOP_BPTT, TN_LOOP_IMPLICIT, TN_LOOP_ONE_STEP, TN_LOOP_EP } tn_loop_grad;
typedef enum tn_loop_solver { TN_SOLVE_PICARD, TN_SOLVE_ANDERSON } tn_loop_solver;

struct tn_loop_body;
struct tn_loop_phase;
/* A phase of a solve (loop_run.h) whole, by a kernel that knows the body; *done says whether it takes this one. */
typedef tn_status tn_loop_fused(const tn_call *c, const struct tn_loop_body *b, const struct tn_loop_phase *p,
                                bool *done);

typedef struct tn_loop_options {
    int unused_;
    const tn_ref *state, *xs, *consts;
    int n_state, n_xs, n_consts, n_ys;
    int64_t steps;
    tn_loop_grad grad;
    tn_ref rtol, damping; /* run-time scalars; rtol makes it a solve, damping defaults to 1 */
    const tn_body *cost;  /* TN_LOOP_EP */
    const tn_ref *cost_consts;
    int n_cost_consts;
    tn_ref beta; /* run-time scalar */
    bool centred;
    float weight;                  /* 0 = 1 */
    tn_ref *final;                 /* n_state results */
    tn_ref *ys;                    /* n_ys results */
    tn_ref *iterations, *residual; /* i32 (1), f32 (1): taken, and the largest of the last iteration (solve) */

    /* Of a solve; B = samples. */
    tn_ref count;                               /* i32 (1): valid rows; none = all B */
    uint64_t sample_consts, sample_cost_consts; /* bit i: constant i has samples along axis 0 */
    tn_loop_solver solver;
    int memory;                                        /* TN_SOLVE_ANDERSON: pairs kept, 2 to 16; 0 = 5 */
    tn_ref tol;                                        /* run-time scalar, instead of rtol */
    bool mean;                                         /* ep: the factor of lambda is 1/count instead of weight */
    bool proxy;                                        /* ep: see above */
    bool at_rest;                                      /* ep: see above; not with proxy */
    tn_ref move;                                       /* ep: run-time scalar, see above; with rtol */
    tn_ref *free_steps, *nudged_steps, *adjoint_steps; /* i32 (B): evaluations of the body for each sample, by phase */
    tn_ref *residuals;                                 /* f32 (B): of the last evaluation of the free phase */
    tn_ref *signal;                                    /* f32 (B): |h_beta - h*| / max(|f(h*) - h*|, 1e-30) */
    tn_loop_fused *fused; /* CUDA: asked first, for every phase stopped by rtol; NULL: none */
} tn_loop_options;

typedef struct tn_loop_attr {
    struct tn_loop_body *body; /* owned by the graph */
} tn_loop_attr;

extern const tn_op tn_op_loop;

/* Returns the first final state. */
#define tn_loop(g, body, ...) tn_loop_((g), __FILE__, __LINE__, (body), (tn_loop_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_loop_(tn_graph *g, const char *file, int line, tn_body body, tn_loop_options o);

#endif
