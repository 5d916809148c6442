/* The table of `tenon lab compare --against=SIDE`. */
#ifndef TN_CLI_LAB_STANDINGS_H
#define TN_CLI_LAB_STANDINGS_H

#include "cli/cli.h"
#include "lab/statistics/compare.h"

/* Which sides --against and --side name, -1 where --side is not given. TN_USAGE: a side that the study does not have, that is not compared, or the
 * same for both. */
tn_status tn_lab_standings_ask(const tn_cli *c, const tn_study *s, const tn_comparison *k, int *against, int *asked);
/* --against names the side; --side asks about one of the others in a line of its own; --svg=FILE: how they learned. effect:
 * as tn_compare_outcome has it. */
tn_status tn_lab_standings(tn_cli *c, tn_lab *lab, const tn_study *s, const tn_comparison *k, double effect,
                           tn_arena *arena);

#endif
