/* How a frozen model reads a message: the adapter, and the one layout.
 *
 *     u = LN(z + place);  a = W3 gelu(W2 gelu(W1 u)) + Ws u;  a <- sigmoid(Wg z + bg) a + (Wb z + bb)
 *     p = a / rms(a);  P = rho gain p        rho: root mean square of the model's embeddings; slot by slot, and differentiated through
 *     anchor_k = rho A_k
 *
 * place=embeddings: BOS ; P ; anchor ; tokens are what the model's first layer sees.
 * place=keys: keys and values of every layer are linear in u + W u, u = LN(p), and stand before BOS ; anchor ; tokens. */
#include "models/wire/wire.h"

#include "base/status.h"
#include "models/blocks.h"
#include "models/encoder.h"
#include "models/gpt/gpt.h"

#include <math.h>
#include <stdio.h>

tn_ref wire_in(const tn_batch *b, const wire_reader *r, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%s", r->letter, name);
    return tn_in(b, full);
}

tn_ref wire_repeat(tn_graph *g, tn_ref x, int64_t times)
{
    enum { MOST = 64 }; /* of tn_concat */
    tn_ref part[MOST];
    if (times == 1 || tn_graph_status(g) != TN_OK) return x;
    tn_dims d = tn_ref_dims(g, x), wide = d;
    const int64_t B = d.dim[0];
    wide.dim[0] = B;
    wide.dim[1] = 1;
    for (int i = 1; i < d.rank; i++) wide.dim[i + 1] = d.dim[i];
    wide.rank = d.rank + 1;
    x = tn_reshape(g, x, wide);
    for (int64_t i = 0; i < times && i < MOST; i++) part[i] = x;
    d.dim[0] = B * times;
    return tn_reshape(g, tn_concat(g, part, (int)times, 1), d);
}

/* The slots of reader r: those of all, and its own. */
static tn_ref own_slots(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref z)
{
    if (!c->private_slots) return z;
    const tn_ref own = tn_slice(g, z, 1, c->shared + r->own * c->private_slots, c->private_slots);
    const tn_ref part[] = { tn_slice(g, z, 1, 0, c->shared), own };
    return c->shared ? tn_concat(g, part, 2, 1) : own;
}

static tn_ref unit(tn_graph *g, tn_ref x) { return tn_rmsnorm(g, tn_floats(g, x), TN_NONE, .eps = 1e-12f); }

/* (B,M,d), each of root mean square 1; *raw: of any. */
static tn_ref vectors(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref z, tn_ref *raw)
{
    const int64_t M = tn_ref_dim(g, z, 1), d = r->shape.dim;
    const tn_ref places = tn_param(g, "place", tn_shape(M, c->width), tn_normal(0.02f), .no_decay = true);
    const tn_ref u = tn_block_layernorm(g, tn_add(g, z, places), "norm", 0);
    const tn_ref h = tn_dense(g, tn_dense(g, u, "in", c->hidden, TN_ACT_GELU_ERF), "mid", c->hidden, TN_ACT_GELU_ERF);
    tn_ref a = tn_add(g, tn_dense(g, h, "out", d, TN_ACT_NONE), tn_dense(g, u, "skip", d, TN_ACT_NONE));
    a = tn_mul(g, tn_sigmoid(g, tn_dense(g, z, "film_gain", d, TN_ACT_NONE)), a);
    a = tn_add(g, a, tn_dense(g, z, "film_shift", d, TN_ACT_NONE));
    *raw = a;
    return unit(g, a);
}

/* Keys and values of every layer: (B,M,layers*KV,D) each. */
static void keys_of(tn_graph *g, const wire_reader *r, tn_ref p, wire_prefix *out)
{
    const tn_decoder_shape *s = &r->shape;
    const int64_t B = tn_ref_dim(g, p, 0), M = tn_ref_dim(g, p, 1), n = s->layers * s->kv_heads;
    tn_ref u = tn_block_layernorm(g, p, "norm_keys", 0);
    u = tn_add(g, u, tn_dense(g, u, "mix", s->dim, TN_ACT_NONE));
    const float size =
        0.01f / sqrtf((float)s->dim); /* small at first: a message that says nothing yet disturbs nothing */
    const tn_ref both = tn_linear(g, u, tn_param(g, "w_keys", tn_shape(2 * n * s->head_dim, s->dim), tn_normal(size)));
    const tn_ref kv = tn_reshape(g, both, tn_shape(B, M, 2 * n, s->head_dim));
    out->keys = tn_slice(g, kv, 2, 0, n);
    out->values = tn_slice(g, kv, 2, n, n);
}

wire_prefix wire_adapt(tn_graph *g, const wire_config *c, const wire_reader *r, tn_ref z)
{
    const tn_region scope = tn_region_begin(g, "to.%s", r->letter);
    tn_frozen_begin(g); /* a weight, which checkpoints hold: whoever opens one does not see the readers' files */
    const tn_ref rho = tn_param(g, "rms", tn_shape(1), tn_constant(0.02f));
    tn_frozen_end(g);
    wire_prefix p = { .rho = rho };
    p.vectors = vectors(g, c, r, own_slots(g, c, r, z), &p.raw);
    p.anchors =
        tn_mul(g, tn_param(g, "anchors", tn_shape(WIRE_ANCHORS, r->shape.dim), tn_normal(1), .no_decay = true), rho);
    if (c->place == WIRE_KEYS) keys_of(g, r, p.vectors, &p);
    else {
        p.gain = tn_param(g, "gain", tn_shape(1), tn_ones, .no_decay = true);
        p.vectors = tn_mul(g, p.vectors, tn_mul(g, p.gain, rho));
    }
    tn_region_end(g, scope);
    return p;
}

