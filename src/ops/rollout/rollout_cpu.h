/* What the files of rollout on the CPU share: sizes, products, a step's tensors, a panel's scratch.
 *
 * Rows of a step are cut into panels, whose insides stay in a core's cache. No bits depend on the cut: a row of tn_gemm depends
 * on that row alone, and sums over flows go sample by sample, in pieces of slots, in their order. */
#ifndef TN_OPS_ROLLOUT_CPU_H
#define TN_OPS_ROLLOUT_CPU_H

#include "backend/cpu/gemm.h"
#include "ops/rollout/rollout.h"

enum { TN_ROLLOUT_NEURON = 32, TN_ROLLOUT_FEATURES = 64, TN_ROLLOUT_HIDDEN = 64, TN_ROLLOUT_X = 80 }; /* X: row of x */

/* The products of a cell; a layer has three, because q is kept apart from n's other part. */
enum { BY_V1, BY_V2, BY_V3, BY_E1, BY_E2, BY_D1, BY_D2, BY_F, BY_LAYER, BY_I = 0, BY_H_RZ, BY_H_N, LAYER_PRODUCTS };
enum { TN_ROLLOUT_PRODUCTS = BY_LAYER + LAYER_PRODUCTS * TN_ROLLOUT_LAYERS };

typedef struct tn_rollout_sizes {
    const tn_rollout_attr *a;
    int64_t B, S, N, C, T, L, E, H, F;
    int64_t P, I, G; /* numbers of a place with its energy, of the neuron's input, of both heads' inside */
    int64_t voxels;  /* of a sample's grid */
    int64_t pieces;  /* most pieces of a step */
    int threads;
    tn_dtype round;
    bool bf16x3, portable;
} tn_rollout_sizes;

/* A weight, or some rows of it. */
typedef struct tn_rollout_product {
    int input; /* -1: the net has none */
    int64_t row, rows, columns;
    bool rounded; /* where the graph rounds */
} tn_rollout_product;

tn_rollout_sizes tn_rollout_sizes_of(const tn_rollout_attr *a, int64_t B);
tn_rollout_product tn_rollout_product_of(const tn_rollout_sizes *z, int which);
/* Rows w^T (forward) or w (backward); b, rows and pointers are the caller's. */
tn_gemm tn_rollout_gemm(const tn_rollout_sizes *z, const tn_rollout_product *p, bool backward);

/* A panel's scratch, one per thread. */
typedef struct tn_rollout_panel {
    float *in;           /* (rows,I): what the neuron sees */
    float *a1, *a2;      /* (rows,32) */
    float *x;            /* (rows,TN_ROLLOUT_X), the first 64 + E of each */
    float *h;            /* (rows,H): states before the step, of one layer */
    float *gates;        /* (rows,4H), of one layer */
    float *heads, *gelu; /* (rows,G) */
    float *delta, *e;    /* (rows,3) (rows,E) */
    void *work;
    size_t bytes;
} tn_rollout_panel;
tn_rollout_panel tn_rollout_panel_at(const tn_rollout_sizes *z, void *base); /* base NULL: only measures */
int64_t tn_rollout_panel_most(const tn_rollout_sizes *z);
int64_t tn_rollout_panel_rows(const tn_rollout_sizes *z, int64_t rows, int64_t threads);

/* One call: arguments, packed weights. */
typedef struct tn_rollout_job {
    const tn_call *c;
    tn_rollout_sizes z;
    const void *packed[2][TN_ROLLOUT_PRODUCTS]; /* forward, backward */
    float kappa, drift, sigma;
    uint64_t seed;
    const int32_t *number, *even; /* (B) or NULL; (C): what tn_rollout_even says of a slot's flow */
} tn_rollout_job;

/* The tensors of one lattice step. */
typedef struct tn_rollout_step {
    int64_t t, rows;
    const int32_t *live; /* (B+1) */
    const float *places; /* (C,P) */
    const int32_t *slot, *from;
    int32_t *bits;         /* (C) each */
    const float *h_before; /* (L,C,H); NULL: zeros */
    float *h_after;        /* (L,C,H) */
    float *gates, *heads;  /* (L,C,4H) (C,G); NULL: not kept */
    const float *grid;     /* (B,voxels,F): that it reads; NULL: zeros */
    float *deposit;        /* (B,voxels,F): that it makes */
    float *after, *phi; /* (C,P) (C,F): place and energy after the step, and what goes to the field; NULL: not wanted */
} tn_rollout_step;

