/* relax made of plain ops: tn_loop with the map as its body and the cross-entropy of the head as its cost; and the table of maps. */
#include "ops/binary/binary.h"
#include "ops/cuda_kernels.h"
#include "ops/fill/fill.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "ops/relax/relax_cpu.h"
#include "ops/unary/unary.h"
#include "ops/xent/xent.h"

tn_status tn_relax_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

enum { MAP_CONSTS = TN_RELAX_SCALE + 1, COST_CONSTS = 4 }; /* as the node's inputs from a and from head_w on */
enum { HEAD_W, HEAD_B, LABELS, WEIGHTS };

static void block(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_ref *c = io->consts;
    tn_ref u;
    (void)user;
    const tn_ref x =
        tn_layernorm(g, io->state[0], c[TN_RELAX_GAIN2], c[TN_RELAX_BIAS2], .residual = c[TN_RELAX_A], .sum = &u);
    const tn_ref z = tn_linear(g, x, c[TN_RELAX_W1], .bias = c[TN_RELAX_B1], .act = TN_ACT_GELU_ERF);
    const tn_ref y = tn_linear(g, z, c[TN_RELAX_W2], .bias = c[TN_RELAX_B2], .residual = u);
    io->next[0] = tn_layernorm(g, y, c[TN_RELAX_GAIN], c[TN_RELAX_BIAS]);
}

static void energy(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_ref *c = io->consts;
    (void)user;
    const tn_ref t = tn_linear(g, io->state[0], c[TN_RELAX_W1], .bias = c[TN_RELAX_B1], .act = TN_ACT_TANH);
    const tn_ref y = tn_linear(g, t, tn_transpose(g, c[TN_RELAX_W1], 1, 0));
    io->next[0] = tn_add(g, tn_mul(g, y, c[TN_RELAX_SCALE]), c[TN_RELAX_A]);
}

static tn_ref drive(tn_graph *g, const tn_body_io *io)
{
    return tn_linear(g, tn_tanh(g, io->state[0]), io->consts[TN_RELAX_W1], .residual = io->consts[TN_RELAX_A]);
}

void tn_relax_hopfield(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = drive(g, io);
}

/* xs: what the map made, and the state. */
static void times_slope(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)n, (void)user;
    dx[0] = tn_mul(g, dy, tn_affine(g, tn_square(g, tn_tanh(g, xs[1])), -1.f, 1.f));
}

void tn_relax_hopfield_ep(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    const tn_ref xs[] = { drive(g, io), io->state[0] };
    io->next[0] = tn_custom_gradient(g, xs[0], xs, 2, times_slope, NULL);
}

static void pass(tn_graph *g, tn_ref dy, const tn_ref *xs, int n, tn_ref *dx, void *user)
{
    (void)g, (void)xs, (void)n, (void)user;
    dx[0] = dy;
}

tn_ref tn_relax_hopfield_read(tn_graph *g, tn_ref v, bool nudges)
{
    const tn_ref h = tn_tanh(g, v);
    return nudges ? tn_custom_gradient(g, h, &v, 1, pass, NULL) : h;
}

/* user: the attributes */
static void cost(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_relax_attr *a = user;
    const tn_ref *c = io->consts;
    tn_ref h = io->state[0];
    if (a->kind == TN_RELAX_HOPFIELD) h = tn_relax_hopfield_read(g, h, true);
    io->ys[0] =
        tn_xent(g, tn_linear(g, h, c[HEAD_W], .bias = c[HEAD_B]), c[LABELS], .weights = c[WEIGHTS], .sum = true);
}

/* Where an output that this gradient's backward kernel would write goes, unless nobody asked for it. */
static tn_ref *asked(const tn_relax_attr *a, tn_loop_grad writes, int i, tn_ref *out)
{
    return a->grad != writes || (a->counted >> i & 1) ? &out[i] : NULL;
}

#define ON_CPU(name) tn_relax_apply_##name, tn_relax_enter_##name, tn_relax_pull_##name

const tn_relax_map tn_relax_maps[] = {
    [TN_RELAX_BLOCK] = { block, block, ON_CPU(block), tn_relax_phase_cuda },
    [TN_RELAX_ENERGY] = { energy, energy, ON_CPU(energy), tn_relax_phase_cuda },
    [TN_RELAX_HOPFIELD] = { tn_relax_hopfield, tn_relax_hopfield_ep, ON_CPU(hopfield), NULL },
};

tn_status tn_relax_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_relax_attr *a = attr;
    const tn_relax_map *m = &tn_relax_maps[a->kind];
    const tn_body head = { cost, (void *)(uintptr_t)a };
    const tn_body map = { a->grad == TN_LOOP_EP ? m->ep_body : m->body, NULL };
    const bool fused = tn_graph_get_options(g)->device == TN_CUDA && tn_graph_switch(g, "opt.relax");
    const tn_ref h0 = in[TN_RELAX_H0].id ? in[TN_RELAX_H0] : tn_fill(g, tn_ref_dims(g, in[TN_RELAX_A]), TN_F32, 0.f);
    (void)n_in;
    out[TN_RELAX_H] =
        tn_loop(g, map, .state = &h0, .n_state = 1, .consts = in, .n_consts = MAP_CONSTS,
                .sample_consts = 1u << TN_RELAX_A, .cost = &head, .cost_consts = in + TN_RELAX_HEAD_W,
                .n_cost_consts = COST_CONSTS,
                .sample_cost_consts = 1u << LABELS | (in[TN_RELAX_WEIGHTS].id ? 1u << WEIGHTS : 0), .steps = a->steps,
                .grad = a->grad, .rtol = in[TN_RELAX_RTOL], .tol = in[TN_RELAX_TOL], .damping = in[TN_RELAX_DAMPING],
                .beta = in[TN_RELAX_BETA], .count = in[TN_RELAX_COUNT], .centred = a->centred, .mean = a->mean,
                .proxy = a->proxy, .at_rest = a->at_rest, .move = in[TN_RELAX_MOVE], .weight = a->weight,
                .solver = a->solver, .memory = a->memory, .free_steps = &out[TN_RELAX_FREE_STEPS],
                .residuals = &out[TN_RELAX_RESIDUALS], .nudged_steps = asked(a, TN_LOOP_EP, TN_RELAX_NUDGED_STEPS, out),
                .adjoint_steps = asked(a, TN_LOOP_IMPLICIT, TN_RELAX_ADJOINT_STEPS, out),
                .signal = asked(a, TN_LOOP_EP, TN_RELAX_SIGNAL, out), .fused = fused ? m->phase : NULL);
    return tn_graph_status(g);
}
