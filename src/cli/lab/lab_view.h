/* Subcommands of `tenon lab` that read a database. The first argument behind the subcommand is the database (or the
 * study's file, whose database stands beside it); --study names one where there are several. */
#ifndef TN_CLI_LAB_VIEW_H
#define TN_CLI_LAB_VIEW_H

#include "cli/cli.h"
#include "lab/db/lab.h"

typedef struct tn_lab_view {
    tn_lab *lab;
    tn_study *study;
} tn_lab_view;

/* arguments: how many stand behind the database, at least and at most. */
tn_status tn_lab_view_open(tn_cli *c, size_t min, size_t max, tn_lab_view *out);
tn_status tn_lab_view_write(tn_cli *c, size_t min, size_t max, tn_lab_view *out); /* to be written */
/* The same without a study. */
tn_status tn_lab_view_database(tn_cli *c, size_t min, size_t max, tn_lab **out);
void tn_lab_view_close(tn_lab_view *v);
/* Figures that are published are those of the study's file as it is now, where the file is named; else those it was begun with. */
tn_status tn_lab_view_quote(const tn_cli *c, tn_study *s);
/* --objective=NAME: its place, or 0 (the first) where it is not given. */
tn_status tn_lab_view_objective(const tn_cli *c, const tn_study *s, size_t *out);
/* The file that --NAME names, or standard output; closed (and kept only whole) by tn_lab_view_put. */
tn_status tn_lab_view_file(const tn_cli *c, const char *flag, FILE **out);
tn_status tn_lab_view_put(const tn_cli *c, const char *flag, FILE *f, tn_status s);

#endif
