/* From a text to Z: features (bytes, or the states of a frozen sender), layers over them, and a pooler whose learned queries each take
 * what they need. Padding reaches nothing: attention looks at what counts alone.
 *
 *     H = layers(features + places)
 *     U = look(Q, H + parts) + Q;  g = sigmoid(W LN(U) + b);  U <- g U + (1 - g) Q
 *     Y = U + W2 gelu(W1 LN(U));  Z = Wz LN(Y) + bz
 *
 * Slots that are one reader's own have a pooler of their own over the same H. */
#include "models/wire/wire.h"

#include "base/status.h"
#include "models/blocks.h"
#include "models/encoder.h"

#include <math.h>
#include <stdio.h>

#define FOCUS 1    /* of the slots on their places, at first */
enum { FINE = 8 }; /* parts of a text for each slot */

typedef struct features {
    tn_ref x;       /* (B,T,dim) */
    tn_ref lengths; /* i32 (B) */
} features;

static tn_ref with_places(tn_graph *g, const wire_config *c, tn_ref x)
{
    const int64_t T = tn_ref_dim(g, x, 1);
    const int64_t all = T > c->places ? T : c->places;
    const tn_ref places = tn_frozen(g, "places", tn_shape(all, c->dim), TN_F32, tn_encoder_waves(1, 0, 1));
    return tn_add(g, x, T < all ? tn_slice(g, places, 0, 0, T) : places);
}

/* Slots begin by looking along the text, whatever its length: a short one has them all at work, and what they have learned on it they do on
 * longer ones too. So a token has the place of its part of the text. */
static tn_ref with_parts(tn_graph *g, const wire_config *c, const features *f, int64_t slots)
{
    const int64_t n = FINE * slots;
    const tn_ref places = tn_frozen(g, "parts", tn_shape(n, c->dim), TN_F32, tn_encoder_waves(1, 0, 1));
    return tn_add(g, f->x, tn_embed(g, tn_text_part(g, f->lengths, tn_ref_dim(g, f->x, 1), n), places));
}

static features from_bytes(tn_graph *g, const wire_config *c, const tn_batch *b)
{
    const tn_ref table = tn_param(g, "embed", tn_shape(256, c->dim), tn_normal(1));
    return (features){ tn_embed(g, tn_in(b, "bytes"), table), tn_in(b, "lengths") };
}

/* Of the sender: its tokens of the text with its question where it sees that, or of the text; and their number. */
static tn_ref sent(const wire_config *c, const tn_batch *b, const char *both, const char *text)
{
    const tn_ref x = tn_in(b, both);
    return x.id ? x : wire_in(b, &c->sender, text);
}

/* States of a frozen model over its own tokens of the text. They depend on nothing that is trained. */
tn_status wire_send(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *x)
{
    enum { MOST_LAYERS = 1024 };
    const wire_reader *r = &c->sender;
    const tn_ref tokens = sent(c, b, "sent", "text");
    tn_ref states[MOST_LAYERS + 1];
    tn_forward f;
    tn_batch in = { .size = sizeof in, .batch = b->batch, .length = tn_ref_dim(g, tokens, 1), .step = b->step };
    tn_batch_add(&in, "tokens", tokens);
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_status s = tn_decoder_forward(g, &r->shape, &in, states, &f);
    tn_region_end(g, scope);
    tn_frozen_end(g);
    TN_RETURN_IF(s);
    const tn_ref h = c->sender_layer < r->shape.layers ? states[c->sender_layer] : f.hidden;
    *x = tn_rmsnorm(g, tn_stop_gradient(g, h), TN_NONE);
    return tn_graph_status(g);
}

/* What was kept of it is there for training texts alone: evaluations ask it. */
static tn_status from_sender(tn_graph *g, const wire_config *c, const tn_batch *b, features *out)
{
    const tn_graph_options *o = tn_graph_get_options(g);
    const wire_reader *r = &c->sender;
    out->lengths = sent(c, b, "sent_length", "text_length");
    const tn_ref kept = c->features && o->training ? tn_in(b, "features") : TN_NONE;
    if (!kept.id) return wire_send(g, c, b, &out->x);
    if (tn_ref_dim(g, kept, 2) != r->shape.dim)
        return tn_model_error("features are %lld wide, and sender %s is %lld", (long long)tn_ref_dim(g, kept, 2),
                              r->letter, (long long)r->shape.dim);
    out->x = o->activation == TN_F32 ? kept : tn_cast(g, kept, o->activation);
    return tn_graph_status(g);
}

