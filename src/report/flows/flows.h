/* Pictures of flows through a lattice: a still one as SVG, a page that plays the steps, trajectories as CSV, and the figures of both.
 * All are functions of plain arrays, as the op rollout puts them out: no plan, no session. NaN is left out everywhere.
 *
 * Places are u, v, z in [-1,1]. u and v go over the columns and rows of the surface, z over the depth of the lattice: exits are at -1
 * and +1. Where an energy has several numbers, its length is shown. TN_DISK: cannot write; TN_MEMORY. */
#ifndef TN_REPORT_FLOWS_H
#define TN_REPORT_FLOWS_H

#include "base/status.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct tn_flows {
    const char *run, *split;      /* names, for titles */
    int64_t width, height;        /* W, H: cells of a surface; S = W H */
    int64_t depth;                /* levels of the lattice: z is shown as 0 .. depth; 0: as -1 .. 1 */
    int64_t samples;              /* B */
    int64_t steps, slots, energy; /* T, N, E */
    int64_t planes;               /* P: 1: both exits on one surface; 2: beside each other */
    int64_t target_planes;
    const float *paths; /* (T+1,B,N,3+E): place and energy before each step and at the end; NaN: not active */
    const float *e;     /* (B,N,E): of landings, as the next five */
    const float *u, *v; /* (B,N) */
    const int32_t *plane, *age;
    const int32_t *landed; /* (B,N): 0: none; 1: left by itself; 2: projected */
    const float *input;    /* (B,S) */
    const float *output;   /* (B,P S) */
    bool answers;          /* the output is what the target is compared with: there is a PSNR */
    const float *target;   /* (B,target_planes S), or NULL */
    const int32_t *label;  /* (B), negative: none; or NULL */
} tn_flows;

/* Means over samples, except for counts. What is not known is NaN. */
typedef struct tn_flows_figures {
    int64_t flows, exited, projected;
    double age;   /* mean, in steps */
    double upper; /* share that landed at +1 */
    double hit, entropy,
        most;    /* cells of the output that are hit; entropy of landings over cells, its maximum (bits) */
    double psnr; /* dB, range 1 */
} tn_flows_figures;

tn_status tn_flows_measure(const tn_flows *f, int64_t first, int64_t samples, tn_flows_figures *out);
/* "784 flows: 700 exited, 84 projected · ..." into buf. */
const char *tn_flows_caption(const tn_flows_figures *m, char *buf, size_t bytes);

tn_status tn_flows_svg(const tn_flows *f, FILE *out);
/* One file without references, at most 3 MB: samples, then flows, are left out where there are too many, which the page says. */
tn_status tn_flows_page(const tn_flows *f, FILE *out);
/* sample,slot,step,x,y,z,energy,status: x and y in cells; status: active, exited, projected. With several numbers energy0, ... */
tn_status tn_flows_csv(const tn_flows *f, FILE *out);

/* --- shared by the pictures ----------------------------------------------------------------------------------------------- */

static inline const float *tn__flow_at(const tn_flows *f, int64_t step, int64_t sample, int64_t slot)
{
    return f->paths + ((step * f->samples + sample) * f->slots + slot) * (3 + f->energy);
}

static inline bool tn__flow_is_place(const float *p) { return isfinite(p[0]) && isfinite(p[1]) && isfinite(p[2]); }

/* Of E numbers; NaN where one is not finite. */
double tn__flow_energy(const tn_flows *f, const float *e);
/* Steps at which a flow is active, first .. last; false: at none. Its landing stands at the last. */
bool tn__flow_span(const tn_flows *f, int64_t sample, int64_t slot, int64_t *first, int64_t *last);
/* The cell nearest to a place, y W + x; -1: the place is not finite. */
int64_t tn__flow_cell(const tn_flows *f, double u, double v);
/* 0 .. depth, or as it is. */
double tn__flow_z(const tn_flows *f, double z);
/* The largest energy or cell of all arrays, rounded up to 1, 2 or 5 times a power of ten: ends of the colour scale. */
double tn__flows_scale(const tn_flows *f);
/* At most `most` slots of a sample in order, half of them evenly, half in proportion to the input; returns how many. */
int64_t tn__flows_choose(const tn_flows *f, int64_t sample, int64_t most, int64_t *slots);
/* Landings of a sample by cell of a plane: how many, and their mean energy (NaN: none). count, mean (2,S) */
void tn__flows_landings(const tn_flows *f, int64_t sample, double *count, double *mean);

#endif
