/* tep: an equilibrium network. A sample's features give an injection, a map is iterated from it to a fixed point, and a
 * linear head reads that state. This file has the embedding, head and loss. */
#include "models/tep/tep.h"

#include <math.h>

void tep_map_add(tep_map *m, tn_ref x) { m->consts[m->n++] = x; }

void tep_map_add_sample(tep_map *m, tn_ref x)
{
    m->per_sample |= (uint64_t)1 << m->n;
    tep_map_add(m, x);
}

tep_affine tep_affine_make(tn_graph *g, const char *w, const char *b, int64_t n, int64_t k, float bound,
                           float bias_bound)
{
    const float most = bound > 0 ? bound : 1.f / sqrtf((float)k);
    return (tep_affine){ tn_param(g, w, tn_shape(n, k), tn_uniform(-most, most)),
                         tn_param(g, b, tn_shape(n), bias_bound > 0 ? tn_uniform(-bias_bound, bias_bound) : tn_zeros) };
}

/* Glorot's uniform weights times `scale`, biases 0. */
static tep_affine glorot(tn_graph *g, const char *scope, int64_t n, int64_t k, float scale)
{
    tn_region r = tn_region_begin(g, "%s", scope);
    const tep_affine p = tep_affine_make(g, "w", "b", n, k, scale * sqrtf(6.f / (float)(n + k)), 0);
    tn_region_end(g, r);
    return p;
}

tn_ref tep_embed(tep_net *n, tn_ref x)
{
    tn_graph *g = n->g;
    const tep_config *c = n->c;
    const tep_affine p = glorot(g, "embed", c->dim, c->inputs, 1);
    const tn_ref flat = c->tokens == 1 ? tn_reshape(g, x, tn_shape(n->b->batch, c->inputs)) : x;
    tn_region r = tn_region_begin(g, "embed");
    const tn_ref e = tn_linear(g, flat, p.w, .bias = p.b);
    tn_region_end(g, r);
    if (c->tokens == 1 || !c->positions) return e;
    return tn_add(g, e, tn_param(g, "position", tn_shape(c->tokens, c->dim), tn_normal(1.f / sqrtf((float)c->dim))));
}

/* --- head and loss ------------------------------------------------------------------------------------------------- */

tn_ref tep_read(const tep_net *n, tn_graph *g, tn_ref h, bool nudges)
{
    const tep_config *c = n->c;
    if (c->mode == TEP_TOROIDAL) return tn_slice(g, h, -1, 0, c->dim); /* the rest is its past */
    if (c->mode == TEP_HOPFIELD) return tn_relax_hopfield_read(g, h, nudges);
    return c->tokens > 1 && n->labels == 1 ? tn_mean(g, h, 1) : h;
}

tep_target tep_target_of(const tep_net *n)
{
    tn_graph *g = n->g;
    const tn_batch *b = n->b;
    const bool value = n->value_w.id && tn_in(b, "targets").id;
    return (tep_target){ .head_w = n->head_w,
                         .head_b = n->head_b,
                         .labels = n->labels == 1 ? tn_reshape(g, tn_in(b, "labels"), tn_shape(b->batch))
                                                  : tn_in(b, "labels"),
                         .weights = tn_in(b, "weights"),
                         .value_w = value ? n->value_w : TN_NONE,
                         .value_b = value ? n->value_b : TN_NONE,
                         .targets = value ? tn_in(b, "targets") : TN_NONE };
}

tn_ref tep_cost(const tep_net *n, tn_graph *g, tn_ref h, const tep_target *t, tn_ref count, bool nudges)
{
    const tn_ref y = tep_read(n, g, h, nudges);
    const tn_ref ce = tn_linear_xent(g, y, t->head_w, t->labels, .bias = t->head_b, .weights = t->weights, .sum = true);
    if (!t->targets.id) return ce;
    const tn_ref value = tn_linear(g, y, t->value_w, .bias = t->value_b);
    tn_ref off = tn_sub(g, value, tn_reshape(g, t->targets, tn_shape(n->b->batch, 1)));
    if (count.id) off = tn_live(g, off, count);
    return tn_add(g, ce, tn_scale(g, tn_sum_all(g, tn_square(g, off)), 0.5f));
}

tn_ref tep_sample_count(const tep_net *n)
{
    const tn_ref ones = tn_fill(n->g, tn_shape(n->b->batch), TN_F32, 1.f);
    return tn_reshape(n->g,
                      tn_sum_all(n->g, tn_in(n->b, "count").id ? tn_live(n->g, ones, tn_in(n->b, "count")) : ones),
                      tn_shape(1));
}

