/* O layer: a matrix of state per head, with decay and writing that depend on the token. What is written is added (outer), or
 * takes the place of what the state held at its key (delta). */
#include "models/ten/ten.h"

#include <math.h>

static bool has_strength(const ten_config *c) { return c->write != TEN_WRITE_DECAY; }

/* Decays that tokens decide on: of heads, or of every row of their states. */
static int64_t decays_of(const ten_config *c)
{
    return c->forget == TEN_FORGET_FIXED ? 0 : c->forget == TEN_FORGET_CHANNEL ? c->heads * c->head_dim : c->heads;
}

/* alpha, the logarithm of the decay: (B,T,H), or (B,T,HN) where forget=channel. Decided by tokens: -softplus(a), [a;b] = ab;
 * fixed: one number per head. */
static tn_ref log_decay(ten_net *n, tn_ref ab, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads, decays = decays_of(n->c);
    if (decays) return tn_neg(g, tn_softplus(g, tn_slice(g, ab, -1, 0, decays)));
    const tn_ref a = tn_neg(g, tn_softplus(g, tn_param(g, "decay", tn_shape(H), ten_init_decay(H))));
    return tn_add(g, tn_fill(g, tn_shape(b->batch, b->length, H), TN_F32, 0), a);
}

/* ab (B,T,rows): what decays and strengths of writing are made of. Rows that are not asked for are not there. */
static tn_ref decide(ten_net *n, tn_ref u)
{
    const ten_config *c = n->c;
    const int64_t decays = decays_of(c), rows = decays + (has_strength(c) ? c->heads : 0);
    if (!rows) return TN_NONE;
    return tn_linear(n->g, u, tn_param(n->g, "w_ab", tn_shape(rows, c->dim), tn_normal(0.02f)),
                     .bias = tn_param(n->g, "b_ab", tn_shape(rows), ten_init_decay(decays)));
}

/* (B,T,H): a gate, the last rows of ab, or what the decay alpha leaves. */
static tn_ref strength(ten_net *n, tn_ref ab, tn_ref alpha)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads;
    if (!has_strength(n->c)) return tn_neg(g, tn_expm1(g, alpha));
    const tn_ref gate = tn_sigmoid(g, tn_slice(g, ab, -1, decays_of(n->c), H));
    if (n->c->write != TEN_WRITE_NORMED) return gate;
    const tn_ref left = tn_clamp_min(g, tn_neg(g, tn_expm1(g, tn_scale(g, alpha, 2))), 1e-6f);
    return tn_mul(g, gate, tn_sqrt(g, left));
}

/* Queries or keys: x (B,T,H,N) to unit length but for a factor sqrt(N) (which the readout takes out) where asked, and turned. */
static tn_ref prepared(ten_net *n, tn_ref x, tn_ref turns, const tn_batch *b)
{
    const float eps = 1e-6f / (float)n->c->head_dim;
    return ten_turn(n, n->c->qk_norm ? tn_rmsnorm(n->g, x, TN_NONE, .eps = eps) : x, turns, b);
}

/* S_t = e^{alpha_t} S_{t-1} + k_t (beta_t v_t)^T, o_t = S_t^T q_t. */
static tn_ref add_up(ten_net *n, const ten_written *x, const tn_batch *b, tn_ref *after)
{
    const tn_ref write = tn_reshape(n->g, x->write, tn_shape(b->batch, b->length, n->c->heads, 1));
    return tn_outer(n->g, x->q, x->k, tn_mul(n->g, x->v, write), x->alpha, .reset = tn_in(b, "reset"),
                    .chunk = n->c->chunk, .state = x->state, .final = after);
}

/* S_t = D_t + beta_t k_t (v_t - D_t^T k_t)^T, where D_t = e^{alpha_t} S_{t-1}. Keys have length 1, or S would grow. */
static tn_ref correct(ten_net *n, const ten_written *x, const tn_batch *b, tn_ref *after)
{
    const int64_t H = n->c->heads, N = n->c->head_dim;
    const bool rows = n->c->forget == TEN_FORGET_CHANNEL;
    const tn_ref alpha = rows ? tn_reshape(n->g, x->alpha, tn_shape(b->batch, b->length, H, N)) : x->alpha;
    return tn_delta(n->g, x->q, tn_scale(n->g, x->k, 1.f / sqrtf((float)N)), x->v, alpha, x->write,
                    .reset = tn_in(b, "reset"), .chunk = n->c->chunk, .state = x->state, .final = after);
}

