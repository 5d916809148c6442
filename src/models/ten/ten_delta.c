/* The delta rule of an O layer (write=delta): writes the difference between v and what the state holds at that key.
 *     w_t = beta_t (v_t - e^{alpha_t} S_{t-1}^T k_t),   S_t = e^{alpha_t} S_{t-1} + k_t w_t^T,   o_t = S_t^T q_t
 * Keys have length 1, or S would grow. A loop of plain ops, token by token: exact on every device, and slow. S of every
 * token is kept for the backward pass. */
#include "models/ten/ten.h"

enum { Q, K, V, KEEP, BETA, SEQUENCES };

static void cell(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_ref kept = tn_mul(g, io->state[0], io->xs[KEEP]); /* (B,H,N,P) */
    const tn_ref said = tn_sum(g, tn_mul(g, kept, io->xs[K]), 2);
    const tn_ref missing = tn_mul(g, tn_sub(g, io->xs[V], said), io->xs[BETA]); /* (B,H,P) */
    const tn_dims d = tn_ref_dims(g, missing);
    const tn_ref row = tn_reshape(g, missing, tn_shape(d.dim[0], d.dim[1], 1, d.dim[2]));
    (void)user;
    io->next[0] = tn_add(g, kept, tn_mul(g, io->xs[K], row));
    io->ys[0] = tn_sum(g, tn_mul(g, io->next[0], io->xs[Q]), 2);
}

/* e^{alpha}, and 0 where a document starts: (B,T,H). */
static tn_ref keeping(ten_net *n, tn_ref alpha, const tn_batch *b)
{
    tn_graph *g = n->g;
    const tn_ref decay = tn_exp(g, alpha);
    const tn_ref keep = ten_keeping(n, b);
    return keep.id ? tn_mul(g, decay, keep) : decay;
}

/* (B,T,H,...) with time first, and in a shape that meets (B,H,N,P). */
static tn_ref by_time(tn_graph *g, tn_ref x, int64_t rows, int64_t columns)
{
    const tn_dims d = tn_ref_dims(g, x);
    const tn_ref first = d.rank == 4 ? tn_transpose(g, x, 1, 0, 2, 3) : tn_transpose(g, x, 1, 0, 2);
    return tn_reshape(g, first,
                      rows ? tn_shape(d.dim[1], d.dim[0], d.dim[2], rows, columns)
                           : tn_shape(d.dim[1], d.dim[0], d.dim[2], columns));
}

tn_ref ten_delta(ten_net *n, const ten_written *x, const tn_batch *b, tn_ref *after)
{
    tn_graph *g = n->g;
    const int64_t N = n->c->head_dim;
    const tn_ref start = x->state.id ? x->state : tn_fill(g, tn_shape(b->batch, n->c->heads, N, N), TN_F32, 0);
    const tn_ref xs[SEQUENCES] = { [Q] = by_time(g, x->q, N, 1),
                                   [K] = by_time(g, x->k, N, 1),
                                   [V] = by_time(g, x->v, 0, N),
                                   [KEEP] = by_time(g, keeping(n, x->alpha, b), 1, 1),
                                   [BETA] = by_time(g, x->write, 0, 1) };
    tn_ref o = TN_NONE;
    const tn_ref last = tn_loop(g, (tn_body){ .build = cell }, .steps = b->length, .state = &start, .n_state = 1,
                                .xs = xs, .n_xs = SEQUENCES, .ys = &o, .n_ys = 1);
    if (after) *after = last;
    return tn_transpose(g, o, 1, 0, 2, 3);
}
