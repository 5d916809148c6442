/* Between the files of relax on the CPU. A tile holds up to 16 samples side by side, one in each lane: every array of it
 * is (k,width), a row for each feature and a column for each sample. Products take such arrays and make such arrays, so
 * nothing is repacked while a sample is iterated, sums over features are sums of vectors, and no two samples ever meet:
 * a sample's bits do not depend on its neighbours, on its lane or on the width. */
#ifndef TN_OPS_RELAX_CPU_H
#define TN_OPS_RELAX_CPU_H

#include "backend/cpu/gemm.h"
#include "ops/anderson.h"
#include "ops/relax/relax.h"

#include <stdatomic.h>

enum { TN_RELAX_LANES = 16 };

/* Workspace handed out piece by piece; base NULL: only measures. */
typedef struct tn_relax_memory {
    char *base;
    size_t used;
} tn_relax_memory;

/* A little more than asked for: arrays a power of two apart would compete for the same places of a cache. */
static inline void *tn_relax_take(tn_relax_memory *m, size_t bytes)
{
    void *p = m->base ? m->base + m->used : NULL;
    m->used += (bytes + 63) / 64 * 64 + 192;
    return p;
}

static inline float *tn_relax_floats(tn_relax_memory *m, int64_t n)
{
    return tn_relax_take(m, sizeof(float) * (size_t)n);
}

/* w (n,k), ready for tiles: out (n,width) = w in (k,width). */
typedef struct tn_relax_matrix {
    const float *w; /* element (i,p) is w[i*row + p*col]; NULL: there is none */
    int64_t n, k, row, col;
    void *packed; /* panels of a few rows each; where operands are rounded, what tn_gemm_pack_b or relax_amx.c made */
} tn_relax_matrix;

/* What the samples of a call have in common. */
typedef struct tn_relax_job {
    tn_relax_attr attr;
    struct tn_pool *pool;
    int64_t B, count, d, f, C;
    bool block, hopfield;    /* neither: the energy */
    bool together, absolute; /* all samples stop at once; by tol */
    bool rounded;            /* products go through tn_gemm, with what comes next, or */
    bool amx;                /* through the tile registers */
    tn_dtype round;
    bool bf16x3, portable;
    const float *a, *h0;                                         /* (B,d); h0 may be NULL */
    const float *b1, *b2, *gain2, *bias2, *gain, *bias, *head_b; /* (f), (d) five times, (C) */
    const int32_t *labels;                                       /* (B) */
    const float *weights;                                        /* (B) or NULL */
    float scale, damping, rtol, tol, beta;
    float move;                         /* 0: nudged samples stop as free ones do */
    tn_relax_matrix up, down;           /* of the map: (f,d), (d,f); hopfield has no up */
    tn_relax_matrix up_back, down_back; /* of its gradient by the state; hopfield has no down_back */
    tn_relax_matrix head, head_back;    /* (C,d), (d,C) */
} tn_relax_job;

/* What Anderson acceleration keeps of a tile's columns. */
typedef struct tn_relax_pairs {
    int memory, newest;           /* places of the ring, and the one of the last pair, for all columns */
    double *r;                    /* (memory,d,width): f(h) - h */
    float *f;                     /* (memory,d,width): f(h) */
    double *gram;                 /* (memory,memory,width): r_i . r_k */
    double *system;               /* (memory,memory,width): scratch */
    int32_t kept[TN_RELAX_LANES]; /* a column's own pairs are the newest so many */
    float before[TN_RELAX_LANES]; /* |r| of the last one */
} tn_relax_pairs;

