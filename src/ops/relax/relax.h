/* relax: the equilibrium h = f(h) of one of three maps for every row of a batch, with the gradients of tn_loop's solve.
 *
 *     TN_RELAX_BLOCK   f(h) = LN(u + W2 gelu(W1 LN2(u) + b1) + b2),  u = h + a     (exact gelu; LN's eps is 1e-5)
 *     TN_RELAX_ENERGY  f(h) = a + s W1^T tanh(W1 h + b1)                           (s without gradient)
 *     TN_RELAX_HOPFIELD  f(h) = a + W1 tanh(h), W1 (d,d); tanh(h) is what the cost reads, and what nudges is dC/dtanh(h): lambda gets
 *                      the factor 1 - tanh^2(h*), which makes it exact where W1 is symmetric
 *     cost of ep       C = sum_b weight_b xent(Wout h_b + bout, label_b)           (label -1: no cost)
 *
 *     h = tn_relax(g, a, .kind = TN_RELAX_BLOCK, .w1 = w1, .w2 = w2, ..., .steps = 20, .rtol = rtol, .grad = ...)
 *     a (B,d)    w1 (f,d)    b1 (f)    w2 (d,f)    b2 (d)    norm2_gain, norm2_bias, norm_gain, norm_bias (d)    scale (1)
 *     h0 (B,d) or none: 0    head_w (C,d)    head_b (C)    labels i32 (B)    weights (B) or none: 1    ->  h f32 (B,d)
 * Biases, gains and norm biases may be left out (0, 1, 0).
 *
 * When a sample has arrived, what the gradients are, and what the outputs of each sample say is tn_loop's: see there.
 * Only the solve differs: a thread takes a few samples at a time and iterates them in its nearest caches; one that has
 * arrived makes room for the next. A row's bits depend on that row and the weights alone, except where all stop
 * together (tol), and, on CUDA, on the size of the batch where its products are a library's.
 * Gradients reach a, w1, b1, w2, b2 and the norms' gains and biases; h0, the head, labels and weights get none.
 * NaN: a sample whose residual is NaN takes all its steps; the others are not touched by it. A label that is neither in
 * [0,C) nor -1 is an error when the step runs. Workspace does not grow with the steps; bptt keeps the states (steps,B,d) and,
 * of the block, LN's normalised values as well, which spare the way back the second product of every step.
 * Plain twin (opt.relax=off): tn_loop with the map and the cost as bodies. On CUDA it is always built; with opt.relax on,
 * solves stopped by rtol run in one kernel that knows the map (relax_cuda.cu), where the weights fit into it (d <= 256). */
#ifndef TN_OPS_RELAX_H
#define TN_OPS_RELAX_H

#ifndef TN_OPS_LOOP_H /* <tenon/ops.h> has it further up */
#include "ops/loop/loop.h"
#endif
#include <tenon/op.h>

typedef enum tn_relax_kind { TN_RELAX_BLOCK, TN_RELAX_ENERGY, TN_RELAX_HOPFIELD, TN_RELAX_KINDS } tn_relax_kind;

typedef struct tn_relax_options {
    int unused_;
    tn_relax_kind kind;
    tn_ref w1, b1, w2, b2, norm2_gain, norm2_bias, norm_gain, norm_bias;
    tn_ref scale; /* TN_RELAX_ENERGY: s */
    tn_ref h0;
    tn_ref head_w, head_b, labels, weights; /* TN_LOOP_EP */

    /* As in tn_loop_options. */
    int64_t steps;
    tn_loop_grad grad;
    tn_ref rtol, tol, damping, beta, count;
    tn_ref move;
    bool centred, mean, proxy, at_rest;
    float weight;
    tn_loop_solver solver;
    int memory;
    tn_ref *free_steps, *nudged_steps, *adjoint_steps, *residuals, *signal;
} tn_relax_options;

/* Inputs and outputs of the node. bptt has behind, of which a sample's first free_steps are set, the states before each step
 * (steps,B,d); the block also what LN made of each, before its gain, and the factor that it took (steps,B). */
enum {
    TN_RELAX_A,
    TN_RELAX_W1,
    TN_RELAX_B1,
    TN_RELAX_W2,
    TN_RELAX_B2,
    TN_RELAX_GAIN2,
    TN_RELAX_BIAS2,
    TN_RELAX_GAIN,
    TN_RELAX_BIAS,
    TN_RELAX_SCALE,
    TN_RELAX_H0,
    TN_RELAX_HEAD_W,
    TN_RELAX_HEAD_B,
    TN_RELAX_LABELS,
    TN_RELAX_WEIGHTS,
    TN_RELAX_RTOL,
    TN_RELAX_TOL,
    TN_RELAX_DAMPING,
    TN_RELAX_BETA,
    TN_RELAX_MOVE,
    TN_RELAX_COUNT,
    TN_RELAX_INPUTS
};
enum {
    TN_RELAX_H,
    TN_RELAX_FREE_STEPS,
    TN_RELAX_NUDGED_STEPS,
    TN_RELAX_ADJOINT_STEPS,
    TN_RELAX_RESIDUALS,
    TN_RELAX_SIGNAL,
    TN_RELAX_HISTORY,
    TN_RELAX_NORMAL,
    TN_RELAX_NORMAL_SCALE,
    TN_RELAX_OUTPUTS
};

typedef struct tn_relax_attr {
    tn_relax_kind kind;
    int64_t steps;
    tn_loop_grad grad;
    tn_loop_solver solver;
    int memory;
    bool centred, mean, proxy, at_rest;
    float weight;
    uint32_t counted; /* outputs that the backward kernel is asked to write, a bit for each */
} tn_relax_attr;

extern const tn_op tn_op_relax;

#define tn_relax(g, a, ...) tn_relax_((g), __FILE__, __LINE__, (a), (tn_relax_options){ .unused_ = 0, __VA_ARGS__ })
tn_ref tn_relax_(tn_graph *g, const char *file, int line, tn_ref a, tn_relax_options o);

/* The Hopfield map as the body of a loop, for those who build one themselves. Constants: a (B,d), W1 (d,d); state: v (B,d). The second one is
 * for equilibrium propagation, which pulls back how far v moved and nothing else: the slope 1 - tanh^2(v) comes in on the way. */
tn_body_build tn_relax_hopfield, tn_relax_hopfield_ep;
/* h = tanh(v), what a cost reads; nudges: its gradient stands for that of h itself, without the slope. */
tn_ref tn_relax_hopfield_read(tn_graph *g, tn_ref v, bool nudges);

#endif
