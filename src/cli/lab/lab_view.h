/* Subcommands of `tenon lab` that read a database. The first argument behind the subcommand is the database (or the
 * study's file, whose database stands beside it); --study names one where there are several. */
#ifndef TN_CLI_LAB_VIEW_H
#define TN_CLI_LAB_VIEW_H

#include "cli/cli.h"
#include "lab/db/lab.h"
#include "lab/statistics/compare.h"

typedef struct tn_lab_view {
    tn_lab *lab;
    tn_study *study;
} tn_lab_view;

typedef enum tn_lab_access {
    TN_LAB_READ,
    TN_LAB_WRITE,
    TN_LAB_BARE
} tn_lab_access; /* bare: to read, without a study */
/* min, max: arguments behind the database. */
tn_status tn_lab_view_open(tn_cli *c, size_t min, size_t max, tn_lab_access how, tn_lab_view *out);
void tn_lab_view_close(tn_lab_view *v);
/* Figures that are published are those of the study's file as it is now, where the file is named; else those it was begun with. */
tn_status tn_lab_view_quote(const tn_cli *c, tn_study *s);
/* The place of the side that --FLAG names. */
tn_status tn_lab_view_side(const tn_study *s, const char *flag, const char *name, int *out);
/* --objective=NAME: its place, or 0 (the first) where it is not given. */
tn_status tn_lab_view_objective(const tn_cli *c, const tn_study *s, size_t *out);
/* The file that --NAME names, or standard output; closed (and kept only whole) by tn_lab_view_put. */
tn_status tn_lab_view_file(const tn_cli *c, const char *flag, FILE **out);
tn_status tn_lab_view_put(const tn_cli *c, const char *flag, FILE *f, tn_status s);

/* "next    tenon lab SUB DB": of a study in it; plot writes its page (lab_next.c). */
void tn_lab_next(const tn_cli *c, const char *sub, const char *db, const char *study);

/* --- trials as lines of a table, or JSON Lines (lab_table.c) --- */

/* Of an objective's column: its name is never cut. */
int tn_lab_width(const tn_study *s, size_t objective);
void tn_lab_table_head(tn_cli *c, const tn_study *s); /* nothing with --json */
tn_status tn_lab_table_row(tn_cli *c, const tn_study *s, const tn_trial *t);
/* "key=value key=value": a trial's point, as `tenon train` takes it. */
void tn_lab_point_text(const tn_study *s, const tn_trial *t, FILE *out);
/* 0.9667, 1234567, 1.2e-05: six characters or so; "-" for NaN. */
const char *tn_lab_number(double v, char buf[24]);

/* --- figures that a study quotes, next to its own (lab_published.c) --- */

/* Tables of both, who wins by which rule, and each published point with ours that is no larger; --json: an object each. */
tn_status tn_lab_published(tn_cli *c, const tn_study *s);
/* One line, or nothing where nothing is quoted. */
void tn_lab_quoted_line(tn_cli *c, const tn_study *s, size_t side);
/* An object; NULL where nothing is quoted. */
json_t *tn_lab_quoted_json(const tn_study *s, size_t side);

/* --- a comparison's verdict in words and as JSON (lab_words.c) --- */

/* --effect=X: the smallest difference that matters; NaN where it is not given. TN_USAGE: not a number above 0. */
tn_status tn_lab_effect(const tn_cli *c, double *out);
/* "better", "worse", "no difference", "needs 12 seeds": of a against b, for a column. */
const char *tn_lab_verdict_short(const tn_judged *v, char *buf, size_t size);
/* Adds `difference`, `lo`, `hi`, `p`, `verdict`, `better` and what else was found to a row; what is not known is null. */
void tn_lab_verdict_json(json_t *row, const tn_paired *r, const tn_judged *v, const char *a, const char *b);

/* --- the table of `lab compare --against=SIDE` (lab_standings.c) --- */

/* Which sides --against and --side name, -1 where --side is not given. TN_USAGE: a side that the study does not have, that is not compared, or the
 * same for both. */
tn_status tn_lab_standings_ask(const tn_cli *c, const tn_study *s, const tn_comparison *k, int *against, int *asked);
/* --against names the side; --side asks about one of the others in a line of its own; --svg=FILE: how they learned. effect:
 * as tn_compare_word has it. */
tn_status tn_lab_standings(tn_cli *c, tn_lab *lab, const tn_study *s, const tn_comparison *k, double effect,
                           tn_arena *arena);

#endif
