/* A store owns named tensors by role: trainable (with gradient and optimizer memory), frozen (in its file's type, no
 * more), state (saved) and cache (not saved). Trainable tensors lie in buckets: contiguous f32 arrays of parameters,
 * gradients and moments in one fixed order, so that the optimizer, clipping and reduction across ranks each see a few
 * long arrays. */
#ifndef TN_PLAN_STORE_H
#define TN_PLAN_STORE_H

#include "plan/graph.h"

typedef struct tn_store tn_store;

tn_status tn_store_new(tn_device device, uint64_t seed, tn_store **out);
void tn_store_free(tn_store *s);

/* Adds what the graph names and the store lacks (initialised from the store's seed and the tensor's name), and checks
 * the rest. Nothing is added on failure. Call before the graph is compiled. */
tn_status tn_store_adopt(tn_store *s, const tn_graph *g);

/* Frees all caches, so that graphs with caches of other shapes can be adopted. No bound plan may still refer to one. */
void tn_store_drop_caches(tn_store *s);

typedef struct tn_entry {
    const char *name;
    tn_role role;
    tn_dtype dtype;
    tn_dims dims;
    void *data;
    float *grad;    /* trainable only */
    int bucket;     /* trainable only: where it lies */
    int64_t offset; /* elements */
    float lr;
    bool decay;
} tn_entry;

size_t tn_store_count(const tn_store *s);
const tn_entry *tn_store_at(const tn_store *s, size_t i);
const tn_entry *tn_store_find(const tn_store *s, const char *name);

typedef struct tn_bucket {
    int64_t count; /* elements, padding included */
    float *param, *grad, *m, *v; /* (count); m and v exist once tn_store_moments was called */
} tn_bucket;

int tn_store_buckets(const tn_store *s);
const tn_bucket *tn_store_bucket(const tn_store *s, int i);
tn_status tn_store_moments(tn_store *s, int how_many); /* 0, 1 (sgd with momentum) or 2 (adam) */
void tn_store_zero_grad(tn_store *s);
/* Whole arrays by name for the optimizer's plan: "bucket<i>.param|grad|m|v"; NULL when there is none of this size. */
void *tn_store_flat(const tn_store *s, const char *name, int64_t count);

#endif
