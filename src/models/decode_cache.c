/* Inputs and states of plans that continue a sequence. States are caches: checkpoints do not hold them. */
#include "models/decode_cache.h"

#include <string.h>

void tn_decode_cache_inputs(tn_graph *g, tn_batch *b, int64_t capacity)
{
    b->cached = true;
    b->capacity = capacity;
    tn_batch_add(b, "position", tn_input(g, "cache.position", tn_shape(b->batch), TN_I32));
    tn_batch_add(b, "keys", tn_input(g, "cache.keys", tn_shape(b->batch), TN_I32));
    tn_batch_add(b, "positions", tn_input(g, "cache.positions", tn_shape(b->batch, b->length), TN_I32));
}

/* Row i begins at position[i step]. An input that the model does not read is not part of its plan. */
static void place_rows(tn_bound *bound, const tn_batch *b, const int64_t *position, int64_t step)
{
    int32_t *first = tn_bound_data(bound, "cache.position"), *keys = tn_bound_data(bound, "cache.keys"); /* (B) (B) */
    int32_t *each = tn_bound_data(bound, "cache.positions");                                             /* (B,T) */
    for (int64_t i = 0; i < b->batch; i++) {
        const int64_t p = position[i * step];
        if (first) first[i] = (int32_t)p;
        if (keys) keys[i] = (int32_t)(p + b->length);
        for (int64_t t = 0; each && t < b->length; t++) each[i * b->length + t] = (int32_t)(p + t);
    }
}

void tn_decode_cache_position(tn_bound *bound, const tn_batch *b, int64_t position)
{
    place_rows(bound, b, &position, 0);
}

void tn_decode_cache_positions(tn_bound *bound, const tn_batch *b, const int64_t *position)
{
    place_rows(bound, b, position, 1);
}

void tn_decode_cache_clear(tn_store *st)
{
    for (size_t i = 0; i < tn_store_count(st); i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (e->role == TN_ROLE_CACHE)
            (void)tn_store_clear(st, e->data, (size_t)tn_dims_count(e->dims) * tn_dtype_bytes(e->dtype));
    }
}

tn_ref tn_decode_cache_state(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims)
{
    return b->cached ? tn_cache(g, name, dims, TN_F32) : TN_NONE;
}

tn_ref tn_decode_cache_kv(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims)
{
    return b->cached ? tn_cache(g, name, dims, g->options.round == TN_BF16 ? TN_BF16 : TN_F32) : TN_NONE;
}

void tn_decode_cache_store(tn_graph *g, const tn_batch *b, tn_ref state, tn_ref after)
{
    if (!state.id) return;
    if (tn_in(b, "commit").id) {
        tn_dims each = { .rank = tn_ref_dims(g, state).rank, .dim = { b->batch, 1, 1, 1, 1, 1 } };
        const tn_ref taken = tn_reshape(g, tn_in(b, "commit"), each), left = tn_affine(g, taken, -1, 1);
        after = tn_add(g, tn_mul(g, after, taken), tn_mul(g, state, left)); /* of 0 and 1 without rounding */
    }
    tn_assign(g, state, after);
}
