/* A study for people and other programs: charts, a page, tables. Each writes to an open file; TN_DISK: it could not
 * be written. */
#ifndef TN_LAB_VIEW_H
#define TN_LAB_VIEW_H

#include "lab/db/lab.h"
#include "report/chart/plot.h"

#include <jansson.h>
#include <stdio.h>

/* --- charts ------------------------------------------------------------------------------------------------------- */

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
/* TN_USAGE: nothing to draw yet. side: for PARALLEL and CURVES; objective: for HISTORY, PARETO (the second one),
 * IMPORTANCE. */
tn_status tn_study_chart_draw(tn_study_chart c, const tn_study *s, tn_lab *lab, int side, size_t objective, FILE *out);

/* The plot behind TN_STUDY_HISTORY, for a terminal; its parts are in `arena`. */
tn_status tn_study_history(const tn_study *s, size_t objective, tn_arena *arena, tn_plot *out);

/* --- the report: one HTML file, without scripts or other files ---------------------------------------------------- */

/* lab: for the learning curves. */
tn_status tn_page_write(const tn_study *s, tn_lab *lab, FILE *out);
/* Its section of a study with several sides: what `tenon lab compare` has run so far, and what that says (page_compare.c). */
tn_status tn__page_comparison(const tn_study *s, tn_lab *lab, tn_arena *arena, FILE *out);

/* --- exports: CSV, JSON Lines, and an Optuna journal (JournalStorage; one Optuna study a side) -------------------- */

tn_status tn_export_csv(const tn_study *s, FILE *out);
tn_status tn_export_jsonl(const tn_study *s, FILE *out);
/* lab: for the learning curves, which become Optuna's intermediate values of the first objective; NULL: without
 * them. */
tn_status tn_export_optuna(const tn_study *s, tn_lab *lab, FILE *out);

/* One trial as an object: what export_jsonl writes and `lab show --json` prints. NULL: out of memory. */
json_t *tn_trial_json(const tn_study *s, const tn_trial *t);

#endif
