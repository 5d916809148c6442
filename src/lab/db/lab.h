/* The lab database: studies, trials and reports in one SQLite file, which any number of processes on a machine read and
 * write at once (WAL). This header is for readers; running studies is in study.h, trials.h and worker.h.
 *
 * A study is loaded whole. Numbers come back as the doubles that were stored; unknown ones are NaN. */
#ifndef TN_LAB_LAB_H
#define TN_LAB_LAB_H

#include "lab/study/records.h"

typedef struct tn_lab tn_lab;

/* write: creates a missing file. TN_BAD_FILE: no such file, not a lab database, a newer version, damaged; TN_USAGE:
 * on a network filesystem; TN_DISK: cannot be written. Reading leaves no files behind. */
tn_status tn_lab_open(const char *path, bool write, tn_lab **out);
void tn_lab_close(tn_lab *lab); /* takes NULL */
const char *tn_lab_path(const tn_lab *lab);
/* The whole file: its pages, tables, sums of rows, references. In time that grows with the file (0.6 s for 118 MB),
 * so for whoever opens it for a user, not for each worker. TN_BAD_FILE says what is wrong with it. */
tn_status tn_lab_verify(tn_lab *lab);

/* Their names by age, each in `arena`. */
tn_status tn_lab_studies(tn_lab *lab, tn_arena *arena, const char *const **names, size_t *n);
/* study NULL: the only one. TN_USAGE names those that are there. */
tn_status tn_lab_load(tn_lab *lab, const char *study, tn_study **out);
void tn_study_free(tn_study *s); /* takes NULL */

/* All of it in `arena`; n is 0 where nothing was reported. */
tn_status tn_lab_curve(tn_lab *lab, int64_t trial, tn_arena *arena, tn_trial_curve *out);

const char *tn_trial_state_name(tn_trial_state s); /* "waiting", "running", "done", "pruned", "failed", "timeout" */

#endif
