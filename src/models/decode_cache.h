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

/* For models: the state under this name in the open scope, or none where the batch has no cache; and leaving `after`
 * behind in it (nothing where `state` is none), as far as tn_in(b, "commit") says. */
tn_ref tn_decode_cache_state(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims);
/* The same for what attention looks back on: in bf16 where the graph rounds the operands of its products to that, as they would be
 * rounded on every look. */
tn_ref tn_decode_cache_kv(tn_graph *g, const tn_batch *b, const char *name, tn_dims dims);
void tn_decode_cache_store(tn_graph *g, const tn_batch *b, tn_ref state, tn_ref after);

#endif
