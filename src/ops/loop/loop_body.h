/* What a loop node keeps: the compiled entry points of its body and the positions of their outside tensors. */
#ifndef TN_OPS_LOOP_BODY_H
#define TN_OPS_LOOP_BODY_H

#include "ops/loop/loop.h"

/* Indices of a plan's outside tensors, -1 where it does not use one. */
typedef struct loop_entry {
    tn_plan *plan;
    int n_externs;
    int state[TN_BODY_MAX], xs[TN_BODY_MAX], consts[TN_BODY_MAX];
    int live;
    int dnext[TN_BODY_MAX], dy[TN_BODY_MAX], dstate[TN_BODY_MAX], dxs[TN_BODY_MAX], dconsts[TN_BODY_MAX];
} loop_entry;

typedef struct tn_loop_body {
    tn_body_spec spec, cost_spec;
    int64_t steps;
    tn_loop_grad grad;
    bool solve, centred, trains, mean, proxy, at_rest;
    float weight;
    unsigned counted; /* numbers of each sample that the backward kernel writes, a bit for each */
    tn_loop_solver solver;
    int memory;
    bool live, compact; /* the body sees rows alive only; converged samples are dropped from them */
    tn_loop_fused *fused;
    bool repeats; /* CUDA: a recording repeats one iteration as often as it takes, instead of having them all */
    loop_entry forward, vjp_state, vjp_all, cost; /* cost: by the state */
} tn_loop_body;

/* What is asked of a solve, by tn_loop or by relax: both refuse the same, in the same words. */
typedef struct tn_solve_options {
    tn_loop_grad grad;
    tn_loop_solver solver;
    int memory; /* 0: the default */
    bool centred, proxy, at_rest;
    bool rtol, tol, move; /* given */
    tn_type count;
} tn_solve_options;
tn_status tn_solve_check(const tn_solve_options *o);

/* Positions in the node's lists. */
static inline int loop_in_x(const tn_loop_body *b) { return b->spec.n_state; }
static inline int loop_in_const(const tn_loop_body *b) { return loop_in_x(b) + b->spec.n_xs; }
static inline int loop_in_cost(const tn_loop_body *b) { return loop_in_const(b) + b->spec.n_consts; }
static inline int loop_in_rtol(const tn_loop_body *b) { return loop_in_cost(b) + b->cost_spec.n_consts; }
static inline int loop_in_damping(const tn_loop_body *b) { return loop_in_rtol(b) + 1; }
static inline int loop_in_beta(const tn_loop_body *b) { return loop_in_rtol(b) + 2; }
static inline int loop_in_tol(const tn_loop_body *b) { return loop_in_rtol(b) + 3; }
static inline int loop_in_count(const tn_loop_body *b) { return loop_in_rtol(b) + 4; }
static inline int loop_in_move(const tn_loop_body *b) { return loop_in_rtol(b) + 5; }
static inline int loop_out_y(const tn_loop_body *b) { return b->spec.n_state; }
static inline int loop_out_iterations(const tn_loop_body *b) { return b->spec.n_state + b->spec.n_ys; }
/* Of a solve, one number for each sample. The backward kernel writes those of its phases. */
enum { LOOP_FREE_STEPS, LOOP_NUDGED_STEPS, LOOP_ADJOINT_STEPS, LOOP_RESIDUALS, LOOP_SIGNAL, LOOP_PER_SAMPLE };
static inline int loop_out_sample(const tn_loop_body *b, int which) { return loop_out_iterations(b) + 2 + which; }
static inline int loop_out_history(const tn_loop_body *b) { return loop_out_sample(b, b->solve ? LOOP_PER_SAMPLE : 0); }

static inline size_t loop_type_bytes(const tn_type *t)
{
    return (size_t)tn_dims_count(t->dims) * tn_dtype_bytes(t->dtype);
}

#endif
