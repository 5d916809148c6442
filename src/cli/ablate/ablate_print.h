/* What tenon ablate prints: a table of rows, the list of turns, held-out metrics, or all of it as JSON Lines. */
#ifndef TN_CLI_ABLATE_PRINT_H
#define TN_CLI_ABLATE_PRINT_H

#include "cli/view.h"
#include "report/ablate/ablate.h"

typedef struct tn_ablate_printing {
    tn_cli *c;
    const tn_ablate_options *options;
    tn_progress progress;
    double items; /* tokens or samples of a step */
    const char *unit;
    bool measured;            /* peaks of memory; else what is planned */
    bool rows, turns, scores; /* the head of each table is printed */
    char settings[2048];      /* what rows of settings compare, line by line */
} tn_ablate_printing;

void tn_ablate_print_base(tn_ablate_printing *p, const tn_ablate_base *b);
void tn_ablate_print_row(tn_ablate_printing *p, const tn_ablation *a);
void tn_ablate_print_turn(tn_ablate_printing *p, const tn_ablate_turn *t);
void tn_ablate_print_scores(tn_ablate_printing *p, const tn_ablate_scores *s);
void tn_ablate_print_progress(tn_ablate_printing *p, const char *what, double part);
void tn_ablate_print_end(tn_ablate_printing *p, const tn_ablate_result *r); /* NULL: an error ended it */

#endif