typedef struct tn_relax_tile {
    int width, live;            /* columns, and how many of them (the first ones) hold samples */
    float *h, *a;               /* (d,width): the state, the injection; an adjoint's lambda and g */
    float *u, *x, *y;           /* (d,width): inside the map; y is the map's value */
    float *z;                   /* (f,width) */
    float *slope;               /* (f,width): the activation's at the state that was kept, and there */
    float *n2, *n;              /* (d,width): the norms' normalised inputs, and */
    float *s2, *s;              /* (width): their scales */
    float *logits;              /* (C,width) */
    float *residual, *distance; /* (width): |f - h| / |f| and |f - h| of the last step */
    float *moved;               /* (width): |h_next - h|^2 */
    float *eta, *weight;        /* (width): the nudge and how much the cost counts */
    float *rest;                /* (d,width): nudged, what the map leaves at the free state and is taken off; or NULL */
    float *origin;              /* (d,width): nudged, the free state that a move is measured from; or NULL */
    float limit;                /* a residual below it has arrived */
    int32_t label[TN_RELAX_LANES];
    int64_t task[TN_RELAX_LANES];
    int32_t steps[TN_RELAX_LANES];
    float *rows; /* (width,max(d,f)): where tn_gemm puts a product */
    void *gemm;  /* its workspace */
    tn_relax_pairs pairs;
    float *row; /* (2,d): a sample's h and f(h) side by side */
} tn_relax_tile;

/* --- relax_lanes.c ------------------------------------------------------------------------------------------------ */

int tn_relax_width(int samples);                    /* the least width for so many */
int64_t tn__relax_panels(const tn_relax_matrix *m); /* how many; each is packed by itself */
void tn__relax_panel(const tn_relax_matrix *m, int64_t i);
void tn__relax_product(const tn_relax_matrix *m, int width, const float *in, float *out);
/* Columns of a (k,width) from n rows of k anywhere, zeros behind them; and back. */
void tn_relax_gather(float *a, int width, const float *const *rows, int n, int64_t k);
void tn_relax_scatter(const float *a, int width, float *const *rows, int n, int64_t k);

/* --- relax_amx.c -------------------------------------------------------------------------------------------------- */

bool tn__relax_amx(void); /* this machine has it, and tiles are as wide as its registers */
size_t tn__relax_amx_bytes(const tn_relax_matrix *m);
int64_t tn__relax_amx_panels(const tn_relax_matrix *m);
void tn__relax_amx_panel(const tn_relax_matrix *m, int64_t i);
/* Around a thread's products, but for those of tn_gemm. */
void tn__relax_amx_begin(void);
void tn__relax_amx_end(void);
/* `paired`: 2 bytes for each number of `in`, and for those that make k a multiple of 32. */
void tn__relax_amx_product(const tn_relax_matrix *m, const float *in, float *out, void *paired);

/* --- relax_matrix.c ----------------------------------------------------------------------------------------------- */

size_t tn_relax_packed_bytes(const tn_relax_job *j, const tn_relax_matrix *m);
void tn_relax_pack(const tn_relax_job *j, tn_relax_matrix *m);
/* out (n,width) = m in (k,width). */
void tn_relax_multiply(const tn_relax_job *j, const tn_relax_matrix *m, const tn_relax_tile *t, const float *in,
                       float *out);

/* --- relax_map.c -------------------------------------------------------------------------------------------------- */

/* What the gradients need of f at a state, besides what the products took, which z and x then hold. */
typedef enum tn_relax_keep {
    TN_RELAX_KEEP_IN = 1,  /* slope, n2 and s2 */
    TN_RELAX_KEEP_OUT = 2, /* n and s */
    TN_RELAX_KEEP_ALL = 3
} tn_relax_keep;

/* t->y = f(t->h). keep: what stays, or 0. */
typedef void tn_relax_apply_fn(const tn_relax_job *j, tn_relax_tile *t, unsigned keep);
/* As apply that keeps TN_RELAX_KEEP_IN, but y is left out, and with it the last product. */
typedef void tn_relax_enter_fn(const tn_relax_job *j, tn_relax_tile *t);
/* With lambda (d,width): y = J^T lambda at the kept state; u, z, x hold the gradients behind the products: by what is
 * added to W2's output, by what is added to W1's, and by W1's input. The energy has no such u, hopfield no such
 * x either. */
typedef void tn_relax_pull_fn(const tn_relax_job *j, tn_relax_tile *t, const float *lambda);

tn_relax_apply_fn tn_relax_apply_block, tn_relax_apply_energy, tn_relax_apply_hopfield;
tn_relax_enter_fn tn_relax_enter_block, tn_relax_enter_energy, tn_relax_enter_hopfield;
tn_relax_pull_fn tn_relax_pull_block, tn_relax_pull_energy, tn_relax_pull_hopfield;

