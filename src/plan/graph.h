/* The graph's own structures: tensors, nodes, regions. For the passes in this folder only; models and ops see
 * <tenon/graph.h> and <tenon/op.h>. Ids index g->tensor; id 0 is never used. */
#ifndef TN_PLAN_GRAPH_H
#define TN_PLAN_GRAPH_H

#include "base/alloc.h"
#include "ops/copy/copy.h"
#include "ops/fill/fill.h"

#include <tenon/op.h>

typedef enum tn_role {
    TN_ROLE_ACTIVATION, /* in the arena */
    TN_ROLE_WORK,       /* in the arena, for one node */
    TN_ROLE_PARAM,      /* the rest is outside: see store.h */
    TN_ROLE_GRAD,       /* gradient of a parameter: always added to */
    TN_ROLE_FROZEN,
    TN_ROLE_STATE,
    TN_ROLE_CACHE,
    TN_ROLE_DATA,  /* samples that stay where the plan runs: no plan writes them, no checkpoint has them */
    TN_ROLE_FLAT,  /* a whole bucket of the store, for the optimizer */
    TN_ROLE_INPUT, /* the rest belongs to one bound plan */
    TN_ROLE_SCALAR,
    TN_ROLE_DINPUT, /* gradient of an input, wanted by the caller */
} tn_role;

typedef struct tn_gtensor {
    const char *name; /* full path, or NULL */
    tn_role role;
    tn_dtype dtype;
    tn_dims dims;
    int64_t stride[TN_MAX_RANK]; /* elements */
    int64_t offset;              /* elements from the start of the base */
    int32_t base;                /* the tensor that owns the memory; its own id if it does */
    int32_t live;                /* count tensor, or 0 */
    int32_t producer;            /* node, or -1 for outside tensors; views have their base's */
    bool weight;                 /* a parameter, trained or frozen: files of weights hold it */
    bool trained;                /* ... that is frozen, if it is, only because the whole graph is */
    bool needs_grad;
    bool wanted;      /* an input to differentiate by */
    bool wanted_adds; /* ... whose gradient is added to what is there */
    bool constant;    /* an input that is the same in all iterations of a loop */
    bool by_copy;     /* an input the host does not write (tn_input_by_copy) */
    bool output;
    int64_t
        window; /* a cache whose rows move (models/decode_cache.h): so many tokens are seen of it; 0: another tensor */
    tn_init init;
    tn_param_options options;
    float initial;  /* scalars */
    int32_t source; /* GRAD, DINPUT: the tensor it is the gradient of */
} tn_gtensor;

typedef struct tn_node {
    const tn_op *op;
    void *attr;
    bool backward;
    int n_in, n_out;
    int32_t *in, *out;   /* forward tensors, also in a backward node */
    int32_t *dout, *din; /* backward only; 0 = none */
    uint64_t reads_in, reads_out;
    bool makes_out; /* backward: writes out, as the forward node is gone (late.c) */
    uint64_t accumulate;
    const tn_type *in_type; /* of the forward call */
    tn_type *out_type;
    int32_t work;            /* workspace tensor or 0 */
    int32_t region, segment; /* segment: recompute unit, -1 = none */
    const char *file;
    int line;
    struct tn_custom *custom; /* a custom gradient instead of a kernel */
} tn_node;

typedef struct tn_custom {
    tn_grad_build *build;
    void *user;
    int n;
    tn_ref *xs;
} tn_custom;

typedef struct tn_named {
    const char *name;
    int32_t id;
} tn_named;

typedef struct tn_assignment {
    int32_t state, value;
} tn_assignment;

/* Whether a parameter may be: TN_OK, or an error that the graph then has. */
typedef tn_status tn_param_check(const void *ctx, const char *name, tn_dims dims);

struct tn_graph {
    tn_arena memory;
    tn_graph_options options;
    tn_status status;
    char *error; /* the first error, whole */
    tn_gtensor *tensor;
    size_t n_tensors, cap_tensors;
    struct tn_name {
        uint64_t hash;
        int32_t id;
    } * name; /* the tensors that have one, in the order they were made */
    size_t n_names, cap_names;
    tn_node *node;
    size_t n_nodes, cap_nodes;
    tn_named *output;
    size_t n_outputs, cap_outputs;
    tn_assignment *assign;
    size_t n_assigns, cap_assigns;
    const char **region; /* full paths; region 0 is "" */
    size_t n_regions, cap_regions;
    int32_t current_region, current_segment, n_segments;
    int frozen;     /* tn_frozen_begin that are open */
    bool untrained; /* the plan computes no gradients of parameters: frozen ones, but in the types of trained ones */
    char scope[256];
    struct tn_owned {
        void (*release)(void *attr);
        void *attr;
    } * owned; /* what attrs own, released with the graph */
    size_t n_owned, cap_owned;
    uint64_t next_stream;
    tn_param_check *expect; /* asked about each new parameter, or NULL */
    const void *expect_ctx;
    int32_t seed; /* the i64 (2) input, or 0 */
};

