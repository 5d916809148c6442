/* A case of relax for tests: sizes, options as flags, the node that it makes, and the same for the oracle in double. */
#ifndef TN_TESTS_RELAX_CASE_H
#define TN_TESTS_RELAX_CASE_H

#include "optest.h"
#include "relax_oracle.h"

#include <stdio.h>

/* tn_case.dim */
enum { RC_B, RC_D, RC_F, RC_C, RC_T, RC_COUNT }; /* RC_COUNT 0: no count is given */

enum {
    RC_ENERGY = 1,
    RC_IMPLICIT = 2,
    RC_ONE_STEP = 4,
    RC_EP = 8, /* none of the three: bptt */
    RC_CENTRED = 16,
    RC_MEAN = 32,
    RC_PROXY = 64,
    RC_ANDERSON = 128,
    RC_TOL = 256,    /* stops by tol, else by rtol */
    RC_TIGHT = 512,  /* by a small one */
    RC_FIXED = 1024, /* by none: all steps */
    RC_H0 = 2048,
    RC_WEIGHTS = 4096,
    RC_BARE = 8192,        /* no biases, no gains */
    RC_UNLABELLED = 16384, /* some samples have no label */
    RC_REST = 32768,
    RC_MOVE = 65536,     /* nudged samples stop by their move */
    RC_HOPFIELD = 131072 /* f is d */
};

/* Inputs of the test in the order of the node's; what a case has not is left out. */
enum { RC_INPUTS = TN_RELAX_WEIGHTS + 2 }; /* the last one is the count */

static inline bool rc_has(const tn_case *c, int input)
{
    const bool bias =
        input == TN_RELAX_B1 || input == TN_RELAX_B2 || (input >= TN_RELAX_GAIN2 && input <= TN_RELAX_BIAS);
    if ((c->flags & RC_HOPFIELD) && input == TN_RELAX_B1) return false;
    if ((c->flags & (RC_ENERGY | RC_HOPFIELD)) && input >= TN_RELAX_W2 && input <= TN_RELAX_BIAS) return false;
    if ((c->flags & RC_BARE) && (bias || input == TN_RELAX_HEAD_B)) return false;
    if (input == TN_RELAX_SCALE) return c->flags & RC_ENERGY;
    if (input == TN_RELAX_H0) return c->flags & RC_H0;
    if (input == TN_RELAX_WEIGHTS) return (c->flags & RC_EP) && (c->flags & RC_WEIGHTS);
    if (input >= TN_RELAX_HEAD_W && input <= TN_RELAX_LABELS) return c->flags & RC_EP;
    if (input == RC_INPUTS - 1) return c->dim[RC_COUNT] > 0;
    return true;
}

static inline tn_loop_grad rc_grad(const tn_case *c)
{
    return c->flags & RC_IMPLICIT   ? TN_LOOP_IMPLICIT
           : c->flags & RC_ONE_STEP ? TN_LOOP_ONE_STEP
           : c->flags & RC_EP       ? TN_LOOP_EP
                                    : TN_LOOP_BPTT;
}

static inline tn_dims rc_dims(const tn_case *c, int input)
{
    const int64_t B = c->dim[RC_B], d = c->dim[RC_D], f = c->dim[RC_F], C = c->dim[RC_C];
    switch (input) {
    case TN_RELAX_A:
    case TN_RELAX_H0: return tn_shape(B, d);
    case TN_RELAX_W1: return tn_shape(f, d);
    case TN_RELAX_B1: return tn_shape(f);
    case TN_RELAX_W2: return tn_shape(d, f);
    case TN_RELAX_HEAD_W: return tn_shape(C, d);
    case TN_RELAX_HEAD_B: return tn_shape(C);
    case TN_RELAX_LABELS:
    case TN_RELAX_WEIGHTS: return tn_shape(B);
    case TN_RELAX_SCALE:
    case RC_INPUTS - 1: return tn_shape(1);
    default: return tn_shape(d);
    }
}

