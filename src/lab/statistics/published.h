/* Comparison with the published figures that a study file quotes: what each side achieved, which side wins by the
 * published rule and by hypervolume, and for each published point our best trial that is no larger. */
#ifndef TN_LAB_PUBLISHED_H
#define TN_LAB_PUBLISHED_H

#include "lab/db/lab.h"

typedef struct tn_against_published_side {
    const tn_trial **best; /* (objectives): the trial that is best in each, of those done; NULL: none */
    size_t front;          /* points on the side's Pareto front */
    size_t nondominated;   /* of these, points that no other side's front dominates: the published score */
    double volume;         /* hypervolume below the references; NaN */
    double hours;          /* that its trials worked */
} tn_against_published_side;

typedef struct tn_against_published_point {
    size_t side;
    const tn_published_point *theirs;
    const tn_trial *ours; /* best in the first objective with no more parameters; NULL: none */
} tn_against_published_point;

typedef struct tn_against_published {
    const tn_against_published_side *sides;   /* (n_sides of the study) */
    int winner;                               /* by the report's rule; -1: a tie */
    const char *decided;                      /* what decided: "front points ...", ... */
    int larger;                               /* by hypervolume; -1: equal or not known */
    const tn_against_published_point *points; /* (n_points), side by side as quoted */
    size_t n_points;
} tn_against_published;

/* In `arena`; the study quotes figures. The rule: more front points that no other side's front dominates; then the
 * better first objective, if it differs by more than 0.05; then the faster of these two points; else a tie. */
tn_status tn_against_published_make(const tn_study *s, tn_arena *arena, tn_against_published *out);

#endif
