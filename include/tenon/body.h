/* Bodies: a sub-graph that an op runs many times (the iteration of a loop, the map of a fixed-point solve).
 *
 * A body is a function that builds one iteration. It is compiled into entry points: forward, the gradient by the state
 * alone (state-VJP), and the gradient by everything (parameter-VJP). Parameters come in as constants of the op that
 * runs the body, so gradients reach them like any other input's. */
#ifndef TENON_BODY_H
#define TENON_BODY_H

#include <tenon/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_plan tn_plan;

/* What one iteration reads and makes. */
typedef struct tn_body_io {
    const tn_ref *state;  /* state at the start of the iteration */
    const tn_ref *xs;     /* this iteration's slice of each sequence */
    const tn_ref *consts; /* the same in every iteration: parameters, injected inputs */
    tn_ref *next;         /* to fill: the new state, same types */
    tn_ref *ys;           /* to fill: what the iteration puts out */
} tn_body_io;

typedef void tn_body_build(tn_graph *g, tn_body_io *io, void *user);

typedef struct tn_body {
    tn_body_build *build;
    void *user; /* must stay valid while the graph is built */
} tn_body;

typedef enum tn_body_entry {
    TN_BODY_FORWARD,   /* state, xs, consts -> "next<i>", "y<i>" */
    TN_BODY_VJP_STATE, /* ... and "dnext<i>" -> "d.state<i>" */
    TN_BODY_VJP_ALL,   /* ... "d.x<i>" too, and "d.const<i>" (added to what is there) */
} tn_body_entry;

enum { TN_BODY_MAX = 16 }; /* states, sequences, constants, outputs: at most so many of each */

typedef struct tn_body_spec {
    tn_body body;
    int n_state, n_xs, n_consts, n_ys;
    tn_type state[TN_BODY_MAX], xs[TN_BODY_MAX], consts[TN_BODY_MAX]; /* xs: of one slice; trainable = wanted */
    tn_type ys[TN_BODY_MAX];                                          /* filled by compiling the forward entry */
    tn_graph_options options;
    int threads;
    int64_t repeats; /* runs of an entry with the same constants (0 = 1) */
    bool live;       /* an i32 (1) called "live" says how many rows of the states, and of the constants whose bit is set
                      * in live_consts, are alive; such constants may change from run to run */
    uint64_t live_consts;
} tn_body_spec;

tn_status tn_body_compile(tn_body_spec *spec, tn_body_entry entry, tn_plan **out);

/* --- running a compiled entry in the caller's memory ------------------------------------------------------------------ */

void tn_plan_free(tn_plan *p);
int tn_plan_externs(const tn_plan *p);
int tn_plan_extern_find(const tn_plan *p, const char *name); /* -1: the plan does not use it */
size_t tn_plan_arena_bytes(const tn_plan *p);
size_t tn_plan_frame_bytes(const tn_plan *p);
double tn_plan_flops(const tn_plan *p);    /* of one run */
bool tn_plan_flops_vary(const tn_plan *p); /* they are the most there can be (tn_cost.varies) */
/* Resolves all pointers into `frame`; externs[i] is the memory of extern i. */
void tn_frame_init(const tn_plan *p, void *frame, void *arena, void *const *externs, struct tn_pool *pool,
                   void *stream);
tn_status tn_frame_run(const tn_plan *p, const void *frame);
/* The same, when the constants and what lies in the arena are as the last run left them. */
tn_status tn_frame_run_again(const tn_plan *p, const void *frame);
/* Memory of an output inside a frame (NULL: no such output). */
void *tn_frame_output(const tn_plan *p, const void *frame, const char *name);

#ifdef __cplusplus
}
#endif
#endif
