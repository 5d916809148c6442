/* What the files of `tep` share: its configuration, the network under construction, the maps whose fixed point is sought.
 *
 * A sample's features x give an injection a; the state h solves h = f(h; a); a linear head reads it. Files: tep_config.c settings
 * and presets; tep.c embedding, head and loss; tep_solve.c the solve with its gradients and the cost that nudges it;
 * tep_block.c, tep_energy.c, tep_toroidal.c, tep_hopfield.c the maps f; tep_spectrum.c what keeps a map contracting; tep_instruments.c.
 * Shapes: B samples, S = tokens, F = inputs, C = classes, L labels of a sample (1 or S), d = dim, m = ff. */
#ifndef TN_MODELS_TEP_TEP_H
#define TN_MODELS_TEP_TEP_H

#include "models/blocks.h"

/* In the order of the choices in the settings (after grad=auto). */
typedef enum tep_mode { TEP_BLOCK, TEP_ENERGY, TEP_TOROIDAL, TEP_HOPFIELD } tep_mode;
typedef enum tep_grad { TEP_EP, TEP_EP_CENTRED, TEP_IMPLICIT, TEP_ONE_STEP, TEP_BPTT } tep_grad;

typedef struct tep_config {
    int64_t inputs, tokens, classes, dim, ff, heads, iterations, memory, buffer;
    tep_mode mode;
    tep_grad grad;
    bool faithful, softmax, anderson, at_rest, positions, through_sigma, value, cache;
    float beta, damping, rtol, tol, nudge_rtol, kappa, radius, alpha, fade, jacobian, head_scale;
} tep_config;

/* The batch may be NULL: sizes that are auto are then 0. */
tn_status tep_config_read(const tn_settings *st, tn_graph *g, const tn_batch *b, tep_config *c);
tn_status tep_build(tn_graph *g, const tn_settings *st, const tn_batch *b);
void tep_instruments(const tn_settings *st, const tn_instruments *in);

/* The network under construction. */
typedef struct tep_net {
    tn_graph *g;
    const tep_config *c;
    const tn_batch *b;
    int64_t labels;          /* L */
    tn_ref head_w, head_b;   /* (C,d), (C) */
    tn_ref value_w, value_b; /* (1,d), (1), or none */
} tep_net;

/* f of h = f(h): what one evaluation reads, and the shape of a state. */
typedef struct tep_map {
    tn_body_build *build;
    tn_ref consts[TN_BODY_MAX];
    int n;
    uint64_t per_sample; /* bit i: constant i has samples along axis 0 */
    tn_dims state;       /* (B,...) */
    bool fused;          /* tn_relax solves it, as this kind; constants in the order of tep_solve.c */
    tn_relax_kind kind;
} tep_map;

void tep_map_add(tep_map *m, tn_ref x);        /* the same for all samples */
void tep_map_add_sample(tep_map *m, tn_ref x); /* samples along axis 0 */

/* A weight (n,k) and its bias (n) under these names in the open scope, uniform up to `bound` (0: 1/sqrt(k)) and `bias_bound`
 * (0: zeros). */
typedef struct tep_affine {
    tn_ref w, b;
} tep_affine;
tep_affine tep_affine_make(tn_graph *g, const char *w, const char *b, int64_t n, int64_t k, float bound,
                           float bias_bound);

/* Maps: x (B,S,F) is what the samples are; parameters are made in the open scope. */
tep_map tep_block(tep_net *n, tn_ref x);
tep_map tep_energy(tep_net *n, tn_ref x);
tep_map tep_toroidal(tep_net *n, tn_ref x);
tep_map tep_hopfield(tep_net *n, tn_ref x);
/* e = We x + be (B,S,d), or (B,d) of one token. */
tn_ref tep_embed(tep_net *n, tn_ref x);

/* sigma(w), the largest singular value, f32 (1); w (n,k). Training steps go on where the last one stopped. Without gradient, but
 * for through_sigma. */
tn_ref tep_sigma(const tep_net *n, tn_ref w, const char *name);

/* The equilibrium of a map; with gradients as grad says. */
tn_ref tep_solve(tep_net *n, const tep_map *m);
/* jacobian |J v|^2 / width at the equilibrium h, a mean over samples, one number; none where it is not asked for. */
tn_ref tep_slope_penalty(const tep_net *n, const tep_map *m, tn_ref h);
/* What the head reads of a state; nudges: in the cost that nudges it: (B,d), or (B,S,d) where every token has a label. */
tn_ref tep_read(const tep_net *n, tn_graph *g, tn_ref h, bool nudges);
/* Sum over samples of w CE + (value - target)^2 / 2: what the loss is a mean of, and what nudges. */
typedef struct tep_target {
    tn_ref head_w, head_b, labels, weights, value_w, value_b, targets; /* the last four may be none */
} tep_target;
tn_ref tep_cost(const tep_net *n, tn_graph *g, tn_ref h, const tep_target *t, tn_ref count, bool nudges);
tep_target tep_target_of(const tep_net *n);
tn_ref tep_sample_count(const tep_net *n); /* valid rows, f32 (1) */
tn_ref tep_label_count(const tep_net *n);  /* labels that count, f32 (1), at least 1 */

#endif