/* What the layer makes of u first: q, k, v (B,T,H,N), v again as (B,T,HN), and the gate's branch (B,T,HN) where there is one. */
typedef struct branches {
    tn_ref qkv[3], x, z;
} branches;

static branches branch(ten_net *n, tn_ref u, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const int64_t H = c->heads, N = c->head_dim, HN = H * N, B = b->batch, T = b->length;
    const int64_t parts = c->gate == TEN_GATE_SILU ? 4 : 3, rows[] = { HN, HN, HN, HN };
    const tn_ref w = tn_param(g, "w_in", tn_shape(parts * HN, c->dim), tn_normal(0.02f));
    const bool apart = !b->cached && tn_block_projects_apart(g);
    branches r = { .z = TN_NONE };
    tn_ref part[4] = { TN_NONE, TN_NONE, TN_NONE, TN_NONE };
    if (apart) {
        tn_block_project(g, u, w, rows, (int)parts, "opt.batched_input", part);
        tn_block_convs(g, part, 3, c->conv, b);
        for (int i = 0; i < 3; i++) {
            if (c->conv_silu) part[i] = tn_silu(g, part[i]);
            r.qkv[i] = tn_reshape(g, part[i], tn_shape(B, T, H, N));
        }
        r.x = part[2], r.z = part[3];
        return r;
    }
    const tn_ref xz = tn_block_product(g, u, w, "opt.batched_input");
    const tn_ref conv = tn_block_conv(g, tn_slice(g, xz, -1, 0, 3 * HN), c->conv, b);
    const tn_ref qkv = c->conv_silu ? tn_silu(g, conv) : conv;
    const tn_ref heads = tn_reshape(g, qkv, tn_shape(B, T, 3 * H, N));
    for (int i = 0; i < 3; i++) r.qkv[i] = tn_slice(g, heads, 2, i * H, H);
    r.x = tn_slice(g, qkv, -1, 2 * HN, HN);
    r.z = tn_slice(g, xz, -1, (parts - 1) * HN, HN);
    return r;
}

/* The recurrence, without the roots of N: q, k, v (B,T,H,N) -> (B,T,H,N). */
static tn_ref recur(ten_net *n, tn_ref u, const tn_ref *qkv, const tn_batch *b)
{
    tn_graph *g = n->g;
    const int64_t H = n->c->heads, N = n->c->head_dim;
    const tn_ref turns = ten_turns(n, u, b), ab = decide(n, u);
    const bool instrumented = ten_is_instrumented(n, b);
    tn_ref after = TN_NONE, *last = b->cached || instrumented ? &after : NULL;
    ten_written x = { .state = tn_decode_cache_state(g, b, "state", tn_shape(b->batch, H, N, N)), .v = qkv[2] };
    x.q = prepared(n, qkv[0], turns, b);
    x.k = prepared(n, qkv[1], turns, b);
    x.alpha = log_decay(n, ab, b);
    x.write = strength(n, ab, x.alpha);
    const tn_ref o = n->c->write == TEN_WRITE_DELTA ? correct(n, &x, b, last) : add_up(n, &x, b, last);
    tn_decode_cache_store(g, b, x.state, after);
    /* a second alpha, so that the first has one reader and can be made inside the recurrence */
    if (instrumented)
        ten_put_instruments(n, 'O', ten_time_mean(g, decays_of(n->c) ? log_decay(n, ab, b) : x.alpha), after);
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
    const int64_t H = c->heads, N = c->head_dim, B = b->batch, T = b->length, HN = H * N;
    const branches in = branch(n, u, b);
    const tn_ref o = recur(n, u, in.qkv, b);
    const bool both =
        c->qk_norm && c->write != TEN_WRITE_DELTA; /* roots of N: of queries, and of keys that are not scaled yet */
    return ten_read_out(n, u,
                        &(ten_read){ .c = tn_reshape(g, o, tn_shape(B, T, HN)),
                                     .x = in.x,
                                     .z = in.z,
                                     .skip = c->skip ? per_state(n, "skip") : TN_NONE,
                                     .gain = per_state(n, "gain"),
                                     .scale = both ? 1.f / (float)N : 1.f / sqrtf((float)N),
                                     .group = N });
}
