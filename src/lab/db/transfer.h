/* The best points of one study as the first trials of another. */
#ifndef TN_LAB_TRANSFER_H
#define TN_LAB_TRANSFER_H

#include "lab/db/trials.h"

/* Enqueues the best of plan->from_study, by its first objective, in each side of the same name (or in all, from a study without sides):
 * dimensions of the same key take the value where they allow it, the others that of a random point. Before anything else is enqueued. */
tn_status tn_lab_transfer(tn_lab *lab, int64_t study, const tn_study_plan *p);

#endif
