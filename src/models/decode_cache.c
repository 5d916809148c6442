/* Inputs and states of plans that continue a sequence. States are caches: checkpoints do not hold them. */
#include "models/decode_cache.h"

#include "plan/graph.h"

#include <tenon/ops.h>

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

/* --- caches of a window ----------------------------------------------------------------------------------------------- */

/* Rows move by multiples of STEP: the tiles of keys of the CPU's attention (TN_ATT_KEYS) then hold what they held. Pieces of a prompt
 * have up to ROOM tokens, however short the window. */
enum { STEP = 64, ROOM = 256 };

int64_t tn_decode_window_room(int64_t window) { return window > ROOM ? window : ROOM; }

/* Behind the most that is left when rows have moved. */
int64_t tn_decode_window_rows(int64_t window)
{
    return (window - 1 + STEP - 1 + tn_decode_window_room(window) + STEP - 1) / STEP * STEP;
}

/* The next token sees the window - 1 rows before it. */
int64_t tn_decode_window_moved(int64_t window, int64_t slot)
{
    const int64_t unseen = slot - (window - 1);
    return unseen > 0 ? slot - unseen / STEP * STEP : slot;
}

void tn_decode_cache_slides(tn_graph *g, tn_batch *b)
{
    tn_batch_add(b, "slot", tn_input(g, "cache.slot", tn_shape(b->batch), TN_I32));
    tn_batch_add(b, "slot_keys", tn_input(g, "cache.slot_keys", tn_shape(b->batch), TN_I32));
}

void tn_decode_cache_slots(tn_bound *bound, const tn_batch *b, const int64_t *slot)
{
    int32_t *first = tn_bound_data(bound, "cache.slot"), *keys = tn_bound_data(bound, "cache.slot_keys"); /* (B) (B) */
    for (int64_t i = 0; i < b->batch; i++) {
        if (first) first[i] = (int32_t)slot[i];
        if (keys) keys[i] = (int32_t)(slot[i] + b->length);
    }
}

static bool moves(const tn_graph *g, size_t i)
{
    return g->tensor[i].role == TN_ROLE_CACHE && g->tensor[i].base == (int32_t)i && g->tensor[i].window;
}

int64_t tn_decode_cache_window(const tn_graph *g)
{
    for (size_t i = 1; i < g->n_tensors; i++)
        if (moves(g, i)) return g->tensor[i].window;
    return 0;
}

void tn_decode_cache_move(tn_graph *g, const tn_graph *of, int64_t B)
{
    const tn_ref shift = tn_input(g, "cache.shift", tn_shape(B), TN_I32);
    for (size_t i = 1; i < of->n_tensors; i++) {
        const tn_gtensor *t = &of->tensor[i];
        if (moves(of, i))
            tn_cache_shift(g, tn_transpose(g, tn_cache(g, t->name, t->dims, t->dtype), 0, 2, 1, 3), shift);
    }
}

bool tn_decode_cache_is_short(const tn_graph *g, const tn_batch *b, int64_t window)
{
    const int64_t other = tn_decode_cache_window(g);
    return window && tn_in(b, "slot").id && b->capacity > tn_decode_window_rows(window) && (!other || other == window);
}

tn_ref tn_decode_cache_short(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims, int64_t window)
{
    const tn_ref cache = tn_decode_cache_kv(g, b, name, dims);
    if (cache.id) g->tensor[cache.id].window = window;
    return cache;
}

/* --- states ------------------------------------------------------------------------------------------------------------- */

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
    const tn_dtype type = g->options.round == TN_BF16 ? TN_BF16 : g->options.activation == TN_F16 ? TN_F16 : TN_F32;
    return b->cached ? tn_cache(g, name, dims, type) : TN_NONE;
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