/* Packs all weights into `to`, one after the other; to NULL: only measures. Returns the bytes. */
size_t tn_rollout_pack(tn_rollout_job *j, bool backward, void *to);
/* A product of `rows` rows with weight `which`; the caller gives a and c. */
tn_gemm tn_rollout_with(const tn_rollout_job *j, int which, bool backward, int64_t rows);
/* Rows [first, first + rows) of a step: neuron, GRU, heads; where after is wanted also the move. */
void tn_rollout_cell(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                     int64_t rows);
/* The neuron alone: in, a1, a2, x of the panel. z and slope, if not NULL: what both norms take and gelu's slopes, (rows,32) each. */
void tn_rollout_neuron(const tn_rollout_job *j, const tn_rollout_step *s, const tn_rollout_panel *p, int64_t first,
                       int64_t rows, float *const z[2], float *const slope[2]);
/* Rows' states before the step, of layer l: where they lie if that is one piece, else gathered into `to`. */
const float *tn_rollout_states(const tn_rollout_sizes *z, const tn_rollout_step *s, int64_t l, int64_t first,
                               int64_t rows, float *to);

/* --- the field ------------------------------------------------------------------------------------------------------ */

typedef struct tn_rollout_corners {
    int32_t at[8];
    float weight[8], slope[8][3];
    int n;
} tn_rollout_corners;
tn_rollout_corners tn_rollout_find_corners(const tn_rollout_attr *a, const float *place, bool nearest);
void tn_rollout_read(const tn_rollout_sizes *z, const float *grid, const float *place, float *read);
/* grid (voxels,F) of one sample, from its rows. */
void tn_rollout_deposit(const tn_rollout_sizes *z, const tn_rollout_step *s, int64_t b, float *grid);

/* --- arithmetic on rows that are in cache (rollout_math.c) ---------------------------------------------------------------- */

/* in (rows,I): [Q p + q0; e], from places (rows,P); the field's part stays. */
void tn_rollout_see(const float *q, const float *qb, const float *places, int64_t rows, int64_t P, int64_t I,
                    float *in);
/* y = gelu(LN(z) gain + bias), rows of 32; slope, if not NULL, gets gelu's. y may be z where there is no slope. */
void tn_rollout_norm_gelu(const float *z, const float *gain, const float *bias, float *y, float *slope, int64_t rows);
/* z becomes the gradient by itself; dy (rows,32) holds the slopes and gets the gradients by what gelu takes; dn: dy times LN(z).
 * da: gradients by the result. */
void tn_rollout_norm_back(const float *gain, const float *da, float *z, float *dy, float *dn, int64_t rows);
void tn_rollout_gelu(const float *x, float *y, int64_t n);
void tn_rollout_gelu_slope(const float *x, float *y, float *slope, int64_t n);
void tn_rollout_times(const float *x, float *d, int64_t n); /* d *= x */
void tn_rollout_tanh(float *x, int64_t n);

typedef struct tn_rollout_moves {
    const tn_rollout_attr *a;
    const float *places, *delta, *e;     /* (rows,P) (rows,3) (rows,E) */
    const int32_t *slot, *even, *number; /* (rows); by slot; (B) or NULL */
    uint64_t seed;
    float kappa, drift, sigma;
    int64_t rows, N, P, E, t;
    int32_t *bits; /* (rows); children: those asked for */
    float *after;  /* (rows,P) */
    float *want;   /* (rows,3) or NULL: the move before it is cut; then nothing else is written */
} tn_rollout_moves;
void tn_rollout_move(const tn_rollout_moves *m);
/* Of some rows of a step; delta, e, after and want are the caller's. */
tn_rollout_moves tn_rollout_moves_of(const tn_rollout_job *j, const tn_rollout_step *s, int64_t first, int64_t rows);
/* Arguments of the call; weights are not packed yet. */
tn_rollout_job tn_rollout_job_of(const tn_call *c);
/* All rows of a step, in panels; space: tn_rollout_panel_at's bytes for each thread. */
void tn_rollout_panels(const tn_rollout_job *j, const tn_rollout_step *s, void *space, size_t bytes);
size_t tn_rollout_forward_work(const tn_rollout_job *j), tn_rollout_backward_work(const tn_rollout_job *j);

#endif