/* y -= eta dC/dh at y, after y -= rest. */
void tn_relax_nudge(const tn_relax_job *j, tn_relax_tile *t);
void tn_relax_add(const tn_relax_job *j, tn_relax_tile *t); /* y += a */
/* residual, distance and moved, and, unless it only looks, h <- (1-damping) h + damping y. Where there is an origin, the residual is
 * a part of |y - origin|, or of a thousandth of |y| where that is more. */
void tn_relax_advance(const tn_relax_job *j, tn_relax_tile *t, bool looks);

/* --- relax_anderson.c --------------------------------------------------------------------------------------------- */

/* After advance has looked: the accelerated step of every column, a damped one for those that have arrived; and moved. */
void tn_relax_accelerate(const tn_relax_job *j, tn_relax_tile *t);

/* --- relax_solve.c ------------------------------------------------------------------------------------------------ */

/* What is kept of f at a state for its gradients: rows for all samples. */
typedef struct tn_relax_kept {
    /* Numbers from one row of what outer products are summed from to the next, here and in tn_relax_rows: a few more than it
     * has, since rows a power of two apart compete for the same places of a cache. */
    int64_t f_apart, d_apart;
    float *active, *slope; /* (B,f), f_apart: what W2 takes; the activation's slope */
    float *x;              /* (B,d), d_apart: what W1 takes */
    float *n2, *n;         /* (B,d) */
    float *s2, *s;         /* (B) */
} tn_relax_kept;

typedef enum tn_relax_phase { TN_RELAX_FREE, TN_RELAX_NUDGED, TN_RELAX_ADJOINT } tn_relax_phase;

/* One phase of the solve, for all samples. A nudged one has a task for each sample and sign. */
typedef struct tn_relax_solve {
    tn_relax_phase phase;
    const float *from;         /* (B,d): where it begins; NULL: at 0 */
    float *to;                 /* (signs,B,d): where it ends */
    const float *inject;       /* (B,d): a, or an adjoint's g */
    const tn_relax_kept *kept; /* TN_RELAX_ADJOINT */
    const float *rest;         /* (B,d): TN_RELAX_NUDGED, f(h) - h at the free state; or NULL */
    int signs;                 /* 1, or 2: +eta, then -eta */
    float eta;
    int32_t *steps; /* (signs,B): evaluations; or NULL */
    const int32_t
        *waiting; /* the tasks (sign * count + sample) that have not arrived after a first step, which is done and in */
    int64_t n_waiting; /* `to`; NULL: all tasks, from the beginning */
    float *residuals;  /* (B): of the last one; or NULL */
    float *history;    /* (attr.steps,B,d): the state before each step of a sample; or NULL */
    float *normal;     /* (attr.steps,B,d), and */
    float *scales;     /* (attr.steps,B): n and s of each step; or NULL */
} tn_relax_solve;

/* Scratch memory of the phases. */
typedef struct tn_relax_space {
    char *tiles; /* slots of tile_bytes */
    size_t tile_bytes;
    int slots;
    bool backward;
    /* Where all stop together: */
    float *residual, *moved; /* (B) */
    float *spare;            /* (B,d) */
    tn_anderson pairs;       /* of all samples */
} tn_relax_space;

void tn_relax_run(const tn_relax_job *j, const tn_relax_space *s, tn_relax_solve *v);
/* Which of a tile's arrays this phase has, and its limit. */
void tn_relax_set_phase(const tn_relax_job *j, const tn_relax_solve *v, tn_relax_tile *t);
/* The cost of a sample in column `lane`, with this sign of the nudge. */
void tn_relax_set_cost(const tn_relax_job *j, const tn_relax_solve *v, tn_relax_tile *t, int lane, int64_t sample,
                       int sign);

/* Columns of a (k,width) from n rows (n,k) `step` apart, zeros behind them; and back. */
void tn_relax_load(float *a, int width, const float *rows, int64_t step, int n, int64_t k);
void tn_relax_store(const float *a, int width, float *rows, int64_t step, int n, int64_t k);

typedef void tn_relax_share(void *arg, tn_relax_tile *t, int64_t first);
/* Shares n samples out to the threads: fn(arg, t, first) with t->live samples from `first` on. */
void tn_relax_each(const tn_relax_job *j, const tn_relax_space *s, int64_t n, tn_relax_share *fn, void *arg);

