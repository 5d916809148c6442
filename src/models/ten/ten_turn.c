/* Rotation of an O layer's keys and queries: S is then read as if its rows turned, lambda = e^{alpha + i omega}.
 *     true       fixed speeds by position (rope.h)
 *     learned    pair j of head h turns by e^{eta_hj} a token
 *     token      ... by 2 sigmoid(w_turn u + b_turn)_h e^{eta_hj}, so that a token says how far
 * Learned angles are never formed: their cosines and sines are a recurrence of modulus 1, p_t = e^{i omega_t} p_{t-1}, whose speeds
 * are given per token, since only then lambda is not rounded (scan.h) and |p| stays 1 over long sequences. Only differences of angles
 * meet, so documents need no marks, and where p starts is nothing. */
#include "models/ten/ten.h"

/* Pairs of a head that turn. */
static int64_t pairs_of(const ten_config *c) { return c->head_dim / (c->rotate_half ? 4 : 2); }

/* Radians of each token, over all heads: (R,T,K). */
static tn_ref speeds(ten_net *n, tn_ref u, const tn_batch *b, int64_t R)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t H = c->heads, pairs = pairs_of(c), T = b->length;
    const tn_ref eta = tn_param(g, "eta", tn_shape(H, pairs), ten_init_turn(c), .lr = c->spectrum_lr, .no_decay = true);
    const tn_ref fixed = tn_add(g, tn_fill(g, tn_shape(R, T, H, pairs), TN_F32, 0), tn_exp(g, eta));
    if (c->rotate != TEN_ROTATE_TOKEN) return tn_reshape(g, fixed, tn_shape(R, T, H * pairs));
    const tn_ref much = tn_linear(g, u, tn_param(g, "w_turn", tn_shape(H, c->dim), tn_normal(0.02f)),
                                  .bias = tn_param(g, "b_turn", tn_shape(H), tn_zeros), .act = TN_ACT_SIGMOID);
    const tn_ref each = tn_reshape(g, tn_scale(g, much, 2), tn_shape(R, T, H, 1));
    return tn_reshape(g, tn_mul(g, fixed, each), tn_shape(R, T, H * pairs));
}

/* [1 | 0] for every row: where p starts. What is carried is p less this, so that a state of zeros is a new beginning. */
static tn_ref start_of(tn_graph *g, int64_t rows, int64_t K)
{
    const tn_ref parts[] = { tn_fill(g, tn_shape(rows, K), TN_F32, 1), tn_fill(g, tn_shape(rows, K), TN_F32, 0) };
    return tn_concat(g, parts, 2, -1);
}

/* Cosines, then sines, of the angles so far: (R,T,2H,pairs), R = 1 where all sequences turn alike, else B. */
tn_ref ten_turns(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t pairs = pairs_of(n->c), K = n->c->heads * pairs, T = b->length;
    const int64_t R = n->c->rotate == TEN_ROTATE_TOKEN ? b->batch : 1;
    if (n->c->rotate < TEN_ROTATE_LEARNED) return TN_NONE;
    const tn_ref one = start_of(g, R, K), carried = tn_decode_cache_state(g, b, "turn", tn_shape(R, 2 * K));
    tn_ref after = TN_NONE;
    const tn_ref p =
        tn_scan(g, tn_fill(g, tn_shape(R, T, 2 * K), TN_F32, 0), tn_fill(g, tn_shape(K), TN_F32, 1), speeds(n, u, b, R),
                .state = carried.id ? tn_add(g, carried, one) : one, .final = b->cached ? &after : NULL);
    if (carried.id) tn_decode_cache_store(g, b, carried, tn_sub(g, after, one));
    return tn_reshape(g, p, tn_shape(R, T, 2 * n->c->heads, pairs));
}

/* x (B,T,H,N) turned: pairs (j, j+pairs) of the numbers that turn, the rest as they are. */
tn_ref ten_turn(ten_net *n, tn_ref x, tn_ref turns, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads, N = n->c->head_dim, pairs = pairs_of(n->c);
    if (n->c->rotate == TEN_ROTATE_NONE) return x;
    const tn_ref moving = tn_slice(g, x, -1, 0, 2 * pairs), rest = tn_slice(g, x, -1, 2 * pairs, N - 2 * pairs);
    if (n->c->rotate == TEN_ROTATE_FIXED) {
        const tn_ref parts[] = { tn_rope(g, n->c->rotate_half ? moving : x, .position = tn_in(b, "position")), rest };
        return n->c->rotate_half ? tn_concat(g, parts, 2, -1) : parts[0];
    }
    const tn_ref cos = tn_slice(g, turns, 2, 0, H), sin = tn_slice(g, turns, 2, H, H);
    const tn_ref re = tn_part(g, moving, 0, 2), im = tn_part(g, moving, 1, 2);
    const tn_ref parts[] = { tn_sub(g, tn_mul(g, re, cos), tn_mul(g, im, sin)),
                             tn_add(g, tn_mul(g, re, sin), tn_mul(g, im, cos)), rest };
    return tn_concat(g, parts, n->c->rotate_half ? 3 : 2, -1);
}
