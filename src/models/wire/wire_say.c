/* A reader that goes on token by token: what it has read stands in its caches. The same layout as wire_read's.
 *
 * With "message" (B,slots,width) and "kind" (B) a batch opens: of its tokens (B,T) the first is BOS, behind which P and the anchor come,
 * and the others are what is asked. Without, tokens follow those before them, or begin a row of text. Positions are the caller's
 * (models/decode_cache.h): a batch that opens begins behind the keys of P where these are keys, else at 0, and ends at M + 1 + T either way. */
#include "models/wire/wire.h"

#include "base/status.h"

static const wire_reader *find(const wire_config *c, char letter)
{
    for (int64_t i = 0; i < c->readers; i++)
        if (c->reader[i].letter[0] == letter) return &c->reader[i];
    return NULL;
}

/* BOS ; P ; anchor, and the keys and values of P, into the batch `in`; the tokens behind them. */
static void open_row(tn_graph *g, const wire_config *c, const wire_reader *r, const tn_batch *b, tn_batch *in)
{
    const tn_ref tokens = tn_in(b, "tokens");
    const int64_t B = b->batch, T = tn_ref_dim(g, tokens, 1), d = r->shape.dim;
    const wire_prefix p = wire_adapt(g, c, r, tn_in(b, "message"));
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_ref table = tn_matrix(g, "embed", tn_shape(r->shape.vocab, d), tn_normal(0.02f));
    tn_region_end(g, scope);
    tn_frozen_end(g);
    const tn_ref anchor = tn_reshape(g, tn_embed(g, tn_in(b, "kind"), p.anchors), tn_shape(B, 1, d));
    const tn_ref start = tn_embed(g, tn_slice(g, tokens, 1, 0, 1), table);
    const tn_ref part[] = { start, p.keys.id ? anchor : p.vectors, anchor };
    tn_batch_add(in, "prefix", tn_concat(g, part, p.keys.id ? 2 : 3, 1));
    if (T > 1) tn_batch_add(in, "tokens", tn_slice(g, tokens, 1, 1, T - 1));
    if (p.keys.id) tn_batch_add(in, "prefix_keys", p.keys), tn_batch_add(in, "prefix_values", p.values);
}

tn_status wire_say_shape(tn_graph *g, const tn_settings *st, char letter, wire_say *out)
{
    wire_config c;
    TN_RETURN_IF(wire_config_read(g, st, NULL, &c));
    const wire_reader *r = find(&c, letter);
    if (!r) return tn_model_error("there is no reader %c", letter);
    *out = (wire_say){ .slots = c.slots,
                       .own = c.shared + c.private_slots,
                       .width = c.width,
                       .vocab = r->shape.vocab,
                       .context = r->shape.context,
                       .keys = c.place == WIRE_KEYS };
    return TN_OK;
}

tn_status wire_build_say(tn_graph *g, const tn_settings *st, const tn_batch *b, char letter)
{
    static const char *const same[] = { "position", "keys", "positions", "commit" };
    wire_config c;
    tn_forward f;
    TN_RETURN_IF(wire_config_read(g, st, NULL, &c));
    const wire_reader *r = find(&c, letter);
    if (!r) return tn_model_error("there is no reader %c", letter);
    tn_batch in = { .size = sizeof in,
                    .batch = b->batch,
                    .length = b->length,
                    .step = b->step,
                    .cached = true,
                    .capacity = b->capacity };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (tn_in(b, same[i]).id) tn_batch_add(&in, same[i], tn_in(b, same[i]));
    if (tn_in(b, "message").id) open_row(g, &c, r, b, &in);
    else tn_batch_add(&in, "tokens", tn_in(b, "tokens"));
    tn_frozen_begin(g);
    const tn_region scope = tn_region_begin(g, "%s", r->letter);
    const tn_status s = tn_decoder_forward(g, &r->shape, &in, NULL, &f);
    tn_region_end(g, scope);
    tn_frozen_end(g);
    TN_RETURN_IF(s);
    const tn_ref last = tn_slice(g, f.hidden, 1, b->length - 1, 1), logits = tn_linear(g, last, f.head);
    tn_output(g, "logits", tn_ref_dtype(g, logits) == TN_F32 ? logits : tn_cast(g, logits, TN_F32));
    return tn_graph_status(g);
}
