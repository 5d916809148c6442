/* The backward pass of rollout on the CPU between its files. Rows of a step are taken in groups of whole pieces: panels of a group
 * make the gradients of its rows, then all weights' gradients get the group's pieces, in order. */
#ifndef TN_OPS_ROLLOUT_BACK_H
#define TN_OPS_ROLLOUT_BACK_H

#include "ops/rollout/rollout_cpu.h"

/* What a group's panels leave for the gradients of the weights, by row of the group. d: gradients. */
typedef struct tn_rollout_group {
    int64_t first, rows, most;   /* rows of the step; the most that there is room for */
    int64_t piece, pieces;       /* among the step's */
    float *in, *din;             /* (rows,I) */
    float *a1, *dz1, *dy1, *dn1; /* (rows,32): gelu of norm 1; what norm 1 takes; what gelu takes, alone and times n */
    float *a2, *dz2, *dy2, *dn2; /* (rows,32) */
    float *x, *dx;               /* (rows,TN_ROLLOUT_X) */
    float *h, *gates;            /* (L,most,H) before the step; (L,most,4H) gradients */
    float *gelu, *dheads, *de, *ddelta, *dphi; /* (rows,G) (rows,G) (rows,E) (rows,3) (rows,F) */
    size_t bytes;
} tn_rollout_group;

typedef struct tn_rollout_back {
    tn_rollout_job j;
    int64_t t;
    tn_rollout_step s;            /* of step t */
    float *gates, *heads, *state; /* keep: (keep,L,C,4H) (keep,C,G) (keep,L,C,H), made again */
    float *dh[2], *dplace[2];     /* (L,C,H) (C,P) by rows of steps t and t + 1, t % 2 first */
    float *dgrid[2];              /* (B,voxels,F): by the field after step t, and after t - 1 */
    int32_t *row_of;              /* (C) by slot: its row at t + 1; -1: it has landed by then */
    int32_t *child, *used;        /* (C) by row: slot of its first child; (B): slots used before step t + 1 */
    int32_t *piece;               /* (pieces + 1): first rows */
    tn_rollout_group g;
    void *packed[2], *panels, *weights; /* scratch: one per thread */
    size_t panel_bytes, weight_bytes, bytes;
} tn_rollout_back;

/* Scratch of a panel, behind tn_rollout_panel's. */
typedef struct tn_rollout_slopes {
    tn_rollout_panel p;
    float *da; /* (rows,32) */
    float *place, *start,
        *e; /* (rows,3): gradients by the place after the step, and before it; (rows,E): energies after it */
    float *want, *phi, *after; /* (rows,3) (rows,F) (rows,3): place after the step */
    size_t bytes;
} tn_rollout_slopes;
tn_rollout_slopes tn_rollout_slopes_at(const tn_rollout_sizes *z, void *base);

/* Rows of the group, `first` counted from its first: their gradients, by what they were before the step. */
void tn_rollout_cell_back(const tn_rollout_back *r, const tn_rollout_slopes *p, int64_t first, int64_t rows);
/* Adds a group to the gradients of all weights that are wanted. */
void tn_rollout_weights(tn_rollout_back *r);
size_t tn_rollout_weights_work(const tn_rollout_sizes *z);

/* Gradients by the field: of row i's deposit, and of all reads of sample b in rows [first, last). */
void tn_rollout_deposit_back(const tn_rollout_sizes *z, const float *dgrid, const float *after, const float *phi,
                             float *dphi, float *dplace);
void tn_rollout_read_back(const tn_rollout_sizes *z, const float *grid, const float *place, const float *dread,
                          float *dplace);
void tn_rollout_reads_back(const tn_rollout_sizes *z, const tn_rollout_step *s, const float *din, int64_t first,
                           int64_t last, float *dgrid);

#endif