/* A tile's slope, n2, n, s2 and s from and to the rows of its samples, which begin at `first`. */
void tn_relax_recall(const tn_relax_job *j, tn_relax_tile *t, const tn_relax_kept *k, int64_t first);
void tn_relax_remember(const tn_relax_job *j, const tn_relax_tile *t, const tn_relax_kept *k, int64_t first);

size_t tn_relax_space_bytes(const tn_relax_job *j, bool backward, int slots);
tn_relax_space tn_relax_space_at(const tn_relax_job *j, bool backward, int slots, void *base); /* 64-byte aligned */

/* --- relax_sums.c ------------------------------------------------------------------------------------------------- */

/* c (m,n) = or += factor sum_b x_b y_b^T, x (rows,m), y (rows,n). */
typedef struct tn_relax_outer {
    const float *x, *y;
    int64_t x_row, y_row; /* numbers from one row to the next */
    float *c;
    int64_t rows, m, n;
    float factor;
    bool add;
} tn_relax_outer;

bool tn__relax_outer_fits(int64_t m, int64_t n);                                 /* else tn_gemm has it */
void tn__relax_outer_rows(const tn_relax_outer *o, int64_t first, int64_t last); /* of c; both multiples of 4 */
void tn__relax_columns(const float *restrict x, const float *restrict y, int64_t rows, int64_t n, int64_t count,
                       double *restrict sum);

/* --- relax_grad.c ------------------------------------------------------------------------------------------------- */

/* Rows that the gradients of the parameters are summed from: one for each sample, or, bptt, for each sample and step as they
 * come. */
typedef struct tn_relax_rows {
    int64_t most; /* bptt: rows there is room for, B at least; below, B stands for it */
    tn_relax_kept kept;
    float *lambda;    /* (B,d) */
    float *u;         /* (B,d), d_apart: the gradient at W2's output */
    float *q;         /* (B,d): at W1's input */
    float *z;         /* (B,f), f_apart: at W1's output; may be kept.slope */
    float *nudged;    /* (signs,B,d): ep */
    float *rest;      /* (B,d): ep, nudged from rest */
    int32_t *steps;   /* (signs,B): ep */
    int32_t *waiting; /* (signs,B): ep */
    float *carried;   /* (B,d): bptt */
    int32_t *order;   /* (B): bptt, the samples by their steps, those with most first */
    int32_t *live;    /* (attr.steps + 1): bptt, how many take more steps than that */
    void *gemm;       /* workspace of the products */
} tn_relax_rows;

tn_status tn_relax_gradients(const tn_call *c, const tn_relax_job *j, const tn_relax_space *s, const tn_relax_rows *r);

/* --- relax_plain.c ------------------------------------------------------------------------------------------------ */

/* Who computes a map, on both devices. A new map is a kind and its row. */
typedef struct tn_relax_map {
    tn_body_build *body, *ep_body; /* of plain ops, for tn_loop; the second with gradients of ep */
    tn_relax_apply_fn *apply;      /* CPU: on tiles */
    tn_relax_enter_fn *enter;
    tn_relax_pull_fn *pull;
    tn_loop_fused *phase; /* CUDA: the phases of tn_loop whole; NULL: step by step */
} tn_relax_map;
extern const tn_relax_map tn_relax_maps[TN_RELAX_KINDS];

static inline void tn_relax_apply(const tn_relax_job *j, tn_relax_tile *t, unsigned keep)
{
    tn_relax_maps[j->attr.kind].apply(j, t, keep);
}

static inline void tn_relax_enter(const tn_relax_job *j, tn_relax_tile *t) { tn_relax_maps[j->attr.kind].enter(j, t); }

static inline void tn_relax_pull(const tn_relax_job *j, tn_relax_tile *t, const float *lambda)
{
    tn_relax_maps[j->attr.kind].pull(j, t, lambda);
}

/* --- relax_cpu.c -------------------------------------------------------------------------------------------------- */

size_t tn_relax_work_cpu(const tn_sig *s, bool backward);
tn_kernel tn_relax_forward_cpu, tn_relax_backward_cpu;

#endif
