/* What the files of `ten` share: its configuration, the network under construction, the kinds of layers.
 *
 * A layer is a mixer and a feed-forward network in a frame (ten.c). Mixers: D (ten_d.c), O (ten_o.c), E (ten_e.c) and W
 * (attention of models/blocks.h). Shapes: B sequences, T tokens, d = dim, K eigenstates of a layer over all its cells. */
#ifndef TN_MODELS_TEN_TEN_H
#define TN_MODELS_TEN_TEN_H

#include "models/blocks.h"
#include "models/decode_cache.h"

enum { TEN_SCALES = 8 };

/* In the order of the choices in the settings. */
typedef enum ten_resonance { TEN_RESONANCE_NONE, TEN_RESONANCE_DENSE, TEN_RESONANCE_BLOCKS } ten_resonance;
typedef enum ten_gate { TEN_GATE_NONE, TEN_GATE_SIGMOID, TEN_GATE_SILU } ten_gate;
typedef enum ten_select { TEN_SELECT_NONE, TEN_SELECT_BOUNDED, TEN_SELECT_RG } ten_select;
typedef enum ten_act { TEN_ACT_SWIGLU, TEN_ACT_SILU, TEN_ACT_GELU, TEN_ACT_GELU_ERF } ten_act;
typedef enum ten_pos { TEN_POS_NONE, TEN_POS_LEARNED, TEN_POS_SIN } ten_pos;
typedef enum ten_gamma { TEN_GAMMA_NONE, TEN_GAMMA_FOLLOWS, TEN_GAMMA_FREE } ten_gamma;
typedef enum ten_omega { TEN_OMEGA_LEARNED, TEN_OMEGA_FIXED, TEN_OMEGA_ZERO } ten_omega;
typedef enum ten_rotate { TEN_ROTATE_NONE, TEN_ROTATE_FIXED, TEN_ROTATE_LEARNED, TEN_ROTATE_TOKEN } ten_rotate;
typedef enum ten_write { TEN_WRITE_SIGMOID, TEN_WRITE_NORMED, TEN_WRITE_DECAY, TEN_WRITE_DELTA } ten_write;
typedef enum ten_forget { TEN_FORGET_TOKEN, TEN_FORGET_FIXED, TEN_FORGET_CHANNEL } ten_forget;
typedef enum ten_start { TEN_START_LOG, TEN_START_RING, TEN_START_UNIFORM } ten_start;

typedef struct ten_config {
    const char *pattern; /* kinds, repeated over the layers */
    int64_t dim, layers, k, heads, head_dim, ffn, vocab, chunk, window, context, conv, cells, tbptt;
    bool post_norm, layer_norm, skip;
    ten_gate gate;
    ten_omega omega;
    float ring_min, ring_max;
    /* the O layer */
    ten_rotate rotate;
    ten_write write;
    ten_forget forget;
    bool rotate_half, qk_norm, conv_silu;
    ten_act act;
    ten_pos pos;
    int64_t scale[TEN_SCALES]; /* hten; n_scales 0: off */
    int n_scales;
    float dropout, out_std, energy, spectrum_lr;
    /* the E layer */
    bool beta_complex, readout_im, xmem, expexp;
    ten_gamma gamma;
    ten_resonance resonance;
    ten_select select;
    ten_start start;
    float rho_min, rho_max, alpha_min, alpha_max, resonance_eps;
} ten_config;

tn_status ten_config_read(const tn_settings *st, ten_config *c);
tn_status ten_build(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status ten_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out);

/* The network under construction, and what layers hand on besides their output. */
typedef struct ten_net {
    tn_graph *g;
    const ten_config *c;
    tn_ref energy;        /* sum over the layers with a spectrum of mean |c|^2, or none */
    int spectra;          /* how many they are */
    int scope;            /* characters of the path of scopes around the network */
    int64_t layer, scale; /* being built; scale 0: not of hten */
    tn_ref memory;        /* states (B,T,2K) of the E layer before, or none */
    tn_ref memory_resonance;
} ten_net;

/* Mixers: u (B,T,d) -> (B,T,d). */
tn_ref ten_d_layer(ten_net *n, tn_ref u, const tn_batch *b);
tn_ref ten_o_layer(ten_net *n, tn_ref u, const tn_batch *b);
tn_ref ten_e_layer(ten_net *n, tn_ref u, const tn_batch *b);
/* A whole layer on x (B,T,d); and one made of several at the scales of hten (ten_scales.c). */
tn_ref ten_block(ten_net *n, tn_ref x, const tn_batch *b, char kind);
tn_ref ten_scales(ten_net *n, tn_ref x, const tn_batch *b, char kind);
/* Notes the energy of a layer's states c (B,T,2K). */
void ten_note_energy(ten_net *n, tn_ref c);