/* Equal logits make every label that counts cost log C. */
tn_ref tep_label_count(const tep_net *n)
{
    tn_graph *g = n->g;
    const int64_t C = n->c->classes;
    const tn_ref flat = tn_fill(g, tn_shape(n->b->batch, n->labels, C), TN_F32, 0.f);
    const tn_ref sum = tn_scale(g, tn_xent(g, flat, tn_in(n->b, "labels"), .sum = true), 1.f / logf((float)C));
    return tn_clamp_min(g, tn_reshape(g, sum, tn_shape(1)), 1.f);
}

static tn_ref task_loss(const tep_net *n, tn_ref h)
{
    tn_graph *g = n->g;
    const tep_target t = tep_target_of(n);
    if (!t.weights.id && !t.targets.id)
        return tn_linear_xent(g, tep_read(n, g, h, false), t.head_w, t.labels, .bias = t.head_b);
    const tn_ref sum = tn_reshape(g, tep_cost(n, g, h, &t, tn_in(n->b, "count"), false), tn_shape(1));
    return tn_sum_all(g, tn_div(g, sum, tn_clamp_min(g, tep_sample_count(n), 1.f)));
}

static void put_loss(const tep_net *n, tn_ref h, tn_ref extra)
{
    const tn_ref loss = task_loss(n, h);
    if (extra.id) tn_output(n->g, "xent", loss);
    if (extra.id) tn_output(n->g, "extra", extra);
    tn_output(n->g, "loss", extra.id ? tn_add(n->g, loss, extra) : loss);
}

static tn_ref as_floats(tn_graph *g, tn_ref x) { return tn_ref_dtype(g, x) == TN_F32 ? x : tn_cast(g, x, TN_F32); }

static void put_logits(const tep_net *n, tn_ref h)
{
    tn_graph *g = n->g;
    const int64_t B = n->b->batch;
    const tn_ref y = tep_read(n, g, h, false), logits = as_floats(g, tn_linear(g, y, n->head_w, .bias = n->head_b));
    tn_output(g, "logits", tn_reshape(g, logits, tn_shape(B, n->labels, n->c->classes)));
    if (!n->value_w.id) return;
    tn_output(g, "value", tn_reshape(g, as_floats(g, tn_linear(g, y, n->value_w, .bias = n->value_b)), tn_shape(B)));
}

/* --- the network ---------------------------------------------------------------------------------------------------- */

static tn_status check_batch(const tep_net *n)
{
    const tn_batch *b = n->b;
    if (tn_in(b, "labels").id && n->labels != 1 && n->labels != n->c->tokens)
        return tn_model_error("a sample of %lld tokens has 1 label or one for each token, not %lld",
                              (long long)n->c->tokens, (long long)n->labels);
    if (n->labels != 1 && (tn_in(b, "weights").id || tn_in(b, "targets").id || n->c->value))
        return tn_model_error("weights and a value belong to samples with one label: use value=false");
    if (b->cached) return tn_model_error("tep cannot decode token by token: it solves each sample by itself");
    return TN_OK;
}

tn_status tep_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tep_config c;
    if (!tn_in(b, "features").id) return tn_model_error("tep learns from samples, not from tokens: give task=NAME");
    tn_status s = tep_config_read(st, g, b, &c);
    tep_net n = {
        .g = g, .c = &c, .b = b, .labels = tn_in(b, "labels").id ? tn_ref_dim(g, tn_in(b, "labels"), -1) : 1
    };
    if (s == TN_OK) s = check_batch(&n);
    if (s != TN_OK) return s;
    const tep_map m = c.mode == TEP_BLOCK      ? tep_block(&n, tn_in(b, "features"))
                      : c.mode == TEP_ENERGY   ? tep_energy(&n, tn_in(b, "features"))
                      : c.mode == TEP_TOROIDAL ? tep_toroidal(&n, tn_in(b, "features"))
                                               : tep_hopfield(&n, tn_in(b, "features"));
    const tep_affine head = glorot(g, "head", c.classes, c.dim, c.head_scale);
    const tep_affine value = c.value ? glorot(g, "value", 1, c.dim, 1) : (tep_affine){ 0 };
    n.head_w = head.w, n.head_b = head.b;
    n.value_w = value.w, n.value_b = value.b;
    tn_region r = tn_region_begin(g, "solve");
    const tn_ref h = tep_solve(&n, &m);
    tn_region_end(g, r);
    const tn_ref extra = tn_in(b, "labels").id ? tep_slope_penalty(&n, &m, h) : TN_NONE;
    r = tn_region_begin(g, "head");
    if (tn_wants(b, "logits")) put_logits(&n, h);
    if (tn_in(b, "labels").id) put_loss(&n, h, extra);
    tn_region_end(g, r);
    return tn_graph_status(g);
}