/* Weights as a network has them before training; the energy's contract by 0.8 or so. */
static inline tn_fill_spec rc_fill(const tn_case *c, int input)
{
    const double d = (double)c->dim[RC_D], f = (double)c->dim[RC_F];
    const tn_fill_spec uniform = { .kind = TN_FILL_UNIFORM };
    tn_fill_spec s = uniform;
    double bound = 1 / sqrt(d);
    if (input == TN_RELAX_A) return (tn_fill_spec){ 0 };
    if (input == TN_RELAX_LABELS) return (tn_fill_spec){ .kind = TN_FILL_INT, .lo = 0, .hi = (double)c->dim[RC_C] };
    if (input == RC_INPUTS - 1)
        return (
            tn_fill_spec){ .kind = TN_FILL_INT, .lo = (double)c->dim[RC_COUNT], .hi = (double)c->dim[RC_COUNT] + 0.5 };
    if (input == TN_RELAX_SCALE)
        return (tn_fill_spec){ .kind = TN_FILL_CONSTANT, .lo = 2.4 * d / pow(sqrt(d) + sqrt(f), 2), .constant = true };
    if ((c->flags & RC_HOPFIELD) && input == TN_RELAX_W1) bound = 0.8 / sqrt(d);
    if (input == TN_RELAX_W2) bound = 1 / sqrt(f);
    if (input == TN_RELAX_HEAD_W) bound = 1;
    s.lo = -bound, s.hi = bound;
    if (input == TN_RELAX_GAIN || input == TN_RELAX_GAIN2) s.lo = 0.5, s.hi = 1.5;
    if (input == TN_RELAX_WEIGHTS) s.lo = -0.5, s.hi = 2;
    s.constant = input >= TN_RELAX_SCALE;
    return s;
}

typedef struct rc_numbers {
    float rtol, tol, damping, beta, move;
} rc_numbers;

static inline rc_numbers rc_scalars(const tn_case *c)
{
    const float limit = c->flags & RC_FIXED ? 0 : c->flags & RC_TIGHT ? 2e-6f : 1e-2f;
    return (rc_numbers){
        .rtol = limit, .tol = limit, .damping = 0.9f, .beta = 0.25f, .move = c->flags & RC_MOVE ? 0.05f : 0
    };
}

typedef struct rc_outputs {
    tn_ref h, free_steps, nudged_steps, adjoint_steps, residuals, signal;
} rc_outputs;

/* The node; in[i] are its inputs, TN_NONE where the case has none. */
static inline rc_outputs rc_node(tn_graph *g, const tn_case *c, const tn_ref *in)
{
    const rc_numbers s = rc_scalars(c);
    const bool tol = c->flags & RC_TOL;
    const tn_ref limit = tn_scalar(g, "limit", tol ? s.tol : s.rtol);
    rc_outputs o;
    o.h = tn_relax(g, in[TN_RELAX_A],
                   .kind = c->flags & RC_ENERGY     ? TN_RELAX_ENERGY
                           : c->flags & RC_HOPFIELD ? TN_RELAX_HOPFIELD
                                                    : TN_RELAX_BLOCK,
                   .w1 = in[TN_RELAX_W1], .b1 = in[TN_RELAX_B1], .w2 = in[TN_RELAX_W2], .b2 = in[TN_RELAX_B2],
                   .norm2_gain = in[TN_RELAX_GAIN2], .norm2_bias = in[TN_RELAX_BIAS2], .norm_gain = in[TN_RELAX_GAIN],
                   .norm_bias = in[TN_RELAX_BIAS], .scale = in[TN_RELAX_SCALE], .h0 = in[TN_RELAX_H0],
                   .head_w = in[TN_RELAX_HEAD_W], .head_b = in[TN_RELAX_HEAD_B], .labels = in[TN_RELAX_LABELS],
                   .weights = in[TN_RELAX_WEIGHTS], .steps = c->dim[RC_T], .grad = rc_grad(c),
                   .rtol = tol ? TN_NONE : limit, .tol = tol ? limit : TN_NONE,
                   .damping = tn_scalar(g, "damping", s.damping), .beta = tn_scalar(g, "beta", s.beta),
                   .move = s.move > 0 ? tn_scalar(g, "move", s.move) : TN_NONE, .at_rest = c->flags & RC_REST,
                   .count = in[RC_INPUTS - 1], .centred = c->flags & RC_CENTRED, .mean = c->flags & RC_MEAN,
                   .proxy = c->flags & RC_PROXY, .weight = 0.5f,
                   .solver = c->flags & RC_ANDERSON ? TN_SOLVE_ANDERSON : TN_SOLVE_PICARD, .memory = 3,
                   .free_steps = &o.free_steps, .nudged_steps = &o.nudged_steps, .adjoint_steps = &o.adjoint_steps,
                   .residuals = &o.residuals, .signal = &o.signal);
    return o;
}

