/* Placement: which tensors share memory, and where everything in the arena lies. */
#ifndef TN_PLAN_PLACE_H
#define TN_PLAN_PLACE_H

#include "plan/graph.h"

typedef struct tn_slot {
    tn_role role;
    int32_t tensor;      /* the tensor that owns the slot */
    size_t bytes;        /* rounded up to 64 */
    size_t offset;       /* in the arena */
    int32_t first, last; /* nodes between which it is alive */
    int ext;             /* index among the outside tensors, -1 for the arena */
} tn_slot;

typedef struct tn_placement {
    int32_t *slot_of; /* by tensor: its base's slot, -1 = not used */
    tn_slot *slot;
    int n_slots, n_externs;
    int32_t *extern_tensor; /* by ext: tensor id */
    size_t arena_bytes, activation_peak;
} tn_placement;

typedef struct tn_place_options {
    tn_device device;
    int threads;
    bool apart;      /* no memory is used twice, so that fewer nodes have to wait for others */
    size_t prologue; /* what the first nodes make stays until the end: the next run may read it again */
} tn_place_options;

/* Adds workspace tensors to the nodes, then places everything. Memory comes from the graph's own arena. */
void tn_pass_place(tn_graph *g, const tn_place_options *o, tn_placement *p);

#endif
