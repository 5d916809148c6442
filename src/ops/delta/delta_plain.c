/* The plain twin of delta (opt.delta_chunked=off, and devices without its kernels): the recurrence as it is written, a loop of
 * plain ops, token by token. Exact on every device, and slow; S of every token is kept for the backward pass. A document's start
 * multiplies by 0: unlike in the kernels, NaN and Inf before it reach what comes after it. */
#include "ops/delta/delta.h"

#include <tenon/ops.h>

tn_status tn_delta_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out);

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

/* e^{alpha}, and 0 where a document starts. */
static tn_ref keeping(tn_graph *g, tn_ref alpha, tn_ref reset)
{
    const tn_ref decay = tn_exp(g, alpha);
    if (!reset.id) return decay;
    const tn_ref rows[] = { tn_fill(g, tn_shape(1, 1), TN_F32, 1), tn_fill(g, tn_shape(1, 1), TN_F32, 0) };
    const tn_ref keep = tn_embed(g, reset, tn_concat(g, rows, 2, 0)); /* (B,T,1) */
    const tn_dims d = tn_ref_dims(g, alpha);
    return tn_mul(g, decay, d.rank == 4 ? tn_reshape(g, keep, tn_shape(d.dim[0], d.dim[1], 1, 1)) : keep);
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

tn_status tn_delta_plain(tn_graph *g, const void *attr, const tn_ref *in, int n_in, tn_ref *out)
{
    const tn_dims q = tn_ref_dims(g, in[TN_DELTA_Q]), alpha = tn_ref_dims(g, in[TN_DELTA_ALPHA]);
    const int64_t N = q.dim[3], P = tn_ref_dim(g, in[TN_DELTA_V], 3);
    const tn_ref given = in[TN_DELTA_STATE];
    const tn_ref start = given.id ? given : tn_fill(g, tn_shape(q.dim[0], q.dim[2], N, P), TN_F32, 0);
    const tn_ref keep = keeping(g, in[TN_DELTA_ALPHA], in[TN_DELTA_RESET]);
    const tn_ref xs[SEQUENCES] = { [Q] = by_time(g, in[TN_DELTA_Q], N, 1),
                                   [K] = by_time(g, in[TN_DELTA_K], N, 1),
                                   [V] = by_time(g, in[TN_DELTA_V], 0, P),
                                   [KEEP] = by_time(g, keep, alpha.rank == 4 ? N : 1, 1),
                                   [BETA] = by_time(g, in[TN_DELTA_BETA], 0, 1) };
    tn_ref o = TN_NONE;
    (void)attr, (void)n_in;
    out[1] = tn_loop(g, (tn_body){ .build = cell }, .steps = q.dim[1], .state = &start, .n_state = 1, .xs = xs,
                     .n_xs = SEQUENCES, .ys = &o, .n_ys = 1);
    out[0] = tn_transpose(g, o, 1, 0, 2, 3);
    return tn_graph_status(g);
}