/* Phases (K) of a D or E layer, as the setting omega says. */
tn_ref ten_phase(ten_net *n, int64_t K, tn_init first);

/* (B,T,1): 0 where a document starts, else 1; none where the batch has no such marks (ten_step.c). */
tn_ref ten_keeping(ten_net *n, const tn_batch *b);
/* c_t = lambda c_{t-1} + gamma x_t op by op: x (B,T,2K), rho, omega and gamma (K), gamma or none; and whether it is asked for. */
bool ten_steps_apart(const ten_net *n, tn_ref rho, const tn_batch *b);
tn_ref ten_steps(ten_net *n, tn_ref x, tn_ref rho, tn_ref omega, tn_ref gamma, const tn_batch *b);

/* Turning keys and queries of an O layer (ten_turn.c): cosines and sines, or none; and x (B,T,H,N) turned by them. */
tn_ref ten_turns(ten_net *n, tn_ref u, const tn_batch *b);
tn_ref ten_turn(ten_net *n, tn_ref x, tn_ref turns, const tn_batch *b);

/* What meets in an O layer: q, k, v (B,T,H,N), logarithm of the decay (B,T,H), or (B,T,HN) where forget=channel, and strength of
 * writing (B,T,H), the state before (B,H,N,N) or none. */
typedef struct ten_written {
    tn_ref q, k, v, alpha, write, state;
} ten_written;

/* The end of a D or O layer (ten_read.c), widths W: (B,T,W) -> (B,T,d). */
typedef struct ten_read {
    tn_ref c, x, z; /* (B,T,W): what the recurrence put out, what went into it, the gate's branch where there is one */
    tn_ref skip, gain; /* (W), or none */
    float scale;       /* of c; 0: 1 */
    int64_t group;     /* numbers that are normalised together; 0: none are */
} ten_read;

tn_ref ten_read_out(ten_net *n, tn_ref u, const ten_read *r);
tn_ref ten_gate_output(ten_net *n, tn_ref u, tn_ref y); /* y sigmoid(w_g u + b_g) where gate=sigmoid, else y */

/* The coupling of eigenstates (ten_resonance.c): its parameter (groups, k, k), or none; and x (n, r K) times it. */
tn_ref ten_resonance_param(ten_net *n);
/* fold: rows of a matrix that will meet states, w -> w R. Else rows of states, c -> R c. */
tn_ref ten_resonate(ten_net *n, tn_ref x, tn_ref resonance, bool fold);

/* Initial values (ten_spectrum.c). */
tn_init ten_init_nu(const ten_config *c);     /* gated recurrence: a gate of 1 gives |lambda| in [ring_min, ring_max] */
tn_init ten_init_omega(void);                 /* half of the states turn slowly */
tn_init ten_init_decay(int64_t decays);       /* O layer: so many decays, then write strengths */
tn_init ten_init_turn(const ten_config *c);   /* O layer: eta */
tn_init ten_init_radius(const ten_config *c); /* E layer: alpha or nu */
tn_init ten_init_phase(const ten_config *c);  /* E layer: omega */
tn_init ten_init_gamma(const ten_config *c);  /* E layer: log sqrt(1-rho^2) of the moduli that ten_init_radius gives */
tn_init ten_init_blocks(void);                /* I + 0.01 N(0,1)/sqrt(k) */
tn_init ten_init_identity(void);
tn_init ten_init_sinusoids(void); /* position table */

/* Instruments (ten_instruments.c). Where ten_is_instrumented, a layer puts out the decay of its states, log|lambda| (n) as the mean over
 * tokens, and of its states (B,T,2K), or those after the last token, the mean square after the last token. */
bool ten_is_instrumented(const ten_net *n, const tn_batch *b);
void ten_put_instruments(ten_net *n, char kind, tn_ref decay, tn_ref states);
tn_ref ten_time_mean(tn_graph *g, tn_ref x);                  /* (B,T,n) -> (n) f32; (n) stays */
tn_ref ten_gated_decay(tn_graph *g, tn_ref gates, tn_ref nu); /* the decay by gates [r | i] (B,T,2K) and nu (K) */
void ten_instruments(const tn_settings *st, const tn_instruments *in);
extern const tn_view_row ten_views[1];

#endif
