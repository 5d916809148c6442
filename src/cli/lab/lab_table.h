/* Trials as lines of a table on a terminal or JSON Lines, for ls, best and show. */
#ifndef TN_CLI_LAB_TABLE_H
#define TN_CLI_LAB_TABLE_H

#include "cli/cli.h"
#include "lab/db/lab.h"

void tn_lab_table_head(tn_cli *c, const tn_study *s); /* nothing with --json */
tn_status tn_lab_table_row(tn_cli *c, const tn_study *s, const tn_trial *t);
/* "key=value key=value": a trial's point, as `tenon train` takes it. */
void tn_lab_point_text(const tn_study *s, const tn_trial *t, FILE *out);
/* 0.9667, 1234567, 1.2e-05: six characters or so; "-" for NaN. */
const char *tn_lab_number(double v, char buf[24]);

#endif
