/* What a study may ask for by name: metrics of models (rows), numbers that every trial has, and instruments, which only a model that runs knows. */
#ifndef TN_LAB_STUDY_METRICS_H
#define TN_LAB_STUDY_METRICS_H

#include "train/run/metric_rows.h"

/* A metric of the models in the tree or of environments, by its name or as NAME_GROUP; NULL: of none. Others are a shared object's, or instruments. */
const tn_metric_row *tn_study_metric(const char *name);
/* A number that every trial has: seconds, parameters, ...; *maximise: more of it is better. */
bool tn_study_number(const char *name, bool *maximise);

#endif
