/* The block map: attention of the state to the input, then a feed-forward network, each on a residual stream, and a norm.
 *
 *     u = h + Wo A + bo        A: attention of q = Wq (LN1(h) + e) + bq to keys Wk e + bk and values Wv e + bv of the input
 *     f(h) = LN_f(u + W2 gelu(W1 LN2(u) + b1) + b2)
 *
 * Keys, values and the input's part of the queries do not depend on h: they are made once, outside the solve. variant=faithful
 * asks with q = Wq LN1(h) + bq. All tokens of a sample, which start alike, then ask alike and stay alike: it can label samples,
 * not tokens.
 *
 * With one token a softmax over one key is 1 and A is the value itself: u = h + a, a = Wo (Wv e + bv) + bo, and Wq, Wk and LN1
 * have no effect. They are made then only for variant=faithful, whose parameters count them. */
#include "models/tep/tep.h"

#include <math.h>

typedef struct attention {
    tep_affine q, k, v, o;
} attention;

typedef struct norm_params {
    tn_ref w, b;
} norm_params;

static norm_params norm_make(tn_graph *g, const char *name, int64_t d)
{
    tn_region r = tn_region_begin(g, "%s", name);
    const norm_params p = { tn_param(g, "w", tn_shape(d), tn_ones), tn_param(g, "b", tn_shape(d), tn_zeros) };
    tn_region_end(g, r);
    return p;
}

/* Softmax attention starts as one matrix of queries, keys and values would (Glorot, biases 0). */
static attention attention_make(const tep_net *n, bool whole)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim;
    const float packed = n->c->softmax ? sqrtf(6.f / (4.f * (float)d)) : 0,
                bias = n->c->softmax ? 0 : 1.f / sqrtf((float)d);
    attention a = { 0 };
    tn_region r = tn_region_begin(g, "attn");
    if (whole) a.q = tep_affine_make(g, "wq", "bq", d, d, packed, bias);
    if (whole) a.k = tep_affine_make(g, "wk", "bk", d, d, packed, bias);
    a.v = tep_affine_make(g, "wv", "bv", d, d, packed, bias);
    a.o = tep_affine_make(g, "wo", "bo", d, d, 0, bias);
    tn_region_end(g, r);
    return a;
}

/* Constants of the feed-forward half, in the order in which feed_forward reads them. */
static void add_feed_forward(tep_map *m, const tep_net *n)
{
    tn_graph *g = n->g;
    const int64_t d = n->c->dim, f = n->c->ff;
    const norm_params norm2 = norm_make(g, "norm2", d);
    tn_region r = tn_region_begin(g, "ffn");
    const tep_affine up = tep_affine_make(g, "w1", "b1", f, d, 0, 1.f / sqrtf((float)d));
    const tep_affine down = tep_affine_make(g, "w2", "b2", d, f, 0, 1.f / sqrtf((float)f));
    tn_region_end(g, r);
    const norm_params last = norm_make(g, "norm_f", d);
    const tn_ref all[] = { norm2.w, norm2.b, up.w, up.b, down.w, down.b, last.w, last.b };
    for (int i = 0; i < 8; i++) tep_map_add(m, all[i]);
}

/* u = x + residual; c: the eight constants above. */
static tn_ref feed_forward(tn_graph *g, tn_ref x, tn_ref residual, const tn_ref *c)
{
    tn_ref u = x;
    const tn_ref inner =
        residual.id ? tn_layernorm(g, x, c[0], c[1], .residual = residual, .sum = &u) : tn_layernorm(g, x, c[0], c[1]);
    const tn_ref z = tn_linear(g, inner, c[2], .bias = c[3], .act = TN_ACT_GELU_ERF);
    return tn_layernorm(g, tn_linear(g, z, c[4], .bias = c[5], .residual = u), c[6], c[7]);
}

/* --- one token ---------------------------------------------------------------------------------------------------- */

static void one_token(tn_graph *g, tn_body_io *io, void *user)
{
    (void)user;
    io->next[0] = feed_forward(g, io->state[0], io->consts[0], io->consts + 1);
}

static tep_map block_of_one(tep_net *n, tn_ref e)
{
    const attention p = attention_make(n, n->c->faithful);
    tep_map m = {
        .build = one_token, .state = tn_shape(n->b->batch, n->c->dim), .fused = true, .kind = TN_RELAX_BLOCK
    };
    if (n->c->faithful) (void)norm_make(n->g, "norm1", n->c->dim);
    tn_region r = tn_region_begin(n->g, "attn");
    tep_map_add_sample(&m, tn_linear(n->g, tn_linear(n->g, e, p.v.w, .bias = p.v.b), p.o.w, .bias = p.o.b));
    tn_region_end(n->g, r);
    add_feed_forward(&m, n);
    return m;
}

/* --- several tokens ------------------------------------------------------------------------------------------------- */

