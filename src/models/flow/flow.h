/* What the files of `flow` share: its configuration and the parts that a step is built from.
 *
 * The cells of a surface hold energies. One flow starts in each and moves through a lattice, driven by one shared recurrent cell,
 * until it leaves at one of two planes; where the flows land, and with what energy, is the surface that is read. Files:
 * flow_config.c settings, presets and rows; flow_settings.c reading and checking them; flow.c steps and losses; flow_lattice.c
 * parameters, rollout and collection; flow_start.c first values that keep a flow's energy; flow_mapper.c trained maps between
 * data and surface; flow_memory.c what is kept for the backward pass; flow_schedules.c; flow_metrics.c; flow_instruments.c.
 * Shapes: B samples, F numbers of a sample, W x H cells (S of them), N slots for flows, E numbers of an energy, C classes. */
#ifndef TN_MODELS_FLOW_FLOW_H
#define TN_MODELS_FLOW_FLOW_H

#include "models/blocks.h"

/* In the order of the choices in the settings. */
typedef enum flow_lattice_use { FLOW_ON, FLOW_FROZEN, FLOW_OFF } flow_lattice_use;

typedef struct flow_config {
    int64_t inputs; /* F: numbers of a sample, all tokens together */
    int64_t classes, width, height, depth, steps, dim, layers, energy;
    int64_t s_min, patience, spawn, field, grid[3], keep; /* keep -1: auto */
    tn_rollout_stop stop;
    flow_lattice_use lattice;
    bool kept, nearest, beside, shorten, noise_z, smooth, map_in, map_out;
    float start, threshold, rho, eps, mapper_dropout, field_init;
    double keep_bytes; /* 0: the machine says */
} flow_config;

/* flow_start.c: first values with which a flow nearly keeps its energy. size: of the other numbers; column: where the energy is
 * among a layer's inputs. */
typedef enum flow_started { FLOW_INPUTS, FLOW_STATES, FLOW_BIAS, FLOW_HEAD1, FLOW_HEAD2 } flow_started;
bool flow_keeps_energy(const flow_config *c);
tn_init flow_start(const flow_config *c, flow_started what, float size, int64_t column);

/* Settings with their cross-checks. Without a batch (g, b NULL) sizes are those of the settings. */
tn_status flow_config_read(const tn_settings *st, const tn_graph *g, const tn_batch *b, flow_config *c);
int64_t flow_steps(const tn_settings *st); /* the most that a flow takes */
/* Cells of the surface that is read, planes beside each other counted twice; and slots of a sample. */
int64_t flow_cells(const flow_config *c);
int64_t flow_slots(const flow_config *c);

/* The network under construction. */
typedef struct flow_net {
    tn_graph *g;
    const flow_config *c;
    const tn_batch *b;
    bool noisy; /* a training step */
} flow_net;

/* What a rollout leaves; of no use are those that belong to the backward pass. */
typedef struct flow_landings {
    tn_ref out[TN_ROLLOUT_OUTPUTS];
    tn_ref surface; /* (B,cells,E) */
} flow_landings;

tn_status flow_lattice(const flow_net *n, tn_ref e0, flow_landings *out);

/* x (B,F) to energies (B,S), and a surface (B,k) to `outputs` numbers (B,outputs). */
tn_ref flow_map_in(const flow_net *n, tn_ref x);
tn_ref flow_map_out(const flow_net *n, tn_ref x, int64_t outputs);
/* Refused before anything is allocated: a mapper that no memory holds. */
tn_status flow_mapper_fits(const tn_graph *g, const flow_config *c);

/* keep of the rollout: 0, or every so many steps; refused where no choice fits. */
tn_status flow_keep(const tn_graph *g, const flow_config *c, int64_t batch, int64_t *keep);
/* Bytes of a step's activations with this keep. */
double flow_keep_bytes(const tn_graph *g, const flow_config *c, int64_t batch, int64_t keep);
double flow_memory(const tn_graph *g); /* of the device */
const char *flow_memory_where(const tn_graph *g);

tn_status flow_build(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status flow_build_flows(tn_graph *g, const tn_settings *st, const tn_batch *b);
tn_status flow_forward(tn_graph *g, const tn_settings *st, const tn_batch *b, tn_forward *out);
void flow_instruments(const tn_settings *st, const tn_instruments *in);
/* The same of a lattice that is a part of another model. */
void flow_report(const tn_instruments *in, int64_t width, int64_t height, int64_t slots);

double flow_kappa_at(const tn_settings *st, int64_t step);
double flow_drift_at(const tn_settings *st, int64_t step);
double flow_noise_at(const tn_settings *st, int64_t step);
double flow_exit_at(const tn_settings *st, int64_t step);

/* Of sums "squares" and "cells". */
double flow_psnr(const double *sums, const tn_settings *st);
/* Ink of cells whose flow lands in its goal, and of all that have one. */
void flow_landing_add(const tn_metric_view *v, double *sums);
/* The cell that is nearest to a place in [-1,1]. */
int64_t flow_cell(double u, double v, int64_t width, int64_t height);

#endif
