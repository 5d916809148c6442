/* The energy-flow lattice in double, one flow after the other: forward, written-out backward, collection, start. Plain loops for
 * tests; nothing is clever here. Conventions where the formulas leave a choice:
 *
 *   move      want = clamp(kappa delta, +-limit) + (0, 0, side tau) + noise; side: of zeta before the move; where zeta is 0, +1 if
 *             x + y of the cell of birth is even, else -1
 *   spawn     l = |want|; floor(l / rho) - 1 children, at most spawn, of every flow that moved, also one that leaves; they start at
 *             the place before the move with the new energy and state and age 0, get the sample's next free slots in the order of
 *             their parents' slots and move from the next step on; shorten: want is cut to length rho first
 *   stop      the first check remembers `done` only; so nothing leaving at all stops at s_min + patience
 *   energy    |e| is Euclidean where a flow carries several numbers
 *   field     phi = F o of all flows that moved goes to the nearest voxel (or by trilinear weights) at the place after the move;
 *             voxels are corners of a grid over [-1,1]^3; the next step reads it, the neuron's input is [q; e; read]
 *   splat     M, the sample's largest score, has a gradient (to the first slot that has it); it is of the size of eps */
#ifndef TN_TESTS_FLOW_ORACLE_H
#define TN_TESTS_FLOW_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FO_E = 4,
    FO_FIELD = 8,
    FO_N = 64,
    FO_H = 64,
    FO_L = 3
}; /* most of each: energy, field, neuron and head, state, layers */

/* Parameters; of GRU layer l: FO_GRU + 4 l + FO_WI ... FO_BH, gates in the order r, z, n. */
enum {
    FO_Q,   /* (3,3) */
    FO_QB,  /* (3) */
    FO_V1,  /* (neuron,3+E+F) */
    FO_V1B, /* (neuron), as all to FO_N2B but V2 */
    FO_N1G,
    FO_N1B,
    FO_V2, /* (neuron,neuron) */
    FO_V2B,
    FO_N2G,
    FO_N2B,
    FO_V3,  /* (features,neuron) */
    FO_V3B, /* (features) */
    FO_E1,  /* (H/2,H) */
    FO_E1B, /* (H/2) */
    FO_E2,  /* (E,H/2) */
    FO_E2B, /* (E) */
    FO_D1,  /* (hidden,H) */
    FO_D1B, /* (hidden) */
    FO_D2,  /* (3,hidden) */
    FO_D2B, /* (3) */
    FO_F,   /* (F,H) */
    FO_GRU,
    FO_PARAMS = FO_GRU + 4 * FO_L
};
enum { FO_WI, FO_WH, FO_BI, FO_BH }; /* (3H,features+E or H) (3H,H) (3H) (3H) */

typedef struct fo_stop {
    bool never;      /* only when no flow is active, or at the last step */
    bool per_sample; /* counts of a sample instead of the batch's */
    double threshold;
    int s_min, patience;
} fo_stop;

/* Collection: sizes and rules of a surface. */
typedef struct fo_surface {
    int W, Hs, E;
    int64_t B, slots;
    bool nearest, beside; /* beside: the planes are next to each other, (B,2 S,E), that of -1 first */
    double age, eps;      /* what a step of age adds to a score; splat: added to the sum of weights */
    const int64_t *cells; /* (B,slots): nearest cells held fixed, or NULL */
} fo_surface;

/* Landings: (B,slots), e (B,slots,E). Integers are doubles too, as the driver of ops has them. */
typedef struct fo_landings {
    double *u, *v, *d, *e, *plane, *age, *landed; /* plane 0: zeta = -1, 1: +1 */
} fo_landings;

typedef struct fo_net {
    int W, Hs, D, B, E, H, L;
    int neuron, features, hidden; /* 32, 64, 64 */
    int field, grid[3];           /* channels (0: none) and corners along x, y, z */
    bool smooth;                  /* deposit by trilinear weights */
    int steps;                    /* A_max */
    double start;                 /* zeta of the input plane */
    double limit, kappa, tau, sigma;
    bool noise_z;
    double (*noise)(const void *key, int64_t sample, int64_t slot, int64_t step, int axis); /* N(0,1) */
    const void *key;
    const int64_t *number; /* (B): the sample's number in the training set */
    fo_stop stop;
    int spawn; /* most children of a flow in a step; 0: none */
    double rho;
    bool shorten;
    const double *p[FO_PARAMS], *E0; /* E0 (B,S,E) */
} fo_net;