/* H of `f` (B,T,d) to n slots (B,n,width), in the scope NAME. */
static tn_ref pool(tn_graph *g, const wire_config *c, const char *name, const features *f, int64_t n)
{
    const int64_t B = tn_ref_dim(g, f->x, 0), d = c->dim;
    const tn_region r = tn_region_begin(g, "%s", name);
    const tn_ref queries =
        tn_param(g, "queries", tn_shape(n, d), tn_encoder_waves(1, FINE / 2.f, FINE), .no_decay = true);
    const tn_ref text = with_parts(g, c, f, n);
    const tn_ref q = tn_add(g, tn_fill(g, tn_shape(B, n, d), TN_F32, 0), queries);
    tn_ref u = tn_add(g, tn_encoder_look(g, c->heads, FOCUS, q, text, f->lengths), q);
    const tn_ref gate = tn_sigmoid(g, tn_dense(g, tn_block_layernorm(g, u, "norm1", 0), "gate", d, TN_ACT_NONE));
    u = tn_add(g, q, tn_mul(g, gate, tn_sub(g, u, q)));
    const tn_ref inner = tn_dense(g, tn_block_layernorm(g, u, "norm2", 0), "ffn1", 2 * d, TN_ACT_GELU_ERF);
    u = tn_add(g, u, tn_dense(g, inner, "ffn2", d, TN_ACT_NONE));
    const tn_ref z = tn_dense(g, tn_block_layernorm(g, u, "norm3", 0), "z", c->width, TN_ACT_NONE);
    tn_region_end(g, r);
    return tn_floats(g, z);
}

static tn_status learned(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *z)
{
    const tn_encoder_shape shape = { c->heads, c->ffn, c->layers, c->dropout };
    features f = { TN_NONE, TN_NONE };
    tn_ref part[1 + WIRE_READERS];
    char name[16];
    int n = 0;
    if (c->encoder == WIRE_SENDER) TN_RETURN_IF(from_sender(g, c, b, &f));
    const tn_region r = tn_region_begin(g, "encoder");
    if (c->encoder == WIRE_SENDER) f.x = tn_dense(g, f.x, "in", c->dim, TN_ACT_NONE);
    else f = from_bytes(g, c, b);
    f.x = tn_encoder_layers(g, &shape, tn_dropout(g, with_places(g, c, f.x), c->dropout), f.lengths);
    if (c->shared) part[n++] = pool(g, c, "pool", &f, c->shared);
    for (int64_t i = 0; i < c->readers && c->private_slots; i++) {
        snprintf(name, sizeof name, "pool_%s", c->reader[i].letter);
        part[n++] = pool(g, c, name, &f, c->private_slots);
    }
    *z = n > 1 ? tn_concat(g, part, n, 1) : part[0];
    tn_region_end(g, r);
    return tn_graph_status(g);
}

/* Layers over the slots, which see each other here. */
static tn_ref refine(tn_graph *g, const wire_config *c, tn_ref z)
{
    const tn_encoder_shape shape = { 4, 4 * c->width, c->refine, c->dropout };
    if (!c->refine) return z;
    const tn_region r = tn_region_begin(g, "encoder.refiner");
    z = tn_block_layernorm(g, tn_encoder_layers(g, &shape, z, TN_NONE), "norm", 0);
    tn_region_end(g, r);
    return tn_floats(g, z);
}

/* Whole shared slots are dropped in training, the first one never: something is always there. */
static tn_ref drop_slots(tn_graph *g, const wire_config *c, tn_ref z)
{
    const int64_t B = tn_ref_dim(g, z, 0), n = c->shared - 1, rest = c->slots - c->shared;
    if (c->keep >= 1 || !tn_graph_get_options(g)->training || n < 1) return z;
    const tn_ref kept = tn_dropout(g, tn_fill(g, tn_shape(B, n, 1), TN_F32, 1), 1 - c->keep);
    const tn_ref part[] = { tn_slice(g, z, 1, 0, 1), tn_mul(g, tn_slice(g, z, 1, 1, n), kept),
                            rest ? tn_slice(g, z, 1, c->shared, rest) : TN_NONE };
    return tn_concat(g, part, rest ? 3 : 2, 1);
}

static tn_status encode(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *z)
{
    const tn_dims dims = tn_shape(b->batch, c->slots, c->width);
    tn_ref x = TN_NONE;
    if (c->encoder == WIRE_FREE) { /* no encoder: a latent for each context of the training set */
        const tn_ref table =
            tn_param(g, "free", tn_shape(c->contexts, c->slots * c->width), tn_normal(1), .no_decay = true);
        x = tn_reshape(g, tn_embed(g, tn_in(b, "sample"), table), dims);
    } else if (c->encoder == WIRE_CONSTANT) { /* one latent for all: what a prompt can do that knows no text */
        const tn_ref one = tn_param(g, "constant", tn_shape(c->slots, c->width), tn_normal(1), .no_decay = true);
        x = tn_add(g, tn_fill(g, dims, TN_F32, 0), one);
    } else TN_RETURN_IF(learned(g, c, b, &x));
    *z = refine(g, c, drop_slots(g, c, tn_floats(g, x)));
    return tn_graph_status(g);
}

tn_status wire_encode(tn_graph *g, const wire_config *c, const tn_batch *b, tn_ref *z)
{
    if (c->given) tn_frozen_begin(g);
    const tn_status s = encode(g, c, b, z);
    if (c->given) tn_frozen_end(g);
    return s;
}
