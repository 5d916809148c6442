/* rollout: flows from the cells of a surface through a lattice, until each has left it, as one node.
 *
 *     tn_rollout(g, e0, &p, &(tn_rollout_options){ .width = W, .height = H, .steps = T, ... }, out)
 *     e0 (B,S,E): energies of the S = W H cells, cell y W + x; one flow starts in each, in the middle of the lattice
 *
 * Every step one shared cell decides for each active flow, from its place p in [-1,1]^3, energy e and state h:
 *
 *     q = Q p + q0      f = V3 gelu(LN(V2 gelu(LN(V1 [q; e; read])))) (+ biases)      x = [f; e]
 *     h_l = GRU_l(h_(l-1) or x, h_l), l = 1..L (as in gru)      o = h_L
 *     e' = tanh(E2 gelu(E1 o))      delta = D2 gelu(D1 o)      phi = F o
 *     p' = fold(p + clamp(kappa delta, +-limit) + (0, 0, side drift) + sigma noise)
 *
 * A flow leaves where its third coordinate reaches -1 or +1. Those still active when the rollout stops are projected onto the
 * nearer plane; d is the distance that they had left. Conventions where a choice is open: tests/flow_oracle.h.
 *
 * A flow's slot is its cell of birth; a sample has N = S slots, with spawn S + S/4. Nothing of a sample depends on another,
 * except where the batch stops as a whole. Rows of step t are the active flows in the order of sample and slot; a row's
 * bits depend on that flow alone (with a field: on its sample). Sums over flows go sample by sample, in pieces of
 * TN_ROLLOUT_PIECE slots, in the order of slots, so that no bit depends on threads, panels, compaction or checkpoints.
 * Noise is a function of (seed, optimizer step, the sample's number, slot, lattice step, axis).
 *
 * Words of noise: Philox with the seed of dropout's kind, seed + optimizer step * 0x9E3779B97F4A7C15; stream: the sample's
 * number; index: slot + lattice step * 2^32 (rollout_move.h). NaN stays in its flow (with a field: in its sample) and lands.
 * Operands of the products of the GRU and of E1 and D1 are rounded where the graph says so; the others stay f32.
 *
 * keep: states are kept every so many steps, and the backward pass computes the steps between again; 0: everything is kept.
 * Decisions (who left, where a move was clamped or folded) are kept, never made again.
 *
 * opt.rollout_compact=off runs these kernels with a row for every slot in every step: flows that left are computed on and thrown
 * away, with the same bits. No graph of other ops is a twin, as the number of rows is known only while it runs: the loops in double
 * of tests/flow_oracle.h, whose written-out backward pass is tested against differences, play the twin's part in the tests. */
#ifndef TN_OPS_ROLLOUT_H
#define TN_OPS_ROLLOUT_H

#include <tenon/op.h>

enum { TN_ROLLOUT_LAYERS = 4, TN_ROLLOUT_ENERGY = 8, TN_ROLLOUT_FIELD = 16, TN_ROLLOUT_PIECE = 256 };

/* Inputs. Layer l of the GRU has TN_ROLLOUT_GRU + 4 l + (0 .. 3): w_i (3H,X), w_h (3H,H), b_i (3H), b_h (3H). */
enum {
    TN_ROLLOUT_E0,
    TN_ROLLOUT_NUMBER, /* i32 (B): of the sample in the training set; none: its row */
    TN_ROLLOUT_SEED,   /* i64 (2); none: no noise */
    TN_ROLLOUT_KAPPA,  /* f32 (1), none: 1 */
    TN_ROLLOUT_DRIFT,  /* f32 (1), none: 0 */
    TN_ROLLOUT_SIGMA,  /* f32 (1), none: 0 */
    TN_ROLLOUT_COUNT,  /* i32 (1): valid rows of the batch; none: all. The others have no flows */
    TN_ROLLOUT_Q,      /* (3,3) */
    TN_ROLLOUT_QB,     /* (3) */
    TN_ROLLOUT_V1,     /* (32,3+E+F) */
    TN_ROLLOUT_V1B,
    TN_ROLLOUT_N1G,
    TN_ROLLOUT_N1B,
    TN_ROLLOUT_V2, /* (32,32) */
    TN_ROLLOUT_V2B,
    TN_ROLLOUT_N2G,
    TN_ROLLOUT_N2B,
    TN_ROLLOUT_V3, /* (64,32) */
    TN_ROLLOUT_V3B,
    TN_ROLLOUT_E1, /* (H/2,H) */
    TN_ROLLOUT_E1B,
    TN_ROLLOUT_E2, /* (E,H/2) */
    TN_ROLLOUT_E2B,
    TN_ROLLOUT_D1, /* (64,H) */
    TN_ROLLOUT_D1B,
    TN_ROLLOUT_D2, /* (3,64) */
    TN_ROLLOUT_D2B,
    TN_ROLLOUT_F, /* (F,H); none: no field */
    TN_ROLLOUT_GRU,
    TN_ROLLOUT_INPUTS = TN_ROLLOUT_GRU + 4 * TN_ROLLOUT_LAYERS
};

/* Outputs. (B,N): by slot. Rows: C = B N at most, as they are at a step. From TN_ROLLOUT_PLACES on they are for the backward
 * pass. Decisions of a row are bits, below. */
