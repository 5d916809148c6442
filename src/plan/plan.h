/* The plan of one step, and running it.
 *
 *   graph --tn_graph_compile--> plan (immutable, shared)      store: named tensors by role (store.h)
 *   context: arena and threads                                bound plan: plan + context + store, pointers resolved
 *
 * Many plans share one store and one context; many stores and contexts run one plan at once. Running allocates
 * nothing, opens nothing and decides nothing. */
#ifndef TN_PLAN_PLAN_H
#define TN_PLAN_PLAN_H

#include "backend/backend.h"
#include "plan/graph.h"
#include "plan/store.h"

#include <tenon/body.h>

/* Switches of the planner itself; those of ops are in their folders. */
extern const tn_setting tn_plan_switches[];
extern const size_t tn_plan_switches_n;

typedef struct tn_context tn_context;
typedef struct tn_bound tn_bound;

typedef struct tn_compile_options {
    tn_device device;
    int threads;          /* 0 = the graph's */
    int64_t repeats;      /* runs between two changes of the weights (0 = 1): whether packing them once pays */
    bool token;           /* one token of one sequence: CUDA runs neighbouring nodes in one kernel (opt.decode_fused) */
    bool recompute;       /* drop and recompute the inside of every segment (tn_segment_begin), */
    bool trained_alone;   /* ... or of those alone that have trained parameters */
    tn_ref loss;          /* scalar to differentiate, or none; seeded by the scalar "loss_scale" (1) */
    const tn_seed *seeds; /* or: outputs with given cotangents */
    int n_seeds;
} tn_compile_options;

/* Takes over the graph, also on failure. */
tn_status tn_graph_compile(tn_graph *g, const tn_compile_options *o, tn_plan **out);

typedef struct tn_memory {
    size_t activations; /* most bytes of activations and gradients of activations alive at once */
    size_t workspace;   /* the rest of the arena: kernels' scratch memory and gaps */
    size_t arena;       /* their sum */
    size_t frame;       /* resolved pointers of one bound plan */
    size_t inputs;      /* inputs and scalars of one bound plan */
    size_t parameters, gradients, frozen, state; /* what the plan refers to in the store */
} tn_memory;

tn_memory tn_plan_memory(const tn_plan *p);
size_t tn_plan_steps(const tn_plan *p);
/* Bytes of weights that a run without its prologue reads, each once, in the form it reads them in (packed, rounded); of a table
 * that is only looked up in, none. */
size_t tn_plan_weight_bytes(const tn_plan *p);
const char *tn_plan_kernel(const tn_plan *p);    /* CPU: the micro-kernel of its matrix products */
const tn_graph *tn_plan_graph(const tn_plan *p); /* names, shapes, regions: for printing */

/* A place in the arena: what lies there, and between which steps of the plan. Tensors that work in place share one. */
typedef struct tn_layout_row {
    const char *name;        /* of the tensor, or NULL */
    const char *op, *region; /* of the step that writes it first */
    bool backward, workspace;
    tn_dtype dtype;
    tn_dims dims;
    size_t offset, bytes;
    size_t first, last; /* steps; last = tn_plan_steps: outputs, and weights packed for the next run */
} tn_layout_row;

/* The arena's layout, largest first; returns how many rows there are. rows: as many, or NULL. */
size_t tn_plan_layout(const tn_plan *p, tn_layout_row *rows);
/* The part of the arena that no block needs when it is fullest: what placing blocks among others costs. NaN: no plan, no arena, or no
 * memory to count in. */
double tn_plan_holes(const tn_plan *p);

/* Outside tensors of a plan, in a fixed order (see body.h for finding them and for frames). */
const tn_gtensor *tn_plan_extern(const tn_plan *p, int i);
/* The gradient of an input (tn_want_gradient) by its name, "d.NAME"; NULL: the plan computes none. */
const tn_gtensor *tn_plan_input_gradient(const tn_plan *p, const char *name);

