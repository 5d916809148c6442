/* The decoder of the text bridge: gpt behind a prefix that is the surface, cut into pieces. State prefix-1 says the first token. */
#include "models/bridge/bridge.h"

#include "models/encoder.h"

#include <math.h>
#include <stdio.h>

tn_status bridge_decoder_open(tn_graph *g, const tn_settings *st, const bridge_config *c, tn_part *out)
{
    char vocab[32], context[48];
    const char *const words[] = { "shape=gpt2", vocab, context, NULL };
    snprintf(vocab, sizeof vocab, "vocab=%lld", (long long)c->vocab);
    snprintf(context, sizeof context, "train.context=%lld", (long long)(c->prefix + c->text));
    return tn_part_open(g, st, "decoder", "gpt", words, out);
}

/* unit (B,S) -> (B,prefix,d): numbers of size 1, by one map for all pieces; places tell them apart. */
static tn_ref prefix_of(tn_graph *g, const tn_part *p, const bridge_config *c, tn_ref unit)
{
    const int64_t B = tn_ref_dim(g, unit, 0), P = c->prefix;
    const tn_ref pieces = tn_reshape(g, tn_scale(g, unit, sqrtf((float)c->cells)), tn_shape(B, P, c->cells / P));
    return tn_dense(g, pieces, "prefix", tn_settings_int(p->settings, "dim"), TN_ACT_NONE);
}

tn_status bridge_decode(tn_graph *g, const tn_part *p, const bridge_config *c, const char *step, tn_ref unit,
                        tn_ref tokens, tn_forward *out)
{
    tn_batch in = {
        .size = sizeof in, .batch = tn_ref_dim(g, unit, 0), .length = c->prefix + c->text - 1, .step = step
    };
    tn_batch_add(&in, "prefix", prefix_of(g, p, c, unit));
    tn_batch_add(&in, "tokens", tn_slice(g, tokens, 1, 0, c->text - 1)); /* nothing follows the last */
    const tn_status s = tn_part_forward(g, p, &in, out);
    if (s == TN_OK) out->hidden = tn_slice(g, out->hidden, 1, c->prefix - 1, c->text);
    return s;
}

/* Caches, where there are any, have the decoder's own length, whatever whoever samples asks for. */
static tn_batch part_of(const bridge_config *c, const tn_batch *b, int64_t length)
{
    return (tn_batch){ .size = sizeof(tn_batch),
                       .batch = b->batch,
                       .length = length,
                       .step = b->step,
                       .cached = b->cached,
                       .capacity = c->prefix + c->text };
}

tn_status bridge_decode_start(tn_graph *g, const tn_part *p, const bridge_config *c, const tn_batch *b, tn_ref unit,
                              tn_forward *out)
{
    tn_batch in = part_of(c, b, c->prefix);
    tn_batch_add(&in, "prefix", prefix_of(g, p, c, unit));
    if (b->cached) {
        tn_batch_add(&in, "position", tn_fill(g, tn_shape(1), TN_I32, 0));
        tn_batch_add(&in, "keys", tn_fill(g, tn_shape(1), TN_I32, (float)c->prefix));
    }
    const tn_status s = tn_part_forward(g, p, &in, out);
    if (s == TN_OK) out->hidden = tn_slice(g, out->hidden, 1, c->prefix - 1, 1);
    return s;
}

tn_status bridge_decode_token(tn_graph *g, const tn_part *p, const bridge_config *c, const tn_batch *b, tn_forward *out)
{
    static const char *const names[] = { "tokens", "position", "keys", "positions" };
    tn_batch in = part_of(c, b, b->length);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tn_batch_add(&in, names[i], tn_in(b, names[i]));
    return tn_part_forward(g, p, &in, out);
}