/* The reader's table, which its forward pass asks for again. */
static tn_ref table_of(tn_graph *g, const wire_reader *r)
{
    return tn_matrix(g, "embed", tn_shape(r->shape.vocab, r->shape.dim), tn_normal(0.02f));
}

tn_ref wire_table(tn_graph *g, const wire_reader *r)
{
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_ref table = table_of(g, r);
    tn_region_end(g, scope);
    tn_frozen_end(g);
    return table;
}

/* Rows that the reader was never trained on so long are refused: what it said would be no measure of anything. */
static tn_status forward(tn_graph *g, const wire_reader *r, const tn_batch *in, const char *what, tn_ref *states,
                         tn_forward *out)
{
    tn_decoder_shape checked;
    const int64_t most = tn_settings_int(r->part.settings, "train.context");
    if (in->length > most)
        return tn_model_error("reader %s: %s of the longest example have %lld tokens, and it was trained on "
                              "train.context=%lld: take shorter texts (task.length, task.pairs), or a reader that was "
                              "trained on longer ones",
                              r->letter, what, (long long)in->length, (long long)most);
    const tn_status s = tn_gpt_shape(g, r->part.settings, in, &checked);
    if (s != TN_OK) tn_error_prefix("reader %s", r->letter);
    return s == TN_OK ? tn_decoder_forward(g, &r->shape, in, states, out) : s;
}

static void cut_states(tn_graph *g, const wire_reader *r, tn_ref *states, int64_t first, int64_t n)
{
    for (int64_t l = 0; states && l <= r->shape.layers; l++) states[l] = tn_slice(g, states[l], 1, first, n);
}

tn_status wire_read(tn_graph *g, const wire_reader *r, const char *step, const wire_prefix *p, tn_ref kind,
                    tn_ref tokens, tn_ref *states, tn_forward *out)
{
    TN_RETURN_IF(tn_graph_status(g));
    const int64_t N = tn_ref_dim(g, tokens, 0), n = tn_ref_dim(g, tokens, 1), d = r->shape.dim;
    const int64_t M = p->keys.id ? 0 : tn_ref_dim(g, p->vectors, 1);
    if (n < 3)
        return tn_model_error(
            "rows of %lld tokens have no place for BOS, an answer and EOS; texts that nothing is asked "
            "of (task=ae) are for `tenon eval`",
            (long long)n);
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_ref start = tn_embed(g, tn_slice(g, tokens, 1, 0, 1), table_of(g, r));
    const tn_ref anchors = wire_repeat(g, tn_embed(g, kind, p->anchors), N / tn_ref_dim(g, kind, 0));
    const tn_ref anchor = tn_reshape(g, anchors, tn_shape(N, 1, d));
    const tn_ref part[] = { start, M ? p->vectors : anchor, anchor };
    tn_batch in = { .size = sizeof in, .batch = N, .length = 1 + M + 1 + n - 2, .step = step };
    tn_batch_add(&in, "prefix", tn_concat(g, part, M ? 3 : 2, 1));
    tn_batch_add(&in, "tokens", tn_slice(g, tokens, 1, 1, n - 2)); /* the last one is said, not read */
    if (!M) tn_batch_add(&in, "prefix_keys", p->keys), tn_batch_add(&in, "prefix_values", p->values);
    const tn_status s = forward(g, r, &in, "message, question and answer", states, out);
    tn_region_end(g, scope);
    tn_frozen_end(g);
    TN_RETURN_IF(s);
    out->hidden =
        tn_slice(g, out->hidden, 1, 1 + M, n - 1); /* from the anchor on: the one place where anything moves by one */
    cut_states(g, r, states, 1 + M, n - 1);
    return tn_graph_status(g);
}

/* document (N,t) i32, 0 and then 1 -> 1 where it begins, which ends what a short convolution sees. */
static tn_ref starts(tn_graph *g, tn_ref document)
{
    const int64_t N = tn_ref_dim(g, document, 0), t = tn_ref_dim(g, document, 1);
    const tn_ref in = tn_cast(g, tn_copy(g, document), TN_F32);
    const tn_ref part[] = { tn_fill(g, tn_shape(N, 1), TN_F32, 0), tn_slice(g, in, 1, 0, t - 1) };
    const tn_ref step = tn_sub(g, in, t > 1 ? tn_concat(g, part, 2, 1) : part[0]);
    return tn_reshape(g, tn_above(g, tn_reshape(g, step, tn_shape(N * t)), 0.5f), tn_shape(N, t));
}

tn_status wire_read_told(tn_graph *g, const wire_reader *r, const char *step, tn_ref told, tn_ref document, int64_t n,
                         tn_ref *states, tn_forward *out)
{
    TN_RETURN_IF(tn_graph_status(g));
    const int64_t N = tn_ref_dim(g, told, 0), t = tn_ref_dim(g, told, 1) - 1;
    if (t < n - 1)
        return tn_model_error("rows of text of %lld tokens are shorter than their answers", (long long)t + 1);
    tn_batch in = { .size = sizeof in, .batch = N, .length = t, .step = step };
    tn_batch_add(&in, "tokens", tn_slice(g, told, 1, 0, t));
    tn_batch_add(&in, "document", tn_slice(g, document, 1, 0, t));
    tn_batch_add(&in, "reset", starts(g, tn_slice(g, document, 1, 0, t)));
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_status s = forward(g, r, &in, "text, question and answer", states, out);
    tn_region_end(g, scope);
    tn_frozen_end(g);
    TN_RETURN_IF(s);
    out->hidden = tn_slice(g, out->hidden, 1, t - (n - 1), n - 1);
    cut_states(g, r, states, t - (n - 1), n - 1);
    return tn_graph_status(g);
}