/* The inputs of a case as inputs "in0", "in1", ... of a graph; `trained`: with their gradients, where they have any. */
static inline void rc_inputs(tn_graph *g, const tn_case *c, bool trained, tn_ref *in)
{
    for (int i = 0; i < RC_INPUTS; i++) {
        char name[16];
        const tn_fill_spec s = rc_fill(c, i);
        snprintf(name, sizeof name, "in%d", i);
        in[i] = rc_has(c, i) ? tn_input(g, name, rc_dims(c, i), s.kind == TN_FILL_INT ? TN_I32 : TN_F32) : TN_NONE;
        if (in[i].id && trained && s.kind != TN_FILL_INT && !s.constant) tn_want_gradient(g, in[i]);
    }
}

/* The oracle's net; in[i] are doubles by the node's inputs, NULL where the case has none. */
static inline ro_net rc_net(const tn_case *c, const double *const *in)
{
    const rc_numbers s = rc_scalars(c);
    ro_net m = { .energy = c->flags & RC_ENERGY,
                 .hopfield = c->flags & RC_HOPFIELD,
                 .B = c->dim[RC_B],
                 .count = c->dim[RC_COUNT] ? c->dim[RC_COUNT] : c->dim[RC_B],
                 .d = c->dim[RC_D],
                 .f = c->dim[RC_F],
                 .C = c->dim[RC_C],
                 .h0 = in[TN_RELAX_H0],
                 .head_w = in[TN_RELAX_HEAD_W],
                 .head_b = in[TN_RELAX_HEAD_B],
                 .labels = in[TN_RELAX_LABELS],
                 .weights = in[TN_RELAX_WEIGHTS],
                 .scale = in[TN_RELAX_SCALE] ? in[TN_RELAX_SCALE][0] : 0,
                 .damping = (double)s.damping,
                 .rtol = (double)s.rtol,
                 .tol = (double)s.tol,
                 .beta = (double)s.beta,
                 .weight = 0.5,
                 .at_rest = c->flags & RC_REST,
                 .move = (double)s.move,
                 .absolute = c->flags & RC_TOL,
                 .centred = c->flags & RC_CENTRED,
                 .mean = c->flags & RC_MEAN,
                 .proxy = c->flags & RC_PROXY,
                 .steps = c->dim[RC_T],
                 .memory = c->flags & RC_ANDERSON ? 3 : 0,
                 .grad = rc_grad(c) };
    assert_true(m.d <= RO_D && m.f <= RO_F && m.C <= RO_C && m.steps <= RO_T);
    for (int i = 0; i < RO_PARAMS; i++) m.p[i] = in[i];
    return m;
}

/* Some samples without a label, where the case says so. */
static inline void rc_unlabel(const tn_case *c, double *labels, int64_t n)
{
    for (int64_t i = 0; (c->flags & RC_UNLABELLED) && i < n; i++)
        if (i % 3 == 1) labels[i] = -1;
}

#endif