/* --- contexts --------------------------------------------------------------------------------------------------------- */

tn_status tn_context_new(tn_device device, int threads, tn_context **out);
void tn_context_free(tn_context *c);
int tn_context_threads(const tn_context *c);
size_t tn_context_bytes(const tn_context *c); /* of its arena */
/* Other threads run plans beside it on the same device: nothing is decided by measuring, and memory that is given back stays with
 * the process. Before the first plan is bound to it. */
tn_status tn_context_share(tn_context *c);
/* What it runs on, for who moves bytes beside its plans, and the queue these are moved in. */
const struct tn_backend *tn_context_backend(const tn_context *c);
void *tn_context_queue(const tn_context *c);
/* What its plans run goes to this tracer, on the main thread's track (NULL: no longer). Between runs. */
void tn_context_trace(tn_context *c, struct tn_tracer *to);

/* --- bound plans --------------------------------------------------------------------------------------------------------- */

/* The store must hold what the plan names (tn_store_adopt). The three outlive the bound plan. */
tn_status tn_bind(const tn_plan *p, tn_context *c, tn_store *st, tn_bound **out);
void tn_bound_free(tn_bound *b);
const tn_plan *tn_bound_plan(const tn_bound *b);
/* In traces its runs are this ("optimizer"; static text) instead of forward and backward. */
void tn_bound_label(tn_bound *b, const char *label);
tn_status tn_run(tn_bound *b);
/* The same for a caller who has changed no parameter and no frozen tensor since b ran last: weights that were packed are
 * not packed again, unless another plan has run on the context since. */
tn_status tn_run_again(tn_bound *b);
/* Memory of an input, scalar, output, or gradient of an input by name, for the host; NULL when the plan has none.
 * Outputs lie in the context's arena: valid until the next run on that context, and until a plan is bound to it. On a
 * device with memory of its own, asking for an output or a gradient waits for the device and copies it, and an input by
 * copy has no memory for the host: NULL. */
void *tn_bound_data(tn_bound *b, const char *name);
tn_status tn_bound_set(tn_bound *b, const char *scalar, float value);
void tn_bound_seed(tn_bound *b, int64_t seed, int64_t step); /* for random ops; does nothing without any */
/* Then, where an optimizer step has several batches: what tn_graph_update_seed gives. */
void tn_bound_update_seed(tn_bound *b, int64_t seed, int64_t update);
/* Where an output, an input or the gradient of an input lies on the device; valid as tn_bound_data's. NULL: the plan has none. */
void *tn_bound_place(tn_bound *b, const char *name);
/* From now on every run takes this input from device memory instead of the host's (NULL: from the host's again). */
tn_status tn_bound_take(tn_bound *b, const char *input, const void *device_memory);
/* Runs that follow one another without the host: behind each, an output of integers becomes the next one's input and is put aside,
 * and other inputs go on. The first run takes inputs as the host wrote them; later ones take nothing from the host. */
typedef struct tn_chain {
    const char *input, *output;
    /* inputs of integers that go on by step; those that the plan has not are left out */
    const char *counter[TN_CHAIN_COUNTERS];
    int32_t step;
    int32_t *log; /* (1 + runs n): device memory; how many runs there were, then the output (n) of each */
} tn_chain;

tn_status tn_bound_chain(tn_bound *b, const tn_chain *c); /* NULL: no longer */
/* n runs of the chain, as tn_run_again; many may be queued at once. */
tn_status tn_run_chain(tn_bound *b, int64_t n);
/* Until it says false, the host leaves inputs and scalars as they are, and runs do not upload them again. */
void tn_bound_hold(tn_bound *b, bool held);

/* --- what is not finite ------------------------------------------------------------------------------------------------------ */

typedef struct tn_finding {
    bool found;
    int64_t row,
        rows; /* along the outermost axis: the first bad number's, of how many; row -1: the axis is not the batch's */
    char text[640]; /* "the parameter embed, f32 (256,16): NaN at (3,4)" */
} tn_finding;

