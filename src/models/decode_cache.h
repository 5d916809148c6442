/* Decoding with carried state: what a plan that goes on where the last one ended needs besides tokens.
 *
 *     tn_batch b = { .size = sizeof b, .batch = B, .length = T, .want = { "logits" }, .n_wants = 1 };
 *     tn_batch_add(&b, "tokens", tn_input(g, "tokens", tn_shape(B, T), TN_I32));
 *     tn_decode_cache_inputs(g, &b, capacity);       then model->build(g, settings, &b), adopt, compile, bind
 *     tn_decode_cache_position(bound, &b, position);      before each run: where its first token stands
 *
 * A plan for the prompt (T tokens at once) and one for a single token share the store and hence the states; all have
 * the same B and capacity. A new sequence starts at position 0 with tn_decode_cache_clear, or with marks in tn_in(&b, "reset"). */
#ifndef TN_MODELS_DECODE_CACHE_H
#define TN_MODELS_DECODE_CACHE_H

#include "plan/plan.h"

#include <tenon/model.h>

/* Makes the inputs "cache.position", "cache.keys" and "cache.positions" and marks the batch as cached. */
void tn_decode_cache_inputs(tn_graph *g, tn_batch *b, int64_t capacity);
void tn_decode_cache_position(tn_bound *bound, const tn_batch *b, int64_t position);
/* The same where rows are not equally long. */
void tn_decode_cache_positions(tn_bound *bound, const tn_batch *b, const int64_t *position); /* (B) */
/* Forgets every carried state of the store. */
void tn_decode_cache_clear(tn_store *st);

/* --- caches of a window ------------------------------------------------------------------------------------------------
 *
 * A layer that sees the last `window` tokens needs no cache of all positions. Where the batch has slots its keys and values have
 * tn_decode_window_rows(window) rows, whatever the capacity. A run writes T rows from the sequence's slot on; when they do not
 * fit behind it (slot + T > rows), the rows that are still seen move to the start first, in a plan of its own:
 *
 *     tn_decode_cache_slots(bound, &b, slot);        before each run, beside the positions; 0 where a sequence starts
 *     g: tn_decode_cache_move(g, tn_plan_graph(plan), B)      the plan that moves rows: "cache.shift" i32 (B)
 *
 * T may be tn_decode_window_room(window) at most. Rows move by multiples of the tiles in which attention adds: it adds the same
 * numbers in the same order as in a cache of all positions. */

int64_t tn_decode_window_rows(int64_t window);
int64_t tn_decode_window_room(int64_t window);
/* The slot that a slot becomes when rows move: by the difference. */
int64_t tn_decode_window_moved(int64_t window, int64_t slot);

/* Makes the inputs "cache.slot" and "cache.slot_keys": caches of a window may be shorter than the capacity. */
void tn_decode_cache_slides(tn_graph *g, tn_batch *b);
void tn_decode_cache_slots(tn_bound *bound, const tn_batch *b, const int64_t *slot); /* (B) */
/* The window of the graph's caches whose rows move, or 0: there are none. */
int64_t tn_decode_cache_window(const tn_graph *g);
/* Adds to an empty graph what moves the rows of those of another one, whose batch is B. */
void tn_decode_cache_move(tn_graph *g, const tn_graph *of, int64_t B);

/* --- for models ----------------------------------------------------------------------------------------------------------- */

/* The state under this name in the open scope, or none where the batch has no cache; and leaving `after`
 * behind in it (nothing where `state` is none), as far as tn_in(b, "commit") says. */
tn_ref tn_decode_cache_state(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims);
/* The same for what attention looks back on: in bf16 where the graph rounds the operands of its products to that, as they would be
 * rounded on every look. */
tn_ref tn_decode_cache_kv(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims);
/* Whether a layer that sees so many tokens (0: all) keeps them in tn_decode_window_rows(window) rows, at the batch's "slot". Not where
 * a layer before it has another window: its cache then has all positions. */
bool tn_decode_cache_is_short(const tn_graph *g, const tn_batch *b, int64_t window);
/* tn_decode_cache_kv of such a layer. */
tn_ref tn_decode_cache_short(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims, int64_t window);
void tn_decode_cache_store(tn_graph *g, const tn_batch *b, tn_ref state, tn_ref after);

#endif
