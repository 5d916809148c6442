/* Whether a row is a gain: what separate rounds of paired ratios say. */
#ifndef TN_REPORT_PAIRED_H
#define TN_REPORT_PAIRED_H

#include "report/probe/ratios.h"

#include <stdbool.h>

/* Rounds are minutes apart and open both sides anew, so that neither a busy minute nor where memory happens to lie makes a gain. */
enum { TN_ABLATE_ROUNDS = 3, TN_ABLATE_AGREE = 2, TN_ABLATE_PAIRS = TN_RATIOS_MOST / TN_ABLATE_ROUNDS };
#define TN_ABLATE_LEAST 0.01 /* of the time: less is no difference, whatever the interval */

typedef enum tn_gain {
    TN_GAIN_NONE, /* no difference shown */
    TN_GAIN_SHOWN,
    TN_GAIN_NEGATIVE,
    TN_GAIN_SHORT /* there was no time for two rounds */
} tn_gain;

typedef struct tn_paired {
    double ratio[TN_ABLATE_ROUNDS][TN_ABLATE_PAIRS]; /* (n): time of the plain side over that of the fast one */
    int n[TN_ABLATE_ROUNDS];
} tn_paired;

tn_ratio tn_paired_all(const tn_paired *p); /* of all rounds together */
int tn_paired_rounds(const tn_paired *p);   /* that have a pair */
/* A gain, or a loss, where the 95 % interval of two rounds leaves out 1 on the same side, that of no round on the other, and all of them
 * together say at least TN_ABLATE_LEAST. */
tn_gain tn_paired_gain(const tn_paired *p);
/* After two rounds: one of them shows something, the other nothing, so that a third decides. */
bool tn_paired_undecided(const tn_paired *p);

#endif