enum {
    TN_ROLLOUT_E,      /* f32 (B,N,E): energies of landings */
    TN_ROLLOUT_U,      /* f32 (B,N) */
    TN_ROLLOUT_V,      /* f32 (B,N) */
    TN_ROLLOUT_D,      /* f32 (B,N): distance left; 0 where it left by itself */
    TN_ROLLOUT_PLANE,  /* i32 (B,N): 0: at -1; 1: at +1 */
    TN_ROLLOUT_AGE,    /* i32 (B,N): steps lived */
    TN_ROLLOUT_LANDED, /* i32 (B,N): 0: the slot was never used; 1: left by itself; 2: projected */
    TN_ROLLOUT_COUNTS, /* i32 (B,TN_ROLLOUT_TALLIES): see below */
    TN_ROLLOUT_PATHS,  /* f32 (T+1,B,N,3+E): place and energy before each step and at the end; NaN: not active then. A
                          landing stands at the step after its last, once; a projected one where it was before that */
    TN_ROLLOUT_PLACES, /* f32 (T,C,3+E): place and energy of a row before the step */
    TN_ROLLOUT_SLOT,   /* i32 (T,C): b N + slot of a row */
    TN_ROLLOUT_FROM,   /* i32 (T,C): its row in the step before, or its parent's; step 0: not set */
    TN_ROLLOUT_BITS,   /* i32 (T,C) */
    TN_ROLLOUT_LIVE,   /* i32 (T+1,B+1): first row of each sample, then the number of rows */
    TN_ROLLOUT_STATE,  /* (K,L,C,H): h after step (i+1) k - 1 in its rows; k = keep; keep 0: after every step, K = T */
    TN_ROLLOUT_GATES,  /* (T,L,C,4H): r, z, n, q; keep > 0: (0,L,C,4H) */
    TN_ROLLOUT_HEADS,  /* (T,C,H/2+64): what gelu takes of both heads; keep > 0: (0,C,H/2+64) */
    TN_ROLLOUT_GRID,   /* f32 (T,B,voxels,F): the field after each step; (0,B,voxels,F) without one */
    TN_ROLLOUT_OUTPUTS
};
/* Flows that were to be (births and spawns), that left, were projected, were refused; steps that the sample took; rows of all of them. */
enum {
    TN_ROLLOUT_ASKED,
    TN_ROLLOUT_EXITED,
    TN_ROLLOUT_PROJECTED,
    TN_ROLLOUT_REFUSED,
    TN_ROLLOUT_TAKEN,
    TN_ROLLOUT_FLOW_STEPS,
    TN_ROLLOUT_TALLIES
};
/* Bits of a row: axis i was clamped, axis 0 or 1 was folded, it left, at +1, it was projected after this step, the row holds no
 * active flow (compact off only), its drift was towards +1; children from bit 10 on. */
enum {
    TN_ROLLOUT_CLAMPED = 1,
    TN_ROLLOUT_FOLDED = 8,
    TN_ROLLOUT_LEFT = 32,
    TN_ROLLOUT_UPPER = 64,
    TN_ROLLOUT_LAST = 128,
    TN_ROLLOUT_OFF = 256,
    TN_ROLLOUT_RISES = 512,
    TN_ROLLOUT_CHILDREN = 10
};

typedef enum tn_rollout_stop { TN_ROLLOUT_NEVER, TN_ROLLOUT_BATCH, TN_ROLLOUT_SAMPLE } tn_rollout_stop;

typedef struct tn_rollout_attr {
    int32_t width, height, steps;
    int32_t layers, energy, state; /* of the parameters: L, E, H */
    float start, limit;
    tn_rollout_stop stop;
    float threshold;
    int32_t s_min, patience;
    int32_t spawn; /* most children of a flow in a step; 0: none */
    float rho;
    bool shorten, noise_z;
    int32_t field, grid[3]; /* channels, corners along x, y, z */
    bool smooth;            /* deposit by trilinear weights; else into the nearest corner */
    int32_t keep;
    bool compact;  /* off: flows that left are computed on, and thrown away */
    int32_t panel; /* CPU: rows of a panel; 0: chosen */
} tn_rollout_attr;

typedef struct tn_rollout_options {
    int64_t width, height; /* cells, at least 2 each */
    int64_t steps;         /* at most */
    float start;           /* third coordinate of the input plane */
    float limit;           /* of a move along an axis; 0 = 0.5 */
    tn_rollout_stop stop;
    float threshold; /* 0 = 0.95 */
    int64_t s_min, patience;
    int64_t spawn;
    float rho;
    bool shorten, noise_z;
    int64_t field, grid[3];
    bool smooth;
    int64_t keep, panel;
    tn_ref number, seed, kappa, drift, sigma, count;
} tn_rollout_options;

/* Parameters; of layers that are not there, and without a field f, TN_NONE. */
typedef struct tn_rollout_params {
    tn_ref q, qb, v1, v1b, n1g, n1b, v2, v2b, n2g, n2b, v3, v3b, e1, e1b, e2, e2b, d1, d1b, d2, d2b, f;
    int64_t layers;
    struct {
        tn_ref w_i, w_h, b_i, b_h;
    } gru[TN_ROLLOUT_LAYERS];
} tn_rollout_params;

extern const tn_op tn_op_rollout, tn_op_rollout_plain;

/* out (TN_ROLLOUT_OUTPUTS): the node's outputs; the first nine are of use. */
#define tn_rollout(g, e0, p, ...) tn_rollout_((g), __FILE__, __LINE__, (e0), (p), __VA_ARGS__)
tn_status tn_rollout_(tn_graph *g, const char *file, int line, tn_ref e0, const tn_rollout_params *p,
                      const tn_rollout_options *o, tn_ref out[TN_ROLLOUT_OUTPUTS]);

#endif
