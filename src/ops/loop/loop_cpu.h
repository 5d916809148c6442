/* What the files of loop on the CPU share: the workspace, running the body's entry points, and solving. */
#ifndef TN_OPS_LOOP_CPU_H
#define TN_OPS_LOOP_CPU_H

#include "ops/anderson.h"
#include "ops/loop/loop_body.h"

/* An entry point with its frame, arena and the addresses of its outside tensors. */
typedef struct loop_runner {
    const loop_entry *entry;
    void *frame, *arena;
    void **externs;
    bool ran; /* in this call: what the prologue made is there */
} loop_runner;

enum { LOOP_FREE_STATE = 2 * TN_BODY_MAX, LOOP_MOVING }; /* what moves with a sample: constants, cost constants, h* */

typedef struct loop_work {
    loop_runner forward, vjp_carry, vjp_all, cost;
    char *carry[TN_BODY_MAX], *spare[TN_BODY_MAX]; /* current state or gradient, and the next */
    float *lambda, *force;                         /* like carry 0 */
    char *zeros;                                   /* a zero cotangent */
    char *dx[TN_BODY_MAX];                         /* gradient of one slice of each sequence */
    float *one;
    /* of a solve with B samples */
    int32_t *live;             /* (1): rows of the batch that the body sees */
    float *front;              /* like carry 0: states of the samples on their way, in its first rows */
    char *moving[LOOP_MOVING]; /* copies of what belongs to them, in the same rows */
    int32_t *sample;           /* (B): the samples on their way */
    uint8_t *there;            /* (B): which of them have converged */
    float *residual;           /* (B): of theirs */
    double *moved;             /* (B): |h_next - h|^2 of theirs */
    tn_anderson anderson;
    size_t total;
} loop_work;

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

/* Samples that are there, refused if they are more than the batch has. */
tn_status loop_count(const tn_call *c, const tn_loop_body *b, int64_t *count);
float loop_damping(const tn_call *c, const tn_loop_body *b);
/* Rows of a batch (like carry 0) that are not there become 0. */
void loop_clear_behind(const tn_loop_body *b, int64_t count, float *x);

/* The fixed point from w->carry[0], into the same place. `history` (steps, like carry 0) keeps every state, or NULL. */
tn_status loop_solve(const tn_call *c, const tn_loop_body *b, loop_work *w, float *history, int64_t *taken, float *residual);
/* lambda = g + J^T lambda at the equilibrium, into w->lambda. g like carry 0. */
tn_status loop_adjoint(const tn_call *c, const tn_loop_body *b, loop_work *w, const float *g);
/* The estimate of lambda by nudged equilibria, into w->lambda. */
tn_status loop_propagate(const tn_call *c, const tn_loop_body *b, loop_work *w);

#endif
