/* Scales (hten): a layer as a mixture of layers, each on averages of several tokens. Causal: an average is read from
 * its last token on. Whole sequences, or chunks of whole averages (b->chunk), are computed at once; decoding goes token
 * by token. */
#include "models/ten/ten.h"

/* A layer on averages of s tokens. An average is known when its last token is: token t reads the output of average
 * floor((t+1)/s) - 1, and before there is one what the chunk before left, or zero. A sequence too short for one is filled
 * up with zeros nobody reads. */
static tn_ref at_scale(ten_net *n, tn_ref x, const tn_batch *b, char kind, int64_t s)
{
    tn_graph *g = n->g;
    const int64_t B = b->batch, T = b->length, m = T < s ? 1 : T / s, d = n->c->dim;
    const tn_ref held = tn_decode_cache_state(g, b, "held", tn_shape(B, 1, d));
    tn_batch few = *b;
    few.length = m;
    if (T < s) {
        const tn_ref filled[] = { x, tn_fill(g, tn_shape(B, s - T, d), TN_F32, 0) };
        x = tn_concat(g, filled, 2, 1);
    }
    const tn_ref whole = tn_reshape(g, tn_slice(g, x, 1, 0, m * s), tn_shape(B, m, s, d));
    const tn_ref y = tn_linear(g, ten_block(n, tn_mean(g, whole, 2), &few, kind),
                               tn_param(g, "up", tn_shape(d, d), tn_normal(0.02f)));
    const tn_ref known[] = { held.id ? held : tn_fill(g, tn_shape(B, 1, d), TN_F32, 0), y };
    const tn_ref apart = tn_reshape(g, tn_concat(g, known, 2, 1), tn_shape(B, m + 1, 1, d));
    const tn_ref repeated = tn_add(g, tn_fill(g, tn_shape(B, m + 1, s, d), TN_F32, 0), apart);
    tn_decode_cache_store(g, b, held, tn_slice(g, y, 1, m - 1, 1));
    return tn_slice(g, tn_reshape(g, repeated, tn_shape(B, (m + 1) * s, d)), 1, 1, T);
}

/* The same for one token x (B,1,d) that carries on: sums and counts until an average is full, then lets the layer move and
 * holds its output. What the layer computes in between is not kept. */
static tn_ref at_scale_step(ten_net *n, tn_ref x, const tn_batch *b, char kind, int64_t s)
{
    tn_graph *g = n->g;
    const int64_t B = b->batch, d = n->c->dim;
    const tn_ref count = tn_decode_cache_state(g, b, "count", tn_shape(B, 1)),
                 sum = tn_decode_cache_state(g, b, "sum", tn_shape(B, 1, d));
    const tn_ref held = tn_decode_cache_state(g, b, "held", tn_shape(B, 1, d));
    const tn_ref counted = tn_affine(g, count, 1, 1), summed = tn_add(g, sum, x);
    const tn_ref full = tn_clamp_min(g, tn_affine(g, counted, 1, (float)(1 - s)), 0); /* 1 at the last token, else 0 */
    const tn_ref open = tn_affine(g, full, -1, 1), shape3 = tn_reshape(g, full, tn_shape(B, 1, 1));
    const tn_ref asked = tn_in(b, "commit");
    tn_batch few = *b;
    tn_batch_add(&few, "commit", asked.id ? tn_mul(g, full, tn_reshape(g, asked, tn_shape(B, 1))) : full);
    const tn_ref y = tn_linear(g, ten_block(n, tn_scale(g, summed, 1.f / (float)s), &few, kind),
                               tn_param(g, "up", tn_shape(d, d), tn_normal(0.02f)));
    const tn_ref now = tn_add(g, held, tn_mul(g, tn_sub(g, y, held), shape3));
    tn_decode_cache_store(g, b, count, tn_mul(g, counted, open));
    tn_decode_cache_store(g, b, sum, tn_mul(g, summed, tn_reshape(g, open, tn_shape(B, 1, 1))));
    tn_decode_cache_store(g, b, held, now);
    return now;
}

static tn_ref coarse(ten_net *n, tn_ref x, const tn_batch *b, char kind, int64_t s)
{
    return b->cached && !b->chunk ? at_scale_step(n, x, b, kind, s) : at_scale(n, x, b, kind, s);
}

/* The mixture of a layer's scales, with weights softmax(mix). */
tn_ref ten_scales(ten_net *n, tn_ref x, const tn_batch *b, char kind)
{
    tn_graph *g = n->g;
    const int count = n->c->n_scales;
    const tn_ref weight = tn_softmax(g, tn_param(g, "mix", tn_shape(count), tn_constant(1.f / (float)count)));
    tn_ref sum = TN_NONE;
    for (int i = 0; i < count; i++) {
        const int64_t s = n->c->scale[i];
        tn_region r = tn_region_begin(g, "scale%lld", (long long)s);
        n->scale = s;
        const tn_ref y =
            tn_mul(g, s == 1 ? ten_block(n, x, b, kind) : coarse(n, x, b, kind, s), tn_slice(g, weight, 0, i, 1));
        sum = i ? tn_add(g, sum, y) : y;
        tn_region_end(g, r);
    }
    return sum;
}
