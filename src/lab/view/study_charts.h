/* The pictures of a study, each an SVG: how the best came about, what the objectives cost each other, where good trials lie, what matters,
 * who worked when, how trials learned. */
#ifndef TN_LAB_STUDY_CHARTS_H
#define TN_LAB_STUDY_CHARTS_H

#include "lab/db/lab.h"
#include "report/chart/plot.h"

#include <stdio.h>

typedef enum tn_study_chart {
    TN_STUDY_HISTORY = 0,    /* best of an objective by trial, each side */
    TN_STUDY_PARETO = 1,     /* the first objective against another */
    TN_STUDY_PARALLEL = 2,   /* dimensions of a side, by the first objective */
    TN_STUDY_IMPORTANCE = 3, /* of the dimensions for an objective, each side */
    TN_STUDY_TIMELINE = 4,
    TN_STUDY_CURVES = 5, /* learning curves of a side: the ten best strong, others pale */
    TN_STUDY_CHARTS = 6
} tn_study_chart;

const char *tn_study_chart_name(tn_study_chart c); /* "history", ... */
/* TN_USAGE: there is nothing to draw yet, with the reason. side: PARALLEL and CURVES; objective: HISTORY, PARETO (the other one), IMPORTANCE. */
tn_status tn_study_chart_draw(tn_study_chart c, const tn_study *s, tn_lab *lab, int side, size_t objective, FILE *out);

/* The plot behind TN_STUDY_HISTORY, for a terminal; its parts are in `arena`. */
tn_status tn_study_history(const tn_study *s, size_t objective, tn_arena *arena, tn_plot *out);

#endif
