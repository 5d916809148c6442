/* The forward pass of rollout on the CPU between its files: where a step's tensors are, and what is known of each slot. */
#ifndef TN_OPS_ROLLOUT_RUN_H
#define TN_OPS_ROLLOUT_RUN_H

#include "ops/rollout/rollout_cpu.h"

typedef struct tn_rollout_run {
    tn_rollout_job j;
    /* Of two steps in turn, where nobody wants the output. */
    float *places[2], *state[2], *grid[2]; /* (C,P) (L,C,H) (B,voxels,F) */
    int32_t *slot[2], *from[2], *bits[2];  /* (C) */
    int32_t *live;                         /* (T+1,B+1) */
    float *after, *phi;                    /* (C,P) (C,F) */
    int32_t *even, *birth, *parent;        /* (C) by slot: side at the middle, first step, the parent's row */
    int32_t *counts;                       /* (B,TALLIES) */
    int32_t *active, *child;               /* (B): flows after the step; its first child's slot */
    int32_t *last, *stale, *stopped;       /* (B): as the stop rule remembers; 1: stopped, 2: stops now */
    void *packed, *panels;
    size_t panel_bytes, bytes;
    const tn_rollout_step *now; /* the step that is being finished */
} tn_rollout_run;

tn_rollout_step tn_rollout_step_at(const tn_rollout_run *r, int64_t t);
/* Rows of step 0; outputs as they are without flows. */
void tn_rollout_begin(tn_rollout_run *r);
/* Marks the samples that stop at the top of step t. */
void tn_rollout_check(tn_rollout_run *r, int64_t t);
/* After the panels of step s: landings, children, who stops; then the rows of the next step. */
void tn_rollout_finish(tn_rollout_run *r, const tn_rollout_step *s);

#endif