/* From now on (NULL: no longer) a run looks at every number it is given and makes, and says which is the first that is not finite, in the
 * order of the plan; a finding that is found already stays. For diagnosis: many times slower, allocates, and the same bits. */
void tn_bound_check(tn_bound *b, tn_finding *f);

/* --- time ------------------------------------------------------------------------------------------------------------------ */

typedef struct tn_region_time {
    const char *region; /* "layer0.mixer", "" for the rest */
    double forward_ms, backward_ms;
    double flops; /* NaN: the numbers decide how many (tn_cost.varies) */
    uint64_t runs;
} tn_region_time;

void tn_bound_timers(tn_bound *b, bool on); /* off by default */
/* Fills at most `most` rows in the order of the regions; returns how many there are. */
size_t tn_bound_times(const tn_bound *b, tn_region_time *rows, size_t most);
/* Adds another plan of the same model, with the FLOPs of so many runs; regions it has elsewhere are left out. */
void tn_bound_times_add(const tn_bound *b, int64_t runs, tn_region_time *rows, size_t most);

typedef struct tn_op_time {
    const char *op; /* "linear" */
    double forward_ms, backward_ms;
    double flops,
        backward_flops; /* of one run; NaN: the numbers decide how many (tn_cost.varies). The second is a part of the first */
    double bytes, backward_bytes; /* of its arguments, each once: what it has to move at least, workspace not counted */
    uint64_t runs;
} tn_op_time;

/* The same by op, in the order of the plan, added to the n rows there are; of more than `most` ops the later ones are left
 * out. Returns the rows. */
size_t tn_bound_op_times(const tn_bound *b, tn_op_time *rows, size_t n, size_t most);

/* One direction of one op in one region: the rows of which both tables above are sums. */
typedef struct tn_node_time {
    const char *op, *region;
    const char *phase; /* of a solve (ops/phase.h), or NULL */
    bool backward;
    bool varies;         /* flops are the most there can be: the numbers decide how many are done, and nobody counted */
    double calls, ms;    /* since the timers were turned on, and the next two */
    double flops, bytes; /* as tn_op_time has them */
} tn_node_time;

/* In the order of the plan, added to the n rows there are; of more than `most` the later ones are left out. Returns the rows. */
size_t tn_bound_node_times(const tn_bound *b, tn_node_time *rows, size_t n, size_t most);

/* Op, region and direction of step i of a plan; false: it has fewer. */
bool tn_plan_node_at(const tn_plan *p, size_t i, tn_node_time *out);

/* Times of what is replayed, from a trace of the device (tn_backend.trace_begin .. trace_end): from now on what step i queues has the
 * mark first + i. The plan is captured again for it, in the next run but one. first 0: no longer. */
void tn_bound_mark(tn_bound *b, uint64_t first);
/* Kernels and copies of the trace that have marks of this plan, as the times of so many runs, for the tables above. How many there
 * were. */
size_t tn_bound_take_spans(tn_bound *b, uint64_t first, const tn_span *spans, size_t n, uint64_t runs);

/* --- plans by key ------------------------------------------------------------------------------------------------------------
 * A plan is made once for a model, its settings and a shape, and then shared. The key is text that names everything the plan depends
 * on. Not thread-safe: each owner has its own cache. */

typedef struct tn_plan_cache tn_plan_cache;

tn_status tn_plan_cache_new(tn_plan_cache **out);
void tn_plan_cache_free(tn_plan_cache *c); /* frees its plans */

/* The plan of this key; `make` is called when there is none yet. */
typedef tn_status tn_plan_make(void *user, tn_plan **out);
tn_status tn_plan_cache_get(tn_plan_cache *c, const char *key, tn_plan_make *make, void *user, const tn_plan **out);
size_t tn_plan_cache_count(const tn_plan_cache *c);

#endif