/* elu(z) + 1 */
static tn_ref feature(tn_graph *g, tn_ref z)
{
    return tn_add(g, tn_relu(g, z), tn_exp(g, tn_neg(g, tn_relu(g, tn_neg(g, z)))));
}

static tn_ref heads_of(tn_graph *g, tn_ref x, int64_t heads)
{
    const tn_dims s = tn_ref_dims(g, x);
    return tn_reshape(g, x, tn_shape(s.dim[0], s.dim[1], heads, s.dim[2] / heads));
}

/* Constants: wq norm1.w norm1.b wo bo, what each token asks by itself (B,S,d) or bq, keys and values, the feed-forward half. */
enum { WQ, NORM_W, NORM_B, WO, BO, ASKS, KEYS };

static tn_ref queries(tn_graph *g, tn_body_io *io, const tep_config *c)
{
    const tn_ref *k = io->consts;
    const tn_ref inner = tn_layernorm(g, io->state[0], k[NORM_W], k[NORM_B]);
    const tn_ref q =
        c->faithful ? tn_linear(g, inner, k[WQ], .bias = k[ASKS]) : tn_linear(g, inner, k[WQ], .residual = k[ASKS]);
    return heads_of(g, q, c->heads);
}

/* y (B,S,H,D) of the heads, through Wo and onto the residual stream. */
static void after_attention(tn_graph *g, tn_body_io *io, tn_ref y, const tn_ref *rest)
{
    const tn_ref flat = tn_reshape(g, y, tn_ref_dims(g, io->state[0]));
    const tn_ref u = tn_linear(g, flat, io->consts[WO], .bias = io->consts[BO], .residual = io->state[0]);
    io->next[0] = feed_forward(g, u, TN_NONE, rest);
}

static void by_softmax(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_ref k = io->consts[KEYS], v = io->consts[KEYS + 1];
    after_attention(g, io, tn_attention(g, queries(g, io, user), k, v), io->consts + KEYS + 2);
}

/* One product gives sum_j phi(q).phi(k_j) [v_j, 1]: numerators, and the normaliser as the last column. */
static void by_features(tn_graph *g, tn_body_io *io, void *user)
{
    const tn_ref q = tn_transpose(g, feature(g, queries(g, io, user)), 0, 2, 1, 3);
    const tn_ref sums = tn_matmul(g, q, io->consts[KEYS]);
    const int64_t D = tn_ref_dim(g, q, -1);
    const tn_ref y = tn_div(g, tn_slice(g, sums, -1, 0, D), tn_affine(g, tn_slice(g, sums, -1, D, 1), 1.f, 1e-6f));
    after_attention(g, io, tn_copy(g, tn_transpose(g, y, 0, 2, 1, 3)), io->consts + KEYS + 1);
}

/* sum_j phi(k_j) [v_j, 1]^T (B,H,D,D+1), from k and v (B,S,H,D). */
static tn_ref feature_sums(tn_graph *g, tn_ref k, tn_ref v)
{
    tn_dims one = tn_ref_dims(g, v);
    one.dim[3] = 1;
    const tn_ref parts[] = { v, tn_fill(g, one, TN_F32, 1.f) };
    return tn_matmul(g, tn_transpose(g, feature(g, k), 0, 2, 1, 3),
                     tn_transpose(g, tn_concat(g, parts, 2, -1), 0, 2, 1, 3), .transpose_a = true);
}

static tep_map block_of_many(tep_net *n, tn_ref e)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    const attention p = attention_make(n, true);
    const norm_params norm1 = norm_make(g, "norm1", c->dim);
    tep_map m = { .build = c->softmax ? by_softmax : by_features, .state = tn_shape(n->b->batch, c->tokens, c->dim) };
    const tn_ref first[] = { p.q.w, norm1.w, norm1.b, p.o.w, p.o.b };
    for (int i = 0; i < 5; i++) tep_map_add(&m, first[i]);
    tn_region r = tn_region_begin(g, "attn");
    if (c->faithful) tep_map_add(&m, p.q.b);
    else tep_map_add_sample(&m, tn_linear(g, e, p.q.w, .bias = p.q.b));
    const tn_ref k = heads_of(g, tn_linear(g, e, p.k.w, .bias = p.k.b), c->heads);
    const tn_ref v = heads_of(g, tn_linear(g, e, p.v.w, .bias = p.v.b), c->heads);
    tep_map_add_sample(&m, c->softmax ? k : feature_sums(g, k, v));
    if (c->softmax) tep_map_add_sample(&m, v);
    tn_region_end(g, r);
    add_feed_forward(&m, n);
    return m;
}

tep_map tep_block(tep_net *n, tn_ref x)
{
    const tn_ref e = tep_embed(n, x);
    return n->c->tokens == 1 ? block_of_one(n, e) : block_of_many(n, e);
}