static inline tn_function tn_node_function(const tn_node *n)
{
    return n->op && n->op->fusion.function ? n->op->fusion.function(n->attr) : TN_FN_OTHER;
}

/* The graph owns x from now on, and releases it when it is freed. On failure x stays the caller's. */
tn_status tn_graph_own(tn_graph *g, void (*release)(void *x), void *x);

static inline tn_gtensor *tn_graph_tensor(const tn_graph *g, int32_t id) { return &g->tensor[id]; }

/* A new tensor with contiguous strides that owns its memory; 0 when the graph has failed. */
/* Whether the handle is none or a tensor of this graph; fails the graph where it is neither. */
bool tn_graph_knows(tn_graph *g, const char *file, int line, tn_ref x);
int32_t tn_graph_new_tensor(tn_graph *g, tn_role role, const char *name, tn_dtype dtype, tn_dims dims);
/* A view with the fields of x, to be changed by the caller. */
int32_t tn_graph_new_view(tn_graph *g, int32_t x);
/* Appends a node that writes existing tensors: for passes. attr is copied when attr_bytes > 0. */
tn_node *tn_graph_emit(tn_graph *g, const tn_op *op, const void *attr, const int32_t *in, int n_in, const int32_t *out,
                       int n_out);
/* Input x is written where the plan runs, by copies to tn_bound_place, and by nobody else: no run uploads it. */
void tn_input_by_copy(tn_graph *g, tn_ref x);
/* Samples that stay in the store (TN_ROLE_DATA), whatever scope is open; zeros until the caller has put them there. */
tn_ref tn_graph_data(tn_graph *g, const char *name, tn_dims dims, tn_dtype dtype);
/* The passes, in the order plan.c runs them. Each leaves g->status on failure. */
typedef struct tn_seed {
    tn_ref y, dy; /* dL/dy is given by dy */
} tn_seed;
void tn_pass_fuse(tn_graph *g, bool recompute);
void tn_pass_absorb(tn_graph *g, bool recompute, const tn_seed *seeds, int n_seeds);
void tn_pass_reverse(tn_graph *g, const tn_seed *seeds, int n);
void tn_pass_recompute(tn_graph *g, size_t n_forward);
/* Before anything else: what has no trained parameter is no segment. */
void tn_pass_keep_frozen(tn_graph *g);
void tn_pass_assign(tn_graph *g);
void tn_pass_late(tn_graph *g);
void tn_pass_dead(tn_graph *g);
void tn_pass_slopes(tn_graph *g);
/* Bias gradients summed by the nodes that make the rows. */
void tn_pass_columns(tn_graph *g);
void tn_pass_legalize(tn_graph *g, tn_device device);
/* Returns how many nodes pack weights; they come first. repeats: runs of the plan between changes of its weights. */
size_t tn_pass_pack(tn_graph *g, int64_t repeats);
/* The same for a device whose products take both operands in one type: weights are rounded once for all of them. */
size_t tn_pass_round_weights(tn_graph *g);

/* Puts a new node in the place of node `at`, with region and source of node `like`; false when the graph has failed. */
bool tn_graph_put(tn_graph *g, size_t at, size_t like, const tn_op *op, const void *attr, const int32_t *in, int n_in,
                  const int32_t *out, int n_out);
/* A table of nodes that a pass writes anew; the graph takes it, or drops it where it has failed. */
typedef struct tn_nodes {
    tn_node *node;
    size_t n, capacity;
} tn_nodes;
void tn_nodes_push(tn_graph *g, tn_nodes *l, const tn_node *n);
void tn_graph_take(tn_graph *g, tn_nodes *l);
/* A copy of n types in the graph's memory, for a node whose own must change; NULL: the graph has failed. */
tn_type *tn_graph_types(tn_graph *g, const tn_type *from, int n);
/* Drops the nodes without an op; tensors are told the new numbers of theirs. */
void tn_graph_close_up(tn_graph *g);
/* By base tensor, in the graph's memory: the last node that changes it in place, -1 where none does. NULL: no memory. */
int32_t *tn_graph_changed(tn_graph *g);

/* Does a node write to, or read, memory of tensor `base`? */
bool tn_node_writes(const tn_graph *g, const tn_node *n, int32_t base);
bool tn_node_reads(const tn_graph *g, const tn_node *n, int32_t base);

int32_t tn_graph_find(const tn_graph *g, const char *full_name);

#define TN_UPDATE_SEED "rng.update"                          /* the input of tn_graph_update_seed */
tn_ref tn_graph_output(const tn_graph *g, const char *name); /* or none */
bool tn_gtensor_contiguous(const tn_gtensor *t);
bool tn_gtensor_whole(const tn_graph *g, const tn_gtensor *t); /* a view of all of its base, in order */
int64_t tn_gtensor_count(const tn_gtensor *t);
tn_sig tn_node_sig(const tn_graph *g, const tn_node *n, int threads);

#endif
