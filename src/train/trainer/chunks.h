/* A training step over long sequences in chunks of time, with exact gradients (plan.recompute=chunk).
 *
 * T tokens are cut into n chunks of C (the last may be shorter). The forward pass keeps only the states at their
 * boundaries. The backward pass recomputes one chunk at a time and differentiates it from the gradient of its final
 * state. Memory: n states and the activations of one chunk. Not for attention, whose past is a cache by position:
 * tn_chunks_new says so.
 *     tn_chunks_new (plans) -> tn_chunks_memory -> tn_chunks_bind (allocates) -> fill the feed ->
 * tn_chunks_queue_grad -> tn_chunks_loss */
#ifndef TN_TRAIN_CHUNKS_H
#define TN_TRAIN_CHUNKS_H

#include "train/trainer/trainer.h"

typedef struct tn_chunks tn_chunks;

typedef struct tn_chunks_options {
    const tn_trainer_options *trainer;
    const tn_graph_options *graph;
    int64_t chunk;            /* C < T */
    const tn_inputs *inputs;  /* borrowed, like the next */
    const char *const *wants; /* outputs of evaluations, NULL at the end */
    tn_store *store;
    tn_context *context;
    tn_status (*fits)(void *ctx, const tn_graph *g); /* asked before the store takes what a graph names */
    void *ctx;
} tn_chunks_options;

/* Tokens of a sequence in a chunk, by plan.recompute and plan.chunk; 0: the sequence stays whole. */
int64_t tn_chunk_length(const tn_settings *st, tn_device device, int64_t batch, int64_t length);
/* The most losses (tn_chunks_losses) of a batch whose rows have this length or are shorter; 1 where they stay whole. */
int64_t tn_chunk_most_losses(const tn_model *model, const tn_settings *st, tn_device device, int64_t batch,
                             int64_t length);

tn_status tn_chunks_new(const tn_chunks_options *o, tn_chunks **out);
tn_status tn_chunks_bind(tn_chunks *c);
void tn_chunks_free(tn_chunks *c);
tn_feed tn_chunks_feed(tn_chunks *c);

/* The value of the model's schedule i in all plans that read it; false: none does. */
bool tn_chunks_schedule(const tn_chunks *c, size_t i, float value);
/* As tn_trainer_grad, without waiting for it, and tn_trainer_eval; again: no weight has changed since the last call; scale: of all gradients. */
tn_status tn_chunks_queue_grad(tn_chunks *c, int64_t seed, int64_t step, bool again, float scale);
tn_status tn_chunks_eval(tn_chunks *c, bool again, float *loss);
/* The loss of the last batch, waiting for it; or the losses of the parts, n numbers where the plans run, and what each counts in the
 * batch's. Both are there until the next call. */
tn_status tn_chunks_loss(tn_chunks *c, float *loss);
const float *tn_chunks_losses(const tn_chunks *c, size_t *n, const double **factor);
/* "loss", "xent" or "logits" (B,T,vocab) of the last evaluation, or NULL. */
const float *tn_chunks_output(const tn_chunks *c, const char *name, int64_t *count);

/* The plan that most of the time goes to. */
tn_bound *tn_chunks_bound(const tn_chunks *c, bool training);
/* The training plans of a batch one after the other (i = 0, 1, ...) and how often each runs in it; NULL: there are no more. */
tn_bound *tn_chunks_part(const tn_chunks *c, int i, int64_t *runs);
/* Adds buffers, inputs and frames; the largest arena and what lies in it. */
void tn_chunks_memory(const tn_chunks *c, tn_memory_plan *m, size_t *arena);

#endif
