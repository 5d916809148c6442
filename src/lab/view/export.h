/* A study for other programs: a table (CSV), one object a trial (JSON Lines), or the journal that Optuna reads (one Optuna study for each
 * side; optuna.storages.JournalStorage). TN_DISK: `out` did not take it. */
#ifndef TN_LAB_EXPORT_H
#define TN_LAB_EXPORT_H

#include "lab/db/lab.h"

#include <jansson.h>
#include <stdio.h>

tn_status tn_export_csv(const tn_study *s, FILE *out);
tn_status tn_export_jsonl(const tn_study *s, FILE *out);
/* lab: where the curves are, which become Optuna's intermediate values (of the first objective's metric); NULL: without them. */
tn_status tn_export_optuna(const tn_study *s, tn_lab *lab, FILE *out);

/* One trial as an object: what export_jsonl writes and `lab show --json` prints. NULL: out of memory. */
json_t *tn_trial_json(const tn_study *s, const tn_trial *t);
/* "tep", or the study's own name where it has one side; Optuna's studies are named STUDY or STUDY/SIDE. */
void tn_side_study_name(const tn_study *s, size_t side, char *out, size_t bytes);

#endif
