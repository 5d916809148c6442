/* O layer: a matrix of state per head, with decay and writing that depend on the token. */
#include "models/ten/ten.h"

#include <math.h>

/* Of every token and head, (B,T,H) each. */
typedef struct strengths {
    tn_ref alpha; /* logarithm of the decay */
    tn_ref write; /* factor on what is written */
} strengths;

static bool has_strength(const ten_config *c) { return c->write != TEN_WRITE_DECAY; }

/* forget=token: alpha = -softplus(a), [a;b] = w_ab u + b_ab; fixed: one number per head. Rows that are not asked for are not there. */
static strengths decide(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t H = c->heads, decays = c->forget_fixed ? 0 : H, rows = decays + (has_strength(c) ? H : 0);
    const tn_ref ab = rows ? tn_linear(g, u, tn_param(g, "w_ab", tn_shape(rows, c->dim), tn_normal(0.02f)),
                                       .bias = tn_param(g, "b_ab", tn_shape(rows), ten_init_decay(decays)))
                           : TN_NONE;
    strengths s = { TN_NONE, TN_NONE };
    if (decays) s.alpha = tn_neg(g, tn_softplus(g, tn_slice(g, ab, -1, 0, H)));
    else {
        const tn_ref a = tn_neg(g, tn_softplus(g, tn_param(g, "decay", tn_shape(H), ten_init_decay(H))));
        s.alpha = tn_add(g, tn_fill(g, tn_shape(b->batch, b->length, H), TN_F32, 0), a);
    }
    if (has_strength(c)) s.write = tn_sigmoid(g, tn_slice(g, ab, -1, decays, H));
    else s.write = tn_neg(g, tn_expm1(g, s.alpha));
    if (c->write == TEN_WRITE_NORMED) {
        const tn_ref left = tn_clamp_min(g, tn_neg(g, tn_expm1(g, tn_scale(g, s.alpha, 2))), 1e-6f);
        s.write = tn_mul(g, s.write, tn_sqrt(g, left));
    }
    return s;
}

/* Queries or keys: x (B,T,H,N) to unit length but for a factor sqrt(N) (which the readout takes out) where asked, and turned. */
static tn_ref prepared(ten_net *n, tn_ref x, tn_ref turns, const tn_batch *b)
{
    const float eps = 1e-6f / (float)n->c->head_dim;
    return ten_turn(n, n->c->qk_norm ? tn_rmsnorm(n->g, x, TN_NONE, .eps = eps) : x, turns, b);
}

/* The recurrence, without the root of N: qkv (B,T,3H,N) -> (B,T,H,N). */
static tn_ref recur(ten_net *n, tn_ref u, tn_ref qkv, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads, N = n->c->head_dim;
    const tn_ref state = tn_carry_state(g, b, "state", tn_shape(b->batch, H, N, N)), turns = ten_turns(n, u, b);
    tn_ref after = TN_NONE;
    const tn_ref q = prepared(n, tn_slice(g, qkv, 2, 0, H), turns, b);
    const tn_ref k = prepared(n, tn_slice(g, qkv, 2, H, H), turns, b), v = tn_slice(g, qkv, 2, 2 * H, H);
    const strengths s = decide(n, u, b);
    const tn_ref write = tn_reshape(g, s.write, tn_shape(b->batch, b->length, H, 1));
    const tn_ref o = tn_outer(g, q, k, tn_mul(g, v, write), s.alpha, .reset = b->reset, .chunk = n->c->chunk,
                              .state = state, .final = b->carry ? &after : NULL);
    tn_carry_keep(g, b, state, after);
    return o;
}

static tn_ref per_state(ten_net *n, const char *name)
{
    const tn_ref w = tn_param(n->g, name, tn_shape(n->c->heads, n->c->head_dim), tn_ones, .no_decay = true);
    return tn_reshape(n->g, w, tn_shape(n->c->heads * n->c->head_dim));
}

/* Per head h, with q, k, v = silu(conv(.)) and write strength beta:
 *     S_t = e^{alpha_t} S_{t-1} + k_t (beta_t v_t)^T,  o_t = S_t^T q_t / sqrt(N),  y = o + skip v
 *     out = w_out(norm(y) silu(z)) */
tn_ref ten_o_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t d = c->dim, H = c->heads, N = c->head_dim, B = b->batch, T = b->length, HN = H * N;
    const int64_t parts = c->gate == TEN_GATE_SILU ? 4 : 3;
    const tn_ref xz = tn_linear(g, u, tn_param(g, "w_in", tn_shape(parts * HN, d), tn_normal(0.02f)));
    const tn_ref conv = tn_block_conv(g, tn_slice(g, xz, -1, 0, 3 * HN), c->conv, b);
    const tn_ref qkv = c->conv_silu ? tn_silu(g, conv) : conv;
    const tn_ref o = recur(n, u, tn_reshape(g, qkv, tn_shape(B, T, 3 * H, N)), b);
    const float root = sqrtf((float)N);
    return ten_read_out(n, u, &(ten_read){ .c = tn_reshape(g, o, tn_shape(B, T, HN)),
                                           .x = tn_slice(g, qkv, -1, 2 * HN, HN),
                                           .z = tn_slice(g, xz, -1, (parts - 1) * HN, HN),
                                           .skip = c->skip ? per_state(n, "skip") : TN_NONE,
                                           .gain = per_state(n, "gain"),
                                           .scale = c->qk_norm ? 1.f / (float)N : 1.f / root,
                                           .group = N });
}
