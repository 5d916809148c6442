/* Samplers choose the point of the next trial. A draw is a function of the options, the trial's number and the
 * finished trials that the sampler asked for; not of the clock, the number of workers or the order in which trials
 * end. A study that was killed, or runs with other workers, therefore draws the same points. */
#ifndef TN_LAB_SAMPLER_H
#define TN_LAB_SAMPLER_H

#include "lab/search/space.h"

/* Trials 0 .. n-1 of one side of a study, all ended. */
typedef struct tn_observed {
    size_t n, objectives;
    const double *x;    /* (n, dims) */
    const double *y;    /* (n, objectives), all minimised; +infinity where the trial failed */
    const bool *pruned; /* (n): y is what it had when it was stopped */
} tn_observed;

typedef struct tn_sampler_options {
    uint64_t seed;
    int64_t trials;  /* of the side, as planned; 0: not known */
    int64_t lag;     /* tpe: trial i is drawn from those before i - lag (workers may be up to so many trials apart) */
    int64_t startup; /* tpe: drawn from the prior; 0: 10 */
    int64_t population;     /* nsga2; 0: from trials, min(50, max(10, 2 sqrt(trials))) */
    double crossover, swap; /* nsga2: chance of two parents (0: 0.9), of a gene from the second (0: 0.5) */
    double mutation;        /* nsga2: chance a gene is mutated; 0: one over the dimensions */
    double eta;             /* nsga2: how near to their parents children lie in numbers; 0: 20 */
    bool uniform;           /* nsga2: genes are a parent's own or drawn anew, never between or near: as in the report */
    size_t objectives;
} tn_sampler_options;

typedef struct tn_sampler {
    const char *name;
    /* How many of the first trials must have ended before `number` can be drawn: exactly these are in `seen`. */
    int64_t (*needs)(const tn_sampler_options *o, int64_t number);
    /* How many trials there can be (grid), or 0: no end. */
    int64_t (*count)(const tn_space *s);
    /* Whether it can search this space with these options: asked once, before the first draw. */
    tn_status (*check)(const tn_sampler_options *o, const tn_space *s);
    tn_status (*draw)(const tn_sampler_options *o, const tn_space *s, const tn_observed *seen, int64_t number,
                      double *x);
} tn_sampler;

/* By name: random, grid, tpe, nsga2; NULL: unknown. Names in order, then NULL. 0 stands for the default of every
 * option. */
const tn_sampler *tn_sampler_find(const char *name);
const char *tn_sampler_name(size_t i);

#endif
