/* The figures that a study quotes, beside its own, for best and ls. */
#ifndef TN_CLI_LAB_BESIDE_H
#define TN_CLI_LAB_BESIDE_H

#include "cli/cli.h"
#include "lab/db/lab.h"

/* Tables of both, who wins by which rule, and each published point with ours that is no larger; --json: an object each. */
tn_status tn_lab_published(tn_cli *c, const tn_study *s);
/* One line, or nothing where nothing is quoted. */
void tn_lab_quoted_line(tn_cli *c, const tn_study *s, size_t side);
/* An object; NULL where nothing is quoted. */
json_t *tn_lab_quoted_json(const tn_study *s, size_t side);

#endif
