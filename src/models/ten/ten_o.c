/* O layer: a matrix of state per head, with decay that depends on the token. */
#include "models/ten/ten.h"

#include <math.h>

static tn_ref turned(ten_net *n, tn_ref x, const tn_batch *b)
{
    return n->c->rotate ? tn_rope(n->g, x, .position = b->position) : x;
}

/* Decay and recurrence, without the root of N: qkv (B,T,3H,N), ab (B,T,2H) -> (B,T,H,N). */
static tn_ref recur(ten_net *n, tn_ref qkv, tn_ref ab, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads, N = n->c->head_dim;
    const tn_ref state = tn_carry_state(g, b, "state", tn_shape(b->batch, H, N, N));
    const bool looks = ten_looks(n, b);
    tn_ref after = TN_NONE;
    const tn_ref q = turned(n, tn_slice(g, qkv, 2, 0, H), b);
    const tn_ref k = turned(n, tn_slice(g, qkv, 2, H, H), b), v = tn_slice(g, qkv, 2, 2 * H, H);
    const tn_ref alpha = tn_neg(g, tn_softplus(g, tn_part(g, ab, 0, 2)));
    const tn_ref beta = tn_reshape(g, tn_sigmoid(g, tn_part(g, ab, 1, 2)), tn_shape(b->batch, b->length, H, 1));
    const tn_ref o = tn_outer(g, q, k, tn_mul(g, v, beta), alpha, .reset = b->reset, .chunk = n->c->chunk,
                              .state = state, .final = b->carry || looks ? &after : NULL);
    tn_carry_keep(g, b, state, after);
    /* a second alpha, so that the first has one reader and can be made inside the recurrence */
    if (looks) ten_look(n, 'O', ten_look_mean(g, tn_neg(g, tn_softplus(g, tn_part(g, ab, 0, 2)))), after);
    return o;
}

static tn_ref per_state(ten_net *n, const char *name)
{
    const tn_ref w = tn_param(n->g, name, tn_shape(n->c->heads, n->c->head_dim), tn_ones, .no_decay = true);
    return tn_reshape(n->g, w, tn_shape(n->c->heads * n->c->head_dim));
}

/* Per head h, with q, k, v = silu(conv4(.)) and write strength beta:
 *     S_t = e^{alpha_t} S_{t-1} + k_t (beta_t v_t)^T,  o_t = S_t^T q_t / sqrt(N),  y = o + skip v
 *     out = w_out(norm(y) silu(z)) */
tn_ref ten_o_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim, H = n->c->heads, N = n->c->head_dim, B = b->batch, T = b->length, HN = H * N;
    const tn_ref tail = tn_carry_state(g, b, "conv_state", tn_shape(B, 3, 3 * HN));
    tn_ref tail_after = TN_NONE;
    const tn_ref xz = tn_linear(g, u, tn_param(g, "w_in", tn_shape(4 * HN, d), tn_normal(0.02f)));
    const tn_ref conv =
        tn_conv_causal(g, tn_slice(g, xz, -1, 0, 3 * HN),
                       tn_param(g, "conv", tn_shape(4, 3 * HN), tn_uniform(-0.5f, 0.5f), .no_decay = true),
                       .reset = b->reset, .state = tail, .final = b->carry ? &tail_after : NULL);
    tn_carry_keep(g, b, tail, tail_after);
    const tn_ref qkv = tn_silu(g, conv);
    const tn_ref ab = tn_linear(g, u, tn_param(g, "w_ab", tn_shape(2 * H, d), tn_normal(0.02f)),
                                .bias = tn_param(g, "b_ab", tn_shape(2 * H), ten_init_decay()));
    const tn_ref o = recur(n, tn_reshape(g, qkv, tn_shape(B, T, 3 * H, N)), ab, b), skip = per_state(n, "skip");
    const tn_ref y = tn_readout(g, tn_reshape(g, o, tn_shape(B, T, HN)), tn_slice(g, xz, -1, 3 * HN, HN),
                                .x = tn_slice(g, qkv, -1, 2 * HN, HN), .skip = skip, .gain = per_state(n, "gain"),
                                .scale = 1.f / sqrtf((float)N), .group = N);
    return tn_linear(g, y, tn_param(g, "w_out", tn_shape(d, HN), tn_normal(n->c->out_std)));
}
