/* The toroidal map: a recurrence that also sees its own past through a ring buffer.
 *
 *     s(t+1) = (1-alpha) s(t) + alpha tanh(a + Wh s(t) + g sum_{k=1..K} fade^k s(t-k)),   a = We x + be
 *
 * The state of the solve is [s(t), s(t-1), .., s(t-K)] (B, (K+1) d): at its fixed point all of them are equal, but on the way, and
 * in a nudged phase, the past acts. It contracts where |Wh| + |g| sum fade^k < 1: Wh and g are scaled down together, outside
 * the solve and without a gradient (through_sigma: with it), as far as `radius` asks. */
#include "models/tep/tep.h"

/* Constants: a (B,d), Wh (d,d), g (1). */
static void recur(tn_graph *g, tn_body_io *io, void *user)
{
    const tep_config *c = user;
    const tn_ref s = tn_slice(g, io->state[0], -1, 0, c->dim);
    tn_ref drive = tn_linear(g, s, io->consts[1], .residual = io->consts[0]), past = TN_NONE;
    for (int64_t k = c->buffer; k >= 1; k--) { /* fade (s1 + fade (s2 + ...)) */
        const tn_ref sk = tn_slice(g, io->state[0], -1, k * c->dim, c->dim);
        past = tn_scale(g, past.id ? tn_add(g, sk, past) : sk, c->fade);
    }
    if (past.id) drive = tn_add(g, drive, tn_mul(g, past, io->consts[2]));
    const tn_ref next = tn_add(g, tn_scale(g, s, 1 - c->alpha), tn_scale(g, tn_tanh(g, drive), c->alpha));
    const tn_ref parts[] = { next, tn_slice(g, io->state[0], -1, 0, c->buffer ? c->buffer * c->dim : c->dim) };
    io->next[0] = c->buffer ? tn_concat(g, parts, 2, -1) : next;
}

tep_map tep_toroidal(tep_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    float reach = 0; /* of the buffer: fade + fade^2 + ... */
    for (int64_t k = 0; k < c->buffer; k++) reach = c->fade * (1 + reach);
    tep_map m = { .build = recur, .state = tn_shape(n->b->batch, (c->buffer + 1) * c->dim) };
    tep_map_add_sample(&m, tep_embed(n, x));
    tn_region r = tn_region_begin(g, "torus");
    const tn_ref wh = tn_param(g, "wh", tn_shape(c->dim, c->dim), tn_block_orthogonal(0.9f, c->dim));
    const tn_ref gain = tn_param(g, "buffer", tn_shape(1), tn_constant(c->buffer ? 0.1f : 0.f));
    const tn_ref seen = c->through_sigma ? gain : tn_stop_gradient(g, gain);
    const tn_ref slope = tn_add(g, tep_sigma(n, wh, "direction"), tn_scale(g, tn_abs(g, seen), reach));
    const tn_ref factor =
        tn_minimum(g, tn_scale(g, tn_reciprocal(g, slope), c->radius), tn_fill(g, tn_shape(1), TN_F32, 1.f));
    tep_map_add(&m, tn_mul(g, wh, factor));
    tep_map_add(&m, tn_mul(g, gain, factor));
    tn_region_end(g, r);
    return m;
}
