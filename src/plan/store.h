/* A store owns named tensors by role: trainable (with gradient and optimizer memory), frozen (in its file's type, no
 * more), state (saved), cache and data (not saved). Trainable tensors lie in buckets: contiguous f32 arrays of
 * parameters, gradients and moments in one fixed order, so that the optimizer, clipping and reduction across ranks each
 * see a few long arrays. */
#ifndef TN_PLAN_STORE_H
#define TN_PLAN_STORE_H

#include "backend/cpu/pool.h"
#include "base/rng.h"
#include "plan/graph.h"

typedef struct tn_store tn_store;

tn_status tn_store_new(tn_device device, uint64_t seed, tn_store **out);
void tn_store_free(tn_store *s);

/* Adds what the graph names and the store lacks (initialised from the store's seed and the tensor's name), and checks
 * the rest. Nothing is added on failure. Call before the graph is compiled. */
tn_status tn_store_adopt(tn_store *s, const tn_graph *g);

/* From now on weights that a graph brings, frozen or not, are not drawn: they are zeros, which take no memory on a CPU, until the caller
 * has loaded them. */
void tn_store_loads_weights(tn_store *s);

/* Frees all caches, so that graphs with caches of other shapes can be adopted. No bound plan may still refer to one. */
void tn_store_drop_caches(tn_store *s);

typedef struct tn_entry {
    const char *name;
    tn_role role;
    tn_dtype dtype;
    tn_dims dims;
    bool weight;  /* a parameter, trained or frozen: files of weights hold it */
    bool trained; /* ... that is frozen, if it is, only because the whole graph was */
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
    int64_t count;               /* elements, padding included */
    float *param, *grad, *m, *v; /* (count); m and v exist once tn_store_moments was called */
} tn_bucket;

int tn_store_buckets(const tn_store *s);
const tn_bucket *tn_store_bucket(const tn_store *s, int i);
tn_status tn_store_moments(tn_store *s, int how_many); /* 0, 1 (sgd with momentum) or 2 (adam) */
void tn_store_zero_grad(tn_store *s);
/* --- the host's hands on it: addresses in an entry or a bucket are the device's ---------------------------------------- */

tn_device tn_store_device(const tn_store *s);

/* Memory that grows as it is asked for; starts as { 0 }. */
typedef struct tn_host_copy {
    void *memory;
    size_t bytes;
} tn_host_copy;

void tn_host_copy_free(tn_host_copy *h);
/* The bytes at `data` for reading: `data` itself where the host can read it, else downloaded into h. NULL when that fails. */
const void *tn_store_read(const tn_store *s, const void *data, size_t bytes, tn_host_copy *h);
tn_status tn_store_write(const tn_store *s, void *data, const void *host, size_t bytes);
/* Numbers first .. first+n-1 of e from `numbers` (n) of type `from`, aligned to it, into the type of e. */
tn_status tn_store_put(const tn_store *s, const tn_entry *e, int64_t first, int64_t n, const void *numbers,
                       tn_dtype from);
tn_status tn_store_clear(const tn_store *s, void *data, size_t bytes);

/* For bound plans: what they run in this queue uses the store. Reading and writing wait for those queues alone, not for all that a device
 * does for others. As often detached as attached. */
tn_status tn__store_attach(tn_store *s, void *queue);
void tn__store_detach(tn_store *s, void *queue);

/* Whole arrays by name for the optimizer's plan: "bucket<i>.param|grad|m|v"; NULL when there is none of this size. */
void *tn_store_flat(const tn_store *s, const char *name, int64_t count);

/* The first values of a tensor (initial.c): its numbers first .. first+n-1 as dtype (first: a multiple of 4), the same in any parts and on
 * any number of threads; pool NULL: the caller alone. A model's own function (TN_INIT_CALL) fills the whole instead. */
void tn_initial_part(tn_pool *pool, void *out, tn_dtype dtype, int64_t first, int64_t n, const tn_init *init, tn_rng r);
void tn_initial_whole(float *x, tn_dims dims, const tn_init *init, tn_rng r);

#endif
