/* A comparison's verdict in words and as JSON, for both forms of `tenon lab compare`. */
#ifndef TN_CLI_LAB_WORDS_H
#define TN_CLI_LAB_WORDS_H

#include "cli/cli.h"
#include "lab/statistics/compare.h"

/* --effect=X: the smallest difference that matters; NaN where it is not given. TN_USAGE: not a number above 0. */
tn_status tn_lab_effect(const tn_cli *c, double *out);
/* "ten is better", "undecided: at least 12 seeds are needed to see an effect of 0.0050": of sides named a and b. */
const char *tn_lab_verdict_text(const tn_paired *r, const tn_judged *v, const char *a, const char *b, char *buf,
                                size_t size);
/* "better", "worse", "no difference", "needs 12 seeds": of a against b, for a column. */
const char *tn_lab_verdict_short(const tn_judged *v, char *buf, size_t size);
/* Adds `difference`, `lo`, `hi`, `p`, `verdict`, `better` and what else was found to a row; what is not known is null. */
void tn_lab_verdict_json(json_t *row, const tn_paired *r, const tn_judged *v, const char *a, const char *b);

#endif
