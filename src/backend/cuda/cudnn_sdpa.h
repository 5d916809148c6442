/* Attention as a graph of cuDNN operations: cudnn_attention.h says what it computes. */
#ifndef TN_BACKEND_CUDA_CUDNN_SDPA_H
#define TN_BACKEND_CUDA_CUDNN_SDPA_H

#include "backend/cuda/cudnn_graph.h"

/* A graph's memories, and from TN_SDPA_SCALE on its scalars. */
enum {
    TN_SDPA_Q,
    TN_SDPA_K,
    TN_SDPA_V,
    TN_SDPA_Y,
    TN_SDPA_VIEWS,
    TN_SDPA_LSE = TN_SDPA_VIEWS,
    TN_SDPA_SCALE,  /* of scores */
    TN_SDPA_HIDDEN, /* what hidden scores become */
    TN_SDPA_SLOTS
};

/* What decides a plan: no pointers. Compared by its bytes: zeroed before it is filled. */
typedef struct tn_sdpa_shape {
    int64_t B, T, S, H, KV, D;
    int64_t step[TN_SDPA_VIEWS][3]; /* of sequence, token, head, in elements */
    int32_t causal, has_lse;
} tn_sdpa_shape;

/* id (TN_SDPA_SLOTS): of each memory and scalar in the graph; 0 stays where it has none. */
void tn_sdpa_compose(tn_dnn_graph *g, const tn_sdpa_shape *s, int64_t *id);

#endif
