/* ten: the Temporal Eigenstate Network. Layers of several kinds in a pattern: D, a gated complex diagonal recurrence; O, an
 * outer-product state with data-dependent decay; E, eigenstates with fixed eigenvalues, in which the historical networks are
 * written; W, attention over a window. This file is the frame: embedding, norms, residual stream, scales, head. */
#include "models/ten/ten.h"

#include "base/status.h"

#include <string.h>

void ten_note_energy(ten_net *n, tn_ref c)
{
    if (n->c->energy <= 0) return;
    const bool once = tn_graph_switch(n->g, "opt.one_pass_energy");
    const tn_ref mean = once ? tn_mse(n->g, c, TN_NONE) : tn_mean_all(n->g, tn_square(n->g, c));
    const tn_ref e = tn_scale(n->g, mean, 2); /* |c|^2 = re^2 + im^2 */
    n->energy = n->energy.id ? tn_add(n->g, n->energy, e) : e;
    n->spectra++;
}

static tn_ref w_layer(ten_net *n, tn_ref u, const tn_batch *b)
{
    const tn_block_heads h = {
        .heads = n->c->heads, .kv_heads = n->c->heads, .window = n->c->window, .rotary = true, .out_std = n->c->out_std
    };
    return tn_block_attention(n->g, u, &h, b);
}

static tn_ref mixer(ten_net *n, tn_ref u, const tn_batch *b, char kind)
{
    tn_region r = tn_region_begin(n->g, "mixer");
    const tn_ref y = kind == 'D'   ? ten_d_layer(n, u, b)
                     : kind == 'O' ? ten_o_layer(n, u, b)
                     : kind == 'E' ? ten_e_layer(n, u, b)
                                   : w_layer(n, u, b);
    tn_region_end(n->g, r);
    return y;
}

static tn_ref feed_forward(ten_net *n, tn_ref u)
{
    const ten_config *c = n->c;
    tn_region r = tn_region_begin(n->g, "ffn");
    static const tn_act act[] = {
        [TEN_ACT_SILU] = TN_ACT_SILU, [TEN_ACT_GELU] = TN_ACT_GELU, [TEN_ACT_GELU_ERF] = TN_ACT_GELU_ERF
    };
    const tn_ref y = c->act == TEN_ACT_SWIGLU ? tn_block_swiglu(n->g, u, c->ffn, c->out_std)
                                              : tn_block_mlp(n->g, u, c->ffn, act[c->act], c->out_std);
    tn_region_end(n->g, r);
    return y;
}

static tn_ref norm(ten_net *n, tn_ref x, const char *name)
{
    return n->c->layer_norm ? tn_block_layernorm(n->g, x, name, 0) : tn_block_rmsnorm(n->g, x, name, 0);
}

/* One layer on x (B,T,d). */
tn_ref ten_block(ten_net *n, tn_ref x, const tn_batch *b, char kind)
{
    tn_graph *g = n->g;
    const float p = n->c->dropout;
    if (n->c->post_norm) {
        x = norm(n, tn_add(g, x, tn_dropout(g, mixer(n, x, b, kind), p)), "norm1");
        return norm(n, tn_add(g, x, tn_dropout(g, feed_forward(n, x), p)), "norm2");
    }
    x = tn_add(g, x, tn_dropout(g, mixer(n, norm(n, x, "norm1"), b, kind), p));
    return tn_add(g, x, tn_dropout(g, feed_forward(n, norm(n, x, "norm2")), p));
}

/* --- the network -------------------------------------------------------------------------------------------------- */

static tn_status check_batch(const ten_config *c, const tn_batch *b)
{
    const long long T = b->length;
    if (c->pos != TEN_POS_NONE && b->length > c->context)
        return tn_model_error("a sequence of %lld tokens is longer than the %lld positions of train.context", T,
                              (long long)c->context);
    if (c->tbptt && b->length > c->tbptt && b->length % c->tbptt)
        return tn_model_error("tbptt=%lld must divide the %lld tokens of a sequence", (long long)c->tbptt, T);
    if (c->n_scales && tn_in(b, "reset").id)
        return tn_model_error("hten does not support document boundaries: use hten=off");
    const bool carries = c->n_scales && b->cached;
    if (carries && ((b->length != 1 && !b->chunk) || c->rotate || strchr(c->pattern, 'W')))
        return tn_model_error("hten decodes token by token, without W or rotate: use pieces of one token, or hten=off");
    for (int i = 0; carries && b->chunk && i < c->n_scales; i++)
        if (b->chunk % c->scale[i])
            return tn_model_error("chunks of %lld tokens are not a multiple of the scale %lld: use a multiple",
                                  (long long)b->chunk, (long long)c->scale[i]);
    if (carries && c->energy > 0 && b->chunk && b->length != b->chunk)
        return tn_model_error("hten with energy=%g takes chunks of one length: %lld does not divide the sequence",
                              (double)c->energy, (long long)b->chunk);
    if (c->tbptt && b->chunk)
        return tn_model_error(
            "tbptt cannot be combined with plan.recompute=chunk: use tbptt=0, or plan.recompute=none");
    return TN_OK;
}

static tn_ref embed(ten_net *n, tn_ref table, const tn_batch *b)
{
    tn_graph *g = n->g;
    const ten_config *c = n->c;
    const tn_dims dims = tn_shape(c->context, c->dim);
    tn_ref x = tn_block_embed(g, table, b);
    if (c->pos == TEN_POS_LEARNED)
        x = tn_add(g, x, tn_block_positions(g, tn_param(g, "position", dims, tn_normal(0.02f)), 0, b));
    if (c->pos == TEN_POS_SIN)
        x = tn_add(g, x, tn_block_positions(g, tn_frozen(g, "position", dims, TN_F32, ten_init_sinusoids()), 0, b));
    return tn_dropout(g, x, c->dropout);
}

tn_status ten_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out)
{
    ten_config c;
    TN_RETURN_IF(ten_config_read(st, &c));
    TN_RETURN_IF(check_batch(&c, b));
    ten_net n = { .g = g, .c = &c, .scope = (int)strlen(tn_scope(g)) };
    const tn_ref table = tn_param(g, "embed", tn_shape(c.vocab, c.dim), tn_normal(0.02f));
    tn_ref x = embed(&n, table, b);
    for (int l = 0; l < c.layers; l++) {
        const char kind = c.pattern[(size_t)l % strlen(c.pattern)];
        tn_region r = tn_segment_begin(g, "layer%d", l);
        n.layer = l;
        x = c.n_scales ? ten_scales(&n, x, b, kind) : ten_block(&n, x, b, kind);
        tn_region_end(g, r);
    }
    out->head = table;
    out->extra = n.energy.id ? tn_scale(g, n.energy, c.energy / (float)n.spectra) : TN_NONE;
    out->hidden = norm(&n, x, "norm_f");
    return tn_graph_status(g);
}

tn_status ten_build(tn_graph *g, const tn_settings *st, const tn_batch *b)
{
    tn_forward f;
    TN_RETURN_IF(ten_forward(g, st, b, &f));
    tn_block_head(g, &f, b);
    return tn_graph_status(g);
}