/* --- one cell ------------------------------------------------------------------------------------------------------------- */

/* The inside of neuron, GRU and heads for one flow. */
typedef struct fo_cell {
    double in[3 + FO_E + FO_FIELD], n[2][FO_N], scale[2], y[2][FO_N], a[2][FO_N]; /* of the neuron's layers */
    double x[FO_L][FO_N + FO_E], h[FO_L][FO_H], r[FO_L][FO_H], z[FO_L][FO_H], c[FO_L][FO_H], q[FO_L][FO_H];
    double o[FO_L][FO_H]; /* new states */
    double te[FO_H], ge[FO_H], e[FO_E], td[FO_N], gd[FO_N], delta[3], phi[FO_FIELD];
} fo_cell;

/* What goes into a cell, or gradients by it. */
typedef struct fo_state {
    double p[3], e[FO_E], h[FO_L][FO_H], read[FO_FIELD];
} fo_state;

/* Gradients by what comes out of a cell. */
typedef struct fo_result {
    double delta[3], e[FO_E], h[FO_L][FO_H], phi[FO_FIELD];
} fo_result;

void fo_cell_forward(const fo_net *m, const fo_state *s, fo_cell *t);
/* in: gradients by the state, written; dp: by the parameters, added to, NULL where not wanted. */
void fo_cell_backward(const fo_net *m, const fo_state *s, const fo_cell *t, const fo_result *out, fo_state *in,
                      double *const *dp);
/* Rows and columns of a parameter; 0: the net has none. A vector has one column. */
int64_t fo_size(const fo_net *m, int which, int64_t *rows, int64_t *columns);
/* First values of parameter `which`. */
void fo_start(const fo_net *m, int which, uint64_t seed, double *x);

/* --- the lattice ---------------------------------------------------------------------------------------------------------- */

typedef struct fo_flow {
    fo_state s;
    int age, origin; /* steps lived, cell of birth */
    bool active;
} fo_flow;

/* What a flow did in a step. */
typedef struct fo_move {
    bool moved, leaves, inside[3];
    double want[3], length, cut, sign[3]; /* the move is cut want; sign: of the slope of the fold, 0: held at a plane */
    int64_t child;
    int children;
} fo_move;

/* After a step: asked = active + exited + projected + refused. */
typedef struct fo_count {
    int64_t asked, active, exited, projected, refused;
} fo_count;

typedef struct fo_run {
    int steps;       /* taken, by the sample that took most */
    int64_t slots;   /* of a sample */
    fo_flow *flow;   /* (net.steps + 1,B,slots): before each step */
    fo_move *move;   /* (net.steps,B,slots) */
    double *grid;    /* (net.steps,B,voxels,field): after each step */
    fo_count *count; /* (net.steps + 1,B): after 0, 1, ... steps; the last one after projection */
    int *stopped;    /* (B): at the top of which step */
    fo_landings l;
    double *zeta;    /* (B,slots): of the plane */
    bool *projected; /* (B,slots) */
} fo_run;

fo_run *fo_forward(const fo_net *m);
void fo_free(fo_run *r);
/* Gradients added to dp (by parameter) and dE0 (B,S,E), NULL where not wanted, for those by the landings' u, v, d and e. */
void fo_backward(const fo_net *m, const fo_run *r, const fo_landings *g, double *const *dp, double *dE0);

/* The rules that stop a rollout, at the top of step s; begin with { -1, 0 }. */
typedef struct fo_watch {
    int64_t last;
    int stale;
} fo_watch;
typedef enum fo_why { FO_GO, FO_THRESHOLD, FO_STALE, FO_EMPTY } fo_why;
fo_why fo_stops(const fo_stop *rule, fo_watch *w, int s, int64_t done, int64_t created, int64_t active);

/* --- collection ----------------------------------------------------------------------------------------------------------- */

fo_landings fo_landings_new(int64_t B, int64_t slots, int E); /* zeros */
void fo_landings_free(fo_landings *l);
int64_t fo_nearest_cell(const fo_surface *s, double u, double v);
void fo_collect(const fo_surface *s, const fo_landings *l, double *O);
/* g's u, v, d, e are added to. */
void fo_collect_backward(const fo_surface *s, const fo_landings *l, const double *dO, fo_landings *g);

#endif
