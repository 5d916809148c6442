/* The terms of the first wire's loss that this one does without unless they are set. For reader x, with E its table of embeddings, rho
 * their root mean square, P (B,M,d) what it is given, a (B,M,d) the same before it has that size, and s its gain:
 *
 *     entropy     -H(p_1) = KL(p_1 | uniform) - log V       p_1: what it says at the first token of an answer; mean over answers
 *     manifold    |mean P - mean E|^2 / d + |std P - std E|^2 / d       over slots of all texts, and over tokens
 *     rms         mean over slots of (rms(a) - rho)^2
 *     scale       (s - 1)^2
 *     align       mean over tokens t <= k of answers of |P_t - E(y_t)|^2 / d
 *     cosine      the same of 1 - cos(P_t, E(y_t)) = |u - v|^2 / 2, u and v both of length 1
 *
 * A term whose weight is 0 is no node of the graph. */
#include "models/wire/wire.h"

#include "models/encoder.h"

#include <math.h>

enum { PIECE = 4096 }; /* rows of a table at once */

/* --- what is said first --------------------------------------------------------------------------------------------------- */

/* Whole logits, but of one token of each answer. */
tn_ref wire_entropy(tn_graph *g, const wire_config *c, const tn_forward *f, tn_ref first)
{
    if (c->entropy == 0 || tn_graph_status(g) != TN_OK) return TN_NONE;
    const int64_t N = tn_ref_dim(g, first, 0), V = tn_ref_dim(g, f->head, 0);
    const tn_ref states = tn_masked_mean(g, f->hidden, first); /* of one each, or of none */
    const tn_ref logits = tn_floats(g, tn_linear(g, states, f->head));
    const tn_ref kl = tn_kl(g, logits, tn_fill(g, tn_shape(N, V), TN_F32, 0), .weights = tn_sum(g, first, 1));
    return tn_affine(g, tn_reshape(g, kl, tn_shape(1)), (float)c->entropy, (float)(-c->entropy * log((double)V)));
}

/* --- slots and answers ---------------------------------------------------------------------------------------------------- */

/* x (N,n): sums of its columns up to each. */
static tn_ref running(tn_graph *g, tn_ref x)
{
    const int64_t n = tn_ref_dim(g, x, 1);
    for (int64_t by = 1; by < n; by *= 2) x = tn_add(g, x, wire_moved(g, x, by));
    return x;
}

/* (N,k,n): 1 where column i of counts (N,n) is the t-th that counts, t = 1 .. k. */
static tn_ref numbered(tn_graph *g, tn_ref counts, int64_t k)
{
    const int64_t N = tn_ref_dim(g, counts, 0), n = tn_ref_dim(g, counts, 1);
    const tn_ref at = tn_reshape(g, running(g, counts), tn_shape(N, 1, n));
    const tn_ref t = tn_reshape(g, running(g, tn_fill(g, tn_shape(1, k), TN_F32, 1)), tn_shape(1, k, 1));
    const tn_ref gap = tn_reshape(g, tn_abs(g, tn_sub(g, at, t)), tn_shape(N * k * n));
    const tn_ref same = tn_cast(g, tn_not_above(g, gap, 0.5f), TN_F32);
    return tn_mul(g, tn_reshape(g, same, tn_shape(N, k, n)), tn_reshape(g, counts, tn_shape(N, 1, n)));
}

tn_ref wire_alignment(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref slots, tn_ref tokens,
                      tn_ref counts)
{
    tn_ref sum = TN_NONE;
    if ((c->align == 0 && c->cosine == 0) || tn_graph_status(g) != TN_OK) return sum;
    const int64_t M = tn_ref_dim(g, slots, 1), n = tn_ref_dim(g, tokens, 1), least = M < n ? M : n;
    const int64_t k = c->align_k && c->align_k < least ? c->align_k : least;
    const tn_ref places = numbered(g, counts, k), there = tn_sum(g, places, 2);
    const tn_ref wanted = tn_matmul(g, places, tn_floats(g, tn_embed(g, tokens, wire_table(g, r))));
    slots = tn_slice(g, slots, 1, 0, k);
    if (c->align != 0) sum = wire_plus(g, sum, c->align, tn_mse(g, slots, wanted, .weights = there));
    if (c->cosine == 0) return sum;
    const tn_ref u = tn_l2_normalize(g, slots, 1e-12f), v = tn_l2_normalize(g, wanted, 1e-12f);
    sum = wire_plus(g, sum, c->cosine * 0.5 * (double)r->shape.dim, tn_mse(g, u, v, .weights = there));
    return sum;
}

/* --- the size of slots ---------------------------------------------------------------------------------------------------- */

static tn_ref root(tn_graph *g, tn_ref x) { return tn_sqrt(g, tn_affine(g, x, 1, 1e-12f)); }

/* The mean of a table's rows, or of their squared distance to `from`: (d). In pieces, so that no second table is made for it. */
static tn_ref table_mean(tn_graph *g, tn_ref table, tn_ref from)
{
    const int64_t V = tn_ref_dim(g, table, 0);
    tn_ref sum = TN_NONE;
    for (int64_t first = 0; first < V; first += PIECE) {
        tn_ref x = tn_floats(g, tn_slice(g, table, 0, first, V - first < PIECE ? V - first : PIECE));
        if (from.id) x = tn_square(g, tn_sub(g, x, from));
        x = tn_sum(g, x, 0);
        sum = sum.id ? tn_add(g, sum, x) : x;
    }
    return tn_scale(g, sum, 1 / (float)V);
}

/* The mean over all slots of live rows: (B,M,d) -> (d). */
static tn_ref slot_mean(tn_graph *g, tn_ref x) { return tn_mean(g, tn_mean(g, x, 0), 0); }

static tn_ref manifold(tn_graph *g, const wire_reader *r, tn_ref slots)
{
    const tn_ref table = wire_table(g, r), told = table_mean(g, table, TN_NONE), mean = slot_mean(g, slots);
    const tn_ref spread = root(g, slot_mean(g, tn_square(g, tn_sub(g, slots, mean))));
    return tn_add(g, tn_mse(g, mean, told), tn_mse(g, spread, root(g, table_mean(g, table, told))));
}

tn_ref wire_size(tn_graph *g, const wire_config *c, const wire_reader *r, const wire_prefix *p, tn_ref count)
{
    tn_ref sum = TN_NONE;
    if (tn_graph_status(g) != TN_OK) return sum;
    if (c->manifold != 0) sum = wire_plus(g, sum, c->manifold, manifold(g, r, tn_live(g, p->vectors, count)));
    if (c->rms != 0) {
        const tn_ref raw = tn_live(g, tn_floats(g, p->raw), count);
        const tn_ref gap = tn_sub(g, root(g, tn_mean(g, tn_square(g, raw), 2)), p->rho);
        sum = wire_plus(g, sum, c->rms, tn_mean_all(g, tn_square(g, gap)));
    }
    if (c->scale != 0) sum = wire_plus(g, sum, c->scale, tn_square(g, tn_affine(g, p->gain, 1, -1)));
    return sum;
}
