/* Studies with `seeds`: nothing is searched, every point of the grid is run on common seeds, as comparisons (so with their test part
 * measured, which stays with them). A trial of the search is then the mean of its point over the seeds, on the validation part. */
#ifndef TN_LAB_COMMON_SEEDS_H
#define TN_LAB_COMMON_SEEDS_H

#include "lab/db/trials.h"

enum { TN_FIRST_SEED = 1000 }; /* of comparisons: far from those of a search, which are seed + number */

/* After tn_lab_fill: gives every trial of the search its point, and the comparisons that it does not have yet, seed by seed. */
tn_status tn_lab_seeds_fill(tn_lab *lab, const tn_study *s, const tn_study_plan *p);
/* Ends those trials of the search whose comparisons have all ended; a point that failed on one seed has failed. */
tn_status tn_lab_seeds_settle(tn_lab *lab, const tn_study *s, const tn_study_plan *p);

/* The best, or else the last, value that a trial reported of a metric; NaN: it never did. */
tn_status tn_trial_reported(tn_lab *lab, const tn_trial *t, const char *metric, bool best, bool maximise, double *out);

#endif
