/* Shared by loader*.c and order.c: the plan of a batch says which tokens it holds; filling follows the plan. */
#ifndef TN_DATA_LOADER_PARTS_H
#define TN_DATA_LOADER_PARTS_H

#include "data/loader.h"

/* A random order of n things in constant memory (order.c): a permutation computed from a seed and the epoch. */
typedef struct tn_order {
    uint64_t seed, stream, n;
    int half_bits;
    bool shuffled;
} tn_order;

tn_order tn_order_of(uint64_t n, bool shuffled, uint64_t seed, uint64_t epoch);
uint64_t tn_order_at(const tn_order *o, uint64_t i); /* i < n; a permutation of 0..n-1 */

/* Where a row begins. Pack: place `index` in the order of `epoch`, and on from there; bucket: a part of one document. */
typedef struct tn_segment {
    uint64_t epoch, index, document, offset;
    int64_t length; /* positions; bucket */
} tn_segment;

typedef struct tn_loader_plan {
    tn_loader_cursor start, after;
    bool is_end; /* nothing is left */
    int64_t width;
    tn_segment *rows; /* (B); pack and bucket */
    int64_t rows_n;
} tn_loader_plan;

/* The rows of several batches: shuffled (pack), since neighbours come from one document, or sorted by length (bucket). */
typedef struct tn_window {
    bool loaded;
    tn_loader_cursor start, end; /* of the window */
    tn_segment *v;               /* (capacity) */
    size_t n, capacity;
} tn_window;

/* What planning and filling need to know; set at the open and read only, but for the window. */
typedef struct tn_walk {
    const tn_dataset *data;
    tn_data_split split;
    tn_dataset_counts counts;
    int32_t eot;
    int64_t B, T;
    bool evaluate;
    uint64_t seed;
    tn_loader_mode mode;
    float scale;
    tn_window window; /* the planner's, which is guarded by the loader's lock */
} tn_walk;

/* Buffers of one batch; those of arrays or of tokens. */
typedef struct tn_batch_memory {
    int32_t *tokens, *targets, *reset; /* (B,T) */
    float *features;                   /* (B,sample) */
    int32_t *labels;                   /* (B) */
} tn_batch_memory;

/* The batch that begins at *at: writes its plan and moves *at behind it. */
tn_status tn__loader_plan(tn_walk *w, tn_loader_cursor *at, tn_loader_plan *plan);
/* Fills the memory; *count is the number of targets or samples. */
tn_status tn__loader_fill(const tn_walk *w, const tn_loader_plan *plan, const tn_batch_memory *m, int64_t *count);
/* Where row b of the plan begins. */
tn_status tn__loader_row(const tn_walk *w, const tn_loader_plan *plan, int64_t b, uint64_t *document, uint64_t *offset);

#endif
