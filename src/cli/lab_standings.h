/* The table of `tenon lab compare --against=SIDE`. */
#ifndef TN_CLI_LAB_STANDINGS_H
#define TN_CLI_LAB_STANDINGS_H

#include "cli/cli.h"
#include "lab/compare.h"

/* --against names the side; --side asks about one of the others in a line of its own; --svg=FILE: how they learned. */
tn_status tn_lab_standings(tn_cli *c, tn_lab *lab, const tn_study *s, const tn_comparison *k, tn_arena *arena);

#endif
