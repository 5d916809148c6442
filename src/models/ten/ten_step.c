/* The recurrence of an E layer as a loop of elementwise ops, the plain twin of the fused complex step (opt.fused_step=off, in a training
 * step): what the op scan does in four multiply-adds per state is eight ops with temporaries, for each token. */
#include "models/ten/ten.h"

enum { RE, IM, KEEP, SEQUENCES };

static void step(tn_graph *g, tn_body_io *io, void *user)
{
    const bool documents = *(const bool *)user;
    const tn_ref a = io->consts[RE], w = io->consts[IM]; /* (K), lambda = a + i w */
    const tn_ref re = documents ? tn_mul(g, io->state[RE], io->xs[KEEP]) : io->state[RE];
    const tn_ref im = documents ? tn_mul(g, io->state[IM], io->xs[KEEP]) : io->state[IM];
    io->next[RE] = tn_add(g, tn_sub(g, tn_mul(g, re, a), tn_mul(g, im, w)), io->xs[RE]);
    io->next[IM] = tn_add(g, tn_add(g, tn_mul(g, re, w), tn_mul(g, im, a)), io->xs[IM]);
    io->ys[RE] = io->next[RE];
    io->ys[IM] = io->next[IM];
}

tn_ref ten_keeping(ten_net *n, const tn_batch *b)
{
    tn_graph *g = n->g;
    const tn_ref rows[] = { tn_fill(g, tn_shape(1, 1), TN_F32, 1), tn_fill(g, tn_shape(1, 1), TN_F32, 0) };
    return tn_in(b, "reset").id ? tn_embed(g, tn_in(b, "reset"), tn_concat(g, rows, 2, 0)) : TN_NONE;
}

bool ten_steps_apart(const ten_net *n, tn_ref rho, const tn_batch *b)
{
    const tn_graph *g = n->g;
    return tn_graph_status(g) == TN_OK && tn_graph_get_options(g)->training && !tn_graph_switch(g, "opt.fused_step") &&
           !b->cached && !n->c->tbptt && tn_ref_dims(g, rho).rank == 1;
}

tn_ref ten_steps(ten_net *n, tn_ref x, tn_ref rho, tn_ref omega, tn_ref gamma, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t K = tn_ref_dim(g, rho, 0);
    const tn_ref keep = ten_keeping(n, b), zero = tn_fill(g, tn_shape(b->batch, K), TN_F32, 0);
    const tn_ref lambda[] = { tn_mul(g, rho, tn_cos(g, omega)), tn_mul(g, rho, tn_sin(g, omega)) };
    const tn_ref state[] = { zero, zero };
    tn_ref xs[SEQUENCES], ys[2];
    for (int i = 0; i < 2; i++) {
        const tn_ref part = tn_part(g, x, i, 2);
        xs[i] = tn_transpose(g, gamma.id ? tn_mul(g, part, gamma) : part, 1, 0, 2);
    }
    xs[KEEP] = keep.id ? tn_transpose(g, keep, 1, 0, 2) : TN_NONE;
    bool documents = keep.id;
    tn_loop(g, ((tn_body){ step, &documents }), .steps = b->length, .state = state, .n_state = 2, .xs = xs,
            .n_xs = keep.id ? 3 : 2, .consts = lambda, .n_consts = 2, .ys = ys, .n_ys = 2);
    return tn_transpose(g, tn_concat(g, ys, 2, -1), 1, 0, 2);
}
