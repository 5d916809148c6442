/* Shared by the files of loop: the workspace, running the body's entry points, and the functions that a device
 * provides. */
#ifndef TN_OPS_LOOP_RUN_H
#define TN_OPS_LOOP_RUN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "ops/anderson.h"
#include "ops/loop/loop_body.h"

/* An entry point with its frame, arena and the addresses of its outside tensors. Frame and addresses are the host's. */
typedef struct loop_runner {
    const loop_entry *entry;
    void *frame, *arena;
    void **externs;
    bool ran; /* in this call: what the prologue made is there */
} loop_runner;

enum {
    LOOP_FREE_STATE = 2 * TN_BODY_MAX,
    LOOP_REST,
    LOOP_MOVING
}; /* what moves with a sample: constants, cost constants, h*, f(h*) - h* */

typedef struct loop_work {
    loop_runner forward, vjp_state, vjp_all, cost;
    char *state[TN_BODY_MAX], *spare[TN_BODY_MAX]; /* current state or gradient, and the next */
    float *lambda, *force;                         /* like state 0 */
    char *zeros;                                   /* a zero cotangent */
    char *dx[TN_BODY_MAX];                         /* gradient of one slice of each sequence */
    float *one;
    /* of a solve with B samples */
    int32_t *live;               /* (1): rows of the batch that the body sees */
    float *front;                /* like state 0: states of the samples on their way, in its first rows */
    char *moving[LOOP_MOVING];   /* copies of what belongs to them, in the same rows */
    float *dmoving[TN_BODY_MAX]; /* bptt with compaction: gradients of their constants, in the rows of the way back */
    bool ranked;       /* on the way back samples lie by their steps, those with most first, as w->sample says */
    int32_t *sample;   /* (B): the samples on their way; CUDA: 1 for those that have left */
    uint8_t *there;    /* (B): which of them have converged */
    float *residual;   /* (B): of theirs */
    double *moved;     /* (B): |h_next - h|^2 of theirs */
    int32_t *progress; /* CUDA: what the phase has come to (loop_cuda.cu) */
    tn_anderson anderson;
    size_t total, host; /* bytes of both memories */
} loop_work;

/* What a fused kernel is asked for (tn_loop_fused): the damped iteration from x, into the same place, until each sample is
 * there by rtol. Scalars, constants and the count are the node's. */
typedef enum tn_loop_phase_kind { TN_LOOP_PHASE_FREE, TN_LOOP_PHASE_NUDGED, TN_LOOP_PHASE_ADJOINT } tn_loop_phase_kind;

typedef struct tn_loop_phase {
    tn_loop_phase_kind kind;
    float *x;          /* (B,width); rows behind the count are not touched */
    const float *at;   /* adjoint: the state whose Jacobian it is; like x */
    const float *g;    /* adjoint: lambda = g + J^T lambda */
    float sign;        /* nudged: by beta times this */
    float *rest;       /* nudged: (B,width) to keep f(h*) - h* in, which is taken off f; or NULL */
    const float *move; /* nudged: a scalar instead of rtol, see loop.h; or NULL */
    int32_t *steps;    /* (B) or NULL: added to */
    float *residuals;  /* (B) or NULL */
    float *signal;     /* nudged: (B) or NULL */
} tn_loop_phase;

/* What differs between devices. Memory is the device's throughout. */
typedef struct loop_device {
    tn_status (*copy)(const tn_call *c, void *to, const void *from, size_t bytes);
    tn_status (*zero)(const tn_call *c, void *to, size_t bytes);
    tn_status (*add)(const tn_call *c, float *to, const float *from, int64_t n); /* to += from */
    /* The node's numbers of a sequence, where they are asked for. */
    tn_status (*put_taken)(const tn_call *c, const tn_loop_body *b, int64_t taken);
    /* The fixed point from w->state[0], into the same place, and all numbers of it. */
    tn_status (*solve)(const tn_call *c, const tn_loop_body *b, loop_work *w);
    /* lambda = g + J^T lambda at the equilibrium, into w->lambda. g like state 0. */
    tn_status (*adjoint)(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g);
    /* The estimate of lambda by nudged equilibria, into w->lambda. */
    tn_status (*propagate)(const tn_call *c, const tn_loop_body *b, loop_work *w);
    /* w->live = the valid rows. */
    tn_status (*set_live)(const tn_call *c, const tn_loop_body *b, loop_work *w);
    /* Rows of a batch (like state 0) that are not there become 0. */
    tn_status (*clear_behind)(const tn_call *c, const tn_loop_body *b, float *x);
    /* Back through a damped step t from the states h before it: the part of w->state[0] that reaches f (*d), and afterwards the
     * rest onto w->spare[0]. A step that a sample did not take passes its gradient on as it is. A device may lay the samples
     * out anew for it (rank: what was kept, w->state[0] and the constants; else NULL), and puts them back at the end. */
    int64_t (*taken)(const tn_call *c, const tn_loop_body *b);
    tn_status (*reaches)(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t, char **h, char **d);
    tn_status (*passes_by)(const tn_call *c, const tn_loop_body *b, loop_work *w, int64_t t);
    tn_status (*rank)(const tn_call *c, const tn_loop_body *b, loop_work *w);
    tn_status (*unrank)(const tn_call *c, const tn_loop_body *b, loop_work *w);
} loop_device;

/* The kernels of a device. */
tn_status tn_loop_run_forward(const loop_device *v, const tn_call *c);
tn_status tn_loop_run_backward(const loop_device *v, const tn_call *c);

static inline void loop_set(loop_runner *r, int index, const void *p)
{
    if (index >= 0) r->externs[index] = (void *)(uintptr_t)p;
}

/* After the addresses have been set; results are then found. */
static inline void loop_bind(const tn_call *c, loop_runner *r)
{
    tn_frame_init(r->entry->plan, r->frame, r->arena, r->externs, c->pool, c->stream);
}

static inline tn_status loop_run(loop_runner *r)
{
    const bool again = r->ran;
    r->ran = true;
    return again ? tn_frame_run_again(r->entry->plan, r->frame) : tn_frame_run(r->entry->plan, r->frame);
}

void *loop_result(const loop_runner *r, const char *kind, int i);

/* --- between the files of the CPU -------------------------------------------------------------------------------------- */

/* Valid rows, refused if they are more than the batch has. */
tn_status loop_count(const tn_call *c, const tn_loop_body *b, int64_t *count);
float loop_damping(const tn_call *c, const tn_loop_body *b);
/* Iterations and the largest residual, where they are asked for. */
void loop_put_numbers(const tn_call *c, const tn_loop_body *b, int64_t taken, float residual);

/* As in loop_device. */
tn_status loop_solve(const tn_call *c, const tn_loop_body *b, loop_work *w);
tn_status loop_adjoint(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g);
tn_status loop_propagate(const tn_call *c, const tn_loop_body *b, loop_work *w);

#ifdef __cplusplus
}
#endif
#endif
